"""The file of `trl sft --config FILE`: `SFTConfig`, `ModelConfig` and `DatasetMixtureConfig` of TRL 1."""

from __future__ import annotations

import re

from .keys import (
    TRAINER_KEYS,
    adapters,
    keep_best,
    kind,
    known_optimizer,
    known_schedule,
    model,
    tabs,
    warmup,
)
from .names import OF_TRL
from .recipe import EVERY_ANSWER
from .sheet import ConfigWriter


def fill(sheet: ConfigWriter, output_dir: str) -> None:
    """Write the recipe in TRL's keys."""
    recipe = sheet.recipe
    sheet.section("The model and its data")
    model(sheet, "model_name_or_path", "model_revision")
    if (file := sheet.take("train_file")) is None:
        sheet.place("datasets", "[{path: NAME}]", "its name on the Hub; or {path: json, data_files: FILE}")
    else:
        sheet.put("datasets", [{"path": kind(file), "data_files": file}], tabs(file))
    sheet.lose("validation_file", "trl sft validates on a split of the data set")
    if split := sheet.take("validation_split"):
        sheet.put("test_split_size", split)
    elif recipe.values.get("eval_strategy") not in (None, "no"):
        sheet.place("test_split_size", "0.1", "eval_strategy needs a split, or must be no")
    for name, theirs in (("prompt_field", "prompt"), ("completion_field", "completion")):
        if recipe.values.get(name) == theirs:
            sheet.take(name)
        sheet.lose(name, f'rename the column to "{theirs}": that is its name in TRL')
    sheet.carry({"text_field": "dataset_text_field", "max_length": "max_length", "packing": "packing"})
    if "packing" in recipe.remarks:
        sheet.put("packing_strategy", "wrapped", "a text continues in the next row")
    if sheet.take("last_answer"):
        sheet.put("assistant_only_loss", True, "needs {% generation %} in the chat template")
        recipe.lose("messages", "the last answer", EVERY_ANSWER)
    if adapters(sheet):
        sheet.put("use_peft", True)
        sheet.carry(("lora_r", "lora_alpha", "lora_dropout", "use_rslora", "use_dora"))
        if (targets := sheet.take("target_modules")) is not None:
            _targets(sheet, targets)
        sheet.carry({name: f"lora_{name}" for name in ("modules_to_save", "target_parameters")})
        sheet.carry(("load_in_4bit", "load_in_8bit"))
        sheet.lose(
            "loraplus_lr_ratio", "only a script can use it, with peft.optimizers.create_loraplus_optimizer"
        )
    sheet.section("The training")
    if recipe.values.get("bf16") == "auto":
        sheet.take("bf16")  # TRL does so by default
    warmup(sheet, share="warmup_steps")
    known_optimizer(sheet)
    known_schedule(sheet)
    sheet.carry(("gradient_checkpointing", *TRAINER_KEYS, *OF_TRL))
    sheet.lose("early_stopping_patience", "only a script can use it, with the callback EarlyStoppingCallback")
    keep_best(sheet)
    sheet.put("output_dir", output_dir)


def _targets(sheet: ConfigWriter, targets: str | list[str]) -> None:
    """Write the targets; to TRL a list of one name is a pattern, which must match a layer's whole path."""
    if isinstance(targets, str):
        sheet.put("lora_target_modules", [targets])
    elif len(targets) == 1:
        pattern = rf"(.*\.)?{re.escape(targets[0])}"
        sheet.put("lora_target_modules", [pattern], "TRL treats a single name as a pattern")
    else:
        sheet.put("lora_target_modules", targets)
