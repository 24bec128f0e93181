"""The peak memory of a run in bytes, counted from its configuration alone, not measured.

    kept          the model, the optimizer and the best weights, all the time
    + the largest of
        forward   the activations that each block keeps for the gradient, and the logits
        backward  the gradients, and the activations of one block
        step      the gradients, and the optimizer's intermediate tensors
        validate  the adapters merged into a copy of their weights, and the activations of one validation pass

`search.preflight.memory` calibrates the count to a machine with two measured runs, so only the differences
between configurations matter here. The count follows the code in `model`, `optim` and `packs` and has to
change with it: `tests/trainer/guides/test_footprint.py` compares the two. This module imports no torch.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from ..config.models import LoraConfig, PretrainConfig, TrainConfig
from ..config.shape import VOCABULARY, Shape
from ..errors import CheckpointError
from ..header import SHIPPED_BASE, base_shape, read_header

FP32_BYTES = 4  # bytes; trained tensors, gradients and the optimizer's state are in fp32 in every precision
HALF_PRECISIONS = ("bf16", "fp16")
COMPILER_BYTES = 50_000_000  # bytes of torch's compiler, which activation checkpointing loads
RECOMPUTED_FACTOR = 2  # times the size of a recomputed block: it does not fit in the gaps that glibc leaves
LINEAR_WIDTHS = {"qkv": (1, 3), "out": (1, 1), "up": (1, 4), "down": (4, 1)}  # inputs and outputs, in widths

# The parameters that the count depends on; no other changes it.
COUNTED_PARAMETERS = frozenset(
    (
        *("batch_size", "gradient_accumulation_steps", "max_length", "eval_samples", "optimizer", "device"),
        *("precision", "load_best_model_at_end", "early_stopping_patience", "gradient_checkpointing"),
        *("torch_compile", "lora_r", "lora_dropout", "target_modules", "use_dora", "base", "finetuning_type"),
        *("width", "depth", "heads", "dropout"),
    )
)


@dataclass(frozen=True)
class Footprint:
    """The bytes of one run, by phase."""

    kept: int
    forward: int
    backward: int
    step: int
    validate: int

    @property
    def peak(self) -> int:
        """The most bytes held at a time."""
        return self.kept + max(self.forward, self.backward, self.step, self.validate)


def footprint(config: TrainConfig, *, cuda: bool = False) -> Footprint:
    """The memory of a run of this configuration; `cuda` says that the device `auto` is a CUDA device.

    Raises `OSError` or `CheckpointError` if its base cannot be read.
    """
    if cuda and config.device == "auto":
        config = dataclasses.replace(config, device="cuda")
    size = shape_of(config)
    half = config.precision in HALF_PRECISIONS or (config.device == "cuda" and config.precision == "auto")
    trained = _trained(config, size)
    kept = FP32_BYTES * (_model(config, size) + trained + _state(config, size))
    best = FP32_BYTES * trained if config.keeps_best else 0
    kept += best
    if config.passes_per_step > 1:
        kept += FP32_BYTES * trained  # the accumulated gradient
    if config.gradient_checkpointing or config.torch_compile:
        kept += COMPILER_BYTES
    tokens = config.rows_per_pass * config.max_length
    block = _block(config, size, half)
    if config.gradient_checkpointing:
        blocks = (size.depth - 1) * FP32_BYTES * size.width + RECOMPUTED_FACTOR * block
    else:
        blocks = max(size.depth * block, 10 * FP32_BYTES * size.width)  # at least one block's computation
    if isinstance(config, PretrainConfig) and config.dropout:
        blocks += 2 * FP32_BYTES * size.width  # of the embeddings
    if not _linear(config):
        blocks += 2 * FP32_BYTES * size.width  # the last norm's output, which the head needs
    logits = VOCABULARY * (FP32_BYTES * 4 + (2 if half else 0))  # with softmax, and the gradients of both
    gradients = FP32_BYTES * _computed(config, size)
    passing = (16 if half else 24) * size.width  # gradients that pass through the widest layers
    rows = min(config.rows_per_validation_pass, config.eval_samples)
    seen = rows * config.max_length
    return Footprint(
        kept=kept,
        forward=tokens * (blocks + logits),
        backward=gradients + tokens * (block + passing),
        step=gradients + FP32_BYTES * _making(config, size),
        # The old best weights are held while the new ones are copied.
        validate=best
        + FP32_BYTES * _merged(config, size)
        + seen * (10 * FP32_BYTES * size.width + 3 * FP32_BYTES * VOCABULARY),
    )


def trained_numbers(config: TrainConfig) -> int:
    """How many numbers a run of this configuration trains. Raises like `footprint`."""
    return _trained(config, shape_of(config))


def peak_bytes(kind: type[TrainConfig], params: Mapping[str, Any], *, cuda: bool = False) -> int:
    """The peak bytes of a run with these parameters; those that do not affect it may have any value.

    Raises `ConfigError` for an invalid configuration, else like `footprint`.
    """
    given = ((name, _hashable(value)) for name, value in params.items() if name in COUNTED_PARAMETERS)
    known: Any = kind  # mypy takes the instances' hash for the hash of the class
    return _peak_bytes(known, tuple(given), cuda)


@functools.lru_cache(maxsize=4096)
def _peak_bytes(kind: Any, params: tuple[tuple[str, Any], ...], cuda: bool) -> int:
    config: TrainConfig = kind.from_params({**dict(params), "max_steps": 1})
    return footprint(config, cuda=cuda).peak


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def shape_of(config: TrainConfig) -> Shape:
    """The size of a run's model. Raises like `footprint`."""
    if isinstance(config, PretrainConfig):
        return config.shape
    assert isinstance(config, LoraConfig)
    path = SHIPPED_BASE if config.base is None else Path(os.path.expanduser(config.base))
    found = _size_of(path.absolute(), path.stat().st_mtime_ns)
    if isinstance(found, str):
        raise CheckpointError(found)
    return found


