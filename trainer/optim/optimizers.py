"""Optimizers by name, each for the trained tensors of one run. Matrices decay, gains do not.

| `optimizer` | what it is | its options |
|---|---|---|
| `adamw` | Loshchilov and Hutter 2019, algorithm 2 | `adam_beta1`, `adam_beta2`, `adam_epsilon` |
| `sgd` | stochastic gradient descent, with momentum | `momentum`, `nesterov` |
| `lion` | Chen et al. 2023, algorithm 2: the sign of a mean | `lion_beta1`, `lion_beta2` |
| `adafactor` | Shazeer and Stern 2018: Adam with a row and a column of mean squares | |
| `muon` | Jordan et al. 2024: a step is the nearest orthogonal matrix | `momentum`, and those of `adamw` |

Muon is for hidden matrices; embeddings, the head and gains are stepped by AdamW.

Weight decay is decoupled in all (also in `sgd`), so that it means the same when optimizers are compared.

Adafactor and Muon look at a matrix as a whole, so they get the matrices of each layer, not the concatenated
ones that a LoRA run keeps. Each half of an adapter is such a matrix.

Adafactor's learning rate is relative: the size of a step is the rate times the matrix's root mean square (at
least 0.001). So good rates are larger than those of AdamW: for adapters a hundred times or more.

Muon's steps are scaled to the usual size of AdamW's (Liu et al. 2025, "Muon is scalable for LLM training",
equation 4), so that one rate suits both of its kinds, and a matrix and its transpose are treated alike.

The classes of `torch.optim` compute the same bits, but they load torch's compiler, which adds 1.4 seconds to
the start of each worker. Their functions do not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim._adafactor import adafactor
from torch.optim._muon import DEFAULT_A, DEFAULT_B, DEFAULT_C, DEFAULT_NS_STEPS, EPS, muon
from torch.optim.sgd import sgd

from ..config.training import TrainingConfig

Tensors = dict[str, Tensor]
Norm = Callable[[Iterable[Tensor]], Tensor]  # of all gradients together: a scalar
ByLayer = Callable[[Tensors], Tensors]  # splits a run's tensors into views for each layer, by parameter name


def groups_of(config: TrainingConfig, trained: Mapping[str, Tensor]) -> list[tuple[float, float, list[str]]]:
    """Groups of tensors that step alike: weight decay, factor of the learning rate, names."""
    alike: dict[tuple[float, float], list[str]] = {}
    for name, tensor in trained.items():
        decay = config.weight_decay if tensor.dim() >= 2 else 0.0
        alike.setdefault((decay, config.rate_ratio(name)), []).append(name)
    return [(decay, ratio, names) for (decay, ratio), names in alike.items()]


class Stepper(Protocol):
    """Makes the steps of a run."""

    def step(self, gradients: Tensors, learning_rate: float | Tensor) -> Tensor:
        """Clip the gradients in place, and step.

        Returns their norm before clipping: a scalar on the device.
        """
        ...

    def tensors(self) -> Tensors:
        """The state by name: `exp_avg.<tensor>` and the like."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of `tensors`. Raises `KeyError` where one is missing."""
        ...


class Optimizer(Stepper, ABC):
    """The base class: clips gradients, and names the tensors of the state."""

    by_layer = False  # whether it needs the tensors of each layer separately
    recordable = False  # whether it never waits for the device, and its learning rate may be a scalar there

    def __init__(
        self,
        config: TrainingConfig,
        trained: Mapping[str, Tensor],
        by_layer: ByLayer = dict,
        norm_of: Norm = torch.nn.utils.get_total_norm,
    ) -> None:
        self._config = config
        self._norm_of = norm_of
        self._split: ByLayer = by_layer if self.by_layer else dict
        self._trained = self._split(dict(trained))
        self.groups = groups_of(config, self._trained)
        self._state = {name: self._start(name, tensor) for name, tensor in self._trained.items()}

    @torch.no_grad()
    def step(self, gradients: Tensors, learning_rate: float | Tensor) -> Tensor:
        norm = self._norm_of(gradients.values())
        if self._config.max_grad_norm:
            share = (self._config.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)  # like `clip_grad_norm_`
            torch._foreach_mul_(list(gradients.values()), share)
        parts = self._split(gradients)
        for decay, ratio, names in self.groups:
            rate = learning_rate if ratio == 1 else learning_rate * ratio
            self.update(names, [parts[name] for name in names], rate, decay)
        return norm

    def tensors(self) -> Tensors:
        return {f"{key}.{name}": held for name, state in self._state.items() for key, held in state.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])

    @abstractmethod
    def _start(self, name: str, tensor: Tensor) -> Tensors:
        """The state of one tensor before the first step."""

    @abstractmethod
    def update(self, names: list[str], gradients: list[Tensor], rate: Any, decay: float) -> None:
        """Step the tensors of these names, which have the same weight decay.

        `rate` is a number; if the optimizer is `recordable` it may be a scalar on the device.
        """

    def _those(self, names: Sequence[str]) -> list[Tensor]:
        return [self._trained[name] for name in names]

    def _states(self, names: Sequence[str], key: str) -> list[Tensor]:
        return [self._state[name][key] for name in names]


