"""Leases: which worker has which trial, and for how long it may be silent.

The latest lease of a trial is an attribute of the trial, so that leases outlive the driver. Its token is the
fence: a trial that another worker has got has another token, and calls with the earlier one change nothing.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial

from ....storage.trial_attrs import LEASE
from ...engine.running import Assignment

FORM = re.compile(r"([0-9a-f]{16})-([0-9]{1,18})-[\w-]{22}")  # of tokens


@dataclass(eq=False)
class Lease:
    """A trial in the hands of a worker."""

    token: str
    assignment: Assignment
    worker: str
    request: str
    seconds: float  # of silence, after which it is over
    end: dict[str, Any] | None = None  # how it ended, under the key `by`
    heard: float = 0.0  # by the driver's clock
    adopted: bool = False  # from an earlier driver, and nothing was heard of its worker since
    recorded: int = -1  # the last step in the trial's file
    upload: Path | None = None  # a checkpoint that waits for the next report
    last: tuple[int, dict[str, Any]] | None = None  # the last report's step, and the answer

    @property
    def number(self) -> int:
        """The trial's number."""
        return self.assignment.number

    @property
    def folder(self) -> Path:
        """The trial's folder."""
        return self.assignment.folder

    def to_json(self, wall: float) -> dict[str, Any]:
        """What outlives the driver. `wall`: the time now."""
        kept = {"token": self.token, "worker": self.worker, "request": self.request, "seconds": self.seconds}
        return kept | {"heard": round(wall, 1), "end": self.end}


@dataclass(frozen=True)
class StoredLease:
    """The latest lease of a trial, as the trial has it."""

    token: str
    worker: str
    request: str
    seconds: float
    heard: float  # by the machine's clock
    end: dict[str, Any] | None

    @classmethod
    def of(cls, trial: FrozenTrial) -> StoredLease | None:
        stored: dict[str, Any] | None = trial.system_attrs.get(LEASE)
        return None if stored is None else cls(**stored)


def new_token(study: str, number: int) -> str:
    """A token that nobody can guess. It names the study and the trial, so that nobody has to remember it."""
    return f"{study}-{number}-{secrets.token_urlsafe(16)}"


def number_in(token: str, study: str) -> int | None:
    """The trial that a token of a study is of; None where it is none of this study."""
    found = FORM.fullmatch(token)
    return int(found[2]) if found is not None and found[1] == study else None
