"""What is wanted of a study: whether it is searched, how soon, and with how much of a machine.

A service writes it into one attribute of the study and makes it so. It is in force only in the study that it
was written for: Optuna's own copy of a study has the attribute too, but another key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, Self, get_args

import sqlalchemy
from optuna.storages import RDBStorage

from .attributes import MOST_COUNT, UNREADABLE, is_a, is_count, is_text, is_text_or_none, mapping_with
from .changing import change_attribute
from .damage import readable
from .database import Tables
from .rows import STUDIES, STUDY_USER

WANTED = "hpsearch:serve"  # the study attribute
Desired = Literal["run", "pause", "stop"]
Priority = Literal["high", "normal", "low"]
PRIORITIES: tuple[Priority, ...] = get_args(Priority)  # the first goes first
DRIVER_VARIABLE = "HPSEARCH_SERVED"  # in the environment of a driver that a service has started
KILLS, WITHIN = 3, 600.0  # ends by others within so many seconds after which a driver is started again


@dataclass(frozen=True)
class Slots:
    """How much of a machine a study asks for; None: what suits the rest."""

    cpus: int | None = None
    gpus: int | None = None
    memory: int | None = None  # bytes


@dataclass(frozen=True)
class Preempted:
    """That a study was stopped in favour of another, and is queued again."""

    by: str  # the other study
    at: float  # when it was told so, in seconds since 1970
    left: float | None = None  # when its driver had left
    started: float | None = None  # when its next driver was started
    reached: int = 0  # how far its trials had come when its driver had left, in units and ends

    def cost(self, now: float, usual: float = 0.0) -> float:
        """The seconds it has cost: to put trials back, to start again, to train again what was not kept.

        `usual`: seconds from one report to the next, which the first report after it takes anyway.
        """
        left = now if self.left is None else self.left
        again = 0.0 if self.started is None else max(0.0, now - self.started - usual)
        return max(0.0, left - self.at) + again


@dataclass(frozen=True)
class Wanted:
    """What is wanted of a study. Moments are seconds since 1970."""

    since: float  # its place in the queue, among studies of its priority
    queued: float | None = None  # when it was put back into the queue last; None: it never was
    desired: Desired = "run"
    priority: Priority = "normal"
    by: str | None = None  # who wanted it last
    changed: float = 0.0  # when `desired` changed last
    backend: str = "optuna"
    ray_address: str | None = None
    slots: Slots | None = None  # None: a lane of the machine, or what its `execution` asks for
    cwd: str | None = None  # the folder that its driver starts in
    bundle: str | None = None  # the SHA-256 of the user's code, where `cwd` is the folder of such
    server: str | None = None  # which service makes it so; None: the one of its database
    preemptible: bool = True
    preempted: Preempted | None = None
    preemptions: int = 0  # that are over
    made_room_for: str | None = None  # the study of the last of these
    lost: float = 0.0  # seconds that preemptions have cost: to put trials back, and to start again
    failure: str | None = None  # why its last driver failed; it is not started again by itself
    started: float | None = None  # when its last driver was started
    killed: tuple[float, ...] = ()  # when its drivers were lately ended by others, the earliest first

    @property
    def times_preempted(self) -> int:
        """How often it was stopped in favour of another study, with the time that is not over."""
        return self.preemptions + (self.preempted is not None)

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Self:
        """From the attribute's plain data, as `is_wanted` accepts it. Fields of later versions are left."""
        known = {name: stored[name] for name in cls.__dataclass_fields__.keys() & stored.keys()}
        for name in ("since", "changed"):
            known[name] = _seconds(stored[name]) if name in stored else 0.0
        for name in ("queued", "started"):
            known[name] = _seconds_or_none(stored.get(name))
        known["killed"] = tuple(map(_seconds, stored.get("killed", ())))
        if known.get("slots") is not None:
            asked = {name: known["slots"].get(name) for name in Slots.__dataclass_fields__}
            known["slots"] = Slots(**asked)
        if known.get("preempted") is not None:
            told = known["preempted"]
            left, started = (_seconds_or_none(told.get(name)) for name in ("left", "started"))
            at, reached = _seconds(told["at"]), told.get("reached", 0)
            known["preempted"] = Preempted(told["by"], at, left, started, reached)
        return cls(**known)

    def to_json(self) -> dict[str, Any]:
        """As plain data, moments in ISO 8601."""
        data = asdict(self) | {name: moment(getattr(self, name)) for name in ("since", "changed")}
        moments = {name: getattr(self, name) for name in ("queued", "started")}
        data |= {name: None if at is None else moment(at) for name, at in moments.items()}
        data["killed"] = list(map(moment, self.killed))
        if self.preempted is not None:
            moments = {name: getattr(self.preempted, name) for name in ("at", "left", "started")}
            data["preempted"] |= {name: None if at is None else moment(at) for name, at in moments.items()}
        return data

    def to(self, desired: Desired, by: str | None, now: float) -> Wanted:
        """What is wanted once somebody asks for `desired`; to run again forgets why it failed."""
        changed = now if desired != self.desired else self.changed
        if desired == "run":
            again = self.forgiven(now) if self.desired == "run" else self.forgiven(now).put_back(now)
        else:  # what it has lost by making room ends here
            again = self if self.preempted is None else self.goes_on(self.preempted.cost(now))
        return replace(again, desired=desired, by=by, changed=changed)

    def forgiven(self, now: float) -> Wanted:
        """The same, whatever its drivers have come to before."""
        again = self if self.failure is None else self.put_back(now)
        return replace(again, failure=None, killed=())

    def put_back(self, now: float) -> Wanted:
        """The same, back in the queue, at its old place."""
        return replace(self, queued=now)

    def begun(self, server: str, now: float) -> Wanted:
        """What is wanted of a study whose driver starts now; the same where it is not to start."""
        if self.desired != "run" or self.failure is not None or self.server not in (None, server):
            return self
        told = self.preempted
        told = told and replace(told, left=now if told.left is None else told.left, started=now)
        return replace(self, started=now, server=server, preempted=told)

    def killed_at(self, now: float, how: str | None) -> Wanted:
        """Its driver was ended by others: it is started again, unless that happens all the time.

        `how`: the signal; None where it has left by itself, which is no fault after a change of `desired`.
        """
        was_told = self.started is not None and self.changed > self.started
        if self.desired != "run" or self.failure is not None or (how is None and was_told):
            return self
        killed = (*(at for at in self.killed if now - at < WITHIN), now)
        times, last = f"{len(killed)} times in {WITHIN / 60:g} minutes", how or "somebody"
        told = f"its drivers were ended {times}, the last by {last}"
        return replace(self.put_back(now), killed=killed, failure=told if len(killed) > KILLS else None)

    def preempted_by(self, study: str, now: float) -> Wanted:
        """It is to make room for another study; the same where it need not."""
        if self.desired != "run" or not self.preemptible:
            return self
        before = self if self.preempted is None else self.goes_on(self.preempted.cost(now))
        return replace(before, preempted=Preempted(study, now))

    def has_left(self, reached: int, now: float) -> Wanted:
        """Its driver has left for another study."""
        if self.preempted is None or self.preempted.left is not None:
            return self
        return replace(self, preempted=replace(self.preempted, left=now, reached=reached))

    def goes_on(self, cost: float) -> Wanted:
        """It goes on after it has made room for another."""
        lost = round(self.lost + cost, 1)
        by = self.made_room_for if self.preempted is None else self.preempted.by
        return replace(self, preempted=None, preemptions=self.preemptions + 1, made_room_for=by, lost=lost)


