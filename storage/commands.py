"""Commands of other processes to the driver of a study, as attributes that it takes out of the study."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import Any

import optuna
from optuna.storages import RDBStorage

from .damage import readable
from .database import Tables
from .rows import STUDY_USER

COMMAND_PREFIX = "hpsearch:command:"  # followed by something unique: a study attribute that holds a command
ANSWER_SECONDS = 10.0  # for a driver to take a command; it looks several times a second
_OF_A_PROCESS = ("stop", "pause", "resume")  # the others are about the study, whoever searches it
_TEXTS = dict.fromkeys(("by", "request", "call"), str)
_KINDS = {"trial": int, "driver": int, "budget": dict, "confirm": dict, "params": dict} | _TEXTS  # in JSON


@dataclass(frozen=True)
class StudyCommand:
    """A command of another process to the driver."""

    do: str  # stop, pause, resume; kill or retry a trial; budget; try a configuration
    trial: int | None = None
    driver: int | None = None  # the process that it is meant for, where that is known
    by: str | None = None  # who asks for it; None: hpsearch on this machine
    budget: dict[str, Any] | None = None  # the limits that change; None takes one away
    confirm: dict[str, Any] | None = None  # beside a budget: what changes of what trains again
    params: dict[str, Any] | None = None  # to be tried: Optuna's labels of searched parameters
    request: str | None = None  # by which the trial is found that this enqueues
    call: str | None = None  # by which of several commands with one request the one is known that enqueued it

    @property
    def is_for_a_process(self) -> bool:
        """Whether it says something to one driver, and nothing to the next."""
        return self.do in _OF_A_PROCESS

    @classmethod
    def parse(cls, stored: str) -> StudyCommand:
        """Parse an attribute, which any program may have written."""
        data = json.loads(stored)
        match data:
            case {"do": str(do)}:
                known: dict[str, Any] = {
                    name: data[name]
                    for name, kind in _KINDS.items()
                    if name in data and isinstance(data[name], kind)
                }
                return cls(do, **known)
        return cls(stored)


def send(study: optuna.Study, asked: StudyCommand) -> str:
    """Leave a command for the driver of a study, without waiting; the attribute that holds it."""
    key = f"{COMMAND_PREFIX}{uuid.uuid4().hex}"
    with readable():
        study.set_user_attr(key, {name: value for name, value in asdict(asked).items() if value is not None})
    return key


def is_there(study: optuna.Study, key: str) -> bool:
    """Whether a command is still to be taken."""
    with readable():
        return key in study.user_attrs


def withdraw(database: RDBStorage | Tables, key: str) -> bool:
    """Take a command back; False where a driver has taken it."""
    with readable(), database.engine.begin() as connection:
        return bool(connection.execute(STUDY_USER.delete().where(STUDY_USER.c.key == key)).rowcount)
