"""A Katib experiment as a space.

Its meaning is that of Katib 0.19 (the package `kubeflow-katib` 0.19.0 for the fields; the suggestion services
over Optuna, Hyperopt and scikit-optimize, the median stopping service and the metrics collectors of its
repository for what they do).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from ....spaces.errors import quoted
from ....spaces.fields import show
from .. import draws
from ..draws import Draw
from .katib_metrics import collector
from .source import Section, Source
from .space import Converted, Setting, drawn, grid_size, name_of

PROGRAM = "train.py"
NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
SPEC = (
    "objective", "algorithm", "earlyStopping", "parameters", "maxTrialCount", "parallelTrialCount",
    "maxFailedTrialCount", "resumePolicy", "trialTemplate", "metricsCollectorSpec", "nasConfig",
)  # fmt: skip
ALGORITHMS: dict[str, tuple[dict[str, Any], str]] = {
    "random": ({"sampler": "random"}, ""),
    "grid": ({"sampler": "grid"}, ""),
    "tpe": ({"sampler": "tpe"}, "Katib's tpe is Hyperopt's; this is Optuna's"),
    "multivariate-tpe": ({"sampler": "tpe", "multivariate": True}, ""),
    "bayesianoptimization": (
        {"sampler": "gp"},
        "Katib's is scikit-optimize's Gaussian process; gp is Optuna's",
    ),
    "cmaes": ({"sampler": "cmaes"}, ""),
    "sobol": ({"sampler": "qmc", "qmc_type": "sobol"}, ""),
    "hyperband": ({"sampler": "random"}, "Katib's hyperband draws at random"),
}
BY_HYPEROPT = ("random", "tpe")  # whose services draw by Hyperopt; the others by Optuna or scikit-optimize
TRIALS = 50  # Katib has no limit
MEDIAN = {"min_trials_required": (3, "n_startup_trials"), "start_step": (4, "n_warmup_steps")}
PLACEHOLDER = re.compile(r"\$\{trialParameters\.([^}]*)\}")
OTHER_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")
TEMPLATE = ("primaryContainerName", "trialParameters", "trialSpec", "configMap")
DISTRIBUTIONS = ("uniform", "logUniform", "normal", "logNormal")


def convert(source: Source, data: dict[str, Any]) -> Converted:
    """The space of an experiment."""
    top = Section(source, "", data)
    made = Converted(source, source.file.stem)
    top.known("apiVersion", "kind", "metadata", "spec", "status")
    with source.part():
        metadata = top.section("metadata", None)
        made.name = metadata.text("name", metadata.text("generateName", made.name)).rstrip("-")
    spec = top.section("spec")
    spec.known(*SPEC)
    if spec.has("nasConfig"):
        with source.part():
            raise spec.fault("nasConfig", "searches an architecture, which no space can say", at_key=True)
    _objective(spec, made)
    with source.part():
        parameters(spec, made)
    with source.part():
        _command(spec, made)
    with source.part():
        _algorithm(spec, made)
    with source.part():
        _stopping(spec, made)
    _budget(spec, made)
    with source.part():
        collector(spec, made)
    if spec.has("resumePolicy"):
        made.left_out["spec.resumePolicy"] = "every study can be resumed"
    if spec.has("maxFailedTrialCount"):
        made.left_out["spec.maxFailedTrialCount"] = (
            "a search goes on when trials fail; it ends where all of them do"
        )
    _of_the_cluster(spec, made)
    return made


def _of_the_cluster(spec: Section, made: Converted) -> None:
    """Say which keys have no counterpart on one machine."""
    place = "it describes the cluster"
    template = spec.section("trialTemplate", None)
    made.left_out |= {template.at(key): place for key in template.data if key not in TEMPLATE}
    with spec.source.part():
        if spec.section("objective").has("additionalMetricNames"):
            pattern = any(setting.key == "report" for setting in made.reading)
            why = (
                "a pattern or a file gives one metric"
                if pattern
                else "all numbers of a report are kept anyway"
            )
            made.left_out["spec.objective.additionalMetricNames"] = why


def parameters(spec: Section, made: Converted) -> None:
    """Add the parameters of an experiment."""
    rounds = spec.section("algorithm", None).get("algorithmName", "") in BY_HYPEROPT
    for index, value in enumerate(spec.items("parameters")):
        path = f"{spec.at('parameters')}[{index}]"
        with spec.source.part():
            if not isinstance(value, dict):
                raise spec.source.fault(path, f"must be a mapping, not {show(value)}")
            section = Section(spec.source, path, value)
            section.known("name", "parameterType", "feasibleSpace")
            made.add(section.text("name"), parameter(section, rounds=rounds), path)


def parameter(section: Section, *, rounds: bool = False) -> Draw:
    """A parameter of an experiment. `rounds`: whether a step means multiples, as for Hyperopt, not a grid."""
    kind = section.one_of("parameterType", ("double", "int", "categorical", "discrete"))
    space = section.section("feasibleSpace")
    space.known("min", "max", "step", "list", "distribution")
    if kind in ("categorical", "discrete"):
        texts = space.items("list")
        if strange := next((each for each in texts if not isinstance(each, str | int | float)), None):
            raise space.fault("list", f"must hold texts, not {show(strange)}")
        return drawn(space, draws.choices, [_listed(each, kind) for each in texts], key="list")
    low, high, step = _number(space, "min"), _number(space, "max"), _number(space, "step", needed=False)
    distribution = space.one_of("distribution", DISTRIBUTIONS, "uniform")
    whole = kind == "int"
    if whole:
        for key, value in (("min", low), ("max", high), ("step", step)):
            if value is not None and value != int(value):
                raise space.fault(key, f"must be a whole number for an int, not {show(value)}")
    if rounds and (step or whole) and distribution in ("uniform", "logUniform"):
        log = distribution == "logUniform"
        return drawn(space, draws.rounded, low, high, step or 1, log=log, whole_numbers=whole)
    if distribution == "uniform":
        if whole:
            return drawn(space, draws.whole, int(low), int(high), int(step or 1))
        return (
            drawn(space, draws.stepped, low, high, step) if step else drawn(space, draws.uniform, low, high)
        )
    if distribution == "logUniform":
        if whole:
            return drawn(space, draws.log_whole, int(low), int(high))
        draw = drawn(space, draws.log_uniform, low, high)
        return (
            draw if not step else draw.remarked("step counts for nothing beside logUniform in Katib's Optuna")
        )
    if distribution == "normal":
        mean, deviation = (low + high) / 2, (high - low) / 6  # the bounds are 3 deviations from the mean
        draw = drawn(
            space, draws.normal, mean, deviation, 1 if whole and not step else step, whole_numbers=whole
        )
    else:
        if low <= 0:
            raise space.fault("min", f"must be above 0 for logNormal, not {show(low)}")
        mean, deviation = (math.log(low) + math.log(high)) / 2, (math.log(high) - math.log(low)) / 6
        q = 1 if whole and not step else step
        draw = drawn(space, draws.log_normal, mean, deviation, q, whole_numbers=whole)
    return draw


def _number(section: Section, key: str, *, needed: bool = True) -> Any:
    """A number, which Katib writes as a text."""
    value = section.get(key) if needed else section.get(key, None)
    if isinstance(value, str) and NUMBER.fullmatch(value.strip()):
        text = value.strip()
        value = int(text) if re.fullmatch(r"[-+]?[0-9]{1,18}", text) else float(text)
    return None if value is None or value == "" else section.checked_number(key, value)


def _listed(value: Any, kind: str) -> Any:
    """A value of a list: a number where that gives the program the same text."""
    if kind == "discrete" and isinstance(value, str) and NUMBER.fullmatch(value):
        number = int(value) if re.fullmatch(r"-?[1-9][0-9]{0,15}|0", value) else float(value)
        return number if str(number) == value else value
    return value if kind == "discrete" or isinstance(value, str) else str(value)


def _objective(spec: Section, made: Converted) -> None:
    with spec.source.part():
        objective = spec.section("objective")
        objective.known("type", "goal", "objectiveMetricName", "additionalMetricNames", "metricStrategies")
        made.metric, made.metric_path = (
            objective.text("objectiveMetricName"),
            objective.at("objectiveMetricName"),
        )
        made.goal = objective.one_of("type", ("minimize", "maximize"))
        strategies = objective.items("metricStrategies", None) or []
        named = (each for each in strategies if isinstance(each, dict) and each.get("name") == made.metric)
        strategy = next((each.get("value") for each in named), "min" if made.goal == "minimize" else "max")
        best = "min" if made.goal == "minimize" else "max"
        if strategy not in (best, "latest"):
            raise objective.fault(
                "metricStrategies", f"takes the {show(strategy)} of {made.metric}, its worst value"
            )
        if strategy == best:
            made.reading.append(
                Setting("value", "best", objective.at("metricStrategies" if strategies else "type"))
            )


def _command(spec: Section, made: Converted) -> None:
    template = spec.section("trialTemplate", None)
    if template.has("configMap"):
        raise template.fault("configMap", "is in the cluster; write its template here, as trialSpec")
    container = _container(template, made) if template.data else None
    if container is None:
        made.command = ["python", PROGRAM, "${args}"]
        made.to_fill.append(PROGRAM)
        return
    names = dict(_references(template, made))
    words, paths = list[str](), list[str]()
    for key in ("command", "args"):
        for index, word in enumerate(container.items(key, None) or ()):
            words.append(word if isinstance(word, str) else str(word))
            paths.append(f"{container.at(key)}[{index}]")
    if not words:
        made.command = ["python", PROGRAM, "${args}"]
        made.to_fill.append(PROGRAM)
        made.command_remarks.append(f"the program is in the image {container.data.get('image')}")
        return
    made.command, made.command_path = [], container.at("command" if container.has("command") else "args")
    if not container.has("command"):
        made.command_remarks.append("the program before these words is in the image")
        made.command.append("python")
        made.to_fill.append("the program of objective.command")
    for word, path in zip(words, paths, strict=True):
        made.command.append(_filled(word, path, names, made))
    made.command[:0] = _environment(container, made)
    for key in ("image", "workingDir"):
        if container.has(key):
            made.command_remarks.append(
                f"in the {key} {show(container.data[key])} there, on this machine here"
            )
    passed = {name for word in made.command for name in re.findall(r"\$\{([^}]*)\}", word)}
    unused = [each.given for each in made.parameters if not each.is_helper and each.name not in passed]
    if unused and not made.source.issues:
        raise template.fault("trialSpec", f"does not give {quoted(unused)} to the program")
    limits = Section(made.source, container.at("resources"), container.data.get("resources") or {})
    gpus = limits.section("limits", None).get("nvidia.com/gpu", None)
    if isinstance(gpus, str | int) and str(gpus).isdigit():
        made.set("execution.gpus_per_trial", int(gpus), limits.at("limits"))


def _filled(word: str, path: str, names: dict[str, str], made: Converted) -> str:
    """A word of the container's command with the placeholders of ours."""

    def ours(match: re.Match[str]) -> str:
        reference = names.get(match[1], "")
        if known := next((each.name for each in made.parameters if each.given == reference), None):
            return f"${{{known}}}"
        if reference.startswith("${"):
            what = f"stands for {reference} of the cluster; write ${{run}}, the trial's folder"
        else:
            what = f"is no parameter; trialParameters has {quoted(names) or 'none'}"
        raise made.source.fault(path, f'"{match[0]}" {what}')

    filled = PLACEHOLDER.sub(ours, word)
    for match in OTHER_PLACEHOLDER.finditer(word):
        if not match[1].startswith("trialParameters.") and name_of(match[1]) == match[1]:
            message = f'"{match[0]}" would be taken for a parameter here; write $NAME for a shell\'s variable'
            raise made.source.fault(path, message)
    return filled


