"""Environment variables of this process for a while, such as those of the trial that a function trains."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ..base import Trial
from .macros import as_text, own_values


def trial_variables(trial: Trial) -> dict[str, str]:
    """What a script is told in variables: `HPSEARCH_SEED`, `HPSEARCH_CHECKPOINT` and others."""
    own = {f"HPSEARCH_{name.upper()}": as_text(value) for name, value in own_values(trial).items()}
    return {"HPSEARCH_TRIAL": str(trial.number), **own}


@contextmanager
def told_in_variables(trial: Trial) -> Iterator[None]:
    """Set the trial's variables in this process meanwhile."""
    with variables_set(trial_variables(trial)):
        yield


@contextmanager
def variables_set(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
