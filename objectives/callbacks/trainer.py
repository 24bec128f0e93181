"""A callback for the Trainer of transformers, and those built on it (TRL, Axolotl, LLaMA-Factory)."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback as _Callback

from ..base import Trial
from .reporter import Reporter, epochs_begun


class TrainerCallback(_Callback):  # type: ignore[misc]  # without its types
    """Reports each value of `metric` that a Trainer logs; ends the training where the search does.

    `metric` is a name that the Trainer logs, such as "eval_loss", "eval_accuracy" or "loss"; without one it
    is the Trainer's `metric_for_best_model`, else "eval_loss". A report's step is the number of optimizer
    steps, or of epochs with `unit="epochs"`. The other numbers that the Trainer logs go along.

    The training resumes with `train(resume_from_checkpoint=...)`, from what the Trainer saved.
    """

    def __init__(self, trial: Trial | None = None, *, metric: str | None = None, unit: str = "steps") -> None:
        self._reporter = Reporter(trial, unit)
        self._metric = metric
        self._evaluated = False
        self._trains = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._trains = True
        self._reporter.begin()

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        if not self._reporter.active:
            return
        numbers = self._reporter.see(logs or {})
        metric = self._metric_of(args)
        if metric in numbers:
            in_epochs = self._reporter.unit == "epochs"
            step = epochs_begun(state.epoch) if in_epochs else state.global_step
            self._reporter.note(metric, numbers[metric], step)
            if not self._trains:  # an evaluation after the training
                self._report(state)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._evaluated = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._reporter.unit == "steps":
            self._report(state)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._reporter.check()
        if self._reporter.unit == "steps":  # where nothing is saved
            self._report(state)
        if self._evaluated and self._reporter.active and not self._reporter.has_noted:
            raise ValueError(self._reporter.missing(self._metric_of(args), "TrainerCallback"))

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._reporter.check()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._report(state)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._report(state)
        self._trains = False
        self._reporter.end()

    def _report(self, state: Any) -> None:
        self._reporter.flush(leads=state.is_world_process_zero)

    def _metric_of(self, args: Any) -> str:
        """The metric by the name under which the Trainer logs it."""
        if self._metric is not None:
            return self._metric
        best: str = args.metric_for_best_model or "loss"
        return best if best.startswith("eval_") else f"eval_{best}"
