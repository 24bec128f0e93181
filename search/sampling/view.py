"""A study as seen at one rung, from which samplers learn if trials pause.

Optuna's samplers learn from complete and pruned trials. Paused trials are neither, and pruned trials would
all enter one model with values from different rungs, which misleads it. So a model sees a single rung, the
highest with enough observations, as in BOHB (Falkner et al. 2018, section 3.2): a trial that has reached the
rung counts as complete, with its value there.

Samplers and rungs see an audited trial (`scheduling.audit`) as ended where it would have been stopped.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Container
from functools import cached_property

import optuna
from optuna.pruners import HyperbandPruner
from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ...storage.trial_attrs import untrainable, unusable
from ..scheduling.observed import at_highest, without_audit
from ..scheduling.rungs import promotes, rung_steps


class StudyAtRung(optuna.Study):
    """A study whose trials are as they were at a rung, for samplers only."""

    def __init__(self, study: optuna.Study, trials: Callable[[], list[FrozenTrial]]) -> None:
        """`trials` makes the trials when a sampler asks for them; some never do."""
        self.__dict__.update(object.__getattribute__(study, "__dict__"))  # which a bracket's study hides
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
        trials = [trial for trial in self._seen if states is None or trial.state in states]
        return copy.deepcopy(trials) if deepcopy else trials

    def get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """The trials; only those of its bracket if the study is Hyperband's study of one."""
        trials = self._get_trials(deepcopy, states)
        bracket, pruner = self.__dict__.get("_bracket_id"), self.pruner
        if bracket is None or not isinstance(pruner, HyperbandPruner):
            return trials
        return [trial for trial in trials if pruner._get_bracket_id(self, trial) == bracket]


def study_for_samplers(study: optuna.Study, spec: Spec, dimensions: int) -> StudyAtRung:
    """The study as the search sees it; if trials pause, as seen at its best rung."""
    if promotes(spec):
        return StudyAtRung(study, lambda: at_best_rung(study, spec, enough=dimensions + 2))
    return StudyAtRung(
        study,
        lambda: [_failed_as_infeasible(t) for t in without_audit(study._get_trials(False, use_cache=True))],
    )


def at_best_rung(study: optuna.Study, spec: Spec, enough: int) -> list[FrozenTrial]:
    """The trials at the highest rung that at least `enough` have reached; else at the lowest."""
    trials = without_audit(study.get_trials(deepcopy=False))
    trainable = [t for t in trials if not unusable(t)]  # the others may have looked good at a rung
    assert spec.early_stopping.max is not None
    _, seen = at_highest([*rung_steps(spec), spec.early_stopping.max], trainable, enough)
    there = {trial.number for trial in seen}
    others = [_failed_as_infeasible(trial) for trial in trials if trial.number not in there]
    # Samplers avoid untrainable trials (except `gp`, which sees only complete ones); some avoid running ones.
    others = [t for t in others if t.state == TrialState.RUNNING or untrainable(t)]
    return [*seen, *others]


def _failed_as_infeasible(trial: FrozenTrial) -> FrozenTrial:
    """The trial; a failed one as pruned and infeasible, since Optuna's samplers ignore failed trials."""
    if trial.state != TrialState.FAIL or not trial.params:
        return trial
    seen = copy.copy(trial)
    seen.state, seen.system_attrs = TrialState.PRUNED, trial.system_attrs | {"constraints": [1.0]}
    return seen
