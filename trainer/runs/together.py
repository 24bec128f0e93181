"""Several runs in one process, each from its start to its end, packed if possible.

    packed = PackedRuns()
    run = packed.new_run(config)
    packed.join(run, drive(run, on_report=...))
    while packed.busy:
        for run, outcome in packed.advance(): ...

No run waits for the slowest: a run that ends leaves, and another may join between any two ticks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from weakref import WeakValueDictionary

import torch

from ..config.models import TrainConfig
from ..model.build import on_device
from ..model.compiled import clock
from ..packs.factory import new_pack, pack_key
from ..packs.pack import Pack
from .base import FitResult, Steps
from .run import GptRun, SomeRunsFailedError, tick

RunOutcome = FitResult | BaseException


class PackedRuns:
    """The runs and their packs. `within` is a context for what a run does by itself, such as a report."""

    def __init__(
        self, within: Callable[[GptRun], AbstractContextManager[None]] = lambda run: nullcontext()
    ) -> None:
        self._within = within
        self._courses: dict[GptRun, Steps] = {}
        # A pack lives only as long as it has runs: on an accelerator it holds a copy of the base.
        self._packs: WeakValueDictionary[object, Pack] = WeakValueDictionary()
        self._over: list[tuple[GptRun, RunOutcome]] = []

    @property
    def busy(self) -> bool:
        """Whether a run is training, or `advance` has not yet returned its end."""
        return bool(self._courses or self._over)

    def new_run(self, config: TrainConfig) -> GptRun:
        """A run in one of these packs, or in a new one. Raises like `GptRun`."""
        config = on_device(config)
        key = pack_key(config)
        if key is None:
            return GptRun(config)
        pack = self._packs.get(key)
        if pack is None:
            pack = self._packs[key] = new_pack(config)
        return GptRun(config, pack)

    def join(self, run: GptRun, course: Steps) -> None:
        """Start to train a run, after its repeated report if it is resumed.

        If there is not enough memory for it, it ends with that error, and the other runs continue without it.
        """
        self._courses[run] = course
        self._follow(run)
        if run not in self._courses:
            return
        try:
            self._set_members(run.pack)
        except Exception as error:
            self._courses.pop(run).close()
            self._over.append((run, error))
            self._set_members(run.pack)

    def leave(self, run: GptRun) -> None:
        """Remove a run before its end."""
        if run in self._courses:
            self._courses.pop(run).close()
        self._over = [(other, outcome) for other, outcome in self._over if other is not run]
        if run.member in run.pack.members:
            self._set_members(run.pack)

    def advance(self) -> list[tuple[GptRun, RunOutcome]]:
        """Compute a tick of every pack. Returns the runs that have ended, with their results or errors."""
        for pack in {id(run.pack): run.pack for run in self._courses}.values():
            steps = {run: run.step for run in self._runs(pack)}
            began = clock()
            failed = _tick(list(steps))
            if any(run.next_report_step is not None for run in steps):
                failed |= _wait(list(steps))  # pending work counts as training time of all runs in the pack
            seconds = clock() - began
            for run, error in failed.items():
                self._courses.pop(run).close()
                self._over.append((run, error))
            for run, step in steps.items():
                run.train_seconds += seconds
                if run in self._courses and run.step > step:
                    self._follow(run)
            self._set_members(pack)
        over, self._over = self._over, []
        return over

    def _follow(self, run: GptRun) -> None:
        """Do what is due before the run's next step."""
        try:
            with self._within(run):
                next(self._courses[run])
        except StopIteration as end:
            outcome: RunOutcome = end.value
        except BaseException as error:
            outcome = error
        else:
            return
        del self._courses[run]
        self._over.append((run, outcome))

    def _runs(self, pack: Pack) -> list[GptRun]:
        runs = [run for run in self._courses if run.pack is pack]
        return sorted(runs, key=lambda run: pack.order(run.config))

    def _set_members(self, pack: Pack) -> None:
        pack.set_members([run.member for run in self._runs(pack)])


def _wait(runs: list[GptRun]) -> dict[GptRun, BaseException]:
    """Wait for the device. An error at this point counts for all runs of the pack."""
    try:
        runs[0].pack.wait()
    except Exception as error:
        return dict.fromkeys(runs, error)
    return {}


def _tick(runs: list[GptRun]) -> dict[GptRun, BaseException]:
    """Compute a tick of a pack. Returns the errors of the runs that failed.

    If the runs fail together, each is tried alone: the memory may suffice for one, and an error of one run
    should not end the others. This is only allowed while nothing has changed: another tick of a run that has
    already stepped could take it past a report.
    """
    try:
        tick(runs)
        return {}
    except SomeRunsFailedError as some:
        return dict(some.errors)
    except Exception as error:
        if len(runs) == 1:
            return {runs[0]: error}
    failed: dict[GptRun, BaseException] = {}
    for run in runs:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        failed |= _tick([run])
    return failed
