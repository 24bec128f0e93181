"""Commands of other processes to the driver of a study, as attributes that it takes out of the study."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import asdict, dataclass
from typing import Any

import optuna

from .damage import readable

COMMAND_PREFIX = "hpsearch:command:"  # followed by something unique: a study attribute that holds a command
ANSWER_SECONDS = 10.0  # for a driver to take a command; it looks several times a second


_KINDS = {"trial": int, "driver": int, "by": str, "budget": dict, "params": dict, "request": str}  # in JSON


@dataclass(frozen=True)
class StudyCommand:
    """A command of another process to the driver."""

    do: str  # stop, pause, resume; kill or retry a trial; budget; try a configuration
    trial: int | None = None
    driver: int | None = None  # the process that it is meant for, where that is known
    by: str | None = None  # who asks for it; None: hpsearch on this machine
    budget: dict[str, Any] | None = None  # the new one
    params: dict[str, Any] | None = None  # to be tried: Optuna's labels of searched parameters
    request: str | None = None  # by which the trial is found that this enqueues

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


def command(study: optuna.Study, asked: StudyCommand) -> bool:
    """Ask the driver of a study for something; whether it took the command within a few seconds."""
    key = send(study, asked)
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        time.sleep(0.1)
        if key not in study.user_attrs:
            return True
    return False
