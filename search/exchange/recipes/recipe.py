"""A trial's training in Hugging Face's names, from which the files of the frameworks are written.

    recipe_of("lora", {"lora_r": 8, "alpha_over_r": 2, "max_samples": 1600, "learning_rate": 1e-3}, seed=0)

The names are those of `transformers.TrainingArguments` and `peft.LoraConfig`, with `lora_r` for a rank; what
is none of theirs (the model, the data, the kind of fine-tuning) has the name that hpsearch gives it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from ....objectives.catalog import idle_parameters, is_bundled, known_parameters, with_defaults
from ....objectives.user.script_settings import ScriptSettings
from ....spaces import nested
from ....spaces.document import written
from ...errors import UsageError
from ...trials.yaml_text import one_line
from .names import (
    ALIASES,
    DATA,
    KNOWN,
    LORA,
    MAPPINGS,
    NEUTRAL,
    OF_PEFT,
    OF_TRL,
    SAME,
    TRAINING,
    WHOLE,
    misfit,
)
from .schedules import OPTIONS, translated

WHY = {
    "device": "whoever starts the training says where",
    "base": "a model of hpsearch's own trainer",
    "eval_samples": "all of the validation set is looked at",
    "split_seed": "the framework splits by a seed of its own",
    "task": "the framework's trainer is for causal_lm",
    "early_stopping_min_delta": "the callback EarlyStoppingCallback takes it, no file does",
    "max_samples": "a length in samples; max_steps or num_train_epochs say it there",
    "momentum": "the optimizer has its own there",
    "output_dir": "the file has a folder of its own for the results",
}
OPTIMIZERS = {"adamw": "adamw_torch", "lion": "lion_32bit"}
OUR_TARGETS = frozenset(("qkv", "out", "up", "down"))  # the linears of our GPT
ALL_LINEAR = "all-linear"
EVERY_ANSWER = "of a row with several answers all are learned here, of which the trial learned the last"


@dataclass
class Recipe:
    """What a trial trained with: values by Hugging Face's names, and what these names cannot say."""

    values: dict[str, Any] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)  # "name value" to the reason
    remarks: dict[str, str] = field(default_factory=dict)  # what to know of a value
    asked: tuple[str, ...] = ()  # what the trial says itself, and no default of an objective

    @property
    def adapts(self) -> bool:
        """Whether it trains adapters, and not the whole model."""
        kind = self.values.get("finetuning_type")
        return kind == "lora" if kind else any(name in self.values for name in LORA)

    @property
    def steps(self) -> int | None:
        """The optimizer steps of the whole training, where they are known."""
        return self.values.get("max_steps")

    def lose(self, name: str, value: Any, why: str = "it has no counterpart") -> None:
        """Note what cannot be said, unless it changes nothing."""
        if value is not None and not (name in NEUTRAL and NEUTRAL[name] == value):
            self.lost[one_line(f"{name} {_brief(value)}")] = why


