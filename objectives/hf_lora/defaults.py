"""What a model's `config.json` says of how to search it: its task, and where its best learning rate may be.

| models | a first learning rate of LoRA | from |
|---|---|---|
| Llama, Qwen | 5e-5 * 10 * (2000 / width)^p | `get_lr` in the Tinker cookbook, a fit to sweeps |
| others | 3e-4 | `sft_sweep.md` there: the best mean of 482 runs of 35 models |

The width is the length of the vector that a token has between layers. The cookbook is by Thinking Machines
(thinking-machines-lab/tinker-cookbook, 2026, Apache-2.0).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ...trainer.errors import ConfigError
from ..errors import trainer_errors
from .files import CONFIG, NO_CONFIG, about, found, longest_row, not_found, readable, text_config

WIDTHS = ("hidden_size", "n_embd", "d_model", "dim", "n_embed")  # what models call their width
MAX_WIDTH = 1_000_000  # above that of any real model
SHORTEST_ROW = 2  # tokens: one to read, one to learn
# Of the fit: a rate of full fine-tuning, how much higher that of LoRA is, and the width that both are for.
FULL_RATE, LORA_FACTOR, FITTED_WIDTH = 5e-5, 10, 2000
EXPONENTS = {"llama": ("Llama", 0.781), "qwen": ("Qwen", 0.0775)}  # by a part of a model's type
COMMON_RATE = 3e-4
# Models that read a whole text at once: nothing but the type says it where the file names no architecture.
ENCODERS = re.compile(r"bert|electra|ernie|mpnet|longformer|funnel|nystromformer|luke|^xlm$")
CLASSIFIES = re.compile(r"For(MaskedLM|PreTraining|TokenClassification|QuestionAnswering)$")


@dataclass(frozen=True)
class ModelDefaults:
    """What suits a model, before anything has been tried."""

    kind: str  # its type, such as "llama"; "" if the file names none
    width: int
    task: str
    longest_row: int | None  # in tokens; None if unlimited
    learning_rate: float
    source: str  # why this rate, in words


def defaults_of(model: str) -> ModelDefaults:
    """What suits the model in a folder, or of an id in the hub's cache. Loads no framework.

    Raises `ObjectiveError` if there is no such model, its file says no width, or it takes no rows.
    """
    with trainer_errors(), readable(model):
        if not model.strip():
            raise ConfigError(["model: is empty, needs a folder, or the id of a model in the hub's cache"])
        folder = found(model)
        if folder is None:
            raise ConfigError([f"{not_found(model)}; name a folder, or download it (hf download {model})"])
        if not (folder / CONFIG).is_file():
            raise ConfigError([f"model: {folder} {': '.join(NO_CONFIG)}"])
        config = about(folder)
        width = _width(text_config(config)) or _width(config)
        if width is None:
            needs = f"needs a whole number up to {MAX_WIDTH:,} as {', '.join(WIDTHS)}"
            raise ConfigError([f"model: {folder / CONFIG} says no width: {needs}"])
        longest = longest_row(config)
        if longest is not None and longest < SHORTEST_ROW:
            needs = f"a row needs {SHORTEST_ROW}"
            raise ConfigError([f"model: {folder / CONFIG} has places for {longest} token, but {needs}"])
    kind = _kind(config)
    rate, source = first_rate(kind, width)
    return ModelDefaults(kind, width, task_of(config), longest, rate, source)


def _width(config: dict[str, Any]) -> int | None:
    numbers = (config.get(name) for name in WIDTHS)
    return next((number for number in numbers if type(number) is int and 0 < number <= MAX_WIDTH), None)


def _kind(config: dict[str, Any]) -> str:
    """The type of the part that reads text, or else its architecture."""
    named = (part.get("model_type") for part in (text_config(config), config))
    return next((str(kind) for kind in named if kind), _architecture(config))


def _architecture(config: dict[str, Any]) -> str:
    named = config.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


def first_rate(kind: str, width: int) -> tuple[float, str]:
    """A learning rate to begin with for a type of models and a width, and where it comes from."""
    for part, (family, exponent) in EXPONENTS.items():
        if part in kind.lower():
            formula = f"5e-5 * {LORA_FACTOR} * ({FITTED_WIDTH} / {width})^{exponent}"
            source = (
                f"{formula}, the fit for {family} in the Tinker cookbook (Apache-2.0, get_lr) at its width"
            )
            return FULL_RATE * LORA_FACTOR * (FITTED_WIDTH / width) ** exponent, source
    runs = "the best mean in 482 runs of 35 models in the Tinker cookbook (Apache-2.0, sft_sweep.md)"
    return COMMON_RATE, f"{runs}, as there is no fit for {kind or 'its type'}"


def task_of(config: dict[str, Any]) -> str:
    """The task that a model was made for, by its `config.json`. An encoder classifies."""
    architecture = _architecture(config)
    if architecture.endswith("ForSequenceClassification"):
        return "sequence_classification"
    translates = architecture.endswith("ForConditionalGeneration") and "text_config" not in config
    if config.get("is_encoder_decoder", translates) is True:
        return "seq2seq_lm"
    if architecture.endswith("ForCausalLM"):
        return "causal_lm"
    kind = str(config.get("model_type") or "")
    if CLASSIFIES.search(architecture) or ENCODERS.search(kind):
        return "sequence_classification"
    return "causal_lm"
