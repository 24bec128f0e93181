"""A space for a script that searches with Optuna: its objective's suggestions, and its study's settings."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any

from ....objectives.user.function import MAIN, place_of
from ....spaces.samplers import SAMPLERS
from ...errors import UsageError
from .found import FoundSearch
from .given import Function, Given, Objective, free_name
from .scope import Scope, Unreadable
from .suggestions import Suggestions
from .syntax import file_of, keywords, name_of, nodes_of

DEFAULT_TRIALS = 30
PRUNERS = {  # Optuna's names of pruners: the method of a space, and its options by Optuna's names
    "MedianPruner": ("median", ("n_startup_trials", "n_warmup_steps", "interval_steps", "n_min_trials")),
    "PercentilePruner": (
        "percentile",
        ("percentile", "n_startup_trials", "n_warmup_steps", "interval_steps", "n_min_trials"),
    ),
    "ThresholdPruner": ("threshold", ("lower", "upper", "n_warmup_steps", "interval_steps")),
    "WilcoxonPruner": ("wilcoxon", ("p_threshold", "n_startup_steps")),
    "HyperbandPruner": ("hyperband", ("min_resource", "max_resource", "reduction_factor")),
    "SuccessiveHalvingPruner": ("asha", ("min_resource", "reduction_factor", "min_early_stopping_rate")),
    "PatientPruner": ("patient", ("wrapped_pruner", "patience", "min_delta")),
}
RESOURCES = {"min_resource": "min", "max_resource": "max", "reduction_factor": "eta"}
SAMPLER_NAMES = {
    "TPESampler": "tpe",
    "RandomSampler": "random",
    "CmaEsSampler": "cmaes",
    "GPSampler": "gp",
    "QMCSampler": "qmc",
    "GridSampler": "grid",
    "NSGAIISampler": "nsgaii",
}


def is_of_optuna(tree: ast.Module) -> bool:
    """Whether a script has an objective of Optuna's: a function that asks its argument for suggestions."""
    return any(map(_suggested_by, ast.walk(tree)))


def read_optuna(path: Path, tree: ast.Module) -> FoundSearch:
    """The search that a script describes. Raises `UsageError` where its objective cannot be named."""
    scope = Scope(tree)
    name, objective, unread = _objective(path, tree)
    called = f"what {path.name} gives to study.optimize" if name == MAIN else f"{name}(trial)"
    found = FoundSearch(
        source=path,
        objective=f"optuna:{path}:{name}",
        how=f"Each trial calls {called}, whose suggest_ calls get the values of this space.",
        study=path.stem,
    )
    calls = [call for call in nodes_of(tree, ast.Call) if name_of(call) == "optimize"]
    if name == MAIN and len({ast.dump(call.args[0]) for call in calls if call.args}) > 1:
        told = "optimize has several objectives: the one that the program reaches first is searched"
        found.note(calls[0], told)
    if unread is not None:
        told = f"what optimize is given cannot be read; this is {objective.function.name}: check it"
        found.note(unread, told)
    scope.constants |= {
        key: value
        for key, value in objective.constants.items()
        if not isinstance(value, ast.Name) or value.id != key
    }
    Suggestions(tree, scope, found).read(objective, _trial_of(objective.function))
    found.metric = _metric(objective.function, {parameter.name for parameter in found.parameters})
    _Study(tree, scope, found).read(prunes="should_prune" in map(name_of, nodes_of(tree, ast.Call)))
    return found


def _suggested_by(function: ast.AST) -> str | None:
    """The argument that a function asks for suggestions; None where it asks none."""
    if not isinstance(function, Function | ast.Lambda):
        return None
    names = {each.arg for each in (*function.args.posonlyargs, *function.args.args)}
    asked = (
        call.func.value.id
        for call in nodes_of(function, ast.Call)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr.startswith("suggest_")
        and isinstance(call.func.value, ast.Name)
    )
    return next((name for name in asked if name in names), None)


