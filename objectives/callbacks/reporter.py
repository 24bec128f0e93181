"""What the callbacks share: when a value is reported, to whom, and how a training ends."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

from ..base import Trial, report
from ..reports import RESERVED_NAMES

UNITS = ("steps", "epochs")  # what a report's step counts


class Reporter:
    """Reports the values of one training, each only once its checkpoint is saved.

    A value is first noted, and reported as soon as all that saves checkpoints has saved. In a function the
    report goes to the `trial`, and raises `TrialStopped` where the search ends it. In a command it is
    printed, and SIGTERM ends the training after the running step. Outside a search nothing happens.
    """

    def __init__(self, trial: Trial | None, unit: str = "steps") -> None:
        if trial is not None and not hasattr(trial, "report"):
            raise TypeError(
                f"the first argument of a callback is the trial of a function, not {trial!r}; "
                "in a command leave it out, and write the metric with its name"
            )
        if unit not in UNITS:
            raise ValueError(f"unit is {unit!r}; allowed: {', '.join(UNITS)}")
        self.unit = unit
        self._trial = trial
        self._metric = ""
        self._noted: tuple[int, float] | None = None  # step and value
        self._numbers: dict[str, float] = {}  # with the value
        self._names: dict[str, None] = {}  # of all that was logged
        self._last = -1  # step
        self._former: Any = None  # what handled SIGTERM before the training
        self._terminated = False

    @property
    def active(self) -> bool:
        """Whether there is a search to report to."""
        return self._trial is not None or "HPSEARCH_TRIAL" in os.environ

    @property
    def has_noted(self) -> bool:
        """Whether there has been a value, reported or not."""
        return self._last >= 0 or self._noted is not None

    def see(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Keep the numbers among `metrics` for the next report. Returns them."""
        numbers = {name: number for name, each in metrics.items() if (number := _number(each)) is not None}
        self._names |= dict.fromkeys(numbers)
        self._numbers |= numbers
        return numbers

    def note(self, metric: str, value: float, step: int) -> None:
        """Note a value, in place of an earlier one that is not yet reported."""
        if step > self._last:
            self._metric = metric
            self._noted = step, value

    def flush(self, *, leads: bool = True) -> None:
        """Report what is noted; of the processes of a command only the one that `leads`."""
        if self._noted is None:
            return
        (step, value), self._noted = self._noted, None
        self._last = step
        hidden = {self._metric, *RESERVED_NAMES}
        metrics = {name: number for name, number in self._numbers.items() if name and name not in hidden}
        self._numbers.clear()
        if self._trial is not None:
            self._trial.report(value, step, **metrics)
        elif leads and self.active:
            report(value, step=step, **metrics)

    def missing(self, metric: str, by: str) -> str:
        """What is wrong if a training never logs the metric."""
        from ...trainer.config.rules import did_you_mean

        logged = ", ".join(f'"{name}"' for name in self._names) or "nothing"
        meant = did_you_mean(metric, [*self._names])
        return f'{by}: the training does not log "{metric}"{meant}; it logs {logged}'

    def begin(self) -> None:
        """Let SIGTERM end a command between two steps, unless the program handles it itself."""
        alone = threading.current_thread() is not threading.main_thread()
        if self._trial is not None or not self.active or alone:
            return
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._former = signal.signal(signal.SIGTERM, self._terminate)

    def check(self) -> None:
        """End the process, as SIGTERM would, if it came; `finally` and `with` blocks run."""
        if self._terminated:
            sys.exit(128 + signal.SIGTERM)

    def end(self) -> None:
        """Leave SIGTERM to the program again."""
        self.check()
        if self._former is not None:
            signal.signal(signal.SIGTERM, self._former)
            self._former = None

    def _terminate(self, *_: object) -> None:
        self._terminated = True


def epochs_begun(epoch: float | None) -> int:
    """The number of the epoch that `epoch`, a fraction of the training, belongs to: 1 at its end."""
    return math.ceil((epoch or 0.0) - 1e-6)


def _number(value: Any) -> float | None:
    """A number, or a tensor or array of one; None for anything else."""
    if isinstance(value, str | bytes | bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None
