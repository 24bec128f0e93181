"""The parameters of runs of hpsearch's own model, each with its default, range and a line of help.

    LoraConfig.from_params({"learning_rate": 1e-3, "max_samples": 1600})

Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .rules import Need, Rule, one_of, optional, real, switch, text, whole
from .shape import Shape
from .training import ADAM_OPTIONS, DROPOUT_INTERVAL, NEEDS, SIZE_INTERVAL, Adapters, TrainingConfig

TARGETS = ("qkv", "out", "up", "down")
FINETUNING_TYPES = ("lora", "full", "linear")

# Tokens of one run in a forward pass. On a CPU, the data of more would not fit in a core's cache; a GPU would
# finish fewer before the next are launched.
PASS_TOKENS = {"cpu": 512, "cuda": 4096}
LOOK_ROWS = 8  # of a forward pass of the validation; on CUDA as many as `PASS_TOKENS` allows, if more

_ADAPTERS = (
    *("lora_r", "lora_alpha", "alpha_over_r", "lora_dropout", "target_modules"),
    *("use_rslora", "use_dora", "loraplus_lr_ratio"),
)
_LORA_NEEDS = {
    **dict.fromkeys(_ADAPTERS, one_of("finetuning_type", "lora")),
    # Muon leaves to AdamW all that is not a matrix of a block; adapters are such matrices.
    **dict.fromkeys(
        ADAM_OPTIONS,
        Need(
            "optimizer is adamw, or muon with use_dora or a finetuning_type of full or linear",
            "{optimizer: adamw}",
            lambda values: (
                values["optimizer"] == "adamw"
                or (
                    values["optimizer"] == "muon"
                    and (values["use_dora"] or values["finetuning_type"] != "lora")
                )
            ),
        ),
    ),
    "momentum": Need(
        "optimizer is sgd, or muon with a finetuning_type of lora or full",
        "{optimizer: sgd}",
        lambda values: (
            values["optimizer"] == "sgd"
            or (values["optimizer"] == "muon" and values["finetuning_type"] != "linear")
        ),
    ),
}


@dataclass(frozen=True, kw_only=True)
class TrainConfig(TrainingConfig):
    """The parameters of every training of hpsearch's own model."""

    eval_samples: int = whole(32, "[1, inf)", "validation sequences, the same ones every time")
    torch_compile: bool = switch("compile the blocks first: it takes a minute that only long runs repay")

    def sharing_problems(self, strategy: str) -> list[str]:
        problems = super().sharing_problems(strategy)
        if self.torch_compile:
            problems.append("torch_compile: found true, but a run of several processes is not compiled")
        return problems

    def is_sharded(self, strategy: str) -> bool:
        return super().is_sharded(strategy) or (strategy == "fsdp" and self.trains_all)

    @property
    def trains_all(self) -> bool:
        """Whether all weights of the model are trained, and none is frozen."""
        return True

    @property
    def rows_per_pass(self) -> int:
        """Sequences of one forward pass."""
        return self.batch_size

    @property
    def passes_per_step(self) -> int:
        """Forward passes of one optimizer step; the last may be padded with rows that do not count."""
        return math.ceil(self.rows_per_step / self.rows_per_pass)

    @property
    def rows_per_validation_pass(self) -> int:
        """Sequences of one forward pass of the validation."""
        return max(LOOK_ROWS, self._pass_tokens // self.max_length) if self.device == "cuda" else LOOK_ROWS

    @property
    def _pass_tokens(self) -> int:
        return PASS_TOKENS.get(self.device, PASS_TOKENS["cpu"])


@dataclass(frozen=True, kw_only=True)
class LoraConfig(Adapters, TrainConfig):
    """Fine-tune a base: with low-rank adapters, as a whole, or its head alone."""

    objective: ClassVar[str] = "lora"
    needs: ClassVar[Mapping[str, Need]] = NEEDS | _LORA_NEEDS
    models: ClassVar[tuple[str, ...]] = ("base",)

    train_file: str = text("english", (), "text, folder or .jsonl; or english, python (shipped with Python)")
    target_modules: str | list[str] | tuple[str, ...] = field(
        default="all-linear",
        metadata={"rule": Rule(list, f"linears to adapt: a list of {', '.join(TARGETS)}, or all-linear",
                               choices=(*TARGETS, "all-linear"))},
    )  # fmt: skip
    base: str | None = optional(str, "", "a pretrained model.safetensors (default: the base that ships)")
    finetuning_type: str = text(
        "lora",
        FINETUNING_TYPES,
        "what trains: adapters, the whole model (full), or its head (linear probing)",
    )

    @property
    def trains_all(self) -> bool:
        return self.finetuning_type == "full"

    @property
    def rows_per_pass(self) -> int:
        """Sequences of one forward pass: a step is cut into equal passes of at most `PASS_TOKENS`.

        It depends on the configuration alone, so that a run computes the same in any pack. The device `auto`
        counts as a CPU; training replaces it first (`build.on_device`).
        """
        if self.finetuning_type != "lora":
            return self.batch_size
        passes = math.ceil(self.rows_per_step * self.max_length / self._pass_tokens)
        return math.ceil(self.rows_per_step / min(passes, self.rows_per_step))

    @property
    def padded_rank(self) -> int:
        """The rank used in computation: 8, 16, 32, ... Rows beyond `lora_r` are zero and stay zero."""
        return max(8, 1 << (self.lora_r - 1).bit_length())

    @property
    def targets(self) -> tuple[str, ...]:
        """The adapted linears of a block, in the order of `TARGETS`."""
        names = [self.target_modules] if isinstance(self.target_modules, str) else self.target_modules
        return tuple(target for target in TARGETS if target in names or "all-linear" in names)


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(TrainConfig):
    """Train the small GPT from scratch."""

    objective: ClassVar[str] = "pretrain"

    weight_decay: float = real(0.1, "[0, inf)", "decoupled weight decay, on matrices only")
    width: int = whole(128, SIZE_INTERVAL, "numbers for each token between the blocks; a multiple of heads")
    depth: int = whole(4, "[1, 1000]", "blocks")
    heads: int = whole(4, SIZE_INTERVAL, "attention heads of a block")
    dropout: float = real(0.0, DROPOUT_INTERVAL, "dropout of the embeddings and of each block's two outputs")

    @property
    def shape(self) -> Shape:
        """The size of the model."""
        return Shape(self.width, self.depth, self.heads, self.max_length)

    @classmethod
    def _contradictions(cls, values: Mapping[str, Any]) -> list[str]:
        problems = super()._contradictions(values)
        if values["width"] % values["heads"]:
            problems.append(f"width: found {values['width']}, needs a multiple of heads ({values['heads']})")
        return problems


KINDS: Mapping[str, type[TrainConfig]] = {kind.objective: kind for kind in (LoraConfig, PretrainConfig)}
