"""Which configurations fit into the memory that a trial may take, before one begins.

    peak = own + scale * footprint

`footprint` is counted from the configuration alone (`trainer.guides.footprint`). `own` is what a worker holds
that trains nothing, `scale` what an allocator makes of the rest. Two configurations of the space tell the two
on this machine: its least, and the largest that may fit. Each trains for three steps in a process as a worker
is (`trainer.tools.peak`). That takes seconds, so it is only done where the space may come near the limit; the
study keeps the two numbers, and a search that goes on decides the same.

What does not fit is refused like what violates a constraint: no trial is made of it. Where a trial ran out of
memory all the same, what is no smaller is left out from then on; that follows from the study's trials alone.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from ...objectives.catalog import footprint, trainer_config
from ...spaces import SpaceError, Spec
from ..backends.resources import Room, Share, room_for
from ..backends.worker.process import environment
from ..errors import SearchError, UsageError
from ..formatting import gibibytes
from ..trials.advice import advice_for
from ..trials.configuration import config_of, has_config

DRAWN = 100  # random configurations of a space, by which its least and its largest are known
NEAR = 0.5  # of the limit: a space that stays below is not measured
OWN, SCALE = 300e6, 1.3  # of a worker that was not measured
FAR = 40e6  # bytes at least between the footprints of two configurations that tell a scale,
FARTHEST = 500e6  # and at most on a CPU, or three steps take minutes
SECONDS = 120.0  # for each of two measurements,
SHARE = 0.1  # and no more of the time of a search
SURE = 1.08  # times what is expected: so much may a trial take more (`benchmarks/memory.py`)
OUT_OF_MEMORY = "out_of_memory"  # the constraint of a trial that was


@dataclass(frozen=True)
class MemoryLine:
    """What a process takes beside what is counted of its configuration."""

    own: float = OWN  # bytes
    scale: float = SCALE

    def at(self, counted: float) -> float:
        """The bytes of a process at its fullest."""
        return self.own + self.scale * counted


@dataclass(frozen=True)
class MemoryForecast:
    """What trials of a space will take of memory, in bytes."""

    least: float
    baseline: float | None
    largest: float
    limit: int | None  # None: nobody knows one
    fitting: float  # share of the space
    measured: bool  # on this machine


class MemoryModel:
    """The memory of a study's trials, whose objective is built in: of another nobody knows it beforehand."""

    def __init__(self, spec: Spec, room: Room | None, kept: Mapping[str, float] | None = None) -> None:
        """`spec` has no limit yet; `kept` is what an earlier search of the study measured."""
        self._spec = spec
        self._room = room
        self.line = None if kept is None else MemoryLine(**kept)
        self._too_much = math.inf  # counted: so large a configuration ran out of memory
        self._over: dict[int, int] = {}  # what is counted of trials that ran out of memory
        self._uncounted: list[FrozenTrial] = []  # complete trials, of which that matters once one has
        self._enough = 0  # counted: so large a configuration came to its end
        rng, space = random.Random(0), spec.space
        self._random = [
            config for _ in range(DRAWN) if self._counted(config := space.sample(rng)) is not None
        ]
        known = [c for c in (*space.corners(), *self._random) if self._counted(c) is not None]
        self._drawn = sorted(known, key=lambda config: self._counted(config) or 0)

    @classmethod
    def of(cls, spec: Spec, room: Room | None, kept: Mapping[str, float] | None = None) -> MemoryModel | None:
        """The memory of a study's trials; None where nobody knows it beforehand, as of several processes."""
        if trainer_config(spec.objective_words) is None or spec.execution.processes_per_trial > 1:
            return None
        found = cls(spec, room, kept)
        return found if found._drawn else None

    def peak(self, config: Mapping[str, Any]) -> float | None:
        """The bytes that a trial of this configuration takes at its fullest; None where nobody knows."""
        counted = self._counted(config)
        return None if counted is None else self._line.at(counted)

    def problem(self, config: Mapping[str, Any]) -> str | None:
        """Why a configuration does not fit; None where it does, or nobody knows."""
        if self.line is None and self._too_much == math.inf:
            return None  # nothing of the space comes near the limit
        counted = self._counted(config)
        if counted is None:
            return None
        most = SURE * self._line.at(counted)
        takes = f"may come to take {gibibytes(most)} of memory"
        if counted >= self._too_much:
            return f"{takes}, and a trial that was no larger ran out of it"
        if self.line is not None and self._room is not None and most > self._room.limit:
            return f"{takes}; {self._room.told}"
        return None

    def measure(self, threads: int, say: Callable[[str], None]) -> str | None:
        """Measure the space where it may come near the limit, and say so; why that failed, if it did."""
        room, largest = self._room, self.peak(self._drawn[-1]) or 0.0
        if room is None or self.line is not None or largest <= NEAR * room.limit:
            return None
        say("trials may come near the limit of memory: measuring what they take")
        time = self._spec.budget.time
        try:
            self.line = self.measured(threads, SECONDS if time is None else min(SECONDS, SHARE * time))
        except SearchError as error:
            return f"what trials take of memory cannot be measured ({error}); none is left out for it"
        return None

    def measured(self, threads: int, seconds: float = SECONDS) -> MemoryLine:
        """What the least of the space and the largest that may fit tell, trained with so many threads.

        Raises `SearchError` where the least cannot be trained in so many seconds.
        """
        found = [self._trained(self._drawn[0], threads, seconds)]
        room, least = self._room, found[0][0]
        far = [config for config in self._drawn if (self._counted(config) or 0) - least > FAR]
        if room is None or room.kind == "host":
            far = [config for config in far if (self._counted(config) or 0) - least <= FARTHEST]
        fitting = [config for config in far if room is None or (self.peak(config) or 0.0) <= room.limit]
        if fitting:
            with suppress(SearchError):  # one tells enough, with the scale of others
                found.append(self._trained(fitting[-1], threads, seconds))
        return _through(found)

    def check(self, *, begins: bool) -> None:
        """Raise `UsageError` where nothing of the space fits, and `SpaceError` where its baseline does not.

        A search that does not begin has its baseline behind it.
        """
        if (least := self.problem(self._drawn[0])) is not None:
            raise UsageError(f"no configuration of the space fits: the least {least}")
        baseline = self._spec.space.baseline()
        if begins and baseline is not None and (found := self.problem(baseline)) is not None:
            advice = advice_for(self._spec, baseline, [], "out_of_memory", None)
            raise SpaceError([self._spec.issue("baseline", "; ".join((found, *advice[:1])))])

    def told(self) -> str | None:
        """How much does not fit, in a sentence; None where all does."""
        found = self.expected()
        if found.fitting == 1 or self._room is None:
            return None
        return (
            f"{max(1 - found.fitting, 0.01):.0%} of the space does not fit and is left out: it takes up to "
            f"{gibibytes(found.largest)} of memory; {self._room.told}"
        )

    def expected(self) -> MemoryForecast:
        """What the space's trials will take."""
        baseline = self._spec.space.baseline()
        fitting = [config for config in self._drawn if self.problem(config) is None]
        return MemoryForecast(
            least=self.peak(self._drawn[0]) or 0.0,
            baseline=None if baseline is None else self.peak(baseline),
            largest=self.peak(self._drawn[-1]) or 0.0,
            limit=None if self._room is None else self._room.limit,
            fitting=len(fitting) / len(self._drawn),
            measured=self.line is not None,
        )

    def learn(self, trials: Sequence[FrozenTrial]) -> str | None:
        """Leave out what is no smaller than what ran out of memory; the news of it, if it is any.

        `trials`: those that have changed since they were last learnt from. Where one that is no smaller came
        to its end, memory was short for another reason.
        """
        over = [t for t in trials if t.constraints.get(OUT_OF_MEMORY, 0.0) > 0.0]
        complete = [t for t in trials if t.state == TrialState.COMPLETE]
        self._over.update({t.number: counted for t in over if (counted := self._of(t)) is not None})
        self._uncounted += complete
        if not self._over or not (over or complete):
            return None
        enough = max((self._of(t) or 0 for t in self._uncounted), default=0)
        self._enough, self._uncounted = max(self._enough, enough), []
        found = {self._over[number]: number for number in sorted(self._over, reverse=True)}
        before, self._too_much = self._too_much, min((n for n in found if n > self._enough), default=math.inf)
        if self._too_much >= before:
            return None
        return (
            f"trial {found[int(self._too_much)]} ran out of memory where it should have taken about "
            f"{gibibytes(self._line.at(self._too_much))}; what takes as much or more is left out from now on"
        )

    def to_json(self) -> dict[str, float] | None:
        """What was measured, for the study to keep."""
        return None if self.line is None else asdict(self.line)

    @property
    def _line(self) -> MemoryLine:
        return self.line or MemoryLine()

    def _counted(self, config: Mapping[str, Any]) -> int | None:
        cuda = self._room is not None and self._room.kind == "device"
        return footprint(self._spec.objective_words, self._spec.space.passed(config), cuda=cuda)

    def _of(self, trial: FrozenTrial) -> int | None:
        """What is counted of a trial; None where it has no configuration of the space."""
        return self._counted(config_of(self._spec, trial)) if has_config(self._spec, trial) else None

    def _trained(self, config: Mapping[str, Any], threads: int, seconds: float) -> tuple[int, float]:
        """What is counted of a configuration, and the bytes that a process of its own takes for it."""
        surroundings, params = environment(threads), self._spec.space.passed(config)
        kind = "host" if self._room is None else self._room.kind
        if kind == "host":
            surroundings["CUDA_VISIBLE_DEVICES"] = ""
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "hpsearch.trainer.tools.peak"],
                input=json.dumps({"objective": self._spec.objective, "params": params}),
                env=surroundings,
                capture_output=True,
                text=True,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            raise SearchError(f"three steps took longer than {seconds:.3g} s") from None
        if done.returncode != 0:
            raise SearchError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
        return self._counted(config) or 0, json.loads(done.stdout)[kind]


def expected_memory(spec: Spec, share: Share, seconds: float = 2 * SECONDS) -> MemoryForecast | None:
    """What a search's trials will take of memory here, measured; None where nobody knows it beforehand.

    Raises as `MemoryModel.check` where the search would not begin.
    """
    memory = MemoryModel.of(spec, room_for(spec.execution, share))
    if memory is None:
        return None
    with suppress(SearchError):  # of a text that is not there; then it is what others take
        memory.line = memory.measured(share.threads, seconds / 2)
    memory.check(begins=True)
    return memory.expected()


def _through(points: Sequence[tuple[int, float]]) -> MemoryLine:
    """The line through two points, or one point."""
    (counted, took), (other, more) = points[0], points[-1]
    scale = (more - took) / (other - counted) if other > counted else SCALE
    return MemoryLine(took - scale * counted, scale)
