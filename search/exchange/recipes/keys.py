"""Keys of `transformers.TrainingArguments` and rules that several frameworks' files share."""

from __future__ import annotations

import math
from pathlib import PurePath

from .names import SAME_NAMES
from .recipe import Recipe
from .sheet import ConfigWriter

MODEL_HINT = "a model's folder, or its name on the Hub"
OPTIMIZER_KEYS = (
    "learning_rate",
    "optim",
    "optim_args",
    "weight_decay",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
)
TRAINER_KEYS = (  # with the same name in transformers.TrainingArguments and in a recipe
    *("per_device_train_batch_size", "gradient_accumulation_steps", "max_steps", "num_train_epochs"),
    *OPTIMIZER_KEYS,
    *("max_grad_norm", "label_smoothing_factor", "neftune_noise_alpha", "lr_scheduler_type"),
    *("lr_scheduler_kwargs", "warmup_steps", "fp16", "bf16", "tf32", "torch_compile", "full_determinism"),
    *("seed", "per_device_eval_batch_size", "eval_strategy", "eval_steps", "save_total_limit"),
    *SAME_NAMES,
)


def model(sheet: ConfigWriter, key: str, revision: str) -> None:
    """Write the base model, or leave a place for it."""
    if sheet.recipe.values.get("task") == "causal_lm":
        sheet.take("task")
    sheet.lose("task", f"{sheet.title}'s file is for causal_lm")
    if "model" in sheet.recipe.values:
        sheet.carry({"model": key, "revision": revision})
    else:
        sheet.place(key, "MODEL", MODEL_HINT)


def adapters(sheet: ConfigWriter) -> bool:
    """Whether the trial trains adapters; if so, starts their section."""
    adapts = sheet.recipe.adapts
    kind = sheet.take("finetuning_type")
    if kind not in (None, "lora", "full"):
        sheet.recipe.lose("finetuning_type", kind, f"{sheet.title} would train the whole model")
    if adapts:
        sheet.section("The adapters")
    return adapts


def warmup_steps(recipe: Recipe) -> int:
    """The steps of the warm-up, in a training of known length."""
    ratio = recipe.values.get("warmup_ratio") or 0
    return int(recipe.values.get("warmup_steps") or math.ceil(ratio * (recipe.steps or 0)))


def warmup(sheet: ConfigWriter, *, share: str) -> None:
    """Write the warm-up in steps where the training's are known, else as a share, under the name in `share`.

    The newest transformers have no `warmup_ratio`: there a `warmup_steps` below 1 is a share.
    """
    recipe = sheet.recipe
    if not (ratio := sheet.take("warmup_ratio")) or recipe.values.get("warmup_steps"):
        return
    if recipe.steps:
        recipe.values["warmup_steps"] = math.ceil(ratio * recipe.steps)
        recipe.remarks["warmup_steps"] = f"{ratio:g} of {recipe.steps}"
    else:
        recipe.values[share] = ratio
        if share == "warmup_steps":
            recipe.remarks[share] = "a share of the training, in transformers 5"


def known_optimizer(sheet: ConfigWriter) -> None:
    """Leave out an optimizer that Hugging Face's Trainer lacks."""
    if sheet.recipe.values.get("optim") == "muon":
        sheet.lose("optim", f"{sheet.title} has no optimizer of this name; it trains with AdamW")


def known_schedule(sheet: ConfigWriter) -> None:
    """Leave out a schedule that Hugging Face's Trainer lacks."""
    if sheet.recipe.values.get("lr_scheduler_type") == "one_cycle":
        for name in ("lr_scheduler_type", "lr_scheduler_kwargs"):
            sheet.lose(name, "Hugging Face's Trainer has no equivalent")


def keep_best(sheet: ConfigWriter, asked: bool = False) -> None:
    """Write what keeping the best model needs: checkpoints at each validation."""
    best = sheet.take("load_best_model_at_end")
    if not best and not asked:
        if best is not None:
            sheet.put("load_best_model_at_end", False)
        return
    sheet.put("load_best_model_at_end", True)
    written = sheet.values()
    if "save_steps" in written or "save_strategy" in written:  # the trial itself says when
        return
    if (steps := written.get("eval_steps")) is not None:
        if sheet.title != "Axolotl":
            sheet.put("save_strategy", "steps")
        sheet.put("save_steps", steps)
    elif (strategy := written.get("eval_strategy")) is not None:
        sheet.put("save_strategy", strategy)


def tabs(file: str) -> str | None:
    """What to do with a file that `datasets` would read as one column."""
    return "its columns are separated by tabs: use commas" if ".tsv" in PurePath(file).suffixes else None


def kind(file: str) -> str:
    """The library `datasets`'s name for the format of a file."""
    suffix = PurePath(file.removesuffix(".gz")).suffix.lower()
    return {".txt": "text", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}.get(suffix, "json")
