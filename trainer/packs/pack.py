"""Runs that train together: one forward and one backward pass for all of them. A single run is a pack of one.

The unit of work is a *tick*: `rows_per_pass` sequences of every run. A run whose step takes several of them
steps its optimizer every so many ticks, so runs of different batch sizes go together.

| promise | kept by |
|---|---|
| a run computes the same in whatever pack | its batches, dropout and passes are its configuration's alone |
| runs come and go between any two ticks | a run owns its state; a pack holds copies for its computing |
| a loss that is no number stays in its run | no operation mixes the rows of two runs, or their losses |

What runs of a pack have in common is their `pack_key`. Only adapters of a frozen base have one: whole models
share no weights, so there is nothing to compute together. Nor have runs that are compiled: what the compiler
writes for one number of runs may round another way than what it writes for the next.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checkpoint import Tensors
from ..config.models import LoraConfig, PretrainConfig, TrainConfig
from ..data.corpus import inputs_and_targets
from ..model.build import base_model, base_of, new_model, on_device, start_of
from ..model.compiled import compiled_block, explained
from ..model.gpt import GPT, Block, Dropout, loss_sum
from ..model.lora import Lora
from ..optim.numerics import Numerics
from ..optim.optimizers import Stepper, may_be_recorded, new_optimizer
from ..ranks import ALONE, Ranks, Share
from .recordings import MOST, Recordings

if TYPE_CHECKING:
    from ..runs.run import Pass, Run


class SomeFailedError(Exception):
    """Some runs of a pack could not take in what a tick computed; the others have, and go on."""

    def __init__(self, errors: Mapping[Run, Exception]) -> None:
        super().__init__(*errors.values())
        self.errors = errors


class Pack:
    """What packs of all kinds do. Its runs are changed by `set`."""

    model: GPT
    origin: str | None = None  # the sha256 of the base
    recording = True  # whether ticks may be recorded, where the device can

    def __init__(self, config: TrainConfig, ranks: Ranks = ALONE) -> None:
        self.ranks = ranks
        self.device = torch.device(config.device)
        self.numerics = Numerics.of(config, self.device)
        self.runs: list[Run] = []
        self._share: Share | None = None  # of the pass at hand, where other processes have its other rows

    def start(self, config: TrainConfig) -> Tensors:
        """The tensors that a run trains, as they are at its beginning."""
        raise NotImplementedError

    def set(self, runs: Sequence[Run]) -> None:
        """Train these from now on."""
        self.runs = list(runs)
        self._recordings: Recordings | None = None
        if not runs:
            return
        on = self.device
        smoothing = [run.config.label_smoothing_factor for run in self.runs]
        self._smoothing = torch.tensor(smoothing, device=on) if any(smoothing) else None
        if on.type == "cuda":
            # What a tick computes from: whoever records one knows where they are, not what they hold.
            rows = runs[0].config.rows_per_pass  # or fewer, where other processes have the others
            self._places = torch.empty(len(runs), rows, dtype=torch.int64, device=on)
            self._counts = torch.empty(len(runs), rows, device=on)
            self._rates = torch.empty(len(runs), device=on)
            self.recording &= runs[0].ranks.count == 1  # who waits for others in the middle is not recorded
            if self.recording and all(recordable(run) for run in runs):
                self._recordings = Recordings(on, [run.generator for run in self.runs])

    def stepper(self, config: TrainConfig, trained: Tensors) -> Stepper:
        """What makes the steps of a run."""
        return new_optimizer(config, trained, self.named, self.norm)

    def hold(self, config: TrainConfig, trained: Tensors) -> None:
        """Let the model compute what one run has learned, until the next tick."""
        raise NotImplementedError

    def whole(self, tensors: Tensors) -> Tensors:
        """What a run keeps, as it is in one process."""
        return tensors

    def own(self, tensors: Tensors) -> Tensors:
        """The inverse of `whole`: what this process keeps of it."""
        return tensors

    def add_up(self, ranks: Ranks, gradient: Tensors) -> None:
        """Sum a step's gradient over all processes of a run, in place."""
        ranks.sum(gradient.values())

    def norm(self, gradients: Iterable[Tensor]) -> Tensor:
        """The norm of a run's gradients: a scalar on the device."""
        return torch.nn.utils.get_total_norm(gradients)

    def named(self, trained: Tensors) -> Tensors:
        """What a run trains, by the names that files give it."""
        return trained

    def gathered(self, named: Tensors) -> Tensors:
        """The inverse of `named`. Raises `KeyError` where one is missing."""
        return named

    @property
    def slow_ticks(self) -> int:
        """The first ticks after a change of the runs that take longer than later ones will."""
        if self._recordings is None:
            return 1
        kinds = math.lcm(*(run.config.passes_per_step for run in self.runs))
        return 2 * min(kinds, MOST)  # of each kind one as it is, and one recorded

    def tick(self) -> None:
        """One pass of every run, and an optimizer step of those whose batch is complete.

        Raises `SomeFailedError` where that went wrong for some of several runs.
        """
        compiling = self.runs[0].config.torch_compile
        self.model.train_block = compiled_block if compiling else Block.__call__
        with self.numerics.settings(), explained() if compiling else nullcontext():
            self._tick()

    def _tick(self) -> None:
        passes = [run.next_pass() for run in self.runs]
        places = torch.stack([each.places for each in passes])
        counts = torch.stack([each.counts for each in passes])
        rates: Tensor | None = None
        if self.device.type == "cuda":  # where they are before they are used, and the host does not wait
            rows = places.shape[1]
            places = self._places[:, :rows].copy_(places, non_blocking=True)
            counts = self._counts[:, :rows].copy_(counts, non_blocking=True)
            rates = self._rates.copy_(torch.tensor([each.rate for each in passes]), non_blocking=True)
        failed: dict[Run, Exception] = {}
        self._share = passes[0].share  # runs that share a pack share no pass with other processes

        def compute() -> None:
            self._compute(passes, places, counts, rates, failed)

        if self._recordings is None:
            compute()
        else:
            self._recordings.compute(tuple((each.first, each.last) for each in passes), compute)
        for run in self.runs:
            if run not in failed:
                run.passed()
        if failed:
            raise SomeFailedError(failed)

    def _compute(
        self,
        passes: Sequence[Pass],
        places: Tensor,
        counts: Tensor,
        rates: Tensor | None,
        failed: dict[Run, Exception],
    ) -> None:
        """All that a tick asks the device for; of several runs, those that failed to learn are put down."""
        windows = [run.windows(mine) for run, mine in zip(self.runs, places, strict=True)]
        inputs, targets = inputs_and_targets(torch.cat(windows))
        recomputing = self.runs[0].config.gradient_checkpointing
        self.model.drawing = [run.generator for run in self.runs] if recomputing else None
        each = token_losses(self._forward(inputs), targets.flatten(), len(self.runs), self._smoothing)
        losses = (each.view(len(self.runs), -1, inputs.shape[1]).sum(2) * counts).sum(1)
        scales = [run.loss_scale.value for run in self.runs if run.loss_scale]  # of all or none
        scaled = losses * torch.tensor(scales, device=self.device) if scales else losses
        gradients = self._gradients(scaled.sum())
        for number, (run, loss) in enumerate(zip(self.runs, losses.detach(), strict=True)):
            try:
                rate: float | Tensor = passes[number].rate
                if rates is not None and run.optimizer.recordable:
                    rate = rates[number]
                run.learn(passes[number], loss, self._part(gradients, number), rate)
                if passes[number].last:
                    self._changed(number)
            except Exception as error:
                recording = self._recordings is not None and self._recordings.recording
                if recording or len(self.runs) == 1:  # nothing is learned yet, so all may be tried again
                    raise
                failed[run] = error

    def close(self) -> None:
        """Give back what only training needed."""

    def wait(self) -> None:
        """Until the device has done what was asked of it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @torch.inference_mode()
    def evaluate(self, run: Run) -> float:
        """The loss in nats a token over the windows that the run is validated on, without dropout."""
        parts = torch.split(run.held, run.config.rows_per_look)

        def compute() -> None:
            self.hold(run.config, run.trained)
            looks = run.ranks.looks(parts)
            losses = [loss_sum(self._logits, *inputs_and_targets(part)) for part in looks]
            run.losses.copy_(run.ranks.together(torch.stack(losses), len(parts)))

        self.model.eval()
        with self.numerics.settings():
            if self.recording and self.device.type == "cuda":
                run.looks.compute(None, compute)
            else:
                compute()
        self.model.train()
        return math.fsum(run.losses.tolist()) / (run.held.shape[0] * (run.held.shape[1] - 1))

    def _forward(self, inputs: Tensor) -> Tensor:
        """inputs int64 [K * rows, time] -> logits [K * rows * time, 256]."""
        return self._logits(inputs)

    def _logits(self, inputs: Tensor) -> Tensor:
        with self.numerics.autocast():
            found: Tensor = self.model(inputs)
        return found.float()

    def _gradients(self, loss: Tensor) -> Sequence[Tensor]:
        """The gradients of what is trained."""
        return torch.autograd.grad(loss, self._leaves())

    def _leaves(self) -> list[Tensor]:
        """What the gradients are of."""
        raise NotImplementedError

    def _part(self, gradients: Sequence[Tensor], number: int) -> Tensors:
        """A run's part of the gradients."""
        raise NotImplementedError

    def _changed(self, number: int) -> None:
        """A run has stepped."""