def _trial_of(function: Function) -> str:
    """The argument of an objective that is its trial."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args) if each.arg != "self"]
    return _suggested_by(function) or (names[0] if names else "")


def _objective(path: Path, tree: ast.Module) -> tuple[str, Objective, ast.AST | None]:
    """The objective: its name, or `MAIN`; and a call of `optimize` that does not show what it is given.

    It is what `optimize` is given, or else the function that no other one calls.
    """
    functions = {node.name: node for node in tree.body if isinstance(node, Function)}
    given = [
        (call, each)
        for call in nodes_of(tree, ast.Call)
        if name_of(call) == "optimize" and isinstance(call.func, ast.Attribute)
        for each in (*call.args[:1], *(each for key, each in keywords(call).items() if key == "func"))
    ]
    finds = Given(tree)
    for call, each in given:
        objective = finds.of(call, each)
        if objective is None:
            continue
        if isinstance(each, ast.Name) and objective.at_top and not _needs_main(tree):
            if each.id in functions:
                _check_arguments(path, tree, objective.function)
            return each.id, objective, None
        return MAIN, objective, None
    suggesting = [name for name, each in functions.items() if _suggested_by(each)]
    called = {
        name_of(call) for each in functions.values() for call in nodes_of(each, ast.Call) if name_of(call)
    }
    roots = [name for name in suggesting if name not in called] or suggesting
    if "objective" in functions and "objective" not in roots:
        roots.insert(0, "objective")
    chosen = "objective" if "objective" in roots else next(iter(roots), None)
    if given:
        others = [node for node in ast.walk(tree) if isinstance(node, Function) and _suggested_by(node)]
        function = functions[chosen] if chosen else next(iter(others), None)
        if function is not None:
            return MAIN, Objective(function), given[0][0]
    if chosen is None:
        raise UsageError(_out_of_reach(path, tree))
    _check_arguments(path, tree, functions[chosen])
    return chosen, Objective(functions[chosen]), None


def _needs_main(tree: ast.Module) -> bool:
    """Whether functions use names that only `if __name__ == "__main__":` gives the module."""
    guarded: list[ast.stmt] = [node for node in tree.body if isinstance(node, ast.If)]
    others = [node for node in tree.body if node not in guarded]
    given, elsewhere = ({*_stored(each)} for each in (guarded, others))
    functions = [node for node in others if isinstance(node, Function | ast.ClassDef)]
    used = {node.id for each in functions for node in nodes_of(each, ast.Name)}
    return bool((given - elsewhere) & used)


def _stored(nodes: list[ast.stmt]) -> Iterator[str]:
    """The names that statements of a module assign or import there."""
    for node in nodes:
        if isinstance(node, Function | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((each.asname or each.name).partition(".")[0] for each in node.names)
        else:
            names = (each for each in ast.walk(node) if isinstance(each, ast.Name))
            yield from (each.id for each in names if isinstance(each.ctx, ast.Store))
            inside = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt)]
            yield from _stored(inside)


def _check_arguments(path: Path, tree: ast.Module, function: Function) -> None:
    given = function.args
    needed = len(given.posonlyargs) + len(given.args) - len(given.defaults)
    if needed != 1:
        bound = f"{free_name(tree, 'tuned')} = functools.partial({function.name}, ...)"
        place = f"{file_of(function, path)}:{function.lineno}"
        raise UsageError(
            f"{place}: {function.name}() takes {needed} arguments, and an objective takes a trial: "
            f"bind the others at the top of the file, {bound}"
        )


def _out_of_reach(path: Path, tree: ast.Module) -> str:
    """Why a script without `optimize` has no objective that a space could name."""
    function = next(node for node in ast.walk(tree) if _suggested_by(node))
    name, line = free_name(tree, "tuned"), getattr(function, "lineno", 1)
    kind = next((each for each in nodes_of(tree, ast.ClassDef) if function in each.body), None)
    if kind is not None and isinstance(function, Function):
        methods = [each.name for each in kind.body if isinstance(each, Function)]
        method = "" if "__call__" in methods else f".{function.name}"
        inside, write = f"a method of {kind.name}", f"add `{name} = {kind.name}(...){method}`"
    else:
        inside, write = "a function inside another one", f"make it a function {name}(trial)"
    return (
        f"{path}:{line}: the suggest_ calls are in {inside}, and nothing here calls study.optimize: {write} "
        f'at the top of the file, and write a space that names it: objective: "optuna:{path}:{name}"'
    )


def _metric(function: Function, taken: Collection[str]) -> str:
    """The name of what the function returns, where that is a plain name; Optuna's values have none.

    It is none of those `taken` by parameters.
    """
    names = {
        node.value.id
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Name)
    }
    returned = names.pop() if len(names) == 1 and names.isdisjoint({"step", "value"}) else "value"
    return next(name for name in chain([returned, "value"], _numbered("value")) if name not in taken)


def _numbered(name: str) -> Iterator[str]:
    """More names like one."""
    return (f"{name}_{number}" for number in count(2))


class _Study:
    """The settings of `create_study` and `optimize`."""

    def __init__(self, tree: ast.Module, scope: Scope, found: FoundSearch) -> None:
        self._tree = tree
        self._scope = scope
        self._found = found
        self._assigned = _assigned(tree)

    def read(self, *, prunes: bool) -> None:
        found, calls = self._found, nodes_of(self._tree, ast.Call)
        created = next((call for call in calls if name_of(call) == "create_study"), None)
        given = {} if created is None else keywords(created)
        if created is not None and "directions" in given:
            self._found.note(created, "a search has one metric: write its name and goal, for directions")
        direction = self._value(given.get("direction"))
        written = ast.unparse(given["direction"]) if "direction" in given else ""
        if direction == "maximize" or written.endswith("MAXIMIZE"):
            found.goal = "maximize"
        if isinstance(name := self._value(given.get("study_name")), str) and name:
            found.study = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII).lstrip("-.")[:100] or found.study
        self._budget([call for call in calls if name_of(call) == "optimize"])
        self._sampler(given.get("sampler"))
        if "pruner" in given:
            self._pruner(given["pruner"])
        elif prunes:
            found.early_stopping = {"method": "median"}  # Optuna's default
        for call in calls:
            if name_of(call) == "enqueue_trial" and call.args and not found.baseline:
                values = self._value(call.args[0])
                names = {parameter.name for parameter in found.parameters}
                if isinstance(values, dict) and {place_of(str(name)) for name in values} <= names:
                    found.baseline = {place_of(str(name)): value for name, value in values.items()}
                else:
                    found.note(call, "its values cannot be read; write them as baseline:")

    def _budget(self, calls: list[ast.Call]) -> None:
        budget = self._found.budget
        for call in calls:
            given = dict(zip(("func", "n_trials", "timeout", "n_jobs"), call.args, strict=False)) | keywords(
                call
            )
            trials, seconds = (self._value(given.get(name)) for name in ("n_trials", "timeout"))
            if isinstance(trials, int) and trials > 0:
                budget.setdefault("trials", trials)
            elif "n_trials" in given and not _is_none(given["n_trials"]):
                self._found.note(call, f"n_trials={ast.unparse(given['n_trials'])} cannot be read")
            if isinstance(seconds, int | float) and seconds > 0:
                budget.setdefault("time", f"{seconds:g}s")
            if "n_jobs" in given:
                self._found.note(
                    call, "n_jobs is execution: {workers: ...}, by default what fits the machine"
                )
        if not budget:
            budget["trials"] = DEFAULT_TRIALS

    def _sampler(self, node: ast.expr | None) -> None:
        call = self._call(node)
        if node is None or call is None:
            if node is not None and not _is_none(node):
                self._found.note(
                    node, f"sampler={ast.unparse(node)} cannot be read; this is Optuna's default"
                )
            return
        name = SAMPLER_NAMES.get(str(name_of(call)))
        if name is None:
            self._found.note(call, f"{name_of(call)} has no counterpart here; this is Optuna's default")
            return
        search: dict[str, Any] = {"sampler": name, "seed": 0}
        known = SAMPLERS[name].model_fields
        for option, value in keywords(call).items():
            read = self._value(value)
            if option in known and isinstance(read, int | float):
                search[option] = read
            elif read is not None and not (name == "grid" and option == "search_space"):
                self._found.note(call, f"the option {option} of {name_of(call)} is left out")
        self._found.search = search

    def _pruner(self, node: ast.expr) -> None:
        call, found = self._call(node), self._found
        if _is_none(node):
            found.early_stopping = {"method": "median"}
            return
        if call is None or name_of(call) not in (*PRUNERS, "NopPruner"):
            found.note(node, f"pruner={ast.unparse(node)} has no counterpart here; write early_stopping:")
            return
        if name_of(call) == "NopPruner":
            return
        method, options = PRUNERS[str(name_of(call))]
        given = dict(zip(options, call.args, strict=False)) | keywords(call)
        stopping: dict[str, Any] = {"method": method}
        for option, value in given.items():
            read = self._value(value)
            if isinstance(read, int | float) and option in options:
                stopping[RESOURCES.get(option, option)] = read
            elif not _is_none(value) and (option != "max_resource" or read != "auto"):
                found.note(call, f"the option {option} of {name_of(call)} is left out")
        if method in ("asha", "hyperband"):
            usual: dict[str, Any] = {"method": method, "min": 1, "eta": 4 if method == "asha" else 3}
            stopping = usual | stopping
            if not isinstance(stopping.get("max"), int) or stopping["max"] <= stopping["min"]:
                told = "early_stopping: {method: %s, min: %s, max: LAST, eta: %s}"
                told %= (method, stopping["min"], stopping["eta"])
                found.note(call, f"a space needs the last step of a trial: {told}")
                return
        found.early_stopping = stopping

    def _call(self, node: ast.expr | None) -> ast.Call | None:
        """A call, written there or assigned to a name."""
        if isinstance(node, ast.Name):
            node = self._assigned.get(node.id)
        return node if isinstance(node, ast.Call) else None

    def _value(self, node: ast.expr | None) -> Any:
        try:
            return self._scope.value(node, {})
        except Unreadable:
            return None


def _assigned(tree: ast.Module) -> Mapping[str, ast.expr]:
    """The last value that each name of the script is given."""

    def named() -> Iterator[tuple[str, ast.expr]]:
        for node in nodes_of(tree, ast.Assign):
            yield from ((each.id, node.value) for each in node.targets if isinstance(each, ast.Name))

    return dict(named())


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
