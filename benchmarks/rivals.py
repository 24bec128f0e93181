"""Searches for `search.py` of tools that need an environment of their own, as their pins conflict with ours.

    python benchmarks/rivals.py install --into FOLDER [ENVIRONMENT ...]
    python benchmarks/search.py --environments FOLDER ...

The first makes a virtual environment per tool. In it this program runs a search, a process for each:

    FOLDER/ENVIRONMENT/bin/python -P benchmarks/rivals.py search TOOL

Such a process reads lines of JSON and answers each but the first with a line. The first is the task, with the
fields of `Task`. Then `{}` asks for the next trial and gets `{"trial": 3, "config": {...}}`; a trial that was
there before resumes. `{"trial": 3, "epoch": 2, "value": 0.5}` reports the value of an epoch, null where
training diverged, and gets `{"goes_on": true}`, or false where the worker is to take another trial.

Each tool is called as by its own loop. Its options keep their defaults but for the rungs, which are those of
`Task` as far as the tool lets one say. A training that diverges ends there, and the tool is told in its own
words that it failed.

- NePS: `hyperband` and `priorband`, by `AskAndTell`.
- SMAC: `MultiFidelityFacade`, by `ask` and `tell`. As in its example for epochs, it has few random
  configurations to begin with, all of them in its first bracket. A failed trial costs the worst value so far.
- Syne Tune: `ASHACQR`, ASHA of the stopping type.
- W&B: its Bayesian search and its Hyperband, which stops trainings, in the package that its service runs. A
  stopped run counts as finished, with the best value that it had: so it does where its program ends cleanly.
- HpBandSter: BOHB. Its generator of configurations, its brackets and what comes next are its own; the loop
  is that of its `Master`, which can only talk to workers over a network.

SMAC and BOHB are told the conditions under which parameters exist. The others have no place for them, and
always propose all parameters.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import random
import subprocess
import sys
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

LOSS, EPOCH = "loss", "epoch"  # the tools' names: metric, resource
ENVIRONMENTS = {  # what pip installs in each
    "hpbandster": [
        *("hpbandster==0.7.4", "ConfigSpace==0.7.1", "numpy==1.26.4", "pandas==2.3.3"),
        *("scipy==1.17.1", "statsmodels==0.15.0"),
    ],
    "neps": ["neural-pipeline-search==0.17.0", "numpy==2.4.6", "torch==2.13.0"],
    "smac": ["smac==2.4.1", "ConfigSpace==1.2.2", "numpy==2.4.6", "scikit-learn==1.9.1", "scipy==1.17.1"],
    "sweeps": ["sweeps==0.3.0", "numpy==1.26.4", "scikit-learn==1.9.1", "scipy==1.17.1"],
    "syne-tune": [
        *("syne-tune==0.16.0", "huggingface_hub==2.4.0", "numpy==2.4.6", "pandas==3.1.1"),
        *("scikit-learn==1.9.1", "scipy==1.17.1"),
    ],
}
Config = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """What a search is told about a task."""

    parameters: dict[str, dict[str, Any]]  # in the format of mfbench.py, with conditions as `when`
    epochs: int  # of a full training run
    first_rung: int  # in epochs
    eta: int  # one in so many trials is promoted
    first: Config | None  # the configuration to try first, if there is one
    prior: Config  # a configuration that is known to be good, for the tools that take one
    seed: int

    @property
    def smallest(self) -> float:
        """Hyperband's smallest budget in epochs: near `first_rung`, such that its last one is a full run.

        It is a trifle less: the tools take a logarithm and round it down.
        """
        rungs = round(math.log(self.epochs / self.first_rung, self.eta))
        return self.epochs / float(self.eta**rungs) * (1 - 1e-9)


class Tool(Protocol):
    """One search of one task."""

    def next(self) -> tuple[int | str, Config]:
        """The next trial and its configuration; a trial that was there before resumes."""

    def goes_on(self, trial: Any, epoch: int, value: float) -> bool:
        """Whether a trial continues after an epoch with this value; an infinite one ends it."""


class Halving(ABC):
    """A search that says how long each trial trains, and is told only the value at the end of that."""

    def __init__(self) -> None:
        self._until: dict[int | str, int] = {}  # epochs, of each trial

    @abstractmethod
    def ask(self) -> tuple[int | str, Config, float]:
        """The next trial, its configuration, and the epochs after which it is judged."""

    @abstractmethod
    def tell(self, trial: Any, value: float) -> None: ...

    def next(self) -> tuple[int | str, Config]:
        trial, config, epochs = self.ask()
        assert round(epochs) > self._until.get(trial, 0), f"trial {trial} is already there"
        self._until[trial] = round(epochs)
        return trial, config

    def goes_on(self, trial: Any, epoch: int, value: float) -> bool:
        if math.isfinite(value) and epoch < self._until[trial]:
            return True
        self.tell(trial, value)
        return False


class Neps(Halving):
    """NePS' brackets."""

    EPOCHS = "fidelity"  # NePS' parameter for the epochs

    def __init__(self, task: Task, *, prior: bool) -> None:
        import neps
        import numpy as np
        import torch

        super().__init__()
        seed_all(task.seed, np.random.seed, torch.manual_seed)
        around = task.prior if prior else task.first or {}
        space: dict[str, Any] = {}
        for name, p in task.parameters.items():
            if p["type"] == "choice":
                space[name] = neps.HPOCategorical(p["values"], prior=around.get(name))
                continue
            kind = {"int": neps.HPOInteger, "float": neps.HPOFloat}[p["type"]]
            space[name] = kind(p["low"], p["high"], log=p["log"], prior=around.get(name))
        space[self.EPOCHS] = neps.HPOFloat(task.smallest, float(task.epochs), is_fidelity=True)
        algorithm = neps.algorithms.priorband if prior else neps.algorithms.hyperband
        first = task.first is not None
        self._search = neps.AskAndTell(
            algorithm(neps.SearchSpace(space), eta=task.eta, sample_prior_first=first)
        )
        self._rungs: dict[str, Any] = {}  # of each trial the last one: a trial of NePS' own

    def ask(self) -> tuple[str, Config, float]:
        rung = self._search.ask()
        trial = rung.id.partition("_rung_")[0]
        self._rungs[trial] = rung
        config = dict(rung.config)
        return trial, config, config.pop(self.EPOCHS)

    def tell(self, trial: str, value: float) -> None:
        self._search.tell(self._rungs[trial], value)


