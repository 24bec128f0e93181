"""A space for a script that searches with Ray Tune: its `param_space`, and the settings of its tuner."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....objectives.user.function import MAIN
from ...errors import UsageError
from ..draws import HELPER, RAW, Draw, Unsaid, floored, multiples, normal, rounded
from .found import FoundParameter, FoundSearch
from .lambdas import expression_of
from .mappings import Mappings, grid_of
from .scope import Scope, Unreadable
from .syntax import keywords, name_of, nodes_of, root_of

DEFAULT_TRIALS = 30
# Functions of `ray.tune` for a range, with the names of their arguments.
RANGES = {
    "uniform": ("lower", "upper"),
    "loguniform": ("lower", "upper"),
    "quniform": ("lower", "upper", "q"),
    "qloguniform": ("lower", "upper", "q"),
    "randint": ("lower", "upper"),
    "lograndint": ("lower", "upper"),
    "qrandint": ("lower", "upper", "q"),
    "qlograndint": ("lower", "upper", "q"),
}
UPPER_IS_OUTSIDE = ("randint", "lograndint")
CHOICES = ("choice", "grid_search")
NORMAL = {"randn": ("mean", "sd"), "qrandn": ("mean", "sd", "q")}
SCHEDULERS = {  # the method of a space, and the options of both by their names
    "ASHAScheduler": ("asha", {"grace_period": "min", "max_t": "max", "reduction_factor": "eta"}),
    "AsyncHyperBandScheduler": ("asha", {"grace_period": "min", "max_t": "max", "reduction_factor": "eta"}),
    "HyperBandScheduler": ("hyperband", {"max_t": "max", "reduction_factor": "eta"}),
    "HyperBandForBOHB": ("hyperband", {"max_t": "max", "reduction_factor": "eta"}),
    "MedianStoppingRule": (
        "median",
        {"grace_period": "n_warmup_steps", "min_samples_required": "n_min_trials"},
    ),
}
DEFAULTS: dict[str, dict[str, Any]] = {  # of Ray Tune's schedulers
    "asha": {"min": 1, "max": 100, "eta": 4},
    "hyperband": {"min": 1, "max": 81, "eta": 3},
    "median": {"n_warmup_steps": 60, "n_min_trials": 3},
}
SEARCHERS = {
    "OptunaSearch": "tpe",
    "HyperOptSearch": "hyperopt-tpe",
    "TuneBOHB": "tpe",
    "BayesOptSearch": "gp",
    "AxSearch": "gp",
    "BasicVariantGenerator": "random",
}


def is_of_ray(tree: ast.Module) -> bool:
    """Whether a script gives Ray Tune something to search."""
    return _search_call(tree) is not None


def read_ray(path: Path, tree: ast.Module) -> FoundSearch:
    """The search that a script describes. Raises `UsageError` where its function cannot be named."""
    call = _search_call(tree)
    assert call is not None
    return _Tuner(path, tree, call).read()


def _search_call(tree: ast.Module) -> ast.Call | None:
    """`Tuner(train_fn, param_space=...)`, or the older `tune.run(train_fn, config=...)`."""
    for call in nodes_of(tree, ast.Call):
        given = keywords(call)
        older = name_of(call) == "run" and root_of(call.func) == "tune" and "config" in given
        if older or (name_of(call) == "Tuner" and "param_space" in given):
            return call
    return None


class _Tuner:
    def __init__(self, path: Path, tree: ast.Module, call: ast.Call) -> None:
        self._path = path
        self._tree = tree
        self._call = call
        self._scope = Scope(tree)
        self._mappings = Mappings(tree, self._scope, lambda node, text: self._found.note(node, text), call)
        self._given = keywords(call)
        self._functions: list[tuple[str, ast.expr]] = []  # parameters that are calculated
        self._grids = self._others = 0  # searched parameters of each kind
        self._in_grid = 1  # configurations of the grid

    def read(self) -> FoundSearch:
        name = self._trainable()
        called = f"what {self._path.name} gives to its Tuner" if name == MAIN else f"{name}(config)"
        self._found = found = FoundSearch(
            source=self._path,
            objective=f"ray:{self._path}:{name}",
            how=f"Each trial calls {called} with these values; a step is a report of its own.",
            study=self._path.stem,
        )
        space = self._given["param_space" if "param_space" in self._given else "config"]
        for key, value in self._mappings.entries(space).items():
            self._parameter(key, value)
        self._calculated()
        self._settings()
        return found

    # The function

    def _trainable(self) -> str:
        """The name at the top of the file that the tuner is given, perhaps with resources; or `MAIN`."""
        node = self._given.get("trainable") or self._given.get("run_or_experiment")
        node = self._call.args[0] if self._call.args else node
        while isinstance(node, ast.Call) and name_of(node) == "with_resources" and node.args:
            node = node.args[0]
        if isinstance(node, ast.Name) and self._is_at_top(node.id):
            return node.id
        if isinstance(node, ast.Name) and isinstance(made := self._mappings.resolved(node), ast.Call):
            node = made
            while name_of(node) == "with_resources" and isinstance(node, ast.Call) and node.args:
                node = node.args[0]
            if isinstance(node, ast.Name) and self._is_at_top(node.id):
                return node.id
        if node is None:
            raise UsageError(f"{self._path}:{self._call.lineno}: the tuner is given no function")
        return MAIN

    def _is_at_top(self, name: str) -> bool:
        defined = (node for node in self._tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef))
        return any(node.name == name for node in defined) or name in self._scope.constants

    # Its parameters

    def _parameter(self, name: str, node: ast.expr) -> None:
        found = self._found
        kind = name_of(node) if isinstance(node, ast.Call) else None
        grid = grid_of(node)
        if grid is not None:
            self._choices(name, node, grid, is_grid=True)
        elif isinstance(node, ast.Call) and kind in RANGES:
            self._range(name, node, str(kind))
        elif isinstance(node, ast.Call) and kind == "choice":
            given = node.args[0] if node.args else keywords(node).get("categories")
            self._choices(name, node, given, is_grid=False)
        elif isinstance(node, ast.Call) and kind in NORMAL:
            self._normal(name, node, NORMAL[kind])
        elif kind == "sample_from" or isinstance(node, ast.Lambda):
            self._functions.append((name, node))
        else:
            try:
                value = self._scope.value(node, {})
            except Unreadable:
                found.note(
                    node, f"{name} is {ast.unparse(node)[:80]}, which cannot be read; write it yourself"
                )
                return
            value = list(value) if isinstance(value, tuple) else value
            found.add(
                FoundParameter(name, {"value": value} if isinstance(value, list) else value, node.lineno)
            )

    def _calculated(self) -> None:
        """The parameters that are functions of the others."""
        found = self._found
        known = {each.name for each in found.parameters}
        for name, node in self._functions:
            function = node.args[0] if isinstance(node, ast.Call) and node.args else node
            text = expression_of(function, known, self._value)
            if text is None:
                told = (
                    f"{name} is a function that a space cannot read: write {name}: {{expr: ...}}, or a range"
                )
                found.note(node, told)
            else:
                found.add(FoundParameter(name, {"expr": text}, node.lineno))

    def _range(self, name: str, node: ast.Call, kind: str) -> None:
        given = dict(zip(RANGES[kind], node.args, strict=False)) | keywords(node)
        try:
            low, high = (self._scope.value(given.get(key), {}) for key in ("lower", "upper"))
            step: Any = self._scope.value(given["q"], {}) if "q" in given else None
            says = self._says(kind, low, high, step)
            ends = (says["min"], says["max"]) if isinstance(says, dict) else (says, says)
            draw = None
            if kind == "qloguniform" and isinstance(says, dict):
                draw = rounded(ends[0], ends[1], step, log=True)
            elif kind == "qlograndint" and isinstance(says, dict):
                draw = floored(ends[0] // step, ends[1] // step, step)
        except Unsaid as error:
            self._found.note(node, f"{name}: {ast.unparse(node)} {error}; write it yourself")
            return
        except (Unreadable, TypeError, ValueError, ArithmeticError):
            self._found.note(node, f"{name}: {ast.unparse(node)} cannot be read; write it yourself")
            return
        if kind in ("quniform", "qloguniform") and any(map(_differ, ends, (low, high))):
            told = f"has a bound that is no multiple of {step}, which Ray Tune refuses; here it moves inward"
            self._found.note(node, f"{name}: {ast.unparse(node)} {told}")
        if kind == "quniform":
            told = "rounds, so its ends are half as likely there; here all values are equally likely"
            self._found.note(node, f"{name}: {ast.unparse(node)} {told}")
        self._others += isinstance(says, dict)
        if draw is not None:
            says = self._rounded(name, node, draw)
        self._found.add(FoundParameter(name, says, node.lineno))

    def _normal(self, name: str, node: ast.Call, names: Sequence[str]) -> None:
        """A normal distribution: the range around its mean, with a prior there."""
        given = dict(zip(names, node.args, strict=False)) | keywords(node)
        standard = {"mean": ast.Constant(0.0), "sd": ast.Constant(1.0)}
        try:
            draw = normal(*(self._scope.value((standard | given).get(each), {}) for each in names))
        except (Unreadable, Unsaid, TypeError, ValueError, ArithmeticError):
            self._found.note(node, f"{name}: {ast.unparse(node)} cannot be read; write it yourself")
            return
        self._found.note(node, f"{name}: {'; '.join(draw.remarks)}")
        self._others += draw.is_searched
        self._found.add(FoundParameter(name, draw.value, node.lineno))

    def _rounded(self, name: str, node: ast.Call, draw: Draw) -> Any:
        """The value of a parameter that is calculated from a helper, which is added before it."""
        if draw.helper is None:
            return draw.value
        raw = f"{name.replace('.', '_')}{HELPER}"
        self._found.add(FoundParameter(raw, draw.helper | {"pass": False}, node.lineno))
        self._found.note(node, f"{name}: {'; '.join(draw.remarks)}")
        return {"expr": draw.value["expr"].replace(RAW, raw)}

    @staticmethod
    def _says(kind: str, low: Any, high: Any, step: Any) -> Any:
        """A range of Ray Tune's as one of a space."""
        whole = "int" in kind
        low, high = ((int if whole else float)(each) for each in (low, high))
        if step is not None:
            low, high = multiples(low, high, step)
        if kind in UPPER_IS_OUTSIDE or (whole and kind.startswith("q") and step == 1):
            high -= 1
        if not low <= high or not math.isfinite(high - low):
            raise ValueError(kind)
        if low == high:
            return low
        says: dict[str, Any] = {"min": low, "max": high}
        if "log" in kind:
            says["log"] = True
        elif step is not None and not (whole and step == 1):
            says["step"] = (int if whole else float)(step)
        return says

    def _choices(self, name: str, node: ast.expr, given: ast.expr | None, *, is_grid: bool) -> None:
        found = self._found
        try:
            values = [
                list(each) if isinstance(each, tuple) else each for each in self._scope.value(given, {})
            ]
        except (Unreadable, TypeError):
            found.note(node, f"{name}: {ast.unparse(node)[:80]} cannot be read; write its choices yourself")
            return
        if any(isinstance(each, dict) for each in values):
            found.note(node, f"{name}: a space has no mappings as choices; write what differs in them")
            return
        unique: list[Any] = []
        for each in values:
            if not any(type(one) is type(each) and one == each for one in unique):
                unique.append(each)
        if len(unique) < len(values):
            found.note(
                node, f"{name} lists a choice twice to make it more likely; here it is as likely as others"
            )
        if is_grid:
            self._grids, self._in_grid = self._grids + 1, self._in_grid * len(unique)
        else:
            self._others += len(unique) > 1
        if unique:
            found.add(FoundParameter(name, unique if len(unique) > 1 else unique[0], node.lineno))

    # Its settings

    def _settings(self) -> None:
        found = self._found
        config = self._mappings.resolved(self._given.get("tune_config"))
        given = self._given | (keywords(config) if isinstance(config, ast.Call) else {})
        metric, mode = (self._value(given.get(name)) for name in ("metric", "mode"))
        scheduler = self._mappings.resolved(given.get("scheduler"))
        if isinstance(scheduler, ast.Call):
            inside = keywords(scheduler)
            metric = metric or self._value(inside.get("metric"))
            mode = mode or self._value(inside.get("mode"))
        if isinstance(metric, str) and metric:
            found.metric = metric
        else:
            found.metric = "loss"
            found.note(self._call, "it names no metric: write the key of tune.report() that counts")
        found.goal = "maximize" if mode == "max" else "minimize"
        self._budget(given)
        self._scheduler(scheduler)
        self._end(given)
        self._searcher(self._mappings.resolved(given.get("search_alg")))

    def _budget(self, given: Mapping[str, ast.expr]) -> None:
        budget = self._found.budget
        samples, seconds = (self._value(given.get(name)) for name in ("num_samples", "time_budget_s"))
        if isinstance(seconds, int | float) and seconds > 0:
            budget["time"] = f"{seconds:g}s"
        if isinstance(samples, int) and samples > 0:
            budget["trials"] = samples * self._in_grid
        elif "num_samples" in given and samples != -1:
            told = ast.unparse(given["num_samples"])
            self._found.note(
                given["num_samples"], f"num_samples={told} cannot be read; write budget: {{trials}}"
            )
        elif self._grids:
            budget["trials"] = self._in_grid
        if not budget:
            budget["trials"] = DEFAULT_TRIALS

    def _scheduler(self, node: ast.expr | None) -> None:
        found = self._found
        if node is None or name_of(node) == "FIFOScheduler":
            return
        known = SCHEDULERS.get(str(name_of(node))) if isinstance(node, ast.Call) else None
        if known is None or not isinstance(node, ast.Call):
            shown = name_of(node) or ast.unparse(node)[:80]
            found.note(node, f"{shown} has no counterpart here; write early_stopping:")
            return
        method, options = known
        stopping: dict[str, Any] = {"method": method} | DEFAULTS[method]
        if method == "median" and self._value(keywords(node).get("time_attr")) != "training_iteration":
            found.note(node, "its grace period is in seconds: write n_warmup_steps, in reports")
            stopping, options = (
                {"method": method, "n_min_trials": 3},
                {"min_samples_required": "n_min_trials"},
            )
        for option, value in keywords(node).items():
            read = self._value(value)
            if option in options and isinstance(read, int | float) and read == int(read):
                stopping[options[option]] = int(read)
            elif option == "time_attr" and read not in ("training_iteration", None):
                found.note(node, f"it counts {read}; here a step is a report: write min and max in reports")
            elif option not in ("metric", "mode", "time_attr"):
                found.note(node, f"the option {option} of {name_of(node)} is left out")
        found.early_stopping = stopping

    def _end(self, given: Mapping[str, ast.expr]) -> None:
        """The end of a trial where `stop` gives it: a class has no end of its own."""
        run = self._mappings.resolved(given.get("run_config"))
        stop = keywords(run).get("stop") if isinstance(run, ast.Call) else given.get("stop")
        stop = self._mappings.resolved(stop)
        if stop is None:
            return
        value = self._value(stop)
        last = value.get("training_iteration") if isinstance(value, dict) else None
        if isinstance(last, int) and last > 0 and self._found.early_stopping is None:
            self._found.early_stopping = {"method": "none", "max": last}
        if not isinstance(value, dict) or set(value) != {"training_iteration"}:
            self._found.note(stop, f"stop={ast.unparse(stop)[:80]}: here a trial ends by itself or at max")
        elif last and self._found.early_stopping and self._found.early_stopping.get("max") != last:
            self._found.note(stop, f"stop after {last} reports is left out: trials end at max")

    def _searcher(self, node: ast.expr | None) -> None:
        search = self._found.search
        if self._grids and not self._others:
            search["sampler"] = "grid"
            return
        if self._grids:
            self._found.note(self._call, "the grid_search values are choices here, drawn with the others")
        name = name_of(node) if node is not None else None
        if name in ("ConcurrencyLimiter", "Repeater") and isinstance(node, ast.Call) and node.args:
            self._searcher(self._mappings.resolved(node.args[0]))
        elif name in SEARCHERS:
            search["sampler"] = SEARCHERS[str(name)]
        elif node is not None:
            self._found.note(node, f"{name or ast.unparse(node)} has no counterpart here: this is TPE")
        else:
            self._found.note(self._call, "Ray Tune draws at random; this is TPE. To draw: sampler: random")

    def _value(self, node: ast.expr | None) -> Any:
        try:
            return self._scope.value(self._mappings.resolved(node), {})
        except Unreadable:
            return None


def _differ(one: float, other: float) -> bool:
    return not math.isclose(one, other, abs_tol=1e-12)
