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

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from .checkpoint import Tensors
from .config import LoraConfig, TrainConfig
from .errors import ConfigError
from .lora import Lora, Mask
from .numerics import Numerics
from .optim import Optimizer, Stepper, groups_of, new_optimizer
from .pack import LoraPack, Pack, WholeModel, padded
from .ranks import BUCKET, Ranks
from .training import Training


class Zero:
    """A module that several processes train; the `Stepper` of their run.

    `trained` are the run's tensors in this process: whole, or at stage 3 its flat parts of them.
    """

    recordable = False

    def __init__(
        self, config: Training, ranks: Ranks, numerics: Numerics, module: nn.Module, trained: Tensors
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
        """Take from the module what DeepSpeed has hung into it."""
        self._engine.destroy()

    def _part(self, whole: Tensor, parameter: Any) -> Tensor:
        """This process's part of a tensor, as flat and filled up as at stage 3."""
        size = parameter.ds_tensor.numel()
        filled = F.pad(whole.flatten(), (0, size * self._ranks.count - whole.numel()))
        return filled[size * self._ranks.rank :][:size].to(self._device)


class _Parts(torch.optim.Optimizer):
    """Steps the flat parts that DeepSpeed puts in the place of a run's tensors, as `config` says."""

    def __init__(self, config: Training, trained: Tensors) -> None:
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


def _settings(config: Training, stage: int) -> dict[str, Any]:
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
    deepspeed.init_distributed(dist_backend=dist.get_backend(), verbose=False)
    return deepspeed


class _ZeroPack(Pack):
    """A pack of one run that DeepSpeed trains."""

    _zero: Zero
    _last = False  # whether the pass at hand is that of its step

    def stepper(self, config: TrainConfig, trained: Tensors) -> Stepper:
        return self._zero

    def set(self, runs: Sequence[Any]) -> None:
        super().set(runs)
        self._zero.adopt()

    def hold(self, config: TrainConfig, trained: Tensors) -> None:
        """The model has what is trained: the same memory."""

    def whole(self, tensors: Tensors) -> Tensors:
        return self._zero.whole(tensors)

    def own(self, tensors: Tensors) -> Tensors:
        return self._zero.own(tensors)

    def close(self) -> None:
        self._zero.close()

    def _compute(self, passes: Sequence[Any], *rest: Any) -> None:
        self._last = passes[0].last
        super()._compute(passes, *rest)

    def _logits(self, inputs: Tensor) -> Tensor:
        found: Tensor = self._zero(inputs)
        return found.float()

    def _gradients(self, loss: Tensor) -> Sequence[Tensor]:
        self._zero.backward(loss, last=self._last)
        return []

    def _part(self, gradients: Sequence[Tensor], number: int) -> Tensors:
        return {}


class ZeroModel(_ZeroPack, WholeModel):
    """All of a model, or its head."""

    def __init__(self, config: TrainConfig, ranks: Ranks) -> None:
        super().__init__(config)
        self._ranks = ranks

    def start(self, config: TrainConfig) -> Tensors:
        trained = super().start(config)
        self._zero = Zero(config, self._ranks, self.numerics, self.model, trained)
        return self._zero.trained


class ZeroAdapters(_ZeroPack, LoraPack):
    """Adapters of a base."""

    def __init__(self, config: LoraConfig, ranks: Ranks) -> None:
        super().__init__(config)
        self._ranks = ranks

    def start(self, config: TrainConfig) -> Tensors:
        assert isinstance(config, LoraConfig)
        self._adapted = _Adapted(self.model, self.lora, config, super().start(config))
        trained = dict(self._adapted.adapters)
        self._zero = Zero(config, self._ranks, self.numerics, self._adapted, trained)
        return self._zero.trained

    def set(self, runs: Sequence[Any]) -> None:
        """Unlike other packs of adapters it has no copies of them."""
        Pack.set(self, runs)
        self._set_strengths()
        self._zero.adopt()

    def _forward(self, inputs: Tensor) -> Tensor:
        self._adapted.mask = self._mask if self._dropping else None
        return self._logits(inputs)

    def hold(self, config: TrainConfig, trained: Tensors) -> None:
        self._adapted.mask = None

    def _changed(self, number: int) -> None:
        """There are no copies."""


class _Adapted(nn.Module):
    """A base with one run's adapters, which are parameters here."""

    def __init__(self, model: nn.Module, lora: Lora, config: LoraConfig, adapters: Tensors) -> None:
        super().__init__()
        self.model = model
        self.adapters = nn.ParameterDict(adapters)
        self.mask: Mask | None = None
        self._lora, self._rank = lora, config.padded_rank
        self._scale = next(iter(adapters.values())).new_tensor([config.scale])

    def forward(self, inputs: Tensor) -> Any:
        stack = {name: padded(tensor, self._rank) for name, tensor in self.adapters.items()}
        self._lora.place([stack], self._scale, self.mask)
        return self.model(inputs)
