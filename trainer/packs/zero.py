"""DeepSpeed's ZeRO: the processes of a run share out what each of them would have whole.

| `zero_stage` | what each process keeps only its part of |
|---|---|
| 1 | the optimizer's state |
| 2 | and the gradients |
| 3 | and the weights, those that are frozen too |

DeepSpeed has the backward pass, the gradients and the moment of a step. Batches, dropout, precision, reports
and checkpoints are those of one process, and so is the step itself: hpsearch's own optimizers make it of each
part, one number at a time. Rajbhandari et al. 2020, "ZeRO".
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
from ..ranks import BUCKET, Ranks


class Zero:
    """A module that several processes train; the `Stepper` of their run.

    `trained` are the run's tensors in this process: whole, or at stage 3 its flat parts of them.
    """

    recordable = False

    def __init__(
        self, config: TrainingConfig, ranks: Ranks, numerics: Numerics, module: nn.Module, trained: Tensors
    ) -> None:
        """Share out `module`, whose parameters `trained` are; brings to the device what is not there yet."""
        deepspeed = _deepspeed(numerics.device)
        self._ranks, self._sharded = ranks, ranks.zero_stage == 3
        self._device = numerics.device
        self._trained: dict[str, Any] = dict(trained)  # parameters, to which DeepSpeed ties what is its own
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
            sharer._lazy_init_hp_params_optimizer_state()  # it waits for a first step, but a run may resume

    @property
    def trained(self) -> Tensors:
        return {
            name: parameter.ds_tensor if self._sharded else parameter
            for name, parameter in self._trained.items()
        }

    def __call__(self, *args: Any, **named: Any) -> Any:
        """What the module computes."""
        if not torch.is_inference_mode_enabled():
            return self._engine(*args, **named)
        with torch.inference_mode(False), torch.no_grad():  # or what is gathered could not train any more
            return self._engine(*args, **named)

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Take in the gradients of a pass; `last` of a step."""
        self._engine.set_gradient_accumulation_boundary(last)
        self._engine.backward(loss * self._ranks.count, scale_wrt_gas=False)  # of which it takes the mean

    def step(self, gradients: Tensors, learning_rate: float | Tensor) -> Tensor:
        """Step by what the passes have left; `gradients` are none."""
        for (_, ratio, _), group in zip(self._groups, self._parts.param_groups, strict=True):
            group["lr"] = learning_rate * ratio
        self._engine.step()
        if self._engine.was_step_applied():
            return torch.as_tensor(self._engine.get_global_grad_norm())
        for tensor in self.trained.values():  # the gradients are no finite numbers, and left out
            tensor.data.fill_(torch.nan)  # as they would become in one process
        self.adopt()
        return torch.tensor(torch.nan)

    def tensors(self) -> Tensors:
        """The whole state, on the CPU of the first process; nothing in the others."""
        from deepspeed.utils import safe_get_full_optimizer_state

        found = {}
        for name, parameter in self._trained.items():
            for key, held in self._parts.like.items():
                whole = safe_get_full_optimizer_state(parameter, key) if held.dim() else held
                if self._ranks.first:
                    found[f"{key}.{name}"] = whole.cpu()
        return found

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
        """Go on with what was written into `trained`, of which DeepSpeed has copies."""
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_local_fp32_param

        if self._sharded:
            self._engine.empty_partition_cache()
        for parameter in self._trained.values():
            if self._sharded:
                safe_set_local_fp32_param(parameter, parameter.ds_tensor)
            else:
                safe_set_full_fp32_param(parameter, parameter.data)

    def whole(self, tensors: Tensors) -> Tensors:
        """Of `trained` or what `tensors` gave, on the CPU of the first process; nothing in the others."""
        found = {}
        for name, tensor in tensors.items():
            parameter = self._trained.get(name)
            if self._sharded and parameter is not None:
                gathered = tensor.new_empty(self._ranks.count * tensor.numel())
                dist.all_gather_single(gathered, tensor.contiguous())
                tensor = gathered[: parameter.ds_numel].view(parameter.ds_shape)
            if self._ranks.first:
                found[name] = tensor.cpu()
        return found

    def own(self, tensors: Tensors) -> Tensors:
        """The inverse of `whole`."""
        if not self._sharded:
            return tensors
        trained = self._trained
        return {n: self._part(t, trained[n]) if n in trained else t for n, t in tensors.items()}

    def close(self) -> None:
        """Take from the module what DeepSpeed has hung into it, and let it go."""
        self._engine.destroy()
        _forget()

    def _part(self, whole: Tensor, parameter: Any) -> Tensor:
        """This process's part of a tensor, as flat and filled up as at stage 3."""
        size = parameter.ds_tensor.numel()
        filled = F.pad(whole.flatten(), (0, size * self._ranks.count - whole.numel()))
        return filled[size * self._ranks.rank :][:size].to(self._device)


