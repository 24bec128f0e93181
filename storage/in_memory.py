"""A study in memory, which knows what changed of its trials since somebody asked."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from . import StorageError
from .states import EVENTS

REVIVED = "hpsearch:revived"  # how often a trial that had ended was put up again, for caches to notice


class StudyInMemory(optuna.storages.InMemoryStorage):
    """One study, held in memory by its only writer."""

    def __init__(self, directions: Sequence[StudyDirection], born: str) -> None:
        """`born`: the name that the study began with."""
        super().__init__()
        self._open: set[int] = set()  # numbers of trials that may still change
        self._changed: set[int] = set()  # numbers of trials that did since somebody wrote them down
        self.changes = 0  # of trials, so far: what was made of them holds while it stays the same
        self._last_change: dict[int, int] = {}  # of each trial, by its number; who changed last is the last
        self._study = self.create_new_study(directions, born)

    # Optuna's storage interface, where it differs from memory

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

    def _set_trial(self, trial_id: int, trial: FrozenTrial) -> None:
        super()._set_trial(trial_id, trial)  # all that changes a trial ends here
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
        if begun and ended and ended < begun:  # the clock was set back; no trial ends before it begins
            trial.datetime_complete = begun
        return changed

    def suspend(self, number: int) -> None:
        """Put a running trial back among the waiting ones; it keeps its parameters and reports."""
        trial_id = self.trial_id(number)
        self.set_trial_state_values(trial_id, TrialState.WAITING)
        self._expect_waiting()

    def revive(self, number: int, forget: Iterable[str]) -> None:
        """Let a trial that has ended wait to be tried again, without the user attributes to `forget`."""
        trial_id = self.trial_id(number)
        trial = copy.copy(self._get_trial(trial_id))
        trial.state, trial.values, trial.datetime_complete = TrialState.WAITING, None, None
        reason = trial.user_attrs.get("reason", "by another program")
        trial.user_attrs = {k: v for k, v in trial.user_attrs.items() if k not in set(forget)}
        self._set_trial(trial_id, trial)
        self.add_event(trial, f"tried again, as was asked; it had failed: {reason}")
        self._open.add(number)
        self._expect_waiting()
        self.set_study_user_attr(self._study, REVIVED, self.attrs.get(REVIVED, 0) + 1)

    def forget(self, number: int, attr: str) -> None:
        """Remove a user attribute of a trial."""
        trial_id = self.trial_id(number)
        trial = copy.copy(self._get_trial(trial_id))
        trial.user_attrs = {k: v for k, v in trial.user_attrs.items() if k != attr}
        self._set_trial(trial_id, trial)

    def add_event(self, trial: FrozenTrial, event: str) -> None:
        """Add to what happened to a trial on its way, in words."""
        self.set_trial_user_attr(trial._trial_id, EVENTS, [*trial.user_attrs.get(EVENTS, ()), event])

    def _expect_waiting(self) -> None:
        # Optuna remembers where the first waiting trial stood, and expects none to come before it.
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
        """All trials as they are now, in order of number; not to be changed. No copy: it goes with them."""
        return self._studies[self._study].trials

    def changed_since(self, changes: int) -> list[FrozenTrial]:
        """The trials that changed after there had been so many changes, so that nobody looks at all again.

        A trial that changes is another object.
        """
        latest = reversed(self._last_change.items())
        return [self.trials[number] for number, _ in takewhile(lambda one: one[1] > changes, latest)]

    @property
    def attrs(self) -> dict[str, Any]:
        """The study's user attributes; not to be changed."""
        return self.get_study_user_attrs(self._study)


def changed_since(study: optuna.Study, changes: int) -> tuple[Sequence[FrozenTrial], int]:
    """The trials of a study that changed after so many changes, and how many changes there are by now.

    Of a study in another storage all trials, each time.
    """
    storage = study._storage
    if isinstance(storage, StudyInMemory):
        return storage.changed_since(changes), storage.changes
    return study._get_trials(deepcopy=False), 0
