"""The life of a run, whatever model it trains: its reports, its end, and how it resumes from a checkpoint.

    while True:  validate, checkpoint and report if due -> stop if last -> train -> step

| promise | kept by |
|---|---|
| a resumed run has the same curve as an uninterrupted one | every report saves all state that changes |
| a damaged checkpoint costs only time | the one before it is kept, to resume from |

A run does not know the receiver of its reports: what `on_report` raises passes through.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import checkpoint as files
from ..config.training import TrainingConfig
from ..errors import CheckpointError
from ..memory import peak_memory
from ..optim.numerics import LossScale
from ..optim.optimizers import Stepper
from ..optim.schedule import learning_rate, report_due
from ..ranks import ALONE, UNSHARDED, Ranks, Sharding


@dataclass(frozen=True)
class RunReport:
    """One validation: `value` is the loss in nats per token, `step` the place in the run's unit.

    `metrics`: train_loss (mean since the last report of the minimized loss, with `label_smoothing_factor` the
    smoothed one), overfitting_gap (value - train_loss), metrics of the run (perplexity, accuracy),
    learning_rate and grad_norm (of the last step), tokens_per_second (of training only, without compiling),
    host_memory_mb (this process's peak), on CUDA device_memory_mb (this process's peak there since its last
    start of a run: for a pack that of all its runs).
    """

    step: int
    value: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class FitResult:
    """The result of a run.

    `value` is the last validation loss; with early stopping the best, whose weights are kept. `stopped` says
    why it ended: `finished`, `early` or `diverged` (a loss that is not finite, reported as it is). `seconds`
    (training and validation, without compiling) and `reports` include earlier attempts.
    """

    value: float
    steps: int
    samples: int
    seconds: float
    stopped: str
    reports: tuple[RunReport, ...]
    weights: files.Tensors


Steps = Generator[None, None, FitResult]


def train_to_end(run: BaseRun, steps: Steps) -> FitResult:
    """Make the steps of a run that `drive` asks for, until its end. The run cannot train after this."""
    with closing(run.sharding):
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: FitResult = end.value
                return result
            run.train()


def drive(
    run: BaseRun,
    *,
    on_report: Callable[[RunReport], None],
    checkpoint: Path | None = None,
    resume_from: Path | None = None,
) -> Steps:
    """Everything in a run except its steps: yields whenever the caller should train one step.

    `on_report` is called whenever a report is due, after its checkpoint is written. If `resume_from` holds a
    checkpoint, the run resumes from it, and repeats the report of that checkpoint: a run may have been killed
    between saving and reporting. Earlier reports are not repeated. If the checkpoint is damaged, it is
    removed with a notice on stderr, and the one before it is used. Raises `CheckpointError` before anything
    is trained.
    """
    if resume_from is not None and run.resume(resume_from):
        on_report(run.reports[-1])
    while True:
        due = run.next_report_step
        if due is not None:
            report = run.validate(due)
            if checkpoint is not None:
                run.save(checkpoint)
            on_report(report)
        if run.stopped is not None:
            return run.result()
        yield


class BaseRun(ABC):
    """The state of one training that changes from step to step.

    A subclass makes the steps and evaluates. It updates `loss_total` (on the device, since the last report),
    `loss_steps`, `loss_tokens` and the gradient norm of the last step. If several processes share a run, each
    has such an object, and counts its part of `loss_total`.
    """

    config: TrainingConfig

    def __init__(
        self,
        config: TrainingConfig,
        device: torch.device,
        trained: files.Tensors,
        optimizer: Stepper,
        loss_scale: LossScale | None,
        ranks: Ranks = ALONE,
        sharding: Sharding = UNSHARDED,
    ) -> None:
        """`trained` are the tensors that the run changes and checkpoints; `ranks` its processes."""
        self.config = config
        self.ranks = ranks
        self.sharding = sharding
        self.device = device
        self.trained = trained
        self.optimizer = optimizer
        self.loss_scale = loss_scale
        self.step = 0  # optimizer steps done
        self.reported = 0  # the place of the last report, in the run's unit
        self.reports: list[RunReport] = []
        self.stopped: str | None = None
        self.best = math.inf
        self.best_weights: files.Tensors = {}
        self.stale = 0  # validations since the best one
        self.train_seconds = self.seconds = 0.0
        self.loss_total = torch.zeros((), device=device)
        self.loss_steps = self.loss_tokens = 0
        self.grad_norm = torch.zeros((), device=device)

    @abstractmethod
    def train(self) -> None:
        """Make one optimizer step."""

    @abstractmethod
    def evaluate(self) -> tuple[float, dict[str, float]]:
        """The validation loss, and further metrics."""

    @property
    @abstractmethod
    def origin(self) -> dict[str, Any]:
        """What identifies this run besides its configuration: the hashes of its text and its base."""

    @property
    def next_report_step(self) -> int | None:
        """The place of the report that is due before the next step, in the run's unit; or None."""
        due = report_due(self.config, self.step)
        return due if due is not None and due > self.reported else None

    def rate_of(self, step: int) -> float:
        """The learning rate of a step, given the validations so far."""
        history = [(self.config.steps_to(report.step), report.value) for report in self.reports]
        return learning_rate(self.config, step, history)

    def validate(self, number: int) -> RunReport:
        """Evaluate, record the report, and decide whether the run ends here.

        The caller has waited for the device, so that pending work does not count as validation time.
        """
        began = time.perf_counter()
        self.ranks.sum([self.loss_total])
        train_loss = self.loss_total.item() / self.loss_steps
        value, more_metrics = self.evaluate()
        metrics = {
            "train_loss": train_loss,
            "overfitting_gap": value - train_loss,
            **more_metrics,
            "learning_rate": self.rate_of(self.step - 1),
            "grad_norm": self.grad_norm.item(),
            "tokens_per_second": self.loss_tokens / self.train_seconds,
            **peak_memory(self.device),
        }
        self.seconds += self.train_seconds + time.perf_counter() - began
        self.train_seconds, self.loss_steps, self.loss_tokens = 0.0, 0, 0
        self.loss_total.zero_()
        report = RunReport(number, value, metrics)
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
        """The trained tensors: the adapters of all layers, or the whole model."""
        return {name: tensor.detach() for name, tensor in self.trained.items()}

    @torch.no_grad()
    def load_weights(self, weights: files.Tensors) -> None:
        """Load tensors as `weights` returns them."""
        for name, tensor in self.trained.items():
            tensor.copy_(weights[name])

    def result(self) -> FitResult:
        value = self.reports[-1].value
        if self.best_weights and math.isfinite(value):
            value = self.best
            self.load_weights(self.best_weights)
        samples = self.step * self.config.rows_per_step
        weights, reports = self.sharding.gather(self.weights()), tuple(self.reports)
        assert self.stopped is not None
        return FitResult(value, self.step, samples, self.seconds, self.stopped, reports, weights)

    def save(self, folder: Path) -> None:
        """Save everything needed to resume as if the run had not stopped. Called right after `validate`.

        The step is also the position in the data and in the schedule. With the seed it determines the state
        of every generator: batches and dropout are drawn from these two alone.
        """
        held = self.weights(), self.optimizer.tensors(), self.best_weights
        weights, optimizer, best = map(self.sharding.gather, held)
        if self.ranks.first:
            keep = self.config.save_total_limit
            files.save_checkpoint(folder, weights, optimizer, best, self.state(), keep=keep)

    def state(self) -> dict[str, Any]:
        """The part of a checkpoint that is not tensors."""
        return {
            "identity": self.identity,
            "step": self.step,
            "reported": self.reported,
            "reports": [dataclasses.asdict(report) for report in self.reports],
            "stopped": self.stopped,
            "best": self.best,
            "stale": self.stale,
            "seconds": self.seconds,
            "loss_scale": self.loss_scale and self.loss_scale.state(),
        }

    def resume(self, folder: Path) -> bool:
        """Resume from the checkpoint in `folder`; False if there is none.

        Raises `CheckpointError` if it belongs to another configuration, corpus or base.
        """
        with self.ranks.after_the_first():  # the first process removes damaged files
            loaded = files.resume_checkpoint(folder)
        if loaded is None:
            return False
        parts, state = loaded
        check_state(folder, state)
        mine, saved = self.identity, state["identity"]
        pairs = {name: (saved.get(name), mine[name]) for name in mine if saved.get(name) != mine[name]}
        if pairs:
            listed = "; ".join(f"{name}: {a!r:.200} there, {b!r} here" for name, (a, b) in pairs.items())
            raise CheckpointError(
                f"{folder}: holds the checkpoint of another run ({listed}); "
                "start over, or choose another folder"
            )
        parts = {part: self.sharding.shard(tensors) for part, tensors in parts.items()}
        check_alike(folder, parts["weights"], self.trained)
        state_now = self.optimizer.tensors()
        if state_now or self.ranks.first:  # DeepSpeed's is whole in the first process, nothing in the others
            check_alike(folder, parts["optimizer"], state_now)
        check_alike(folder, parts["best"], self.trained if parts["best"] else {})
        self.load_weights(parts["weights"])
        self.optimizer.restore(parts["optimizer"])
        if self.loss_scale:
            self.loss_scale.restore(state["loss_scale"])
        self.best_weights = {name: tensor.to(self.device) for name, tensor in parts["best"].items()}
        self.reports = [RunReport(**report) for report in state["reports"]]
        for name in ("step", "reported", "stopped", "best", "stale", "seconds"):
            setattr(self, name, state[name])
        return True

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """What identifies this run: its configuration without the `not_identifying`, its text, its base."""
        values = dataclasses.asdict(self.config)
        listed = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {
            **{name: value for name, value in listed.items() if name not in self.config.not_identifying},
            "objective": self.config.objective,
            **self.origin,
        }


