"""What each framework calls the values of a recipe; checked against their published schemas by the tests.

| framework | read |
|---|---|
| trl | `SFTConfig`, `ModelConfig`, `DatasetMixtureConfig` of TRL 1 |
| axolotl | `AxolotlInputConfig` of Axolotl 0.19 |
| llamafactory | the arguments in `llamafactory.hparams` of LLaMA-Factory 0.9.5 |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from ..yaml_text import text_of
from .recipe import ALL_LINEAR, Recipe
from .sheet import Sheet

MODEL = "a model's folder, or its name on the Hub"
OPTIMIZER = (
    "learning_rate",
    "optim",
    "optim_args",
    "weight_decay",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
)
OF_THE_TRAINER = (  # what transformers.TrainingArguments calls as a recipe does
    *("per_device_train_batch_size", "gradient_accumulation_steps", "max_steps", "num_train_epochs"),
    *OPTIMIZER,
    *("max_grad_norm", "label_smoothing_factor", "neftune_noise_alpha", "lr_scheduler_type"),
    *("lr_scheduler_kwargs", "warmup_steps", "fp16", "bf16", "tf32", "torch_compile", "full_determinism"),
    *("seed", "per_device_eval_batch_size", "eval_strategy", "eval_steps", "save_total_limit"),
)
AXOLOTL = {
    "per_device_train_batch_size": "micro_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "max_steps": "max_steps",
    "num_train_epochs": "num_epochs",
    "learning_rate": "learning_rate",
    "optim": "optimizer",
    **{name: name for name in (*OPTIMIZER[2:], "max_grad_norm", "neftune_noise_alpha")},
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
}


@dataclass(frozen=True)
class Framework:
    """A framework that trains what a file says."""

    title: str
    command: str  # that reads the file
    fill: Callable[[Sheet, str], None]  # writes the recipe into a sheet, with the folder of the results


def _trl(sheet: Sheet, output_dir: str) -> None:
    recipe = sheet.recipe
    sheet.section("The model and its data")
    _model(sheet, "model_name_or_path", "model_revision")
    if (file := sheet.take("train_file")) is None:
        sheet.place("datasets", "[{path: NAME}]", "its name on the Hub; or {path: json, data_files: FILE}")
    else:
        sheet.put("datasets", [{"path": _kind(file), "data_files": file}])
    sheet.lose("validation_file", "trl sft validates on a split of the data set")
    split = sheet.take("validation_split")
    if split and "eval_strategy" in recipe.values:
        sheet.put("test_split_size", split)
    for name, theirs in (("prompt_field", "prompt"), ("completion_field", "completion")):
        if recipe.values.get(name) == theirs:
            sheet.take(name)
        sheet.lose(name, f'rename the column to "{theirs}": TRL knows it by that')
    sheet.carry({"text_field": "dataset_text_field", "max_length": "max_length", "packing": "packing"})
    if _adapters(sheet):
        sheet.put("use_peft", True)
        sheet.carry(("lora_r", "lora_alpha", "lora_dropout", "use_rslora", "use_dora"))
        if (targets := sheet.take("target_modules")) is not None:
            sheet.put("lora_target_modules", [targets] if isinstance(targets, str) else targets)
        sheet.carry(("load_in_4bit", "load_in_8bit"))
        sheet.lose(
            "loraplus_lr_ratio", "a script of yours has it by peft.optimizers.create_loraplus_optimizer"
        )
    sheet.section("The training")
    if recipe.values.get("bf16") == "auto":
        sheet.take("bf16")  # what TRL does by itself
    _warmup(sheet, share="warmup_steps")
    _known_optimizer(sheet)
    _known_schedule(sheet)
    sheet.carry(("gradient_checkpointing", *OF_THE_TRAINER))
    sheet.lose("early_stopping_patience", "the callback EarlyStoppingCallback takes it, in a script of yours")
    _keep_best(sheet)
    sheet.put("output_dir", output_dir)


def _axolotl(sheet: Sheet, output_dir: str) -> None:
    recipe = sheet.recipe
    sheet.section("The model and its data")
    _model(sheet, "base_model", "revision_of_model")
    read = _axolotl_type(sheet) if "train_file" in recipe.values else {}
    for name, key in (("train_file", "datasets"), ("validation_file", "test_datasets")):
        file = sheet.take(name)
        if file is not None and (read or _kind(file) == "text"):
            sheet.put(key, [{"path": file, "ds_type": _kind(file), **(read or {"type": "completion"})}])
        elif file is not None:
            example = text_of([{"path": file, "ds_type": _kind(file), "type": "TYPE"}])
            sheet.place(key, example, "TYPE: how a record is read, such as alpaca or chat_template")
        elif name == "train_file":
            sheet.place(
                key, "[{path: NAME, type: TYPE}]", "a file or a name on the Hub; how a record is read"
            )
    if split := sheet.take("validation_split"):
        sheet.put("val_set_size", split)
    if _adapters(sheet):
        sheet.put("adapter", "qlora" if recipe.values.get("load_in_4bit") else "lora")
        sheet.carry(("load_in_4bit", "load_in_8bit", "lora_r"))
        if isinstance(alpha := recipe.values.get("lora_alpha"), float):
            recipe.remarks["lora_alpha"] = f"{alpha:g} in the trial; whole numbers alone here"
            sheet.lose("lora_alpha", f"Axolotl takes whole numbers alone: {round(alpha)} is written")
            recipe.values["lora_alpha"] = round(alpha)
        sheet.carry(("lora_alpha", "lora_dropout"))
        if (targets := sheet.take("target_modules")) is not None:
            linear = targets == ALL_LINEAR
            sheet.put(*(("lora_target_linear", True) if linear else ("lora_target_modules", targets)))
        sheet.carry({"use_rslora": "peft_use_rslora", "use_dora": "peft_use_dora"})
        sheet.carry(("loraplus_lr_ratio",))
    sheet.section("The training")
    if "learning_rate" not in recipe.values:
        sheet.place("learning_rate", "2.0e-4", "the trial says none, Axolotl needs one")
    if "eval_steps" in recipe.values:
        sheet.take("eval_strategy")  # eval_steps says it
    elif recipe.values.get("early_stopping_patience"):
        sheet.lose("early_stopping_patience", "Axolotl takes it beside eval_steps alone")
    sheet.carry({**AXOLOTL, "eval_strategy": "eval_strategy"})
    if patience := sheet.take("early_stopping_patience"):
        sheet.put("early_stopping_patience", patience)
    _keep_best(sheet, asked=bool(patience))
    sheet.put("output_dir", output_dir)


def _llamafactory(sheet: Sheet, output_dir: str) -> None:
    recipe = sheet.recipe
    sheet.section("The model and its data")
    _model(sheet, "model_name_or_path", "model_revision")
    sheet.place("template", "TEMPLATE", "the model's chat template, such as llama3, qwen3 or default")
    for name, key in (("train_file", "dataset"), ("validation_file", "eval_dataset")):
        file = sheet.take(name)
        if file is not None or name == "train_file":
            told = f"the name of {file or 'a data set'} in data/dataset_info.json"
            sheet.place(key, "NAME", told)
    for name in ("text_field", "prompt_field", "completion_field"):
        sheet.lose(name, "data/dataset_info.json says it, under columns")
    split = sheet.take("validation_split")
    if split and "eval_strategy" in recipe.values:
        sheet.put("val_size", split)
    sheet.carry({"max_length": "cutoff_len", "packing": "packing"})
    sheet.put("stage", "sft", "pt where the data is plain text")
    sheet.put("do_train", True)
    adapts = _adapters(sheet)
    sheet.put("finetuning_type", "lora" if adapts else "full")
    if adapts:
        sheet.carry({"lora_r": "lora_rank", "lora_alpha": "lora_alpha", "lora_dropout": "lora_dropout"})
        if (targets := sheet.take("target_modules")) is not None:
            sheet.put("lora_target", "all" if targets == ALL_LINEAR else ",".join(targets))
        sheet.carry(("use_rslora", "use_dora", "loraplus_lr_ratio"))
        bits = [bits for bits in (4, 8) if sheet.take(f"load_in_{bits}bit")]
        if bits:
            sheet.put("quantization_bit", bits[0])
    sheet.section("The training")
    if recipe.values.get("bf16") == "auto":
        recipe.values["bf16"] = True
        recipe.remarks["bf16"] = "where the device has it"
    if (checkpointing := sheet.take("gradient_checkpointing")) is not None:
        sheet.put("disable_gradient_checkpointing", not checkpointing)
    if recipe.values.get("optim") == "muon":
        sheet.take("optim")
        sheet.put("use_muon", True)
    if recipe.values.get("lr_scheduler_type") == "warmup_stable_decay" and recipe.steps:
        kwargs = recipe.values[
            "lr_scheduler_kwargs"
        ]  # LLaMA-Factory would hold the rate for a third otherwise
        stable = recipe.steps - _warmup_steps(recipe) - kwargs["num_decay_steps"]
        recipe.values["lr_scheduler_kwargs"] = {"num_stable_steps": max(0, stable), **kwargs}
    _known_schedule(sheet)
    _warmup(sheet, share="warmup_ratio")
    sheet.carry((*OF_THE_TRAINER, "warmup_ratio"))
    if patience := sheet.take("early_stopping_patience"):
        sheet.put("early_stopping_steps", patience)
    _keep_best(sheet, asked=bool(patience))
    sheet.put("output_dir", output_dir)


def _axolotl_type(sheet: Sheet) -> dict[str, Any]:
    """How Axolotl reads a record of these fields; empty where the trial names none."""
    text, prompt, completion = (sheet.take(f"{name}_field") for name in ("text", "prompt", "completion"))
    if prompt and completion:
        fields = {"field_instruction": prompt, "field_output": completion}
        return {"type": fields | dict.fromkeys(("format", "no_input_format"), "{instruction}")}
    return {"type": "completion", "field": text} if text else {}


def _model(sheet: Sheet, key: str, revision: str) -> None:
    if sheet.recipe.values.get("task") == "causal_lm":
        sheet.take("task")
    sheet.lose("task", f"{sheet.title}'s file is for causal_lm")
    if "model" in sheet.recipe.values:
        sheet.carry({"model": key, "revision": revision})
    else:
        sheet.place(key, "MODEL", MODEL)


def _adapters(sheet: Sheet) -> bool:
    """Whether there are adapters; then their section begins."""
    adapts = sheet.recipe.adapts
    kind = sheet.take("finetuning_type")
    if kind not in (None, "lora", "full"):
        sheet.recipe.lose("finetuning_type", kind, f"{sheet.title} would train the whole model")
    if adapts:
        sheet.section("The adapters")
    return adapts


def _warmup_steps(recipe: Recipe) -> int:
    ratio = recipe.values.get("warmup_ratio") or 0
    return int(recipe.values.get("warmup_steps") or math.ceil(ratio * (recipe.steps or 0)))


def _warmup(sheet: Sheet, *, share: str) -> None:
    """In steps, where these are known; a share of the training else, by the name that `share` says.

    The newest transformers have no `warmup_ratio`: a `warmup_steps` below 1 is one there.
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


