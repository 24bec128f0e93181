"""The file of `llamafactory-cli train FILE`: the arguments of LLaMA-Factory 0.9.5."""

from __future__ import annotations

import math

from . import keys
from .config_writer import ConfigWriter
from .recipe import ALL_LINEAR, Recipe


def fill(writer: ConfigWriter, output_dir: str) -> None:
    """Write the recipe in LLaMA-Factory's keys."""
    recipe = writer.recipe
    writer.section("The model and its data")
    keys.put_model(writer, "model_name_or_path", "model_revision")
    writer.leave("template", "TEMPLATE", "the model's chat template, such as llama3, qwen3 or default")
    for name, key in (("train_file", "dataset"), ("validation_file", "eval_dataset")):
        file = writer.take(name)
        if file is not None or name == "train_file":
            writer.leave(key, "NAME", f"the name of {file or 'a data set'} in data/dataset_info.json")
    for name in ("text_field", "prompt_field", "completion_field"):
        writer.lose(name, "it belongs in data/dataset_info.json, under columns")
    if split := writer.take("validation_split"):
        writer.put("val_size", split)
    writer.carry({"max_length": "cutoff_len", "packing": "packing"})
    if writer.take("last_answer"):
        writer.put("mask_history", True, "the last answer is learned, as in the trial")
    writer.put("stage", "sft", "pt where the data is plain text")
    writer.put("do_train", True)
    adapts = keys.begin_adapters(writer)
    writer.put("finetuning_type", "lora" if adapts else "full")
    if adapts:
        writer.carry({"lora_r": "lora_rank", "lora_alpha": "lora_alpha", "lora_dropout": "lora_dropout"})
        if (targets := writer.take("target_modules")) is not None:
            if isinstance(targets, str) and targets != ALL_LINEAR:
                recipe.lose("target_modules", targets, "LLaMA-Factory accepts names only, not a pattern")
            else:
                writer.put("lora_target", "all" if targets == ALL_LINEAR else ",".join(targets))
        if modules := writer.take("modules_to_save"):
            writer.put("additional_target", modules if isinstance(modules, str) else ",".join(modules))
        writer.carry(("use_rslora", "use_dora", "loraplus_lr_ratio"))
        if bits := [bits for bits in (4, 8) if writer.take(f"load_in_{bits}bit")]:
            writer.put("quantization_bit", bits[0])
    writer.section("The training")
    if recipe.values.get("bf16") == "auto":
        recipe.values["bf16"] = True
        recipe.remarks["bf16"] = "where the device supports it"
    if (checkpointing := writer.take("gradient_checkpointing")) is not None:
        writer.put("disable_gradient_checkpointing", not checkpointing)
    if recipe.values.get("optim") == "muon":
        writer.take("optim")
        writer.put("use_muon", True)
    _hold_the_rate(recipe)
    keys.drop_unknown_schedule(writer)
    keys.put_warmup(writer, share="warmup_ratio")
    writer.carry((*keys.TRAINER_KEYS, "warmup_ratio"))
    if patience := writer.take("early_stopping_patience"):
        writer.put("early_stopping_steps", patience)
    keys.keep_best(writer, asked=bool(patience))
    writer.put("output_dir", output_dir)


def _hold_the_rate(recipe: Recipe) -> None:
    """Write how long warmup_stable_decay is stable: LLaMA-Factory's default is a third of the training."""
    kwargs = recipe.values.get("lr_scheduler_kwargs")
    if recipe.values.get("lr_scheduler_type") != "warmup_stable_decay" or not recipe.steps:
        return
    if isinstance(kwargs, dict) and isinstance(falling := kwargs.get("num_decay_steps"), int):
        share = recipe.values.get("warmup_ratio") or 0
        warmup = int(recipe.values.get("warmup_steps") or math.ceil(share * recipe.steps))
        stable = max(0, recipe.steps - warmup - falling)
        recipe.values["lr_scheduler_kwargs"] = {"num_stable_steps": stable, **kwargs}