def recipe_of(
    objective: str | list[str], parameters: Mapping[str, Any], seed: int, told: ScriptSettings | None = None
) -> Recipe:
    """The recipe of a trial. `parameters` may be nested; the last part of a dotted name counts.

    `told` is what its script was told beside them. Raises `UsageError` where it is no fine-tuning of a
    language model, as far as its names tell.
    """
    told = told or ScriptSettings()
    own = _flat(nested(parameters))
    given = _merged(own, *map(_flat, reversed(told.layers)))
    known = known_parameters(objective)
    if known is not None and "lora_r" not in known:
        raise UsageError(f"{objective} fine-tunes no language model: there is no file of a framework for it")
    idle = idle_parameters(objective, given) if isinstance(objective, str) else {}
    recipe = Recipe()
    left: dict[str, tuple[str, Any]] = {}
    everything = with_defaults(objective, given)
    if not any(_name(path) == "seed" for path in given):
        everything["seed"] = seed
        if not isinstance(objective, str):
            recipe.remarks["seed"] = "HPSEARCH_SEED of the trial, if its script asked for it"
    for what, why in told.unread.items():
        recipe.lost[one_line(what)] = why
    # The trial's own go before what else its script was told, and the framework's names before others.
    for path in sorted(everything, key=lambda path: (path not in own, path.rpartition(".")[2] in ALIASES)):
        value, name = everything[path], _name(path)
        if path in idle:
            continue
        if is_bundled(objective, path, value):
            if path in given:
                recipe.lose(path, value, "a text that ships, and is no file of yours")
            continue
        if value is not None and (wanted := misfit(name, value)) is not None:
            recipe.lose(path, value, f"it is no {wanted}")
            continue
        if name in left and left[name][1] != value:
            recipe.lose(path, value, f"{left[name][0]} is taken for it")
        left.setdefault(name, (path, int(value) if name in WHOLE and value is not None else value))
    recipe.asked = tuple(name for name, (path, _) in left.items() if path in given)
    if not {*recipe.asked} & {*LORA, *TRAINING, *DATA, "precision", "alpha_over_r", "max_samples"}:
        raise UsageError(
            f"none of the trial's parameters ({', '.join(given) or 'there are none'}) has a name that "
            "Hugging Face knows, such as learning_rate, per_device_train_batch_size or lora_r"
        )
    _fill(recipe, _Remaining(recipe, left), ours=known is not None)
    file = recipe.values.get("train_file", "")
    of_texts = ".txt" in PurePath(file).suffixes or "text_field" in recipe.asked
    if objective == "hf_lora" and of_texts and recipe.values.get("task", "causal_lm") == "causal_lm":
        recipe.values["packing"], recipe.remarks["packing"] = True, "texts fill rows, as in the trial"
    elif objective == "hf_lora" and ".json" in file.lower() and "prompt_field" not in recipe.asked:
        _messages(recipe, file)
    return recipe


def _messages(recipe: Recipe, file: str) -> None:
    """Of rows with messages, `hf_lora` learns the last answer alone."""
    from ....objectives.hf_lora.rows import first_fields

    fields = first_fields(file)
    if fields is None:
        why = "it cannot be read now; of rows with messages the trial learned the last answer alone"
        recipe.lost[one_line(f"what is learned of {file}")] = why
    elif "messages" in fields:
        recipe.values["last_answer"] = True


def _merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """All that the layers have, the first counting most; mappings that are values are one."""
    found: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            both = isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
            found[name] = {**value, **found[name]} if both else found.get(name, value)
    return found


def _name(path: str) -> str:
    """What Hugging Face calls a parameter, as far as it knows one of that name.

    The last part of a dotted name counts, or the last two: `lora.alpha` is `lora_alpha`.
    """
    *group, name = path.split(".")[-2:]
    both = "_".join((*group, name))
    if name not in KNOWN and (both in KNOWN or both in ALIASES):
        name = both
    return ALIASES.get(name, name)