class Smac(Halving):
    """SMAC's facade for several fidelities."""

    FEW = 5  # random configurations to begin with
    CRASHED = 1000.0  # the cost of a failed trial before another one had a value

    def __init__(self, task: Task) -> None:
        import numpy as np
        from ConfigSpace import Configuration
        from smac import MultiFidelityFacade, Scenario

        super().__init__()
        seed_all(task.seed, np.random.seed)
        self._folder = tempfile.TemporaryDirectory()
        scenario = Scenario(
            config_space(task),
            deterministic=True,  # a configuration trains once
            min_budget=task.smallest,
            max_budget=task.epochs,
            n_trials=1_000_000,  # it is asked as long as the budget lasts
            output_directory=Path(self._folder.name),
            seed=task.seed,
        )
        space, first = scenario.configspace, []
        if task.first is not None:
            config = used(task.parameters, task.first)
            for name in config:
                if task.parameters[name]["type"] != "choice":  # SMAC's space has its ends rounded
                    config[name] = min(max(config[name], space[name].lower), space[name].upper)
            first = [Configuration(space, values=config)]
        self._search = MultiFidelityFacade(
            scenario,
            None,
            initial_design=MultiFidelityFacade.get_initial_design(
                scenario, n_configs=0 if first else self.FEW, additional_configs=first
            ),
            intensifier=MultiFidelityFacade.get_intensifier(scenario, eta=task.eta),
            logging_level=False,
        )
        self._asked: dict[int, Any] = {}
        self._worst: float | None = None  # of the values so far

    def ask(self) -> tuple[int, Config, float]:
        asked = self._search.ask()
        trial = self._search.runhistory.get_config_id(asked.config)
        self._asked[trial] = asked
        return trial, dict(asked.config), asked.budget

    def tell(self, trial: int, value: float) -> None:
        from smac.runhistory import StatusType, TrialValue

        if math.isfinite(value):
            self._worst = value if self._worst is None else max(value, self._worst)
            told = TrialValue(value)
        else:  # its default cost, infinity, breaks its model
            cost = self.CRASHED if self._worst is None else self._worst
            told = TrialValue(cost, status=StatusType.CRASHED)
        self._search.tell(self._asked[trial], told, save=False)


