"""Training hpsearch's own model, from a configuration to a validation loss. `base` has the life of a run.

| promise | kept by |
|---|---|
| the same seed, the same curve, on a CPU bit for bit | all random draws depend on (seed, step) alone |
| validating more often changes nothing | validation draws nothing, and turns dropout off |
| losses are comparable between trials | all are means over the same validation tokens |

An optimizer step is one `tick` or several: each run gives its next batch, their pack returns losses and
gradients, and each run learns from its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import checkpoint as files
from ..config.models import TrainConfig
from ..data.corpus import load_corpus, train_places, validation_windows
from ..errors import ConfigError
from ..memory import reset_peak_memory
from ..model.build import on_device
from ..model.compiled import clock
from ..packs.batch import Batch, Member
from ..packs.factory import new_pack
from ..packs.pack import Pack
from ..ranks import ALONE, Ranks
from ..seeds import seed_of
from .base import BaseRun, FitResult, RunReport, drive, perplexity, train_to_end


def fit(
    config: TrainConfig,
    *,
    on_report: Callable[[RunReport], None],
    checkpoint: Path | None = None,
    resume_from: Path | None = None,
    ranks: Ranks = ALONE,
) -> FitResult:
    """Train one run, not packed with others. `ranks` are the processes that train it together.

    Raises `ConfigError`, `DataError` or `CheckpointError` before anything is trained.
    """
    run = GptRun(config, ranks=ranks)
    return train_to_end(run, drive(run, on_report=on_report, checkpoint=checkpoint, resume_from=resume_from))


class SomeRunsFailedError(Exception):
    """Some runs of a pack failed in a tick; the others have completed it and can continue."""

    def __init__(self, errors: Mapping[GptRun, Exception]) -> None:
        super().__init__(*errors.values())
        self.errors = errors


def tick(runs: Sequence[GptRun]) -> None:
    """Compute one batch of every run of a pack; a run whose step it completes makes the optimizer step.

    Raises `SomeRunsFailedError` if that failed for some of several runs.
    """
    pack = runs[0].pack
    pack.set_members([run.member for run in runs])
    batches = [run.next_batch() for run in runs]
    rates = pack.set_batches(batches)
    failed: dict[GptRun, Exception] = {}

    def compute() -> None:  # on CUDA it is recorded, and replayed for later batches
        losses, gradients = pack.forward_backward()
        for number, (run, batch) in enumerate(zip(runs, batches, strict=True)):
            try:
                run.learn(batch, losses[number], gradients[number], rates[number])
                if batch.last:
                    pack.update(number)
            except Exception as error:
                if len(runs) == 1 or pack.recordings.recording:  # no run has changed, so all can try again
                    raise
                failed[run] = error

    pack.compute(compute)
    for run in runs:
        if run not in failed:
            run.passed()
    if failed:
        raise SomeRunsFailedError(failed)


class GptRun(BaseRun):
    """A run of hpsearch's own model. It trains in `pack`, or without one in a pack of its own."""

    config: TrainConfig

    def __init__(self, config: TrainConfig, pack: Pack | None = None, ranks: Ranks = ALONE) -> None:
        config = on_device(config)
        if ranks.count > 1 and (problems := config.sharing_problems(ranks.strategy)):
            raise ConfigError(problems)
        device = torch.device(config.device)
        self.corpus = load_corpus(
            config.train_file,
            config.validation_file,
            validation_split=config.validation_split,
            max_length=config.max_length,
            text_field=config.text_field,
        )
        if config.num_train_epochs is not None and config.samples_per_epoch is None:
            windows = (len(self.corpus.train) - 1) // config.max_length
            config = dataclasses.replace(config, samples_per_epoch=windows)
        self.pack = pack or new_pack(config, ranks)
        trained = self.pack.init_tensors(config)
        optimizer = self.pack.stepper(config, trained)
        loss_scale, sharding = self.pack.numerics.new_loss_scale(), self.pack.sharding
        super().__init__(config, device, trained, optimizer, loss_scale, ranks, sharding)
        self.tokens = self.corpus.train.to(self.device)
        held = validation_windows(self.corpus.validation, config.eval_samples, config.max_length)
        self.held = held.to(self.device)
        self.losses = torch.zeros(-(-len(held) // config.rows_per_validation_pass), device=self.device)
        self.member = Member(config, trained)
        self._recordings = self.pack.new_recordings()  # of the validation
        reset_peak_memory(self.device)
        self._batches: list[Batch] = []  # the remaining passes of this step
        self._gradient: files.Tensors = {}  # the sum over the passes of this step so far, if it has several
        if pack is None:
            self.pack.set_members([self.member])

    def train(self) -> None:
        """Make one optimizer step, alone in its pack."""
        began, step = clock(), self.step
        while self.step == step:
            tick([self])
        if self.next_report_step is not None:
            self.pack.wait()
        self.train_seconds += clock() - began

    def next_batch(self) -> Batch:
        """The rows of the next pass; the same again until `passed` is called."""
        if not self._batches:
            self._batches = list(self._batches_of_step())
        return self._batches[0]

    def _batches_of_step(self) -> Iterator[Batch]:
        """The passes of this step that this process computes, or its part of them."""
        config, rows = self.config, self.config.rows_per_pass
        places = self.places(self.step)
        counts = torch.full((len(places),), 1 / (config.rows_per_step * config.max_length))
        if missing := -len(places) % rows:
            places = torch.cat([places, places[:1].expand(missing)])
            counts = torch.cat([counts, torch.zeros(missing)])
        rate, scale = self.rate_of(self.step), self.loss_scale.value if self.loss_scale else None
        passes = len(places) // rows
        mine = self.ranks.passes(passes, rows)
        for n, share in mine:
            starts, weights = (every[n * rows : (n + 1) * rows] for every in (places, counts))
            if share is not None:
                starts, weights = share.of(starts), share.of(weights)
            seed = seed_of("dropout", config.seed, self.step * passes + n)
            first, last = n == mine[0][0], n == mine[-1][0]
            yield Batch(self.tokens, starts, weights, rate, scale, seed, first, last, share)

    def places(self, step: int) -> Tensor:
        """int64 [rows of a step]: the starts of a step's windows."""
        config = self.config
        return train_places(self.tokens, config.rows_per_step, config.max_length, seed=config.seed, step=step)

    def learn(self, batch: Batch, loss: Tensor, gradient: files.Tensors, rate: float | Tensor) -> None:
        """Add the loss and gradients of a batch; after the last one of a step, step at this rate.

        Changes only tensors, in place, and does not wait for the device: losses stay there until the next
        report. In fp16 it does wait, because a step whose gradients are not finite is skipped; it still
        counts as a step.
        """
        self.loss_total += loss
        if batch.first and not batch.last and not self._gradient:
            self._gradient = {name: torch.empty_like(part) for name, part in gradient.items()}
        if not batch.first:
            gradient = {name: total.add_(gradient[name]) for name, total in self._gradient.items()}
        elif not batch.last:
            for name, total in self._gradient.items():
                total.copy_(gradient[name])
        if batch.last:
            self.pack.add_up(gradient)
            if self.loss_scale is None or self.loss_scale.unscale(gradient, self.pack.norm):
                self.grad_norm.copy_(self.optimizer.step(gradient, rate))

    def passed(self) -> None:
        """Advance to the next pass."""
        if self._batches.pop(0).last:
            self.step += 1
            self.loss_steps += 1
            self.loss_tokens += self.config.rows_per_step * self.config.max_length

    def evaluate(self) -> tuple[float, dict[str, float]]:
        """The loss in nats per token, without dropout, and its perplexity."""
        parts = torch.split(self.held, self.config.rows_per_validation_pass)

        def compute() -> None:
            self.pack.load_for_eval(self.config, self.trained)
            losses = [self.pack.loss_sum(part) for part in self.ranks.validation_parts(parts)]
            self.losses.copy_(self.ranks.all_losses(torch.stack(losses), len(parts)))

        with self.pack.evaluating():
            self._recordings.compute(None, compute)
        value = math.fsum(self.losses.tolist()) / (self.held.shape[0] * (self.held.shape[1] - 1))
        return value, {"perplexity": perplexity(value)}

    def load_weights(self, weights: files.Tensors) -> None:
        super().load_weights(weights)
        if self.member in self.pack.members:
            self.pack.refresh()

    @property
    def origin(self) -> dict[str, Any]:
        return {"corpus_sha256": self.corpus.sha256, "base_sha256": self.pack.origin}
