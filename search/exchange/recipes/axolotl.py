"""The file of `axolotl train FILE`: `AxolotlInputConfig` of Axolotl 0.19."""

from __future__ import annotations

from typing import Any

from ...trials.yaml_text import text_of
from . import keys
from .config_writer import ConfigWriter
from .names import OF_ALL, OF_TRL_AND_AXOLOTL, OPTIMIZER
from .recipe import ALL_LINEAR, EVERY_ANSWER

NAMES = (  # in the order of the file
    *("per_device_train_batch_size", "gradient_accumulation_steps", "max_steps", "num_train_epochs"),
    *("learning_rate", "optim", *OPTIMIZER, "max_grad_norm", "neftune_noise_alpha"),
    *("lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "warmup_ratio", "bf16", "fp16", "tf32"),
    *("gradient_checkpointing", "torch_compile", "max_length", "packing", "seed"),
    *("per_device_eval_batch_size", "eval_steps", "save_total_limit", *OF_ALL, *OF_TRL_AND_AXOLOTL),
    "eval_strategy",
)
AXOLOTL_NAMES = {
    "per_device_train_batch_size": "micro_batch_size",
    "num_train_epochs": "num_epochs",
    "optim": "optimizer",
    "lr_scheduler_type": "lr_scheduler",
    "max_length": "sequence_len",
    "packing": "sample_packing",
    "per_device_eval_batch_size": "eval_batch_size",
}


def fill(writer: ConfigWriter, output_dir: str) -> None:
    """Write the recipe in Axolotl's keys."""
    recipe = writer.recipe
    writer.section("The model and its data")
    keys.put_model(writer, "base_model", "revision_of_model")
    read = _type_of_records(writer) if "train_file" in recipe.values else {}
    for name, key in (("train_file", "datasets"), ("validation_file", "test_datasets")):
        if (file := writer.take(name)) is None:
            if name == "train_file":
                hint = "a file or a name on the Hub; how a record is read"
                writer.leave(key, "[{path: NAME, type: TYPE}]", hint)
            continue
        records = {"path": file, "ds_type": keys.format_of(file)}
        if read or keys.format_of(file) == "text":
            writer.put(key, [records | (read or {"type": "completion"})], keys.remark_on(file))
        else:
            hint = "TYPE: how a record is read, such as alpaca or chat_template"
            writer.leave(key, text_of([records | {"type": "TYPE"}]), hint)
    if split := writer.take("validation_split"):
        writer.put("val_set_size", split)
    if keys.begin_adapters(writer):
        writer.put("adapter", "qlora" if recipe.values.get("load_in_4bit") else "lora")
        writer.carry(("load_in_4bit", "load_in_8bit", "lora_r"))
        if isinstance(alpha := recipe.values.get("lora_alpha"), float):
            recipe.remarks["lora_alpha"] = f"{alpha:g} in the trial; only whole numbers here"
            writer.lose("lora_alpha", f"Axolotl accepts only whole numbers: {round(alpha)} is written")
            recipe.values["lora_alpha"] = round(alpha)
        writer.carry(("lora_alpha", "lora_dropout"))
        if (targets := writer.take("target_modules")) is not None:
            linear = targets == ALL_LINEAR
            writer.put(*(("lora_target_linear", True) if linear else ("lora_target_modules", targets)))
        writer.carry({name: f"lora_{name}" for name in ("modules_to_save", "target_parameters")})
        writer.carry({"use_rslora": "peft_use_rslora", "use_dora": "peft_use_dora"})
        writer.carry(("loraplus_lr_ratio",))
    writer.section("The training")
    if "learning_rate" not in recipe.values:
        writer.leave("learning_rate", "2.0e-4", "the trial has none, but Axolotl needs one")
    if "eval_steps" in recipe.values:
        writer.take("eval_strategy")  # eval_steps implies it
    elif recipe.values.get("early_stopping_patience"):
        writer.lose("early_stopping_patience", "Axolotl accepts it only with eval_steps")
    if recipe.values.get("warmup_ratio"):  # Axolotl: of max_steps or one epoch, whichever is less
        keys.put_warmup(writer, share="warmup_ratio")
    writer.carry({name: AXOLOTL_NAMES.get(name, name) for name in NAMES})
    if patience := writer.take("early_stopping_patience"):
        writer.put("early_stopping_patience", patience)
    keys.keep_best(writer, asked=bool(patience))
    writer.put("output_dir", output_dir)


def _type_of_records(writer: ConfigWriter) -> dict[str, Any]:
    """How Axolotl reads a record with these fields; empty where the trial names none."""
    if writer.take("last_answer"):
        writer.recipe.lose("messages", "the last answer", EVERY_ANSWER)
        return {"type": "chat_template", "field_messages": "messages", "roles_to_train": ["assistant"]}
    text, prompt, completion = (writer.take(f"{name}_field") for name in ("text", "prompt", "completion"))
    if prompt and completion:
        fields = {"field_instruction": prompt, "field_output": completion}
        return {"type": fields | dict.fromkeys(("format", "no_input_format"), "{instruction}")}
    return {"type": "completion", "field": text} if text else {}
