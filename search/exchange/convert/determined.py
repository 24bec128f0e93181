"""A Determined experiment as a space.

Its meaning is that of the package `determined` 0.38.1 (local sampling, launchers), of the schemas in 0.19.11
and of the searchers in its master's repository.
"""

from __future__ import annotations

import math
import re
from typing import Any

from ....spaces.fields import show
from ....spaces.parameters import MOST_CHOICES
from .. import draws
from ..draws import Draw, Unsaid
from .source import Section, Source
from .space import Converted, drawn, grid_size, words_of

PROGRAM = "train.py"
TYPES = {
    "const": ("val",),
    "int": ("minval", "maxval", "count"),
    "double": ("minval", "maxval", "count"),
    "log": ("minval", "maxval", "base", "count"),
    "categorical": ("vals",),
}
TOP = (
    "name", "description", "entrypoint", "hyperparameters", "searcher", "max_restarts", "resources",
    "environment",
    "reproducibility", "labels", "workspace", "project", "data", "data_layer", "bind_mounts",
    "checkpoint_policy", "checkpoint_storage", "debug", "min_checkpoint_period", "min_validation_period",
    "optimizations", "profiling", "perform_initial_validation", "records_per_epoch", "scheduling_unit",
    "slurm", "pbs", "integrations", "log_policies", "retention_policy", "tensorboard_storage", "security",
    "internal", "preemption_timeout",
)  # fmt: skip
CONVERTED_KEYS = ("name", "entrypoint", "hyperparameters", "searcher", "max_restarts", "reproducibility")
PARTLY = ("resources", "environment")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
UNITS = {"batches": "steps", "records": "samples", "epochs": "epochs"}
SEARCHERS = ("random", "grid", "adaptive_asha", "async_halving")
SEARCHER = (
    "name", "metric", "smaller_is_better", "max_trials", "max_concurrent_trials", "max_length", "max_time",
    "time_metric", "source_trial_id", "source_checkpoint_uuid",
)  # fmt: skip
OF_ASHA = ("mode", "divisor", "max_rungs", "bracket_rungs", "stop_once", "num_rungs")
DIVISOR, MAX_RUNGS = 4, 5  # by default
TRIAL_CLASS = re.compile(r"[\w.]+:\w+")
VARIABLES = "environment_variables"
LAUNCHER = re.compile(r"(python3?\s+-m\s+)?determined\.launch\.[\w.]+\s+")


EXAMPLE = "{name: random, metric: ..., max_trials: ...}"


def _searcher(name: str) -> str:
    """What a searcher is to a space."""
    if name == "single":
        return f"{show(name)} trains one configuration: there is nothing to search"
    return f"{show(name)} " + ("is the name alone" if name in SEARCHERS else "has no counterpart")


def convert(source: Source, data: dict[str, Any]) -> Converted:
    """The space of an experiment."""
    top = Section(source, "", data)
    made = Converted(source, source.file.stem)
    top.known(*TOP)
    with source.part():
        made.name = top.text("name", made.name)
    if isinstance(data["searcher"], str):
        raise top.fault("searcher", f"{_searcher(data['searcher'])}; write it as a mapping: {EXAMPLE}")
    searcher = top.section("searcher")
    name = ""
    with source.part():
        name = searcher.text("name")
        if name not in SEARCHERS:
            raise searcher.fault("name", f"{_searcher(name)}; a space has {', '.join(SEARCHERS)}")
    with source.part():
        parameters(top.section("hyperparameters"), made, grid=name == "grid")
    with source.part():
        _command(top, made)
    searcher.known(*SEARCHER, *(OF_ASHA if name in ("adaptive_asha", "async_halving") else ()))
    with source.part():
        made.metric, made.metric_path = searcher.text("metric"), searcher.at("metric")
        made.goal = "minimize" if searcher.flag("smaller_is_better", True) else "maximize"
    seed = 0
    with source.part():
        seed = top.section("reproducibility", None).whole("experiment_seed", 0, least=0)
    made.set("search", {"sampler": "grid" if name == "grid" else "random", "seed": seed}, searcher.at("name"))
    if name in ("adaptive_asha", "async_halving"):
        with source.part():
            _stopping(searcher, made, name)
    _budget(top, searcher, made, name)
    with source.part():
        slots = top.section("resources", None).whole("slots_per_trial", None, least=0)
        if slots is not None:
            made.set("execution.gpus_per_trial", slots, "resources.slots_per_trial")
    place = "it describes Determined's cluster, its files and its screens"
    others = [key for key in data if key in TOP and key not in CONVERTED_KEYS and top.has(key)]
    made.left_out |= {key: place for key in others if key not in PARTLY}
    for outer, converted in (("resources", "slots_per_trial"), ("environment", VARIABLES)):
        with source.part():
            inside = top.section(outer, None)
            made.left_out |= {inside.at(key): place for key in inside.data if key != converted}
    return made


