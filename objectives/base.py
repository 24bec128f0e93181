"""The objective contract: what every function that trains one trial receives and gives back.

An objective is any callable `objective(trial) -> float`. It reads `trial.params`, tells its progress with
`trial.report(value, step=...)`, and returns the final value of the study's metric. It needs no import of
Optuna or Ray, and runs unchanged on every backend.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol


class ObjectiveError(Exception):
    """An objective cannot be found, loaded or called; the message says what to change."""


class TrialStopped(BaseException):
    """Raised by `report` when the search has ended this trial.

    It is no `Exception`, so that an objective's own `except Exception` does not swallow it.
    Let it pass; `finally` and `with` blocks run as usual.
    """


class Trial(Protocol):
    """One configuration to train.

    | attribute | what it is |
    |---|---|
    | `number` | the trial's number in its study, from 0 |
    | `params` | the configuration: searched, constant and derived values by name |
    | `seed` | an integer of this trial's own, the same when it is run again |
    | `checkpoint` | a folder of this trial's own; what is in it at a report survives the process |
    | `resume_from` | the same folder, as it was at the last report of an earlier attempt; None without one |

    That report may have been the last one: an attempt that goes on from there has only its value to return.
    """

    @property
    def number(self) -> int: ...

    @property
    def params(self) -> dict[str, Any]: ...

    @property
    def seed(self) -> int: ...

    @property
    def checkpoint(self) -> Path: ...

    @property
    def resume_from(self) -> Path | None: ...

    def report(self, value: float, *, step: int, **metrics: float) -> None:
        """Record `value` of the study's metric at `step` (a positive integer in the study's resource unit).

        Of several processes of a trial all report, and the value of rank 0 counts.
        Steps rise from report to report. `metrics` are further numbers to keep beside the value.
        Raises `TrialStopped` when the search ends this trial here; the report itself is recorded.
        Raises `ValueError` where the value is no number or the step does not rise.
        """
        ...


class Objective(Protocol):
    """Trains one trial and returns the final value of the study's metric."""

    def __call__(self, trial: Trial, /) -> float: ...


def report(value: float, *, step: int, **metrics: float) -> None:
    """Tell the search how a script is doing: a line of JSON on its standard output.

    For scripts that run as `objective: {command: [...]}`. `value` is the study's metric. The search ends the
    script with SIGTERM, then SIGKILL, when its trial is over.
    """
    line = json.dumps({"step": step, "value": float(value), **{k: float(v) for k, v in metrics.items()}})
    print(f"\n{line}", flush=True)  # on a line of its own, whatever was printed before
