"""Turns a trial into a file that trains it again: parameters, seed, and where they come from."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, Literal

from optuna.trial import FrozenTrial, TrialState

from ...objectives.user.command import absent
from ...objectives.user.config_file import copies
from ...objectives.user.script_settings import changed_files, fixed_arguments, passed_options
from ...objectives.user.shell import without_absent
from ...spaces import Choice, Derived, Range, Spec
from ...spaces.document import written
from ...spaces.relations import reads
from ...storage.states import CONFIRMS_SEED
from .configuration import config_of
from .seeds import derived_seed
from .yaml_text import block_of

Format = Literal["yaml", "json", "flags"]
FORMATS: tuple[Format, ...] = ("yaml", "json", "flags")


def seed_of(spec: Spec, trial: FrozenTrial) -> int:
    """What a trial draws its numbers from; trainings that confirm share a seed, to be compared."""
    confirming = trial.user_attrs.get(CONFIRMS_SEED)
    what = ("trial", trial.number) if confirming is None else ("confirm", confirming)
    return derived_seed(spec.search.seed, *what)


def searched_of(spec: Spec) -> dict[str, tuple[float, float] | None]:
    """What a search varies of what trains, with its range where it is one of numbers."""
    of_searched = set(spec.space.searched)
    found: dict[str, tuple[float, float] | None] = {}
    for name in spec.space.order:
        parameter = spec.parameters[name]
        if isinstance(parameter, Derived) and of_searched.intersection(reads(parameter)):
            of_searched.add(name)
        if name not in of_searched:
            continue
        values = parameter.choices if isinstance(parameter, Choice) else []
        numbers = [
            value for value in values if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        if isinstance(parameter, Range):
            found[name] = (parameter.min, parameter.max)
        else:
            found[name] = (min(numbers), max(numbers)) if numbers and len(numbers) == len(values) else None
    return found


def document(
    spec: Spec,
    trial: FrozenTrial,
    provenance: dict[str, Any],
    best: FrozenTrial | None = None,
    folder: Path | None = None,
) -> dict[str, Any]:
    """What `hpsearch train` needs to run a trial again, and what it comes from.

    `best` is the study's best trial, where that is another; `folder` the trial's own, with the copies of its
    configuration files.
    """
    parameters = spec.space.passed(config_of(spec, trial))
    words = spec.objective_words
    told = (
        words
        if isinstance(words, str)
        else {"command": without_absent(words, absent(spec.passed, parameters))}
    )
    return {
        "objective": told,
        "metric": spec.metric,
        "parameters": parameters,
        "seed": seed_of(spec, trial),
        "provenance": {
            "study": spec.name,
            "trial": trial.number,
            **({"value": trial.value} if trial.state == TrialState.COMPLETE else {}),
            "space": provenance.get("space"),
            "threads": provenance.get("threads"),
            **({"goal": spec.goal} if spec.goal == "maximize" else {}),
            **_ranks(spec),
            **({"folder": str(folder)} if folder is not None and copies(words) else {}),
            "git_commit": provenance.get("git_commit"),
            "versions": provenance.get("versions"),
            **_found(spec, trial if best is None else best),
        },
    }


def _found(spec: Spec, best: FrozenTrial) -> dict[str, Any]:
    """What the search has varied, how far, and where the best was."""
    if best.state != TrialState.COMPLETE:
        return {}
    config, searched = spec.space.passed(config_of(spec, best)), searched_of(spec)
    ranges = {
        name: {"best": config[name]} | ({} if span is None else {"min": span[0], "max": span[1]})
        for name, span in searched.items()
        if name in config
    }
    return {"best": best.number, "searched": ranges}


def _ranks(spec: Spec) -> dict[str, Any]:
    """How a trial is shared among its processes, where it has several."""
    execution = spec.execution
    if execution.processes_per_trial == 1:
        return {}
    return {"processes_per_trial": execution.processes_per_trial, **execution.sharing}


def render(content: dict[str, Any], form: Format) -> str:
    """The document as YAML, JSON, or shell flags (what the trial told its script, or its parameters)."""
    if form == "json":
        return json.dumps(content, indent=2) + "\n"
    if form == "yaml":
        return block_of(content)
    return shlex.join(_flags(content)) + "\n"


def beyond(content: dict[str, Any], form: Format, folder: Path) -> dict[str, str]:
    """What a trial was told that its document in this form does not say, and why.

    `folder` is the trial's, with the copies of its configuration files.
    """
    objective, found = content["objective"], {}
    if isinstance(objective, str):
        return {}
    command, parameters = objective["command"], content["parameters"]
    if form != "flags":
        for file in changed_files(command, parameters, folder):
            kept = folder / copies(command)[file]
            found[file] = f"it is gone or says something else than it told the trial, which is in {kept}"
        return found
    own = any(name.rpartition(".")[2] == "seed" for name in parameters)
    if not own and not any("${seed}" in word for word in command):
        found[f"seed {content['seed']}"] = "the trial had it as HPSEARCH_SEED in its environment"
    if also := fixed_arguments(command):
        found[shlex.join(also)] = "the command has it for every trial"
    alone = passed_options(command, parameters, content["seed"]) is None
    for file in copies(command):
        where = ", and no flags" if alone else " too"
        found[file] = f"the trial had a copy of it with these values{where}"
    return found


def _flags(content: dict[str, Any]) -> list[str]:
    """A command's words that say the parameters, as it had them; else a flag for each, and for the seed."""
    objective, parameters = content["objective"], content["parameters"]
    if isinstance(objective, str):
        parameters = parameters | {"seed": parameters.get("seed", content["seed"])}
    elif (found := passed_options(objective["command"], parameters, content["seed"])) is not None:
        return found
    as_run = isinstance(objective, dict)  # its script has read just these
    return [f"--{name}={_flag(value, as_run)}" for name, value in parameters.items()]


def _flag(value: Any, as_run: bool) -> str:
    return value if as_run and isinstance(value, str) else written(value)
