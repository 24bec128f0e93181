"""Several runs in one process, each from its start to its end, packed where they can be.

    together = Together()
    run = together.new_run(config)
    together.join(run, course(run, on_report=...))
    while together.busy:
        for run, outcome in together.advance(): ...

Nobody waits for the slowest: a run that ends leaves, and another may join between any two ticks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from typing import cast
from weakref import WeakValueDictionary

import torch

from ..config.models import TrainConfig
from ..model.build import on_device
from ..model.compiled import clock
from ..packs.factory import new_pack, pack_key
from ..packs.pack import Pack, SomeFailedError
from .base import FitResult
from .run import GptRun

Course = Generator[None, None, FitResult]
Outcome = FitResult | BaseException


class PackedRuns:
    """The runs and their packs. `within` surrounds what a run does by itself, as in a report."""

    def __init__(
        self, within: Callable[[GptRun], AbstractContextManager[None]] = lambda run: nullcontext()
    ) -> None:
        self._within = within
        self._courses: dict[GptRun, Course] = {}
        # Each as long as there is a run in it: on an accelerator it has the base for itself.
        self._packs: WeakValueDictionary[object, Pack] = WeakValueDictionary()
        self._over: list[tuple[GptRun, Outcome]] = []

    @property
    def busy(self) -> bool:
        """Whether there is a run that has not ended, or whose end `advance` has not told."""
        return bool(self._courses or self._over)

    def new_run(self, config: TrainConfig) -> GptRun:
        """A run that trains in a pack of those here. Raises as `GptRun` does."""
        config = on_device(config)
        key = pack_key(config)
        if key is None:
            return GptRun(config)
        pack = self._packs.get(key)
        if pack is None:
            pack = self._packs[key] = new_pack(config)
        return GptRun(config, pack)

    def join(self, run: GptRun, course: Course) -> None:
        """Let a run take part, from its first report on where it is resumed.

        Where there is no room for it, it ends with that, and those that are there go on without it.
        """
        self._courses[run] = course
        self._follow(run)
        if run not in self._courses:
            return
        others = [other for other in _runs(run.pack) if other is not run]
        try:
            run.pack.set_runs([*others, run])
        except Exception as error:
            self._courses.pop(run).close()
            self._over.append((run, error))
            run.pack.set_runs(others)

    def leave(self, run: GptRun) -> None:
        """Take a run out before its end is told."""
        if run in self._courses:
            self._courses.pop(run).close()
        self._over = [(other, outcome) for other, outcome in self._over if other is not run]
        self._set_apart([run])

    def advance(self) -> list[tuple[GptRun, Outcome]]:
        """A tick of every pack; the runs that ended with it, or with what they did by themselves."""
        for pack in {id(run.pack): run.pack for run in self._courses}.values():
            steps = {run: run.step for run in _runs(pack)}
            began = clock()
            failed = dict(_tick(pack))
            if any(run.next_report_step is not None for run in steps):
                failed |= _waited_for(pack)  # what the device has still to do takes the time of all its runs
            seconds = clock() - began
            for run, error in failed.items():
                self._courses.pop(run).close()
                self._over.append((run, error))
            for run, step in steps.items():
                run.train_seconds += seconds
                if run in self._courses and run.step > step:
                    self._follow(run)
            self._set_apart([run for run in steps if run not in self._courses])
        over, self._over = self._over, []
        return over

    def _follow(self, run: GptRun) -> None:
        """Let the run do what is due before its next step."""
        try:
            with self._within(run):
                next(self._courses[run])
        except StopIteration as end:
            outcome: Outcome = end.value
        except BaseException as error:
            outcome = error
        else:
            return
        del self._courses[run]
        self._over.append((run, outcome))

    def _set_apart(self, gone: list[GptRun]) -> None:
        for run in gone:
            if run in run.pack.runs:
                run.pack.set_runs([other for other in run.pack.runs if other is not run])


def _runs(pack: Pack) -> list[GptRun]:
    return cast(list[GptRun], pack.runs)  # a pack sees less of them


def _waited_for(pack: Pack) -> dict[GptRun, BaseException]:
    """Wait for the device; what it fails at now was asked for all runs together."""
    try:
        pack.wait()
    except Exception as error:
        return dict.fromkeys(_runs(pack), error)
    return {}


def _tick(pack: Pack) -> list[tuple[GptRun, BaseException]]:
    """A tick of a pack; the runs that it failed for.

    What fails together is tried one by one: memory that is short for all may do for each, and what is wrong
    with one run is no other's trouble. That may only be done as long as nothing has changed: a second tick
    of a run that has stepped would take it past a report.
    """
    runs = _runs(pack)
    try:
        pack.tick()
    except SomeFailedError as error:
        return [(run, error.errors[run]) for run in runs if run in error.errors]
    except Exception as error:
        if len(runs) == 1:
            return [(runs[0], error)]
    else:
        return []
    failed = []
    for run in runs:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        pack.set_runs([run])
        failed += _tick(pack)
    pack.set_runs(runs)
    return failed