class WholeModel(Pack):
    """A pack of one run that trains a model's own weights: a new one's, or a base's, or the head of one."""

    def __init__(self, config: TrainConfig, ranks: Ranks = ALONE) -> None:
        super().__init__(config, ranks)
        if isinstance(config, LoraConfig):
            base = base_of(config)
            self.origin = base.sha256
            self.model = copy.deepcopy(base_model(base, torch.Generator(self.device))).to(self.device)
        else:
            assert isinstance(config, PretrainConfig)
            self.model = new_model(config, self.device)
        self._dropouts = [layer for layer in self.model.modules() if isinstance(layer, Dropout)]

    def start(self, config: TrainConfig) -> Tensors:
        weights: Tensors = dict(self.model.named_parameters())
        if isinstance(config, LoraConfig) and config.finetuning_type == "linear":
            self.model.requires_grad_(False)
            weights = {"head.weight": self.model.head.weight.requires_grad_()}
        return weights

    def set(self, runs: Sequence[Run]) -> None:
        assert len(runs) <= 1, "a whole model is one run's"
        for run in runs:
            run.generator = self.model.generator
        super().set(runs)

    def _forward(self, inputs: Tensor) -> Tensor:
        if self.runs[0].ranks.count > 1:
            for layer in self._dropouts:
                layer.share = self._share
        return super()._forward(inputs)

    @torch.no_grad()
    def hold(self, config: TrainConfig, trained: Tensors) -> None:
        weights = dict(self.model.named_parameters())
        for name, tensor in trained.items():
            if weights[name] is not tensor:
                weights[name].copy_(tensor)

    def _leaves(self) -> list[Tensor]:
        return list(self.runs[0].trained.values())

    def _part(self, gradients: Sequence[Tensor], number: int) -> Tensors:
        return dict(zip(self.runs[0].trained, gradients, strict=True))


