"""An NNI experiment, or its search space alone, as a space.

Its meaning is that of the package `nni` 3.0 (configuration, parameter_expressions, the assessors and tuners).
"""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path
from typing import Any

from ....spaces import SpaceError
from ....spaces.document import read, text_of
from ....spaces.errors import Issue, quoted
from ....spaces.fields import show
from .. import draws
from ..draws import Draw
from .source import Section, Source
from .space import Converted, drawn, grid_size, words_of

METRIC = "default"  # NNI's name of the value that a trial reports
PROGRAM = "train.py"
BATCH = "combine_params"  # the only name in a space of the batch tuner
TRIALS = 50  # NNI has no limit
TOP = (
    "experimentName", "experimentType", "searchSpaceFile", "searchSpace", "trialCommand",
    "trialCodeDirectory", "trialConcurrency", "trialGpuNumber", "maxExperimentDuration", "maxTrialNumber",
    "maxTrialDuration", "nniManagerIp", "useAnnotation", "debug", "logLevel", "experimentWorkingDirectory",
    "tunerGpuIndices", "tuner", "assessor", "advisor", "trainingService", "sharedStorage", "logCollection",
)  # fmt: skip
PLACES = (
    "trainingService", "nniManagerIp", "debug", "logLevel", "experimentWorkingDirectory", "tunerGpuIndices",
    "sharedStorage", "logCollection",
)  # fmt: skip
OLD = ("authorName", "searchSpacePath", "trial", "trainingServicePlatform", "maxExecDuration", "maxTrialNum")
TUNERS: dict[str, tuple[str, str]] = {  # by NNI's name: the sampler, and what is different
    "tpe": ("tpe", ""),
    "tpe_legacy": ("tpe", ""),
    "random": ("random", ""),
    "anneal": ("hyperopt-anneal", "needs pip install 'hpsearch[hyperopt]'"),
    "evolution": ("nsgaii", "NNI's evolution mutates single parameters; nsgaii is Optuna's genetic search"),
    "smac": ("tpe", "SMAC is a random forest; tpe is the nearest sampler for choices and conditions"),
    "gridsearch": ("grid", ""),
    "batch": ("grid", ""),
    "gp": ("gp", ""),
    "metis": ("gp", "Metis is a Gaussian process that also repeats trials; gp is Optuna's"),
    "bohb": ("tpe", "BOHB is tpe and hyperband"),
    "hyperband": ("random", "NNI's hyperband draws at random"),
}
MINIMISING = ("tpe", "tpe_legacy", "anneal")  # by default; the others maximise
WITHOUT_GOAL = ("gridsearch", "batch")
COUNTS = {  # by type: how many numbers `_value` has
    "uniform": 2, "quniform": 3, "loguniform": 2, "qloguniform": 3,
    "normal": 2, "qnormal": 3, "lognormal": 2, "qlognormal": 3, "randint": 2,
}  # fmt: skip
BRACKET_STEP, BRACKET_ETA = 60, 3  # R and eta of NNI's hyperband


def convert(source: Source, data: dict[str, Any]) -> Converted:
    """The space of an experiment, or of a search space alone."""
    made = Converted(source, source.file.stem, metric=METRIC, goal="minimize")
    top = Section(source, "", data)
    if not any(key in data for key in TOP):
        parameters(top, made)
        _command(top, None, ".", made)
        made.to_fill.append("goal")
        made.set("search", {"sampler": "tpe", "seed": 0})
        made.set("budget", {"trials": TRIALS})
        return made
    if old := [key for key in OLD if key in data]:
        raise top.fault(
            old[0],
            f"{quoted(old)} is of NNI's version 1; nnictl of version 2 shows the new keys",
            at_key=True,
        )
    top.known(*TOP)
    with source.part():
        made.name = top.text("experimentName", made.name)
    with source.part():
        if top.text("experimentType", "hpo") != "hpo":
            raise top.fault("experimentType", "searches an architecture, which no space can say")
        if top.flag("useAnnotation", False):
            raise top.fault(
                "useAnnotation", "means that the space is in the program's comments; write it here"
            )
    with source.part():
        batch = top.section("tuner", None).data.get("name")
        if str(batch).lower().removesuffix("tuner") == "batch":
            _batch(top, made)
        else:
            _space(top, made)
    with source.part():
        _command(top, top.text("trialCommand", None), top.text("trialCodeDirectory", "."), made)
    _budget(top, made)
    with source.part():
        _tuner(top, made)
    with source.part():
        _assessor(top, made)
    made.left_out |= {key: "trials run on this machine" for key in PLACES if top.has(key)}
    return made


