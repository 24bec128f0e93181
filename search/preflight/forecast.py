"""Predicts the course of a search on this machine, and whether its budget is sensible."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ...spaces import Spec
from ...spaces.stopping import Median, NoStopping, Percentile, Rungs
from ..backends.resources import WorkerShare, this_machine
from ..engine.confirmation_size import CONFIRMATION_SHARE, ConfirmationSize
from ..engine.costs import Cost
from ..formatting import duration, gibibytes, option, position
from ..scheduling.rungs import promotes
from ..values import Value, merged
from .dry_run import DryRun
from .measure import Measured, Probe
from .memory import MemoryForecast
from .simulated import Reached, SearchCosts, SimulatedSearch, TrainingCost
from .simulation import simulate

FEWEST_TRAININGS = 5  # whole ones, for a comparison to mean anything
ONE_COMPLETE = "only one trial finishes, so there is nothing to compare it with"
SLOW_START_SHARE = 0.2  # of a search, above which the start of its workers is worth a remark


@dataclass(frozen=True)
class SearchForecast(Value):
    """The result of a measurement and a simulation."""

    spec: Spec
    measured: Measured
    forecast: SimulatedSearch
    assumed: str  # about the trials' losses
    remarks: list[str]  # what is not sensible, and what would be
    expected: MemoryForecast | None = None  # of its trials; None where memory cannot be predicted

    @property
    def memory(self) -> int | None:
        """A trial's peak in bytes, its part of what a worker took; None where no worker was measured."""
        seen = self.measured.memory
        return None if seen is None else seen // self.measured.pack

    def to_json(self) -> dict[str, Any]:
        """The forecast as plain data; times in seconds."""
        measured, course = self.measured, self.forecast
        return {
            "study": self.spec.name,
            "spec": self.spec.to_json(),
            "resource": self.spec.resource,
            "measured": {
                "seconds": measured.seconds,
                "configurations": [
                    {
                        "parameters": p.config,
                        "training": measured.training_seconds(p),
                        "length": measured.length(p),
                        "baseline": p is measured.baseline,
                    }
                    for p in measured.known
                ],
                "errors": measured.errors,
                "startup": measured.startup,
                "training": statistics.fmean(measured.all_training_seconds),
                "memory": self.memory,
            },
            "memory": None if self.expected is None else asdict(self.expected),
            "workers": measured.share.workers,
            "threads": measured.share.threads,
            "pack": measured.pack,
            "rungs": [asdict(each) for each in course.reached],
            "trials": course.trials,
            "complete": course.complete,
            "search": course.search,
            "ends_by": course.by,
            "audit": {"trials": course.audited, "seconds": course.auditing},
            "confirmation": {
                "trainings": course.confirms,
                "seeds": course.seeds,
                "seconds": course.confirmation,
            },
            "end": course.end,
            "ends": course.ends,
            "assumed": self.assumed,
            "remarks": self.remarks,
        }

    @classmethod
    def shape(cls) -> Any:
        configuration = {"parameters": dict[str, Any], "training": float, "length": int, "baseline": bool}
        measured = {
            "seconds": float,
            "configurations": list[merged("MeasuredConfiguration", also=configuration)],  # type: ignore[misc]
            "errors": list[str],
            "startup": float,
            "training": float,
            "memory": int | None,
        }
        confirmation = {"trainings": int, "seeds": int, "seconds": float}
        also = {
            "study": str,
            "spec": dict[str, Any],
            "resource": str,
            "measured": merged("Measurement", also=measured),
            "memory": MemoryForecast | None,
            "workers": int,
            "threads": float,
            "pack": int,
            "rungs": list[Reached],
            "trials": int,
            "complete": int,
            "search": float,
            "ends_by": str,
            "audit": merged("ForeseenAudit", also={"trials": int, "seconds": float}),
            "confirmation": merged("ForeseenConfirmation", also=confirmation),
            "end": float,
            "ends": tuple[float, float],
        }
        return merged(cls.__name__, cls, also=also, without=("forecast", "expected"))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SearchForecast:
        """The forecast that was made elsewhere; of its measurement what `to_json` tells."""
        told, audit, confirmation = data["measured"], data["audit"], data["confirmation"]
        pack, memory, expected = data["pack"], told["memory"], data["memory"]
        probes: dict[bool, list[Probe]] = {True: [], False: []}
        for each in told["configurations"]:
            cost = Cost(each["training"], 0.0)
            probes[each["baseline"]].append(Probe(each["parameters"], cost, math.inf, each["length"] or None))
        probes[False] += [Probe({}, None, math.inf, None, error) for error in told["errors"]]
        measured = Measured(
            next(iter(probes[True]), None),
            probes[False],
            None,
            startup=told["startup"],
            leaving=0.0,
            memory=None if memory is None else memory * pack,
            pack=pack,
            share=WorkerShare(data["workers"], float(data["threads"]), 0.0, None),
            seconds=told["seconds"],
            driver=DryRun(),
        )
        course = SimulatedSearch(
            trials=data["trials"],
            reached=[Reached(**each) for each in data["rungs"]],
            search=data["search"],
            by=data["ends_by"],
            audited=audit["trials"],
            auditing=audit["seconds"],
            confirms=confirmation["trainings"],
            seeds=confirmation["seeds"],
            confirmation=confirmation["seconds"],
            end=data["end"],
            ends=(data["ends"][0], data["ends"][1]),
        )
        memory_ahead = None if expected is None else MemoryForecast(**expected)
        spec = Spec.from_json(data["spec"])
        return cls(spec, measured, course, data["assumed"], data["remarks"], memory_ahead)