class LoraPack(Pack):
    """Runs that train adapters of the same linears of the same base."""

    def __init__(self, config: LoraConfig, ranks: Ranks = ALONE) -> None:
        super().__init__(config, ranks)
        base = base_of(config)
        self.origin = base.sha256
        self.model = base_model(base).to(self.device)
        self.lora = Lora(self.model, config.targets, dora=config.use_dora)
        self._stacks: list[Tensors] = []  # of runs whose padded ranks are equal, in the order of `runs`
        self._place: list[tuple[int, int]] = []  # of each run: its stack, and where in it
        self._scale = self._drop = self._keep = torch.empty(0)

    def start(self, config: TrainConfig) -> Tensors:
        adapters = self.lora.start(_lora(config).lora_r, start_of(config))
        return {name: tensor.to(self.device) for name, tensor in adapters.items()}

    @torch.no_grad()
    def set(self, runs: Sequence[Run]) -> None:
        super().set(sorted(runs, key=lambda run: _lora(run.config).padded_rank))
        self._stacks, self._place = [], []
        for rank, group in itertools.groupby(self.runs, key=lambda run: _lora(run.config).padded_rank):
            alike = list(group)
            self._place += [(len(self._stacks), place) for place in range(len(alike))]
            self._stacks.append(
                {
                    n: padded(t, rank).new_zeros(len(alike), *padded(t, rank).shape[1:])
                    for n, t in alike[0].trained.items()
                }
            )
        for number in range(len(self.runs)):
            self._changed(number)
        for stacked in self._leaves():
            stacked.requires_grad_()
        self._set_strengths()

    def _set_strengths(self) -> None:
        """How much each run's adapters count, and how much of their input is dropped."""
        configs = [_lora(run.config) for run in self.runs]
        self._scale = torch.tensor([config.scale for config in configs], device=self.device)
        dropout = torch.tensor([config.lora_dropout for config in configs], device=self.device)
        self._drop = (dropout * 65536).round().to(torch.int32).sub_(32768).view(-1, 1, 1)
        self._keep = (1 / (1 - dropout)).view(-1, 1, 1)

    @torch.no_grad()
    def hold(self, config: TrainConfig, trained: Tensors) -> None:
        self.lora.hold(trained, _lora(config).scale)

    @torch.no_grad()
    def merged(self, config: LoraConfig, trained: Tensors) -> Tensors:
        """The state of a plain model that computes what one run has learned."""
        weights = self.lora.merged(trained, config.scale)
        return self.model.state_dict() | {f"{name}.weight": weight for name, weight in weights.items()}

    def named(self, trained: Tensors) -> Tensors:
        return self.lora.named(trained)

    def gathered(self, named: Tensors) -> Tensors:
        return self.lora.gathered(named)

    def _forward(self, inputs: Tensor) -> Tensor:
        self.lora.place(self._stacks, self._scale, self._mask if self._dropping else None)
        return super()._forward(inputs)

    @property
    def _dropping(self) -> bool:
        return any(_lora(run.config).lora_dropout for run in self.runs)

    def _mask(self, x: Tensor) -> Tensor:
        """What dropout multiplies x [K, tokens, in] with, each run's drawn by its own generator.

        Sixteen bits a decision, four to each draw: twice as fast as `F.dropout` on a CPU.
        """
        share = self._share
        size = x[0].numel() if share is None else x[0].numel() // share.rows * share.whole
        draws = torch.empty(len(self.runs), (size + 3) // 4, dtype=torch.int64, device=x.device)
        for row, run in zip(draws, self.runs, strict=True):
            row.random_(-(2**63), None, generator=run.generator)  # all 64 bits: `random_()` keeps the sign 0
        drawn = draws.view(torch.int16)[:, :size]
        if share is not None:
            drawn = share.of(drawn.view(share.whole, -1))
        kept = drawn.view(x.shape) >= self._drop
        return kept.to(x.dtype).mul_(self._keep)

    def _leaves(self) -> list[Tensor]:
        return [tensor for stack in self._stacks for tensor in stack.values()]

    def _part(self, gradients: Sequence[Tensor], number: int) -> Tensors:
        run, (stack, place) = self.runs[number], self._place[number]
        mine = gradients[stack * len(run.trained) : (stack + 1) * len(run.trained)]
        return {
            name: gradient[place, : tensor.view(-1, gradient.shape[2]).shape[0]].view(tensor.shape)
            for (name, tensor), gradient in zip(run.trained.items(), mine, strict=True)
        }

    @torch.no_grad()
    def _changed(self, number: int) -> None:
        stack, place = self._place[number]
        for name, tensor in self.runs[number].trained.items():
            rows = tensor.view(-1, tensor.shape[-1])
            self._stacks[stack][name][place, : len(rows)] = rows


def token_losses(logits: Tensor, targets: Tensor, runs: int, smoothing: Tensor | None = None) -> Tensor:
    """The loss in nats of each token of K runs [K, tokens], where they smooth their targets so much, [K].

    Szegedy et al. 2016, section 7: a share of a target goes to all bytes alike.
    """
    each = F.cross_entropy(logits, targets, reduction="none").view(runs, -1)
    if smoothing is None:
        return each
    alike = (torch.logsumexp(logits, 1) - logits.mean(1)).view_as(each)
    return each.lerp(alike, smoothing[:, None])


def recordable(run: Run) -> bool:
    """Whether what a tick asks the device for is the same each time, and waits for nothing.

    In fp16 it waits for the norm of the gradients; torch's compiler and blocks that are computed twice do
    what no recording may.
    """
    config = run.config
    return run.optimizer.recordable and not (
        run.loss_scale or config.torch_compile or config.gradient_checkpointing
    )


def _lora(config: TrainConfig) -> LoraConfig:
    assert isinstance(config, LoraConfig)
    return config


def padded(tensor: Tensor, rank: int) -> Tensor:
    """A stack [1, rank, width] of one; [1, 1, width] of what has no rank."""
    return F.pad(tensor, (0, 0, 0, rank - len(tensor)))[None] if tensor.dim() == 2 else tensor[None, None]


def new_pack(config: TrainConfig, ranks: Ranks = ALONE) -> Pack:
    """A pack for runs like this one. Raises `CheckpointError` or `ConfigError` where its base is none."""
    config = on_device(config)
    # Not at the top of the module: what shares a model out takes seconds to load.
    if isinstance(config, LoraConfig) and config.finetuning_type == "lora":
        if ranks.strategy == "fsdp":
            from .sharded import ShardedBase

            return ShardedBase(config, ranks)
        if ranks.strategy == "deepspeed":
            from .zero_packs import ZeroAdapters

            return ZeroAdapters(config, ranks)
        return LoraPack(config)
    if ranks.strategy == "fsdp":
        from .sharded import ShardedBody, ShardedModel

        return ShardedModel(config, ranks) if config.trains_all else ShardedBody(config, ranks)
    if ranks.strategy == "deepspeed":
        from .zero_packs import ZeroModel

        return ZeroModel(config, ranks)
    return WholeModel(config)


def pack_key(config: TrainConfig) -> tuple[object, ...] | None:
    """What runs have in common that train in one pack; None for a run that trains alone."""
    if not isinstance(config, LoraConfig) or config.finetuning_type != "lora" or config.torch_compile:
        return None
    dropping = config.lora_dropout > 0  # it costs a third more, for all of a pack
    smoothing = config.label_smoothing_factor > 0  # nor does a run without it compute what those with it do
    recorded = config.device == "cuda" and may_be_recorded(config.optimizer)  # a pack is, or is not
    return (
        *(config.base, config.targets, config.use_dora, config.max_length, config.rows_per_pass),
        *(config.device, dropping, smoothing, recorded),
        *(config.precision, config.deterministic, config.gradient_checkpointing),
    )
