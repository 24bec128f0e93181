"""The objective contract: what a function that trains one trial receives and returns.

An objective is any callable `objective(trial) -> float`. It reads `trial.params`, reports its progress with
`trial.report(value, step=...)`, and returns the final value of the study's metric. It needs no import of
Optuna or Ray, and runs unchanged on every backend.
"""

from __future__ import annotations

import json
import operator
import os
from pathlib import Path
from typing import Any, Protocol

MAX_STEP = 2**63 - 1
MAX_NAME_LETTERS = 500  # letters of a metric's name; databases allow 512, and a prefix of five may be added
REPORT_MARK = "hpsearch"  # the key that marks a printed line as one of `report`


class ObjectiveError(Exception):
    """An objective cannot be found, loaded or called; the message says what to change."""

    code = "objective"


class ScriptError(ObjectiveError):
    """A script has failed; `detail` quotes what it printed about it."""

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(f"{message}; {detail}" if detail else message)
        self.message = message
        self.detail = detail


class NothingReported(ScriptError):
    """A script has ended without an error, but has not reported a value."""


class SpaceMismatch(ObjectiveError):
    """A space and its objective do not fit together, which ends the search: other trials would fail alike."""


class TrialEnded(Exception):
    """Raised by an objective that ends its own trial early, as with Optuna's `TrialPruned`."""


class TrialStopped(BaseException):
    """Raised by `report` when the search has ended this trial.

    It is not an `Exception`, so that an objective's own `except Exception` does not catch it. Let it pass;
    `finally` and `with` blocks run as usual.
    """


class Trial(Protocol):
    """One configuration to train.

    | attribute | what it is |
    |---|---|
    | `number` | the trial's number in its study, from 0 |
    | `params` | the configuration: searched, constant and derived values by name |
    | `seed` | an integer for this trial, the same when it runs again |
    | `checkpoint` | a folder for this trial; what is in it at a report survives the process |
    | `resume_from` | the same folder, as it was at the last report of an earlier attempt; None without one |
    | `reported` | the last step that earlier attempts have reported; 0 without one |
    | `last_value` | the last finite value of earlier attempts on this machine; None without one |
    | `trained` | the step that the training has reached, set if reports are late; used to count the cost |

    If that report was the last one, the resumed attempt only has to return its value.
    """

    trained: int

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

    @property
    def reported(self) -> int: ...

    @property
    def last_value(self) -> float | None: ...

    def report(self, value: float, step: int, **metrics: float) -> None:
        """Record `value` of the study's metric at `step` (a whole number in the study's resource unit).

        If a trial has several processes, all report, and the value of rank 0 counts. Steps must increase; a
        report whose step does not, such as one of a final evaluation, is ignored. Step 0 is before any
        training. `metrics` are further numbers to store with the value. Raises `TrialStopped` if the search
        ends this trial here; the report itself is recorded. Raises `TypeError` if the value is not a number
        or the step not whole, `ValueError` if a metric has a name that databases cannot store.
        """
        ...

    def remark(self, kind: str, text: str) -> None:
        """Show the user a message about this trial: only the first of each kind in a search."""
        ...

    def set_attribute(self, name: str, value: Any) -> None:
        """Store something about this trial in its study, as plain JSON, with the next report or the end."""
        ...


def as_step(step: Any) -> int:
    """The step as an int; 1.0 is accepted too.

    Raises `TypeError` if it is not a whole number, `ValueError` if it is negative or too large for a
    database.
    """
    whole = int(step) if isinstance(step, float) and step.is_integer() else step
    try:
        whole = operator.index(whole)
    except TypeError:
        raise TypeError(f"the step is {step!r}; it must be a whole number") from None
    if not 0 <= whole <= MAX_STEP or isinstance(step, bool):
        raise ValueError(f"the step is {step!r}; steps are whole numbers from 0 to 2^63 - 1")
    return whole


def metric_name(name: str) -> str:
    """The name of a metric. Raises `ValueError` if databases cannot store it."""
    if not 0 < len(name) <= MAX_NAME_LETTERS:
        letters = f"{len(name)} letters, beginning with {name[:40]!r}" if name else "no letters"
        raise ValueError(f"the name of a metric has {letters}; allowed: 1 to {MAX_NAME_LETTERS}")
    if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in name):
        raise ValueError(f"the name {name!r:.60} of a metric holds NUL or half a character")
    return name


class Objective(Protocol):
    """Trains one trial and returns the final value of the study's metric."""

    def __call__(self, trial: Trial, /) -> float: ...


def report(value: float, *, step: int, **metrics: float) -> None:
    """Report a script's progress to the search: prints a line of JSON on standard output.

    For scripts that run as `objective: {command: [...]}`. `value` is the study's metric. Of the processes
    that torchrun starts, only rank 0 prints. When the trial is over, the search ends the script with SIGTERM,
    then SIGKILL.
    """
    numbers = {metric_name(name): float(metric) for name, metric in metrics.items()}
    line = json.dumps({REPORT_MARK: "report", "step": as_step(step), "value": float(value), **numbers})
    if os.environ.get("RANK", "0") == "0":
        print(f"\n{line}", flush=True)  # the line break separates it from what was printed before