def parameters(
    section: Section, made: Converted, outer: str = "", when: dict[str, Any] | None = None
) -> None:
    """Add the parameters of a search space; of one branch of a choice, with `when`."""
    for name in section.data:
        if name == "_name" and outer:
            continue
        with section.source.part():
            inner = section.section(name)
            inner.known("_type", "_value")
            if nested := _branches(inner):
                _nested(f"{outer}{name}", inner, nested, made, when)
            else:
                _add(f"{outer}{name}", parameter(inner), inner, made, when)


def parameter(section: Section) -> Draw:
    """A parameter of a search space that is no nested choice."""
    kind = section.one_of("_type", ("choice", *COUNTS))
    values = section.items("_value")
    if kind == "choice":
        return drawn(section, draws.choices, values, key="_value")
    numbers = [section.checked_number(f"_value[{index}]", value) for index, value in enumerate(values)]
    if len(numbers) != COUNTS[kind]:
        message = f"must have {COUNTS[kind]} numbers for {kind}, not {len(numbers)}"
        raise section.fault("_value", message)
    a, b, *rest = numbers
    q = rest[0] if rest else None
    if "normal" in kind:
        make = draws.log_normal if "log" in kind else draws.normal
        return drawn(section, make, a, b, q, key="_value")
    if kind == "randint":
        draw = drawn(section, draws.whole, math.ceil(a), math.ceil(b) - 1, key="_value")
        return draw.remarked(f"randint ends below {b}")
    if q is not None:
        return drawn(section, draws.rounded, a, b, q, log="log" in kind, clipped=True, key="_value")
    return drawn(section, draws.log_uniform if "log" in kind else draws.uniform, a, b, key="_value")


def _branches(section: Section) -> list[dict[str, Any]]:
    """The branches of a nested choice; empty for any other parameter."""
    values = section.data.get("_value")
    if section.data.get("_type") != "choice" or not isinstance(values, list):
        return []
    return values if all(isinstance(value, dict) and "_name" in value for value in values) else []


def _nested(
    name: str, section: Section, branches: list[dict[str, Any]], made: Converted, when: dict[str, Any] | None
) -> None:
    """A choice whose branches have parameters of their own."""
    names = [branch["_name"] for branch in branches]
    for index, given in enumerate(names):
        if not isinstance(given, str):
            raise section.fault(f"_value[{index}]", f'"_name" must be a text, not {show(given)}')
    choice = drawn(section, draws.choices, names, key="_value")
    chosen = _add(f"{name}._name", choice, section, made, when)
    for index, branch in enumerate(branches):
        inner = Section(section.source, section.at("_value") + f"[{index}]", branch)
        parameters(inner, made, f"{name}.", {**(when or {}), chosen: [branch["_name"]]})


def _add(name: str, draw: Draw, section: Section, made: Converted, when: dict[str, Any] | None) -> str:
    """Add a parameter, or the condition of one that another branch has with the same values."""
    same = [each for each in made.parameters if each.given == name]
    if not same or when is None:
        return made.add(name, draw, section.path, when=when)
    (other,) = same
    before = dict(other.value.get("when", {})) if isinstance(other.value, dict) else {}
    differing = [key for key in before if before[key] != when.get(key)]
    plain = draw.value if isinstance(draw.value, dict) else {"choices": draw.value}
    is_same = {key: value for key, value in other.value.items() if key != "when"} == plain
    if draw.helper or not is_same or before.keys() != when.keys() or len(differing) != 1:
        message = f'"{name}" is also at {made.source.place(other.path)} with other values'
        raise section.fault("", f"{message}; a parameter has one range: give one of them another name")
    (key,) = differing
    merged = {**before, key: [*before[key], *when[key]]}
    value = {**plain, "when": merged}
    index = made.parameters.index(other)
    made.parameters[index] = type(other)(other.name, other.given, value, other.path, other.remarks)
    return other.name


