"""What a study that is over would need to go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from optuna.trial import FrozenTrial

from ...spaces import Spec
from ...storage.studies import ELAPSED
from ..engine.budget import spent_on
from ..engine.confirmation_size import ConfirmationSize
from ..formatting import option
from ..trials.selection import at_target, searched
from .study import StudyResult

Amount = TypeVar("Amount", int, float)


def extension(result: StudyResult) -> list[str]:
    """The options with which a search that is over goes on: a further target, or twice of each budget."""
    budget, trials = result.spec.budget, result.study.get_trials(deepcopy=False)
    if at_target(result.spec, trials) is not None:
        return ["--target", "VALUE"]
    found = []
    if budget.trials is not None:
        found += ["--trials", str(_doubled(budget.trials, len(searched(trials))))]
    found += more_time(result)
    if budget.samples is not None:
        found += ["--samples", str(_doubled(budget.samples, consumed_in(result)))]
    return found


def more_time(result: StudyResult) -> list[str]:
    """The option that gives a search twice its time; none where that has no limit."""
    time = result.spec.budget.time
    return [] if time is None else ["--time", option(_doubled(time, elapsed_in(result)))]


def more_samples(result: StudyResult) -> list[str]:
    """The option that gives a search the samples to confirm its winner; none where it has them."""
    spec, asked = result.spec, ConfirmationSize.asked(result.spec)
    samples, last = spec.budget.samples, spec.early_stopping.max
    if samples is None or last is None or not asked.top:
        return []
    needed = max(asked.needs(spec), consumed_in(result) + asked.trainings(spec) * last)
    return ["--samples", str(needed)] if needed > samples else []


def consumed_in(result: StudyResult) -> int:
    """The resource that all trials took."""
    return sum(spent_on(result.spec, trial) for trial in result.study.get_trials(deepcopy=False))


def elapsed_in(result: StudyResult) -> float:
    """Seconds searched so far."""
    return float(result.study.user_attrs.get(ELAPSED, 0.0))


def _doubled(budget: Amount, spent: float) -> Amount:
    """Twice a budget, or as often twice as it takes where more is spent already."""
    while (budget := 2 * budget) <= spent:
        pass
    return budget


def is_over(spec: Spec, trials: Sequence[FrozenTrial], elapsed: float) -> bool:
    """Whether a search would end at once. By time or samples it ends before the last of them is used."""
    budget = spec.budget
    if budget.time is not None and elapsed >= budget.time:
        return True
    if not trials or not all(trial.state.is_finished() for trial in trials):
        return False
    if budget.time is not None or budget.samples is not None or at_target(spec, trials) is not None:
        return True
    return budget.trials is not None and len(searched(trials)) >= budget.trials
