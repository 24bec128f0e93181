"""What will become of a search on this machine, and whether its budget is sensible."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ...spaces import Spec
from ...spaces.stopping import Median, NoStopping, Percentile, Rungs
from ..backends.resources import this_machine
from ..engine.confirmation_size import CONFIRMATION_SHARE, ConfirmationSize
from ..formatting import counted, duration, gibibytes, option
from ..scheduling import promotes
from .measure import Measured, Probe
from .memory import MemoryForecast
from .simulated import SearchCosts, SimulatedSearch, TrainingCost
from .simulation import forecast

FEWEST_TRAININGS = 5  # whole ones, that compare anything
ALONE = "one trial comes to its end, and there is nothing to compare it with"
SLOW_START = 0.2  # of a search, that its workers may take to start


@dataclass(frozen=True)
class SearchForecast:
    """What a measurement and a simulation told."""

    spec: Spec
    measured: Measured
    forecast: SimulatedSearch
    assumed: str  # of the trials' losses
    remarks: list[str]  # what is not sensible, and what would be
    expected: MemoryForecast | None = (
        None  # of the memory of its trials; None where nobody knows it beforehand
    )

    @property
    def memory(self) -> int | None:
        """Bytes of a trial at its peak, as far as a worker with its trials was seen; None where none was."""
        seen = self.measured.memory
        return None if seen is None else seen // self.measured.pack

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data; times in seconds."""
        measured, found = self.measured, self.forecast
        return {
            "study": self.spec.name,
            "resource": self.spec.resource,
            "measured": {
                "seconds": measured.seconds,
                "configurations": [
                    {"parameters": p.config, "training": measured.whole(p)} for p in measured.known
                ],
                "errors": measured.errors,
                "startup": measured.startup,
                "training": statistics.fmean(measured.wholes),
                "memory": self.memory,
            },
            "memory": None if self.expected is None else asdict(self.expected),
            "workers": measured.share.workers,
            "threads": measured.share.threads,
            "pack": measured.pack,
            "rungs": [asdict(each) for each in found.reached],
            "trials": found.trials,
            "complete": found.complete,
            "search": found.search,
            "ends_by": found.by,
            "audit": {"trials": found.audited, "seconds": found.auditing},
            "confirmation": {
                "trainings": found.confirms,
                "seeds": found.seeds,
                "seconds": found.confirmation,
            },
            "end": found.end,
            "ends": found.ends,
            "assumed": self.assumed,
            "remarks": self.remarks,
        }


def outlook(
    spec: Spec, measured: Measured, before: float = 0.0, expected: MemoryForecast | None = None
) -> SearchForecast:
    """The future of a search; `before`: seconds that its command takes before it starts a worker."""
    costs = costs_of(measured, before)
    silent = all(probe.first in (None, spec.early_stopping.max) for probe in measured.known)
    ahead = spec.override(early_stopping={"method": "none"}, audit=None) if silent else spec
    found = forecast(ahead, costs)
    remarks = list(_remarks(ahead, measured, costs, found))
    if silent and spec.early_stopping.method != "none":
        told = "the objective reports nothing before its end, so early stopping has nothing to judge by"
        remarks.insert(0, told)
    return SearchForecast(spec, measured, found, assumed(ahead) + _of_the_best(costs), remarks, expected)


def _of_the_best(costs: SearchCosts) -> str:
    """What is assumed of the costs of better trials; nothing where they have nothing to do with it."""
    if not costs.ranked:
        return ""
    half = len(costs.trainings) // 2
    best, worst = (
        statistics.fmean(each.seconds for each in some)
        for some in (costs.trainings[:half], costs.trainings[half:])
    )
    most = "longer" if best > worst else "less time"
    return f", and better trials take {most}, as those did that looked better in the measurement"


def costs_of(measured: Measured, before: float) -> SearchCosts:
    """What a measurement says of a search."""

    def training(probe: Probe) -> TrainingCost:
        assert probe.cost is not None
        units = measured.length(probe)
        if units == 0:  # it never reports
            return TrainingCost(probe.cost.setup, 0.0, 1)
        every = probe.every or probe.cost.seconds(units)
        slower = 1 + measured.driver.report / every  # for each report waits for the driver
        return TrainingCost(probe.cost.setup, probe.cost.per_unit * slower, units, every, probe.grid)

    baseline, ranked = measured.baseline, measured.ranked
    drawn = [probe for probe in measured.probes if probe.cost is not None]
    return SearchCosts(
        trainings=[training(probe) for probe in ranked or drawn or measured.known],
        baseline=None if baseline is None or baseline.cost is None else training(baseline),
        slots=measured.slots,
        startup=before + measured.driver.begin + measured.startup,
        leaving=measured.leaving,
        ask=measured.driver.ask,
        keeps=measured.keeps,
        ranked=ranked is not None,
    )


