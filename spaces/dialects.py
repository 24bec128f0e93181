"""Other tools' search spaces, recognised by their keys, so that a message can say what to write instead."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from .document import Places, join
from .errors import Issue, quoted
from .fields import show

RANGE = "{min: ..., max: ...}"
LOG_RANGE = "{min: ..., max: ..., log: true}"
CHOICES = "a list of choices, [a, b, c]"
WANDB, NNI, DETERMINED, KATIB = "W&B", "NNI", "Determined", "Katib"
OPTUNA, HYDRA, AXOLOTL, AX, RAY = "Optuna", "Hydra", "Axolotl", "Ax", "Ray Tune"
NEPS = "NePS or ConfigSpace"

FILES = {
    WANDB: "a W&B sweep file",
    NNI: "an NNI experiment file",
    DETERMINED: "a Determined experiment file",
    KATIB: "a Katib experiment file",
    OPTUNA: "an Optuna search space in JSON",
    HYDRA: "a Hydra config",
    AXOLOTL: "an Axolotl config",
    AX: "an Ax experiment",
    RAY: "a space of Ray Tune's",
    NEPS: "a NePS or ConfigSpace space",
}

CONVERTED = {  # what `hpsearch init --from` converts
    **{tool: FILES[tool] for tool in (WANDB, NNI, DETERMINED, KATIB, HYDRA)},
    AXOLOTL: "an Axolotl sweep",
    RAY: "an experiment of Ray Tune's",
}

TOP_KEYS = {  # at the top of a file: the tool, and what to write here
    "method": (WANDB, "search: {sampler: tpe}"),
    "program": (WANDB, 'objective: {command: [python, train.py, "${args}"]}'),
    "run_cap": (WANDB, "budget: {trials: ...}"),
    "early_terminate": (WANDB, "early_stopping: {method: hyperband, min: ..., max: ...}"),
    "searchSpace": (NNI, "parameters: {...}"),
    "trialCommand": (NNI, "objective: {command: [...]}"),
    "trialConcurrency": (NNI, "execution: {workers: ...}"),
    "maxTrialNumber": (NNI, "budget: {trials: ...}"),
    "maxExperimentDuration": (NNI, "budget: {time: ...}"),
    "tuner": (NNI, "search: {sampler: tpe}"),
    "assessor": (NNI, "early_stopping: {method: median}"),
    "hyperparameters": (DETERMINED, "parameters: {...}"),
    "searcher": (DETERMINED, "search: {sampler: ...} and early_stopping: {method: ..., min: ..., max: ...}"),
    "entrypoint": (DETERMINED, "objective: {command: [...]}"),
    "max_restarts": (DETERMINED, "execution: {retries: ...}"),
    "apiVersion": (KATIB, "version: 1"),
    "kind": (KATIB, "version: 1"),
    "spec": (KATIB, "its parts at the top of the file"),
    "hydra": (HYDRA, "parameters: {...} and search: {sampler: tpe}"),
    "sweeper": (HYDRA, "search: {sampler: tpe}"),
    "base_model": (AXOLOTL, "it as a constant under parameters"),
}

PARAMETER_KEYS = {  # inside a parameter: the tool, and what to write here
    "distribution": (WANDB, LOG_RANGE),
    "q": (WANDB, "step: ..., or neither beside log: true"),
    "mu": (WANDB, "prior: {at: ...}, beside min and max"),
    "sigma": (WANDB, "prior: {at: ..., confidence: high}, beside min and max"),
    "values": (WANDB, CHOICES),
    "probabilities": (WANDB, "no weights: choices are drawn uniformly"),
    "_type": (NNI, RANGE + " or " + CHOICES),
    "_value": (NNI, RANGE + " or " + CHOICES),
    "minval": (DETERMINED, LOG_RANGE + " with real bounds, no exponents"),
    "maxval": (DETERMINED, LOG_RANGE + " with real bounds, no exponents"),
    "vals": (DETERMINED, CHOICES),
    "base": (DETERMINED, "log: true; bounds are real values, no exponents"),
    "parameterType": (KATIB, "no type: two integer bounds make integers"),
    "feasibleSpace": (KATIB, RANGE + " or " + CHOICES),
    "lower": (NEPS, "min"),
    "upper": (NEPS, "max"),
    "default_value": (NEPS, "prior: {at: ...}"),
    "prior_confidence": (NEPS, "prior: {at: ..., confidence: medium}"),
    "attributes": (OPTUNA, RANGE + " or " + CHOICES),
    "low": (OPTUNA, "min"),
    "high": (OPTUNA, "max"),
    "grid_search": (RAY, CHOICES + ", and search: {sampler: grid}"),
    "bounds": (AX, RANGE),
    "scaling": (AX, "log: true"),
    "log_scale": (AX, "log: true"),
}

SYNONYMS = {  # other names of keys at the top of a file: what to write here
    **dict.fromkeys(("direction", "directions", "mode"), "goal: minimize or goal: maximize"),
    **dict.fromkeys(("monitor", "objective_metric", "metrics"), "metric: NAME"),
    **dict.fromkeys(("search_space", "space", "params", "config", "param_space"), "parameters: {...}"),
    **dict.fromkeys(
        ("n_trials", "max_trials", "num_trials", "num_samples", "trials"), "budget: {trials: ...}"
    ),
    **dict.fromkeys(("timeout", "time_budget_s", "time"), "budget: {time: ...}"),
    **dict.fromkeys(("sampler", "algorithm", "search_alg", "algo"), "search: {sampler: ...}"),
    **dict.fromkeys(("pruner", "scheduler", "stopper"), "early_stopping: {method: ..., min: ..., max: ...}"),
    **dict.fromkeys(("n_jobs", "workers", "max_concurrent_trials"), "execution: {workers: ...}"),
    "study_name": "name: NAME",
    "command": "objective: {command: [...]}",
    "seed": "search: {seed: ...}",
}

FILE_NAMES = (".yaml", ".yml", ".json")
AXOLOTL_KEYS = (
    "learning_rate",
    "micro_batch_size",
    "gradient_accumulation_steps",
    "num_epochs",
    "optimizer",
    "lr_scheduler",
    "weight_decay",
    "adapter",
    "lora_r",
    "lora_alpha",
    "lora_dropout",
    "lora_target_modules",
    "lora_target_linear",
    "base_model",
    "sequence_len",
    "sample_packing",
)
STEP_RANGE = "{min: ..., max: ..., step: ...}"
REAL_BOUNDS = " with real bounds, no exponents"
PRIOR_RANGE = "{min: ..., max: ..., prior: {at: ...}}"
DISTRIBUTIONS = {  # of a parameter in W&B and NNI: what to write here
    **dict.fromkeys(("uniform", "randint"), RANGE),
    "int_uniform": "{min: ..., max: ...} with two integer bounds",
    **dict.fromkeys(("q_uniform", "quniform"), STEP_RANGE),
    **dict.fromkeys(("log_uniform_values", "q_log_uniform_values", "loguniform", "qloguniform"), LOG_RANGE),
    **dict.fromkeys(("inv_log_uniform_values", "lognormal", "qlognormal"), LOG_RANGE),
    **dict.fromkeys(("log_uniform", "q_log_uniform", "inv_log_uniform"), LOG_RANGE + REAL_BOUNDS),
    **dict.fromkeys(("normal", "q_normal", "qnormal"), PRIOR_RANGE),
    **dict.fromkeys(("log_normal", "q_log_normal"), LOG_RANGE + " and prior: {at: ...}"),
    **dict.fromkeys(("categorical", "categorical_w_probabilities", "choice"), CHOICES),
    "constant": "the value alone",
}

STRING_FORMS = {  # the beginnings of parameters written as a text
    "Oríon": re.compile(r"orion~"),
    RAY: re.compile(r"tune\.\w+\("),
    HYDRA: re.compile(r"(tag|interval|choice|range|glob)\("),
    "Syne Tune": re.compile(r"(q?uniform|q?loguniform|randint|lograndint|finrange|logfinrange)\("),
    "Guild": re.compile(r"(log)?uniform\["),
}


def tools_of(data: Any) -> dict[str, str]:
    """The tools that a file is of, by the keys that no other file has, each with these keys.

    Several where a file has decisive keys of several tools; none for a space, or a training's configuration.
    """
    if not isinstance(data, dict) or ("version" in data and "objective" in data):
        return {}
    return {tool: keys for tool, decide in DECISIVE.items() if (keys := decide(data))}


def _wandb_keys(data: Mapping[str, Any]) -> str:
    own = [key for key in ("method", "program", "early_terminate", "run_cap") if key in data]
    parameters = data.get("parameters")
    if "parameters" not in data or data.get("kind") == "Experiment":
        return ""
    shaped = data.get("method") in ("grid", "random", "bayes", "custom")
    inside = parameters.values() if isinstance(parameters, dict) else ()
    shaped = shaped or (bool(inside) and all(isinstance(value, dict) for value in inside))
    return quoted([*own, "parameters"]) if own and shaped else ""


def _nni_keys(data: Mapping[str, Any]) -> str:
    own = [
        key for key in ("searchSpace", "searchSpaceFile", "trialCommand", "trialConcurrency") if key in data
    ]
    if own:
        return quoted(own)
    shaped = data and all(isinstance(value, dict) and "_type" in value for value in data.values())
    return quoted(["_type", "_value"]) if shaped else ""


def _katib_keys(data: Mapping[str, Any]) -> str:
    version = data.get("apiVersion")
    is_katib = (
        data.get("kind") == "Experiment" and isinstance(version, str) and version.startswith("kubeflow.org")
    )
    return quoted(["apiVersion", "kind"]) if is_katib else ""


def _determined_keys(data: Mapping[str, Any]) -> str:
    """Its searcher may be no mapping: a mistake there is said with its line."""
    own = [key for key in ("hyperparameters", "searcher") if key in data]
    is_determined = len(own) == 2 and isinstance(data["hyperparameters"], dict)
    return quoted(own) if is_determined else ""


def _hydra_keys(data: Mapping[str, Any]) -> str:
    hydra = data.get("hydra")
    sweeper = hydra.get("sweeper") if isinstance(hydra, dict) else None
    own = (
        {"params", "search_space", "custom_search_space"} & sweeper.keys()
        if isinstance(sweeper, dict)
        else ()
    )
    return quoted(["hydra.sweeper"]) if own else ""


def _axolotl_keys(data: Mapping[str, Any]) -> str:
    """A sweep, whose keys all have lists, with some key of Axolotl's own or a group of mappings."""
    group = data.get("_")
    if isinstance(group, list) and group and all(isinstance(each, dict) for each in group):
        return quoted(["_"])
    lists = data and all(isinstance(value, list) and value for value in data.values())
    own = [key for key in data if key in AXOLOTL_KEYS] if lists else []
    return quoted(own[:3])