class AdamW(Optimizer):
    """AdamW by torch's fused kernel, for all tensors at once."""

    recordable = True

    def _start(self, name: str, tensor: Tensor) -> Tensors:
        return {
            "exp_avg": torch.zeros_like(tensor),
            "exp_avg_sq": torch.zeros_like(tensor),
            "step": torch.zeros((), device=tensor.device),
        }

    def update(self, names: list[str], gradients: list[Tensor], rate: float, decay: float) -> None:
        steps = self._states(names, "step")
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            self._those(names),
            gradients,
            self._states(names, "exp_avg"),
            self._states(names, "exp_avg_sq"),
            [],
            steps,
            lr=rate,
            beta1=self._config.adam_beta1,
            beta2=self._config.adam_beta2,
            weight_decay=decay,
            eps=self._config.adam_epsilon,
            amsgrad=False,
            maximize=False,
        )


class Sgd(Optimizer):
    """SGD. The momentum buffer starts at zero, which gives torch's first step."""

    def _start(self, name: str, tensor: Tensor) -> Tensors:
        return {"momentum_buffer": torch.zeros_like(tensor)}

    def update(self, names: list[str], gradients: list[Tensor], rate: float, decay: float) -> None:
        torch._foreach_mul_(self._those(names), 1 - rate * decay)
        sgd(
            self._those(names),
            gradients,
            list(self._states(names, "momentum_buffer")),
            foreach=True,
            weight_decay=0.0,
            momentum=0.9 if self._config.momentum is None else self._config.momentum,
            lr=rate,
            dampening=0.0,
            nesterov=self._config.nesterov,
            maximize=False,
        )


class Lion(Optimizer):
    def _start(self, name: str, tensor: Tensor) -> Tensors:
        return {"exp_avg": torch.zeros_like(tensor)}

    def update(self, names: list[str], gradients: list[Tensor], rate: float, decay: float) -> None:
        tensors, means = self._those(names), self._states(names, "exp_avg")
        directions = torch._foreach_lerp(means, gradients, 1 - self._config.lion_beta1)
        torch._foreach_sign_(directions)
        torch._foreach_mul_(tensors, 1 - rate * decay)
        torch._foreach_add_(tensors, directions, alpha=-rate)
        torch._foreach_lerp_(means, gradients, 1 - self._config.lion_beta2)


class Adafactor(Optimizer):
    by_layer = True

    def _start(self, name: str, tensor: Tensor) -> Tensors:
        step = {"step": torch.zeros(())}  # on the host, where it is read
        if tensor.dim() < 2:
            return step | {"variance": torch.zeros_like(tensor)}
        return step | {
            "row_var": torch.zeros_like(tensor[:, :1]),
            "col_var": torch.zeros_like(tensor[:1]),
        }

    def update(self, names: list[str], gradients: list[Tensor], rate: float, decay: float) -> None:
        states = [self._state[name] for name in names]
        adafactor(
            self._those(names),
            gradients,
            [state.get("row_var") for state in states],
            [state.get("col_var") for state in states],
            [state.get("variance") for state in states],
            self._states(names, "step"),
            d=1.0,
            lr=rate,
            beta2_decay=-0.8,
            weight_decay=decay,
            eps1=None,  # type: ignore[arg-type]  # the default: the epsilon of the number type
            eps2=1e-3,
            maximize=False,
        )


class Muon(AdamW):
    """Muon for the matrices of blocks and adapters; AdamW for everything else."""

    by_layer = True
    recordable = False  # `muon` reads its learning rate on the host

    def _start(self, name: str, tensor: Tensor) -> Tensors:
        if _hidden(name, tensor):
            return {"momentum_buffer": torch.zeros_like(tensor)}
        return super()._start(name, tensor)

    def update(self, names: list[str], gradients: list[Tensor], rate: float, decay: float) -> None:
        gradient = dict(zip(names, gradients, strict=True))
        hidden = [name for name in names if _hidden(name, self._trained[name])]
        muon(
            self._those(hidden),
            [gradient[name] for name in hidden],
            self._states(hidden, "momentum_buffer"),
            lr=rate,
            weight_decay=decay,
            momentum=0.95 if self._config.momentum is None else self._config.momentum,
            nesterov=True,
            ns_coefficients=(DEFAULT_A, DEFAULT_B, DEFAULT_C),
            ns_steps=DEFAULT_NS_STEPS,
            eps=EPS,
            adjust_lr_fn="match_rms_adamw",
            has_complex=False,
        )
        if others := [name for name in names if name not in hidden]:
            super().update(others, [gradient[name] for name in others], rate, decay)


def _hidden(name: str, tensor: Tensor) -> bool:
    return name.startswith("blocks.") and tensor.dim() == 2


_KINDS: dict[str, type[Optimizer]] = {
    "adamw": AdamW,
    "sgd": Sgd,
    "lion": Lion,
    "adafactor": Adafactor,
    "muon": Muon,
}


def new_optimizer(
    config: TrainingConfig,
    trained: Tensors,
    by_layer: ByLayer,
    norm_of: Norm = torch.nn.utils.get_total_norm,
) -> Optimizer:
    """The optimizer that a run's configuration names."""
    return _KINDS[config.optimizer](config, trained, by_layer, norm_of)


def may_be_recorded(name: str) -> bool:
    """Whether the optimizer of this name is `recordable`."""
    return _KINDS[name].recordable
