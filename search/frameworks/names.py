"""The names that a recipe has for what a training is told, what people call the same, and what it may be."""

from __future__ import annotations

from typing import Any

LORA = (
    *("lora_r", "lora_alpha", "lora_dropout", "target_modules", "use_rslora", "use_dora"),
    *("loraplus_lr_ratio", "load_in_4bit", "load_in_8bit"),
)
TRAINING = (
    *("learning_rate", "per_device_train_batch_size", "per_device_eval_batch_size"),
    *("gradient_accumulation_steps", "max_steps", "num_train_epochs", "warmup_steps", "warmup_ratio"),
    *("lr_scheduler_type", "lr_scheduler_kwargs", "optim", "optim_args", "weight_decay"),
    *("adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "label_smoothing_factor"),
    *("neftune_noise_alpha", "max_length", "packing", "bf16", "fp16", "tf32"),
    *("gradient_checkpointing", "torch_compile", "full_determinism", "seed", "eval_steps", "eval_strategy"),
    *("early_stopping_patience", "load_best_model_at_end", "save_total_limit"),
)
DATA = (
    *("model", "revision", "task", "train_file", "validation_file", "validation_split"),
    *("text_field", "prompt_field", "completion_field"),
)

WHOLE = (  # numbers from 1 on
    *("lora_r", "per_device_train_batch_size", "gradient_accumulation_steps", "max_steps", "max_samples"),
    *("samples_per_epoch", "eval_every", "eval_steps", "max_length"),
)
REAL = (
    *("learning_rate", "lora_alpha", "alpha_over_r", "num_train_epochs", "warmup_steps", "warmup_ratio"),
    *("early_stopping_patience", "validation_split"),
)
TEXTS = (
    *(name for name in DATA if name != "validation_split"),
    *("optim", "precision", "lr_scheduler_type", "finetuning_type"),
)

# What people call the same.
ALIASES = {
    **dict.fromkeys(("lr", "peak_lr"), "learning_rate"),
    **dict.fromkeys(("batch_size", "train_batch_size", "micro_batch_size"), "per_device_train_batch_size"),
    **dict.fromkeys(("epochs", "num_epochs"), "num_train_epochs"),
    **dict.fromkeys(("lr_scheduler", "scheduler"), "lr_scheduler_type"),
    **dict.fromkeys(("r", "lora_rank"), "lora_r"),
    **dict.fromkeys(("lora_target", "lora_target_modules"), "target_modules"),
    **dict.fromkeys(("max_seq_length", "max_seq_len", "sequence_len", "cutoff_len"), "max_length"),
    **dict.fromkeys(("model_name_or_path", "base_model", "model_name"), "model"),
    **dict.fromkeys(("grad_clip", "clip_grad_norm"), "max_grad_norm"),
    "optimizer": "optim",
    "label_smoothing": "label_smoothing_factor",
    "deterministic": "full_determinism",
    "model_revision": "revision",
    "peft_use_dora": "use_dora",
    "peft_use_rslora": "use_rslora",
    "eval_batch_size": "per_device_eval_batch_size",
}
# Values that change nothing: where a framework has no name for one, nothing is lost.
NEUTRAL = {
    **dict.fromkeys(("use_rslora", "use_dora", "load_in_4bit", "load_in_8bit", "packing"), False),
    **dict.fromkeys(
        ("torch_compile", "full_determinism", "group_by_length", "load_best_model_at_end"), False
    ),
    **dict.fromkeys(("label_smoothing_factor", "early_stopping_patience", "early_stopping_min_delta"), 0),
    **dict.fromkeys(("neftune_noise_alpha", "min_lr_ratio"), 0),
    "loraplus_lr_ratio": 1,
    "device": "auto",
    "task": "causal_lm",
}


def misfit(name: str, value: Any) -> str | None:
    """What a value of this name has to be, where it is something else; a user's own may be anything."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in WHOLE:
        return None if number and value >= 1 and value == int(value) else "whole number above 0"
    if name in REAL:
        return None if number else "number"
    if name == "target_modules" and isinstance(value, list | tuple):
        return None if value and all(isinstance(each, str) for each in value) else "list of names"
    if name in TEXTS or name == "target_modules":
        return None if isinstance(value, str) and value else "text"
    return None
