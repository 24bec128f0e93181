"""Other tools' spaces, recognised by their words so that a reader hears what to write instead."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from .document import Places, join
from .errors import Issue
from .model import show

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

TOP = {  # keys at the top of a file: whose they are, and what to write here
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

PARAMETER = {  # keys inside a parameter
    "distribution": (WANDB, LOG_RANGE),
    "q": (WANDB, "step: ..., or neither beside log: true"),
    "mu": (WANDB, "prior: {at: ...}, beside min and max"),
    "sigma": (WANDB, "prior: {at: ..., confidence: high}, beside min and max"),
    "values": (WANDB, CHOICES),
    "probabilities": (WANDB, "no weights: choices are drawn evenly"),
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

SAME = {  # what others call a key at the top of a file: what to write here
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

STEPS = "{min: ..., max: ..., step: ...}"
REAL = " with real bounds, no exponents"
NORMAL = "{min: ..., max: ..., prior: {at: ...}}"
DISTRIBUTIONS = {  # their names for what a parameter is drawn from, in W&B and in NNI
    **dict.fromkeys(("uniform", "randint"), RANGE),
    "int_uniform": "{min: ..., max: ...} with two integer bounds",
    **dict.fromkeys(("q_uniform", "quniform"), STEPS),
    **dict.fromkeys(("log_uniform_values", "q_log_uniform_values", "loguniform", "qloguniform"), LOG_RANGE),
    **dict.fromkeys(("inv_log_uniform_values", "lognormal", "qlognormal"), LOG_RANGE),
    **dict.fromkeys(("log_uniform", "q_log_uniform", "inv_log_uniform"), LOG_RANGE + REAL),
    **dict.fromkeys(("normal", "q_normal", "qnormal"), NORMAL),
    **dict.fromkeys(("log_normal", "q_log_normal"), LOG_RANGE + " and prior: {at: ...}"),
    **dict.fromkeys(("categorical", "categorical_w_probabilities", "choice"), CHOICES),
    "constant": "the value alone",
}

STRINGS = {  # how a parameter written as a text begins
    "Oríon": re.compile(r"orion~"),
    RAY: re.compile(r"tune\.\w+\("),
    HYDRA: re.compile(r"(tag|interval|choice|range|glob)\("),
    "Syne Tune": re.compile(r"(q?uniform|q?loguniform|randint|lograndint|finrange|logfinrange)\("),
    "Guild": re.compile(r"(log)?uniform\["),
}


def foreign_key(key: str, allowed: Collection[str], value: Any = None) -> str | None:
    """What to write instead of another tool's key with a value; None where the key is nobody's."""
    if "parameters" in allowed:
        known = TOP.get(key)
    elif "when" not in allowed:  # it stands in no parameter
        return None
    elif key == "type":
        return '"type" is not needed: two integer bounds make integers, log: true makes a range logarithmic'
    else:
        known = PARAMETER.get(key)
        if known and key in ("distribution", "_type") and isinstance(value, str):
            known = known[0], DISTRIBUTIONS.get(value.lower(), f"{RANGE} or {CHOICES}")
    return known and f'"{key}" is {known[0]}\'s; here write {known[1]}'


def bare(data: Mapping[str, Any], places: Places) -> list[Issue]:
    """What to do with a file that is another tool's search space, and nothing else; empty where it is not."""
    theirs = {
        name: next((key for key in value if key in PARAMETER), None) if isinstance(value, dict) else None
        for name, value in data.items()
    }
    if not theirs or None in theirs.values():
        return []
    tools = Counter(PARAMETER[key][0] for key in theirs.values() if key is not None)
    ((tool, _),) = tools.most_common(1)
    told = (
        f"this looks like a search space of {tool}'s; hpsearch has a language of its own, in which this is "
    )
    told += 'part of a file: under "parameters", beside "version", "name", "objective" and "metric"'
    found = [Issue(places.file, 1, 1, "", told)]
    for name, key in theirs.items():
        if instead := foreign_key(key or "", ["when"], data[name].get(key)):
            found.append(places.issue(join(name, key or ""), instead, key=True))
    return found


def foreign(data: Any, places: Places) -> Iterator[Issue]:
    """Whose file this is where it is another tool's, and every parameter written as such a tool's text."""
    if not isinstance(data, dict):
        return
    tools = Counter(TOP[key][0] for key in data if key in TOP)
    parameters = data.get("parameters")
    named = parameters if isinstance(parameters, dict) else {}
    listed = parameters if isinstance(parameters, list) else named.values()
    for value in listed:
        keys = value.keys() if isinstance(value, dict) else ()
        tools.update(PARAMETER[key][0] for key in keys if key in PARAMETER)
    if tools:
        ((tool, _),) = tools.most_common(1)
        message = f"this looks like {FILES[tool]}; hpsearch has a language of its own"
        yield Issue(places.file, 1, 1, "", message)
    for name, value in named.items():
        for owner, pattern in STRINGS.items():
            if isinstance(value, str) and pattern.match(value):
                instead = CHOICES if "choice" in value else LOG_RANGE if "log" in value else RANGE
                message = f"{show(value)} is {owner}'s; here write {instead}"
                yield places.issue(join("parameters", name), message)
