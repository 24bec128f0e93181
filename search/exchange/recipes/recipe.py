"""A trial's training in Hugging Face's names, from which the files of the frameworks are written.

    recipe_of("lora", {"lora_r": 8, "alpha_over_r": 2, "max_samples": 1600, "learning_rate": 1e-3}, seed=0)

The names are those of `transformers.TrainingArguments` and `peft.LoraConfig`, with `lora_r` for a rank; other
settings (the model, the data, the kind of fine-tuning) have hpsearch's names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from ....objectives.info import ObjectiveInfo
from ....objectives.user.script_settings import ScriptSettings
from ....spaces import nested
from ....spaces.document import written
from ...errors import UsageError
from ...trials.yaml_text import one_line
from . import names
from .schedules import SCHEDULE_OPTIONS, hf_schedule

LOSS_REASONS = {
    "device": "chosen where the training is started",
    "base": "a model of hpsearch's own trainer",
    "eval_samples": "the whole validation set is used",
    "split_seed": "the framework splits with a seed of its own",
    "task": "the framework's trainer is for causal_lm",
    "early_stopping_min_delta": "only the callback EarlyStoppingCallback accepts it, no file does",
    "max_samples": "a length in samples, for which there are max_steps and num_train_epochs",
    "momentum": "the optimizer has its own there",
    "output_dir": "the file has a folder of its own for the results",
}
OPTIMIZER_NAMES = {"adamw": "adamw_torch", "lion": "lion_32bit"}
OUR_TARGETS = frozenset(("qkv", "out", "up", "down"))  # the linear layers of our GPT
ALL_LINEAR = "all-linear"
EVERY_ANSWER = "here all answers of a row are learned, in the trial only the last"


@dataclass
class Recipe:
    """A trial's training: values by Hugging Face's names, and what these names cannot express."""

    values: dict[str, Any] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)  # from "name value" to the reason
    remarks: dict[str, str] = field(default_factory=dict)  # comments on values
    asked: tuple[str, ...] = ()  # names that the trial itself sets, not an objective's defaults
    ours: bool = False  # whether its objective is hpsearch's own
    rest: dict[str, Any] = field(default_factory=dict)  # values that are still to be translated

    @property
    def adapts(self) -> bool:
        """Whether it trains adapters instead of the whole model."""
        kind = self.values.get("finetuning_type")
        return kind == "lora" if kind else any(name in self.values for name in names.LORA)

    @property
    def steps(self) -> int | None:
        """The optimizer steps of the whole training, where they are known."""
        return self.values.get("max_steps")

    def take(self, name: str) -> Any:
        """Take a value that is still to be translated; None where there is none."""
        return self.rest.pop(name, None)

    def lose(self, name: str, value: Any, why: str = "it has no counterpart") -> None:
        """Note what cannot be expressed, unless it has no effect."""
        if value is not None and not (name in names.NEUTRAL and names.NEUTRAL[name] == value):
            self.lost[one_line(f"{name} {_brief(value)}")] = why


def recipe_of(
    objective: str | list[str], parameters: Mapping[str, Any], seed: int, beside: ScriptSettings
) -> Recipe:
    """The recipe of a trial. `parameters` may be nested; the last part of a dotted name counts.

    `beside` holds the other arguments of its script. Raises `UsageError` where, judging by names, it does not
    fine-tune a language model.
    """
    own = _flat(nested(parameters))
    given = _merged(own, *map(_flat, reversed(beside.layers)))
    info = ObjectiveInfo(objective)
    known = info.known_parameters
    if known is not None and "lora_r" not in known:
        raise UsageError(f"{objective} does not fine-tune a language model: no framework has a file for it")
    idle = info.idle_parameters(given)
    recipe = Recipe(ours=known is not None)
    paths: dict[str, str] = {}  # the trial's own names, by those of the recipe
    everything = info.with_defaults(given)
    if not any(_name(path) == "seed" for path in given):
        everything["seed"] = seed
        if info.command:
            recipe.remarks["seed"] = "HPSEARCH_SEED of the trial, if its script asked for it"
    for what, why in beside.unread.items():
        recipe.lost[one_line(what)] = why
    # The trial's own parameters precede its script's other arguments; Hugging Face's names precede others.
    for path in sorted(
        everything, key=lambda path: (path not in own, path.rpartition(".")[2] in names.ALIASES)
    ):
        value, name = everything[path], _name(path)
        if path in idle:
            continue
        if info.is_bundled(path, value):
            if path in given:
                recipe.lose(path, value, "a text that ships with hpsearch, not a file of yours")
            continue
        if value is not None and (wanted := names.misfit(name, value)) is not None:
            recipe.lose(path, value, f"it must be: {wanted}")
        elif name not in paths:
            paths[name] = path
            recipe.rest[name] = int(value) if name in names.WHOLE_NUMBERS and value is not None else value
        elif recipe.rest[name] != value:
            recipe.lose(path, value, f"{paths[name]} is used instead")
    recipe.asked = tuple(name for name, path in paths.items() if path in given)
    if names.FINE_TUNING.isdisjoint(recipe.asked):
        raise UsageError(
            f"none of the trial's parameters ({', '.join(given) or 'there are none'}) has a name of "
            "Hugging Face's, such as learning_rate, per_device_train_batch_size or lora_r"
        )
    _fill(recipe)
    for name, value in recipe.rest.items():
        if name in recipe.asked:
            recipe.lose(paths[name], value, LOSS_REASONS.get(name, "it has no counterpart"))
    file = recipe.values.get("train_file", "")
    of_texts = ".txt" in PurePath(file).suffixes or "text_field" in recipe.asked
    if objective == "hf_lora" and of_texts and recipe.values.get("task", "causal_lm") == "causal_lm":
        recipe.values["packing"], recipe.remarks["packing"] = True, "texts fill rows, as in the trial"
    elif objective == "hf_lora" and ".json" in file.lower() and "prompt_field" not in recipe.asked:
        _note_last_answer(recipe, file)
    return recipe


def _note_last_answer(recipe: Recipe, file: str) -> None:
    """Note that `hf_lora` learns only the last answer of rows with messages."""
    from ....objectives.hf_lora.rows import first_fields

    fields = first_fields(file)
    if fields is None:
        why = "it cannot be read now; of rows with messages the trial learned only the last answer"
        recipe.lost[one_line(f"the learned part of {file}")] = why
    elif "messages" in fields:
        recipe.values["last_answer"] = True


def _merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all layers, of which the first counts most; values that are mappings are merged."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
            merged[name] = {**value, **merged[name]} if both else merged.get(name, value)
    return merged


def _name(path: str) -> str:
    """Hugging Face's name for a parameter, or its own name where there is none.

    The last part of a dotted name counts, or the last two: `lora.alpha` is `lora_alpha`.
    """
    *group, name = path.split(".")[-2:]
    both = "_".join((*group, name))
    if name not in names.KNOWN and (both in names.KNOWN or both in names.ALIASES):
        name = both
    return names.ALIASES.get(name, name)


def _flat(parameters: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested parameters by dotted names; a mapping that is itself a value stays one."""
    flat: dict[str, Any] = {}
    for name, value in parameters.items():
        inner = isinstance(value, Mapping) and name not in names.MAPPINGS
        flat |= _flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return flat


