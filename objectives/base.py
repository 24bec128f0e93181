"""The objective contract: what every function that trains one trial receives and gives back.

An objective is any callable `objective(trial) -> float`. It reads `trial.params`, tells its progress with
`trial.report(value, step=...)`, and returns the final value of the study's metric. It needs no import of
Optuna or Ray, and runs unchanged on every backend.
"""

from __future__ import annotations

import json
import operator
from pathlib import Path
from typing import Any, Protocol

LARGEST_STEP = 2**63 - 1
LONGEST_NAME = 500  # letters of a metric's name; databases take 512, and one may get five before it
MARK = "hpsearch"  # the key by which a printed line is known for one of `report`


class ObjectiveError(Exception):
    """An objective cannot be found, loaded or called; the message says what to change."""

    code = "objective"


class ScriptError(ObjectiveError):
    """A script has failed; `detail` is what it printed of that."""

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(f"{message}; {detail}" if detail else message)
        self.message = message
        self.detail = detail


class NothingReported(ScriptError):
    """A script has ended well and has told no value."""


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
    | `trained` | the step that the training has come to, for who reports late; what it spent goes by that |

    That report may have been the last one: an attempt that goes on from there has only its value to return.
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

    def report(self, value: float, step: int, **metrics: float) -> None:
        """Record `value` of the study's metric at `step` (a whole number in the study's resource unit).

        Of several processes of a trial all report, and the value of rank 0 counts.
        Steps rise from report to report; one that does not, as of a last evaluation, is left out. Step 0 is
        what there is before any training. `metrics` are further numbers to keep beside the value.
        Raises `TrialStopped` when the search ends this trial here; the report itself is recorded.
        Raises `TypeError` where the value is no number or the step not whole, `ValueError` where a metric has
        a name that no database holds.
        """
        ...

    def remark(self, kind: str, text: str) -> None:
        """Tell whoever watches the search something about this trial: of each kind once in a search."""
        ...


def as_step(step: Any) -> int:
    """A whole number, such as 1.0 is too.

    `TypeError` for anything else, `ValueError` below 0 and beyond what a database's integers hold.
    """
    whole = int(step) if isinstance(step, float) and step.is_integer() else step
    try:
        whole = operator.index(whole)
    except TypeError:
        raise TypeError(f"the step is {step!r}; it must be a whole number") from None
    if not 0 <= whole <= LARGEST_STEP or isinstance(step, bool):
        raise ValueError(f"the step is {step!r}; steps are whole numbers from 0 to 2^63 - 1")
    return whole


def as_name(name: str) -> str:
    """The name of a metric; raises `ValueError` where no database holds it."""
    if not 0 < len(name) <= LONGEST_NAME:
        told = f"{len(name)} letters, beginning with {name[:40]!r}" if name else "none"
        raise ValueError(f"the name of a metric has {told}; names have 1 to {LONGEST_NAME}")
    if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in name):
        raise ValueError(f"the name {name!r:.60} of a metric holds NUL or half a character")
    return name


class Objective(Protocol):
    """Trains one trial and returns the final value of the study's metric."""

    def __call__(self, trial: Trial, /) -> float: ...


def report(value: float, *, step: int, **metrics: float) -> None:
    """Tell the search how a script is doing: a line of JSON on its standard output.

    For scripts that run as `objective: {command: [...]}`. `value` is the study's metric. The search ends the
    script with SIGTERM, then SIGKILL, when its trial is over.
    """
    numbers = {as_name(name): float(metric) for name, metric in metrics.items()}
    line = json.dumps({MARK: "report", "step": as_step(step), "value": float(value), **numbers})
    print(f"\n{line}", flush=True)  # on a line of its own, whatever was printed before
