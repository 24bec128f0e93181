"""Why a trial was suggested, paused, resumed or ended, in the order of its life."""

from __future__ import annotations

import math
from dataclasses import dataclass

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ...spaces.samplers import GP, TPE
from ...spaces.stopping import Rungs
from ...storage.locks import driver_running
from ...storage.studies import trial_of
from ...storage.trial_attrs import FIXED_PARAMS, SUGGESTED_BY
from ..formatting import position
from ..scheduling.promotion import QueuePosition
from ..scheduling.rungs import promotes
from ..scheduling.standings import RungResult, rung_results
from ..scheduling.study_promotion import promotion_of
from ..trials.events import events_of
from ..trials.records import StudyRecords, TrialRecord
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
    spec, records = result.spec, result.records
    trial = trial_of(result.study, number)
    record = records.by_number[number]
    attrs, retries = trial.user_attrs, trial.user_attrs.get("retries", 0)
    return TrialHistory(
        study=result.name,
        number=number,
        state=record.state,
        suggested=_suggested(records, record),
        events=events_of(trial, spec.resource),
        by_now=[_standing(spec, rung) for rung in rung_results(result.study, spec, trial)],
        attempts=[tried(retries, attrs.get("error"), attrs.get("reason"))] if retries else [],
        waits=_waits(result, records, record),
        end=_end(records, record),
    )


def tried(retries: int, error: str | None, reason: str | None) -> str:
    """How often a trial was tried, and what ended the attempt before the last."""
    before = f"; before it: {error}" if error is not None and error != reason else ""
    return f"tried {retries + 1} times{before}"


def _suggested(records: StudyRecords, record: TrialRecord) -> str:
    trial = record.trial
    if record.confirms is not None:
        again = f"confirms trial {record.confirms}: its parameters again"
        return f"{again}, with new seed {record.seed + 1}; it runs to its end"
    if record.is_baseline:
        return (
            "the baseline of the space: it begins first and runs to its end, for others to be compared with"
        )
    given = trial.system_attrs.get(FIXED_PARAMS)
    if given and given.keys() >= trial.params.keys():
        return "enqueued with its parameters"
    by = _by_sampler(records, trial)
    return f"enqueued with {', '.join(given)}; the others: {by}" if given else by


def _by_sampler(records: StudyRecords, trial: FrozenTrial) -> str:
    """How the sampler came to it, as far as that is known."""
    spec = records.spec
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
        other.trial.state in COUNTED[sampler]
        and other.trial.datetime_complete is not None
        and other.trial.datetime_complete <= begun
        for other in records.search
    )
    if known < least:
        return f"{first}, and {known} had ended"
    return f"proposed by the model of {sampler}, from {known} trials that had ended"


def _end(records: StudyRecords, record: TrialRecord) -> str | None:
    """Why a trial ended, if it did."""
    if record.value is None:
        return None if record.stop is None else record.stop.reason
    ended = f"ran to its end: {records.spec.metric} {record.value:.6g}"
    if record.confirms is not None:
        return ended
    losses = [trial.loss for trial in records.complete if trial.loss is not None]
    rank = 1 + sum(loss < record.spec.loss(record.value) for loss in losses)
    return f"{ended}, ranked {rank} of {len(losses)} complete"


def _waits(result: StudyResult, records: StudyRecords, record: TrialRecord) -> list[str]:
    """What a trial waits for, if it does."""
    spec, trial = result.spec, record.trial
    if record.state == "paused" and promotes(spec):
        waiting = promotion_of(spec, result.all_trials).queue_position(record.number)
        lines = _at_rung(spec, waiting, _may_come(records, waiting.step))
    elif trial.state == TrialState.WAITING:
        at = "" if trial.last_step is None else f": requeued at {position(trial.last_step, spec.resource)}"
        lines = [f"for a worker that is free{at}"]
    else:
        return []
    if driver_running(result.workspace, result.folder_name) is None:
        lines.append("no search runs now: the command of this one continues it, where its budget allows")
    return lines


def _may_come(records: StudyRecords, step: int) -> float:
    """How many more trials may get to a step, at most: those on their way, and those that have not begun."""
    own, asked = records.search, records.spec.budget.trials
    under_way = sum(not each.has_ended and (each.trial.last_step or 0) < step for each in own)
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
    at = f"at {position(waiting.step, spec.resource)}"
    return [
        f"{at}, number {waiting.position} of {waiting.waiting} that wait there",
        f"{waiting.gone} of the {waiting.reached} that got there were promoted, one in {stopping.eta} may be",
        promoted,
    ]


def _standing(spec: Spec, rung: RungResult) -> str:
    ranked = f"ranked {rung.rank} of {rung.reached}"
    return f"at {position(rung.step, spec.resource)} {ranked}, {spec.metric} {rung.value:.6g}"
