"""The Ray backend: Ray Tune starts, places and stops trials; the driver and its study decide which.

Three hooks connect the two. Tune's searcher asks the driver for a slot's first trial. Its scheduler is the
first to get a report, passes it to the driver and obeys the answer, in which Tune's own ASHA may take part
(`stopping`): a callback would get the report too late to stop there. A callback handles trials that end
without a message.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.air._internal import usage
from ray.tune.experiment import Trial
from ray.tune.search import Searcher

from ....spaces import Spec
from ...engine.driver import Driver
from ...errors import SearchError
from ..base import as_message, setup_of
from ..packing import check_pack, pack_size
from ..resources import WorkerShare, memory_for, room_for, share, this_machine, threads_on
from ..worker.channel import Message
from ..worker.process import TICK_SECONDS, TrialLimits
from .actor import ASSIGNMENT_KEY, ActorSettings
from .actors import PlaceholderTrainable, actors_with
from .cluster import answering_address, check_importable, connected, dead_processes, nodes, replaced, scratch
from .failures import failure_of
from .files import DriverNode
from .hooks import Hooks, NothingToWaitFor, RayDied
from .placement import pending_places_kept
from .scheduler import StudyScheduler
from .stopping import tune_pruner

PLACE_WAIT_SECONDS = 30.0  # for a trial to find its place, before the user is told that it waits


class RayBackend:
    """Runs trials through `ray.tune.Tuner`: on a Ray that it starts, or on the cluster at `address`."""

    leaving = 2.5  # Ray has to shut down too, and reports arrive later

    def __init__(self, spec: Spec, objective: Message, address: str | None) -> None:
        self.pruner = tune_pruner(spec)
        execution = spec.execution
        self._address = None if address is None else answering_address(address)
        if address is not None and execution.cpus_per_trial is None:  # threads are known before joining
            one_each = {"cpus_per_trial": float(execution.processes_per_trial)}
            execution = execution.model_copy(update=one_each)
        self._execution = execution
        check_pack(spec)
        self._spec = spec
        self._setup = setup_of(spec, objective)
        self._limits = TrialLimits.of(execution)
        self._machine = this_machine()
        self._share: WorkerShare | None = None  # a cluster's resources are known when it is joined
        if ray.is_initialized():
            self._share = share(execution, nodes(), "the cluster")
        elif address is None:
            self._share = share(execution, [self._machine], "this machine")
        self.slots = self._share.workers if self._share else 1
        each = (execution.cpus_per_trial or 1.0) / execution.processes_per_trial
        self.threads = self._share.threads if self._share else threads_on(each)
        self.gpus = self._share.gpus if self._share else execution.gpus_per_trial

        here = self._share is not None and not ray.is_initialized()  # a cluster's nodes may have more or less
        self.room = room_for(execution, self._share) if here and self._share else None

    def run(self, driver: Driver) -> None:
        # Tune counts its callbacks for a usage report, which is off, and loads wandb and mlflow for that.
        uncounted = replaced(usage, "tag_callbacks", lambda callbacks: False)
        kept = pending_places_kept()
        with connected(self._address, self._machine) as own, scratch() as folder, kept, uncounted:
            mine = self._share or share(self._execution, nodes(), "the cluster")
            if not own:
                check_importable()
            pack = self._pack(driver, mine)
            mine = replace(mine, memory=memory_for(self._execution, pack))  # `auto` is a number by now
            setup = {**self._setup, "pack": pack}
            here = DriverNode(ray.get_runtime_context().get_node_id(), os.getpid(), os.getcwd())
            settings = ActorSettings(setup, self._limits, self.threads, mine.cpus, mine.gpus, here)
            hooks = Hooks(driver, mine.workers, pack, alone=own)
            try:
                with actors_with(settings):
                    _tuner(mine, hooks, folder).fit()
            except NothingToWaitFor:
                pass  # running trials are requeued without another report
            except RayDied as error:
                raise SearchError(f"{error}; run the same command again to continue the search") from error
            except Exception as error:
                raise hooks.error or SearchError(f"Ray Tune ended the search: {error}") from error
            finally:
                hooks.requeue_running()

    def _pack(self, driver: Driver, mine: WorkerShare) -> int:
        """The trials that each worker trains at once; other nodes are not judged by the driver's machine."""
        if self._execution.pack == "auto" and len(nodes()) > 1:
            driver.say(
                "each worker trains one trial at a time: `pack: auto` cannot measure a cluster's nodes"
            )
            return 1
        pack, notice = pack_size(self._spec, mine, nodes()[0].memory)
        if notice is not None:
            driver.say(notice)
        return pack


