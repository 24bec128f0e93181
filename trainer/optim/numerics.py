"""What a pack computes with: its precision, and whether only by deterministic algorithms.

| `precision` | what is computed in it |
|---|---|
| `fp32` | everything |
| `bf16`, `fp16` | matrix products and attention, as torch's autocast chooses; the rest in fp32 |
| `tf32` | matrix products: fp32 whose factors lose 13 bits on the way into CUDA's tensor cores |
| `auto` | `bf16` on CUDA where the device has it, else `fp32` |

A CPU without instructions for `bf16` or `fp16` computes in them too, slower than in `fp32`; that is said.
In all of them, what is trained, its gradients, the optimizer's state and the loss are kept in fp32.
Validation computes in what training does.
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

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"  # cuBLAS reads it when it first computes; torch names these two
_CUBLAS_DETERMINISTIC = (":4096:8", ":16:8")


def precisions(device: torch.device) -> tuple[str, ...]:
    """What a device can compute in, besides `auto`."""
    if device.type == "cpu":
        return "fp32", "bf16", "fp16"
    if device.type == "mps":
        return ("fp32", "bf16", "fp16") if torch.backends.mps.is_macos_or_newer(14, 0) else ("fp32", "fp16")
    newer = torch.cuda.get_device_capability(device) >= (8, 0)  # Ampere; older ones only imitate the two
    return ("fp32", "tf32", "bf16", "fp16") if newer else ("fp32", "fp16")


@dataclass(frozen=True)
class Numerics:
    """`precision` is one of `precisions(device)`."""

    device: torch.device
    precision: str
    deterministic: bool

    @classmethod
    def of(cls, config: TrainingConfig, device: torch.device) -> Numerics:
        """Raises `ConfigError` where the device has not what the configuration asks for."""
        precision, able = config.precision, precisions(device)
        if precision == "auto":
            precision = "bf16" if device.type == "cuda" and "bf16" in able else "fp32"
        problems = []
        if precision not in able:
            problems.append(
                f"precision: found {precision!r}, but this device ({device.type}) has {', '.join(able)}"
            )
        if config.deterministic and device.type == "cuda":
            found = os.environ.get(_CUBLAS)
            if found not in _CUBLAS_DETERMINISTIC:
                told = "nothing" if found is None else repr(found)
                problems.append(
                    f"deterministic: found {told} in the environment's {_CUBLAS}, but cuBLAS needs it to be "
                    f"{' or '.join(_CUBLAS_DETERMINISTIC)} from the start"
                )
        if problems:
            raise ConfigError(problems)
        if device.type == "cpu" and precision in HALVES:
            _say_if_imitated(precision)
        return cls(device, precision, config.deterministic)

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Around all that a pack computes, forward and backward: torch's own switches, put back after it."""
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
        """Around a forward pass."""
        if dtype := HALVES.get(self.precision):
            return torch.autocast(self.device.type, dtype)
        return nullcontext()

    def new_loss_scale(self) -> LossScale | None:
        """For a run, where it needs one."""
        return LossScale() if self.precision == "fp16" else None


@cache
def _say_if_imitated(precision: str) -> None:
    """Say on stderr, once, where a CPU has no such instructions."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return  # this torch does not know
    if not getattr(torch.ops.mkldnn, f"_is_mkldnn_{precision}_supported")():
        told = f"precision: this CPU has no {precision}, so torch imitates it: fp32 trains many times as fast"
        say(told)


def _deterministic() -> tuple[bool, bool]:
    enabled = torch.are_deterministic_algorithms_enabled()
    return enabled, torch.is_deterministic_algorithms_warn_only_enabled()


class LossScale:
    """What one run's loss is multiplied by, so that its gradients do not vanish in fp16.

    Micikevicius et al. 2018, section 3.2, with the numbers of torch's `GradScaler`: halved whenever a
    gradient is infinite or no number, and doubled after so many steps without.
    """

    START = 65536.0
    PATIENCE = 2000

    def __init__(self) -> None:
        self.value = self.START
        self.good_steps = 0  # since it last changed

    @torch.no_grad()
    def unscale(self, gradients: Tensors, norm_of: Norm = torch.nn.utils.get_total_norm) -> bool:
        """Divide the gradients of a step by the scale, in place; False where the step is to be skipped.

        Waits for the device.
        """
        torch._foreach_div_(list(gradients.values()), self.value)
        if not norm_of(gradients.values()).isfinite():
            self.value, self.good_steps = self.value / 2, 0
            return False
        self.good_steps += 1
        if self.good_steps == self.PATIENCE:
            self.value, self.good_steps = self.value * 2, 0
        return True

    def state(self) -> dict[str, float]:
        """For a checkpoint's JSON."""
        return {"value": self.value, "good_steps": self.good_steps}

    def restore(self, state: dict[str, float]) -> None:
        """The inverse of `state`."""
        self.value, self.good_steps = state["value"], int(state["good_steps"])
