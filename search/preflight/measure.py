"""Measures what trials cost on this machine, in a minute: seconds and memory.

The objective runs as in a search: in the same worker processes, as many at a time, with the same threads. The
baseline and quasi-random configurations train until each has reported twice; then a dry run measures the
driver. Nothing of this is kept.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...spaces import Constant, Spec, nested
from ...spaces.stopping import LENGTHS, is_length
from ...storage.files import has_checkpoint, scratch_folder
from ..backends.local import LocalWorkers
from ..backends.packing import check_pack, pack_size
from ..backends.resources import WorkerShare, share, this_machine
from ..backends.worker.channel import Message
from ..backends.worker.process import Worker
from ..engine.costs import Attempt, Cost
from ..engine.running import Assignment
from ..errors import SearchError
from ..sampling.unit_cube import UnitCube
from ..trials.judging import Judge
from ..trials.seeds import derived_seed
from .dry_run import DryRun, dry_run

MEASURE_SECONDS = 60.0  # for a whole measurement, at most
DRY_RUN_SHARE = 0.2  # of these seconds, at most, to measure what the driver costs
LOG2_MOST_PROBES = 5  # the binary logarithm of the largest number of configurations
FEWEST_PROBES = 8  # configurations, before the measurement may end early
PRECISE_ERROR = 0.03  # relative standard error of the mean cost at which it ends early
SIGNIFICANCE = 0.05  # the largest p-value of a rank correlation that counts
TRIAL_SECONDS = 2.0  # of training, after which a configuration with two reports is done
LOOK_SECONDS = 0.1  # between two looks at the memory


@dataclass(frozen=True)
class Probe:
    """A configuration that was trained briefly, or failed."""

    config: dict[str, Any]
    cost: Cost | None
    every: float  # seconds from one report to the next
    units: int | None  # the step at which its training ended by itself; None where it did not
    error: str | None = None
    first: int | None = None  # the step of its first report
    last: int = 0  # the step of its last report
    grid: int = 1  # units from one report to the next
    losses: Mapping[int, float] = field(default_factory=dict)  # reported, by step; lower is better


@dataclass(frozen=True)
class Measured:
    """The result of a measurement."""

    baseline: Probe | None
    probes: list[Probe]  # of quasi-random configurations
    units: int | None  # the resource of a whole training; None where only the end of a training shows it
    startup: float  # seconds until a worker trains
    leaving: float  # seconds until all workers have ended
    memory: int | None  # the most bytes that a worker held; None where they could not be read
    pack: int  # trials in each worker
    share: WorkerShare
    seconds: float  # that the measurement took
    driver: DryRun  # what the search itself costs
    keeps: bool = True  # whether trials left checkpoints with their reports

    @property
    def slots(self) -> int:
        """Trials at a time."""
        return self.share.workers * self.pack

    @property
    def known(self) -> list[Probe]:
        """Configurations whose cost is known, the baseline among them."""
        return [p for p in (self.baseline, *self.probes) if p is not None and p.cost is not None]

    @property
    def drawn(self) -> list[Probe]:
        """Those of them that the sampler may draw; all if only the baseline is known."""
        return [p for p in self.probes if p.cost is not None] or self.known

    @property
    def ranked(self) -> list[Probe] | None:
        """Configurations that the sampler may draw, best first by the last loss that all have reported.

        None where cost does not depend on the loss, as far as was measured: Spearman's rank correlation of
        the two is not significant.
        """
        from scipy.stats import spearmanr

        probes = [p for p in self.probes if p.cost is not None]
        step = max(set.intersection(*(set(p.losses) for p in probes)), default=None) if probes else None
        if step is None or len(probes) < FEWEST_PROBES:
            return None
        losses, costs = [p.losses[step] for p in probes], [self.training_seconds(p) for p in probes]
        if len(set(losses)) == 1 or len(set(costs)) == 1 or spearmanr(losses, costs).pvalue > SIGNIFICANCE:
            return None
        return sorted(probes, key=lambda p: p.losses[step])

    @property
    def errors(self) -> list[str]:
        """The errors of the configurations that failed."""
        return [p.error for p in (self.baseline, *self.probes) if p is not None and p.error is not None]

    def training_seconds(self, probe: Probe) -> float:
        """Seconds of a whole training of a configuration."""
        assert probe.cost is not None
        return probe.cost.seconds(self.length(probe))

    def length(self, probe: Probe) -> int:
        """The resource of a whole training of a configuration.

        It is where this training ended by itself, or others that got further; else what the space says.
        """
        return _length(probe, self.known, self.units)

    @property
    def lengths(self) -> list[int]:
        """The resource of each known configuration's training; 0 where only its end shows it."""
        return [self.length(probe) for probe in self.known]

    @property
    def all_training_seconds(self) -> list[float]:
        """Seconds of whole trainings of the configurations that the sampler may draw."""
        return [self.training_seconds(probe) for probe in self.drawn]


