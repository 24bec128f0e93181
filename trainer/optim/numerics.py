"""The numerics of a pack: its precision, and whether it uses deterministic algorithms only.

| `precision` | what it applies to |
|---|---|
| `fp32` | everything |
| `bf16`, `fp16` | matrix products and attention, as torch's autocast chooses; the rest is in fp32 |
| `tf32` | matrix products: CUDA's tensor cores drop 13 bits of their fp32 factors |
| `auto` | `bf16` on CUDA if the device has it, else `fp32` |

A CPU without instructions for `bf16` or `fp16` imitates them, slower than `fp32`, and a notice says so. In
all precisions, trained tensors, gradients, the optimizer's state and the loss are kept in fp32. Validation
uses the precision of training.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache

import torch

from ..config.training import TrainingConfig
from ..errors import ConfigError
from ..notices import say
from .optimizers import Norm, Tensors

HALF_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"  # cuBLAS reads it at first use; torch documents these two values
_CUBLAS_DETERMINISTIC = (":4096:8", ":16:8")


def precisions(device: torch.device) -> tuple[str, ...]:
    """The precisions of a device, without `auto`."""
    if device.type == "cpu":
        return "fp32", "bf16", "fp16"
    if device.type == "mps":
        return ("fp32", "bf16", "fp16") if torch.backends.mps.is_macos_or_newer(14, 0) else ("fp32", "fp16")
    newer = torch.cuda.get_device_capability(device) >= (8, 0)  # Ampere; older ones imitate tf32 and bf16
    return ("fp32", "tf32", "bf16", "fp16") if newer else ("fp32", "fp16")


@dataclass(frozen=True)
class Numerics:
    """`precision` is one of `precisions(device)`."""

    device: torch.device
    precision: str
    deterministic: bool

    @classmethod
    def of(cls, config: TrainingConfig, device: torch.device) -> Numerics:
        """The numerics of a configuration. Raises `ConfigError` if the device does not support them."""
        precision, available = config.precision, precisions(device)
        if precision == "auto":
            precision = "bf16" if device.type == "cuda" and "bf16" in available else "fp32"
        problems = []
        if precision not in available:
            problems.append(
                f"precision: found {precision!r}, but this device ({device.type}) has {', '.join(available)}"
            )
        if config.deterministic and device.type == "cuda":
            setting = os.environ.get(_CUBLAS)
            if setting not in _CUBLAS_DETERMINISTIC:
                state = "not set" if setting is None else repr(setting)
                problems.append(
                    f"deterministic: the environment variable {_CUBLAS} is {state}; set it to "
                    f"{' or '.join(_CUBLAS_DETERMINISTIC)} before the start"
                )
        if problems:
            raise ConfigError(problems)
        if device.type == "cpu" and precision in HALF_DTYPES:
            _say_if_imitated(precision)
        return cls(device, precision, config.deterministic)

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Set torch's global switches around a pack's forward and backward passes, and restore them."""
        matmul = torch.backends.cuda.matmul
        precision_before, deterministic_before = matmul.fp32_precision, _deterministic()
        try:
            if self.precision == "tf32":
                matmul.fp32_precision = "tf32"
            if self.deterministic:
                torch.use_deterministic_algorithms(True)
            yield
        finally:
            if self.precision == "tf32":
                matmul.fp32_precision = precision_before
            if self.deterministic:
                torch.use_deterministic_algorithms(deterministic_before[0], warn_only=deterministic_before[1])

    def autocast(self) -> AbstractContextManager[object]:
        """The context of a forward pass."""
        if dtype := HALF_DTYPES.get(self.precision):
            return torch.autocast(self.device.type, dtype)
        return nullcontext()

    def new_loss_scale(self) -> LossScale | None:
        """The loss scale of a run, if it needs one."""
        return LossScale() if self.precision == "fp16" else None


@cache
def _say_if_imitated(precision: str) -> None:
    """Say on stderr, once, that the CPU has no such instructions."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return  # without mkldnn, torch cannot tell
    if not getattr(torch.ops.mkldnn, f"_is_mkldnn_{precision}_supported")():
        say(f"precision: this CPU has no {precision}, so torch imitates it; fp32 trains many times as fast")


def _deterministic() -> tuple[bool, bool]:
    enabled = torch.are_deterministic_algorithms_enabled()
    return enabled, torch.is_deterministic_algorithms_warn_only_enabled()


class LossScale:
    """The factor of a run's loss that keeps its gradients from vanishing in fp16.

    Micikevicius et al. 2018, section 3.2, with the numbers of torch's `GradScaler`: it is halved whenever a
    gradient is not finite, and doubled after `STEPS_TO_DOUBLE` steps without.
    """

    INITIAL_SCALE = 65536.0
    STEPS_TO_DOUBLE = 2000

    def __init__(self) -> None:
        self.value = self.INITIAL_SCALE
        self.good_steps = 0  # since it last changed

    @torch.no_grad()
    def unscale(self, gradients: Tensors, norm_of: Norm = torch.nn.utils.get_total_norm) -> bool:
        """Divide the gradients of a step by the scale, in place; False if the step must be skipped.

        Waits for the device.
        """
        torch._foreach_div_(list(gradients.values()), self.value)
        if not norm_of(gradients.values()).isfinite():
            self.value, self.good_steps = self.value / 2, 0
            return False
        self.good_steps += 1
        if self.good_steps == self.STEPS_TO_DOUBLE:
            self.value, self.good_steps = self.value * 2, 0
        return True

    def state(self) -> dict[str, float]:
        """The state for the JSON of a checkpoint."""
        return {"value": self.value, "good_steps": self.good_steps}

    def restore(self, state: dict[str, float]) -> None:
        """The inverse of `state`."""
        self.value, self.good_steps = state["value"], int(state["good_steps"])
