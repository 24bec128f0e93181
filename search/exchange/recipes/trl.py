"""The file of `trl sft --config FILE`: `SFTConfig`, `ModelConfig` and `DatasetMixtureConfig` of TRL 1."""

from __future__ import annotations

import re

from . import keys
from .config_writer import ConfigWriter
from .names import OF_TRL
from .recipe import EVERY_ANSWER


def fill(writer: ConfigWriter, output_dir: str) -> None:
    """Write the recipe in TRL's keys."""
    recipe = writer.recipe
    writer.section("The model and its data")
    keys.put_model(writer, "model_name_or_path", "model_revision")
    if (file := writer.take("train_file")) is None:
        writer.leave("datasets", "[{path: NAME}]", "its name on the Hub; or {path: json, data_files: FILE}")
    else:
        writer.put("datasets", [{"path": keys.format_of(file), "data_files": file}], keys.remark_on(file))
    writer.lose("validation_file", "trl sft validates on a split of the data set")
    if split := writer.take("validation_split"):
        writer.put("test_split_size", split)
    elif recipe.values.get("eval_strategy") not in (None, "no"):
        writer.leave("test_split_size", "0.1", "eval_strategy needs a split, or must be no")
    for name, theirs in (("prompt_field", "prompt"), ("completion_field", "completion")):
        if recipe.values.get(name) == theirs:
            writer.take(name)
        writer.lose(name, f'rename the column to "{theirs}": that is its name in TRL')
    writer.carry({"text_field": "dataset_text_field", "max_length": "max_length", "packing": "packing"})
    if "packing" in recipe.remarks:
        writer.put("packing_strategy", "wrapped", "a text continues in the next row")
    if writer.take("last_answer"):
        writer.put("assistant_only_loss", True, "needs {% generation %} in the chat template")
        recipe.lose("messages", "the last answer", EVERY_ANSWER)
    if keys.begin_adapters(writer):
        writer.put("use_peft", True)
        writer.carry(("lora_r", "lora_alpha", "lora_dropout", "use_rslora", "use_dora"))
        if (targets := writer.take("target_modules")) is not None:
            _targets(writer, targets)
        writer.carry({name: f"lora_{name}" for name in ("modules_to_save", "target_parameters")})
        writer.carry(("load_in_4bit", "load_in_8bit"))
        why = "only a script can use it, with peft.optimizers.create_loraplus_optimizer"
        writer.lose("loraplus_lr_ratio", why)
    writer.section("The training")
    if recipe.values.get("bf16") == "auto":
        writer.take("bf16")  # TRL does so by default
    keys.put_warmup(writer, share="warmup_steps")
    if recipe.values.get("optim") == "muon":
        writer.lose("optim", "TRL has no optimizer of this name; it trains with AdamW")
    keys.drop_unknown_schedule(writer)
    writer.carry(("gradient_checkpointing", *keys.TRAINER_KEYS, *OF_TRL))
    why = "only a script can use it, with the callback EarlyStoppingCallback"
    writer.lose("early_stopping_patience", why)
    keys.keep_best(writer)
    writer.put("output_dir", output_dir)


def _targets(writer: ConfigWriter, targets: str | list[str]) -> None:
    """Write the targets; to TRL a list of one name is a pattern, which must match a layer's whole path."""
    remark = None
    if isinstance(targets, str):
        targets = [targets]
    elif len(targets) == 1:
        targets = [rf"(.*\.)?{re.escape(targets[0])}"]
        remark = "TRL treats a single name as a pattern"
    writer.put("lora_target_modules", targets, remark)