def _space(top: Section, made: Converted) -> None:
    if top.has("searchSpace"):
        if top.has("searchSpaceFile"):
            raise top.fault("searchSpaceFile", "stands beside searchSpace; NNI takes one of them")
        parameters(top.section("searchSpace"), made)
        return
    if not top.has("searchSpaceFile"):
        raise top.fault("", '"searchSpace" or "searchSpaceFile" is missing')
    path = made.source.file.parent / top.text("searchSpaceFile")
    try:
        data, places, faults = read(text_of(path), str(path))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8"
        raise top.fault("searchSpaceFile", f"{path} cannot be read: {why}") from None
    if faults or not isinstance(data, dict):
        raise SpaceError(faults or [Issue(str(path), 1, 1, "", "is not a mapping of parameters")])
    inner = Source(Path(path), made.source.tool, places)
    own = made.source
    made.source = inner
    parameters(Section(inner, "", data), made)
    made.source = own
    own.issues += inner.issues
    made.parameters[:] = [
        type(each)(each.name, each.given, each.value, "", (f"from {inner.place(each.path)}", *each.remarks),
                   each.is_helper)
        for each in made.parameters
    ]  # fmt: skip


def _batch(top: Section, made: Converted) -> None:
    """The configurations that NNI's batch tuner tries, one after the other."""
    space = top.section("searchSpace")
    if list(space.data) != [BATCH]:
        raise space.fault("", f"must hold {BATCH} alone for the batch tuner")
    section = space.section(BATCH)
    groups = section.items("_value")
    for index, group in enumerate(groups):
        if not isinstance(group, dict) or not group:
            raise section.fault(f"_value[{index}]", f"must be a mapping with keys, not {show(group)}")
    at = section.at("_value")
    why = f"a helper: the number of the mapping in {BATCH}"
    made.add_one_of(section, groups, "batch", at, why, lambda index, name: f"{at}[{index}].{name}")


def _command(top: Section, command: str | None, folder: str, made: Converted) -> None:
    if command is None:
        made.to_fill.append(PROGRAM)
        made.command = ["python", PROGRAM, "${args}"]
    else:
        made.command_path = "trialCommand"
        made.command = drawn(top, words_of, command, key="trialCommand")
    if Path(folder) != Path():
        if made.command[:2] == ["bash", "-c"]:
            made.command = ["bash", "-c", f'cd "$0" && {made.command[2]}', folder, "${args}"]
        else:
            words = shlex.join(made.command[:-1])
            made.command = ["bash", "-c", f'cd "$0" && exec {words} "$@"', folder, "${args}"]
        made.command_remarks.append(f"in {folder}, as trialCodeDirectory says")
    nested = any("._name" in each.given for each in made.parameters)
    made.remarks += [
        "In the program, nni.get_next_parameter() must become options such as --name=value, of argparse for",
        "instance; nni.report_intermediate_result(x) becomes report(x, step=step) of hpsearch.objectives,",
        "and nni.report_final_result(x) is its last report.",
    ]
    if nested:
        made.remarks.append("A nested choice gives options such as --layer._name=conv --layer.size=3.")


def _budget(top: Section, made: Converted) -> None:
    source = made.source
    with source.part():
        trials = top.whole("maxTrialNumber", None, least=1)
        if trials is not None:
            made.set("budget.trials", trials, "maxTrialNumber")
    with source.part():
        if (seconds := _time(top, "maxExperimentDuration")) is not None:
            made.set("budget.time", seconds, "maxExperimentDuration")
    if not any(setting.key.startswith("budget.") for setting in made.settings) and not source.issues:
        made.set("budget.trials", TRIALS, "", "NNI has no limit without maxTrialNumber")
    with source.part():
        workers = top.whole("trialConcurrency", None, least=1)
        if workers is not None:
            made.set("execution.workers", workers, "trialConcurrency")
    with source.part():
        gpus = top.whole("trialGpuNumber", None, least=0)
        if gpus is not None:
            made.set("execution.gpus_per_trial", gpus, "trialGpuNumber")
    with source.part():
        if (seconds := _time(top, "maxTrialDuration")) is not None:
            made.set("execution.trial_timeout", seconds, "maxTrialDuration")