def parameters(section: Section, made: Converted, *, grid: bool, outer: str = "") -> None:
    """Add hyperparameters; a mapping without a type holds others."""
    for name, value in section.data.items():
        with section.source.part():
            if isinstance(value, dict) and "type" not in value:
                parameters(section.section(name), made, grid=grid, outer=f"{outer}{name}.")
            elif isinstance(value, dict):
                made.add(f"{outer}{name}", parameter(section.section(name), grid=grid), section.at(name))
            else:
                made.add(f"{outer}{name}", draws.constant(value), section.at(name))


def parameter(section: Section, *, grid: bool = False) -> Draw:
    """A hyperparameter with a type."""
    kind = section.one_of("type", TYPES)
    section.known("type", *TYPES[kind])
    if kind == "const":
        if "val" not in section.data:
            raise section.fault("", '"val" is missing')
        return draws.constant(section.data["val"])
    if kind == "categorical":
        return drawn(section, draws.choices, section.items("vals"), key="vals")
    read = section.whole if kind == "int" else section.number
    low, high = read("minval"), read("maxval")
    base = section.number("base") if kind == "log" else 0
    if kind == "log" and base <= 0:
        raise section.fault("base", f"must be above 0, not {show(base)}")
    if low > high:
        raise section.fault("minval", f"must be below maxval {show(high)}, not {show(low)}")
    if grid:
        count = section.whole("count", None, least=1)
        if count is None:
            raise section.fault("", '"count" is missing, which a grid needs')
        return drawn(section, _grid, kind, low, high, count, base)
    if kind == "int":
        remark = "Determined's master draws below maxval, and has maxval itself only in a grid"
        return drawn(section, draws.whole, low, high, key="minval").remarked(remark)
    if kind == "double":
        return drawn(section, draws.uniform, low, high, key="minval")
    ends = sorted(drawn(section, draws.power, base, bound, key="minval") for bound in (low, high))
    draw = drawn(section, draws.log_uniform, *ends, key="minval")
    return draw.remarked(f"{base:g} to the power of {low:g} and of {high:g}")


def _grid(kind: str, low: float, high: float, count: int, base: float) -> Draw:
    """The values of a grid: `count` of them at equal distances, ends included."""
    count = min(count, int(high - low) + 1) if kind == "int" else count
    if count > MOST_CHOICES:
        raise Unsaid(f"{count:,} values are more than a list has, {MOST_CHOICES:,}", "count")
    part = [index / (count - 1) for index in range(count)] if count > 1 else [0.5]
    values: list[float] = [low + share * (high - low) for share in part]
    if kind == "int":
        values = [_away_from_zero(value) for value in values]
    elif kind == "log":
        values = [draws.power(base, value) for value in values]
    values = [value if isinstance(value, int) else float(f"{value:.12g}") for value in values]
    values = list(dict.fromkeys(values))
    return draws.constant(values[0]) if len(values) == 1 else draws.choices(values)