def _flat(parameters: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested parameters under their dotted names; a mapping that is a value itself stays one."""
    found: dict[str, Any] = {}
    for name, value in parameters.items():
        inner = isinstance(value, Mapping) and name not in MAPPINGS
        found |= _flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return found


class _Remaining:
    """The trial's parameters that nobody has taken yet, by their names in a recipe."""

    def __init__(self, recipe: Recipe, entries: dict[str, tuple[str, Any]]) -> None:
        self._recipe = recipe
        self._entries = entries

    def take(self, name: str) -> Any:
        """The value of a name, which then is taken; None where there is none."""
        return self._entries.pop(name, (name, None))[1]

    def rest(self) -> Iterator[tuple[str, str, Any]]:
        """Name, the trial's own name and value of what is left, as far as the trial itself says it."""
        for name, (path, value) in self._entries.items():
            if name in self._recipe.asked:
                yield name, path, value


def _fill(recipe: Recipe, left: _Remaining, *, ours: bool) -> None:
    values = recipe.values
    values["finetuning_type"] = left.take("finetuning_type")
    ratio = left.take("alpha_over_r")
    for name in (*DATA, *LORA):
        found = left.take(name)
        if name in recipe.asked or name not in NEUTRAL:
            values[name] = found
    if values["validation_file"] is not None:
        values["validation_split"] = None
    if values["lora_alpha"] is None and values["lora_r"] is not None and (ours or ratio is not None):
        values["lora_alpha"] = (ratio or 2) * values["lora_r"]
    if isinstance(alpha := values["lora_alpha"], float) and alpha.is_integer():
        values["lora_alpha"] = int(alpha)
    _targets(recipe, ours=ours)
    if ours and values["finetuning_type"] not in (None, "lora"):
        for name in LORA:  # defaults of what the trial does not train
            values[name] = None
    _length(recipe, left, ours=ours)
    _precision(recipe, left.take("precision"))
    _optimizer(recipe, left, ours=ours)
    _schedule(recipe, left, ours=ours)
    for name in (*TRAINING, *SAME, *OF_TRL, *OF_PEFT):
        found = left.take(name)
        if name in values and name in recipe.asked and found not in (None, values[name]):
            recipe.lose(name, found, f"{_brief(values[name])} is taken for it")
        elif name not in values and (name in recipe.asked or name not in NEUTRAL):
            values[name] = found
    if 0 < (values.get("warmup_steps") or 0) < 1:  # as newer transformers write a share
        values["warmup_ratio"], values["warmup_steps"] = values["warmup_steps"], None
    elif not values.get("warmup_steps") and values.get("warmup_ratio"):
        values["warmup_steps"] = None
    if ours:
        bytes_of_ours = values["max_length"] is not None and values["model"] is None
        if bytes_of_ours:
            recipe.remarks["max_length"] = "bytes in the trial, tokens here"
        if "save_total_limit" not in recipe.asked:
            values["save_total_limit"] = None
    recipe.values = {name: value for name, value in values.items() if value is not None}
    left.take("local_files_only")  # says where the model is, not what is trained
    for name, path, value in left.rest():
        recipe.lose(path, value, WHY.get(name, "it has no counterpart"))


def _targets(recipe: Recipe, *, ours: bool) -> None:
    """Names of our GPT's linears are nobody else's; all of them are all-linear.

    A text is a pattern for peft, and stays one where it is not an objective of ours that takes it for a name.
    """
    found = recipe.values["target_modules"]
    names = [found] if isinstance(found, str) else found
    if not names:
        recipe.values["target_modules"] = None
    elif ALL_LINEAR in names or (set(names) <= OUR_TARGETS and len(set(names)) == len(OUR_TARGETS)):
        recipe.values["target_modules"] = ALL_LINEAR
    elif set(names) <= OUR_TARGETS:
        recipe.lose("target_modules", found, "names of hpsearch's own GPT; those of your model are others")
        recipe.values["target_modules"] = None
    elif ours or not isinstance(found, str):
        recipe.values["target_modules"] = list(names)


def _length(recipe: Recipe, left: _Remaining, *, ours: bool) -> None:
    values = recipe.values
    rows = (left.take("per_device_train_batch_size") or 0, left.take("gradient_accumulation_steps"))
    values["per_device_train_batch_size"], values["gradient_accumulation_steps"] = rows[0] or None, rows[1]
    a_step = rows[0] * (rows[1] or 1)
    samples, steps, epochs = (left.take(name) for name in ("max_samples", "max_steps", "num_train_epochs"))
    of_an_epoch, every = left.take("samples_per_epoch"), left.take("eval_every")
    if epochs is not None and of_an_epoch is not None:
        samples = epochs * of_an_epoch
        every = None if every is None else every * of_an_epoch
        epochs = None
    if samples is not None and a_step:
        steps = math.ceil(samples / a_step)
        recipe.remarks["max_steps"] = f"{_brief(samples)} samples in the trial, {a_step} a step"
        every = None if every is None else max(1, every // a_step)
    elif samples is not None:
        recipe.lose("max_samples", samples, WHY["max_samples"])
    values["max_steps"], values["num_train_epochs"] = steps, epochs
    if every is None and ours and (length := steps or epochs):
        every = max(1, length // 10)  # our trainer's default
    if every is not None and steps is not None:
        values["eval_strategy"], values["eval_steps"] = "steps", every
    elif every is not None and ours:
        values["eval_strategy"] = "epoch"
        if every != 1:
            recipe.remarks["eval_strategy"] = f"every {every} epochs in the trial"
    elif every is not None:
        recipe.lose("eval_every", every, "nobody says what it counts")


def _precision(recipe: Recipe, precision: str | None) -> None:
    if precision == "auto":
        recipe.values["bf16"] = "auto"
    elif precision in ("fp32", "bf16", "fp16", "tf32"):
        for name in ("bf16", "fp16"):
            recipe.values[name] = precision == name
        if precision == "tf32":
            recipe.values["tf32"] = True
    elif precision is not None:
        recipe.lose("precision", precision)


def _optimizer(recipe: Recipe, left: _Remaining, *, ours: bool) -> None:
    name = left.take("optim")
    recipe.values["optim"] = OPTIMIZERS.get(name, name)
    if not ours:
        return
    if name == "lion":
        for ours_is, theirs in (("lion_beta1", "adam_beta1"), ("lion_beta2", "adam_beta2")):
            left.take(theirs)
            recipe.values[theirs] = left.take(ours_is)
        recipe.remarks["optim"] = "needs bitsandbytes; adam_beta1 and adam_beta2 are its betas"
    elif name == "sgd":
        momentum, nesterov = left.take("momentum"), left.take("nesterov")
        momentum = 0.9 if momentum is None else momentum  # the default of ours
        recipe.values["optim_args"] = f"momentum={momentum}" + (",nesterov=true" if nesterov else "")
        if momentum:
            recipe.remarks["weight_decay"] = "goes through the momentum there, and counts for more"
    if name not in ("adamw", "muon"):
        for default in ("adam_beta1", "adam_beta2", "adam_epsilon"):  # of an optimizer that it is not
            left.take(default)
            recipe.values.setdefault(default, None)


def _schedule(recipe: Recipe, left: _Remaining, *, ours: bool) -> None:
    """The schedule; a user's own means what its names say, one of ours what `schedules` makes of it."""
    values = recipe.values
    name = left.take("lr_scheduler_type")
    values["learning_rate"] = left.take("learning_rate")
    if not ours:
        values["lr_scheduler_type"] = name
        return
    if values["optim"] == "adafactor":
        why = "a share of each matrix's size in the trial, the size of a step there: search another"
        recipe.lose("learning_rate", values["learning_rate"], why)
        recipe.remarks["learning_rate"] = "means something else here: search another"
    options = {option: left.take(option) for option in OPTIONS}
    found = translated(name, options | {"learning_rate": values["learning_rate"]}, recipe.steps)
    values["lr_scheduler_type"], values["lr_scheduler_kwargs"] = found.name, found.kwargs or None
    if found.name != "reduce_lr_on_plateau":
        if options["warmup_steps"]:
            values["warmup_steps"] = options["warmup_steps"]
        else:
            values["warmup_ratio"] = options["warmup_ratio"]
    for option, why in found.lost.items():
        recipe.lose(option, {"lr_scheduler": name, **options}[option], why)
    if found.name is None:
        for option, value in options.items():
            if option in recipe.asked and option not in ("warmup_steps", "warmup_ratio"):
                recipe.lose(option, value, "of that schedule")


def _brief(value: Any) -> str:
    return (
        f"{value:g}" if isinstance(value, float) else written(value) if isinstance(value, str) else str(value)
    )
