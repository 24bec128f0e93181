"""A trial as a configuration of fine-tuning frameworks: TRL, PEFT, Axolotl, LLaMA-Factory.

    written = for_framework("axolotl", document(spec, trial, provenance), Path("best.yaml"))

A trial's training becomes a recipe in Hugging Face's names; each framework writes it with its own keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....objectives.user.script_settings import ScriptSettings, settings_beside
from ...errors import UsageError
from ...trials.yaml_text import one_line, text_of
from . import axolotl, llamafactory, trl
from .config_writer import ConfigWriter
from .names import OF_PEFT
from .recipe import Recipe, recipe_of

__all__ = ["FRAMEWORKS", "PEFT", "ConfigFile", "for_framework"]


@dataclass(frozen=True)
class Framework:
    """A framework that trains from a file."""

    title: str
    command: str  # reads the file
    fill: Callable[[ConfigWriter, str], None]  # writes the recipe, with the folder of the results


FRAMEWORKS = {
    "trl": Framework("TRL", "trl sft --config {file}", trl.fill),
    "axolotl": Framework("Axolotl", "axolotl train {file}", axolotl.fill),
    "llamafactory": Framework("LLaMA-Factory", "llamafactory-cli train {file}", llamafactory.fill),
}
PEFT = "peft"
PEFT_TASKS = {"seq2seq_lm": "SEQ_2_SEQ_LM", "sequence_classification": "SEQ_CLS"}


@dataclass(frozen=True)
class ConfigFile:
    """A file's text, and what to tell the user about it."""

    text: str
    lost: dict[str, str]  # what of the trial is not in the file, and why
    to_fill: tuple[str, ...]  # keys that the user has to fill in
    values: dict[str, Any]


def for_framework(name: str, content: dict[str, Any], file: Path | None, folder: Path = Path()) -> ConfigFile:
    """A training configuration, as `export.document` returns it, in the form of a framework.

    `folder` is the trial's, with the copies of its configuration files. Raises `UsageError` where the trial
    does not fine-tune a language model.
    """
    objective = content["objective"]
    words = objective if isinstance(objective, str) else objective["command"]
    parameters, provenance = content["parameters"], content["provenance"]
    beside = ScriptSettings()
    if not isinstance(words, str):
        beside = settings_beside(words, folder, parameters, provenance.get("space_folder"))
    recipe = recipe_of(words, parameters, content["seed"], beside)
    if name == PEFT:
        return _for_peft(recipe)
    framework = FRAMEWORKS[name]
    writer = ConfigWriter(framework.title, recipe)
    framework.fill(writer, f"trained/{provenance['study']}-{provenance['trial']}")
    writer.close()
    value = f" ({content['metric']} {provenance['value']:.6g})" if "value" in provenance else ""
    study = text_of(provenance["study"])
    head = [
        f"# {framework.title}: trial {provenance['trial']} of the study {study}{value}",
        f"# {framework.command.format(file=file or 'FILE')}",
    ]
    if recipe.lost:
        head += ["#", "# This file lacks these parts of the trial:"]
        head += [f"#   {what}: {one_line(why)}" for what, why in recipe.lost.items()]
    if writer.to_fill:
        head += ["#", f"# To fill in: {', '.join(writer.to_fill)}"]
    text = "\n".join([*head, *writer.lines]) + "\n"
    return ConfigFile(text, recipe.lost, tuple(writer.to_fill), writer.values)


def _for_peft(recipe: Recipe) -> ConfigFile:
    """`adapter_config.json`, which `peft.LoraConfig.from_pretrained(FOLDER)` reads."""
    if not recipe.adapts:
        raise UsageError("the trial trains no adapters: PEFT has no configuration for it")
    take = recipe.values.pop
    for name in ("finetuning_type", "last_answer"):
        take(name, None)
    task = PEFT_TASKS.get(take("task", None), "CAUSAL_LM")
    values: dict[str, Any] = {"peft_type": "LORA", "task_type": task, "bias": "none"}
    for name, key in (("model", "base_model_name_or_path"), ("revision", "revision")):
        if (value := take(name, None)) is not None:
            values[key] = value
    same = ("target_modules", "lora_alpha", "lora_dropout", "use_rslora", "use_dora", *OF_PEFT)
    keys = {"lora_r": "r"} | {name: name for name in same}
    values |= {key: take(name) for name, key in keys.items() if name in recipe.values}
    lost = {what.partition(" ")[0].rpartition(".")[2] for what in recipe.lost}
    others = lost.union(keys, ("model", "revision", "task", "alpha_over_r", "finetuning_type"))
    if rest := [name for name in recipe.asked if name not in others or name in recipe.values]:
        recipe.lost[one_line(", ".join(rest))] = "not part of the adapters; other formats have it"
    return ConfigFile(json.dumps(values, indent=2) + "\n", recipe.lost, (), values)