@functools.cache
def _size_of(path: Path, stamp: int) -> Shape | str:
    """The size of a base, from the header of its file; the error message if the file is not a base."""
    try:
        return base_shape(path, read_header(path))
    except CheckpointError as error:
        return str(error)


def _adapts(config: TrainConfig) -> TypeGuard[LoraConfig]:
    return isinstance(config, LoraConfig) and config.finetuning_type == "lora"


def _linear(config: TrainConfig) -> bool:
    return isinstance(config, LoraConfig) and config.finetuning_type == "linear"


def _adapters(config: LoraConfig, size: Shape, rank: int) -> int:
    """How many numbers adapters of this rank have."""
    pairs = [LINEAR_WIDTHS[target] for target in config.targets]
    inputs, outputs = sum(i for i, _ in pairs), sum(o for _, o in pairs)
    return size.depth * size.width * (rank * (inputs + outputs) + (outputs if config.use_dora else 0))


def _trained(config: TrainConfig, size: Shape) -> int:
    """How many numbers a run trains."""
    if _adapts(config):
        return _adapters(config, size, config.lora_r)
    return VOCABULARY * size.width if _linear(config) else size.weights


def _computed(config: TrainConfig, size: Shape) -> int:
    """How many numbers the gradients have: those of padded adapters twice, by layer and then concatenated."""
    if _adapts(config):
        return 2 * _adapters(config, size, config.padded_rank)
    return _trained(config, size)


def _model(config: TrainConfig, size: Shape) -> int:
    """How many numbers the model has besides the trained ones."""
    if _adapts(config):
        return size.weights + _adapters(config, size, config.padded_rank)
    return size.weights if isinstance(config, LoraConfig) else 0  # the base, cached unchanged


def _state(config: TrainConfig, size: Shape) -> int:
    """How many numbers the optimizer's state has."""
    trained = _trained(config, size)
    match config.optimizer:
        case "adamw":
            return 2 * trained
        case "muon":  # plus AdamW's for all but the hidden matrices
            hidden = trained if _adapts(config) else 0 if _linear(config) else size.depth * 12 * size.width**2
            return trained + (trained - hidden)
        case "adafactor":  # a row and a column of each matrix
            return trained // max(1, min(size.width, _rank(config, size)))
    return trained


def _making(config: TrainConfig, size: Shape) -> int:
    """How many numbers the optimizer's intermediate tensors have in a step."""
    trained = _trained(config, size)
    largest = trained if _linear(config) else 4 * size.width * _rank(config, size)
    match config.optimizer:
        case "lion":
            return trained
        case "adafactor":
            return 3 * largest
        case "muon":
            return 4 * largest
    return 0


def _rank(config: TrainConfig, size: Shape) -> int:
    """The shorter side of a trained matrix."""
    return config.lora_r if _adapts(config) else size.width


def _merged(config: TrainConfig, size: Shape) -> int:
    """How many numbers the weights with merged adapters have, in a validation."""
    if not _adapts(config):
        return 0
    widths = [LINEAR_WIDTHS[name] for name in config.targets]
    return size.depth * size.width**2 * sum(inputs * outputs for inputs, outputs in widths)


def _block(config: TrainConfig, size: Shape, half: bool) -> int:
    """Bytes that a block keeps for the gradient, for each token.

    These are always the inputs of both of its parts, q, k, v, the output of attention and the input of GELU;
    also the inputs of linears whose weights or adapters are trained.
    """
    if _linear(config):
        return 0
    low = 2 if half else FP32_BYTES  # products and attention compute in this precision
    kept = 2 * FP32_BYTES + low * (3 + 1 + 4)
    if not _adapts(config):
        kept += low * (1 + 1 + 4) + (2 * FP32_BYTES if half else 0)
        if isinstance(config, PretrainConfig) and config.dropout:
            kept += low * 2
        return size.width * kept
    inputs, outputs = (sum(LINEAR_WIDTHS[name][side] for name in config.targets) for side in (0, 1))
    if config.lora_dropout:
        kept += low * 2 * inputs  # the mask and the masked input
    else:
        kept += low * (inputs - ("out" in config.targets))  # attention keeps the input of `out` already
    if half:
        kept += FP32_BYTES * len({"qkv", "up"}.intersection(config.targets))
    if config.use_dora:
        kept += low * outputs
    return size.width * kept + low * config.padded_rank * len(config.targets)