class StudySearcher(Searcher):
    """Tune's searcher: asks the driver for the first trial of each slot."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__()
        self._hooks = hooks

    def suggest(self, trial_id: str) -> Any:
        """A slot's first trial, as a config; None while there is none, FINISHED if there will be none."""
        hooks = self._hooks
        if not hooks.has_room or len(hooks.numbers) == hooks.workers:
            return None
        with hooks.errors_kept():
            if hooks.driver.paused:  # without trials Tune does nothing but ask for one, every second
                hooks.driver.tick()
            assignment = hooks.driver.ask()
        if assignment is None:
            hooks.over = not (hooks.driver.running or hooks.driver.paused)
            return Searcher.FINISHED if hooks.over else None
        hooks.numbers[trial_id] = {assignment.number}
        return {ASSIGNMENT_KEY: json.dumps(as_message(assignment))}

    def on_trial_complete(self, *args: Any, **options: Any) -> None:
        """The driver learns of it elsewhere."""

    def save(self, checkpoint_path: str) -> None:
        """Create the file that Tune looks for; the study holds everything."""
        Path(checkpoint_path).touch()

    def restore(self, checkpoint_path: str) -> None:
        raise NotImplementedError("a search resumes from its study")


class StudyCallback(tune.Callback):
    """Tune's callback: lets the driver tick, and handles trials that ended without a message."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._ticked = 0.0
        self._waiting_since: float | None = None  # since when a trial has no place to run, while none runs
        self._said = False

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        if time.monotonic() - self._ticked < TICK_SECONDS:
            return
        self._ticked = time.monotonic()
        if dead := dead_processes():
            raise RayDied(f"Ray's {dead[0]} ended in the middle of the search")
        with self._hooks.errors_kept():
            self._hooks.driver.tick()
            self._drop()
            self._say_if_waiting(trials)
            for trial in trials:  # Tune ends some trials without calling a hook
                if trial.trial_id in self._hooks.numbers and ended(trial):
                    self._over(trial)
        without_trial = self._hooks.numbers and not any(self._hooks.numbers.values())
        if self._hooks.driver.grace_is_over or (self._hooks.over and without_trial):
            raise NothingToWaitFor

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        actor: Any = trial.temporary_state.ray_actor
        self._hooks.actors[trial.trial_id] = actor
        if not self._hooks.numbers[trial.trial_id]:
            actor.forget.remote()
        self._hooks.driver.set_busy_slots(len(self._hooks.actors) * self._hooks.pack)

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        if self._hooks.driver.paused:
            self._hooks.actors[trial.trial_id].stop.remote()
        with self._hooks.errors_kept():
            self._over(trial)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        with self._hooks.errors_kept():
            self._over(trial)

    def _drop(self) -> None:
        """Remove trials that the driver has ended from Tune's trials, which stop when they have none left."""
        hooks = self._hooks
        dropped = set(hooks.driver.pop_cancelled())
        for trial_id, numbers in hooks.numbers.items():
            here = numbers & dropped
            numbers -= here
            if here and (actor := hooks.actors.get(trial_id)) is not None:
                actor.end.remote(here)

    def _over(self, trial: Trial) -> None:
        """End a trial of Tune's. A trial of the study that still runs in it has lost its worker."""
        hooks = self._hooks
        hooks.actors.pop(trial.trial_id, None)
        for number in sorted(hooks.numbers.pop(trial.trial_id, ())):
            if number in hooks.driver.running:
                hooks.driver.fail(number, failure_of(trial))

    def _say_if_waiting(self, trials: list[Trial]) -> None:
        """Tell the user when trials wait for resources that others on the cluster use."""
        if self._hooks.alone:
            return
        statuses = {trial.status for trial in trials if not ended(trial)}
        if statuses != {Trial.PENDING}:
            self._waiting_since = None
            return
        self._waiting_since = self._waiting_since or time.monotonic()
        if not self._said and time.monotonic() - self._waiting_since > PLACE_WAIT_SECONDS:
            self._said = True
            self._hooks.driver.say("waiting for resources on the cluster, which others use")


def ended(trial: Trial) -> bool:
    """Whether Tune is done with one of its trials."""
    return trial.status in (Trial.TERMINATED, Trial.ERROR)


def _tuner(mine: WorkerShare, hooks: Hooks, folder: Path) -> tune.Tuner:
    resources: dict[str, float] = {"CPU": mine.cpus}
    if mine.gpus:
        resources["GPU"] = mine.gpus
    if mine.memory is not None:
        resources["memory"] = mine.memory
    return tune.Tuner(
        tune.with_resources(PlaceholderTrainable, tune.PlacementGroupFactory([resources])),
        tune_config=tune.TuneConfig(
            search_alg=StudySearcher(hooks),
            scheduler=StudyScheduler(hooks),
            num_samples=-1,  # the driver decides when there are enough
            reuse_actors=True,
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name="search",
            storage_path=str(folder),
            verbose=0,
            callbacks=[StudyCallback(hooks)],
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),  # trials write their own
        ),
    )
