"""A W&B sweep as a space.

Its meaning is that of the packages `sweeps` 0.2.0 (schema, sampling, hyperband) and `wandb` 0.31.0 (the agent
and its macros).
"""

from __future__ import annotations

import math
from typing import Any

from ....spaces.fields import show
from .. import draws
from ..draws import Draw
from .source import Section, Source
from .space import OURS, WORDS_OF_ALL, Converted, Setting, drawn, grid_size, length_of

TOP = (
    "apiVersion", "kind", "method", "program", "command", "name", "description", "metric", "metrics",
    "parameters", "early_terminate", "run_cap", "project", "entity", "controller", "scheduler", "job",
    "image_uri", "settings", "prior_runs",
)  # fmt: skip
SERVER = ("project", "entity", "controller", "settings", "apiVersion", "kind")
DEFAULT_COMMAND = ["${env}", "${interpreter}", "${program}", "${args}"]
MACROS = {*OURS, *WORDS_OF_ALL, "${env}", "${interpreter}", "${program}"}
PROGRAM = "train.py"
TRIALS = 50  # W&B has no limit
ETA = 3  # of hyperband, by default
RUNGS = 4  # in a space, where the sweep has no end
# By distribution: its keys besides `distribution`.
BOUNDED = ("min", "max")
QUANTISED = ("min", "max", "q")
AROUND = ("mu", "sigma")
KEYS = {
    "constant": ("value",),
    "categorical": ("values",),
    "categorical_w_probabilities": ("values", "probabilities"),
    **dict.fromkeys(("uniform", "int_uniform", "log_uniform", "log_uniform_values"), BOUNDED),
    **dict.fromkeys(("inv_log_uniform", "inv_log_uniform_values"), BOUNDED),
    **dict.fromkeys(("q_uniform", "q_log_uniform", "q_log_uniform_values"), QUANTISED),
    **dict.fromkeys(("normal", "log_normal"), AROUND),
    **dict.fromkeys(("q_normal", "q_log_normal"), (*AROUND, "q")),
    "beta": ("a", "b"),
    "q_beta": ("a", "b", "q"),
}
EXAMPLE = "as in parameters: {lr: {min: 0.0001, max: 0.1}}"
IN_A_GRID = ("constant", "categorical", "int_uniform", "q_uniform")


def convert(source: Source, data: dict[str, Any]) -> Converted:
    """The space of a sweep."""
    top = Section(source, "", data)
    made = Converted(source, source.file.stem)
    top.known(*TOP)
    with source.part():
        made.name = top.text("name", made.name)
    method = ""
    with source.part():
        method = top.one_of("method", ("bayes", "random", "grid"))
    _command(top, made)
    _metric(top, made, method)
    with source.part():
        if isinstance(names := data["parameters"], list):
            raise top.fault("parameters", f"is a list, {show(names)}: give each name its values, {EXAMPLE}")
        _parameters(top.section("parameters"), made, grid=method == "grid")
    _search(top, made, method)
    with source.part():
        _stopping(top, made)
    for key in ("metrics", "scheduler", "job", "image_uri", "prior_runs"):
        if top.has(key):
            with source.part():
                raise top.fault(key, NOT_HERE[key], at_key=True)
    made.left_out |= {key: "only W&B's server knows it" for key in SERVER if top.has(key)}
    made.left_out |= {key: "it is only shown there" for key in ("description",) if top.has(key)}
    return made


NOT_HERE = {
    "metrics": "names several objectives; a space has one: keep the one to search by as metric: {name, goal}",
    "scheduler": "has functions of its own; leave it out, and choose with search: {sampler: ...}",
    "job": "runs a job of W&B Launch; write its program as program: or command:",
    "image_uri": "runs an image; write its program as program: or command:",
    "prior_runs": "adds runs of W&B's server; leave it out",
}