_STATE: dict[str, tuple[type, ...]] = {  # the entries of `BaseRun.state` and their types
    "identity": (dict,),
    "step": (int,),
    "reported": (int,),
    "reports": (list,),
    "stopped": (str, type(None)),
    "best": (int, float),
    "stale": (int,),
    "seconds": (int, float),
    "loss_scale": (dict, type(None)),
}


def check_state(path: Path, state: Mapping[str, Any]) -> None:
    """Raise `CheckpointError` if the state of a checkpoint is not that of a run."""
    wrong = [name for name, kinds in _STATE.items() if not isinstance(state.get(name, ...), kinds)]
    if not wrong and not (state["reports"] and all(map(_is_report, state["reports"]))):
        wrong = ["reports"]
    if wrong:
        raise CheckpointError(
            f"{path}: not the checkpoint of a run: {', '.join(wrong)} missing or of the wrong type"
        )


def _is_report(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == {"step", "value", "metrics"}
        and isinstance(value["step"], int)
        and isinstance(value["value"], int | float)
        and isinstance(value["metrics"], dict)
    )


def check_alike(path: Path, found: Mapping[str, Tensor], needed: Mapping[str, Tensor]) -> None:
    """Raise `CheckpointError` unless the tensors of a file have the names and shapes that are needed."""
    for name in sorted(found.keys() | needed.keys()):
        there, here = (tensors[name].shape if name in tensors else None for tensors in (found, needed))
        if there != here:
            shapes = " where ".join(
                f"{name:.100} is {'none' if shape is None else list(shape)}{what}"
                for shape, what in ((there, ""), (here, " in its configuration"))
            )
            raise CheckpointError(f"{path}: not the tensors of its configuration: {shapes}")


def perplexity(loss: float) -> float:
    """The perplexity of a loss in nats, limited to what a float holds."""
    return math.exp(min(loss, 700.0))
