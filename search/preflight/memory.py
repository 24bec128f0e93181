"""Which configurations fit into the memory that a trial may take, known before one starts.

    peak = own + scale * footprint

`footprint` is counted from the configuration alone (`trainer.guides.footprint`). `own` is what a worker holds
that trains nothing, `scale` what an allocator makes of the rest. Two configurations of the space determine
both on this machine: the smallest, and the largest that may fit. Each trains for three steps in a process
like a worker's (`trainer.tools.peak`). That takes seconds, so it is only done where the space may come near
the limit; the study stores the two numbers, so that a resumed search decides the same.

A configuration that does not fit is refused like one that violates a constraint: it never becomes a trial.
Where a trial runs out of memory all the same, none as large is tried from then on; the trials alone decide.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from subprocess import TimeoutExpired
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from ...objectives.info import ObjectiveInfo
from ...spaces import SpaceError, Spec
from ..backends.resources import Room, WorkerShare, room_for
from ..backends.tools import answer_of, start_tool
from ..backends.worker.process import environment
from ..errors import SearchError, UsageError
from ..formatting import gibibytes
from ..trials.advice import advice_for
from ..trials.configuration import known_config

SAMPLED_CONFIGS = 100  # random configurations, among which the smallest and the largest of a space are found
NEAR_LIMIT = 0.5  # of the limit: a space that stays below is not measured
OWN_BYTES, SCALE = 300e6, 1.3  # of a worker that was not measured
LEAST_DISTANCE = 40e6  # bytes between the footprints of the two measured configurations,
FARTHEST_ON_CPU = 500e6  # and the most on a CPU, where three steps would otherwise take minutes
PEAK_SECONDS = 120.0  # for each of the two measurements,
PEAK_SHARE = 0.1  # and at most this share of the time of a search
SAFETY = 1.08  # times the predicted peak: a trial may take this much more (`benchmarks/memory.py`)
OUT_OF_MEMORY = "out_of_memory"  # the constraint that a trial violates when it runs out of memory


@dataclass(frozen=True)
class MemoryLine:
    """The memory of a process as a line over the footprint of its configuration."""

    own: float = OWN_BYTES  # bytes
    scale: float = SCALE

    def at(self, counted: float) -> float:
        """The bytes of a process at its peak."""
        return self.own + self.scale * counted


@dataclass(frozen=True)
class MemoryForecast:
    """The memory that trials of a space will take, in bytes."""

    least: float
    baseline: float | None
    largest: float
    limit: int | None  # None: unknown
    fitting: float  # share of the space
    measured: bool  # on this machine


class MemoryModel:
    """The memory of a study's trials, whose objective is built in; for others it cannot be predicted."""

    def __init__(self, spec: Spec, room: Room | None, kept: Mapping[str, float] | None = None) -> None:
        """`spec` has no limit yet; `kept` holds the numbers that an earlier search of the study measured."""
        self._spec = spec
        self._objective = ObjectiveInfo(spec.objective_words)
        self._room = room
        self.line = None if kept is None else MemoryLine(**kept)
        self._too_much = math.inf  # the least footprint that ran out of memory
        self._over: dict[int, int] = {}  # footprints of trials that ran out of memory, by number
        self._uncounted: list[FrozenTrial] = []  # complete trials, counted once a trial runs out of memory
        self._enough = 0  # the largest footprint of a complete trial
        rng, space = random.Random(0), spec.space
        drawn = [*space.corners(), *(space.sample(rng) for _ in range(SAMPLED_CONFIGS))]
        sized = [(size, config) for config in drawn if (size := self._counted(config)) is not None]
        self._sized = sorted(sized, key=lambda pair: pair[0])  # configurations with their footprints

    @classmethod
    def of(cls, spec: Spec, room: Room | None, kept: Mapping[str, float] | None = None) -> MemoryModel | None:
        """The memory of a study's trials; None where it cannot be predicted, as with several processes."""
        if ObjectiveInfo(spec.objective_words).trainer is None or spec.execution.processes_per_trial > 1:
            return None
        model = cls(spec, room, kept)
        return model if model._sized else None

    def peak(self, config: Mapping[str, Any]) -> float | None:
        """The bytes that a trial of this configuration takes at its peak; None where they are unknown."""
        counted = self._counted(config)
        return None if counted is None else self._line.at(counted)

    def problem(self, config: Mapping[str, Any]) -> str | None:
        """Why a configuration does not fit; None where it does, or where that is unknown."""
        if self.line is None and self._too_much == math.inf:
            return None  # no configuration comes near the limit
        counted = self._counted(config)
        if counted is None:
            return None
        most = SAFETY * self._line.at(counted)
        takes = f"may come to take {gibibytes(most)} of memory"
        if counted >= self._too_much:
            return f"{takes}, and a trial that was no larger ran out of it"
        if self.line is not None and self._room is not None and most > self._room.limit:
            return f"{takes}; {self._room.description}"
        return None

    def measure(self, threads: int, say: Callable[[str], None]) -> str | None:
        """Measure the space where it may come near the limit, and say so; why that failed, if it did."""
        room, largest = self._room, self._line.at(self._sized[-1][0])
        if room is None or self.line is not None or largest <= NEAR_LIMIT * room.limit:
            return None
        say("trials may come near the memory limit: measuring what they take")
        time = self._spec.budget.time
        seconds = PEAK_SECONDS if time is None else min(PEAK_SECONDS, PEAK_SHARE * time)
        try:
            self.line = self.measured(threads, seconds)
        except SearchError as error:
            return f"the memory of trials cannot be measured ({error}), so none is left out for it"
        return None

    def measured(self, threads: int, seconds: float = PEAK_SECONDS) -> MemoryLine:
        """Train the smallest configuration of the space and the largest that may fit, with so many threads.

        Raises `SearchError` where the smallest cannot be trained in so many seconds.
        """
        room, (least, smallest) = self._room, self._sized[0]
        points = [(least, self._trained(smallest, threads, seconds))]
        farthest = FARTHEST_ON_CPU if room is None or room.kind == "host" else math.inf
        limit = math.inf if room is None else room.limit
        for size, config in reversed(self._sized):
            if LEAST_DISTANCE < size - least <= farthest and self._line.at(size) <= limit:
                with suppress(SearchError):  # one point is enough, with the default scale
                    points.append((size, self._trained(config, threads, seconds)))
                break
        return _through(points)

    def check(self, *, begins: bool) -> None:
        """Raise `UsageError` where nothing of the space fits, and `SpaceError` where its baseline does not.

        A search that resumes has trained its baseline already.
        """
        if (least := self.problem(self._sized[0][1])) is not None:
            raise UsageError(f"no configuration of the space fits: the smallest {least}")
        baseline = self._spec.space.baseline()
        if begins and baseline is not None and (problem := self.problem(baseline)) is not None:
            advice = advice_for(self._spec, baseline, [], "out_of_memory", None)
            raise SpaceError([self._spec.issue("baseline", "; ".join((problem, *advice[:1])))])

    def exclusion(self) -> str | None:
        """The share of the space that does not fit, in a sentence; None where all of it fits."""
        expected = self.expected()
        if expected.fitting == 1 or self._room is None:
            return None
        share, largest = max(1 - expected.fitting, 0.01), gibibytes(expected.largest)
        return (
            f"{share:.0%} of the space does not fit and is left out: it takes up to {largest} of memory; "
            f"{self._room.description}"
        )

    def expected(self) -> MemoryForecast:
        """The memory that the space's trials will take."""
        baseline = self._spec.space.baseline()
        fitting = sum(self.problem(config) is None for _, config in self._sized)
        return MemoryForecast(
            least=self._line.at(self._sized[0][0]),
            baseline=None if baseline is None else self.peak(baseline),
            largest=self._line.at(self._sized[-1][0]),
            limit=None if self._room is None else self._room.limit,
            fitting=fitting / len(self._sized),
            measured=self.line is not None,
        )

    def learn(self, trials: Sequence[FrozenTrial]) -> str | None:
        """Leave out configurations as large as one that ran out of memory; the news, if there is any.

        `trials`: those that changed since the last call. Where a trial that is no smaller has finished,
        memory ran out for another reason.
        """
        over = [t for t in trials if t.constraints.get(OUT_OF_MEMORY, 0.0) > 0.0]
        complete = [t for t in trials if t.state == TrialState.COMPLETE]
        self._over.update({t.number: counted for t in over if (counted := self._of(t)) is not None})
        self._uncounted += complete
        if not self._over or not (over or complete):
            return None
        self._enough = max([self._enough, *(self._of(t) or 0 for t in self._uncounted)])
        self._uncounted = []
        numbers = {self._over[number]: number for number in sorted(self._over, reverse=True)}
        before, larger = self._too_much, [size for size in numbers if size > self._enough]
        self._too_much = min(larger, default=math.inf)
        if self._too_much >= before:
            return None
        return (
            f"trial {numbers[int(self._too_much)]} ran out of memory, although it should have taken about "
            f"{gibibytes(self._line.at(self._too_much))}; none as large will be tried from now on"
        )

    def to_json(self) -> dict[str, float] | None:
        """The measured numbers, for the study to store."""
        return None if self.line is None else asdict(self.line)

    @property
    def _line(self) -> MemoryLine:
        return self.line or MemoryLine()

    def _counted(self, config: Mapping[str, Any]) -> int | None:
        cuda = self._room is not None and self._room.kind == "device"
        return self._objective.footprint(self._spec.space.passed(config), cuda=cuda)

    def _of(self, trial: FrozenTrial) -> int | None:
        """A trial's footprint; None where its parameters are no configuration of the space."""
        config = known_config(self._spec, trial)
        return None if config is None else self._counted(config)

    def _trained(self, config: Mapping[str, Any], threads: int, seconds: float) -> float:
        """The bytes that a process of its own takes to train a configuration."""
        surroundings, params = environment(threads), self._spec.space.passed(config)
        kind = "host" if self._room is None else self._room.kind
        if kind == "host":
            surroundings["CUDA_VISIBLE_DEVICES"] = ""
        tool = start_tool("trainer.tools.peak", surroundings)
        try:
            peaks = answer_of(tool, {"objective": self._spec.objective, "params": params}, seconds)
        except TimeoutExpired:
            raise SearchError(f"three steps took longer than {seconds:.3g} s") from None
        return float(peaks[kind])


def expected_memory(
    spec: Spec, share: WorkerShare, seconds: float = 2 * PEAK_SECONDS
) -> MemoryForecast | None:
    """Measure what memory a search's trials will take here; None where it cannot be predicted.

    Raises as `MemoryModel.check` where the search would not begin.
    """
    memory = MemoryModel.of(spec, room_for(spec.execution, share))
    if memory is None:
        return None
    with suppress(SearchError):  # such as a missing text; then the default line has to do
        memory.line = memory.measured(share.threads, seconds / 2)
    memory.check(begins=True)
    return memory.expected()


def _through(points: Sequence[tuple[int, float]]) -> MemoryLine:
    """The line through two points, or one point."""
    (counted, took), (other, more) = points[0], points[-1]
    scale = (more - took) / (other - counted) if other > counted else SCALE
    return MemoryLine(took - scale * counted, scale)