def parameter(section: Section, *, grid: bool = False) -> Draw:
    """A parameter of a sweep."""
    kind = section.text("distribution") if section.has("distribution") else _kind(section)
    if kind not in KEYS:
        raise section.fault("distribution", f"is none of W&B's: {', '.join(KEYS)}")
    section.known("distribution", *KEYS[kind], but=f"{kind} takes {', '.join(KEYS[kind])}")
    if grid and kind not in IN_A_GRID:
        raise section.fault("distribution", f"{kind} is in no grid; W&B's has {', '.join(IN_A_GRID)}")
    if kind == "constant":
        if "value" not in section.data:
            raise section.fault("", '"value" is missing')
        return draws.constant(section.data["value"])
    if kind.startswith("categorical"):
        return _choices(section)
    if kind in ("beta", "q_beta"):
        return _beta(section, kind)
    q = section.number("q", 1.0) if "q" in KEYS[kind] else None
    whole = isinstance(q, int)
    if KEYS[kind][:2] == AROUND:
        mean, deviation = section.number("mu", 0.0), section.number("sigma", 1.0)
        around = draws.log_normal if "log" in kind else draws.normal
        return drawn(section, around, mean, deviation, q, whole_numbers=whole)
    if kind == "int_uniform":
        return drawn(section, draws.whole, section.whole("min"), section.whole("max"))
    low, high = section.number("min"), section.number("max")
    remarks: list[str] = []
    if kind in ("log_uniform", "q_log_uniform", "inv_log_uniform"):  # exponents, of base e
        if kind.startswith("inv"):
            low, high = -high, -low
        remarks = [f"e to the power of {low:g} and of {high:g}"]
        low, high = (drawn(section, draws.power, math.e, bound) for bound in (low, high))
    if kind == "q_uniform" and grid:
        return drawn(section, _grid, low, high, q, whole=whole)
    if kind.startswith("q_"):
        log = "log" in kind
        return drawn(section, draws.rounded, low, high, q, log=log, whole_numbers=whole).remarked(*remarks)
    make = draws.log_uniform if "log" in kind else draws.uniform
    return drawn(section, make, low, high).remarked(*remarks)


def _kind(section: Section) -> str:
    """The distribution of a parameter that names none."""
    if "value" in section.data:
        return "constant"
    if "values" in section.data:
        return "categorical_w_probabilities" if section.has("probabilities") else "categorical"
    if not section.has("min") or not section.has("max"):
        raise section.fault("", "needs value, values, parameters, a distribution, or min and max")
    whole = all(type(section.data[key]) is int for key in BOUNDED)
    return "int_uniform" if whole else "uniform"


def _choices(section: Section) -> Draw:
    values, weights = section.items("values"), section.items("probabilities", None)
    if weights is not None:
        if len(weights) != len(values):
            message = f"has {len(weights)} weights for {len(values)} values"
            raise section.fault("probabilities", message)
        weights = [
            section.checked_number(f"probabilities[{index}]", weight) for index, weight in enumerate(weights)
        ]
        if abs(sum(weights) - 1) > 1e-6:
            raise section.fault("probabilities", f"sum to {sum(weights):g}, not 1")
    return drawn(section, draws.choices, values, weights, key="values")


def _beta(section: Section, kind: str) -> Draw:
    a, b = section.number("a", 1), section.number("b", 1)
    if (a, b) != (1, 1):
        message = "is a beta distribution, which no space can say; take min and max, and a prior"
        raise section.fault("distribution", message)
    if kind == "beta":
        return drawn(section, draws.uniform, 0.0, 1.0)
    q = section.number("q", 1.0)
    return drawn(section, draws.rounded, 0.0, 1.0, q, whole_numbers=isinstance(q, int))


def _grid(low: float, high: float, q: float, *, whole: bool) -> Draw:
    """The values of a grid search: from min by q to below max, as `numpy.arange` counts them."""
    if q <= 0:
        raise draws.Unsaid(f"must be above 0, not {show(q)}", "q")
    count = max(math.ceil((high - low) / q), 0)
    if count == 0:
        raise draws.Unsaid(f"has no value from {show(low)} to below {show(high)}")
    all_whole = whole and isinstance(low, int) and isinstance(high, int)
    last = low + (count - 1) * q
    draw = draws.whole(low, last, q) if all_whole else draws.stepped(low, float(f"{last:.12g}"), q)  # type: ignore[arg-type]
    return draw.remarked("a grid of W&B's ends below max")


def _parameters(section: Section, made: Converted, *, grid: bool, outer: str = "") -> None:
    for name in section.data:
        with section.source.part():
            inner = section.section(name)
            if "parameters" in inner.data:
                inner.known("parameters")
                made.command_remarks[:] = [NESTED]
                _parameters(inner.section("parameters"), made, grid=grid, outer=f"{outer}{name}.")
            else:
                draw = parameter(inner, grid=grid)
                form, remarks = _form(inner)
                made.add(f"{outer}{name}", draw.remarked(*remarks), inner.path, form=form)
    if not section.data:
        raise section.fault("", "is empty")


def _form(section: Section) -> tuple[str, list[str]]:
    """The form in which W&B passes these values to the program, which is Python's; and what differs."""
    values = section.data.get("values", [section.data.get("value", 0)])
    if any(isinstance(value, dict) for value in values):
        return "", [NESTED]
    odd = dict.fromkeys(str(value) for value in values if isinstance(value, bool | list | None))
    if odd and not any(isinstance(value, str) for value in values):
        return "literal", []
    return "", [f"W&B passes {' and '.join(odd)}, in Python's form"] if odd else []


