"""A study as it looks at one rung: what samplers learn from where trials pause.

Optuna's samplers know complete and pruned trials. Trials that wait at a rung are neither, and those that were
pruned all end up in one model with the values that they had at different rungs, which misleads it. So a model
sees one rung only, the highest with enough observations, as BOHB does (Falkner et al. 2018, section 3.2):
whoever has reached it counts as complete there, with its value at it.

A trial that the audit lets go on (`scheduling.audit`) is to samplers and rungs one that ended where it was
to.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Container
from functools import cached_property

import optuna
from optuna.pruners import HyperbandPruner
from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ...storage.states import unusable
from ..scheduling import places_of, promotes
from ..scheduling.observed import completed_at, value_at, without_audit


class StudyAtRung(optuna.Study):
    """A study whose trials are what they were at a rung. Only samplers look at it."""

    def __init__(self, study: optuna.Study, trials: Callable[[], list[FrozenTrial]]) -> None:
        """`trials` makes them, for samplers that look at them: some do not."""
        self.__dict__.update(object.__getattribute__(study, "__dict__"))  # Hyperband's for a bracket hides it
        self._make = trials

    @cached_property
    def _seen(self) -> list[FrozenTrial]:
        return self._make()

    def _get_trials(
        self,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
        use_cache: bool = False,
    ) -> list[FrozenTrial]:
        found = [trial for trial in self._seen if states is None or trial.state in states]
        return copy.deepcopy(found) if deepcopy else found

    def get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Those of a bracket where Hyperband made the study, as there."""
        found = self._get_trials(deepcopy, states)
        bracket, pruner = self.__dict__.get("_bracket_id"), self.pruner
        if bracket is None or not isinstance(pruner, HyperbandPruner):
            return found
        return [trial for trial in found if pruner._get_bracket_id(self, trial) == bracket]


def study_for_samplers(study: optuna.Study, spec: Spec, dimensions: int) -> StudyAtRung:
    """The study as the search knows it; where trials pause, as it looks at its best rung."""
    if promotes(spec):
        return StudyAtRung(study, lambda: at_best_rung(study, spec, enough=dimensions + 2))
    # As Optuna's samplers get them.
    return StudyAtRung(
        study,
        lambda: [_failed_as_infeasible(t) for t in without_audit(study._get_trials(False, use_cache=True))],
    )


def at_best_rung(study: optuna.Study, spec: Spec, enough: int) -> list[FrozenTrial]:
    """The trials at the highest rung that at least `enough` have reached; else at the lowest."""
    trials = without_audit(study.get_trials(deepcopy=False))
    trainable = [trial for trial in trials if not unusable(trial)]  # others may have looked good at a rung
    assert spec.early_stopping.max is not None
    seen: list[FrozenTrial] = []
    for place in (spec.early_stopping.max, *reversed(places_of(spec))):
        seen = [trial for trial in trainable if value_at(trial, place) is not None]
        if len(seen) >= enough:
            break
    there = {trial.number for trial in seen}
    others = [_failed_as_infeasible(trial) for trial in trials if trial.number not in there]
    # Samplers keep away from what cannot be trained (but `gp`, which knows complete trials alone), and some
    # from what runs.
    others = [t for t in others if t.state == TrialState.RUNNING or any(t.constraints.values())]
    return [*(completed_at(trial, place) for trial in seen), *others]


def _failed_as_infeasible(trial: FrozenTrial) -> FrozenTrial:
    """A trial; one that failed as if it broke a constraint, since Optuna's samplers see no failed ones."""
    if trial.state != TrialState.FAIL or not trial.params:
        return trial
    seen = copy.copy(trial)
    seen.state, seen.system_attrs = TrialState.PRUNED, trial.system_attrs | {"constraints": [1.0]}
    return seen