def is_servers_driver() -> bool:
    """Whether a service has started this process, so that nobody asks for anything by it."""
    return DRIVER_VARIABLE in os.environ


def moment(seconds: float) -> str:
    """A moment in ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _seconds(stored: str) -> float:
    return datetime.fromisoformat(stored).timestamp()


def _seconds_or_none(stored: str | None) -> float | None:
    return None if stored is None else _seconds(stored)


def _is_moment(value: Any) -> bool:
    try:
        return is_text(value) and _seconds(value) >= 0
    except (ValueError, OverflowError, OSError):
        return False


def _is_moment_or_none(value: Any) -> bool:
    return value is None or _is_moment(value)


def _is_count_or_none(value: Any) -> bool:
    return value is None or is_count(value)


_slots = mapping_with(cpus=_is_count_or_none, gpus=_is_count_or_none, memory=_is_count_or_none)
_preempted = mapping_with(
    by=is_text, at=_is_moment, left=_is_moment_or_none, started=_is_moment_or_none, reached=is_count
)
_wanted = mapping_with(
    of=is_count,
    desired=lambda value: value in get_args(Desired),
    priority=lambda value: value in PRIORITIES,
    since=_is_moment,
    changed=_is_moment,
    slots=lambda value: value is None or _slots(value),
    preempted=lambda value: value is None or (_preempted(value) and {"by", "at"} <= value.keys()),
    preemptions=is_count,
    lost=lambda value: type(value) in (int, float) and 0 <= value <= MOST_COUNT,
    preemptible=is_a(bool),
    queued=_is_moment_or_none,
    started=_is_moment_or_none,
    killed=lambda value: type(value) is list and all(map(_is_moment, value)),
    backend=is_text,
    **dict.fromkeys(
        ("by", "ray_address", "cwd", "bundle", "server", "failure", "made_room_for"), is_text_or_none
    ),
)


def is_wanted(value: Any) -> bool:
    """Whether an attribute is one that hpsearch could have written."""
    return _wanted(value) and "since" in value


def wanted_of(study: int, attrs: Mapping[str, Any]) -> Wanted | None:
    """What the attributes of the study with this key say is wanted of it; None where that is nothing."""
    stored = attrs.get(WANTED)
    return Wanted.parse(stored) if stored is not None and stored.get("of", study) == study else None


def read_wanted(database: RDBStorage | Tables, name: str) -> Wanted | None:
    """What is wanted of a study; None where no service has it. Raises `DatabaseUnavailable`."""
    found = _read(database, STUDIES.c.study_name == name)
    return found.get(name)


def all_wanted(database: RDBStorage | Tables) -> dict[str, Wanted]:
    """What is wanted of all studies of a database, by their names. Raises `DatabaseUnavailable`."""
    return _read(database, sqlalchemy.true())


def change_wanted(
    database: RDBStorage | Tables, name: str, change: Callable[[Wanted | None], Wanted | None]
) -> Wanted | None:
    """Change what is wanted of a study in one step, whoever else changes it; what is wanted now.

    `change` may be called several times, with what is stored; where it returns None, or the same, nothing
    changes. Raises `KeyError` where there is no such study, and `DatabaseUnavailable`.
    """
    now: Wanted | None = None

    def changed(key: int, text: str | None) -> str | None:
        nonlocal now
        before = None if text is None else _parsed(key, text)
        after = change(before)
        now = before if after is None else after
        return None if now is None or now == before else json.dumps({"of": key} | now.to_json())

    change_attribute(database, name, WANTED, changed)
    return now


def _read(database: RDBStorage | Tables, where: sqlalchemy.ColumnElement[bool]) -> dict[str, Wanted]:
    query = sqlalchemy.select(STUDIES.c.study_name, STUDIES.c.study_id, STUDY_USER.c.value_json)
    query = query.join(STUDY_USER).where(STUDY_USER.c.key == WANTED, where)
    with readable(), database.engine.connect() as connection:
        rows = connection.execute(query.order_by(STUDIES.c.study_id)).all()
    found = {name: _parsed(key, text) for name, key, text in rows}
    return {name: wanted for name, wanted in found.items() if wanted is not None}


def _parsed(key: int, text: str) -> Wanted | None:
    """What an attribute says; None where it is another study's, or no service could have written it."""
    try:
        stored = json.loads(text)
    except UNREADABLE:
        return None
    return wanted_of(key, {WANTED: stored}) if is_wanted(stored) else None
