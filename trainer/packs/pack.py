"""Runs that train together, with one forward and one backward pass for all. A single run is a pack of one.

The unit of work is a *tick*: `rows_per_pass` sequences of every run. A run whose step takes several passes
steps its optimizer after as many ticks, so runs of different batch sizes can share a pack.

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
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checkpoint import Tensors
from ..config.models import TrainConfig
from ..data.corpus import inputs_and_targets
from ..model.compiled import compile_errors, compiled_block
from ..model.gpt import GPT, Block, loss_sum
from ..optim.numerics import Numerics
from ..optim.optimizers import Stepper, new_optimizer
from ..ranks import ALONE, UNSHARDED, Ranks, RowShare, Sharding
from .passes import Pass, RunInPack
from .recordings import MAX_KINDS, Recordings


class SomeRunsFailedError(Exception):
    """Some runs of a pack failed in a tick; the others have completed it and can continue."""

    def __init__(self, errors: Mapping[RunInPack, Exception]) -> None:
        super().__init__(*errors.values())
        self.errors = errors


class Pack:
    """The base class of all packs. `set_runs` changes the runs."""

    model: GPT
    origin: str | None = None  # the sha256 of the base
    recording = True  # whether ticks may be recorded, if the device can

    def __init__(self, config: TrainConfig, ranks: Ranks = ALONE) -> None:
        self.ranks = ranks
        self.device = torch.device(config.device)
        self.numerics = Numerics.of(config, self.device)
        self.runs: list[RunInPack] = []
        self._share: RowShare | None = None  # this process's rows of the current pass, if it shares one

    def init_tensors(self, config: TrainConfig) -> Tensors:
        """The initial values of the tensors that a run trains."""
        raise NotImplementedError

    def set_runs(self, runs: Sequence[RunInPack]) -> None:
        """Train these runs from now on."""
        self.runs = list(runs)
        self._recordings: Recordings | None = None
        if not runs:
            return
        on = self.device
        smoothing = [run.config.label_smoothing_factor for run in self.runs]
        self._smoothing = torch.tensor(smoothing, device=on) if any(smoothing) else None
        if on.type == "cuda":
            # The inputs of a tick. A recording refers to their addresses, so they are allocated only once.
            rows = runs[0].config.rows_per_pass  # or fewer, if other processes compute the others
            self._places = torch.empty(len(runs), rows, dtype=torch.int64, device=on)
            self._counts = torch.empty(len(runs), rows, device=on)
            self._rates = torch.empty(len(runs), device=on)
            self.recording &= runs[0].ranks.count == 1  # waiting for others cannot be recorded
            if self.recording and all(recordable(run) for run in runs):
                self._recordings = Recordings(on, [run.generator for run in self.runs])

    def stepper(self, config: TrainConfig, trained: Tensors) -> Stepper:
        """The optimizer of a run."""
        return new_optimizer(config, trained, self.by_layer, self.norm)

    def load_for_eval(self, config: TrainConfig, trained: Tensors) -> None:
        """Load one run's trained tensors into the model, until the next tick."""
        raise NotImplementedError

    @property
    def sharding(self) -> Sharding:
        """The part of the trained tensors that this process holds."""
        return UNSHARDED

    def add_up(self, ranks: Ranks, gradient: Tensors) -> None:
        """Sum a step's gradient over all processes of a run, in place."""
        ranks.sum(gradient.values())

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
    def slow_ticks(self) -> int:
        """How many ticks after a change of the runs are slower than later ones."""
        if self._recordings is None:
            return 1
        kinds = math.lcm(*(run.config.passes_per_step for run in self.runs))
        return 2 * min(kinds, MAX_KINDS)  # for each kind one without a recording, and one that is recorded

    def tick(self) -> None:
        """Compute one pass of every run, and an optimizer step of those whose batch is complete.

        Raises `SomeRunsFailedError` if that failed for some of several runs.
        """
        compiling = self.runs[0].config.torch_compile
        self.model.train_block = compiled_block if compiling else Block.__call__
        with self.numerics.settings(), compile_errors() if compiling else nullcontext():
            self._tick()

    def _tick(self) -> None:
        passes = [run.next_pass() for run in self.runs]
        places = torch.stack([each.places for each in passes])
        counts = torch.stack([each.counts for each in passes])
        rates: Tensor | None = None
        if self.device.type == "cuda":  # copied in stream order, so the host need not wait
            rows = places.shape[1]
            places = self._places[:, :rows].copy_(places, non_blocking=True)
            counts = self._counts[:, :rows].copy_(counts, non_blocking=True)
            rates = self._rates.copy_(torch.tensor([each.rate for each in passes]), non_blocking=True)
        failed: dict[RunInPack, Exception] = {}
        self._share = passes[0].share  # only a run alone in its pack shares a pass with other processes

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
            raise SomeRunsFailedError(failed)

    def _compute(
        self,
        passes: Sequence[Pass],
        places: Tensor,
        counts: Tensor,
        rates: Tensor | None,
        failed: dict[RunInPack, Exception],
    ) -> None:
        """The work of a tick on the device. If some of several runs fail, they are entered in `failed`."""
        windows = [run.windows(mine) for run, mine in zip(self.runs, places, strict=True)]
        inputs, targets = inputs_and_targets(torch.cat(windows))
        recomputing = self.runs[0].config.gradient_checkpointing
        self.model.drawing = [run.generator for run in self.runs] if recomputing else None
        each = token_losses(self._forward(inputs), targets.flatten(), len(self.runs), self._smoothing)
        losses = (each.view(len(self.runs), -1, inputs.shape[1]).sum(2) * counts).sum(1)
        scales = [run.loss_scale.value for run in self.runs if run.loss_scale]  # all runs have one, or none
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
                if recording or len(self.runs) == 1:  # no run has changed yet, so all can try again
                    raise
                failed[run] = error

    def wait(self) -> None:
        """Wait until the device has finished."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @torch.inference_mode()
    def evaluate(self, run: RunInPack) -> float:
        """The validation loss of a run in nats per token, without dropout."""
        parts = torch.split(run.held, run.config.rows_per_validation_pass)

        def compute() -> None:
            self.load_for_eval(run.config, run.trained)
            own_parts = run.ranks.validation_parts(parts)
            losses = [loss_sum(self._logits, *inputs_and_targets(part)) for part in own_parts]
            run.losses.copy_(run.ranks.all_losses(torch.stack(losses), len(parts)))

        self.model.eval()
        with self.numerics.settings():
            if self.recording and self.device.type == "cuda":
                run.validation_recordings.compute(None, compute)
            else:
                compute()
        self.model.train()
        return math.fsum(run.losses.tolist()) / (run.held.shape[0] * (run.held.shape[1] - 1))

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
        """A run's part of the gradients."""
        raise NotImplementedError

    def _changed(self, number: int) -> None:
        """Called when a run has stepped, to update its copies."""


def token_losses(logits: Tensor, targets: Tensor, runs: int, smoothing: Tensor | None = None) -> Tensor:
    """The loss in nats of each token of K runs, [K, tokens]; `smoothing` [K] is their label smoothing.

    Szegedy et al. 2016, section 7: a share of a target is spread equally over all bytes.
    """
    each = F.cross_entropy(logits, targets, reduction="none").view(runs, -1)
    if smoothing is None:
        return each
    alike = (torch.logsumexp(logits, 1) - logits.mean(1)).view_as(each)
    return each.lerp(alike, smoothing[:, None])


def recordable(run: RunInPack) -> bool:
    """Whether a tick does the same work on the device each time, without waiting for it.

    In fp16 it waits for the norm of the gradients. Torch's compiler and activation checkpointing do what a
    recording may not.
    """
    config = run.config
    return run.optimizer.recordable and not (
        run.loss_scale or config.torch_compile or config.gradient_checkpointing
    )
