"""Turns a trial into a file that trains it again: its parameters, seed and provenance."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, Literal

from optuna.trial import FrozenTrial, TrialState

from ...objectives.info import ObjectiveInfo
from ...objectives.user.config_file import copies
from ...objectives.user.macros import absent
from ...objectives.user.script_settings import changed_files, fixed_arguments, passed_options
from ...objectives.user.shell import without_absent
from ...spaces import Choice, Derived, Range, Spec
from ...spaces.document import written
from ...spaces.relations import reads
from ...storage.trial_attrs import CONFIRMS_SEED, threads_of
from .configuration import config_of
from .seeds import derived_seed
from .yaml_text import block_of

Format = Literal["yaml", "json", "flags"]


def seed_of(spec: Spec, trial: FrozenTrial) -> int:
    """The seed of a trial. Confirmation runs share theirs, so that they compare."""
    confirming = trial.user_attrs.get(CONFIRMS_SEED)
    what = ("trial", trial.number) if confirming is None else ("confirm", confirming)
    return derived_seed(spec.search.seed, *what)


def searched_of(spec: Spec) -> dict[str, tuple[float, float] | None]:
    """The parameters that a search varies, directly or by derivation, with the range of each numeric one."""
    of_searched = set(spec.space.searched)
    ranges: dict[str, tuple[float, float] | None] = {}
    for name in spec.space.order:
        parameter = spec.parameters[name]
        if isinstance(parameter, Derived) and of_searched.intersection(reads(parameter)):
            of_searched.add(name)
        if name not in of_searched:
            continue
        values = parameter.choices if isinstance(parameter, Choice) else []
        numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
        if isinstance(parameter, Range):
            ranges[name] = (parameter.min, parameter.max)
        else:
            ranges[name] = (min(numbers), max(numbers)) if numbers and len(numbers) == len(values) else None
    return ranges


def document(
    spec: Spec,
    trial: FrozenTrial,
    provenance: dict[str, Any],
    best: FrozenTrial | None = None,
    folder: Path | None = None,
    config: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What `hpsearch train` needs to run a trial again, with its provenance.

    `best`: the study's best trial, if that is another one. `folder`: the trial's, with the copies of its
    configuration files. `config`: the trial's, by default read from the study.
    """
    parameters = spec.space.passed(config_of(spec, trial) if config is None else config)
    words = spec.objective_words
    objective: Any = words
    if not isinstance(words, str):
        objective = {"command": without_absent(words, absent(spec.passed, parameters))}
    shared = {"processes_per_trial": spec.execution.processes_per_trial, **spec.execution.sharing}
    return {
        "objective": objective,
        "metric": spec.metric,
        **({"value": spec.value} if spec.value != "last" else {}),
        **({"nan": spec.nan} if spec.nan != "diverged" else {}),
        **({"report": spec.report_source} if spec.report_source else {}),
        "parameters": parameters,
        "seed": seed_of(spec, trial),
        "provenance": {
            "study": spec.name,
            "trial": trial.number,
            **({"value": trial.value} if trial.state == TrialState.COMPLETE else {}),
            "space": provenance.get("space"),
            "threads": threads_of(trial, provenance),
            **({"goal": spec.goal} if spec.goal == "maximize" else {}),
            **({"last": spec.early_stopping.max} if _ends_there(spec) else {}),
            **(shared if spec.execution.processes_per_trial > 1 else {}),
            **({"folder": str(folder)} if folder is not None and copies(words) else {}),
            **({"space_folder": spec.folder} if _has_files(spec) else {}),
            "git_commit": provenance.get("git_commit"),
            "versions": provenance.get("versions"),
            **_searched(spec, trial if best is None else best),
        },
    }


def _has_files(spec: Spec) -> bool:
    """Whether its objective may have files in the folder of the space."""
    return spec.folder is not None and not ObjectiveInfo(spec.objective_words).is_built_in


def _ends_there(spec: Spec) -> bool:
    """Whether a trial may end because of the end that the space gives, as a class of Ray Tune's does."""
    return spec.early_stopping.max is not None and ObjectiveInfo(spec.objective_words).kind == "ray"


def _searched(spec: Spec, best: FrozenTrial) -> dict[str, Any]:
    """The searched parameters with their ranges and the best trial's values."""
    if best.state != TrialState.COMPLETE:
        return {}
    config, searched = spec.space.passed(config_of(spec, best)), searched_of(spec)
    ranges = {
        name: {"best": config[name]} | ({} if span is None else {"min": span[0], "max": span[1]})
        for name, span in searched.items()
        if name in config
    }
    return {"best": best.number, "searched": ranges}


def render(content: dict[str, Any], form: Format) -> str:
    """The document as YAML, JSON or shell flags: the trial's arguments to its script, or its parameters."""
    if form == "json":
        return json.dumps(content, indent=2) + "\n"
    if form == "yaml":
        return block_of(content)
    return shlex.join(_flags(content)) + "\n"


def beyond(content: dict[str, Any], form: Format, folder: Path) -> dict[str, str]:
    """What a trial was given that its document in this form leaves out, and why.

    `folder`: the trial's, with the copies of its configuration files.
    """
    objective, omitted = content["objective"], {}
    if isinstance(objective, str):
        return {}
    command, parameters = objective["command"], content["parameters"]
    space_folder = content.get("provenance", {}).get("space_folder")
    if form != "flags":
        for file in changed_files(command, parameters, folder, (), space_folder):
            kept = folder / copies(command)[file]
            omitted[file] = f"it is gone or has changed since; the trial's copy is {kept}"
        return omitted
    own = any(name.rpartition(".")[2] == "seed" for name in parameters)
    if not own and not any("${seed}" in word for word in command):
        omitted[f"seed {content['seed']}"] = "the trial read it from HPSEARCH_SEED in its environment"
    if also := fixed_arguments(command):
        omitted[shlex.join(also)] = "the command passes it to every trial"
    alone = passed_options(command, parameters, content["seed"]) is None
    for file in copies(command):
        where = ", and no flags" if alone else " too"
        omitted[file] = f"the trial had a copy of it with these values{where}"
    return omitted


def _flags(content: dict[str, Any]) -> list[str]:
    """The arguments that set the parameters of a command; without one, a flag for each and for the seed."""
    objective, parameters = content["objective"], content["parameters"]
    if isinstance(objective, str):
        parameters = parameters | {"seed": parameters.get("seed", content["seed"])}
    elif (arguments := passed_options(objective["command"], parameters, content["seed"])) is not None:
        return arguments
    as_run = isinstance(objective, dict)  # its script parsed exactly these texts
    return [
        f"--{name}={value if as_run and isinstance(value, str) else written(value)}"
        for name, value in parameters.items()
    ]