def _references(template: Section, made: Converted) -> Iterator[tuple[str, str]]:
    """The placeholders of the template, each with the parameter that it stands for."""
    for index, value in enumerate(template.items("trialParameters", None) or ()):
        path = f"{template.at('trialParameters')}[{index}]"
        if not isinstance(value, dict):
            raise template.source.fault(path, f"must be a mapping, not {show(value)}")
        section = Section(template.source, path, value)
        yield section.text("name"), section.text("reference")


def _container(template: Section, made: Converted) -> Section | None:
    """The container that trains, in whatever resource runs it."""
    found: list[Section] = []

    def visit(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                here = f"{path}.{key}"
                if key == "containers" and isinstance(inner, list):
                    found.extend(
                        Section(template.source, f"{here}[{index}]", each)
                        for index, each in enumerate(inner)
                        if isinstance(each, dict)
                    )
                else:
                    visit(inner, here)
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                visit(inner, f"{path}[{index}]")

    visit(template.data.get("trialSpec"), template.at("trialSpec"))
    primary = template.text("primaryContainerName", None)
    named = [each for each in found if primary is None or each.data.get("name") == primary]
    if len(named) > 1:
        made.command_remarks.append(
            f"the first of {len(named)} containers; with several processes, see execution"
        )
    return next(iter(named or found), None)


def _environment(container: Section, made: Converted) -> list[str]:
    """The program that sets the container's variables."""
    words = []
    if container.has("envFrom"):
        raise container.fault("envFrom", "has variables that only the cluster knows; write them under env")
    for index, each in enumerate(container.items("env", None) or ()):
        path = f"{container.at('env')}[{index}]"
        if not isinstance(each, dict) or not isinstance(each.get("value"), str):
            raise made.source.fault(path, "has no value of its own; write name and value")
        words.append(f"{each.get('name')}={each['value']}")
    return ["${env}", *words] if words else []


def _algorithm(spec: Section, made: Converted) -> None:
    algorithm = spec.section("algorithm")
    algorithm.known("algorithmName", "algorithmSettings")
    name = algorithm.text("algorithmName")
    if name not in ALGORITHMS:
        raise algorithm.fault(
            "algorithmName", f"{show(name)} has no counterpart; there is {', '.join(ALGORITHMS)}"
        )
    settings = _settings(algorithm, "algorithmSettings")
    search, remark = ALGORITHMS[name]
    seed = settings.pop("random_state", settings.pop("seed", "0"))
    search = {**search, "seed": int(seed) if str(seed).isdigit() else 0}
    if name == "hyperband":
        _hyperband(algorithm, settings, made)
    if name == "grid" and not spec.source.issues and grid_size(made.parameters) is None:
        raise algorithm.fault("algorithmName", "grid needs a step in every double")
    made.left_out |= {
        f"algorithmSettings.{key}": "the samplers here have options of their own" for key in settings
    }
    made.set("search", search, algorithm.at("algorithmName"), *([remark] if remark else []))


def _hyperband(algorithm: Section, settings: dict[str, str], made: Converted) -> None:
    """Katib gives the resource to a trial as a parameter; here every trial is told the whole."""
    given = settings.pop("resource_name", ""), settings.pop("r_l", ""), settings.pop("eta", "3")
    resource, last, eta = given
    if not last.isdigit() or not eta.isdigit() or int(last) < 2 or int(eta) < 2:
        raise algorithm.fault("algorithmSettings", "hyperband needs r_l and eta, whole numbers of at least 2")
    parameter = next((each for each in made.parameters if each.given == resource), None)
    if parameter is None:
        raise algorithm.fault(
            "algorithmSettings", f"resource_name {show(resource)} is none of the parameters"
        )
    index = made.parameters.index(parameter)
    why = "hyperband sets it there; here it is the whole, and trials stop before"
    made.parameters[index] = type(parameter)(
        parameter.name, parameter.given, {"value": int(last)}, parameter.path, (why,)
    )
    first = max(1, int(last) // int(eta) ** int(math.log(int(last), int(eta))))
    stopping = {"method": "hyperband", "min": first, "max": int(last), "eta": int(eta)}
    made.set("early_stopping", stopping, algorithm.path)


def _stopping(spec: Section, made: Converted) -> None:
    section = spec.section("earlyStopping", None)
    if not section.data:
        return
    section.known("algorithmName", "algorithmSettings")
    section.one_of("algorithmName", ("medianstop",))
    given = _settings(section, "algorithmSettings")
    stopping: dict[str, Any] = {"method": "median"}
    for key, (default, ours) in MEDIAN.items():
        value = given.pop(key, str(default))
        if not value.isdigit():
            raise section.fault("algorithmSettings", f"{key} must be a whole number, not {show(value)}")
        stopping[ours] = int(value)
    if given:
        raise section.fault("algorithmSettings", f"medianstop takes {quoted(MEDIAN)}, not {quoted(given)}")
    why = "Katib compares a trial's best value with the averages of complete trials; this is Optuna's rule"
    made.set("early_stopping", stopping, section.path, why)


def _settings(section: Section, key: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for index, value in enumerate(section.items(key, None) or ()):
        if not isinstance(value, dict) or "name" not in value or "value" not in value:
            raise section.source.fault(f"{section.at(key)}[{index}]", "must have name and value")
        settings[str(value["name"])] = str(value["value"])
    return settings


def _budget(spec: Section, made: Converted) -> None:
    with spec.source.part():
        trials = spec.whole("maxTrialCount", None, least=1)
        if trials is None:
            made.set("budget.trials", TRIALS, "", "Katib has no limit without maxTrialCount")
        else:
            made.set("budget.trials", trials, spec.at("maxTrialCount"))
    with spec.source.part():
        objective = spec.section("objective", None)
        goal = objective.number("goal", None)
        if goal is not None:
            made.set("budget.target", float(goal), objective.at("goal"))
    with spec.source.part():
        workers = spec.whole("parallelTrialCount", None, least=1)
        if workers is not None:
            made.set("execution.workers", workers, spec.at("parallelTrialCount"))
