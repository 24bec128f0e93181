"""Searches that `search.py` compares: each is asked for the next trial, and gets the value of every epoch.

hpsearch is the real driver with a real study in SQLite; this program takes the place of a backend. The other
tools are their own objects, called as in their own loops: Optuna's `ask` and `tell`, Tune's scheduler and
searcher, Syne Tune's scheduler. Those of `rivals.py` run in processes of their own. All get the same space,
with its conditions where they have a place for them, and all or none try the task's default configuration
first. Tools with rungs get those of hpsearch: the first after a 25th of a full training run, with one in
three trials promoted. Other options keep their defaults.
"""

from __future__ import annotations

import contextlib
import datetime
import heapq
import importlib
import importlib.util
import itertools
import json
import logging
import math
import os
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import exp_decay
import optuna
import rivals
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import TrialState
from silence import Silence

from hpsearch.search.engine.driver import Driver
from hpsearch.search.sampling.distributions import labelled
from hpsearch.search.scheduling.pruners import make_pruner
from hpsearch.spaces import Spec, loads
from hpsearch.storage.database import open_storage
from hpsearch.storage.files import CHECKPOINT
from hpsearch.storage.studies import SPEC, open_live

ETA = 3
FINALISTS = 3  # trials that i-Epoch trains to the end
LOSS, EPOCH, LAST = "loss", "epoch", "epochs"  # the other tools' names: metric, resource, its maximum
TIME = "training_iteration"  # Tune's name of the resource
ENVIRONMENTS = "HPSEARCH_ENVIRONMENTS"  # the variable that names the folder of `rivals.py`'s environments
Config = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """Learning curves over a space of configurations; lower is better."""

    parameters: dict[str, dict[str, Any]]  # in the format of mfbench.py, with conditions as `when`
    epochs: int  # of a full training run
    reported: Callable[[Config], Any]  # the value after each epoch
    means: Callable[[Config], Any]  # the same without the noise, which judges but is never seen
    first: Config | None  # the configuration that every search tries first, if there is one
    known: Callable[[], Config]  # the configuration known to be good on similar tasks

    @property
    def default(self) -> Config:
        return {name: p["default"] for name, p in self.parameters.items()}

    @property
    def first_rung(self) -> int:
        return max(1, self.epochs // 25)

    def value(self, config: Config, epoch: int) -> float:
        return float(self.reported(config)[epoch - 1])

    def expected(self, config: Config, epoch: int) -> float:
        return float(self.means(config)[epoch - 1])


@dataclass
class Job:
    """A configuration in training."""

    key: Any  # the search's own name for it
    config: Config
    done: int = 0  # epochs


class Search(Protocol):
    """One search of one task."""

    def next(self) -> Job | None:
        """The next job for a free worker; None if it must wait for another job's report."""

    def goes_on(self, job: Job, value: float) -> bool:
        """Whether a worker continues its job after an epoch with this value."""

    def close(self, spent: int) -> None:
        """End the search; `spent` is the number of epochs."""


@dataclass(frozen=True)
class Contestant:
    """A search that the command line can name."""

    begin: Callable[[Task, int, int], Search]  # takes a seed and a budget in epochs
    needs: str | None = None  # a package; without it the contestant is left out
    environment: str | None = None  # one of `rivals.py`, likewise
    extra: bool = False  # whether it runs only if it is named
    told: bool = False  # whether it knows its budget and adapts to it


class Ours:
    """The driver and its study, called as by a backend."""

    def __init__(self, spec: Spec) -> None:
        self._last = spec.early_stopping.max
        self._lost = 0  # epochs in which a training diverged, which the study does not have
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        storage = open_storage(f"sqlite:///{folder / 'study.db'}", create=True)
        live = open_live(storage, spec.name, goal=spec.goal, attrs={SPEC: spec.to_json()})
        self._driver = Driver(spec, live, runs=folder / "runs", watcher=Silence(), pruner=make_pruner(spec))

    def try_first(self, config: Config) -> None:
        """Let the first trial have this configuration, as `hpsearch try` does; it may be stopped early."""
        spec = self._driver.spec
        self._driver.study.enqueue_trial(labelled(spec.space, spec.parameters, config))

    def propose_by(self, sampler: BaseSampler) -> None:
        """Let this sampler propose new trials."""
        self._driver.study.sampler = sampler

    def next(self) -> Job | None:
        given = self._driver.ask()
        if given is None:
            return None
        checkpoint = given.folder / CHECKPOINT  # without one a trial cannot pause
        checkpoint.mkdir(parents=True, exist_ok=True)
        (checkpoint / "weights").touch()
        return Job(given.number, given.params, given.reported)

    def goes_on(self, job: Job, value: float) -> bool:
        if self._driver.report(job.key, value, job.done, {}) is not None:
            self._lost += not math.isfinite(value)
            return False
        if job.done != self._last:
            return True
        self._driver.complete(job.key, value)
        return False

    def close(self, spent: int) -> None:
        trained = sum(trial.last_step or 0 for trial in self._driver.trials)
        assert trained == spent - self._lost == self._driver.consumed, "it has every epoch exactly once"
        self._driver.finish()
        self._driver.close()
        self._folder.cleanup()


def ours(
    task: Task,
    seed: int,
    budget: int,
    *,
    prior: Callable[[Task], Config] | None = None,
    baseline: bool = False,
    **search: Any,
) -> Ours:
    """hpsearch on a task. `baseline`: whether the task's first configuration is trained to its end."""
    at = {} if prior is None else prior(task)
    file = space_file(task, budget, prior=at, search={"seed": seed, **search})
    first = None if task.first is None else rivals.used(task.parameters, task.first)
    if baseline and first is not None:
        file["baseline"] = first
    found = Ours(loads(json.dumps(file)))
    if not baseline and first is not None:
        found.try_first(first)
    return found


def space_file(task: Task, budget: int, *, prior: Config, search: dict[str, Any]) -> dict[str, Any]:
    """The space file that a user would write for a task."""
    parameters: dict[str, Any] = {}
    for name, p in task.parameters.items():
        if p["type"] == "choice":
            parameters[name] = {"choices": p["values"]}
        else:
            parameters[name] = {"min": p["low"], "max": p["high"], "log": p["log"]}
        if "when" in p:
            parameters[name]["when"] = p["when"]
        if name in prior:
            parameters[name]["prior"] = {"at": prior[name]}
    stopping = {"method": "asha", "type": "promotion", "min": task.first_rung, "max": task.epochs, "eta": ETA}
    return {
        "version": 1,
        "name": "bench",
        "objective": "bench:train",
        "metric": LOSS,
        "parameters": parameters,
        "search": search,
        "early_stopping": {**stopping, "resource": "samples"},
        "budget": {"samples": budget},
        "confirm": {"top": 0},  # only the search itself is compared
    }


def suggested(trial: Any, parameters: dict[str, dict[str, Any]]) -> Config:
    """The configuration of a trial of Optuna's, drawn as a user's objective draws it: one after the other."""
    config: Config = {}
    for name, p in parameters.items():
        if not rivals.exists(p, config):
            continue
        match p["type"]:
            case "choice":
                config[name] = trial.suggest_categorical(name, p["values"])
            case "int":
                config[name] = trial.suggest_int(name, p["low"], p["high"], log=p["log"])
            case _:
                config[name] = trial.suggest_float(name, p["low"], p["high"], log=p["log"])
    return config


class Optuna:
    """An Optuna study in memory, through `ask` and `tell`."""

    def __init__(
        self,
        task: Task,
        seed: int,
        budget: int,
        *,
        sampler: Callable[[Task, int], BaseSampler] = lambda task, seed: TPESampler(seed=seed),
        pruner: Callable[[Task], BasePruner],
    ) -> None:
        self._task = task
        # Hyperband takes a trial's bracket from the study's name, too.
        self._study = optuna.create_study(
            study_name=f"search {seed}", sampler=sampler(task, seed), pruner=pruner(task)
        )
        if task.first is not None:
            self._study.enqueue_trial(task.first)

    def next(self) -> Job:
        trial = self._study.ask()
        return Job(trial, suggested(trial, self._task.parameters))

    def goes_on(self, job: Job, value: float) -> bool:
        job.key.report(value, job.done)
        if job.key.should_prune():
            self._study.tell(job.key, state=TrialState.PRUNED)
            return False
        if job.done == self._task.epochs:
            self._study.tell(job.key, value)
            return False
        return True

    def close(self, spent: int) -> None: ...


def recommended(task: Task, seed: int) -> BaseSampler:
    """What AutoSampler of OptunaHub takes for the task, as long as fewer than 250 trials are complete."""
    if any(p["type"] == "choice" for p in task.parameters.values()):
        return TPESampler(seed=seed, multivariate=True, constant_liar=True)
    return GPSampler(seed=seed)


class IEpoch:
    """Random search that trains each trial for few epochs, then the best of them to the end.

    As in arXiv 2307.15422. How many to try follows from the budget and `FINALISTS`.
    """

    def __init__(self, task: Task, seed: int, budget: int, *, few: Callable[[Task], int]) -> None:
        self._task = task
        self._few = few(task)
        self._finalists = min(FINALISTS, budget // task.epochs)
        self._to_try = (budget - self._finalists * (task.epochs - self._few)) // self._few
        self._random = optuna.create_study(sampler=RandomSampler(seed=seed))
        if task.first is not None:
            self._random.enqueue_trial(task.first)
        self._tried = self._promoted = 0
        self._running = 0
        self._waiting: list[tuple[float, int, Job]] = []  # by their value after few epochs

    def next(self) -> Job | None:
        if self._running and self._tried >= self._to_try and self._promoted in (0, self._finalists):
            return None  # the best are not known yet, or would have to share what is left
        self._running += 1
        if self._tried >= self._to_try and self._waiting:
            self._promoted += 1
            return heapq.heappop(self._waiting)[-1]
        self._tried += 1
        return Job(self._tried, suggested(self._random.ask(), self._task.parameters))

    def goes_on(self, job: Job, value: float) -> bool:
        if math.isfinite(value) and job.done not in (self._few, self._task.epochs):
            return True
        self._running -= 1
        if math.isfinite(value) and job.done == self._few:
            heapq.heappush(self._waiting, (value, job.key, job))
        return False

    def close(self, spent: int) -> None: ...


class Ray:
    """Tune's ASHA of the stopping type and a Tune searcher, called as by Tune's controller."""

    def __init__(self, task: Task, seed: int, budget: int, *, sampler: Callable[..., BaseSampler]) -> None:
        from ray.tune.schedulers import ASHAScheduler
        from ray.tune.search.optuna import OptunaSearch

        self._searcher = OptunaSearch(
            partial(suggested, parameters=task.parameters),
            metric=LOSS,
            mode="min",
            sampler=sampler(seed=seed),
            points_to_evaluate=None if task.first is None else [task.first],
        )
        # There is no controller here, and the scheduler only needs a trial's name.
        self._scheduler: Any = ASHAScheduler(
            metric=LOSS,
            mode="min",
            max_t=task.epochs,
            grace_period=task.first_rung,
            reduction_factor=ETA,
        )
        self._numbers = itertools.count()

    def next(self) -> Job:
        trial = SimpleNamespace(trial_id=str(next(self._numbers)))
        config = self._searcher.suggest(trial.trial_id)
        assert config is not None
        self._scheduler.on_trial_add(None, trial)
        return Job(trial, config)

    def goes_on(self, job: Job, value: float) -> bool:
        result = {LOSS: value, TIME: job.done}
        if self._scheduler.on_trial_result(None, job.key, result) == "STOP":
            self._scheduler.on_trial_complete(None, job.key, result)
            self._searcher.on_trial_complete(job.key.trial_id, result)
            return False
        self._searcher.on_trial_result(job.key.trial_id, result)
        return True

    def close(self, spent: int) -> None: ...


class SyneTune:
    """A Syne Tune scheduler that pauses and promotes, called as by its tuner."""

    def __init__(self, task: Task, seed: int, budget: int, *, scheduler: str) -> None:
        logging.getLogger("syne_tune").setLevel(logging.ERROR)
        baselines = importlib.import_module("syne_tune.optimizer.legacy_baselines")
        # Syne Tune's DyHPO uses evenly spaced rungs.
        rungs = {"rung_increment": task.first_rung} if scheduler == "DyHPO" else {"reduction_factor": ETA}
        kind = {} if scheduler == "DyHPO" else {"type": "promotion"}
        self._scheduler = getattr(baselines, scheduler)(
            {**syne_space(task), LAST: task.epochs},
            metric=LOSS,
            mode="min",
            resource_attr=EPOCH,
            max_resource_attr=LAST,
            grace_period=task.first_rung,
            random_seed=seed,
            points_to_evaluate=[] if task.first is None else [task.first],
            search_options={"debug_log": False},
            **rungs,
            **kind,
        )
        self._fits = exp_decay.quick if scheduler == "DyHPO" else contextlib.nullcontext
        self._task = task
        self._jobs: dict[int, Job] = {}

    def next(self) -> Job:
        trial = importlib.import_module("syne_tune.backend.trial_status").Trial
        number = len(self._jobs)
        with self._fits():
            suggested = self._scheduler.suggest(number)
        if not suggested.spawn_new_trial_id:
            job = self._jobs[suggested.checkpoint_trial_id]
            if suggested.config is not None:
                job.key.config = suggested.config
            return job
        begun = trial(number, dict(suggested.config), datetime.datetime.now())
        self._scheduler.on_trial_add(begun)
        self._jobs[number] = Job(begun, {name: begun.config[name] for name in self._task.parameters})
        return self._jobs[number]

    def goes_on(self, job: Job, value: float) -> bool:
        decision = self._scheduler.on_trial_result(job.key, {LOSS: value, EPOCH: job.done})
        if decision != "CONTINUE":
            self._scheduler.on_trial_remove(job.key)
            return False
        return True

    def close(self, spent: int) -> None: ...


def syne_space(task: Task) -> dict[str, Any]:
    """A task's space in Syne Tune's format."""
    words = importlib.import_module("syne_tune.config_space")
    found = {}
    for name, p in task.parameters.items():
        if p["type"] == "choice":
            found[name] = words.choice(p["values"])
            continue
        kind = {"int": "randint", "float": "uniform"}[p["type"]]
        found[name] = getattr(words, "log" + kind if p["log"] else kind)(p["low"], p["high"])
    return found


class Rival:
    """A search in a process of its own, which speaks the lines that `rivals.py` describes."""

    def __init__(self, task: Task, seed: int, command: Sequence[str | Path]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._errors = Path(self._folder.name) / "errors"
        self._command = command
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONHASHSEED": "0"},  # some tools walk over sets
                text=True,
                encoding="utf-8",
            )
        self._jobs: dict[int | str, Job] = {}
        prior = task.default if task.first is None else task.first
        told = rivals.Task(task.parameters, task.epochs, task.first_rung, ETA, task.first, prior, seed)
        self._write(asdict(told))

    def next(self) -> Job:
        answer = self._ask({})
        return self._jobs.setdefault(answer["trial"], Job(answer["trial"], answer["config"]))

    def goes_on(self, job: Job, value: float) -> bool:
        told = value if math.isfinite(value) else None
        answer = self._ask({"trial": job.key, "epoch": job.done, "value": told})
        return bool(answer["goes_on"])

    def close(self, spent: int) -> None:
        self._process.communicate()
        if self._process.returncode:
            raise self._died()
        self._folder.cleanup()

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        self._write(question)
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            answer: dict[str, Any] = json.loads(line)
            return answer
        raise self._died()

    def _write(self, told: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            print(json.dumps(told), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise self._died() from None

    def _died(self) -> RuntimeError:
        code = self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        said = self._errors.read_text(encoding="utf-8", errors="replace").strip()
        self._folder.cleanup()
        command = " ".join(map(str, self._command))
        return RuntimeError(f"the search ended with code {code}: {command}\n{said}")


def environment(name: str) -> Path | None:
    """The folder of an environment, if `search.py` was given one that has it."""
    folder = os.environ.get(ENVIRONMENTS)
    found = Path(folder, name) if folder is not None else None
    return found if found is not None and rivals.python_of(found).exists() else None


def rival(tool: str) -> Contestant:
    """A tool of `rivals.py`."""
    kind = rivals.TOOLS[tool]

    def begin(task: Task, seed: int, budget: int) -> Rival:
        folder = environment(kind.environment)
        assert folder is not None, "it is present"
        # With -P, the programs beside this one do not hide modules of their names.
        command = [rivals.python_of(folder), "-P", Path(rivals.__file__), "search", tool]
        return Rival(task, seed, command)

    return Contestant(begin, environment=kind.environment, extra=tool == "neps-priorband")


SYNE_TUNE = "syne_tune"
CONTESTANTS = {
    "hpsearch": Contestant(partial(ours, sampler="rung_gp"), told=True),
    "hpsearch-baseline": Contestant(partial(ours, sampler="rung_gp", baseline=True), extra=True, told=True),
    "hpsearch-tpe": Contestant(partial(ours, sampler="tpe"), extra=True, told=True),
    "hpsearch-prior": Contestant(
        partial(ours, sampler="rung_gp", prior=lambda task: task.known()), extra=True, told=True
    ),
    "hpsearch-default": Contestant(
        partial(ours, sampler="rung_gp", prior=lambda task: task.default), extra=True, told=True
    ),
    "hpsearch-random": Contestant(partial(ours, sampler="random"), extra=True, told=True),
    "random": Contestant(
        partial(
            Optuna,
            sampler=lambda task, seed: RandomSampler(seed=seed),
            pruner=lambda task: NopPruner(),
        )
    ),
    "one-epoch": Contestant(partial(IEpoch, few=lambda task: 1), told=True),
    "few-epochs": Contestant(partial(IEpoch, few=lambda task: max(1, task.epochs // ETA**2)), told=True),
    "optuna-tpe": Contestant(partial(Optuna, pruner=lambda task: NopPruner())),
    "optuna-hyperband": Contestant(
        partial(Optuna, pruner=lambda task: HyperbandPruner(max_resource=task.epochs))
    ),
    "optuna-median": Contestant(partial(Optuna, pruner=lambda task: MedianPruner())),
    "optuna-auto": Contestant(
        partial(Optuna, sampler=recommended, pruner=lambda task: NopPruner()), needs="torch"
    ),
    "optuna-auto-hyperband": Contestant(
        partial(Optuna, sampler=recommended, pruner=lambda task: HyperbandPruner(max_resource=task.epochs)),
        needs="torch",
    ),
    "ray-asha": Contestant(partial(Ray, sampler=RandomSampler)),
    "ray-asha-tpe": Contestant(partial(Ray, sampler=TPESampler)),
    "syne-asha": Contestant(partial(SyneTune, scheduler="ASHA"), SYNE_TUNE),
    "syne-mobster": Contestant(partial(SyneTune, scheduler="MOBSTER"), SYNE_TUNE),
    "syne-dyhpo": Contestant(partial(SyneTune, scheduler="DyHPO"), SYNE_TUNE, extra=True),
    **{tool: rival(tool) for tool in rivals.TOOLS},
}


def begun_with_known(peer: Contestant) -> Contestant:
    """A tool that tries the prior of hpsearch first; to those that take one, it is the prior."""

    def begin(task: Task, seed: int, budget: int) -> Search:
        return peer.begin(replace(task, first=task.known()), seed, budget)

    return replace(peer, begin=begin, extra=True)


for name in (
    *("one-epoch", "few-epochs", "optuna-hyperband", "optuna-auto", "ray-asha", "syne-mobster"),
    "neps-priorband",
):
    CONTESTANTS[f"{name}-prior"] = begun_with_known(CONTESTANTS[name])


def missing(name: str) -> str | None:
    """The package or environment that a contestant needs, if it is not installed."""
    contestant = CONTESTANTS[name]
    if contestant.environment is not None and environment(contestant.environment) is None:
        return f"the environment {contestant.environment}"
    needs = contestant.needs
    return needs if needs is not None and importlib.util.find_spec(needs) is None else None


def quiet() -> None:
    """Silence Optuna's messages and experimental warnings."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
