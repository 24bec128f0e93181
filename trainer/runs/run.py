"""Training hpsearch's own model, from a configuration to a validation loss. `base` has the life of a run.

| promise | kept by |
|---|---|
| the same seed, the same curve, on a CPU bit for bit | all random draws depend on (seed, step) alone |
| validating more often changes nothing | validation draws nothing, and turns dropout off |
| losses are comparable between trials | all are means over the same validation tokens |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import checkpoint as files
from ..config.models import TrainConfig
from ..data.corpus import load_corpus, train_places, validation_windows, windows_at
from ..errors import ConfigError
from ..memory import reset_peak_memory
from ..model.build import on_device
from ..model.compiled import clock
from ..packs.factory import new_pack
from ..packs.pack import Pack
from ..packs.passes import Pass
from ..packs.recordings import Recordings
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


class GptRun(BaseRun):
    """A run of hpsearch's own model: gives its pack the passes, and turns their gradients into steps.

    It trains in `pack`, or without one in a pack of its own.
    """

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
        self.generator = torch.Generator(self.device)  # draws the dropout
        if self.device.type == "cuda":
            self.validation_recordings = Recordings(self.device)  # of the validation
        reset_peak_memory(self.device)
        self._passes: list[Pass] = []  # the remaining passes of this step
        self._gradient: files.Tensors = {}  # the sum over the passes of this step so far, if it has several
        if pack is None:
            self.pack.set_runs([self])

    def train(self) -> None:
        """Make one optimizer step, alone in its pack."""
        began, step = clock(), self.step
        while self.step == step:
            self.pack.tick()
        if self.next_report_step is not None:
            self.pack.wait()
        self.train_seconds += clock() - began

    def next_pass(self) -> Pass:
        if not self._passes:
            config, rows = self.config, self.config.rows_per_pass
            places = self.places(self.step)
            count = torch.full((len(places),), 1 / (config.rows_per_step * config.max_length))
            if missing := -len(places) % rows:
                places = torch.cat([places, places[:1].expand(missing)])
                count = torch.cat([count, torch.zeros(missing)])
            rate, before = self.rate_of(self.step), self.step * (len(places) // rows)
            mine = self.ranks.passes(len(places) // rows, rows)
            for n, share in mine:
                starts, counts = (every[n * rows : (n + 1) * rows] for every in (places, count))
                if share is not None:
                    starts, counts = share.of(starts), share.of(counts)
                first, last = n == mine[0][0], n == mine[-1][0]
                self._passes.append(Pass(starts, counts, rate, before + n, first, last, share))
        self.generator.manual_seed(seed_of("dropout", self.config.seed, self._passes[0].number))
        return self._passes[0]

    def places(self, step: int) -> Tensor:
        """int64 [rows of a step]: the starts of a step's windows."""
        config = self.config
        return train_places(self.tokens, config.rows_per_step, config.max_length, seed=config.seed, step=step)

    def windows(self, places: Tensor) -> Tensor:
        return windows_at(self.tokens, places, self.config.max_length)

    def learn(self, done: Pass, loss: Tensor, gradient: files.Tensors, rate: float | Tensor) -> None:
        """See `RunInPack`.

        Changes only tensors, in place, and does not wait for the device: losses stay there until the next
        report. In fp16 it does wait, because a step whose gradients are not finite is skipped; it still
        counts as a step.
        """
        self.loss_total += loss
        if done.first and not done.last and not self._gradient:
            self._gradient = {name: torch.empty_like(part) for name, part in gradient.items()}
        if not done.first:
            for name, total in self._gradient.items():
                gradient[name] = total.add_(gradient[name])
        elif not done.last:
            for name, total in self._gradient.items():
                total.copy_(gradient[name])
        if done.last:
            self.pack.add_up(self.ranks, gradient)
        if done.last and (self.loss_scale is None or self.loss_scale.unscale(gradient, self.pack.norm)):
            self.grad_norm.copy_(self.optimizer.step(gradient, rate))

    def passed(self) -> None:
        done = self._passes.pop(0)
        if done.last:
            self.step += 1
            self.loss_steps += 1
            self.loss_tokens += self.config.rows_per_step * self.config.max_length

    def evaluate(self) -> tuple[float, dict[str, float]]:
        """The loss in nats per token, and its perplexity."""
        value = self.pack.evaluate(self)
        return value, {"perplexity": perplexity(value)}

    @torch.no_grad()
    def load_weights(self, weights: files.Tensors) -> None:
        super().load_weights(weights)
        self.pack.set_runs(self.pack.runs)  # updates the pack's copies

    @property
    def origin(self) -> dict[str, Any]:
        return {"corpus_sha256": self.corpus.sha256, "base_sha256": self.pack.origin}
