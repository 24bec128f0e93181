"""DeepSpeed's ZeRO: the processes of a run shard tensors that each of them would otherwise hold whole.

| `zero_stage` | what is sharded |
|---|---|
| 1 | the optimizer's state |
| 2 | also the gradients |
| 3 | also the weights, including frozen ones |

DeepSpeed runs the backward pass, sums the gradients and decides when to step. Batches, dropout, precision,
reports and checkpoints are the same as with one process. So is the step itself: hpsearch's own optimizers
make it for each part, elementwise. Rajbhandari et al. 2020, "ZeRO".
"""

from __future__ import annotations

import gc
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import _lru_cache_wrapper as _Cache
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from ..checkpoint import Tensors
from ..config.training import TrainingConfig
from ..errors import ConfigError
from ..optim.numerics import Numerics
from ..optim.optimizers import Optimizer, groups_of, new_optimizer
from ..ranks import BUCKET_BYTES, Ranks, Sharding


class Zero(Sharding):
    """A module that several processes train; also the `Stepper` of their run.

    `trained` are the run's tensors in this process: whole, or at stage 3 flat parts.
    """

    def __init__(
        self, config: TrainingConfig, ranks: Ranks, numerics: Numerics, module: nn.Module, trained: Tensors
    ) -> None:
        """Shard `module`, whose trained parameters are `trained`; moves it to the device if necessary."""
        deepspeed = _deepspeed(numerics.device)
        self._ranks, self._sharded = ranks, ranks.zero_stage == 3
        self._device = numerics.device
        self._trained: dict[str, Any] = dict(trained)  # parameters, to which DeepSpeed attaches its own data
        self._groups = groups_of(config, trained)
        self._parts = _Parts(config, trained)
        self._engine, *_ = deepspeed.initialize(
            model=_Autocast(module, numerics),
            optimizer=self._parts,
            model_parameters=list(trained.values()),
            config=_settings(config, ranks.zero_stage),
        )
        sharer = self._engine.optimizer
        if self._sharded:
            self._parts.begin(sharer.fp32_partitioned_groups_flat)
        else:
            self._parts.begin(part for group in self._parts.param_groups for part in group["params"])
            sharer._lazy_init_hp_params_optimizer_state()  # else only at the first step, but a run may resume

    @property
    def trained(self) -> Tensors:
        return {name: each.ds_tensor if self._sharded else each for name, each in self._trained.items()}

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the module."""
        if not torch.is_inference_mode_enabled():
            return self._engine(*args, **named)
        with torch.inference_mode(False), torch.no_grad():  # else the gathered weights could not train again
            return self._engine(*args, **named)

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the gradients of a pass; `last` if it is the last pass of a step."""
        self._engine.set_gradient_accumulation_boundary(last)
        self._engine.backward(loss * self._ranks.count, scale_wrt_gas=False)  # DeepSpeed divides by the count

    def step(self, gradients: Tensors, learning_rate: float | Tensor) -> Tensor:
        """Step with the gradients of the passes so far; `gradients` is empty."""
        for (_, ratio, _), group in zip(self._groups, self._parts.param_groups, strict=True):
            group["lr"] = learning_rate * ratio
        self._engine.step()
        if self._engine.was_step_applied():
            return torch.as_tensor(self._engine.get_global_grad_norm())
        # The gradients are not finite, so DeepSpeed has skipped the step.
        for tensor in self.trained.values():
            tensor.data.fill_(torch.nan)  # with one process, the step would have this result
        self.adopt()
        return torch.tensor(torch.nan)

    def tensors(self) -> Tensors:
        """The whole state, on the CPU of the first process; nothing in the others."""
        from deepspeed.utils import safe_get_full_optimizer_state

        state = {}
        for name, parameter in self._trained.items():
            for key, held in self._parts.like.items():
                whole = safe_get_full_optimizer_state(parameter, key) if held.dim() else held
                if self._ranks.first:
                    state[f"{key}.{name}"] = whole.cpu()
        return state

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state

        for name, parameter in self._trained.items():
            for key, held in self._parts.like.items():
                whole = tensors[f"{key}.{name}"].to(self._device)
                if not held.dim():
                    self._parts.count(key, whole)
                elif self._sharded:
                    safe_set_local_optimizer_state(parameter, self._part(whole, parameter), key)
                else:
                    safe_set_full_optimizer_state(parameter, whole, key)

    @torch.no_grad()
    def adopt(self) -> None:
        """Update DeepSpeed's copies after a change of `trained`."""
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_local_fp32_param

        if self._sharded:
            self._engine.empty_partition_cache()
        for parameter in self._trained.values():
            if self._sharded:
                safe_set_local_fp32_param(parameter, parameter.ds_tensor)
            else:
                safe_set_full_fp32_param(parameter, parameter.data)

    def gather(self, tensors: Tensors) -> Tensors:
        """Gather `trained` or a result of `tensors` on the CPU of the first process, none in others."""
        wholes = {}
        for name, tensor in tensors.items():
            parameter = self._trained.get(name)
            if self._sharded and parameter is not None:
                gathered = tensor.new_empty(self._ranks.count * tensor.numel())
                dist.all_gather_single(gathered, tensor.contiguous())
                tensor = gathered[: parameter.ds_numel].view(parameter.ds_shape)
            if self._ranks.first:
                wholes[name] = tensor.cpu()
        return wholes

    def shard(self, tensors: Tensors) -> Tensors:
        """The inverse of `gather`: this process's parts."""
        if not self._sharded:
            return tensors
        trained = self._trained
        return {n: self._part(t, trained[n]) if n in trained else t for n, t in tensors.items()}

    def close(self) -> None:
        """Remove DeepSpeed's hooks from the module, and free what it holds."""
        self._engine.destroy()
        _forget()

    def _part(self, whole: Tensor, parameter: Any) -> Tensor:
        """This process's part of a tensor, flat and padded as at stage 3."""
        size = parameter.ds_tensor.numel()
        filled = F.pad(whole.flatten(), (0, size * self._ranks.count - whole.numel()))
        return filled[size * self._ranks.rank :][:size].to(self._device)


