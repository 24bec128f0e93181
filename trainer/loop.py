"""One training run, from a configuration to a validation loss.

    while True:  validate, checkpoint and report if due -> stop if last -> train -> step

| promise | kept by |
|---|---|
| the same seed, the same curve, on a CPU bit for bit | all that is random comes from (seed, step) alone |
| stopped and resumed gives the same curve | a checkpoint at every report holds all that changes |
| a damaged checkpoint costs time, and nothing else | the one before it is kept, to go on from |
| validating more often changes nothing | validation draws nothing, and turns dropout off while it looks |
| losses compare between trials | all see the same validation tokens, summed and divided by their number |

The run neither knows nor asks who listens: what `on_report` raises passes through.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import checkpoint as files
from .build import on_device
from .compiled import clock
from .config import OUTSIDE, TrainConfig
from .data import load_corpus, train_places, validation_windows, windows_at
from .errors import CheckpointError
from .memory import peak_memory, reset_peak_memory
from .optim import new_optimizer
from .pack import Pack, new_pack
from .recordings import Recordings
from .schedule import learning_rate, report_due
from .seeds import seed_of


@dataclass(frozen=True)
class Report:
    """One validation: `value` is the loss in nats a token, `step` the place in the run's unit.

    `metrics`: train_loss (mean since the last report, of what is minimised: with `label_smoothing_factor` the
    smoothed loss), overfitting_gap (value - train_loss), perplexity, learning_rate and grad_norm (of the last
    step), tokens_per_second (training alone, and no compiling), host_memory_mb (this process's peak), on CUDA
    device_memory_mb (this process's peak there since it last began a run: in a pack that of all its runs).
    """

    step: int
    value: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class Pass:
    """A part of a step: on the host, what its rows are.

    `places` int64 [rows] are those of its windows in the text, `counts` [rows] what the loss of each counts:
    a row that only fills the last pass up counts nothing. `rate` is the learning rate of the step.
    """

    places: Tensor
    counts: Tensor
    rate: float
    first: bool  # of its step
    last: bool


@dataclass(frozen=True)
class FitResult:
    """What a run came to.

    `value` is the last validation loss; with early stopping the best, whose weights are kept. `stopped` says
    why it ended: `finished`, `early` or `diverged` (a loss that is no number, reported as it is). `seconds`
    (training and validation, not compiling) and `reports` are those of all attempts.
    """

    value: float
    steps: int
    samples: int
    seconds: float
    stopped: str
    reports: tuple[Report, ...]
    weights: files.Tensors


def fit(
    config: TrainConfig,
    *,
    on_report: Callable[[Report], None],
    checkpoint: Path | None = None,
    resume_from: Path | None = None,
) -> FitResult:
    """Train one run, alone: `course` with its steps.

    Raises `ConfigError`, `DataError` or `CheckpointError` before anything is trained.
    """
    run = Run(config)
    steps = course(run, on_report=on_report, checkpoint=checkpoint, resume_from=resume_from)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: FitResult = end.value
            return result
        run.train()


def course(
    run: Run,
    *,
    on_report: Callable[[Report], None],
    checkpoint: Path | None = None,
    resume_from: Path | None = None,
) -> Generator[None, None, FitResult]:
    """All of a run but its steps: yields whenever the run is to be trained a step further.

    `on_report` is called at every point of the report grid, after the checkpoint of it is written. Where
    `resume_from` holds a checkpoint the run goes on from there. The report of that checkpoint is made again:
    it was saved before it was told, so a killed run may not have told it. Earlier ones are not. A damaged
    checkpoint is removed, which is said on stderr, and the one before it used.
    Raises `CheckpointError` before anything is trained.
    """
    if resume_from is not None and run.resume(resume_from):
        on_report(run.reports[-1])
    while True:
        due = run.due
        if due is not None:
            report = run.validate(due)
            if checkpoint is not None:
                run.save(checkpoint)
            on_report(report)
        if run.stopped is not None:
            return run.result()
        yield


class Run:
    """The state of one training: everything that changes from step to step, and how it does.

    By itself it is a pack of one; `pack` is the one to train in with others.
    """

    def __init__(self, config: TrainConfig, pack: Pack | None = None) -> None:
        self.config = config = on_device(config)
        self.device = torch.device(config.device)
        self.corpus = load_corpus(
            config.train_file,
            config.validation_file,
            validation_split=config.validation_split,
            max_length=config.max_length,
            text_field=config.text_field,
        )
        if config.num_train_epochs is not None and config.samples_per_epoch is None:
            windows = (len(self.corpus.train) - 1) // config.max_length
            self.config = config = dataclasses.replace(config, samples_per_epoch=windows)
        self.pack = pack or new_pack(config)
        self.trained = self.pack.start(config)
        self.loss_scale = self.pack.numerics.new_loss_scale()
        self.optimizer = new_optimizer(config, self.trained, self.pack.named)
        self.tokens = self.corpus.train.to(self.device)
        held = validation_windows(self.corpus.validation, config.eval_samples, config.max_length)
        self.held = held.to(self.device)
        self.losses = torch.zeros(-(-len(held) // config.rows_per_look), device=self.device)  # its parts'
        self.generator = torch.Generator(self.device)  # draws the dropout
        if self.device.type == "cuda":
            self.looks = Recordings(self.device)  # of its validation
        reset_peak_memory(self.device)

        self.step = 0  # optimizer steps done
        self.reported = 0  # the last report, in the run's unit
        self.reports: list[Report] = []
        self.stopped: str | None = None
        self.best = math.inf
        self.best_weights: files.Tensors = {}
        self.stale = 0  # validations since the best one
        self.train_seconds = self.seconds = 0.0
        self.loss_total = torch.zeros((), device=self.device)  # of the tokens since the last report
        self.loss_steps = 0
        self.grad_norm = torch.zeros((), device=self.device)
        self._passes: list[Pass] = []  # what is left of this step's batch
        self._pass = 0  # the first of them, counted from the beginning of the run
        self._gradient: files.Tensors = {}  # of the passes of this step so far, where it has several
        if pack is None:
            self.pack.set([self])

    def train(self) -> None:
        """One optimizer step, alone in its pack."""
        began, step = clock(), self.step
        while self.step == step:
            self.pack.tick()
        if self.due is not None:
            self.pack.wait()
        self.train_seconds += clock() - began

    @property
    def due(self) -> int | None:
        """The report that is to be made before the next step, in the run's unit."""
        due = report_due(self.config, self.step)
        return due if due is not None and due > self.reported else None

    def next_pass(self) -> Pass:
        """What the next pass computes from; the same again until it has `passed`."""
        if not self._passes:
            config, rows = self.config, self.config.rows_per_pass
            places = self.places(self.step)
            count = torch.full((len(places),), 1 / (config.rows_per_step * config.max_length))
            if missing := -len(places) % rows:
                places = torch.cat([places, places[:1].expand(missing)])
                count = torch.cat([count, torch.zeros(missing)])
            parts = list(zip(torch.split(places, rows), torch.split(count, rows), strict=True))
            rate, last = self.rate_of(self.step), len(parts) - 1
            self._passes = [Pass(*part, rate, n == 0, n == last) for n, part in enumerate(parts)]
            self._pass = self.step * len(parts)
        self.generator.manual_seed(seed_of("dropout", self.config.seed, self._pass))
        return self._passes[0]

    def places(self, step: int) -> Tensor:
        """int64 [rows of a step]: where the windows of a step are."""
        config = self.config
        return train_places(self.tokens, config.rows_per_step, config.max_length, seed=config.seed, step=step)

    def windows(self, places: Tensor) -> Tensor:
        """uint8 [len(places), length + 1]: the run's text there."""
        return windows_at(self.tokens, places, self.config.max_length)

    def learn(self, done: Pass, loss: Tensor, gradient: files.Tensors, rate: float | Tensor) -> None:
        """Take in the loss and gradients of a pass, and with the last of a step make it, at that rate.

        Changes nothing but tensors, in place, and waits for nothing: the losses stay on the device until the
        next report. But in fp16 it does, as a step whose gradients are no finite numbers is left out; it
        counts as one.
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
        if done.last and (self.loss_scale is None or self.loss_scale.unscale(gradient)):
            self.grad_norm.copy_(self.optimizer.step(gradient, rate))

    def passed(self) -> None:
        """Go on to the next pass: this one is learned."""
        done = self._passes.pop(0)
        self._pass += 1
        if done.last:
            self.step += 1
            self.loss_steps += 1

    def rate_of(self, step: int) -> float:
        """The learning rate of a step, from the validations so far."""
        history = [(self.config.steps_to(report.step), report.value) for report in self.reports]
        return learning_rate(self.config, step, history)

    def validate(self, number: int) -> Report:
        """Measure, remember, and decide whether this was the last time.

        Whoever trains the run has waited for the device: what that had to do still took no validation's time.
        """
        began = time.perf_counter()
        train_loss = self.loss_total.item() / self.loss_steps
        value = self.pack.evaluate(self)
        tokens = self.loss_steps * self.config.rows_per_step * self.config.max_length
        metrics = {
            "train_loss": train_loss,
            "overfitting_gap": value - train_loss,
            "perplexity": math.exp(min(value, 700.0)),
            "learning_rate": self.rate_of(self.step - 1),
            "grad_norm": self.grad_norm.item(),
            "tokens_per_second": tokens / self.train_seconds,
            **peak_memory(self.device),
        }
        self.seconds += self.train_seconds + time.perf_counter() - began
        self.train_seconds, self.loss_steps = 0.0, 0
        self.loss_total.zero_()
        report = Report(number, value, metrics)
        self.reported = number
        self.reports.append(report)
        self._decide(value)
        return report

    def _decide(self, value: float) -> None:
        patience = self.config.early_stopping_patience
        gained = value < self.best - self.config.early_stopping_min_delta
        self.stale = 0 if gained else self.stale + 1
        if value < self.best:
            self.best = value
            if self.config.keeps_best:
                self.best_weights = {name: tensor.clone() for name, tensor in self.weights().items()}
        if not math.isfinite(value):
            self.stopped = "diverged"
        elif self.step >= self.config.total_steps:
            self.stopped = "finished"
        elif patience and self.stale >= patience:
            self.stopped = "early"

    def weights(self) -> files.Tensors:
        """What is trained: the adapters of all layers, or the whole model."""
        return {name: tensor.detach() for name, tensor in self.trained.items()}

    @torch.no_grad()
    def load_weights(self, weights: files.Tensors) -> None:
        """Take over what `weights` gave."""
        for name, tensor in self.trained.items():
            tensor.copy_(weights[name])
        self.pack.set(self.pack.runs)  # whose copies are old now

    def result(self) -> FitResult:
        value = self.reports[-1].value
        if self.best_weights and math.isfinite(value):
            value = self.best
            self.load_weights(self.best_weights)
        samples = self.step * self.config.rows_per_step
        assert self.stopped is not None
        return FitResult(
            value, self.step, samples, self.seconds, self.stopped, tuple(self.reports), self.weights()
        )

    def save(self, folder: Path) -> None:
        """Everything that this run needs to go on as if it had not stopped. Called right after `validate`.

        The step is also the place in the data and in the schedule, and with the seed the state of every
        generator: batches and dropout are drawn from these two alone.
        """
        state = {
            "identity": self.identity,
            "shape": dataclasses.asdict(self.pack.model.shape),
            "step": self.step,
            "reported": self.reported,
            "reports": [dataclasses.asdict(report) for report in self.reports],
            "stopped": self.stopped,
            "best": self.best,
            "stale": self.stale,
            "seconds": self.seconds,
            "loss_scale": self.loss_scale and self.loss_scale.state(),
        }
        tensors = self.weights(), self.optimizer.tensors(), self.best_weights
        files.save_checkpoint(folder, *tensors, state, keep=self.config.save_total_limit)

    def resume(self, folder: Path) -> bool:
        """Go on from the checkpoint in `folder`; False where there is none.

        Raises `CheckpointError` where it belongs to another configuration, corpus or base.
        """
        found = files.resume_checkpoint(folder)
        if found is None:
            return False
        parts, state = found
        mine = self.identity
        if differing := [name for name in mine if state["identity"].get(name) != mine[name]]:
            theirs = state["identity"]
            told = "; ".join(f"{name}: {theirs.get(name)!r} there, {mine[name]!r} here" for name in differing)
            raise CheckpointError(
                f"{folder}: holds the checkpoint of another run ({told}); clear it (hpsearch train: --force)"
            )
        self.load_weights(parts["weights"])
        self.optimizer.restore(parts["optimizer"])
        if self.loss_scale:
            self.loss_scale.restore(state["loss_scale"])
        self.best_weights = {name: tensor.to(self.device) for name, tensor in parts["best"].items()}
        self.reports = [Report(**report) for report in state["reports"]]
        for name in ("step", "reported", "stopped", "best", "stale", "seconds"):
            setattr(self, name, state[name])
        return True

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """What makes this run this run: its configuration but for what is `OUTSIDE`, its text, its base."""
        values = dataclasses.asdict(self.config)
        listed = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {
            **{name: value for name, value in listed.items() if name not in OUTSIDE},
            "objective": self.config.objective,
            "corpus_sha256": self.corpus.sha256,
            "base_sha256": self.pack.origin,
        }