def forecast_search(
    spec: Spec, measured: Measured, before: float = 0.0, expected: MemoryForecast | None = None
) -> SearchForecast:
    """Predict a search; `before`: seconds that the command takes before it starts a worker."""
    costs = costs_of(measured, before)
    silent = all(probe.first in (None, spec.early_stopping.max) for probe in measured.known)
    ahead = spec.override(early_stopping={"method": "none"}, audit=None) if silent else spec
    course = simulate(ahead, costs)
    remarks = list(_remarks(ahead, measured, costs, course))
    if silent and spec.early_stopping.method != "none":
        silence = "the objective reports nothing before its end, so early stopping has nothing to go by"
        remarks.insert(0, silence)
    assumed = assumption(ahead) + _cost_of_the_best(costs)
    return SearchForecast(spec, measured, course, assumed, remarks, expected)


def _cost_of_the_best(costs: SearchCosts) -> str:
    """What is assumed about the cost of better trials; empty where cost does not depend on the loss."""
    if not costs.ranked:
        return ""
    seconds = [each.seconds for each in costs.trainings]
    half = len(seconds) // 2
    best, worst = statistics.fmean(seconds[:half]), statistics.fmean(seconds[half:])
    change = "longer" if best > worst else "less time"
    return f", and better trials take {change}, as in the measurement"


def costs_of(measured: Measured, before: float) -> SearchCosts:
    """The costs of a search, from a measurement."""

    def training(probe: Probe) -> TrainingCost:
        assert probe.cost is not None
        units = measured.length(probe)
        if units == 0:  # it never reports
            return TrainingCost(probe.cost.setup, 0.0, 1)
        every = probe.every or probe.cost.seconds(units)
        slower = 1 + measured.driver.report / every  # each report waits for the driver
        return TrainingCost(probe.cost.setup, probe.cost.per_unit * slower, units, every, probe.grid)

    baseline, ranked = measured.baseline, measured.ranked
    return SearchCosts(
        trainings=[training(probe) for probe in ranked or measured.drawn],
        baseline=None if baseline is None or baseline.cost is None else training(baseline),
        slots=measured.slots,
        startup=before + measured.driver.begin + measured.startup,
        leaving=measured.leaving,
        ask=measured.driver.ask,
        keeps=measured.keeps,
        ranked=ranked is not None,
    )


