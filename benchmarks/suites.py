"""Suites of recorded learning curves for `search.py`: which tasks there are, and how a configuration trains.

A task is named after its suite: `scan/clip`. Lower is better in all suites. A search may be tuned on the
tasks of `dev`, never on those that judge.

| suite | dev, judge | an epoch | noise |
|---|---|---|---|
| `lcbench` | 8, 26 | a 52nd of the training of a perceptron | none |
| `taskset` | 6, 0 | a 50th of the training of a text classifier | none |
| `lora-curves` | 2, 3 | a 15th of the training of a LoRA | ten seeds |
| `scan` | 0, 1 | a fifth of the training of a CLIP model | one recorded seed |
| `scan-model` | 0, 1 | the same | ten seeds |
| `rbv2_xgboost` | 12, 107 | a 25th of XGBoost's data; the first is 3% of them | ten replications |

Where there are several seeds, each trial draws one of them. The search sees the values of this one, and is
judged by the mean over all. In `scan`, a configuration that was not recorded trains like its nearest
neighbour in the unit cube; in `lora-curves` and `scan-model`, all train as a function says that is drawn from
a model of what was recorded (`curve_model.py`). The cube's axes are logarithmic where the range is; numbers
to choose from lie there in their order, and words 1 apart. From where a training diverged, its values are
infinite in `scan`; a model takes them for the worst that was recorded.

`lcbench` and `taskset` are those of `mfbench.py` in the folder of `--data`: `search.py` describes them.

`lora-curves` is made of the table beside this file, as far as it is recorded. The space is the table's, but
ranges have no steps. A seed moves a curve by a normal `lora_table.NOISE`; in `scan-model`, by what the model
has found of noise in the table. What a search proposes although it does not exist under the space's
conditions, as it has no place for them, is ignored, here and in `rbv2_xgboost`.

`scan` is made of `data/scan/vlm.csv`, the CLIP models of ScAn-bench 0.2.3 (pypi.org/project/scan-bench, MIT),
without the 668 that were trained for fewer than five epochs. The others were trained for 5 to 10. Place k is
the last checkpoint at or before k fifths of a training, so every value was recorded, and none is seen before
it is paid for. The number of epochs and their samples vary between configurations, but are not searched:
to a search, this is noise. The default is OpenCLIP's, with widths of 256. A search learns little in `scan`,
as the nearest of 832 configurations is far away in nine dimensions: `curve_model.py` prints how little it
says of a configuration.

`rbv2_xgboost` is YAHPO Gym's surrogate in `data/rbv2_xgboost/` (github.com/slds-lmu/yahpo_data 1.0.2,
Apache-2.0). Its conditions say which numbers a booster uses. The default is XGBoost's own. A trial resumes as
everywhere, and each 25th of the data costs one unit. XGBoost itself begins anew with more data: rungs at 1,
3, 9 and 25 would cost 38 units instead of 25 to every search that has them.
"""

from __future__ import annotations

import csv
import functools
import importlib
import json
import math
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import lora_table
import numpy as np
from curve_model import COMPONENTS, CurveModel, nearest
from numpy.typing import NDArray

from hpsearch.spaces import Choice, Range

Config = dict[str, Any]
Space = dict[str, dict[str, Any]]  # in the format of mfbench.py, with conditions as `when`
Curves = NDArray[np.float64]  # (seeds, epochs)


class WrongUse(Exception):
    """The command line asks for something that does not exist."""


@dataclass(frozen=True)
class Reference:
    """What a task's values are compared with."""

    best: float  # the best known value, at any epoch
    median: float  # of random configurations trained to the end


class Suite(Protocol):
    """Tasks that have a kind of curve in common."""

    def tasks(self) -> dict[str, bool]:
        """The tasks, and whether a search may be tuned on each."""

    def space(self, task: str) -> Space: ...

    def epochs(self, task: str) -> int:
        """The epochs of a full training."""

    def curves(self, task: str, config: Config) -> Curves:
        """The value after each epoch, for each seed."""

    def reference(self, task: str) -> Reference: ...


