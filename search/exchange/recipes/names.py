"""The names of a training's settings in a recipe, their synonyms, and the kinds of their values."""

from __future__ import annotations

from typing import Any

LORA = (
    *("lora_r", "lora_alpha", "lora_dropout", "target_modules", "use_rslora", "use_dora"),
    *("loraplus_lr_ratio", "load_in_4bit", "load_in_8bit"),
)
OPTIMIZER = ("optim_args", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon")
OF_TRAINER = (  # of TrainingArguments, in the order of a file
    *("per_device_train_batch_size", "gradient_accumulation_steps", "max_steps", "num_train_epochs"),
    *("learning_rate", "optim", *OPTIMIZER),
    *("max_grad_norm", "label_smoothing_factor", "neftune_noise_alpha", "lr_scheduler_type"),
    *("lr_scheduler_kwargs", "warmup_steps", "fp16", "bf16", "tf32", "torch_compile", "full_determinism"),
    *("seed", "per_device_eval_batch_size", "eval_strategy", "eval_steps", "save_total_limit"),
)
TRAINING = (
    *(*OF_TRAINER, "warmup_ratio", "max_length", "packing", "gradient_checkpointing"),
    *("early_stopping_patience", "load_best_model_at_end"),
)
# Of TrainingArguments, the names that all frameworks share, and those that only Axolotl lacks.
OF_ALL = (
    *("accelerator_config", "auto_find_batch_size", "dataloader_drop_last", "dataloader_num_workers"),
    *("dataloader_pin_memory", "dataloader_prefetch_factor", "ddp_broadcast_buffers", "ddp_bucket_cap_mb"),
    *("ddp_find_unused_parameters", "ddp_timeout", "deepspeed", "fsdp", "fsdp_config"),
    *("gradient_checkpointing_kwargs", "greater_is_better", "logging_steps", "metric_for_best_model"),
    *("optim_target_modules", "remove_unused_columns", "save_only_model", "save_steps", "save_strategy"),
    *("torch_compile_backend", "torch_compile_mode", "torch_empty_cache_steps", "trust_remote_code"),
)
SAME_NAMES = (
    *OF_ALL,
    *("average_tokens_across_devices", "batch_eval_metrics", "bf16_full_eval", "data_seed", "ddp_backend"),
    *("ddp_static_graph", "dataloader_persistent_workers", "disable_tqdm", "do_eval"),
    *("eval_accumulation_steps", "eval_delay", "eval_do_concat_batches", "eval_on_start", "fp16_full_eval"),
    *("ignore_data_skip", "include_for_metrics", "include_num_input_tokens_seen", "label_names"),
    *("length_column_name", "liger_kernel_config", "log_level", "log_level_replica", "log_on_each_node"),
    *("logging_first_step", "logging_nan_inf_filter", "logging_strategy", "prediction_loss_only"),
    *("report_to", "run_name", "save_on_each_node", "train_sampling_strategy", "use_cpu"),
    "use_liger_kernel",
)
OF_TRL = (  # other keys of TRL's file; Axolotl shares the first ones
    *("attn_implementation", "dataset_num_proc", "activation_offloading", "pad_to_multiple_of"),
    *("assistant_only_loss", "completion_only_loss", "loss_type", "dtype", "padding_free"),
    *("packing_strategy", "eval_packing", "truncation_mode", "shuffle_dataset", "chat_template_path"),
    *("eos_token", "pad_token"),
    *("bnb_4bit_quant_type", "bnb_4bit_quant_storage", "use_bnb_nested_quant", "router_aux_loss_coef"),
    *("dataset_kwargs", "model_init_kwargs", "activation_checkpointing", "activation_checkpointing_kwargs"),
)
OF_TRL_AND_AXOLOTL = OF_TRL[:4]
OF_PEFT = (  # keys that only peft.LoraConfig has, except modules_to_save
    *("modules_to_save", "alpha_pattern", "bias", "exclude_modules", "fan_in_fan_out", "init_lora_weights"),
    *("layer_replication", "layers_pattern", "layers_to_transform", "loftq_config", "lora_bias"),
    *("rank_pattern", "target_parameters", "trainable_token_indices"),
)
DATA = (
    *("model", "revision", "task", "train_file", "validation_file", "validation_split"),
    *("text_field", "prompt_field", "completion_field"),
)

KNOWN = frozenset((*TRAINING, *SAME_NAMES, *OF_TRL, *OF_PEFT, *LORA, *DATA))
FINE_TUNING = frozenset((*TRAINING, *LORA, *DATA, "precision", "alpha_over_r", "max_samples"))
MAPPINGS = frozenset(  # values that may be mappings; any other mapping is a group of settings
    name
    for name in KNOWN
    if name.endswith(("_args", "_config", "_kwargs", "_pattern"))
    or name in ("deepspeed", "fsdp", "trainable_token_indices")
)

WHOLE_NUMBERS = (  # from 1 on
    *("lora_r", "per_device_train_batch_size", "gradient_accumulation_steps", "max_steps", "max_samples"),
    *("samples_per_epoch", "eval_every", "eval_steps", "max_length"),
)
REAL_NUMBERS = (
    *("learning_rate", "lora_alpha", "alpha_over_r", "num_train_epochs", "warmup_steps", "warmup_ratio"),
    *("early_stopping_patience", "validation_split"),
)
TEXT_NAMES = (
    *(name for name in DATA if name != "validation_split"),
    *("optim", "precision", "lr_scheduler_type", "finetuning_type"),
)

# Synonyms.
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
    "dataset_text_field": "text_field",
    "model_revision": "revision",
    "peft_use_dora": "use_dora",
    "peft_use_rslora": "use_rslora",
    "eval_batch_size": "per_device_eval_batch_size",
    "random_seed": "seed",
    "lora_modules_to_save": "modules_to_save",
    "lora_target_parameters": "target_parameters",
}
# Values without an effect: where a framework has no key for them, nothing is lost.
NEUTRAL = {
    **dict.fromkeys(("use_rslora", "use_dora", "load_in_4bit", "load_in_8bit", "packing"), False),
    **dict.fromkeys(("torch_compile", "full_determinism", "group_by_length"), False),
    **dict.fromkeys(("load_best_model_at_end", "fan_in_fan_out", "lora_bias"), False),
    **dict.fromkeys(("label_smoothing_factor", "early_stopping_patience", "early_stopping_min_delta"), 0),
    **dict.fromkeys(("neftune_noise_alpha", "min_lr_ratio"), 0),
    "loraplus_lr_ratio": 1,
    "device": "auto",
    "task": "causal_lm",
    "bias": "none",
    "init_lora_weights": True,
}


def misfit(name: str, value: Any) -> str | None:
    """The kind that a value of this name must have, where it has another; None for a user's own names."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in WHOLE_NUMBERS:
        return None if number and value >= 1 and value == int(value) else "whole number above 0"
    if name in REAL_NUMBERS:
        return None if number else "number"
    if name == "bias":
        return None if value in ("none", "all", "lora_only") else "none, all or lora_only"
    if name in ("target_modules", "modules_to_save") and isinstance(value, list | tuple):
        return None if value and all(isinstance(each, str) for each in value) else "list of names"
    if name in (*TEXT_NAMES, "target_modules", "modules_to_save"):
        return None if isinstance(value, str) and value else "text"
    return None