def _ray_keys(data: Mapping[str, Any]) -> str:
    """An experiment of Ray Tune's, or a mapping from names to such; or a bare space."""
    experiments = [data, *(value for value in data.values() if isinstance(value, dict))]
    for experiment in experiments:
        config = experiment.get("config", experiment.get("param_space"))
        if isinstance(config, dict) and (found := _has_ray(config)):
            return quoted([*(key for key in ("run", "config", "param_space") if key in experiment), found])
    found = _has_ray(data)
    return quoted([found]) if found else ""


def _has_ray(value: Any) -> str:
    """The first key or text that only Ray Tune has, inside a mapping or list; empty where there is none."""
    if isinstance(value, str):
        return "tune." if STRING_FORMS[RAY].match(value) else ""
    if isinstance(value, dict) and value.keys() == {"grid_search"}:
        return "grid_search"
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for each in inside if (found := _has_ray(each))), "")


DECISIVE: dict[str, Callable[[Mapping[str, Any]], str]] = {
    WANDB: _wandb_keys,
    NNI: _nni_keys,
    KATIB: _katib_keys,
    DETERMINED: _determined_keys,
    HYDRA: _hydra_keys,
    AXOLOTL: _axolotl_keys,
    RAY: _ray_keys,
}


def advice(data: Any, file: str) -> str:
    """The command that converts another tool's file, for the end of a message; nothing for any other file."""
    if not file.endswith(FILE_NAMES) or len(tools_of(data)) != 1:
        return ""
    return f"; to convert it: hpsearch init --from {shlex.quote(file)} -o space.yaml"


