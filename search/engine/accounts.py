"""Keeps account of what trials use, in the study: over all attempts, and although drivers are killed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from optuna.trial import FrozenTrial

from ...storage.live import LiveStorage
from ...storage.trial_attrs import USED, USED_BEFORE_AUDIT
from ..trials.records import usage_of
from ..trials.usage import Usage, unknown
from .running import RunningTrial

NOTE_SECONDS = 60.0  # a killed driver forgets at most so much of a running trial's usage


class UsageAccounts:
    """What the trials of a study use."""

    def __init__(self, storage: LiveStorage, now: Callable[[], float]) -> None:
        self._storage = storage
        self._now = now
        self._noted = now()

    def note(self, running: RunningTrial) -> None:
        """Store what a trial has used by now, in earlier attempts and in this one."""
        self._set(running.trial._trial_id, USED, self._of(running))

    def tick(self, running: Iterable[RunningTrial]) -> None:
        """Store what running trials have used, if it was not stored for long."""
        if self._now() - self._noted >= NOTE_SECONDS:
            self._noted = self._now()
            for each in running:
                if each.used is not None:
                    self.note(each)

    def audit(self, trial: FrozenTrial, running: RunningTrial | None = None) -> None:
        """What a trial has used by now was for the search; the rest is for the audit."""
        before = usage_of(trial) if running is None else self._of(running)
        if before is not None:
            self._set(trial._trial_id, USED_BEFORE_AUDIT, before)

    def _of(self, running: RunningTrial) -> Usage:
        used = running.used
        if used is None:
            used = unknown(running.seconds) if running.is_assigned else Usage()
        return running.used_before + used

    def _set(self, trial: int, name: str, used: Usage) -> None:
        self._storage.set_trial_system_attr(trial, name, used.to_list())