class Bohb(Halving):
    """HpBandSter's BOHB."""

    def __init__(self, task: Task) -> None:
        import numpy as np
        from hpbandster.optimizers import BOHB
        from hpbandster.optimizers.config_generators.bohb import BOHB as Generator

        super().__init__()
        seed_all(task.seed, np.random.seed)
        self._generator = Generator(config_space(task))
        rungs = round(math.log(task.epochs / task.smallest, task.eta)) + 1
        master = SimpleNamespace(  # what the method below has of its object
            eta=task.eta,
            max_SH_iter=rungs,
            budgets=task.epochs * np.power(float(task.eta), -np.arange(rungs)[::-1]),
            config_generator=self._generator,
        )
        self._begin = partial(BOHB.get_next_iteration, master)
        self._first = None if task.first is None else used(task.parameters, task.first)
        self._brackets: list[Any] = []
        self._jobs: dict[str, Any] = {}  # of each trial the last one

    def ask(self) -> tuple[str, Config, float]:
        from hpbandster.core.dispatcher import Job

        running = (bracket.get_next_run() for bracket in self._brackets if not bracket.is_finished)
        run = next((each for each in running if each is not None), None)
        if run is None:
            self._brackets.append(self._begin(len(self._brackets), {}))
            if len(self._brackets) == 1 and self._first is not None:
                self._brackets[0].add_configuration(self._first)
            run = self._brackets[-1].get_next_run()
        key, config, budget = run
        trial = "/".join(map(str, key))
        self._jobs[trial] = Job(key, config=config, budget=budget)
        return trial, config, budget

    def tell(self, trial: str, value: float) -> None:
        job = self._jobs[trial]
        job.result = {"loss": value}
        self._brackets[job.id[0]].register_result(job)
        self._generator.new_result(job)


class SyneTune:
    """Syne Tune's ASHA with conformalized quantile regression."""

    def __init__(self, task: Task) -> None:
        import numpy as np
        from syne_tune import config_space
        from syne_tune.optimizer.baselines import ASHACQR

        seed_all(task.seed, np.random.seed)
        space: dict[str, Any] = {}
        for name, p in task.parameters.items():
            if p["type"] == "choice":
                space[name] = config_space.choice(p["values"])
                continue
            kind = {"int": "randint", "float": "uniform"}[p["type"]]
            space[name] = getattr(config_space, "log" + kind if p["log"] else kind)(p["low"], p["high"])
        self._search = ASHACQR(
            space,
            metric=LOSS,
            time_attr=EPOCH,
            max_t=task.epochs,
            do_minimize=True,
            random_seed=task.seed,
            grace_period=task.first_rung,
            reduction_factor=task.eta,
            points_to_evaluate=[] if task.first is None else [task.first],
        )
        self._trials: list[Any] = []

    def next(self) -> tuple[int, Config]:
        from syne_tune.backend.trial_status import Trial

        trial = Trial(len(self._trials), self._search.suggest().config, datetime.now())
        self._trials.append(trial)
        self._search.on_trial_add(trial)
        return trial.trial_id, trial.config

    def goes_on(self, trial: int, epoch: int, value: float) -> bool:
        if not math.isfinite(value):
            self._search.on_trial_error(self._trials[trial])
            return False
        decision = self._search.on_trial_result(self._trials[trial], {LOSS: value, EPOCH: epoch})
        if decision == "CONTINUE":
            return True
        self._search.on_trial_remove(self._trials[trial])
        return False


class Wandb:
    """The searches of W&B's service."""

    def __init__(self, task: Task) -> None:
        import numpy as np
        import sweeps

        seed_all(task.seed, np.random.seed)
        parameters: dict[str, Any] = {}
        for name, p in task.parameters.items():
            if p["type"] == "choice":
                parameters[name] = {"values": p["values"]}
                continue
            kind: dict[str, Any] = {"distribution": "int_uniform" if p["type"] == "int" else "uniform"}
            if p["log"]:
                kind = {"distribution": "log_uniform_values"}
                if p["type"] == "int":
                    kind = {"distribution": "q_log_uniform_values", "q": 1}
            parameters[name] = {"min": p["low"], "max": p["high"], **kind}
        self._config = {
            "method": "bayes",
            "metric": {"name": LOSS, "goal": "minimize"},
            "early_terminate": {"type": "hyperband", "min_iter": task.first_rung, "eta": task.eta},
            "parameters": parameters,
        }
        self._sweeps = sweeps
        self._last = task.epochs
        self._first = task.first
        self._runs: list[Any] = []

    def next(self) -> tuple[int, Config]:
        if not self._runs and self._first is not None:  # as a run from before the sweep
            run = self._sweeps.SweepRun(config={name: {"value": at} for name, at in self._first.items()})
        else:
            run = self._sweeps.next_run(self._config, self._runs)
        run.name, run.state = str(len(self._runs)), self._sweeps.RunState.running
        self._runs.append(run)
        return len(self._runs) - 1, {name: told["value"] for name, told in run.config.items()}

    def goes_on(self, trial: int, epoch: int, value: float) -> bool:
        run, states = self._runs[trial], self._sweeps.RunState
        if not math.isfinite(value):
            run.state = states.failed
            return False
        run.history.append({LOSS: value})
        stopped = self._sweeps.stop_runs(self._config, self._runs)
        if epoch < self._last and not any(each is run for each in stopped):
            return True
        run.state = states.finished
        return False