def _known_optimizer(sheet: Sheet) -> None:
    if sheet.recipe.values.get("optim") == "muon":
        sheet.lose("optim", f"{sheet.title} has none of this name; it trains with AdamW")


def _known_schedule(sheet: Sheet) -> None:
    if sheet.recipe.values.get("lr_scheduler_type") == "one_cycle":
        for name in ("lr_scheduler_type", "lr_scheduler_kwargs"):
            sheet.lose(name, "Hugging Face's Trainer has none like it")


def _keep_best(sheet: Sheet, asked: bool = False) -> None:
    """The best model at the end needs checkpoints where it is validated."""
    best = sheet.take("load_best_model_at_end")
    if not best and not asked:
        if best is not None:
            sheet.put("load_best_model_at_end", False)
        return
    sheet.put("load_best_model_at_end", True)
    written = sheet.values()
    if (steps := written.get("eval_steps")) is not None:
        if sheet.title != "Axolotl":
            sheet.put("save_strategy", "steps")
        sheet.put("save_steps", steps)
    elif (strategy := written.get("eval_strategy")) is not None:
        sheet.put("save_strategy", strategy)


def _kind(file: str) -> str:
    """What the library `datasets` calls a file like this one."""
    suffix = PurePath(file.removesuffix(".gz")).suffix.lower()
    return {".txt": "text", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}.get(suffix, "json")


FRAMEWORKS = {
    "trl": Framework("TRL", "trl sft --config {file}", _trl),
    "axolotl": Framework("Axolotl", "axolotl train {file}", _axolotl),
    "llamafactory": Framework("LLaMA-Factory", "llamafactory-cli train {file}", _llamafactory),
}