def _fill(recipe: Recipe) -> None:
    values, take = recipe.values, recipe.take
    values["finetuning_type"] = take("finetuning_type")
    ratio = take("alpha_over_r")
    for name in (*names.DATA, *names.LORA):
        value = take(name)
        if name in recipe.asked or name not in names.NEUTRAL:
            values[name] = value
    if values["validation_file"] is not None:
        values["validation_split"] = None
    if values["lora_alpha"] is None and values["lora_r"] is not None and (recipe.ours or ratio is not None):
        values["lora_alpha"] = (ratio or 2) * values["lora_r"]
    if isinstance(alpha := values["lora_alpha"], float) and alpha.is_integer():
        values["lora_alpha"] = int(alpha)
    _targets(recipe)
    if recipe.ours and values["finetuning_type"] not in (None, "lora"):
        values |= dict.fromkeys(names.LORA)  # defaults for adapters that the trial does not train
    _length(recipe)
    _precision(recipe)
    _optimizer(recipe)
    _schedule(recipe)
    for name in (*names.TRAINING, *names.SAME_NAMES, *names.OF_TRL, *names.OF_PEFT):
        value = take(name)
        if name in values and name in recipe.asked and value not in (None, values[name]):
            recipe.lose(name, value, f"{_brief(values[name])} is used instead")
        elif name not in values and (name in recipe.asked or name not in names.NEUTRAL):
            values[name] = value
    if 0 < (values.get("warmup_steps") or 0) < 1:  # a share, as newer transformers write it
        values["warmup_ratio"], values["warmup_steps"] = values["warmup_steps"], None
    elif not values.get("warmup_steps") and values.get("warmup_ratio"):
        values["warmup_steps"] = None
    if recipe.ours and values["max_length"] is not None and values["model"] is None:
        recipe.remarks["max_length"] = "bytes in the trial, tokens here"
    if recipe.ours and "save_total_limit" not in recipe.asked:
        values["save_total_limit"] = None
    recipe.values = {name: value for name, value in values.items() if value is not None}
    take("local_files_only")  # where the model is stored does not matter


def _targets(recipe: Recipe) -> None:
    """Only our GPT has its linear layers' names; all of them become all-linear.

    A text is a pattern for peft and stays one, unless our objective takes it for a name.
    """
    targets = recipe.values["target_modules"]
    layers = [targets] if isinstance(targets, str) else targets
    if not layers:
        recipe.values["target_modules"] = None
    elif ALL_LINEAR in layers or (set(layers) <= OUR_TARGETS and len(set(layers)) == len(OUR_TARGETS)):
        recipe.values["target_modules"] = ALL_LINEAR
    elif set(layers) <= OUR_TARGETS:
        recipe.lose("target_modules", targets, "names of hpsearch's own GPT; your model has other names")
        recipe.values["target_modules"] = None
    elif recipe.ours or not isinstance(targets, str):
        recipe.values["target_modules"] = list(layers)


