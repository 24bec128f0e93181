"""A callback for the Trainer of Lightning, of the package `lightning` or `pytorch_lightning`."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from ..base import Trial
from .reporter import Reporter


def _library() -> Any:
    """The package that the program uses, or that is installed: both have a Trainer of the same kind."""
    of_lightning = "lightning.pytorch" in sys.modules or "pytorch_lightning" not in sys.modules
    if of_lightning and find_spec("lightning"):
        import lightning.pytorch as library
    else:
        import pytorch_lightning as library
    return library


class LightningCallback(_library().Callback):  # type: ignore[misc]  # without its types
    """Reports each value of `monitor` that a LightningModule logs; ends the training where the search does.

    `monitor` is a name given to `self.log`, as for `EarlyStopping`. A report's step is the number of epochs,
    or of optimizer steps (`global_step`) with `unit="steps"`. The other numbers that are logged go along.

    In a command, Lightning itself ends the training between two steps at SIGTERM. The training resumes with
    `fit(ckpt_path=...)`, from what `ModelCheckpoint` saved.
    """

    def __init__(
        self, trial: Trial | None = None, *, monitor: str = "val_loss", unit: str = "epochs"
    ) -> None:
        super().__init__()
        self._reporter = Reporter(trial, unit)
        self._monitor = monitor
        self._seen: Any = None  # the last value looked at
        self._validated = False

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._seen = trainer.callback_metrics.get(self._monitor)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking and trainer.state.fn == "fit":
            self._validated = True
            self._note(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._note(trainer)

    def on_train_batch_start(self, trainer: Any, *_: Any, **__: Any) -> None:
        if self._reporter.unit == "steps":
            self._report(trainer)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._report(trainer)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self._report(trainer)  # here the last checkpoint is saved

    def _note(self, trainer: Any) -> None:
        """Note the value if it is new; a Trainer keeps old ones, such as that of an earlier validation."""
        if not self._reporter.active:
            return
        value = trainer.callback_metrics.get(self._monitor)
        numbers = self._reporter.see(trainer.callback_metrics)
        if value is None or value is self._seen:
            return
        self._seen = value
        step = trainer.global_step if self._reporter.unit == "steps" else trainer.current_epoch + 1
        self._reporter.note(self._monitor, numbers[self._monitor], step)

    def _report(self, trainer: Any) -> None:
        if self._validated and self._reporter.active and not self._reporter.has_noted:
            self._reporter.see(trainer.callback_metrics)
            raise ValueError(self._reporter.missing(self._monitor, "LightningCallback"))
        self._reporter.flush(leads=trainer.is_global_zero)
