"""The parameters of every training, whatever the model: its length, its schedule, its optimizer, its text.

The names are those of Hugging Face's `TrainingArguments` and `LoraConfig`. This module imports no torch, so
that checking a space and printing `--help` take milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from .rules import Need, Parameters, ReportPlan, one_of, optional, real, switch, text, whole

SCHEDULERS = (
    "constant", "linear", "cosine", "cosine_with_restarts", "polynomial", "step", "inverse_sqrt",
    "warmup_stable_decay", "one_cycle", "reduce_on_plateau",
)  # fmt: skip
SCHEDULER_OPTIONS = {  # each of one scheduler alone
    "cosine_with_restarts": ("lr_cycles",),
    "polynomial": ("lr_power",),
    "step": ("lr_step_every", "lr_gamma"),
    "inverse_sqrt": ("lr_timescale",),
    "warmup_stable_decay": ("lr_decay_ratio", "lr_decay_type"),
    "one_cycle": ("lr_rise_ratio", "lr_start_divisor"),
    "reduce_on_plateau": ("lr_plateau_patience", "lr_plateau_factor", "lr_plateau_min_delta"),
}
DECAYS = ("linear", "cosine", "1-sqrt")
DEVICES = ("auto", "cpu", "cuda", "mps")
PRECISIONS = ("auto", "fp32", "bf16", "fp16", "tf32")
OPTIMIZERS = ("adamw", "sgd", "adafactor", "lion", "muon")
LENGTHS = {"max_samples": "samples", "max_steps": "steps", "num_train_epochs": "epochs"}  # and their units
NAMED_CORPORA = ("english", "python")
# More than any run needs: beyond these intervals, products of values overflow or a model is too large.
ROWS_INTERVAL = "[1, 1000000]"
SIZE_INTERVAL = "[1, 65536]"
SCALE_INTERVAL = "(0, 1e9]"
# In 32-bit arithmetic, a higher dropout may round to 1 and a smaller epsilon to 0.
DROPOUT_INTERVAL = "[0, 0.999)"
EPSILON_INTERVAL = "[1e-37, inf)"
REPORT_METRICS = (
    *("train_loss", "overfitting_gap", "perplexity", "accuracy", "learning_rate", "grad_norm"),
    *("tokens_per_second", "host_memory_mb", "device_memory_mb"),
)  # the metrics of a report besides its value, the validation loss
NOT_IDENTIFYING = ("device", "save_total_limit")  # may change when a run is resumed

ADAM_OPTIONS = ("adam_beta1", "adam_beta2", "adam_epsilon")
SPLIT_NEED = Need(
    "validation_file is left out", "validation_file == null", lambda values: values["validation_file"] is None
)
NEEDS = {
    **{
        name: one_of("lr_scheduler", scheduler)
        for scheduler, names in SCHEDULER_OPTIONS.items()
        for name in names
    },
    "min_lr_ratio": Need(
        "lr_scheduler is not constant",
        'lr_scheduler != "constant"',
        lambda values: values["lr_scheduler"] != "constant",
    ),
    **dict.fromkeys(ADAM_OPTIONS, one_of("optimizer", "adamw", "muon")),
    "momentum": one_of("optimizer", "sgd", "muon"),
    "nesterov": one_of("optimizer", "sgd"),
    **dict.fromkeys(("lion_beta1", "lion_beta2"), one_of("optimizer", "lion")),
    "samples_per_epoch": Need(
        "num_train_epochs is given",
        "num_train_epochs != null",
        lambda values: values["num_train_epochs"] is not None,
    ),
    "early_stopping_min_delta": Need(
        "early_stopping_patience is above 0",
        "early_stopping_patience > 0",
        lambda values: values["early_stopping_patience"] > 0,
    ),
    "validation_split": SPLIT_NEED,
}


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Parameters):
    """The parameters of every training. Exactly one of the `LENGTHS` is given: the resource."""

    needs: ClassVar[Mapping[str, Need]] = NEEDS
    not_identifying: ClassVar[tuple[str, ...]] = NOT_IDENTIFYING
    files: ClassVar[tuple[str, ...]] = ("train_file", "validation_file")
    bundled_data: ClassVar[tuple[str, ...]] = NAMED_CORPORA

    learning_rate: float = real(1e-3, "(0, 1e30]", "peak learning rate")
    batch_size: int = whole(8, ROWS_INTERVAL, "sequences in a forward pass")
    gradient_accumulation_steps: int = whole(1, ROWS_INTERVAL, "forward passes in an optimizer step")
    max_samples: int | None = optional(
        int, "[1, inf)", "length of the run in sequences; or give one of these:"
    )
    max_steps: int | None = optional(int, "[1, inf)", "length of the run in optimizer steps")
    num_train_epochs: int | None = optional(
        int, "[1, inf)", "length of the run in epochs; or give one of these"
    )
    samples_per_epoch: int | None = optional(
        int, "[1, inf)", "sequences of an epoch (default: all of the text)"
    )
    eval_every: int | None = optional(
        int,
        "[1, inf)",
        "validate every so many of these (default: a tenth of the length, rounded down, at least 1)",
    )
    warmup_ratio: float = real(0.0, "[0, 1]", "share of the run in which the learning rate rises from 0")
    warmup_steps: int = whole(0, "[0, inf)", "the same in optimizer steps; give one of the two")
    lr_scheduler: str = text("linear", SCHEDULERS, "how the learning rate falls after the warm-up")
    min_lr_ratio: float = real(0.0, "[0, 1]", "where it falls to, as a share of the peak")
    # Each of these belongs to one scheduler; the others ignore it. "The rest" is the run after the warm-up.
    lr_cycles: int = whole(2, "[1, 1000]", "cosine_with_restarts: how often it falls from the peak")
    lr_power: float = real(2.0, "(0, inf)", "polynomial: its power; 1 is linear")
    lr_step_every: float = real(0.3, "[0.001, 1]", "step: share of the rest after which it drops, each time")
    lr_gamma: float = real(0.1, "(0, 1)", "step: what a drop multiplies the rate by")
    lr_timescale: float | None = optional(
        float, "(0, inf)", "inverse_sqrt: share of the rest until 0.71 (default: as long as the warm-up)"
    )
    lr_decay_ratio: float = real(0.2, "(0, 1]", "warmup_stable_decay: share of the rest in which it falls")
    lr_decay_type: str = text("cosine", DECAYS, "warmup_stable_decay: how it falls")
    lr_rise_ratio: float = real(0.3, "(0, 1)", "one_cycle: share of the rest in which it rises to the peak")
    lr_start_divisor: float = real(25.0, "[1, inf)", "one_cycle: it starts at the peak divided by this")
    lr_plateau_patience: int = whole(
        1, "[0, inf)", "reduce_on_plateau: validations without gain that are tolerated"
    )
    lr_plateau_factor: float = real(0.5, "(0, 1)", "reduce_on_plateau: what a drop multiplies the rate by")
    lr_plateau_min_delta: float = real(0.0, "[0, inf)", "reduce_on_plateau: what counts as a gain, in nats")
    weight_decay: float = real(0.01, "[0, inf)", "decoupled weight decay, on matrices only")
    adam_beta1: float = real(0.9, "[0, 1)", "AdamW: decay of the mean of the gradients")
    adam_beta2: float = real(0.999, "[0, 1)", "AdamW: decay of the mean of their squares")
    adam_epsilon: float = real(1e-8, EPSILON_INTERVAL, "AdamW: added to the root of the mean square")
    max_grad_norm: float = real(1.0, "[0, inf)", "scale longer gradients down to this norm; 0: leave them")
    max_length: int = whole(128, "[2, 65536]", "tokens (bytes) of a sequence")
    early_stopping_patience: int = whole(0, "[0, inf)", "stop after so many worse validations; 0: never")
    early_stopping_min_delta: float = real(0.0, "[0, inf)", "the gain that patience asks for, in nats")
    load_best_model_at_end: bool = switch("keep the value and weights of the best validation, not the last")
    save_total_limit: int = whole(2, "[2, inf)", "checkpoints to keep; older ones are deleted")
    train_file: str = text("python", (), "text, folder or .jsonl; or english, python (shipped with Python)")
    validation_file: str | None = optional(
        str, "", "the same to validate on; its documents are left out of training"
    )
    validation_split: float = real(0.1, "[0, 0.5]", "share to validate on, if there is no validation_file")
    text_field: str | None = optional(str, "", "records: the field that holds the text (default: by layout)")
    device: str = text("auto", DEVICES, "where to train; auto: an accelerator if there is one")
    seed: int = whole(0, "[0, 9223372036854775807]", "of the initial weights, the batches and the dropout")
    # Of the optimizer.
    optimizer: str = text("adamw", OPTIMIZERS, "the optimizer; muon steps hidden matrices, adamw the rest")
    momentum: float | None = optional(
        float, "[0, 1)", "sgd, muon: weight of past gradients (default: sgd 0.9, muon 0.95)"
    )
    nesterov: bool = switch("sgd: Nesterov momentum; muon always uses it")
    lion_beta1: float = real(0.9, "[0, 1)", "lion: weight of past gradients in the step")
    lion_beta2: float = real(0.99, "[0, 1)", "lion: weight of past gradients in the running mean")
    # Of the loss, and how it is computed.
    label_smoothing_factor: float = real(
        0.0, "[0, 1)", "share of a target spread over all tokens; in training, not in validation"
    )
    precision: str = text(
        "auto", PRECISIONS, "to compute in; auto: bf16 on CUDA devices that have it, else fp32"
    )
    gradient_checkpointing: bool = switch("keep only the input of each block, and recompute the rest")
    deterministic: bool = switch("use only deterministic algorithms, on CUDA too")

    @classmethod
    def _contradictions(cls, values: Mapping[str, Any]) -> list[str]:
        problems = []
        given = [name for name in LENGTHS if values[name] is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            problems.append(f"{', '.join(LENGTHS)}: found {found}, needs exactly one: the run's length")
        rows = values["batch_size"] * values["gradient_accumulation_steps"]
        if values["max_samples"] is not None and rows > values["max_samples"]:
            problems.append(f"max_samples: found {values['max_samples']}, but one step takes {rows} samples")
        if values["warmup_ratio"] and values["warmup_steps"]:
            problems.append("warmup_ratio, warmup_steps: found both, needs at most one")
        if values["validation_file"] is not None and values["train_file"] in NAMED_CORPORA:
            problems.append(f"validation_file: train_file {values['train_file']!r} brings its own")
        if values["text_field"] is not None and values["train_file"] in NAMED_CORPORA:
            problems.append(f"text_field: train_file {values['train_file']!r} has no records")
        device = values["device"]
        if values["precision"] == "tf32" and device in ("cpu", "mps"):
            problems.append(f"precision: found 'tf32', but tf32 is for CUDA, and device is {device!r}")
        if values["nesterov"] and values["optimizer"] == "sgd" and values["momentum"] == 0:
            problems.append("nesterov: found true, but momentum is 0; raise it")
        if values["validation_split"] == 0 and values["validation_file"] is None:
            problems.append("validation_split: found 0, needs a share above it, or a validation_file")
        return problems

    @classmethod
    def report_plan(cls, params: Mapping[str, Any]) -> ReportPlan:
        length = next((name for name in LENGTHS if name in params), "max_steps")
        return ReportPlan(length, params.get(length), params.get("eval_every"))

    @property
    def unit(self) -> str:
        """The unit of the run's length and of its report numbers: `samples`, `steps` or `epochs`."""
        return next(unit for name, unit in LENGTHS.items() if getattr(self, name) is not None)

    @property
    def length(self) -> int:
        """The whole run, in `unit`."""
        return cast(int, next(found for name in LENGTHS if (found := getattr(self, name)) is not None))

    def sharing_problems(self, strategy: str) -> list[str]:
        """Why several processes cannot share this run by this strategy; empty if they can."""
        problems = []
        if self.is_sharded(strategy) and self.optimizer in ("adafactor", "muon"):
            problems.append(
                f"optimizer: found {self.optimizer!r}, which steps whole matrices, but with {strategy} "
                "each process has only a part of them; use another optimizer, or ddp"
            )
        if strategy == "deepspeed" and self.precision == "fp16":
            problems.append("precision: found 'fp16', but deepspeed scales the loss itself; use bf16, or ddp")
        return problems

    def is_sharded(self, strategy: str) -> bool:
        """Whether each process steps only a part of the trained tensors with this strategy."""
        return strategy == "deepspeed"

    @property
    def rows_per_step(self) -> int:
        """Sequences of one optimizer step."""
        return self.batch_size * self.gradient_accumulation_steps

    def rate_ratio(self, name: str) -> float:
        """The factor of the learning rate for a trained tensor."""
        return 1.0

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run; the last may exceed its length by a part of a batch."""
        return self.steps_to(self.length)

    def steps_to(self, place: int) -> int:
        """The optimizer steps needed to reach `place`, in the run's unit."""
        if self.unit == "steps":
            return place
        return math.ceil(place * self._samples_per_unit / self.rows_per_step)

    def place_after(self, steps: int) -> int:
        """The place that the run has reached after so many optimizer steps, in whole numbers of its unit."""
        return steps if self.unit == "steps" else steps * self.rows_per_step // self._samples_per_unit

    @property
    def _samples_per_unit(self) -> int:
        if self.unit == "samples":
            return 1
        assert self.samples_per_epoch is not None, "a run sets it once it knows its text"
        return self.samples_per_epoch

    @property
    def keeps_best(self) -> bool:
        """Whether the run ends with the value and weights of its best validation, not its last."""
        return self.load_best_model_at_end or self.early_stopping_patience > 0

    @property
    def eval_interval(self) -> int:
        """`eval_every`, by default a tenth of the run, rounded down, and at least 1."""
        return max(1, self.length // 10) if self.eval_every is None else self.eval_every


@dataclass(frozen=True, kw_only=True)
class Adapters(Parameters):
    """The parameters of low-rank adapters, whatever the model.

    Their strength is given as `lora_alpha` or, relative to the rank, as `alpha_over_r`. Both may be given if
    they agree, so that a space can search the ratio and derive the alpha from it.
    """

    lora_r: int = whole(8, SIZE_INTERVAL, "rank of the adapters")
    lora_alpha: float | None = optional(float, SCALE_INTERVAL, "adapters are scaled by lora_alpha / lora_r")
    alpha_over_r: float | None = optional(float, SCALE_INTERVAL, "that scale by itself (default: 2)")
    lora_dropout: float = real(0.0, DROPOUT_INTERVAL, "dropout of the adapters' input")
    use_rslora: bool = switch("scale by lora_alpha / sqrt(lora_r), so that higher ranks learn as fast")
    loraplus_lr_ratio: float = real(1.0, "(0, 1e6]", "LoRA+: learning rate of B as a multiple of A's")
    use_dora: bool = switch("DoRA: train the lengths of the weights' rows apart from their directions")

    @classmethod
    def _contradictions(cls, values: Mapping[str, Any]) -> list[str]:
        problems = super()._contradictions(values)
        alpha, ratio, rank = values["lora_alpha"], values["alpha_over_r"], values["lora_r"]
        if alpha is not None and ratio is not None and not math.isclose(alpha, ratio * rank):
            problems.append(
                f"lora_alpha: found {alpha}, but alpha_over_r {ratio} * lora_r {rank} is {ratio * rank}"
            )
        return problems

    def rate_ratio(self, name: str) -> float:
        """LoRA+ (Hayou et al. 2024, section 4): B, which starts at zero, learns faster than A."""
        return self.loraplus_lr_ratio if "lora_B" in name.split(".") else 1.0

    @property
    def strength(self) -> float:
        """The alpha of the adapters, whichever way it was given."""
        if self.lora_alpha is not None:
            return self.lora_alpha
        return self.lora_r * (2.0 if self.alpha_over_r is None else self.alpha_over_r)

    @property
    def scale(self) -> float:
        """The factor of the adapters' output: lora_alpha / lora_r, with rsLoRA lora_alpha / sqrt(lora_r).

        rsLoRA: Kalajdzievski 2023, "A Rank Stabilization Scaling Factor for Fine-Tuning with LoRA".
        """
        return self.strength / (math.sqrt(self.lora_r) if self.use_rslora else self.lora_r)
