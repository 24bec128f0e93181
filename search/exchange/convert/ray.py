"""An experiment of Ray Tune's in YAML, as RLlib's examples have them, or its space alone, as a space.

Its meaning is that of the package `ray` 2.60.0 (`tune/search/variant_generator.py` and `sample.py`).
Functions of `tune` that stand in a text are read, not run.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from ....spaces.fields import show
from .. import draws
from ..draws import Draw
from .source import Section, Source
from .space import Converted, drawn, grid_size

PROGRAM = "train.py"
METRIC = "episode_reward_mean"
TOP = (
    "run", "env", "stop", "config", "param_space", "num_samples", "local_dir", "storage_path",
    "checkpoint_freq", "checkpoint_at_end", "keep_checkpoints_num", "checkpoint_score_attr", "max_failures",
    "restore", "metric", "mode", "scheduler", "search_alg", "resources_per_trial", "checkpoint_config",
    "time_budget_s", "max_concurrent_trials", "name", "tune_config", "run_config",
)  # fmt: skip
OF_TUNE_CONFIG = (
    "metric", "mode", "search_alg", "scheduler", "num_samples", "max_concurrent_trials", "time_budget_s",
    "reuse_actors", "trial_name_creator", "trial_dirname_creator", "chdir_to_trial_dir",
)  # fmt: skip
USED = (
    "config",
    "param_space",
    "num_samples",
    "metric",
    "mode",
    "time_budget_s",
    "max_concurrent_trials",
    "name",
    "tune_config",
)
CALL = re.compile(r"(?:ray\.)?tune\.[\w.]+\(.*\)", re.DOTALL)
BARE = re.compile(r"(\w+)\(.*\)", re.DOTALL)
TRIALS = 10


def convert(source: Source, data: dict[str, Any]) -> Converted:
    """The space of an experiment."""
    top = Section(source, "", data)
    made = Converted(source, source.file.stem)
    experiments = [key for key, value in data.items() if isinstance(value, dict) and _is_experiment(value)]
    if not _is_experiment(data) and experiments:
        if len(experiments) > 1 or len(data) > 1:
            raise top.fault(
                list(data)[1], "is another experiment; a space has one: make a file of each", at_key=True
            )
        made.name, top = experiments[0], top.section(experiments[0])
    if _is_experiment(top.data):
        top.known(*TOP)
        if top.has("config") and top.has("param_space"):
            with source.part():
                raise top.fault(
                    "param_space", "is beside config; which has what to search? Keep that", at_key=True
                )
        parameters(top.section("config" if "config" in top.data else "param_space"), made)
    else:
        parameters(top, made)
        top = Section(source, "", {})
    made.command = ["python", PROGRAM, "${args}"]
    made.to_fill.append(PROGRAM)
    if top.has("run"):
        made.command_remarks.append(
            f"Ray trains {show(top.data['run'])} on {show(top.data.get('env'))}; write the program that does"
        )
    settings = top
    with source.part():  # of `tune.TuneConfig`, as the keys of `tune.run` beside the space are
        settings = top.section("tune_config") if top.has("tune_config") else top
    if settings is not top:
        settings.known(*OF_TUNE_CONFIG)
        for key in filter(top.has, OF_TUNE_CONFIG):
            with source.part():
                raise top.fault(key, "is beside tune_config, which has it inside", at_key=True)
    _objective(settings, made)
    _budget(settings, made)
    for section in (top, *([settings] if settings is not top else [])):
        others = [
            key for key in section.data if key in (*TOP, *OF_TUNE_CONFIG) and key not in (*USED, "run", "env")
        ]
        made.left_out |= {
            section.at(key): LEFT_OUT.get(key, "hpsearch has settings of its own for it") for key in others
        }
    return made


LEFT_OUT = {
    "stop": "the program itself ends a trial",
    "scheduler": "early_stopping: {method: asha, min: ..., max: ...} says it here",
    "search_alg": "search: {sampler: ...} says it here",
}


def _is_experiment(data: Any) -> bool:
    return isinstance(data.get("config", data.get("param_space")), dict)


def parameters(section: Section, made: Converted, outer: str = "") -> None:
    """Add the parameters of a configuration."""
    for name, value in section.data.items():
        with section.source.part():
            path, given = section.at(name), f"{outer}{name}"
            if isinstance(value, dict) and value.keys() == {"grid_search"}:
                inner = section.section(name)
                made.add(
                    given, drawn(inner, draws.choices, inner.items("grid_search"), key="grid_search"), path
                )
            elif isinstance(value, dict) and value.keys() == {"eval"}:
                message = (
                    "is Python that Ray runs; write its range, or expr: arithmetic over other parameters"
                )
                raise section.fault(name, f"{show(value['eval'])} {message}")
            elif isinstance(value, dict) and value:
                parameters(section.section(name), made, f"{given}.")
            elif isinstance(value, str) and CALL.fullmatch(value.strip()):
                made.add(given, parameter(section, name, value.strip()), path)
            else:
                if (
                    isinstance(value, str)
                    and (call := BARE.fullmatch(value.strip()))
                    and call[1] in FUNCTIONS
                ):
                    raise section.fault(name, f"{show(value)} is a text; a range is tune.{call[1]}(...)")
                if isinstance(value, list) and any(
                    isinstance(each, dict) and "grid_search" in each for each in value
                ):
                    raise section.fault(
                        name, "searches an element of a list; a space has names for its parameters"
                    )
                made.add(given, draws.constant(value), path)


def parameter(section: Section, name: str, text: str) -> Draw:
    """A parameter written as a call of a function of `tune`."""
    try:
        call = ast.parse(text.removeprefix("ray."), mode="eval").body
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        given = [ast.literal_eval(each) for each in call.args]
        named = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    except (SyntaxError, ValueError, AssertionError, RecursionError, MemoryError, TypeError):
        raise section.fault(
            name, f"{show(text)} is no call with plain values, such as tune.uniform(0, 1)"
        ) from None
    function = FUNCTIONS.get(call.func.attr)
    if function is None:
        raise section.fault(
            name, f"tune.{call.func.attr} has no counterpart; there is {', '.join(FUNCTIONS)}"
        )
    named.pop("base", None)  # it changes nothing in Ray
    try:
        bound = inspect.signature(function).bind(*given, **named).arguments
    except TypeError as error:
        raise section.fault(name, f"tune.{call.func.attr}: {error}") from None
    for key, value in bound.items():
        if key == "categories":
            if not isinstance(value, list | tuple) or not value:
                raise section.fault(name, f"must choose among a list of values, not {show(value)}")
            bound[key] = [list(each) if isinstance(each, tuple) else each for each in value]
        else:
            section.checked_number(name, value)
    return drawn(section, function, **bound, key=name)


def _quantised(lower: float, upper: float, q: float, *, log: bool = False) -> Draw:
    if q <= 0:
        raise draws.Unsaid(f"has q {show(q)}, which must be above 0")
    for bound in (lower, upper):
        if not math.isclose(bound / q, round(bound / q)):
            raise draws.Unsaid(f"has the bound {show(bound)}, no multiple of q, which Ray refuses too")
    return draws.rounded(lower, upper, q, log=log)


def _whole(lower: int, upper: int, q: int = 1) -> Draw:
    if not all(isinstance(each, int) for each in (lower, upper, q)) or q < 1:
        raise draws.Unsaid("must have whole numbers, and q of at least 1")
    if q == 1:
        draw = draws.whole(lower, upper - 1)
        return draw.remarked(f"Ray ends below {upper}")
    return draws.whole(math.ceil(lower / q) * q, upper // q * q, q)


def uniform(lower: float, upper: float) -> Draw:
    return draws.uniform(lower, upper)


def quniform(lower: float, upper: float, q: float) -> Draw:
    return _quantised(lower, upper, q)


def loguniform(lower: float, upper: float) -> Draw:
    return draws.log_uniform(lower, upper)


def qloguniform(lower: float, upper: float, q: float) -> Draw:
    return _quantised(lower, upper, q, log=True)


def randn(mean: float = 0.0, sd: float = 1.0) -> Draw:
    return draws.normal(mean, sd)


def qrandn(mean: float, sd: float, q: float) -> Draw:
    return draws.normal(mean, sd, q)


def randint(lower: int, upper: int) -> Draw:
    return _whole(lower, upper)


def qrandint(lower: int, upper: int, q: int = 1) -> Draw:
    return _whole(lower, upper, q)


def lograndint(lower: int, upper: int) -> Draw:
    """The logarithm is uniform and then cut to an integer, which a helper says exactly."""
    if not all(isinstance(each, int) for each in (lower, upper)):
        raise draws.Unsaid("must have whole numbers")
    return draws.floored(lower, upper - 1) if lower != upper else draws.constant(lower)


def qlograndint(lower: int, upper: int, q: int) -> Draw:
    """Ray draws the number of the multiple as `lograndint` does."""
    if not all(isinstance(each, int) for each in (lower, upper, q)) or q < 1:
        raise draws.Unsaid("must have whole numbers, and q of at least 1")
    if q == 1:
        return lograndint(lower, upper)
    return draws.floored(math.ceil(lower / q), upper // q, q)


def choice(categories: Sequence[Any]) -> Draw:
    return draws.choices(categories)


FUNCTIONS: dict[str, Callable[..., Draw]] = {
    "uniform": uniform,
    "quniform": quniform,
    "loguniform": loguniform,
    "qloguniform": qloguniform,
    "randn": randn,
    "qrandn": qrandn,
    "randint": randint,
    "qrandint": qrandint,
    "lograndint": lograndint,
    "qlograndint": qlograndint,
    "choice": choice,
    "grid_search": choice,
}


def _objective(top: Section, made: Converted) -> None:
    with top.source.part():
        made.metric = top.text("metric", METRIC if top.has("run") else made.metric)
        made.metric_path = top.at("metric") if top.has("metric") else ""
        if top.has("mode"):
            made.goal = {"min": "minimize", "max": "maximize"}[top.one_of("mode", ("min", "max"))]
        elif made.metric == METRIC:
            made.goal = "maximize"


def _budget(top: Section, made: Converted) -> None:
    with top.source.part():
        samples = top.whole("num_samples", 1, least=-1)
        if samples < 1 and samples != -1:
            raise top.fault("num_samples", f"must be at least 1, or -1, not {samples}")
        size = None if made.source.issues else grid_size(made.parameters)
        if size is None:
            made.set("search", {"sampler": "random", "seed": 0})
            given = top.has("num_samples") and samples > 0
            made.set("budget.trials", samples if given else TRIALS, top.at("num_samples") if given else "")
        else:
            made.set("search", {"sampler": "grid", "seed": 0})
            more = f"Ray trains each {samples} times; here the best are trained again" if samples > 1 else ""
            made.set("budget.trials", size, "", *([more] if more else ["all of the grid"]))
    with top.source.part():
        seconds = top.number("time_budget_s", None)
        if seconds is not None:
            made.set("budget.time", seconds, top.at("time_budget_s"))
    with top.source.part():
        workers = top.whole("max_concurrent_trials", None, least=1)
        if workers is not None:
            made.set("execution.workers", workers, top.at("max_concurrent_trials"))
