"""A callback for `Model.fit` of Keras, on each of its backends."""

from __future__ import annotations

from typing import Any

import keras

from ..base import Trial
from .reporter import Reporter


class KerasCallback(keras.callbacks.Callback):  # type: ignore[misc]  # without its types
    """Reports `monitor` after each epoch that has it; ends the training where the search does.

    `monitor` is a name in Keras's logs, as for `EarlyStopping`. A report's step is the number of epochs. The
    other numbers in the logs go along. It may stand anywhere among the callbacks: an epoch is reported once
    the others have saved it.

    The training resumes from what `BackupAndRestore` saved, or with `fit(initial_epoch=...)`.
    """

    def __init__(self, trial: Trial | None = None, *, monitor: str = "val_loss") -> None:
        super().__init__()
        self._reporter = Reporter(trial, "epochs")
        self._monitor = monitor

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._reporter.begin()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._reporter.flush()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._reporter.check()

    def on_test_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._reporter.check()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._reporter.active:
            numbers = self._reporter.see(logs or {})
            if self._monitor in numbers:
                self._reporter.note(self._monitor, numbers[self._monitor], epoch + 1)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._reporter.active and not self._reporter.has_noted:
            raise ValueError(self._reporter.missing(self._monitor, "KerasCallback"))
        self._reporter.flush()
        self._reporter.end()