class Mfbench:
    """One of the suites of the folder's `mfbench.py`."""

    def __init__(self, name: str, folder: Path | None) -> None:
        if (at := str(needed(folder, "mfbench.py").parent)) not in sys.path:
            sys.path.insert(0, at)
        self._data: Any = importlib.import_module("mfbench")
        self._prefix = f"{name}/"

    def tasks(self) -> dict[str, bool]:
        tuned = set(self._data.dev_tasks())
        mine = [task for task in self._data.list_tasks() if task.startswith(self._prefix)]
        return {task.removeprefix(self._prefix): task in tuned for task in mine}

    def space(self, task: str) -> Space:
        space: Space = self._data.space(self._prefix + task)
        return space

    def epochs(self, task: str) -> int:
        return int(self._data.max_epoch(self._prefix + task))

    def curves(self, task: str, config: Config) -> Curves:
        return np.array([self._data.curve(self._prefix + task, config)], dtype=float)

    def reference(self, task: str) -> Reference:
        known = self._data.reference(self._prefix + task)
        return Reference(known["best"], known["median"])


class Recorded:
    """Recorded configurations; another one trains like its nearest neighbour."""

    def __init__(self, space: Space, configs: Sequence[Config], losses: Curves) -> None:
        self.space = space
        self.points = np.array([point_of(space, config) for config in configs])
        self.losses = losses  # (configurations, epochs)

    def curves(self, config: Config) -> Curves:
        (index,) = nearest(point_of(self.space, config)[None], self.points)
        return self.losses[index : index + 1]

    def reference(self) -> Reference:
        return Reference(float(self.losses.min()), float(np.median(self.losses[:, -1])))


class Drawn:
    """A function drawn from a model of recorded curves, and seeds that differ from it."""

    SEEDS = 10

    def __init__(
        self,
        recorded: Recorded,
        seen: Callable[[CurveModel, Curves, Curves], Curves],
        used: Callable[[Config], Config] = lambda config: config,
    ) -> None:
        """`seen`: the losses of seeds with these normals [SEEDS, COMPONENTS], around these losses [epochs].

        `used`: the configuration without what it does not use.
        """
        self._recorded, self._seen, self._used = recorded, seen, used

    @functools.cached_property
    def _model(self) -> CurveModel:
        """Takes seconds."""
        return CurveModel(self._recorded.points, self._recorded.losses)

    @functools.cached_property
    def _function(self) -> Callable[[Curves], Curves]:
        function: Callable[[Curves], Curves] = self._model.drawn(seed=0)
        return function

    def curves(self, config: Config) -> Curves:
        point = self._point(config)
        normals = np.random.default_rng(zlib.crc32(point.tobytes())).normal(size=(self.SEEDS, COMPONENTS))
        return self._seen(self._model, self._function(point), normals - normals.mean(axis=0))

    def reference(self) -> Reference:
        def ends(configs: Sequence[Config]) -> Curves:
            return np.array([self._function(self._point(config))[-1] for config in configs])

        found, median = best_and_median(self._recorded.space, ends)
        return Reference(float(self._function(self._point(found)).min()), median)

    def _point(self, config: Config) -> NDArray[np.float64]:
        return point_of(self._recorded.space, self._used(config))


class LoraCurves:
    """What the table of LoRA's learning curves says."""

    def __init__(self, table: Path = lora_table.TABLE) -> None:
        importlib.import_module("sklearn")  # missing, it is to be told now, not by each search
        self._space = lora_table.wide_space().space
        runs: dict[str, dict[int, list[tuple[float, ...]]]] = defaultdict(lambda: defaultdict(list))
        for run in sorted(lora_table.read_runs(table)):
            if run.seed == 0 or run.configuration in runs[run.task]:
                runs[run.task][run.configuration].append(run.losses)
        configs = lora_table.configurations(1 + max((max(its) for its in runs.values()), default=0))
        active, space = [self._active(config) for config in configs], self._ranges()
        self.recorded = {
            task: Recorded(
                space,
                [active[number] for number in its],
                np.array([np.mean(losses, axis=0) for losses in its.values()]),
            )
            for task, its in runs.items()
        }
        self._drawn = {task: Drawn(its, shifted, self._active) for task, its in self.recorded.items()}

    def tasks(self) -> dict[str, bool]:
        return {task: lora_table.TASKS[task].role == "tune" for task in self.recorded}

    def space(self, task: str) -> Space:
        return self.recorded[task].space

    def epochs(self, task: str) -> int:
        return len(lora_table.PLACES)

    def curves(self, task: str, config: Config) -> Curves:
        return self._drawn[task].curves(config)

    def reference(self, task: str) -> Reference:
        return self._drawn[task].reference()

    def _active(self, config: Config) -> Config:
        """The configuration, with 0 for what it does not use."""
        used = self._space.resolve(lambda name, _: config[name])
        return {name: used.get(name, 0) for name in lora_table.RANGES}

    def _ranges(self) -> Space:
        space: Space = {}
        baseline = self._space.baseline()
        assert baseline is not None
        for name in lora_table.RANGES:
            match self._space.parameters[name]:
                case Choice() as p:
                    space[name] = {"type": "choice", "values": p.choices}
                case Range() as p:
                    kind, log = "int" if p.is_int else "float", p.log or p.factor is not None
                    space[name] = {"type": kind, "low": p.min, "high": p.max, "log": log}
            space[name]["default"] = baseline[name]
            if "when" in (given := lora_table.RANGES[name]):
                space[name]["when"] = given["when"]
        return space