class _Parts(torch.optim.Optimizer):
    """Steps the flat parts that DeepSpeed puts in the place of a run's tensors, as `config` says."""

    def __init__(self, config: TrainingConfig, trained: Tensors) -> None:
        self._config = config
        self._steppers: dict[Tensor, Optimizer] = {}
        groups = [
            {"params": [trained[name] for name in names], "weight_decay": decay}
            for decay, _, names in groups_of(config, trained)
        ]
        super().__init__(groups, {"lr": 0.0})

    def begin(self, parts: Iterator[Tensor] | Sequence[Tensor]) -> None:
        """Give each part the state that it has before its first step."""
        for part in parts:
            self._steppers[part] = new_optimizer(self._config, {"part": part.detach()}, dict)
            held = self._steppers[part].tensors()
            self.state[part] = {key.removesuffix(".part"): tensor for key, tensor in held.items()}

    @property
    def like(self) -> Tensors:
        """The state of one of the parts; what is no part of a tensor, but a count, is the same in all."""
        found: Tensors = next(iter(self.state.values()))
        return found

    def count(self, key: str, value: Tensor) -> None:
        """Set a count of all parts."""
        for state in self.state.values():
            state[key].copy_(value)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for part in group["params"]:
                if part.grad is not None:
                    self._steppers[part].update(["part"], [part.grad], group["lr"], group["weight_decay"])


class _Autocast(nn.Module):
    """A module that computes in a run's precision; DeepSpeed's own ways there keep or send 16 bits."""

    def __init__(self, module: nn.Module, numerics: Numerics) -> None:
        super().__init__()
        self.module = module
        self._numerics = numerics

    def forward(self, *args: Any, **named: Any) -> Any:
        with self._numerics.autocast():
            return self.module(*args, **named)


def _settings(config: TrainingConfig, stage: int) -> dict[str, Any]:
    """What DeepSpeed is told, in its own words."""
    return {
        "train_micro_batch_size_per_gpu": 1,  # it counts nothing by them
        "gradient_clipping": config.max_grad_norm,
        "zero_allow_untested_optimizer": True,  # ours
        "zero_optimization": {
            "stage": stage,
            "reduce_bucket_size": BUCKET // 4,
            "allgather_bucket_size": BUCKET // 4,
            "stage3_param_persistence_threshold": 0,
        },
    }


def _forget() -> None:
    """Let go of the modules of stage 3, which DeepSpeed holds for as long as the process lives.

    It has them on its stack of those that compute, and in the cache of a method. With each a process would
    keep the weights and connections of another run, until it has no more of either.
    """
    from deepspeed.runtime.zero.parameter_offload import FWD_MODULE_STACK

    FWD_MODULE_STACK.clear()
    for held in gc.get_objects():  # the cache is in a wrapper, which has no name for it
        if type(held) is _Cache and held.__module__.startswith("deepspeed.runtime.zero"):
            held.cache_clear()


def _deepspeed(device: torch.device) -> Any:
    """The library, made to compute where the run does, to compile nothing and to say only what is wrong."""
    os.environ["DS_ACCELERATOR"] = device.type  # read when it is loaded
    import deepspeed
    from deepspeed.accelerator import get_accelerator

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    # It calls what torch has given other names.
    warnings.filterwarnings("ignore", ".*is deprecated. Please use `torch.distributed", FutureWarning)
    if (other := get_accelerator().device_name()) != device.type:
        raise ConfigError([f"device: found {device.type!r}, but this process's DeepSpeed is on {other!r}"])
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo" if device.type == "cpu" else "nccl", verbose=False)
    return deepspeed
