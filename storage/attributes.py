"""Checks hpsearch's attributes of a study and its trials, since a database may come from anywhere.

They are checked where a study is read, so that every reader can rely on their types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy
from optuna.trial import FrozenTrial

from . import StorageError
from .trial_attrs import (
    ASKED,
    AT_RUNG,
    AUDITED,
    CONFIRMS,
    CONFIRMS_SEED,
    EVENTS,
    LEASE,
    STOPPED,
    THREADS,
    TOOK,
    TRAINED,
    USED,
    USED_BEFORE_AUDIT,
)

Sound = Callable[[Any], bool]
MOST_COUNT = 2**53 - 1  # that every reader of JSON keeps exactly
UNREADABLE = (ValueError, LookupError, TypeError, AssertionError, ArithmeticError, RecursionError)


def is_a(*kinds: type) -> Sound:
    return lambda value: type(value) in kinds


def mapping_with(**kinds: Sound) -> Sound:
    """A mapping whose values under these keys, where present, are sound."""
    return lambda value: (
        type(value) is dict and all(sound(value[key]) for key, sound in kinds.items() if key in value)
    )


def is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST_COUNT


def is_seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= MOST_COUNT  # neither infinite nor beyond the floats


is_text = is_a(str)
is_text_or_none = is_a(str, type(None))
_LEASE: dict[str, Sound] = {
    **dict.fromkeys(("token", "worker", "request"), is_text),
    **dict.fromkeys(("seconds", "heard"), is_seconds),
    "end": is_a(dict, type(None)),
}
_TRIAL: dict[str, Sound] = {
    **dict.fromkeys((CONFIRMS, CONFIRMS_SEED, AUDITED, AT_RUNG, "retries"), is_count),
    **dict.fromkeys(("error", "reason", "traceback"), is_text),
    EVENTS: lambda value: type(value) is list and all(map(_is_event, value)),
}
_TRIAL_SYSTEM: dict[str, Sound] = {
    **dict.fromkeys((TRAINED, THREADS), is_count),
    TOOK: is_seconds,
    USED: lambda value: _is_usage(value),
    USED_BEFORE_AUDIT: lambda value: _is_usage(value),
    ASKED: lambda value: type(value) is dict and is_text(value.get("request")),
    STOPPED: lambda value: type(value) is dict and is_text(value.get("kind")) and is_text(value.get("why")),
    LEASE: lambda value: (
        type(value) is dict
        and value.keys() == _LEASE.keys()
        and all(sound(value[key]) for key, sound in _LEASE.items())
    ),
}


def _is_usage(value: Any) -> bool:
    """Whether it is a list of five amounts, of which some may be unknown."""
    return type(value) is list and len(value) == 5 and all(each is None or is_seconds(each) for each in value)


def _is_event(value: Any) -> bool:
    """Whether it is an event of a trial; older versions stored sentences."""
    counts = dict.fromkeys(("step", "rank", "of"), is_count)
    texts = dict.fromkeys(("kind", "reason", "error", "text"), is_text)
    return is_text(value) or mapping_with(**counts, **texts, alike=is_a(dict))(value)


def check(who: str, attrs: Mapping[str, Any], kinds: Mapping[str, Sound]) -> None:
    """Raise `StorageError` where an attribute is not one that hpsearch could have written."""
    for key in attrs:
        if not is_text(key):
            raise _refused(who, "the name of an attribute", key)
    for key in kinds.keys() & attrs.keys():
        if not kinds[key](attrs[key]):
            raise _refused(who, key, attrs[key])


def check_trials(name: str, trials: Sequence[FrozenTrial], count: int | None = None) -> None:
    """Check the attributes, values and steps of a study's trials: all, or some of `count`."""
    count = len(trials) if count is None else count
    for trial in trials:
        who, attrs = f'trial {trial.number} of the study "{name}"', trial.user_attrs
        check(who, attrs, _TRIAL)
        check(who, trial.system_attrs, _TRIAL_SYSTEM)
        values = (*(trial.values or ()), *trial.intermediate_values.values())
        for what, each, kind in (("a value", values, float), ("a step", trial.intermediate_values, int)):
            if {*map(type, each)} - {kind}:  # there may be hundreds of thousands
                raise _refused(who, what, next(one for one in each if type(one) is not kind))
        if CONFIRMS in attrs and not (attrs[CONFIRMS] < count and CONFIRMS_SEED in attrs):
            raise _refused(who, CONFIRMS, attrs[CONFIRMS])


def _refused(who: str, key: str, value: object) -> StorageError:
    return StorageError(
        f"{who} holds a value that hpsearch does not write: {key} is {value!r:.100}; "
        "another program has changed the database, or it is damaged"
    )


@contextmanager
def readable_rows(what: str) -> Iterator[None]:
    """Raise `StorageError` with an explanation where Optuna cannot decode rows."""
    try:
        yield
    except (*UNREADABLE, sqlalchemy.exc.StatementError) as error:
        raise StorageError(
            f"{what} cannot be read: {type(error).__name__}: {' '.join(str(error).split()):.200}; "
            "another program has changed the database, or it is damaged"
        ) from error
