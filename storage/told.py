"""What those who are notified of a study were told, and what they have still to be told.

Each target has its own part of one attribute, by its label, which names no secret. What has happened is noted
together with the notice that tells it, and the notice stays until its target has accepted it: so a process
that is killed in between leaves it to the next one. It is in force only in the study that it was written for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import sqlalchemy
from optuna.storages import RDBStorage

from .attributes import UNREADABLE, is_a, is_text, is_text_or_none, mapping_with
from .changing import change_attribute
from .damage import readable
from .database import Tables
from .rows import STUDIES, STUDY_USER

TOLD = "hpsearch:told"  # the study attribute
MOST_PENDING = 20  # notices that wait for one target; of more, the oldest go


@dataclass(frozen=True)
class Notice:
    """Something that a target is to be told."""

    id: str  # the same however often it is sent
    body: dict[str, Any]  # as it is sent, see `search/exchange/notices/messages`


@dataclass(frozen=True)
class Told:
    """What one target knows of a study."""

    over: float | None = None  # seconds searched when it was told that nothing is left to do
    failure: str | None = None  # it was told last, while no search has begun again
    better: bool = False  # that a trial is better than the baseline
    end: tuple[float, float] | None = None  # of the search: when it was foreseen, and for when
    disk: bool = False  # that the disk is nearly full
    pending: tuple[Notice, ...] = ()  # the oldest first

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Self:
        """From the attribute's plain data, as `is_told` accepts it. Fields of later versions are left."""
        known = {name: stored[name] for name in cls.__dataclass_fields__.keys() & stored.keys()}
        known["end"] = tuple(known["end"]) if known.get("end") else None
        known["pending"] = tuple(Notice(each["id"], each["body"]) for each in known.get("pending", ()))
        return cls(**known)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 2**53


_told = mapping_with(
    over=lambda value: value is None or _is_number(value),
    failure=is_text_or_none,
    better=is_a(bool),
    end=lambda value: (
        value is None or (type(value) is list and len(value) == 2 and all(map(_is_number, value)))
    ),
    disk=is_a(bool),
    pending=lambda value: type(value) is list and all(map(_is_notice, value)),
)


def _is_notice(value: Any) -> bool:
    return type(value) is dict and is_text(value.get("id")) and _is_body(value.get("body"))


def _is_body(value: Any) -> bool:
    return type(value) is dict and is_text(value.get("type")) and type(value.get("data")) is dict


def is_told(value: Any) -> bool:
    """Whether an attribute is one that hpsearch could have written."""
    return (
        type(value) is dict
        and type(value.get("of")) is int
        and type(value.get("targets")) is dict
        and all(map(_told, value["targets"].values()))
    )


def told_of(study: int, attrs: Mapping[str, Any]) -> dict[str, Told]:
    """What the targets of the study with this key know, by their labels, as its attributes say."""
    stored = attrs.get(TOLD)
    if stored is None or not is_told(stored) or stored["of"] != study:
        return {}
    return {label: Told.parse(told) for label, told in stored["targets"].items()}


def all_told(database: RDBStorage | Tables) -> dict[str, dict[str, Told]]:
    """What targets know of the studies of a database, by the studies' names. Raises `DatabaseUnavailable`."""
    query = sqlalchemy.select(STUDIES.c.study_name, STUDIES.c.study_id, STUDY_USER.c.value_json)
    query = query.join(STUDY_USER).where(STUDY_USER.c.key == TOLD).order_by(STUDIES.c.study_id)
    with readable(), database.engine.connect() as connection:
        rows = connection.execute(query).all()
    return {name: _parsed(key, text) for name, key, text in rows}


def change_told(
    database: RDBStorage | Tables, name: str, label: str, change: Callable[[Told | None], Told]
) -> Told:
    """Change what a target knows of a study in one step; what it knows now.

    `change` may be called several times, with what is stored; None: the target is new. Raises `KeyError`
    where there is no such study, and `DatabaseUnavailable`.
    """
    now = Told()

    def changed(key: int, text: str | None) -> str | None:
        nonlocal now
        every = {} if text is None else _parsed(key, text)
        before = every.get(label)
        now = change(before)
        if now == before:
            return None
        targets = {each: told.to_json() for each, told in (every | {label: now}).items()}
        return json.dumps({"of": key, "targets": targets})

    change_attribute(database, name, TOLD, changed)
    return now


def _parsed(key: int, text: str) -> dict[str, Told]:
    """What an attribute says; nothing where it is another study's, or hpsearch could not have written it."""
    try:
        return told_of(key, {TOLD: json.loads(text)})
    except UNREADABLE:
        return {}
