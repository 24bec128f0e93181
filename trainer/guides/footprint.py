"""How many bytes a run holds at its fullest, from its configuration alone: counted, not measured.

    kept          what the model, the optimizer and the best weights hold all the time
    + the most of
        forward   what each block keeps for the gradient, of all tokens of a pass, and the logits
        backward  the gradients, with what the last block computed on needs
        step      the gradients, and what the optimizer makes of them
        validate  the adapters merged into a copy of their weights, and a block of a chunk of rows

`search.preflight.memory` brings it to what a process takes on a machine, by two runs that it measures. So
what counts here is what differs between configurations. The names are those of `model`, `lora`, `optim` and
`pack`, and a change there is one here: `tests/trainer/guides/test_footprint.py` compares the two. This module
imports no torch.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config.models import LoraConfig, PretrainConfig, TrainConfig
from ..config.shape import VOCABULARY
from ..errors import CheckpointError
from ..header import SHIPPED_BASE, base_shape, read_header

FP32 = 4  # bytes; of what is trained, its gradients and the optimizer's state in every precision
HALF = ("bf16", "fp16")
COMPILER = 50_000_000  # bytes of torch's compiler, which checkpointing loads
AGAIN = 2  # times the room of a block that is computed again: glibc leaves holes that it does not fit
WIDTHS = {"qkv": (1, 3), "out": (1, 1), "up": (1, 4), "down": (4, 1)}  # inputs and outputs, in widths


# What it is counted from; nothing else that a run can be told changes it.
PARAMETERS = frozenset(
    [
        "batch_size",
        "gradient_accumulation_steps",
        "max_length",
        "eval_samples",
        "optimizer",
        "device",
        "precision",
        "load_best_model_at_end",
        "early_stopping_patience",
        "gradient_checkpointing",
        "torch_compile",
        "lora_r",
        "lora_dropout",
        "target_modules",
        "use_dora",
        "base",
        "finetuning_type",
        "width",
        "depth",
        "heads",
        "dropout",
    ]
)


@dataclass(frozen=True)
class Footprint:
    """Bytes of one run."""

    kept: int
    forward: int
    backward: int
    step: int
    validate: int

    @property
    def peak(self) -> int:
        """The most that is held at a time."""
        return self.kept + max(self.forward, self.backward, self.step, self.validate)


@dataclass(frozen=True)
class _Size:
    """Of a model."""

    width: int
    depth: int
    max_length: int

    @property
    def block(self) -> int:
        """Numbers in the matrices and gains of a block."""
        return 12 * self.width**2 + 2 * self.width

    @property
    def weights(self) -> int:
        return self.depth * self.block + (2 * VOCABULARY + self.max_length + 1) * self.width


def footprint(config: TrainConfig, *, cuda: bool = False) -> Footprint:
    """What a run of this configuration holds; `cuda`: where the device `auto` is such a one.

    Raises `OSError` or `CheckpointError` where its base cannot be read.
    """
    if cuda and config.device == "auto":
        config = dataclasses.replace(config, device="cuda")
    size = _size(config)
    half = config.precision in HALF or (config.device == "cuda" and config.precision == "auto")
    trained = _trained(config, size)
    kept = FP32 * (_model(config, size) + trained + _state(config, size))
    best = FP32 * trained if config.keeps_best else 0
    kept += best
    if config.passes_per_step > 1:
        kept += FP32 * trained  # the gradient so far
    if config.gradient_checkpointing or config.torch_compile:
        kept += COMPILER
    tokens = config.rows_per_pass * config.max_length
    block = _block(config, size, half)
    if config.gradient_checkpointing:
        blocks = (size.depth - 1) * FP32 * size.width + AGAIN * block
    else:
        blocks = max(size.depth * block, 10 * FP32 * size.width)  # where nothing is kept, a block computes
    if isinstance(config, PretrainConfig) and config.dropout:
        blocks += 2 * FP32 * size.width  # of the embeddings
    if not _linear(config):
        blocks += 2 * FP32 * size.width  # the last norm's, which the head takes
    logits = VOCABULARY * (FP32 * 4 + (2 if half else 0))  # they, their softmax, and the gradients of both
    gradients = FP32 * _computed(config, size)
    passing = (16 if half else 24) * size.width  # gradients of the widest layers, on their way
    rows = min(config.rows_per_look, config.eval_samples)
    seen = rows * config.max_length
    return Footprint(
        kept=kept,
        forward=tokens * (blocks + logits),
        backward=gradients + tokens * (block + passing),
        step=gradients + FP32 * _making(config, size),
        # The old best weights are held while the new ones are made.
        validate=best
        + FP32 * _merged(config, size)
        + seen * (10 * FP32 * size.width + 3 * FP32 * VOCABULARY),
    )


def trained_numbers(config: TrainConfig) -> int:
    """How many numbers a run of this configuration trains. Raises as `footprint` does."""
    return _trained(config, _size(config))


def highest_rank(config: LoraConfig) -> int:
    """The rank from which adapters are whole matrices: the width of its base. Raises as `footprint` does."""
    return _size(config).width


def longest_sequence(config: TrainConfig) -> int:
    """The most tokens that its model reads at once. Raises as `footprint` does."""
    return _size(config).max_length


def counted(kind: type[TrainConfig], params: Mapping[str, Any], *, cuda: bool = False) -> int:
    """The most that a run of these parameters holds at a time; of those that do not matter none is looked at.

    Raises `ConfigError` for what no configuration has, and as `footprint` does.
    """
    given = ((name, _hashable(value)) for name, value in params.items() if name in PARAMETERS)
    known: Any = kind  # whose instances' hash mypy takes for its own
    return _counted(known, tuple(given), cuda)


@functools.lru_cache(maxsize=4096)
def _counted(kind: Any, params: tuple[tuple[str, Any], ...], cuda: bool) -> int:
    config: TrainConfig = kind.from_params({**dict(params), "max_steps": 1})
    return footprint(config, cuda=cuda).peak


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _size(config: TrainConfig) -> _Size:
    if isinstance(config, PretrainConfig):
        return _Size(config.width, config.depth, config.max_length)
    assert isinstance(config, LoraConfig)
    path = SHIPPED_BASE if config.base is None else Path(os.path.expanduser(config.base))
    found = _size_of(path.absolute(), path.stat().st_mtime_ns)
    if isinstance(found, str):
        raise CheckpointError(found)
    return found


@functools.cache
def _size_of(path: Path, stamp: int) -> _Size | str:
    """The size of a base, from the header of its file; what to say of one that is none, which may be long."""
    try:
        shape = base_shape(path, read_header(path))
    except CheckpointError as error:
        return str(error)
    return _Size(shape.width, shape.depth, shape.max_length)


def _adapts(config: TrainConfig) -> bool:
    return isinstance(config, LoraConfig) and config.finetuning_type == "lora"


def _linear(config: TrainConfig) -> bool:
    return isinstance(config, LoraConfig) and config.finetuning_type == "linear"


def _adapters(config: TrainConfig, size: _Size, rank: int) -> int:
    """Numbers in the adapters of that rank."""
    assert isinstance(config, LoraConfig)
    pairs = [WIDTHS[target] for target in config.targets]
    inputs, outputs = sum(i for i, _ in pairs), sum(o for _, o in pairs)
    return size.depth * size.width * (rank * (inputs + outputs) + (outputs if config.use_dora else 0))


def _trained(config: TrainConfig, size: _Size) -> int:
    """Numbers that a run trains."""
    if _adapts(config):
        assert isinstance(config, LoraConfig)
        return _adapters(config, size, config.lora_r)
    return VOCABULARY * size.width if _linear(config) else size.weights


def _computed(config: TrainConfig, size: _Size) -> int:
    """Numbers in the gradients: of the padded adapters, by layer and then side by side."""
    if _adapts(config):
        assert isinstance(config, LoraConfig)
        return 2 * _adapters(config, size, config.padded_rank)
    return _trained(config, size)


def _model(config: TrainConfig, size: _Size) -> int:
    """Numbers that the model holds beside what is trained."""
    if _adapts(config):
        assert isinstance(config, LoraConfig)
        return size.weights + _adapters(config, size, config.padded_rank)
    return size.weights if isinstance(config, LoraConfig) else 0  # the base itself, which nobody changes


def _state(config: TrainConfig, size: _Size) -> int:
    """Numbers of the optimizer."""
    trained = _trained(config, size)
    match config.optimizer:
        case "adamw":
            return 2 * trained
        case "muon":  # AdamW's of what is no hidden matrix
            hidden = trained if _adapts(config) else 0 if _linear(config) else size.depth * 12 * size.width**2
            return trained + (trained - hidden)
        case "adafactor":  # a row and a column of each matrix
            return trained // max(1, min(size.width, _rank(config, size)))
    return trained


def _making(config: TrainConfig, size: _Size) -> int:
    """Numbers that the optimizer makes on the way to a step."""
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


def _rank(config: TrainConfig, size: _Size) -> int:
    """The shorter side of a matrix that is trained."""
    return config.lora_r if _adapts(config) and isinstance(config, LoraConfig) else size.width


def _merged(config: TrainConfig, size: _Size) -> int:
    """Numbers in the weights that hold their adapters while nothing trains."""
    if not _adapts(config):
        return 0
    assert isinstance(config, LoraConfig)
    return size.depth * size.width**2 * sum(i * o for i, o in (WIDTHS[name] for name in config.targets))


def _block(config: TrainConfig, size: _Size, half: bool) -> int:
    """Bytes that a block keeps of each token for the gradient.

    Always the stream before both of its parts, q, k, v, what attention makes of them, and the input of GELU;
    the other inputs of linears where their weights, or adapters of them, are trained.
    """
    if _linear(config):
        return 0
    low = 2 if half else FP32  # what products and attention compute in
    kept = 2 * FP32 + low * (3 + 1 + 4)
    if not _adapts(config):
        kept += low * (1 + 1 + 4) + (2 * FP32 if half else 0)
        if isinstance(config, PretrainConfig) and config.dropout:
            kept += low * 2
        return size.width * kept
    assert isinstance(config, LoraConfig)
    inputs, outputs = (sum(WIDTHS[name][side] for name in config.targets) for side in (0, 1))
    if config.lora_dropout:
        kept += low * 2 * inputs  # the mask, and what it leaves
    else:
        kept += low * (inputs - ("out" in config.targets))  # whose input attention keeps already
    if half:
        kept += FP32 * len({"qkv", "up"}.intersection(config.targets))
    if config.use_dora:
        kept += low * outputs
    return size.width * kept + low * config.padded_rank * len(config.targets)