def _away_from_zero(value: float) -> int:
    """The nearest integer; of two, the one that is farther from 0, as Go rounds."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def _command(top: Section, made: Converted) -> None:
    entry = top.get("entrypoint", None)
    made.command_path = "entrypoint" if entry is not None else ""
    words: list[str] | None = None
    if isinstance(entry, list) and entry and all(isinstance(word, str) and word.strip() for word in entry):
        text = " ".join(entry)
        words = entry
    elif isinstance(entry, str) and entry.strip():
        text = entry.strip()
    elif entry is None:
        text = ""
    else:
        raise top.fault("entrypoint", f"must be a command, not {show(entry)}")
    if launcher := LAUNCHER.match(text):
        text, words = text[launcher.end() :], None
        text = text.removeprefix("-- ")
        what = "for several processes a trial, execution: {processes_per_trial: ...} starts them"
        made.command_remarks.append(f"without {launcher[0].strip()}: {what}")
    if not text or TRIAL_CLASS.fullmatch(text):
        if text:
            made.command_remarks.append(
                f"{text} is a class that only Determined runs; a program must train it"
            )
        made.to_fill.append(PROGRAM)
        made.command = ["python", PROGRAM, "${args}"]
    else:
        made.command = drawn(top, words_of, words or text, key="entrypoint")
    with top.source.part():
        made.command[:0] = _environment(top)
    made.remarks += [
        "In the program, det.get_cluster_info().trial.hparams and context.get_hparam() must become options",
        "such as --name=value, of argparse for instance, and core_context.train.report_validation_metrics",
        "becomes report(value, step=step) of hpsearch.objectives.",
    ]


def _environment(top: Section) -> list[str]:
    """The program that sets the variables of an experiment."""
    environment = top.section("environment", None)
    given = environment.get(VARIABLES, None) or []
    if isinstance(given, dict):  # of kinds of machine
        if len(given) != 1 or not isinstance(next(iter(given.values())), list):
            raise environment.fault(
                VARIABLES, "is of several kinds of machine: leave the one of this machine"
            )
        (given,) = given.values()
    if not isinstance(given, list):
        raise environment.fault(VARIABLES, f"must be a list of texts NAME=VALUE, not {show(given)}")
    for index, each in enumerate(given):
        if not isinstance(each, str) or not ASSIGNMENT.fullmatch(each):
            message = f"must be a text NAME=VALUE, not {show(each)}"
            raise environment.source.fault(f"{environment.at(VARIABLES)}[{index}]", message)
    return ["${env}", *given] if given else []


def _length(searcher: Section) -> tuple[int | None, str | None, str]:
    """The longest training of a trial, what it counts, and the key that says so."""
    if searcher.has("max_time"):
        metric = searcher.text("time_metric", "batches")
        return searcher.whole("max_time", least=1), UNITS.get(metric), "max_time"
    given = searcher.get("max_length", None)
    if isinstance(given, dict):
        section = searcher.section("max_length")
        if len(given) != 1 or next(iter(given)) not in UNITS:
            raise searcher.fault("max_length", f"must be one of {', '.join(UNITS)}, with a number")
        (unit,) = given
        return section.whole(unit, least=1), UNITS[unit], "max_length"
    return searcher.whole("max_length", None, least=1), None, "max_length"


def _stopping(searcher: Section, made: Converted, name: str) -> None:
    last, unit, key = _length(searcher)
    if last is None:
        raise searcher.fault(
            "", f'"max_time" is missing, the longest training of a trial, which {name} needs'
        )
    divisor = searcher.number("divisor", DIVISOR)
    if divisor != int(divisor) or divisor < 2:
        raise searcher.fault("divisor", f"must be a whole number of at least 2 here, not {show(divisor)}")
    eta = int(divisor)
    trials = searcher.whole("max_trials", least=1)
    most = [int(math.log(number) / math.log(eta) + 1e-9) + 1 for number in (last, trials)]
    if name == "async_halving":
        rungs, mode = searcher.whole("num_rungs", least=1), "aggressive"
    elif brackets := searcher.items("bracket_rungs", None):
        numbers = [
            searcher.checked_number(f"bracket_rungs[{index}]", each) for index, each in enumerate(brackets)
        ]
        rungs, mode = int(max(numbers)), "aggressive" if len(numbers) == 1 else "standard"
    else:
        mode = searcher.one_of("mode", ("aggressive", "standard", "conservative"), "standard")
        rungs = min(searcher.whole("max_rungs", MAX_RUNGS, least=1), *most)
    first = max(1, last // eta ** (rungs - 1))
    if first >= last:
        made.left_out[f"searcher.{name}"] = "with these numbers it has one rung, at which every trial ends"
        return
    remarks = []
    if mode != "aggressive":
        remarks.append(
            f"Determined's brackets of mode {mode} begin later than each other, as those of hyperband do"
        )
    stopping: dict[str, Any] = {"method": "asha" if mode == "aggressive" else "hyperband"}
    stopping |= {"min": first, "max": last, "eta": eta}
    if searcher.has("stop_once") and not searcher.flag("stop_once"):
        stopping["type"] = "promotion"
    if unit is not None:
        stopping["resource"] = unit
    made.set("early_stopping", stopping, searcher.at(key), *remarks)


def _budget(top: Section, searcher: Section, made: Converted, name: str) -> None:
    source = made.source
    with source.part():
        if name == "grid":
            size = None if source.issues else grid_size(made.parameters)
            made.set("budget.trials", size or 1, "", "all of the grid")
        else:
            made.set("budget.trials", searcher.whole("max_trials", least=1), searcher.at("max_trials"))
    with source.part():
        workers = searcher.whole("max_concurrent_trials", None, least=0)
        if workers:
            made.set("execution.workers", workers, searcher.at("max_concurrent_trials"))
    with source.part():
        restarts = top.whole("max_restarts", None, least=0)
        if restarts is not None:
            made.set("execution.retries", restarts, "max_restarts")
    with source.part():
        last, unit, key = _length(searcher)
        if last is not None and name in ("random", "grid"):
            made.left_out[f"searcher.{key}"] = f"the program itself ends after {last} {unit or 'steps'}"
    for key in ("source_trial_id", "source_checkpoint_uuid"):
        if searcher.has(key):
            made.left_out[f"searcher.{key}"] = "the program itself loads a checkpoint to begin from"