def seed_all(seed: int, *generators: Callable[[int], object]) -> None:
    """Seed Python's generator and these: some tools draw from them too."""
    for begin in (random.seed, *generators):
        begin(seed)


def exists(parameter: dict[str, Any], config: Config) -> bool:
    """Whether a configuration has a parameter, by its condition."""
    return all(config.get(other) in values for other, values in parameter.get("when", {}).items())


def used(parameters: dict[str, dict[str, Any]], config: Config) -> Config:
    """A configuration without the parameters that do not exist in it."""
    return {name: config[name] for name, parameter in parameters.items() if exists(parameter, config)}


def config_space(task: Task) -> Any:
    """The space as ConfigSpace."""
    from ConfigSpace import ConfigurationSpace, InCondition
    from ConfigSpace import hyperparameters as kinds

    def kind(name: str, p: dict[str, Any]) -> Any:
        if p["type"] == "choice":
            return kinds.CategoricalHyperparameter(name, p["values"])
        number = {"int": kinds.UniformIntegerHyperparameter, "float": kinds.UniformFloatHyperparameter}
        return number[p["type"]](name, p["low"], p["high"], log=p["log"])

    space = ConfigurationSpace(seed=task.seed)
    space.add_hyperparameters([kind(name, p) for name, p in task.parameters.items()])
    for name, p in task.parameters.items():
        for other, values in p.get("when", {}).items():
            space.add_condition(InCondition(space[name], space[other], values))
    return space


@dataclass(frozen=True)
class Kind:
    """A tool and its environment."""

    environment: str
    begin: Callable[[Task], Tool]


TOOLS = {
    "neps-hyperband": Kind("neps", partial(Neps, prior=False)),
    "neps-priorband": Kind("neps", partial(Neps, prior=True)),
    "smac-hyperband": Kind("smac", Smac),
    "syne-cqr": Kind("syne-tune", SyneTune),
    "wandb-bayes": Kind("sweeps", Wandb),
    "bohb": Kind("hpbandster", Bohb),
}


def python_of(environment: Path) -> Path:
    """The interpreter of an environment."""
    return environment / "bin" / "python"


def serve(begin: Callable[[Task], Tool]) -> None:
    """Answer the lines on the standard input until they end."""
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # what a tool prints is no answer
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    tool = begin(Task(**json.loads(sys.stdin.readline())))
    for line in sys.stdin:
        asked = json.loads(line)
        if asked:
            value = math.inf if asked["value"] is None else asked["value"]
            answer: dict[str, Any] = {"goes_on": tool.goes_on(asked["trial"], asked["epoch"], value)}
        else:
            trial, config = tool.next()
            answer = {"trial": trial, "config": config}
        print(json.dumps(answer, default=lambda number: number.item()), file=answers)  # a number of numpy's


def install(folder: Path, names: Sequence[str]) -> None:
    """Make environments."""
    for name in names:
        print(f"{name}: {', '.join(ENVIRONMENTS[name])}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder / name], check=True)
        pip = [str(python_of(folder / name)), "-m", "pip"]
        subprocess.run([*pip, "install", "--quiet", *ENVIRONMENTS[name]], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("install", help="make environments")
    making.add_argument("--into", type=Path, required=True, metavar="FOLDER")
    making.add_argument("names", nargs="*", metavar="ENVIRONMENT", help=f"of {', '.join(ENVIRONMENTS)}")
    searching = commands.add_parser("search", help="run a search, in its environment")
    searching.add_argument("tool", choices=TOOLS)
    options = parser.parse_args()
    if options.command == "search":
        serve(TOOLS[options.tool].begin)
        return
    if unknown := [name for name in options.names if name not in ENVIRONMENTS]:
        parser.error(f"no environment {', '.join(unknown)}; there are {', '.join(ENVIRONMENTS)}")
    try:
        install(options.into, options.names or list(ENVIRONMENTS))
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"--into: {error}")


if __name__ == "__main__":
    main()