def _time(top: Section, key: str) -> str | int | None:
    """A time as NNI writes it: `1h`, `0.5d`, or seconds."""
    value = top.get(key, None)
    if isinstance(value, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?\s*[dhmsDHMS]", value.strip()):
        return value.strip().lower()
    return top.whole(key, None, least=1)  # type: ignore[no-any-return]


def _tuner(top: Section, made: Converted) -> None:
    key = "advisor" if top.has("advisor") and not top.has("tuner") else "tuner"
    tuner = top.section(key)
    tuner.known("name", "className", "codeDirectory", "classArgs")
    if tuner.has("className"):
        raise tuner.fault("className", "is a tuner of your own, which a space cannot run")
    name = tuner.text("name")
    plain = name.lower().removesuffix("tuner").removesuffix("advisor")
    if plain not in TUNERS:
        raise tuner.fault("name", f"{show(name)} has no counterpart; there is {', '.join(TUNERS)}")
    arguments = tuner.section("classArgs", None)
    default = "minimize" if plain in MINIMISING else "maximize"
    made.goal = arguments.one_of("optimize_mode", ("minimize", "maximize"), default)
    sampler, remark = TUNERS[plain]
    remarks = [remark] if remark else []
    if not arguments.has("optimize_mode"):
        what = "has no direction there: check goal" if plain in WITHOUT_GOAL else f"is to {default}"
        remarks.append(f"without optimize_mode, {name} {what}")
    if plain == "gridsearch" and not made.source.issues and grid_size(made.parameters) is None:
        sampler = "qmc"
        remarks.append(
            "NNI's grid has more and more points of a continuous range; qmc fills the space evenly"
        )
    seed = arguments.whole("seed", 0, least=0)
    options = [
        each
        for each in arguments.data
        if each not in ("optimize_mode", "seed", "R", "eta", "max_budget", "min_budget")
    ]
    if options:
        made.left_out |= {
            f"{key}.classArgs.{each}": "the samplers here have options of their own" for each in options
        }
    made.set("search", {"sampler": sampler, "seed": seed}, tuner.at("name"), *remarks)
    if plain in ("hyperband", "bohb"):
        first = arguments.whole("min_budget", 1, least=1)
        last = arguments.whole(
            "R" if plain == "hyperband" else "max_budget", BRACKET_STEP if plain == "hyperband" else 3
        )
        stopping = {
            "method": "hyperband",
            "min": first,
            "max": last,
            "eta": arguments.whole("eta", BRACKET_ETA, least=2),
        }
        why = "NNI tells a trial how long to train (TRIAL_BUDGET); here every trial is told to train to max"
        made.set("early_stopping", stopping, tuner.at("name"), why)


def _assessor(top: Section, made: Converted) -> None:
    assessor = top.section("assessor", None)
    if not assessor.data:
        return
    assessor.known("name", "className", "codeDirectory", "classArgs")
    if assessor.has("className"):
        raise assessor.fault("className", "is an assessor of your own, which a space cannot run")
    name = assessor.text("name")
    if name.lower().removesuffix("assessor") != "medianstop":
        message = (
            f"{show(name)} has no counterpart; there is Medianstop, or early_stopping: {{method: asha, ...}}"
        )
        raise assessor.fault("name", message)
    arguments = assessor.section("classArgs", None)
    arguments.known("optimize_mode", "start_step")
    mode = arguments.one_of("optimize_mode", ("minimize", "maximize"), "maximize")
    if mode != made.goal and not made.source.issues:
        said = f"is to {mode}" if arguments.has("optimize_mode") else f"is to {mode} without optimize_mode"
        raise assessor.fault("name", f"{said}, but the tuner is to {made.goal}: it would end the best trials")
    start = arguments.whole("start_step", 0, least=0)
    why = "NNI compares with the running averages of complete trials, the median here with their values there"
    stopping = {"method": "median", "n_startup_trials": 1, "n_warmup_steps": start}
    made.set("early_stopping", stopping, assessor.path, why)