def foreign_key(key: str, allowed: Collection[str], value: Any = None) -> str | None:
    """What to write instead of another tool's key with a value; None where the key is unknown."""
    if "parameters" in allowed:
        known = TOP_KEYS.get(key)
    elif "when" not in allowed:  # not the key of a parameter
        return None
    elif key == "type":
        return '"type" is not needed: two integer bounds make integers, log: true makes a range logarithmic'
    else:
        known = PARAMETER_KEYS.get(key)
        if known and key in ("distribution", "_type") and isinstance(value, str):
            known = known[0], DISTRIBUTIONS.get(value.lower(), f"{RANGE} or {CHOICES}")
    return known and f'"{key}" is {known[0]}\'s; here write {known[1]}'


def bare(data: Mapping[str, Any], places: Places) -> list[Issue]:
    """The issues of a file that is nothing but another tool's search space; empty where it is not."""
    foreign_keys = {
        name: next((key for key in value if key in PARAMETER_KEYS), None) if isinstance(value, dict) else None
        for name, value in data.items()
    }
    if not foreign_keys or None in foreign_keys.values():
        return []
    tools = Counter(PARAMETER_KEYS[key][0] for key in foreign_keys.values() if key is not None)
    ((tool, _),) = tools.most_common(1)
    message = (
        f"this looks like a search space for {tool}; in hpsearch's own language, it is part of a file: under "
        f'"parameters", beside "version", "name", "objective" and "metric"{advice(data, places.file)}'
    )
    issues = [Issue(places.file, 1, 1, "", message)]
    for name, key in foreign_keys.items():
        if instead := foreign_key(key or "", ["when"], data[name].get(key)):
            issues.append(places.issue(join(name, key or ""), instead, key=True))
    return issues