class _Parts(torch.optim.Optimizer):
    """Steps the flat parts that DeepSpeed makes of a run's tensors, with the optimizer of `config`."""

    def __init__(self, config: TrainingConfig, trained: Tensors) -> None:
        self._config = config
        self._steppers: dict[Tensor, Optimizer] = {}
        groups = [
            {"params": [trained[name] for name in names], "weight_decay": decay}
            for decay, _, names in groups_of(config, trained)
        ]
        super().__init__(groups, {"lr": 0.0})

    def begin(self, parts: Iterator[Tensor] | Sequence[Tensor]) -> None:
        """Initialize the state of each part."""
        for part in parts:
            self._steppers[part] = new_optimizer(self._config, {"part": part.detach()}, dict)
            held = self._steppers[part].tensors()
            self.state[part] = {key.removesuffix(".part"): tensor for key, tensor in held.items()}

    @property
    def like(self) -> Tensors:
        """The state of one part, as an example; scalars such as counts are the same in all parts."""
        state: Tensors = next(iter(self.state.values()))
        return state

    def count(self, key: str, value: Tensor) -> None:
        """Set a scalar of the state in all parts."""
        for state in self.state.values():
            state[key].copy_(value)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for part in group["params"]:
                if part.grad is not None:
                    self._steppers[part].update(["part"], [part.grad], group["lr"], group["weight_decay"])


class _Autocast(nn.Module):
    """Runs a module in a run's precision; DeepSpeed's own options would keep or send 16-bit tensors."""

    def __init__(self, module: nn.Module, numerics: Numerics) -> None:
        super().__init__()
        self.module = module
        self._numerics = numerics

    def forward(self, *args: Any, **named: Any) -> Any:
        with self._numerics.autocast():
            return self.module(*args, **named)


def _settings(config: TrainingConfig, stage: int) -> dict[str, Any]:
    """The configuration for DeepSpeed."""
    return {
        "train_micro_batch_size_per_gpu": 1,  # required, but has no effect here
        "gradient_clipping": config.max_grad_norm,
        "zero_allow_untested_optimizer": True,  # our own optimizers
        "zero_optimization": {
            "stage": stage,
            "reduce_bucket_size": BUCKET_BYTES // 4,
            "allgather_bucket_size": BUCKET_BYTES // 4,
            "stage3_param_persistence_threshold": 0,
        },
    }


def _forget() -> None:
    """Free the modules of stage 3, which DeepSpeed would hold for as long as the process lives.

    It keeps them in its stack of running modules and in a method's cache, so a process would collect the
    weights and connections of every run until it had no more of either.
    """
    from deepspeed.runtime.zero.parameter_offload import FWD_MODULE_STACK

    FWD_MODULE_STACK.clear()
    for held in gc.get_objects():  # the cache wraps an anonymous function, so it has to be searched for
        if type(held) is _Cache and held.__module__.startswith("deepspeed.runtime.zero"):
            held.cache_clear()


def _deepspeed(device: torch.device) -> Any:
    """Import DeepSpeed for the run's device, without compilation, and with its log limited to errors."""
    os.environ["DS_ACCELERATOR"] = device.type  # read on import
    import deepspeed
    from deepspeed.accelerator import get_accelerator

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    # It calls functions of torch by their old names.
    warnings.filterwarnings("ignore", ".*is deprecated. Please use `torch.distributed", FutureWarning)
    if (other := get_accelerator().device_name()) != device.type:
        raise ConfigError([f"device: found {device.type!r}, but this process's DeepSpeed is on {other!r}"])
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo" if device.type == "cpu" else "nccl", verbose=False)
    return deepspeed