def _length(probe: Probe, others: Iterable[Probe], stated: int | None) -> int:
    if probe.units:
        return probe.units
    ends = max((other.units for other in others if other.units), default=0)
    return ends if probe.last < ends else stated or 0


def training_units(spec: Spec) -> int | None:
    """The resource of a whole training, as far as the space states it."""
    if spec.early_stopping.max is not None:
        return spec.early_stopping.max
    for name in LENGTHS:
        parameter = spec.passed.get(name)
        if isinstance(parameter, Constant) and is_length(parameter.value):
            return int(parameter.value)
    return None


def measure(
    spec: Spec,
    objective: Message,
    *,
    seconds: float = MEASURE_SECONDS,
    on_probe: Callable[[int], None] = lambda done: None,
    say: Callable[[str], None] = lambda message: None,
) -> Measured:
    """Train the baseline and quasi-random configurations briefly; `on_probe` gets the number measured so far.

    Raises `SearchError` where none of them shows what a training costs.
    """
    check_pack(spec)
    began = time.monotonic()
    worker_share = share(spec.execution, [this_machine()], "this machine")
    pack, notice = pack_size(spec, worker_share, this_machine().memory)
    if notice is not None:
        say(notice)
    slots = worker_share.workers * pack
    with scratch_folder("hpsearch-plan-") as folder:
        workers = LocalWorkers(spec, objective, worker_share, pack)
        bench = _Bench(spec, workers, slots, folder, began + (1 - DRY_RUN_SHARE) * seconds)
        probes = bench.run(on_probe)
    driver = dry_run(spec, slots, DRY_RUN_SHARE * seconds)
    baseline = probes.pop(0) if spec.baseline is not None and probes else None
    measured = Measured(
        baseline=baseline,
        probes=probes,
        units=bench.units,
        startup=statistics.median(bench.startups) if bench.startups else 0.0,
        leaving=bench.leaving,
        memory=bench.memory or None,
        pack=pack,
        share=worker_share,
        seconds=time.monotonic() - began,
        driver=driver,
        keeps=bench.keeps,
    )
    if not measured.known:
        raise SearchError(_why_unmeasured(spec, measured, (1 - DRY_RUN_SHARE) * seconds))
    return measured


def _why_unmeasured(spec: Spec, measured: Measured, seconds: float) -> str:
    if measured.errors:
        return f"every configuration that was tried failed: {measured.errors[0]}"
    if measured.units is None:
        return (
            f"no training finished within {seconds:.0f} s, and the space does not say where a training ends: "
            "set early_stopping.max, and let the objective report"
        )
    tried = [probe for probe in (measured.baseline, *measured.probes) if probe is not None]
    twice = "twice " if any(probe.every for probe in tried) else ""
    return (
        f"could not estimate the time of a training: none reported {twice}within {seconds:.0f} s. "
        "Report more often, or measure for longer"
    )


@dataclass
class _RunningProbe:
    given: float  # when, by the monotonic clock
    first: bool  # whether its worker starts for it
    attempt: Attempt = field(default_factory=Attempt)
    heard_at: float = 0.0  # its last report, by the monotonic clock
    reports: dict[int, float] = field(default_factory=dict)  # that are finite, by step