def _length(recipe: Recipe) -> None:
    values, take = recipe.values, recipe.take
    rows, batches = take("per_device_train_batch_size"), take("gradient_accumulation_steps")
    values["per_device_train_batch_size"], values["gradient_accumulation_steps"] = rows, batches
    a_step = (rows or 0) * (batches or 1)
    samples, steps, epochs = (take(name) for name in ("max_samples", "max_steps", "num_train_epochs"))
    of_an_epoch, every = take("samples_per_epoch"), take("eval_every")
    if epochs is not None and of_an_epoch is not None:
        samples = epochs * of_an_epoch
        every = None if every is None else every * of_an_epoch
        epochs = None
    if samples is not None and a_step:
        steps = math.ceil(samples / a_step)
        recipe.remarks["max_steps"] = f"{_brief(samples)} samples in the trial, {a_step} a step"
        every = None if every is None else max(1, every // a_step)
    elif samples is not None:
        recipe.lose("max_samples", samples, LOSS_REASONS["max_samples"])
    values["max_steps"], values["num_train_epochs"] = steps, epochs
    if every is None and recipe.ours and (length := steps or epochs):
        every = max(1, length // 10)  # our trainer's default
    if every is not None and steps is not None:
        values["eval_strategy"], values["eval_steps"] = "steps", every
    elif every is not None and recipe.ours:
        values["eval_strategy"] = "epoch"
        if every != 1:
            recipe.remarks["eval_strategy"] = f"every {every} epochs in the trial"
    elif every is not None:
        recipe.lose("eval_every", every, "its unit is unknown")


def _precision(recipe: Recipe) -> None:
    precision = recipe.take("precision")
    if precision == "auto":
        recipe.values["bf16"] = "auto"
    elif precision in ("fp32", "bf16", "fp16", "tf32"):
        recipe.values |= {name: precision == name for name in ("bf16", "fp16")}
        if precision == "tf32":
            recipe.values["tf32"] = True
    else:
        recipe.lose("precision", precision)


def _optimizer(recipe: Recipe) -> None:
    name = recipe.take("optim")
    recipe.values["optim"] = OPTIMIZER_NAMES.get(name, name)
    if not recipe.ours:
        return
    if name == "lion":
        for theirs in ("adam_beta1", "adam_beta2"):
            recipe.take(theirs)
            recipe.values[theirs] = recipe.take(theirs.replace("adam", "lion"))
        recipe.remarks["optim"] = "needs bitsandbytes; adam_beta1 and adam_beta2 are its betas"
    elif name == "sgd":
        momentum, nesterov = recipe.take("momentum"), recipe.take("nesterov")
        momentum = 0.9 if momentum is None else momentum  # our default
        recipe.values["optim_args"] = f"momentum={momentum}" + (",nesterov=true" if nesterov else "")
        if momentum:
            recipe.remarks["weight_decay"] = "is applied through the momentum there, so its effect is larger"
    if name not in ("adamw", "muon"):
        for default in ("adam_beta1", "adam_beta2", "adam_epsilon"):  # defaults of another optimizer
            recipe.take(default)
            recipe.values.setdefault(default, None)


def _schedule(recipe: Recipe) -> None:
    """The schedule: a user's own by its names, one of ours as `schedules` translates it."""
    values = recipe.values
    name = recipe.take("lr_scheduler_type")
    values["learning_rate"] = recipe.take("learning_rate")
    if not recipe.ours:
        values["lr_scheduler_type"] = name
        return
    if values["optim"] == "adafactor":
        why = "relative to each matrix's size in the trial, absolute there: search another"
        recipe.lose("learning_rate", values["learning_rate"], why)
        recipe.remarks["learning_rate"] = "means something else here: search another"
    options = {option: recipe.take(option) for option in SCHEDULE_OPTIONS}
    schedule = hf_schedule(name, options | {"learning_rate": values["learning_rate"]}, recipe.steps)
    values["lr_scheduler_type"], values["lr_scheduler_kwargs"] = schedule.name, schedule.kwargs or None
    if schedule.name != "reduce_lr_on_plateau":
        if options["warmup_steps"]:
            values["warmup_steps"] = options["warmup_steps"]
        else:
            values["warmup_ratio"] = options["warmup_ratio"]
    for option, why in schedule.lost.items():
        recipe.lose(option, {"lr_scheduler": name, **options}[option], why)
    if schedule.name is None:
        for option, value in options.items():
            if option in recipe.asked and option not in ("warmup_steps", "warmup_ratio"):
                recipe.lose(option, value, "an option of that schedule")


def _brief(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return written(value) if isinstance(value, str) else str(value)
