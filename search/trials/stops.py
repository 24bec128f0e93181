"""Why a trial ended without running to its end: a kind to decide by, and a sentence to read.

Studies of older versions hold only the sentence, from which the kind is read here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import optuna
from optuna.trial import FrozenTrial, TrialState

from ...storage.trial_attrs import STOPPED

Untrainable = Literal["diverged", "out_of_memory"]
Kind = Literal[
    Untrainable,
    "pruned",  # by Optuna's pruner
    "not_promoted",
    "no_checkpoint",  # at a rung where it could not wait without one
    "over",  # the search was
    "failed",
    "refused",  # its configuration does not fit the space, so it fails every time
    "killed",
    "foreign",  # another program ended it
    "objective",  # ended it, which is no failure
]
ENDED_EARLY = (TrialState.PRUNED, TrialState.FAIL)
OLDER_KINDS: tuple[tuple[str, Kind], ...] = (  # by the beginnings of their sentences
    ("diverged:", "diverged"),
    ("out of memory:", "out_of_memory"),
    ("pruned ", "pruned"),
    ("paused", "not_promoted"),
    ("stopped at ", "no_checkpoint"),
    ("cannot begin: ", "refused"),
    ("killed by hpsearch kill", "killed"),
    ("ended by another program", "foreign"),
)
OLDER_PLACE = re.compile(r" at ([\d,]+) (?!samples$)(\w+?)s?$")  # "pruned at 3 steps", now "at step 3"


@dataclass(frozen=True)
class Stop:
    """The end of a trial that does not run to its end."""

    kind: Kind
    reason: str  # a sentence
    why: str = ""  # the same in few words, which trials with the same reason share; by default the reason

    @property
    def untrainable(self) -> Untrainable | None:
        """Why the trial's configuration cannot be trained; None if it is not known to be so."""
        return self.kind if self.kind == "diverged" or self.kind == "out_of_memory" else None

    def note(self, storage: optuna.storages.BaseStorage, trial_id: int) -> None:
        """Store it with the trial."""
        storage.set_trial_user_attr(trial_id, "reason", self.reason)
        storage.set_trial_system_attr(trial_id, STOPPED, {"kind": self.kind, "why": self.why or self.reason})


def stop_of(trial: FrozenTrial) -> Stop | None:
    """How a trial ended without running to its end; None for any other trial."""
    if trial.state not in ENDED_EARLY:
        return None
    reason = str(trial.user_attrs.get("reason", "no reason recorded"))
    stored: dict[str, Any] | None = trial.system_attrs.get(STOPPED)
    if stored is not None:
        return Stop(stored["kind"], reason, OLDER_PLACE.sub(r" at \2 \1", stored["why"]))
    kind = next((kind for begins, kind in OLDER_KINDS if reason.startswith(begins)), None)
    if trial.state == TrialState.FAIL:
        return failed(reason) if kind is None else Stop(kind, reason, reason)
    why = re.sub(r"^(pruned by \w+) at .*", r"\1", reason.partition(":")[0])
    return Stop(kind or "over", reason, OLDER_PLACE.sub(r" at \2 \1", why))


def diverged(how: str) -> Stop:
    """The end of a trial whose loss was not finite."""
    return Stop("diverged", f"diverged: {how}", "diverged")


def out_of_memory(how: str) -> Stop:
    """The end of a trial that took more memory than there is."""
    return Stop("out_of_memory", f"out of memory: {how}", "out of memory")


def ended_by_objective(reason: str) -> Stop:
    """The end of a trial that its own objective has ended."""
    return Stop("objective", reason, "ended by its objective")


def failed(reason: str, error: str = "") -> Stop:
    """The end of a trial that failed, for a reason that may tell more than the error.

    Trials whose errors have the same class, or are the same, have failed alike.
    """
    error = error or reason
    named = re.match(r"([A-Za-z_][\w.]*):", error)
    return Stop("failed", reason, named[1] if named else error)
