"""Keys of `transformers.TrainingArguments` and rules that several frameworks' files share."""

from __future__ import annotations

import math
from pathlib import PurePath

from .config_writer import ConfigWriter
from .names import OF_TRAINER, SAME_NAMES

TRAINER_KEYS = (*OF_TRAINER, *SAME_NAMES)  # with the same name in transformers.TrainingArguments


def put_model(writer: ConfigWriter, key: str, revision: str) -> None:
    """Write the base model, or leave it to the user."""
    if writer.recipe.values.get("task") == "causal_lm":
        writer.take("task")
    writer.lose("task", f"{writer.title}'s file is for causal_lm")
    if "model" in writer.recipe.values:
        writer.carry({"model": key, "revision": revision})
    else:
        writer.leave(key, "MODEL", "a model's folder, or its name on the Hub")


def begin_adapters(writer: ConfigWriter) -> bool:
    """Start the section of the adapters; False where the trial trains none."""
    adapts = writer.recipe.adapts
    tuning = writer.take("finetuning_type")
    if tuning not in (None, "lora", "full"):
        writer.recipe.lose("finetuning_type", tuning, f"{writer.title} would train the whole model")
    if adapts:
        writer.section("The adapters")
    return adapts


def put_warmup(writer: ConfigWriter, *, share: str) -> None:
    """Write the warm-up in steps where the training's are known, else as a share, under the name in `share`.

    The newest transformers have no `warmup_ratio`: there a `warmup_steps` below 1 is a share.
    """
    recipe = writer.recipe
    if not (ratio := writer.take("warmup_ratio")) or recipe.values.get("warmup_steps"):
        return
    if recipe.steps:
        recipe.values["warmup_steps"] = math.ceil(ratio * recipe.steps)
        recipe.remarks["warmup_steps"] = f"{ratio:g} of {recipe.steps}"
    else:
        recipe.values[share] = ratio
        if share == "warmup_steps":
            recipe.remarks[share] = "a share of the training, in transformers 5"


def drop_unknown_schedule(writer: ConfigWriter) -> None:
    """Leave out a schedule that Hugging Face's Trainer lacks."""
    if writer.recipe.values.get("lr_scheduler_type") == "one_cycle":
        for name in ("lr_scheduler_type", "lr_scheduler_kwargs"):
            writer.lose(name, "Hugging Face's Trainer has no equivalent")


def keep_best(writer: ConfigWriter, asked: bool = False) -> None:
    """Write what keeping the best model needs: checkpoints at each validation."""
    best = writer.take("load_best_model_at_end")
    if best is None and not asked:
        return
    writer.put("load_best_model_at_end", bool(best or asked))
    if not (best or asked):
        return
    if writer.values.keys() & {"save_steps", "save_strategy"}:
        return  # the trial itself says when to save
    if (steps := writer.values.get("eval_steps")) is not None:
        if writer.title != "Axolotl":
            writer.put("save_strategy", "steps")
        writer.put("save_steps", steps)
    elif (strategy := writer.values.get("eval_strategy")) is not None:
        writer.put("save_strategy", strategy)


def remark_on(file: str) -> str | None:
    """What to do with a file that `datasets` would read as one column."""
    return "its columns are separated by tabs: use commas" if ".tsv" in PurePath(file).suffixes else None


def format_of(file: str) -> str:
    """The library `datasets`'s name for the format of a file."""
    suffix = PurePath(file.removesuffix(".gz")).suffix.lower()
    return {".txt": "text", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}.get(suffix, "json")