def _remarks(spec: Spec, measured: Measured, costs: SearchCosts, course: SimulatedSearch) -> Iterator[str]:
    budget, whole = spec.budget, statistics.fmean(measured.all_training_seconds)
    fit = costs.slots * max(0.0, (budget.time or 0) - costs.startup) / whole
    enough = FEWEST_TRAININGS * whole / costs.slots + costs.startup
    if budget.time is not None and fit < FEWEST_TRAININGS:
        yield (
            f"the time is enough for {fit:.1f} whole trainings; a comparison needs at least "
            f"{FEWEST_TRAININGS}: --time {option(enough)}"
        )
    elif course.complete == 0 or (course.complete == 1 and course.by != "trials"):
        needed = f"--time {option(2 * enough)}"
        if course.by == "samples":
            needed = f"--samples {_sensible_samples(spec, max(measured.lengths))}"
        result = ONE_COMPLETE if course.complete else "no trial finishes, so there will be no winner"
        yield f"{result}: {needed}"
    else:
        yield from _about_trials(spec, costs, course)
        yield from _about_confirmation(spec, course)
    over = course.by == "trials" and not _runs_out(spec, course)
    if over and budget.time is not None and course.end < 0.9 * budget.time:
        more = simulate(spec.override(budget={"trials": None}), costs).trials
        yield (
            f"all {course.trials} trials finish after {duration(course.end)} of {duration(budget.time)}: "
            f"--trials {more} uses the rest"
        )
    if costs.startup > SLOW_START_SHARE * course.end:
        share = costs.startup / course.end
        yield f"the start takes {share:.0%} of the time; a longer search loses less to it"
    limit = spec.execution.trial_timeout
    if limit is not None and max(measured.all_training_seconds) > limit:
        yield (
            f"execution.trial_timeout is {duration(limit)}, but a training takes up to "
            f"{duration(max(measured.all_training_seconds))}, so long trials would fail"
        )
    last, end = spec.early_stopping.max, max(measured.lengths)
    if last is not None and end + max(p.first or 0 for p in measured.known) <= last:  # a report is missing
        yield f"trainings end at {position(end, spec.resource)}, but early_stopping.max is {last:,}"
    if promotes(spec) and not measured.keeps:
        yield (
            "trials leave no checkpoint with their reports, so they cannot pause: "
            "each is stopped or kept once, as with type: stopping"
        )
    yield from _about_memory(spec, measured)
    if measured.errors:
        count = len(measured.errors)
        of = count + len(measured.known)
        yield f"{count} of {of} configurations failed, and are ignored here: {measured.errors[0]}"


def _sensible_samples(spec: Spec, whole: int) -> int:
    """Enough to compare a few trials and to confirm as asked; more than the search has."""
    confirming = 0 if spec.confirm.top is None else ConfirmationSize.asked(spec).trainings(spec)
    sensible, given = (2 * FEWEST_TRAININGS + confirming) * whole, spec.budget.samples or 0
    return sensible if sensible > given else 2 * given


def _runs_out(spec: Spec, course: SimulatedSearch) -> bool:
    """Whether a search tries every configuration of its space."""
    return course.trials == spec.space.few()


def _about_trials(spec: Spec, costs: SearchCosts, course: SimulatedSearch) -> Iterator[str]:
    first = spec.search.startup_trials or 0
    if _runs_out(spec, course):
        if course.trials != spec.budget.trials:
            yield f"the space has only {course.trials} configurations; the search ends with the last"
    elif course.trials <= first:
        sensible = 2 * first
        longer = spec.override(budget={"trials": sensible, "time": None, "samples": None})
        seconds = simulate(longer, costs).end
        yield (
            f"too few trials for a model: {spec.search.sampler} draws the first {first} at random; "
            f"{sensible} trials take about {duration(seconds)}"
        )
    if course.complete < 2:
        yield ONE_COMPLETE


def _about_confirmation(spec: Spec, course: SimulatedSearch) -> Iterator[str]:
    asked = spec.confirm.top is not None
    if asked and course.seeds and course.confirmation > CONFIRMATION_SHARE * course.end * 1.1:
        yield (
            f"the confirmation takes {course.confirmation / course.end:.0%} of the time: "
            "a smaller confirm.top or confirm.seeds leaves more to the search"
        )
    if not course.seeds and spec.confirm.top != 0:
        yield "the budget is too small to confirm the winner: its value will look better than it is"


def _about_memory(spec: Spec, measured: Measured) -> Iterator[str]:
    if measured.memory is None:
        return
    there, needed = this_machine().memory, measured.memory * measured.share.workers
    if needed > there:
        yield (
            f"{measured.share.workers} workers take {gibibytes(needed)} of memory, but {gibibytes(there)} "
            f"are free: --workers {max(1, there // measured.memory)}"
        )
    limit = spec.execution.max_memory
    if limit is not None and measured.memory > limit * measured.pack:
        taken = gibibytes(measured.memory / measured.pack)
        yield f"a trial took {taken}, more than max_memory of {gibibytes(limit)}"


def assumption(spec: Spec) -> str:
    """What is assumed about the trials' losses, in a sentence."""
    stopping = spec.early_stopping
    match stopping:
        case Rungs():
            return f"about one in {stopping.eta} trials passes a rung, more of those that a model proposes"
        case Median():
            return "half of the trials stop at the first report that is compared"
        case Percentile():
            stopped = f"{100 - stopping.percentile:g} % of the trials"
            return f"{stopped} stop at the first report that is compared"
        case NoStopping():
            return "every trial runs to its end"
    return f"which trials {stopping.method} stops cannot be predicted, so here every trial runs to its end"
