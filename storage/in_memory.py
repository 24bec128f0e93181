"""A study in memory that keeps track of which trials have changed."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from . import StorageError
from .trial_attrs import EVENTS, STOPPED

REVIVED = "hpsearch:revived"  # how many ended trials were requeued, which tells caches that they are stale


class StudyInMemory(optuna.storages.InMemoryStorage):
    """One study, held in memory by its only writer."""

    def __init__(self, directions: Sequence[StudyDirection], born: str) -> None:
        """`born`: the name that the study began with."""
        super().__init__()
        self._open: set[int] = set()  # numbers of trials that may still change
        self._changed: set[int] = set()  # numbers of trials that changed since the last write
        self.changes = 0  # of trials so far: what is computed from them is valid while it stays the same
        self._last_change: dict[int, int] = {}  # by trial number, in the order of the last changes
        self._study = self.create_new_study(directions, born)

    # Optuna's storage interface, where it differs from Optuna's own storage in memory

    def create_new_study(self, directions: Sequence[StudyDirection], study_name: str | None = None) -> int:
        if self._studies:
            raise StorageError("a live storage holds one study")
        return super().create_new_study(directions, study_name)

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        trial_id = super().create_new_trial(study_id, template_trial)
        number = self.get_trial_number_from_id(trial_id)
        self._open.add(number)
        self._note_change(number)
        return trial_id

    def adopt(self, trial: FrozenTrial) -> None:
        """Add a trial that is used nowhere else: `create_new_trial` would copy all that is in it."""
        trial_id = self.create_new_trial(self._study)
        trial.number, trial._trial_id = self.get_trial_number_from_id(trial_id), trial_id
        self._set_trial(trial_id, trial)
        self._update_cache(trial_id, self._study)

    def _set_trial(self, trial_id: int, trial: FrozenTrial) -> None:
        super()._set_trial(trial_id, trial)  # every change of a trial ends here
        self._note_change(trial.number)

    def _note_change(self, number: int) -> None:
        self._changed.add(number)
        self.changes += 1
        self._last_change.pop(number, None)
        self._last_change[number] = self.changes

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        changed = super().set_trial_state_values(trial_id, state, values)
        trial = self._get_trial(trial_id)
        begun, ended = trial.datetime_start, trial.datetime_complete
        if begun and ended and ended < begun:  # the clock was set back; no trial ends before it starts
            trial.datetime_complete = begun
        return changed

    def requeue(self, number: int) -> None:
        """Requeue a running trial as waiting; it keeps its parameters and reports."""
        trial_id = self.trial_id(number)
        self.set_trial_state_values(trial_id, TrialState.WAITING)
        self._expect_waiting()

    def revive(self, number: int, forget: Iterable[str]) -> None:
        """Requeue an ended trial to be retried, without the user attributes in `forget`."""
        trial_id = self.trial_id(number)
        reason = self._get_trial(trial_id).user_attrs.get("reason", "by another program")
        self.forget(number, *forget)
        trial = copy.copy(self._get_trial(trial_id))
        trial.state, trial.values, trial.datetime_complete = TrialState.WAITING, None, None
        trial.system_attrs = {k: v for k, v in trial.system_attrs.items() if k != STOPPED}
        self._set_trial(trial_id, trial)
        self.add_event(trial, {"kind": "retried", "reason": reason})
        self._open.add(number)
        self._expect_waiting()
        self.set_study_user_attr(self._study, REVIVED, self.attrs.get(REVIVED, 0) + 1)

    def forget(self, number: int, *attrs: str) -> None:
        """Remove user attributes of a trial."""
        trial_id = self.trial_id(number)
        trial = copy.copy(self._get_trial(trial_id))
        trial.user_attrs = {k: v for k, v in trial.user_attrs.items() if k not in attrs}
        self._set_trial(trial_id, trial)

    def add_event(self, trial: FrozenTrial, event: dict[str, Any]) -> None:
        """Add an event, with its kind, to what happened to a trial."""
        self.set_trial_user_attr(trial._trial_id, EVENTS, [*trial.user_attrs.get(EVENTS, ()), event])

    def _expect_waiting(self) -> None:
        # Optuna remembers the first waiting trial, and does not expect an earlier one.
        self._prev_waiting_trial_number[self._study] = 0

    @property
    def born(self) -> str:
        """The name that the study began with."""
        return self.get_study_name_from_id(self._study)

    def trial_id(self, number: int) -> int:
        """The key of a trial in memory."""
        return self.get_trial_id_from_study_id_trial_number(self._study, number)

    @property
    def trials(self) -> Sequence[FrozenTrial]:
        """All current trials by number, not to be changed. It is not a copy, and changes with the study."""
        return self._studies[self._study].trials

    def changed_since(self, changes: int) -> list[FrozenTrial]:
        """The trials that changed after there had been so many changes, without a look at all of them.

        A trial that changes is replaced by another object.
        """
        latest = reversed(self._last_change.items())
        return [self.trials[number] for number, _ in takewhile(lambda one: one[1] > changes, latest)]

    @property
    def attrs(self) -> dict[str, Any]:
        """The study's user attributes; not to be changed."""
        return self.get_study_user_attrs(self._study)


def changed_since(study: optuna.Study, changes: int) -> tuple[Sequence[FrozenTrial], int]:
    """The trials of a study that changed after so many changes, and the number of changes by now.

    For a study in another storage, all trials each time.
    """
    storage = study._storage
    if isinstance(storage, StudyInMemory):
        return storage.changed_since(changes), storage.changes
    return study._get_trials(deepcopy=False), 0
