"""Packs compute the gradients of several runs with one forward and one backward pass.

A run alone is a pack of one. The unit of work is a *tick* (`runs.run.tick`): `rows_per_pass` sequences of
every run. A run whose step takes several passes steps its optimizer after as many ticks, so runs of different
batch sizes can share a pack.

| promise | kept by |
|---|---|
| a run computes the same in any pack | its batches, dropout and passes depend on its configuration alone |
| runs join and leave between any two ticks | a run owns its state; a pack holds copies to compute with |
| a NaN loss stays in its run | no operation mixes the rows or losses of two runs |

The runs of a pack have the same `pack_key`. Only runs that train adapters of a frozen base have one: whole
models share no weights, so there is nothing to compute together. Compiled runs have none either: code
compiled for another number of runs may round differently.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checkpoint import Tensors
from ..config.models import TrainConfig
from ..data.corpus import inputs_and_targets, windows_at
from ..model.compiled import compile_errors, compiled_block
from ..model.gpt import GPT, Block, loss_sum
from ..optim.numerics import Numerics
from ..optim.optimizers import Stepper, may_be_recorded, new_optimizer
from ..ranks import ALONE, UNSHARDED, Ranks, RowShare, Sharding
from .batch import Batch, Member
from .recordings import MAX_KINDS, Recordings, Unrecorded


class Pack:
    """The base class of all packs. It computes for its `members`, in their order."""

    model: GPT
    origin: str | None = None  # the sha256 of the base
    recording = True  # whether work may be recorded, if the device can

    def __init__(self, config: TrainConfig, ranks: Ranks = ALONE) -> None:
        self.ranks = ranks
        self.device = torch.device(config.device)
        self.numerics = Numerics.of(config, self.device)
        self.members: list[Member] = []
        self._share: RowShare | None = None  # this process's rows of the current pass, if it shares one

    def init_tensors(self, config: TrainConfig) -> Tensors:
        """The initial values of the tensors that a run trains."""
        raise NotImplementedError

    def stepper(self, config: TrainConfig, trained: Tensors) -> Stepper:
        """The optimizer of a run."""
        return new_optimizer(config, trained, self.by_layer, self.norm)

    def order(self, config: TrainConfig) -> int:
        """The place of a run among the members: neighbours of equal numbers compute faster."""
        return 0

    def set_members(self, members: list[Member]) -> None:
        """Compute for these members from now on."""
        if members != self.members:
            self.members = members
            self._arrange()

    def _arrange(self) -> None:
        """Make what ticks compute with, after a change of the members."""
        configs = [member.config for member in self.members]
        self.generators = [self._generator() for _ in configs]  # of each member's dropout
        smoothing = [config.label_smoothing_factor for config in configs]
        self._smoothing = torch.tensor(smoothing, device=self.device) if any(smoothing) else None
        again = any(config.gradient_checkpointing for config in configs)
        self.model.drawing = self.generators if again else None
        self._compiling = any(config.torch_compile for config in configs)
        self.model.train_block = compiled_block if self._compiling else Block.__call__
        on_device = all(may_be_recorded(config.optimizer) for config in configs)
        self._rates_on_device = on_device and self.device.type == "cuda"
        self._batches: Sequence[Batch] = ()
        self._inputs: dict[tuple[str, torch.Size], Tensor] = {}
        self.recordings = Unrecorded()
        if all(map(recordable, configs)):
            self.recordings = self.new_recordings(self.generators)

    def _generator(self) -> torch.Generator:
        return torch.Generator(self.device)

    def refresh(self) -> None:
        """Update the copies of all members, after their tensors have changed other than by a step."""
        for number in range(len(self.members)):
            self.update(number)

    def update(self, number: int) -> None:
        """Update the copies of a member, after its step."""

    def set_batches(self, batches: Sequence[Batch]) -> Sequence[float] | Tensor:
        """Load a batch of each member. Returns their learning rates, a tensor if CUDA may read them."""
        self._batches = batches
        self._share = batches[0].share  # only a run alone in its pack shares a pass with other processes
        for generator, batch in zip(self.generators, batches, strict=True):
            generator.manual_seed(batch.dropout_seed)
        self._places = self._input("places", torch.stack([batch.places for batch in batches]))
        self._counts = self._input("counts", torch.stack([batch.counts for batch in batches]))
        rates = [batch.rate for batch in batches]
        return self._input("rates", torch.tensor(rates)) if self._rates_on_device else rates

    def _input(self, name: str, values: Tensor) -> Tensor:
        """The values on the device, on CUDA always at the same address: a recording refers to it."""
        if self.device.type != "cuda":
            return values
        key = name, values.shape
        if key not in self._inputs:
            self._inputs[key] = torch.empty_like(values, device=self.device)
        # In stream order, so the host need not wait.
        return self._inputs[key].copy_(values, non_blocking=True)

    def compute(self, work: Callable[[], None]) -> None:
        """Call `work`, all that a tick does on the device, or replay its recording."""
        kind = tuple((batch.first, batch.last) for batch in self._batches)
        with self.numerics.settings(), compile_errors() if self._compiling else nullcontext():
            self.recordings.compute(kind, work)

    def forward_backward(self) -> tuple[Tensor, list[Tensors]]:
        """The losses [K] of the loaded batches of K members, and the gradients of each."""
        count, length = len(self.members), self.members[0].config.max_length
        rows = zip(self._batches, self._places, strict=True)
        windows = torch.cat([windows_at(batch.tokens, places, length) for batch, places in rows])
        inputs, targets = inputs_and_targets(windows)
        each = token_losses(self._forward(inputs), targets.flatten(), count, self._smoothing)
        losses = (each.view(count, -1, length).sum(2) * self._counts).sum(1)
        scaled = losses
        if self._batches[0].loss_scale is not None:  # then all have one
            scaled = losses * torch.tensor([b.loss_scale for b in self._batches], device=self.device)
        gradients = self._gradients(scaled.sum())
        return losses.detach(), [self._part(gradients, number) for number in range(count)]

    def _forward(self, inputs: Tensor) -> Tensor:
        """inputs int64 [K * rows, time] -> logits [K * rows * time, 256]."""
        return self._logits(inputs)

    def _logits(self, inputs: Tensor) -> Tensor:
        with self.numerics.autocast():
            logits: Tensor = self.model(inputs)
        return logits.float()

    def _gradients(self, loss: Tensor) -> Sequence[Tensor]:
        """The gradients of the trained tensors."""
        return torch.autograd.grad(loss, self._leaves())

    def _leaves(self) -> list[Tensor]:
        """The tensors to differentiate by."""
        raise NotImplementedError

    def _part(self, gradients: Sequence[Tensor], number: int) -> Tensors:
        """A member's part of the gradients."""
        raise NotImplementedError

    def add_up(self, gradient: Tensors) -> None:
        """Sum a step's gradient over all processes of a run, in place."""
        self.ranks.sum(gradient.values())

    def norm(self, gradients: Iterable[Tensor]) -> Tensor:
        """The norm of a run's gradients: a scalar on the device."""
        return torch.nn.utils.get_total_norm(gradients)

    def by_layer(self, trained: Tensors) -> Tensors:
        """The trained tensors of a run by the names that they have in files."""
        return trained

    def stacked(self, named: Tensors) -> Tensors:
        """The inverse of `by_layer`. Raises `KeyError` if one is missing."""
        return named

    @property
    def sharding(self) -> Sharding:
        """The part of the trained tensors that this process holds."""
        return UNSHARDED

    def wait(self) -> None:
        """Wait until the device has finished."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """The context of a validation, which uses `load_for_eval` and `loss_sum`."""
        self.model.eval()
        with torch.inference_mode(), self.numerics.settings():
            yield
        self.model.train()

    def load_for_eval(self, config: TrainConfig, trained: Tensors) -> None:
        """Load one run's trained tensors into the model, until the next tick."""
        raise NotImplementedError

    def loss_sum(self, windows: Tensor) -> Tensor:
        """The loss in nats, summed over all tokens of uint8 [rows, length + 1] windows."""
        return loss_sum(self._logits, *inputs_and_targets(windows))

    def new_recordings(self, generators: Sequence[torch.Generator] = ()) -> Unrecorded:
        """`Recordings`, if this pack's work can be recorded: waiting for other processes cannot."""
        if self.recording and self.device.type == "cuda" and self.ranks.count == 1:
            return Recordings(self.device, generators)
        return Unrecorded()

    @property
    def slow_ticks(self) -> int:
        """How many ticks after a change of the members are slower than later ones."""
        if not isinstance(self.recordings, Recordings):
            return 1
        kinds = math.lcm(*(member.config.passes_per_step for member in self.members))
        return 2 * min(kinds, MAX_KINDS)  # for each kind one without a recording, and one that is recorded


def token_losses(logits: Tensor, targets: Tensor, runs: int, smoothing: Tensor | None = None) -> Tensor:
    """The loss in nats of each token of K runs, [K, tokens]; `smoothing` [K] is their label smoothing.

    Szegedy et al. 2016, section 7: a share of a target is spread equally over all bytes.
    """
    each = F.cross_entropy(logits, targets, reduction="none").view(runs, -1)
    if smoothing is None:
        return each
    alike = (torch.logsumexp(logits, 1) - logits.mean(1)).view_as(each)
    return each.lerp(alike, smoothing[:, None])


def recordable(config: TrainConfig) -> bool:
    """Whether a tick does the same work on the device each time, without waiting for it.

    In fp16 it waits for the norm of the gradients. Torch's compiler and activation checkpointing do what a
    recording may not.
    """
    return may_be_recorded(config.optimizer) and not (
        config.precision == "fp16" or config.torch_compile or config.gradient_checkpointing
    )
