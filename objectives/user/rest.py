"""What a script has reported after the last report of its trial.

A fast script may end before it can be told to pause. Its trial is then not trained again when it is promoted:
the rest of its reports is kept in the trial's folder. So is the first report of an attempt while it waits,
and what a script had reported when its search was killed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...trainer.anew import write_anew
from ..base import Trial
from ..reports import PrintedReport

REST = "rest.json"  # in the trial's folder
Numbered = tuple[int, PrintedReport]  # a report with its step


@dataclass(frozen=True)
class Rest:
    """The reports of an attempt after the one at which it was stopped."""

    value: float  # of its last report
    ended: bool  # whether the script had ended by itself, without an error
    reports: Sequence[Numbered]

    @classmethod
    def of(cls, trial: Trial) -> Rest | None:
        """What an earlier attempt has left to a trial that resumes from its checkpoint."""
        if trial.resume_from is not None:
            with suppress(OSError, ValueError, TypeError, KeyError):
                known: dict[str, Any] = json.loads(_path(trial).read_text(encoding="utf-8"))
                reports = [
                    (step, PrintedReport(value, None, metrics))
                    for step, value, metrics in known["reports"]
                    if step > trial.reported  # the others were delivered just before a kill
                ]
                return cls(float(known["value"]), bool(known["ended"]), reports)
        cls.forget(trial)
        return None

    @staticmethod
    def forget(trial: Trial) -> None:
        """Nothing is left any more: the script has reported again."""
        _path(trial).unlink(missing_ok=True)

    def keep(self, trial: Trial) -> None:
        """Leave it to the next attempt."""
        reports = [(step, report.value, report.metrics) for step, report in self.reports]
        write_anew(_path(trial), json.dumps(asdict(self) | {"reports": reports}))

    def deliver(self, trial: Trial) -> float:
        """Report what is left. Returns the last value."""
        for step, report in self.reports:
            trial.report(report.value, step=step, **report.metrics)
        return self.value


def _path(trial: Trial) -> Path:
    return trial.checkpoint.parent / REST
