"""A study with the values by which its trials are judged in place of their reports.

Optuna's pruners read the reports of trials themselves, and a pruned trial gets its last one as its value. So
they get this view of a study, which answers all questions from the study's own storage.
"""

from __future__ import annotations

import copy
from collections.abc import Container
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ..trials.judging import Judge
from .observed import as_judged


class _JudgedStorage:
    """Passes everything on to a storage, and shows its trials as they are judged."""

    def __init__(self, storage: Any, spec: Spec) -> None:
        self._storage = storage
        self._spec = spec
        self._kept: dict[int, tuple[FrozenTrial, FrozenTrial]] = {}  # by number: a trial, and as it is judged

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self._judged(self._storage.get_trial(trial_id))

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        trials = self._storage.get_all_trials(study_id, deepcopy=False, states=states)
        judged = [self._judged(trial) for trial in trials]
        return copy.deepcopy(judged) if deepcopy else judged

    def _judged(self, trial: FrozenTrial) -> FrozenTrial:
        kept = self._kept.get(trial.number)
        if kept is None or kept[0] is not trial:  # a trial that changes is another object
            kept = self._kept[trial.number] = trial, as_judged(self._spec, trial)
        return kept[1]


class _JudgedStudy(optuna.Study):
    """A study that reads its trials from another storage."""

    def __init__(self, study: optuna.Study, storage: Any) -> None:
        self.__dict__.update(study.__dict__)
        self._storage = storage


def judged_study(study: optuna.Study, spec: Spec) -> optuna.Study:
    """The study whose trials have the values that judge them; itself where these are its reports."""
    return _JudgedStudy(study, _JudgedStorage(study._storage, spec)) if Judge.of(spec).best else study


def should_prune(judged: optuna.Study, trial: optuna.Trial) -> bool:
    """Whether the pruner stops a trial of a judged study."""
    if judged is trial.study:
        return trial.should_prune()
    return judged.pruner.prune(judged, judged._storage.get_trial(trial._trial_id))
