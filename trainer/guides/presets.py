"""Configurations to start with, by name: five scenarios and three sizes of model.

    preset_values(LoraConfig, ["production"], given=["learning_rate"])

The scenarios are those of the training guides, with our parameters' names. The guides are about models that
are a hundred to a thousand times larger, so some values differ:

| guides | here | why |
|---|---|---|
| num_train_epochs 1, 3, 5 | max_samples 2,600, 7,800, 13,000 | `english` has 2,600 sequences of 128 bytes |
| learning_rate 1e-3, 5e-4, 2e-4 | ten times that | measured: loss of `quick` 1.23, with the guides' 1.33 |
| the same, from scratch | three times that | measured: 2.40, with the guides' 2.43, with ten times 2.74 |
| eval_steps 50 to 1,000 | 10 or 5 validations an epoch | the guides' rule of thumb; our runs have few steps |
| warmup_ratio 0.1 | the same | the guides' rule for runs of less than 1,000 steps, as these are |
| linear; cosine | the same | the guides' rule for shorter and for longer training |
| batch sizes, patience | the same | |
| weight_decay 0.01 (production) | the default | the guides' 0.01 for a LoRA, 0.1 from scratch |
| gradient_checkpointing (memory) | the same | |
| fp16, bf16 | left out | `precision: auto` uses bf16 if the GPU has it |

The sizes and their dropout are those of the guides. So are the learning rates of medium and large, which are
for machines with a GPU; small uses that of our base. This module imports no torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..config.models import PretrainConfig, TrainConfig
from ..config.rules import did_you_mean, known_parameters
from ..errors import ConfigError

EPOCH_SAMPLES = 2600  # sequences of 128 bytes in `english`

SCENARIOS: Mapping[str, Mapping[str, Any]] = {
    "quick": {
        "max_samples": EPOCH_SAMPLES,
        "eval_every": EPOCH_SAMPLES // 10,
        "batch_size": 16,
        "gradient_accumulation_steps": 1,
        "learning_rate": 1e-3,
        "lr_scheduler": "linear",
        "warmup_ratio": 0.1,
    },
    "standard": {
        "max_samples": 3 * EPOCH_SAMPLES,
        "eval_every": EPOCH_SAMPLES // 5,
        "batch_size": 8,
        "gradient_accumulation_steps": 2,
        "learning_rate": 5e-4,
        "lr_scheduler": "linear",
        "warmup_ratio": 0.1,
        "early_stopping_patience": 3,
    },
    "production": {
        "max_samples": 5 * EPOCH_SAMPLES,
        "eval_every": EPOCH_SAMPLES // 5,
        "batch_size": 4,
        "gradient_accumulation_steps": 4,
        "learning_rate": 2e-4,
        "lr_scheduler": "cosine",
        "warmup_ratio": 0.1,
        "early_stopping_patience": 5,
    },
    "memory": {
        "max_samples": 3 * EPOCH_SAMPLES,
        "eval_every": EPOCH_SAMPLES // 5,
        "batch_size": 2,
        "gradient_accumulation_steps": 8,
        "gradient_checkpointing": True,
        "learning_rate": 5e-4,
        "lr_scheduler": "linear",
        "warmup_ratio": 0.1,
    },
    "time": {
        "max_samples": EPOCH_SAMPLES,
        "eval_every": EPOCH_SAMPLES // 5,
        "batch_size": 32,
        "gradient_accumulation_steps": 1,
        "learning_rate": 1e-3,
        "lr_scheduler": "linear",
        "warmup_ratio": 0.1,
    },
}
RATE_FACTORS = {"lora": 10.0, "pretrain": 3.0}  # from the guides' learning rates to ours

SIZES: Mapping[str, Mapping[str, Any]] = {
    "small": {"width": 128, "depth": 2, "heads": 4, "dropout": 0.1, "learning_rate": 3e-3},
    "medium": {"width": 512, "depth": 6, "heads": 8, "dropout": 0.1, "learning_rate": 3e-4},
    "large": {"width": 768, "depth": 12, "heads": 12, "dropout": 0.1, "learning_rate": 1e-4},
}
PRESETS = (*SCENARIOS, *SIZES)

# If the user gives the left parameter, the preset leaves out the right ones.
SUPERSEDES = {
    "max_steps": ("max_samples", "eval_every"),  # both count samples
    "num_train_epochs": ("max_samples", "eval_every"),
    "max_samples": ("eval_every",),  # it is meant for the preset's length
    "warmup_steps": ("warmup_ratio",),
}
# A search's winner has better values of these.
RATE_PARAMETERS = ("learning_rate", "lr_scheduler", "warmup_ratio", "warmup_steps")


def preset_values(
    config: type[TrainConfig], names: Sequence[str], given: Collection[str] = ()
) -> dict[str, Any]:
    """The values of one scenario, one size or both, for the parameters that are not `given`.

    The learning rate of a size has priority: the larger the model, the lower the rate. Raises `ConfigError`
    for an unknown name, two of a kind, or a size if the objective starts from a given model.
    """
    if problems := _problems(config, names):
        raise ConfigError(problems)
    values: dict[str, Any] = {}
    for name in sorted(names, key=PRESETS.index):  # scenarios first
        preset = dict(SCENARIOS.get(name) or SIZES[name])
        if name in SCENARIOS:
            preset["learning_rate"] = float(f"{RATE_FACTORS[config.objective] * preset['learning_rate']:.6g}")
        values |= preset
    instead = {other for name in given for other in SUPERSEDES.get(name, ())}
    return {name: value for name, value in values.items() if name not in instead.union(given)}


def _problems(config: type[TrainConfig], names: Sequence[str]) -> list[str]:
    if unknown := [name for name in names if name not in PRESETS]:
        return [
            f'there is no preset "{name}"{did_you_mean(name, PRESETS)}; there is {", ".join(PRESETS)}'
            for name in unknown
        ]
    problems = []
    for kind in (SCENARIOS, SIZES):
        same = [name for name in names if name in kind]
        if len(same) > 1:
            problems.append(f"{' and '.join(same)}: found both, needs at most one of {', '.join(kind)}")
    sizes = [name for name in names if name in SIZES]
    if sizes and not SIZES[sizes[0]].keys() <= known_parameters(config):
        problems.append(
            f"{sizes[0]} is a size to train from scratch (objective: {PretrainConfig.objective}); "
            f"{config.objective} adapts a base of fixed size"
        )
    return problems