class Scan:
    """ScAn-bench's CLIP models."""

    PLACES, FEWEST = 5, 5  # epochs of the suite, and of a run at least
    SPACE: ClassVar[Space] = {
        "lr": {"type": "float", "low": 1e-5, "high": 5e-2, "log": True, "default": 5e-4},
        "wd": {"type": "float", "low": 1e-6, "high": 0.2, "log": True, "default": 0.2},
        "beta1": {"type": "float", "low": 0.9, "high": 0.99, "log": False, "default": 0.9},
        "beta2": {"type": "float", "low": 0.95, "high": 0.999, "log": False, "default": 0.98},
        "eps": {"type": "float", "low": 1e-8, "high": 1e-6, "log": True, "default": 1e-6},
        "warmup_fraction": {"type": "float", "low": 0.0, "high": 0.75, "log": False, "default": 0.1},
        "global_batch_size": {"type": "choice", "values": [4096, 8192], "default": 4096},
        "text_width": {"type": "int", "low": 32, "high": 512, "log": False, "default": 256},
        "vision_width": {"type": "int", "low": 32, "high": 512, "log": False, "default": 256},
    }

    def __init__(self, folder: Path | None) -> None:
        runs: dict[str, list[dict[str, str]]] = defaultdict(list)
        with needed(folder, "data/scan/vlm.csv").open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if float(row["total_epochs"]) >= self.FEWEST:
                    runs[row["config_id"]].append(row)
        configs = [{name: float(rows[0][name]) for name in self.SPACE} for rows in runs.values()]
        self.recorded = Recorded(self.SPACE, configs, np.array([self._curve(r) for r in runs.values()]))

    def _curve(self, rows: Sequence[dict[str, str]]) -> list[float]:
        total = int(float(rows[0]["total_epochs"]))
        losses: dict[int, float] = defaultdict(lambda: math.inf)  # a diverged run has no later checkpoints
        for row in rows:
            if row["epoch_diverged"] != "True" and row["val_loss"]:
                losses[int(row["epoch"])] = float(row["val_loss"])
        return [losses[place * total // self.PLACES] for place in range(1, self.PLACES + 1)]

    def tasks(self) -> dict[str, bool]:
        return {"clip": False}

    def space(self, task: str) -> Space:
        return self.SPACE

    def epochs(self, task: str) -> int:
        return self.PLACES

    def curves(self, task: str, config: Config) -> Curves:
        return self.recorded.curves(config)

    def reference(self, task: str) -> Reference:
        return self.recorded.reference()


class ScanModel(Scan):
    """What a model says of them."""

    def __init__(self, folder: Path | None) -> None:
        importlib.import_module("sklearn")
        super().__init__(folder)
        self._drawn = Drawn(self.recorded, CurveModel.noisy)

    def curves(self, task: str, config: Config) -> Curves:
        return self._drawn.curves(config)

    def reference(self, task: str) -> Reference:
        return self._drawn.reference()


class Xgboost:
    """YAHPO Gym's surrogate of XGBoost."""

    SHARES = np.linspace(0.03, 1.0, 25)
    REPLICATIONS = np.arange(1, 11)
    TUNED = ("16", "1487", "40499", "1461", "31", "182", "6", "44", "469", "4134", "1489", "24")
    # The surrogate's inputs in its order. A number that a booster does not use is 0.
    IMPUTE = "num.impute.selected.cpo"  # `impute` to searches, where a name with dots nests
    CHOICES = ("task_id", "booster", IMPUTE)
    NUMBERS = (
        *("nrounds", "eta", "gamma", "lambda", "alpha", "subsample", "max_depth", "min_child_weight"),
        *("colsample_bytree", "colsample_bylevel", "rate_drop", "skip_drop", "trainsize", "repl"),
    )
    DEFAULTS: ClassVar[Config] = {  # XGBoost's; those that are out of the range become its nearest end
        "booster": "gbtree",  # first, as conditions are on it
        **{"nrounds": 100, "eta": 0.3, "gamma": 0.0, "lambda": 1.0, "alpha": 0.0, "subsample": 1.0},
        **{"max_depth": 6, "min_child_weight": 1.0, "colsample_bytree": 1.0, "colsample_bylevel": 1.0},
        **{"rate_drop": 0.0, "skip_drop": 0.0, "impute": "impute.mean"},
    }

    def __init__(self, folder: Path | None) -> None:
        described, self._codes = (
            json.loads(needed(folder, f"data/rbv2_xgboost/{name}.json").read_text(encoding="utf-8"))
            for name in ("config_space", "encoding")
        )
        model = needed(folder, "data/rbv2_xgboost/model.onnx")
        runtime: Any = importlib.import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._parameters = {p["name"]: p for p in described["hyperparameters"]}
        self._users = {  # of each number that not all boosters use
            rule["child"]: rule["values"] if rule["type"] == "IN" else [rule["value"]]
            for rule in described["conditions"]
        }

    def tasks(self) -> dict[str, bool]:
        return {task: task in self.TUNED for task in self._parameters["task_id"]["choices"]}

    def space(self, task: str) -> Space:
        space: Space = {}
        for name, default in self.DEFAULTS.items():
            p = self._parameters[self.IMPUTE if name == "impute" else name]
            if p["type"] == "categorical":
                space[name] = {"type": "choice", "values": p["choices"], "default": default}
                continue
            low, high = p["lower"], p["upper"]
            kind, at = p["type"].removeprefix("uniform_"), min(max(default, low), high)
            space[name] = {"type": kind, "low": low, "high": high, "log": p["log"], "default": at}
            if name in self._users:
                space[name]["when"] = {"booster": self._users[name]}
        return space

    def epochs(self, task: str) -> int:
        return len(self.SHARES)

    def curves(self, task: str, config: Config) -> Curves:
        (errors,) = self._errors(task, [config], self.SHARES)
        return np.asarray(errors)

    def _errors(self, task: str, configs: Sequence[Config], shares: Curves) -> NDArray[np.float64]:
        """Shares of wrong predictions, of shape (configurations, replications, shares of the data)."""
        numbers = np.empty((len(configs), len(self.REPLICATIONS), len(shares), len(self.NUMBERS)), np.float32)
        choices = np.empty((*numbers.shape[:-1], len(self.CHOICES)), np.int32)
        for place, config in enumerate(configs):
            chosen = {"task_id": task, "booster": config["booster"], self.IMPUTE: config["impute"]}
            choices[place] = [self._codes[name][chosen[name]] for name in self.CHOICES]
            numbers[place] = [self._number(name, config) for name in self.NUMBERS]
        numbers[..., self.NUMBERS.index("trainsize")] = shares
        numbers[..., self.NUMBERS.index("repl")] = self.REPLICATIONS[:, None]
        inputs: dict[str, NDArray[Any]] = {"x_cat": choices, "x_cont": numbers}
        flat = {name: its.reshape(-1, its.shape[-1]) for name, its in inputs.items()}
        (outputs,) = self._session.run(None, flat)
        accuracy = np.asarray(outputs[:, 0], dtype=float).reshape(numbers.shape[:-1])
        return np.asarray(1 - accuracy.clip(0, 1))

    def _number(self, name: str, config: Config) -> float:
        if name not in config or config["booster"] not in self._users.get(name, [config["booster"]]):
            return 0.0
        return float(config[name])

    def reference(self, task: str) -> Reference:

        def ends(configs: Sequence[Config]) -> Curves:
            return np.asarray(self._errors(task, configs, self.SHARES[-1:]).mean(axis=(1, 2)))

        found, median = best_and_median(self.space(task), ends)
        return Reference(float(self.curves(task, found).mean(axis=0).min()), median)


SUITES: dict[str, Callable[[Path | None], Suite]] = {
    "lcbench": functools.partial(Mfbench, "lcbench"),
    "taskset": functools.partial(Mfbench, "taskset"),
    "lora-curves": lambda folder: LoraCurves(),
    "scan": Scan,
    "scan-model": ScanModel,
    "rbv2_xgboost": Xgboost,
}


@functools.cache
def opened(name: str, folder: Path | None) -> Suite:
    """A suite. Raises `WrongUse` if its data or a package is missing."""
    try:
        return SUITES[name](folder)
    except ModuleNotFoundError as error:
        told = f"{name} needs {error.name}: pip install 'hpsearch[bench-search]'"
        raise WrongUse(f"--suites: {told}") from error


class Suites:
    """All suites; a task is named after its suite."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._curves = functools.lru_cache(maxsize=1000)(self._computed)
        self._references: dict[str, Reference] = {}  # some take a second to find

    def roles(self, names: Sequence[str]) -> dict[str, str]:
        """The tasks of these suites, and whether they are for tuning (dev) or for judging (judge)."""
        suites = {name: opened(name, self._folder) for name in names}
        return {
            f"{name}/{task}": "dev" if tuned else "judge"
            for name, suite in suites.items()
            for task, tuned in suite.tasks().items()
        }

    def space(self, task: str) -> Space:
        suite, name = self._of(task)
        return suite.space(name)

    def epochs(self, task: str) -> int:
        """The epochs of a full training."""
        suite, name = self._of(task)
        return suite.epochs(name)

    def reported(self, task: str, config: Config, seed: int) -> NDArray[np.float64]:
        """What a trial of the search with this seed reports after each epoch."""
        curves = self.curves(task, config)
        drawn = zlib.crc32(repr((seed, sorted(config.items()))).encode())
        return np.asarray(curves[drawn % len(curves)])

    def expected(self, task: str, config: Config) -> NDArray[np.float64]:
        """The mean over all seeds."""
        return np.asarray(self.curves(task, config).mean(axis=0))

    def curves(self, task: str, config: Config) -> Curves:
        """The value after each epoch, for each seed."""
        return self._curves(task, tuple(config.items()))

    def _computed(self, task: str, config: tuple[tuple[str, Any], ...]) -> Curves:
        suite, name = self._of(task)
        return suite.curves(name, dict(config))

    def reference(self, task: str) -> Reference:
        if task not in self._references:
            suite, name = self._of(task)
            self._references[task] = suite.reference(name)
        return self._references[task]

    def _of(self, task: str) -> tuple[Suite, str]:
        suite, _, name = task.partition("/")
        return opened(suite, self._folder), name


def needed(folder: Path | None, name: str) -> Path:
    """A file of the folder of data. Raises `WrongUse` if it is not there."""
    if folder is None:
        raise WrongUse(f"--data: name the folder that contains {name}")
    if not (folder / name).is_file():
        raise WrongUse(f"--data: found no {name} in {folder}")
    return folder / name


def shifted(_: CurveModel, losses: Curves, normals: Curves) -> Curves:
    """Trainings of LoRA with several seeds."""
    return np.asarray(losses + lora_table.NOISE * normals[:, :1])


def best_and_median(space: Space, ends: Callable[[Sequence[Config]], Curves]) -> tuple[Config, float]:
    """The best configuration, and the median value of random ones, as they end.

    From 2,000 random configurations and 1,200 neighbours of the best.
    """
    random = np.random.default_rng(0)
    points = random.random((2000, len(space)))
    values = ends([config_at(space, point) for point in points])
    median = float(np.median(values))
    for _ in range(4):
        best = np.argsort(values)[:20]
        points = np.concatenate([points[best], np.repeat(points[best], 15, axis=0)])
        points[20:] += random.normal(scale=0.08, size=points[20:].shape)
        points = points.clip(0, 1)
        near = ends([config_at(space, point) for point in points[20:]])
        values = np.concatenate([values[best], near])
    return config_at(space, points[values.argmin()]), median


def point_of(space: Space, config: Config) -> NDArray[np.float64]:
    """A configuration in the unit cube. Words to choose from have an axis each and are 1 apart."""
    point: list[float] = []
    for name, p in space.items():
        value = config[name]
        if p["type"] != "choice":
            scale = math.log if p["log"] else float
            low, high = scale(p["low"]), scale(p["high"])
            point.append((scale(value) - low) / (high - low))
        elif all(isinstance(each, int | float) for each in p["values"]):
            point.append(p["values"].index(value) / (len(p["values"]) - 1))
        else:
            point += [math.sqrt(0.5) * (value == each) for each in p["values"]]
    return np.array(point)


def config_at(space: Space, point: Sequence[float]) -> Config:
    """The configuration at a point of the unit cube that has one axis for each parameter."""
    config: Config = {}
    for (name, p), share in zip(space.items(), point, strict=True):
        if p["type"] == "choice":
            config[name] = p["values"][min(int(share * len(p["values"])), len(p["values"]) - 1)]
            continue
        low, high = (math.log(p[end]) if p["log"] else p[end] for end in ("low", "high"))
        value = low + (high - low) * share
        value = min(max(math.exp(value) if p["log"] else value, p["low"]), p["high"])
        config[name] = round(value) if p["type"] == "int" else float(value)
    return config