def foreign(data: Any, places: Places) -> Iterator[Issue]:
    """Issues of another tool's file: the tool, and every parameter written as a text in its form."""
    if not isinstance(data, dict):
        return
    tools = Counter(TOP_KEYS[key][0] for key in data if key in TOP_KEYS)
    parameters = data.get("parameters")
    named = parameters if isinstance(parameters, dict) else {}
    listed = parameters if isinstance(parameters, list) else named.values()
    for value in listed:
        keys = value.keys() if isinstance(value, dict) else ()
        tools.update(PARAMETER_KEYS[key][0] for key in keys if key in PARAMETER_KEYS)
    file = next((CONVERTED[tool] for tool in tools_of(data)), None)
    if tools and file is None:
        ((tool, _),) = tools.most_common(1)
        file = FILES[tool]
    if file is not None:
        message = f"this looks like {file}; hpsearch has its own language{advice(data, places.file)}"
        yield Issue(places.file, 1, 1, "", message)
    for name, value in named.items():
        for owner, pattern in STRING_FORMS.items():
            if isinstance(value, str) and pattern.match(value):
                instead = CHOICES if "choice" in value else LOG_RANGE if "log" in value else RANGE
                message = f"{show(value)} is {owner}'s; here write {instead}"
                yield places.issue(join("parameters", name), message)
