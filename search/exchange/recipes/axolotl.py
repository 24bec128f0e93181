"""The file of `axolotl train FILE`: `AxolotlInputConfig` of Axolotl 0.19."""

from __future__ import annotations

from typing import Any

from ...trials.yaml_text import text_of
from .keys import OPTIMIZER_KEYS, adapters, keep_best, kind, model, tabs, warmup
from .names import OF_ALL, OF_TRL_AND_AXOLOTL
from .recipe import ALL_LINEAR, EVERY_ANSWER
from .sheet import ConfigWriter

AXOLOTL_KEYS = {
    "per_device_train_batch_size": "micro_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "max_steps": "max_steps",
    "num_train_epochs": "num_epochs",
    "learning_rate": "learning_rate",
    "optim": "optimizer",
    **{name: name for name in (*OPTIMIZER_KEYS[2:], "max_grad_norm", "neftune_noise_alpha")},
    "lr_scheduler_type": "lr_scheduler",
    "lr_scheduler_kwargs": "lr_scheduler_kwargs",
    "warmup_steps": "warmup_steps",
    "warmup_ratio": "warmup_ratio",
    **{name: name for name in ("bf16", "fp16", "tf32", "gradient_checkpointing", "torch_compile")},
    "max_length": "sequence_len",
    "packing": "sample_packing",
    "seed": "seed",
    "per_device_eval_batch_size": "eval_batch_size",
    "eval_steps": "eval_steps",
    "save_total_limit": "save_total_limit",
    **{name: name for name in (*OF_ALL, *OF_TRL_AND_AXOLOTL)},
}


def fill(sheet: ConfigWriter, output_dir: str) -> None:
    """Write the recipe in Axolotl's keys."""
    recipe = sheet.recipe
    sheet.section("The model and its data")
    model(sheet, "base_model", "revision_of_model")
    read = _type_of_records(sheet) if "train_file" in recipe.values else {}
    for name, key in (("train_file", "datasets"), ("validation_file", "test_datasets")):
        file = sheet.take(name)
        if file is not None and (read or kind(file) == "text"):
            records = {"path": file, "ds_type": kind(file), **(read or {"type": "completion"})}
            sheet.put(key, [records], tabs(file))
        elif file is not None:
            example = text_of([{"path": file, "ds_type": kind(file), "type": "TYPE"}])
            sheet.place(key, example, "TYPE: how a record is read, such as alpaca or chat_template")
        elif name == "train_file":
            sheet.place(
                key, "[{path: NAME, type: TYPE}]", "a file or a name on the Hub; how a record is read"
            )
    if split := sheet.take("validation_split"):
        sheet.put("val_set_size", split)
    if adapters(sheet):
        sheet.put("adapter", "qlora" if recipe.values.get("load_in_4bit") else "lora")
        sheet.carry(("load_in_4bit", "load_in_8bit", "lora_r"))
        if isinstance(alpha := recipe.values.get("lora_alpha"), float):
            recipe.remarks["lora_alpha"] = f"{alpha:g} in the trial; only whole numbers here"
            sheet.lose("lora_alpha", f"Axolotl accepts only whole numbers: {round(alpha)} is written")
            recipe.values["lora_alpha"] = round(alpha)
        sheet.carry(("lora_alpha", "lora_dropout"))
        if (targets := sheet.take("target_modules")) is not None:
            linear = targets == ALL_LINEAR
            sheet.put(*(("lora_target_linear", True) if linear else ("lora_target_modules", targets)))
        sheet.carry({name: f"lora_{name}" for name in ("modules_to_save", "target_parameters")})
        sheet.carry({"use_rslora": "peft_use_rslora", "use_dora": "peft_use_dora"})
        sheet.carry(("loraplus_lr_ratio",))
    sheet.section("The training")
    if "learning_rate" not in recipe.values:
        sheet.place("learning_rate", "2.0e-4", "the trial has none, but Axolotl needs one")
    if "eval_steps" in recipe.values:
        sheet.take("eval_strategy")  # eval_steps implies it
    elif recipe.values.get("early_stopping_patience"):
        sheet.lose("early_stopping_patience", "Axolotl accepts it only with eval_steps")
    if recipe.values.get("warmup_ratio"):  # Axolotl: of max_steps or one epoch, whichever is less
        warmup(sheet, share="warmup_ratio")
    sheet.carry({**AXOLOTL_KEYS, "eval_strategy": "eval_strategy"})
    if patience := sheet.take("early_stopping_patience"):
        sheet.put("early_stopping_patience", patience)
    keep_best(sheet, asked=bool(patience))
    sheet.put("output_dir", output_dir)


def _type_of_records(sheet: ConfigWriter) -> dict[str, Any]:
    """How Axolotl reads a record with these fields; empty where the trial names none."""
    if sheet.take("last_answer"):
        sheet.recipe.lose("messages", "the last answer", EVERY_ANSWER)
        return {"type": "chat_template", "field_messages": "messages", "roles_to_train": ["assistant"]}
    text, prompt, completion = (sheet.take(f"{name}_field") for name in ("text", "prompt", "completion"))
    if prompt and completion:
        fields = {"field_instruction": prompt, "field_output": completion}
        return {"type": fields | dict.fromkeys(("format", "no_input_format"), "{instruction}")}
    return {"type": "completion", "field": text} if text else {}
