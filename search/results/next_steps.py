"""What can be done next with a study: operations with their arguments, and why. A face finds the words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, get_args

from ...storage.studies import ELAPSED
from ..engine.budget import spent_on
from ..engine.confirmation_size import ConfirmationSize
from ..formatting import option
from ..sampling.tried import UntriedConfigs, tried
from ..trials.records import StudyRecords
from ..trials.retries import worth_retrying
from ..trials.stops import Untrainable
from ..values import NextStep
from .study import StudyResult
from .trials import Ending

Amount = TypeVar("Amount", int, float)


def steps_of_search(study: str, *, paused: bool) -> list[NextStep]:
    """What to do with a study that is searched now."""
    first = NextStep("dashboard", {}, "watch it")
    if paused:
        first = NextStep("resume", {"study": study}, "let it continue")
    return [first, NextStep("stop", {"study": study}, "end it tidily")]


def steps_of_study(
    result: StudyResult, endings: Sequence[Ending], *, over: bool, complete: bool
) -> list[NextStep]:
    """What to do with a study that is not searched now; a `complete` one has no configuration left to try."""
    name, best = result.name, result.best_trial
    steps = []
    failed = [number for ending in endings if ending.state == "fail" for number in ending.trials]
    lost = [number for ending in endings if ending.kind in get_args(Untrainable) for number in ending.trials]
    if failed:
        steps.append(NextStep("show --trial", {"study": name, "trial": failed[-1]}, "see why it failed"))
        if worth_retrying(result.all_trials):
            which = "those that failed" if len(failed) > 1 else "it"
            steps.append(NextStep("retry", {"study": name}, f"try {which} again"))
    elif lost and best is None:
        steps.append(NextStep("show --trial", {"study": name, "trial": lost[-1]}, "see why it ended"))
    if best is not None:
        steps += winner_steps(name)
    trials = result.all_trials
    if complete or (steps and len(failed) + len(lost) == len(trials)):  # more would be lost too
        return steps
    more = extension(result) if over else {}
    why = "continue: the command of this search again"
    if more:
        why = f"search on, {'to a further target' if 'target' in more['budget'] else 'with twice the budget'}"
    backend = result.provenance.get("backend", "optuna")
    return [*steps, NextStep("run", {"space": None, "name": name, "backend": backend} | more, why)]


def steps_after(result: StudyResult) -> list[NextStep]:
    """What to do once a search has ended by itself."""
    name = result.name
    steps = [NextStep("show", {"study": name}, "see what it found"), NextStep("dashboard", {}, "look at it")]
    return retry_steps(result) + steps + (winner_steps(name) if result.best_trial is not None else [])


def retry_steps(result: StudyResult) -> list[NextStep]:
    """The step that tries failed trials again, where that could help."""
    worth = worth_retrying(result.all_trials)
    return [NextStep("retry", {"study": result.name}, "try failed trials again")] * worth


def winner_steps(study: str) -> list[NextStep]:
    """How a study's winner comes to be trained."""
    return [
        NextStep("export", {"study": study}, "take the winner"),
        NextStep("train", {"file": "best.yaml"}, "train it"),
    ]


def confirmation_changes(result: StudyResult) -> dict[str, Any] | None:
    """What the same search again needs, so that its winner is confirmed; None where it would not be.

    That is a search which was not asked to confirm, or whose budget left no room for it.
    """
    others = not all(trial.is_baseline for trial in result.records.complete)
    if result.stopped or not others or not ConfirmationSize.asked(result.spec).top:
        return None
    more = more_time(result) | _more_samples(result)
    if not more and result.spec.confirm.top is not None:
        return None
    return ({"budget": more} if more else {}) | {"confirm": {"top": ConfirmationSize.asked(result.spec).top}}


def extension(result: StudyResult) -> dict[str, Any]:
    """The changes that let a finished search continue: a further target, or twice each budget."""
    budget, records = result.spec.budget, result.records
    if records.at_target is not None:
        return {"budget": {"target": None}}
    more: dict[str, Any] = {}
    if budget.trials is not None:
        more["trials"] = _doubled(budget.trials, len(records.search))
    more |= more_time(result)
    if budget.samples is not None:
        more["samples"] = _doubled(budget.samples, consumed_in(result))
    return {"budget": more} if more else {}


def more_time(result: StudyResult) -> dict[str, str]:
    """The change that gives a search twice its time; none where that has no limit."""
    time = result.spec.budget.time
    return {} if time is None else {"time": option(_doubled(time, elapsed_in(result)))}


def _more_samples(result: StudyResult) -> dict[str, int]:
    """The change that gives a search the samples to confirm its winner; none where it has them."""
    spec, asked = result.spec, ConfirmationSize.asked(result.spec)
    samples, last = spec.budget.samples, spec.early_stopping.max
    if samples is None or last is None or not asked.top:
        return {}
    needed = max(asked.needs(spec), consumed_in(result) + asked.trainings(spec) * last)
    return {"samples": needed} if needed > samples else {}


def exhausted(result: StudyResult) -> bool:
    """Whether every configuration of its space has been tried."""
    own = [record.trial for record in result.records.search]
    return UntriedConfigs(result.spec).exhausted(tried(own))


def consumed_in(result: StudyResult) -> int:
    """The resource that all trials took."""
    return sum(spent_on(result.spec, trial) for trial in result.all_trials)


def elapsed_in(result: StudyResult) -> float:
    """Seconds searched so far."""
    return float(result.study.user_attrs.get(ELAPSED, 0.0))


def _doubled(budget: Amount, spent: float) -> Amount:
    """Twice a budget, or as often twice as it takes where more is spent already."""
    while (budget := 2 * budget) <= spent:
        pass
    return budget


def is_over(records: StudyRecords, elapsed: float) -> bool:
    """Whether a search would end at once. By time or samples it ends before the last of them is used."""
    budget, trials = records.spec.budget, records.by_number.values()
    if budget.time is not None and elapsed >= budget.time:
        return True
    if not trials or not all(trial.has_ended for trial in trials):
        return False
    if budget.time is not None or budget.samples is not None or records.at_target is not None:
        return True
    return budget.trials is not None and len(records.search) >= budget.trials
