"""Why a trial was suggested, paused, resumed or ended, in the order of its life."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ...spaces.samplers import GP, TPE
from ...spaces.stopping import Rungs
from ...storage.locks import driver_running
from ...storage.studies import trial_of
from ...storage.trial_attrs import (
    CONFIRMS_SEED,
    FIXED_PARAMS,
    SUGGESTED_BY,
    at_rung,
    confirms,
    is_baseline,
    state_of,
)
from ..formatting import counted
from ..scheduling.promotion import QueuePosition
from ..scheduling.rungs import promotes
from ..scheduling.standings import RungResult, rung_results
from ..scheduling.study_promotion import promotion_of
from ..trials.events import events_of
from ..trials.selection import search_trials
from ..trials.stops import stop_of
from ..values import Value
from .study import StudyResult

# What Optuna's samplers count before they trust their models.
COUNTED = {"tpe": (TrialState.COMPLETE, TrialState.PRUNED), "gp": (TrialState.COMPLETE,)}


@dataclass(frozen=True)
class TrialHistory(Value):
    """The life of a trial, in lines; none where there is nothing to tell."""

    study: str
    number: int
    state: str
    suggested: str
    events: list[str]  # when it paused and when it resumed
    by_now: list[str]  # its rank at each rung among all that have got there
    attempts: list[str]  # those that failed
    waits: list[str]  # for what
    end: str | None  # why it ended


def history_of(result: StudyResult, number: int) -> TrialHistory:
    """Why a trial is what it is. Raises `StorageError` where there is none of that number."""
    spec, trials = result.spec, result.all_trials
    trial = trial_of(result.study, number)
    attrs, retries = trial.user_attrs, trial.user_attrs.get("retries", 0)
    return TrialHistory(
        study=result.name,
        number=number,
        state=state_of(trial),
        suggested=_suggested(spec, trials, trial),
        events=events_of(trial, spec.resource),
        by_now=[_standing(spec, rung) for rung in rung_results(result.study, spec, trial)],
        attempts=[tried(retries, attrs.get("error"), attrs.get("reason"))] if retries else [],
        waits=_waits(result, trials, trial),
        end=_end(spec, trials, trial),
    )


def tried(retries: int, error: str | None, reason: str | None) -> str:
    """How often a trial was tried, and what ended the attempt before the last."""
    before = f"; before it: {error}" if error is not None and error != reason else ""
    return f"tried {retries + 1} times{before}"


def _suggested(spec: Spec, trials: Sequence[FrozenTrial], trial: FrozenTrial) -> str:
    of = confirms(trial)
    if of is not None:
        seed = trial.user_attrs[CONFIRMS_SEED] + 1
        return f"confirms trial {of}: its parameters again, with new seed {seed}; it runs to its end"
    if is_baseline(trial):
        return (
            "the baseline of the space: it begins first and runs to its end, for others to be compared with"
        )
    given = trial.system_attrs.get(FIXED_PARAMS)
    if given and given.keys() >= trial.params.keys():
        return "enqueued with its parameters"
    by = _by_sampler(spec, trials, trial)
    return f"enqueued with {', '.join(given)}; the others: {by}" if given else by


def _by_sampler(spec: Spec, trials: Sequence[FrozenTrial], trial: FrozenTrial) -> str:
    """How the sampler came to it, as far as that is known."""
    search, sampler, begun = spec.search, spec.search.sampler, trial.datetime_start
    if begun is None:
        return "it waits for its turn to get parameters"
    own = trial.system_attrs.get(SUGGESTED_BY)
    if own is not None:
        return f"{own} ({sampler})"
    priors = any(parameter.prior is not None for parameter in spec.space.searched.values())
    near = ", or near a prior" if priors else ""
    if sampler == "random":
        return f"drawn at random{near}"
    if sampler == "grid":
        return "the next point of the grid"
    if not isinstance(search, TPE | GP):
        return f"proposed by the sampler {sampler}"
    least = search.startup_trials
    assert least is not None
    first = f"drawn at random{near}: {sampler} begins its model with {least} trials"
    if promotes(spec):  # its model counts the trials at a rung, which change
        return first if trial.number < least else f"proposed by the sampler {sampler}"
    known = sum(
        other.state in COUNTED[sampler]
        and other.datetime_complete is not None
        and other.datetime_complete <= begun
        for other in search_trials(trials)
    )
    if known < least:
        return f"{first}, and {known} had ended"
    return f"proposed by the model of {sampler}, from {known} trials that had ended"


def _end(spec: Spec, trials: Sequence[FrozenTrial], trial: FrozenTrial) -> str | None:
    """Why a trial ended, if it did."""
    if trial.state == TrialState.COMPLETE:
        return f"ran to its end: {spec.metric} {trial.value:.6g}{_rank(spec, trials, trial)}"
    stop = stop_of(trial)
    return None if stop is None else stop.reason


def _waits(result: StudyResult, trials: Sequence[FrozenTrial], trial: FrozenTrial) -> list[str]:
    """What a trial waits for, if it does."""
    spec = result.spec
    if at_rung(trial) and promotes(spec):
        waiting = promotion_of(spec, trials).queue_position(trial.number)
        lines = _at_rung(spec, waiting, _may_come(spec, trials, waiting.step))
    elif trial.state == TrialState.WAITING:
        at = "" if trial.last_step is None else f": requeued at {counted(trial.last_step, spec.resource)}"
        lines = [f"for a worker that is free{at}"]
    else:
        return []
    if driver_running(result.workspace, result.folder_name) is None:
        lines.append("no search runs now: the command of this one continues it, where its budget allows")
    return lines


def _rank(spec: Spec, trials: Sequence[FrozenTrial], trial: FrozenTrial) -> str:
    """How it ranks among the complete trials of the search."""
    if confirms(trial) is not None or trial.value is None:
        return ""
    values = [
        t.value for t in search_trials(trials) if t.state == TrialState.COMPLETE and t.value is not None
    ]
    better = sum(spec.sign * value < spec.sign * trial.value for value in values)
    return f", ranked {1 + better} of {len(values)} complete"


def _may_come(spec: Spec, trials: Sequence[FrozenTrial], step: int) -> float:
    """How many more trials may get to a step, at most: those on their way, and those that have not begun."""
    own, asked = search_trials(trials), spec.budget.trials
    under_way = sum(not trial.state.is_finished() and (trial.last_step or 0) < step for trial in own)
    return math.inf if asked is None else under_way + max(0, asked - len(own))


def _at_rung(spec: Spec, waiting: QueuePosition, may_come: float) -> list[str]:
    """What would let a paused trial resume."""
    stopping = spec.early_stopping
    assert isinstance(stopping, Rungs)
    more = waiting.needed - waiting.reached
    promoted = "it is promoted with the next worker that is free, unless one waits at a higher rung"
    if more > 0:
        come = "one more has" if more == 1 else f"{more} more have"
        promoted = f"it is promoted when {come} got there, if none of them is better"
        if more > may_come:
            promoted += (
                f"; at most {may_come:.0f} will, so it is promoted only as the best that waits in the end"
            )
    at = f"at {counted(waiting.step, spec.resource)}"
    return [
        f"{at}, number {waiting.position} of {waiting.waiting} that wait there",
        f"{waiting.gone} of the {waiting.reached} that got there were promoted, one in {stopping.eta} may be",
        promoted,
    ]


def _standing(spec: Spec, rung: RungResult) -> str:
    ranked = f"ranked {rung.rank} of {rung.reached}"
    return f"at {counted(rung.step, spec.resource)} {ranked}, {spec.metric} {rung.value:.6g}"
