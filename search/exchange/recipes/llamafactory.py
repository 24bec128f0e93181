"""The file of `llamafactory-cli train FILE`: the arguments of LLaMA-Factory 0.9.5."""

from __future__ import annotations

from .keys import TRAINER_KEYS, adapters, keep_best, known_schedule, model, warmup, warmup_steps
from .recipe import ALL_LINEAR, Recipe
from .sheet import ConfigWriter


def fill(sheet: ConfigWriter, output_dir: str) -> None:
    """Write the recipe in LLaMA-Factory's keys."""
    recipe = sheet.recipe
    sheet.section("The model and its data")
    model(sheet, "model_name_or_path", "model_revision")
    sheet.place("template", "TEMPLATE", "the model's chat template, such as llama3, qwen3 or default")
    for name, key in (("train_file", "dataset"), ("validation_file", "eval_dataset")):
        file = sheet.take(name)
        if file is not None or name == "train_file":
            sheet.place(key, "NAME", f"the name of {file or 'a data set'} in data/dataset_info.json")
    for name in ("text_field", "prompt_field", "completion_field"):
        sheet.lose(name, "it belongs in data/dataset_info.json, under columns")
    if split := sheet.take("validation_split"):
        sheet.put("val_size", split)
    sheet.carry({"max_length": "cutoff_len", "packing": "packing"})
    if sheet.take("last_answer"):
        sheet.put("mask_history", True, "the last answer is learned, as in the trial")
    sheet.put("stage", "sft", "pt where the data is plain text")
    sheet.put("do_train", True)
    adapts = adapters(sheet)
    sheet.put("finetuning_type", "lora" if adapts else "full")
    if adapts:
        sheet.carry({"lora_r": "lora_rank", "lora_alpha": "lora_alpha", "lora_dropout": "lora_dropout"})
        if (targets := sheet.take("target_modules")) is not None:
            if isinstance(targets, str) and targets != ALL_LINEAR:
                recipe.lose("target_modules", targets, "LLaMA-Factory accepts names only, not a pattern")
            else:
                sheet.put("lora_target", "all" if targets == ALL_LINEAR else ",".join(targets))
        if modules := sheet.take("modules_to_save"):
            sheet.put("additional_target", modules if isinstance(modules, str) else ",".join(modules))
        sheet.carry(("use_rslora", "use_dora", "loraplus_lr_ratio"))
        bits = [bits for bits in (4, 8) if sheet.take(f"load_in_{bits}bit")]
        if bits:
            sheet.put("quantization_bit", bits[0])
    sheet.section("The training")
    if recipe.values.get("bf16") == "auto":
        recipe.values["bf16"] = True
        recipe.remarks["bf16"] = "where the device supports it"
    if (checkpointing := sheet.take("gradient_checkpointing")) is not None:
        sheet.put("disable_gradient_checkpointing", not checkpointing)
    if recipe.values.get("optim") == "muon":
        sheet.take("optim")
        sheet.put("use_muon", True)
    _hold_the_rate(recipe)
    known_schedule(sheet)
    warmup(sheet, share="warmup_ratio")
    sheet.carry((*TRAINER_KEYS, "warmup_ratio"))
    if patience := sheet.take("early_stopping_patience"):
        sheet.put("early_stopping_steps", patience)
    keep_best(sheet, asked=bool(patience))
    sheet.put("output_dir", output_dir)


def _hold_the_rate(recipe: Recipe) -> None:
    """Write how long warmup_stable_decay is stable: LLaMA-Factory's default is a third of the training."""
    kwargs = recipe.values.get("lr_scheduler_kwargs")
    if recipe.values.get("lr_scheduler_type") != "warmup_stable_decay" or not recipe.steps:
        return
    if isinstance(kwargs, dict) and isinstance(falling := kwargs.get("num_decay_steps"), int):
        stable = max(0, recipe.steps - warmup_steps(recipe) - falling)
        recipe.values["lr_scheduler_kwargs"] = {"num_stable_steps": stable, **kwargs}