class _Bench:
    """The workers, and the configurations that they train briefly."""

    def __init__(self, spec: Spec, workers: LocalWorkers, slots: int, folder: Path, until: float) -> None:
        self._spec = spec
        self._judge = Judge.of(spec)
        self._workers = workers
        self._slots = slots
        self._folder = folder
        self._began = time.monotonic()
        self._until = until
        self.units = training_units(spec)
        self._configs = _configs(spec)
        self._probes: list[Probe] = []
        self._running: dict[int, _RunningProbe] = {}  # by its index among the probes
        self.startups: list[float] = []
        self.leaving = 0.0
        self.memory = 0
        self.keeps = False

    def run(self, on_probe: Callable[[int], None]) -> list[Probe]:
        """The probes, in the order of the configurations."""
        workers = self._workers
        try:
            while (workers.fill(self._next) or workers.trials) and time.monotonic() < self._until:
                news = workers.news(LOOK_SECONDS)
                self.memory = max([self.memory, *(worker.memory() for worker in workers)])
                for worker, messages in news:
                    for message in messages:
                        self._hear(worker, message)
                        on_probe(sum(p.cost is not None for p in self._probes))
        finally:
            began = time.monotonic()
            workers.end()
            self.leaving = time.monotonic() - began
        for number, running in self._running.items():  # the time is over
            self._conclude(number, running, silent_seconds=began - running.heard_at)
        return [*self._probes]

    def _next(self) -> Assignment | None:
        """The next configuration to train, as a trial; None where more would add little."""
        if self._enough() or (config := next(self._configs, None)) is None:
            return None
        number = len(self._probes)
        self._probes.append(Probe(config, None, 0.0, None))
        self._running[number] = _RunningProbe(time.monotonic(), first=number < self._slots)
        params, folder = nested(self._spec.space.passed(config)), self._folder / str(number)
        seed = derived_seed(self._spec.search.seed, "plan", number)
        return Assignment(number, params, seed, folder, reported=0)

    def _enough(self) -> bool:
        """Whether more configurations would add little."""
        if time.monotonic() > self._until:
            return True
        known = [p for p in self._probes if p.cost is not None]
        costs = [p.cost.seconds(_length(p, known, self.units)) for p in known if p.cost is not None]
        if len(costs) < FEWEST_PROBES:
            return False
        return bool(statistics.stdev(costs) <= PRECISE_ERROR * statistics.fmean(costs) * len(costs) ** 0.5)

    def _hear(self, worker: Worker, message: Message) -> None:
        number, kind = message["number"], message["kind"]
        running, probe = self._running[number], self._probes[number]
        if kind == "failed":
            self._probes[number] = replace(probe, error=message["failure"]["message"])
        elif self._diverges(running, message):
            if kind == "report":
                worker.stop(message)
            at = message.get("step")
            where = "the objective returned" if at is None else f"{self._spec.metric} at {at} was"
            self._probes[number] = replace(probe, error=f"diverged: {where} {message['value']}")
        elif kind in ("report", "done"):
            if running.first and running.attempt.report_count == 0:
                self.startups.append(time.monotonic() - running.given - message["seconds"])
            if kind == "done":
                running.attempt.ended = message["seconds"]
            else:
                running.attempt.report(message["step"], message["seconds"])
                if math.isfinite(message["value"]):
                    running.reports[message["step"]] = message["value"]
                self.keeps = self.keeps or has_checkpoint(self._folder / str(number))
                running.heard_at = time.monotonic()
                if not self._is_measured(running):
                    worker.let_continue(message)
                    return
                worker.stop(message)
            self._conclude(number, running)
        # Packed trials that are handed back to train in smaller packs, or in another order, measured nothing.
        del self._running[number]

    def _diverges(self, running: _RunningProbe, message: Message) -> bool:
        """Whether a trial ends with this message because it has no value."""
        if message["kind"] == "report":
            return self._judge.ends(message["value"])
        is_end = message["kind"] == "done"
        return is_end and not math.isfinite(self._judge.at_end(running.reports, message["value"]))

    def _is_measured(self, running: _RunningProbe) -> bool:
        """Whether a trial has shown what it costs."""
        if self.units is None or running.attempt.report_count < 2:
            return False
        late = time.monotonic() > (self._began + self._until) / 2
        return late or running.attempt.reports[-1][1] >= TRIAL_SECONDS

    def _conclude(self, number: int, running: _RunningProbe, silent_seconds: float = 0.0) -> None:
        """Store what a configuration cost; `silent_seconds`: since its last report when the time was over."""
        attempt = running.attempt
        first, last = (attempt.reports[0][0], attempt.reports[-1][0]) if attempt.reports else (None, 0)
        units = None if attempt.ended is None else last
        cost = attempt.cost if self.units is not None or units is not None else None
        if cost is not None and cost.seen is not None and silent_seconds > cost.per_unit * cost.seen:
            cost = None  # its first report came sooner than others would: it measured the start alone
        self._probes[number] = replace(
            self._probes[number],
            cost=cost,
            every=attempt.seconds_per_report or 0.0,
            units=units,
            first=first,
            last=last,
            grid=attempt.grid,
            losses={step: self._spec.loss(each) for step, each in self._judge.curve(running.reports).items()},
        )


def _configs(spec: Spec) -> Iterator[dict[str, Any]]:
    """The baseline, and points of a Sobol sequence that satisfy the constraints."""
    from scipy.stats import qmc

    baseline = spec.space.baseline()
    if baseline is not None:
        yield baseline
    cube = UnitCube(spec.space)
    if not cube.dimensions:
        yield from [spec.space.resolve(cube.suggester(np.empty(0)))] * FEWEST_PROBES
        return
    rng = np.random.default_rng(derived_seed(spec.search.seed, "plan"))
    for point in qmc.Sobol(cube.dimensions, scramble=True, rng=rng).random_base2(LOG2_MOST_PROBES):
        config, refused = spec.space.proposed(cube.suggester(point))
        if refused is None:
            yield config