def _remarks(spec: Spec, measured: Measured, costs: SearchCosts, found: SimulatedSearch) -> Iterator[str]:
    budget, whole = spec.budget, statistics.fmean(measured.wholes)
    fit = costs.slots * max(0.0, (budget.time or 0) - costs.startup) / whole
    enough = FEWEST_TRAININGS * whole / costs.slots + costs.startup
    if budget.time is not None and fit < FEWEST_TRAININGS:
        yield (
            f"the time is enough for {fit:.1f} whole trainings, and {FEWEST_TRAININGS} are the least that "
            f"compare anything: --time {option(enough)}"
        )
    elif found.complete == 0 or (found.complete == 1 and found.by != "trials"):
        needed = f"--time {option(2 * enough)}"
        if found.by == "samples":
            needed = f"--samples {_sensible_samples(spec, max(measured.lengths))}"
        told = ALONE if found.complete else "no trial comes to its end, so there will be no winner"
        yield f"{told}: {needed}"
    else:
        yield from _about_trials(spec, costs, found)
        yield from _about_confirmation(spec, found)
    over = found.by == "trials" and not _runs_out(spec, found)
    if over and budget.time is not None and found.end < 0.9 * budget.time:
        more = forecast(spec.override(budget={"trials": None}), costs).trials
        yield (
            f"all {found.trials} trials are over after {duration(found.end)} of {duration(budget.time)}: "
            f"--trials {more} uses them"
        )
    if costs.startup > SLOW_START * found.end:
        yield f"the start takes {costs.startup / found.end:.0%} of the time: a longer search has more of it"
    limit = spec.execution.trial_timeout
    if limit is not None and max(measured.wholes) > limit:
        yield (
            f"execution.trial_timeout is {duration(limit)}, and a training takes up to "
            f"{duration(max(measured.wholes))}: these would fail"
        )
    last, end = spec.early_stopping.max, max(measured.lengths)
    if last is not None and end + max(p.first or 0 for p in measured.known) <= last:  # it leaves out a report
        yield f"trainings end at {counted(end, spec.resource)}: early_stopping.max is {last:,}"
    if promotes(spec) and not measured.keeps:
        yield (
            "trials leave no checkpoint with their reports, so none can pause and go on: "
            "each is judged once, as by type: stopping"
        )
    yield from _about_memory(spec, measured)
    if measured.errors:
        count = len(measured.errors)
        of = count + len(measured.known)
        yield f"{count} of {of} configurations failed, and are left out here: {measured.errors[0]}"


def _sensible_samples(spec: Spec, whole: int) -> int:
    """For a search that compares a few trials, and the confirmation that it asks for; more than it has."""
    confirming = 0 if spec.confirm.top is None else ConfirmationSize.asked(spec).trainings(spec)
    sensible, given = (2 * FEWEST_TRAININGS + confirming) * whole, spec.budget.samples or 0
    return sensible if sensible > given else 2 * given


def _runs_out(spec: Spec, found: SimulatedSearch) -> bool:
    """Whether a search tries every configuration of its space."""
    return found.trials == spec.space.few()


def _about_trials(spec: Spec, costs: SearchCosts, found: SimulatedSearch) -> Iterator[str]:
    asked = (getattr(spec.search, name, None) for name in ("n_startup_trials", "n_startup_jobs"))
    first = next((count for count in asked if count is not None), None)
    first = (spec.search.model_after or 0) if first is None else first
    if _runs_out(spec, found):
        if found.trials != spec.budget.trials:
            yield f"the space has only {found.trials} configurations; the search ends with the last"
    elif found.trials <= first:
        sensible = 2 * first
        longer = spec.override(budget={"trials": sensible, "time": None, "samples": None})
        seconds = forecast(longer, costs).end
        yield (
            f"too few trials for a model: the first {first} of {spec.search.sampler} are drawn without one; "
            f"{sensible} trials take about {duration(seconds)}"
        )
    if found.complete < 2:
        yield ALONE


def _about_confirmation(spec: Spec, found: SimulatedSearch) -> Iterator[str]:
    asked = spec.confirm.top is not None
    if asked and found.seeds and found.confirmation > CONFIRMATION_SHARE * found.end * 1.1:
        yield (
            f"the confirmation takes {found.confirmation / found.end:.0%} of the time: "
            "a smaller confirm.top or confirm.seeds leaves more to the search"
        )
    if not found.seeds and spec.confirm.top != 0:
        yield "the budget leaves no room to confirm the winner: its value will look better than it is"


def _about_memory(spec: Spec, measured: Measured) -> Iterator[str]:
    if measured.memory is None:
        return
    there, needed = this_machine().memory, measured.memory * measured.share.workers
    if needed > there:
        yield (
            f"{measured.share.workers} workers take {gibibytes(needed)} of memory, and {gibibytes(there)} "
            f"are free: --workers {max(1, there // measured.memory)}"
        )
    limit = spec.execution.max_memory
    if limit is not None and measured.memory > limit * measured.pack:
        taken = gibibytes(measured.memory / measured.pack)
        yield f"a trial took {taken}, above max_memory of {gibibytes(limit)}"


def assumed(spec: Spec) -> str:
    """What is assumed of trials' losses, in a sentence."""
    stopping = spec.early_stopping
    match stopping:
        case Rungs():
            return f"about one in {stopping.eta} passes a rung, and more of those that a model proposes"
        case Median():
            return "half of the trials stop at the first report at which they are compared"
        case Percentile():
            stopped = f"{100 - stopping.percentile:g} % of the trials"
            return f"{stopped} stop at the first report at which they are compared"
        case NoStopping():
            return "every trial runs to its end"
    return f"nobody knows whom {stopping.method} stops, so here every trial runs to its end"