NESTED = "nested parameters have dotted names here: --outer.inner=1, where W&B passes --outer={'inner': 1}"


def _command(top: Section, made: Converted) -> None:
    with top.source.part():
        words = top.items("command", None)
        made.command_path = "program" if words is None else "command"
        words = DEFAULT_COMMAND if words is None else words
        program = top.text("program", None)
        if program is None and "${program}" in words:
            made.to_fill.append(PROGRAM)
            made.command_path = ""
        for index, word in enumerate(words):
            text = word if isinstance(word, str) else str(word)
            if isinstance(word, dict | list) or not text.strip() or "\0" in text:
                raise top.fault(f"command[{index}]", f"must be a word, not {show(word)}")
            if "${" in text and text not in MACROS:
                raise top.fault(f"command[{index}]", _unknown_macro(text))
            made.command.append((program or PROGRAM) if text == "${program}" else text)


def _unknown_macro(word: str) -> str:
    if "${envvar:" in word:
        return f'"{word}" is filled in by W&B; write the value of the environment variable itself'
    if word == "${args_json_file}":
        return f'"{word}" has no counterpart; use ${{args_json}}, or ${{config:FILE}} with a file to fill in'
    return (
        f'"{word}" is no macro that stands here; there is {", ".join(sorted(MACROS))}, each a word of its own'
    )


def _metric(top: Section, made: Converted, method: str) -> None:
    with top.source.part():
        metric = top.section("metric", None)
        if not metric.data:
            if method == "bayes" or top.has("early_terminate"):
                needed = "method: bayes" if method == "bayes" else "early_terminate"
                raise top.fault("", f'"metric" is missing, which {needed} needs')
            made.metric_remarks.append("with report: {wandb: METRIC}, wandb.config has the values too")
            return
        metric.known("name", "goal", "target", "impute")
        made.metric, made.metric_path = metric.text("name"), metric.at("name")
        made.goal = metric.one_of("goal", ("minimize", "maximize"), "minimize")
        why = "what the program gives to wandb.log, offline; without this line, what it prints"
        made.reading.append(Setting("report", {"wandb": made.metric}, metric.at("name"), (why,)))
        if metric.has("impute"):
            made.left_out["metric.impute"] = "a failed trial has no value here"


def _search(top: Section, made: Converted, method: str) -> None:
    remark = ("W&B's bayes is a Gaussian process; gp is Optuna's",) if method == "bayes" else ()
    sampler = {"bayes": "gp", "random": "random", "grid": "grid"}.get(method, "random")
    made.set("search", {"sampler": sampler, "seed": 0}, "method", *remark)
    cap: int | None = None
    target: float | None = None
    with top.source.part():
        cap = top.whole("run_cap", None, least=1)
    with top.source.part():
        target = top.section("metric", None).number("target", None)
    if cap is not None:
        made.set("budget.trials", cap, "run_cap")
    elif method == "grid":
        size = None if top.source.issues else grid_size(made.parameters)
        made.set("budget.trials", size or TRIALS, "", "all of the grid")
    else:
        made.set("budget.trials", TRIALS, "", "W&B has no limit without run_cap")
    if target is not None:
        made.set("budget.target", float(target), "metric.target")


def _stopping(top: Section, made: Converted) -> None:
    section = top.section("early_terminate", None)
    if not section.data:
        return
    section.known("type", "min_iter", "max_iter", "s", "eta", "strict")
    section.one_of("type", ("hyperband",))
    eta = section.number("eta", ETA)
    if eta != int(eta) or eta < 2:
        raise section.fault("eta", f"must be a whole number of at least 2 here, not {show(eta)}")
    remarks = [
        "W&B's hyperband has one bracket, which is asha here; it counts values of the metric, not steps"
    ]
    if section.has("max_iter"):
        last, s = section.whole("max_iter", least=2), section.whole("s", least=1)
        bands = [band for power in range(1, s + 1) if (band := int(last / eta**power)) >= 1]
        if not bands:
            raise section.fault("max_iter", f"is too small for eta {eta}: no band is above 0")
        first = bands[-1]
    else:
        first = section.whole("min_iter", least=1)
        last = length_of(made.parameters) or 0
        if last <= first:
            last = first * int(eta) ** RUNGS
            more = "max must be the last step of a trial"
            remarks.append(f"W&B goes on comparing at every power of {eta}; {more}")
            made.to_fill.append("early_stopping.max")
    if section.flag("strict", False):
        remarks.append("strict has no counterpart: a trial is compared at each rung that it reaches")
    stopping = {"method": "asha", "min": first, "max": last, "eta": int(eta)}
    made.set("early_stopping", stopping, section.path, *remarks)
