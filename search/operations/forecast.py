"""Forecast a study from its own pace, and ask what another budget or other slots would change."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ...spaces.times import seconds as time_in_seconds
from ...storage.locks import driver_running
from ...storage.studies import PAUSED
from ...storage.trial_attrs import at_rung, seconds_of, trained_to
from ...storage.workspace import Workspace
from ..engine.costs import Cost
from ..errors import SearchError, UsageError
from ..preflight.forecast import assumption
from ..preflight.simulated import Reached, SearchCosts, SimulatedSearch, TrainingCost
from ..preflight.simulation import simulate
from ..queue.foreseen import Progress, Rest, moment_ahead, rest_of
from ..results.next_steps import elapsed_in, is_over
from ..results.study import StudySnapshot, load_result
from ..sampling.view import StudyAtRung
from ..values import Value

FEWEST = 2  # trials whose costs are known
RECENT = 200  # from which others are foreseen
START_SECONDS = 60.0  # at most, from the start of a search to its first trial


@dataclass(frozen=True)
class StudyForecast(Value):
    """How a study goes on, by its own pace. Seconds; from the start of the search, but for `left`."""

    study: str
    resource: str
    searching: bool
    paused: bool
    elapsed: float
    left: float  # that its search still takes
    left_low: float
    left_high: float
    ends: str | None  # when, if it goes on now: a moment in UTC; None: unknown, or it is over
    over: bool  # nothing is left to do
    by: str  # what ends it: trials, time or samples
    trials: int  # that start in all
    complete: int  # that run to their end
    reached: list[Reached]  # trials at each rung and at the end
    confirming: int  # trainings that confirm the best
    slots: int  # trials that train at a time
    budget: dict[str, Any]
    rests_on: int  # trials whose costs are known
    assumed: str


def forecast(
    *,
    workspace: Workspace,
    study: str,
    time: str | None = None,
    trials: str | None = None,
    samples: str | None = None,
    slots: int | None = None,
) -> StudyForecast:
    """Foresee how a study goes on by its own pace; nothing is run.

    `time`, `trials` and `samples` ask what another budget would change: a total, or with a plus sign more
    than now. `slots` are the trials that train at a time. Raises `SearchError` where too few trials have
    ended to tell.
    """
    result = load_result(workspace, study)
    all_trials = result.all_trials
    seen = StudyAtRung(result.study, lambda: all_trials)
    result = StudySnapshot(result.name, seen, result.spec, workspace)
    if slots is not None and slots < 1:
        raise UsageError(f"slots is {slots}; it must be 1 or more", code="slots")
    spec = result.spec
    budget = _budget(spec, time=time, trials=trials, samples=samples)
    spec = spec.override(budget=budget) if budget else spec
    elapsed = elapsed_in(result)
    costs = costs_of_study(spec, all_trials, elapsed, result.provenance.get("started"), slots)
    course = simulate(spec, costs)
    searching = driver_running(workspace, result.folder_name) is not None
    ended = StudySnapshot(result.name, seen, spec, workspace).records
    over = not searching and is_over(ended, elapsed)
    rest = Rest(0.0, 0.0, 0.0) if over else _rest(spec, course, all_trials, elapsed, slots)
    now = datetime.now(UTC).timestamp()
    ends = None if over else moment_ahead(now + rest.seconds, now)
    return StudyForecast(
        study=study,
        resource=spec.resource,
        searching=searching,
        paused=bool(result.study.user_attrs.get(PAUSED)),
        elapsed=elapsed,
        left=round(rest.seconds, 1),
        left_low=round(rest.low, 1),
        left_high=round(rest.high, 1),
        ends=None if ends is None else ends.isoformat(timespec="seconds"),
        over=over,
        by=course.by,
        trials=course.trials,
        complete=course.complete,
        reached=course.reached,
        confirming=course.confirms,
        slots=costs.slots,
        budget=spec.budget.model_dump(exclude_none=True),
        rests_on=sum(Cost.of(trial) is not None for trial in all_trials),
        assumed=assumption(spec),
    )


def costs_of_study(
    spec: Spec,
    trials: Sequence[FrozenTrial],
    elapsed: float,
    started: str | None,
    slots: int | None = None,
) -> SearchCosts:
    """What trials of a study cost. Raises `SearchError` where too few have ended to tell."""
    known = [(trial, cost) for trial in trials if (cost := Cost.of(trial)) is not None][-RECENT:]
    if len(known) < FEWEST:
        raise SearchError(
            f"{len(known)} of its trials {'has' if len(known) == 1 else 'have'} shown what they cost, and "
            f"{FEWEST} are needed; hpsearch plan measures a space before a search",
            code="no-pace",
        )
    setup = statistics.median([cost.setup for _, cost in known if cost.seen is None] or [0.0])
    whole = spec.early_stopping.max or max(
        (trained_to(trial) for trial, _ in known if trial.state == TrialState.COMPLETE),
        default=max(trained_to(trial) for trial, _ in known),
    )
    trainings = [_training(trial, cost.split(setup), whole) for trial, cost in known]
    if slots is None:
        slots = _slots(trials, elapsed)
    return SearchCosts(trainings, None, slots, _startup(trials, started))


def _training(trial: FrozenTrial, cost: Cost, whole: int) -> TrainingCost:
    units = (trial.last_step or whole) if trial.state == TrialState.COMPLETE else whole
    steps = sorted(trial.intermediate_values)
    grid = max(1, round(statistics.median(b - a for a, b in pairwise([0, *steps])))) if steps else 1
    units = max(1, units)
    return TrainingCost(cost.setup, cost.per_unit, units, max(cost.per_unit * grid, 1e-6), min(grid, units))


def _slots(trials: Sequence[FrozenTrial], elapsed: float) -> int:
    """How many trials have trained at a time, by what all of them took; at least those that do now."""
    took = sum(seconds_of(trial) or 0.0 for trial in trials)
    return max(1, _running(trials), round(took / elapsed) if elapsed > 0 else 1)


def _running(trials: Sequence[FrozenTrial]) -> int:
    """How many trials a worker has."""
    return sum(trial.state == TrialState.RUNNING and not at_rung(trial) for trial in trials)


def _startup(trials: Sequence[FrozenTrial], started: str | None) -> float:
    """Seconds from the start of the search to its first trial."""
    first = min((trial.datetime_start for trial in trials if trial.datetime_start), default=None)
    if first is None or started is None:
        return 0.0
    try:
        took = first.astimezone().timestamp() - datetime.fromisoformat(started).timestamp()
    except ValueError:
        return 0.0
    return min(max(0.0, took), START_SECONDS)


def _rest(
    spec: Spec, course: SimulatedSearch, trials: Sequence[FrozenTrial], elapsed: float, slots: int | None
) -> Rest:
    """What is left: as the queue foresees it, else, where that knows nothing yet, by the simulated course."""
    progress = Progress(
        elapsed,
        ended=sum(trial.state.is_finished() for trial in trials),
        trained=sum(trained_to(trial) for trial in trials),
        begun=sum(bool(trial.intermediate_values) for trial in trials),
        running=_running(trials),
    )
    times = 1.0 if slots is None else slots / _slots(trials, elapsed)
    rest = rest_of(spec.to_json(), progress, times)
    if rest is not None:
        return rest
    left, low, high = (max(0.0, end - elapsed) for end in (course.end, *course.ends))
    return Rest(left, min(low, left), max(high, left))


def _budget(spec: Spec, **asked: str | None) -> dict[str, Any]:
    """The budget that is asked about. Raises `UsageError` for what is no amount."""
    budget: dict[str, Any] = {}
    for name, text in asked.items():
        if text is None:
            continue
        more = text.strip().startswith("+")
        plain = text.strip().removeprefix("+")
        try:
            amount: float = time_in_seconds(plain) if name == "time" else int(plain)
        except ValueError as error:
            if name == "time":
                raise UsageError(f"time {error}; +30m comes on top") from None
            raise UsageError(f"{name} is {text!r}; write a total or what comes on top: 80 or +20") from None
        if amount <= 0:
            raise UsageError(f"{name} is {text!r}; it must be more than nothing")
        now = getattr(spec.budget, name)
        if more and now is None:
            raise UsageError(f"the study has no budget of {name} that could be raised by {plain}")
        budget[name] = now + amount if more else amount
    return budget
