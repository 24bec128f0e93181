"""The trial that an objective gets, in a worker of a search or outside a search."""

from __future__ import annotations

import json
import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ...objectives.base import TrialStopped, as_step, metric_name
from ...storage.files import CHECKPOINT, METRICS, has_checkpoint, make_folder, opened
from .judging import Judge
from .reports import Report, read_reports
from .snapshot import CheckpointSnapshot

# Attributes of Optuna's trials other than `suggest_...`.
OPTUNA_ONLY = {"should_prune", "set_user_attr", "user_attrs", "set_system_attr", "study", "distributions"}
READ_ONLY = {"number", "params", "seed", "checkpoint", "resume_from"}


class FolderTrial(ABC):
    """A trial with a folder. A subclass delivers its reports, and says what the answer is.

    A new attempt keeps the reports of the earlier one. A `sealed` trial resumes from its checkpoint as of the
    last report.
    """

    def __init__(self, *, number: int, params: dict[str, Any], seed: int, folder: Path, sealed: bool) -> None:
        self.number = number
        self.params = params
        self.seed = seed
        self.checkpoint = folder / CHECKPOINT
        self._seal = CheckpointSnapshot(folder) if sealed else None
        if self._seal is not None:
            self._seal.restore()
        self.resume_from = self.checkpoint if has_checkpoint(folder) else None
        make_folder(self.checkpoint)
        self.stopped = False
        self.trained = 0
        self._remarked: set[str] = set()  # kinds
        self._metrics_file = folder / METRICS
        recorded = read_reports(self._metrics_file, repair=True)
        self._recorded = max((report.step for report in recorded), default=-1)
        self.reported = max(0, self._recorded)
        finite = (report.value for report in reversed(recorded) if math.isfinite(report.value))
        self.last_value: float | None = next(finite, None)
        self._last_step: int | None = None
        self._lock = threading.Lock()  # an objective may report from a thread of its own

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse changes to what identifies the trial: its reports would belong to another configuration."""
        if name in READ_ONLY and name in self.__dict__:
            raise AttributeError(f"trial.{name} is read-only: it identifies the trial")
        super().__setattr__(name, value)

    if not TYPE_CHECKING:  # it would hide misspelt attributes from mypy

        def __getattr__(self, name: str) -> NoReturn:
            """Say what to do if an objective is written for Optuna's trial, or for a configuration."""
            advice = "parameters are in trial.params"
            if name.startswith("suggest_") or name in OPTUNA_ONLY:
                advice = "this objective is written for Optuna, and runs as it is when the space names it "
                advice += 'with that: objective: "optuna:FILE.py:FUNCTION"'
            raise AttributeError(f'a trial of hpsearch has no "{name}"; {advice}')

    def __getitem__(self, name: object) -> NoReturn:
        """Say what to do if an objective is written for a configuration."""
        raise TypeError(
            "a trial of hpsearch is not a configuration, as Ray Tune passes one: name a function written for "
            'that objective: "ray:FILE.py:FUNCTION", or read the value from '
            f"trial.params[{json.dumps(name, default=repr)}], and report with trial.report(value, step=...)"
        )

    @property
    def stuck(self) -> bool:
        """Whether it has resumed from a checkpoint and not reported since."""
        return self.resume_from is not None and self._last_step is None

    def report(self, value: float, step: int, **metrics: float) -> None:
        with self._lock:
            self._report(value, step, metrics)

    def _report(self, value: float, step: int, metrics: dict[str, float]) -> None:
        if self.stopped:
            raise TrialStopped
        step = as_step(step)
        if self._last_step is not None and step <= self._last_step:
            self.remark(
                "repeated", f"it reported step {step} after step {self._last_step}, which is left out"
            )
            return
        value = as_number(value, "report() was given")
        for name in metrics:
            metric_name(name)
        numbers = {name: as_number(metric, f"report() was given {name}=") for name, metric in metrics.items()}
        self._last_step = step
        report = Report(step, value, numbers)
        self._record(report)
        if self._seal is not None:
            self._seal.take()  # after the record: a kill in between repeats a step, but loses no report
        if self.deliver(report):
            self.stopped = True
            raise TrialStopped

    def catch_up(self, reported: int) -> None:
        """Deliver what an earlier attempt recorded after step `reported`, but could not deliver.

        Its checkpoint may be newer than the study's last report. Without a checkpoint the objective starts
        over and reports again. Raises `TrialStopped` if the trial ends with one of these reports.
        """
        if self.resume_from is None:
            return
        for report in read_reports(self._metrics_file, repair=True):
            if report.step > reported and self.deliver(report):
                self.stopped = True
                raise TrialStopped

    def _record(self, report: Report) -> None:
        if report.step <= self._recorded:
            return
        record = {"step": report.step, "value": report.value, **report.metrics}
        descriptor = opened(self._metrics_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        with open(descriptor, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(record) + "\n")

    def remark(self, kind: str, text: str) -> None:
        """Tell the user something about this trial, each kind once: every report may cause it."""
        if kind not in self._remarked:
            self._remarked.add(kind)
            self._remark(kind, text)

    @abstractmethod
    def _remark(self, kind: str, text: str) -> None:
        """Pass a remark on."""

    @abstractmethod
    def set_attribute(self, name: str, value: Any) -> None:
        """Store something about this trial."""

    @abstractmethod
    def deliver(self, report: Report) -> bool:
        """Deliver a report that is recorded. Returns whether the trial ends with it."""


class LocalTrial(FolderTrial):
    """A trial outside a search. Only divergence ends it."""

    def __init__(
        self,
        *,
        params: dict[str, Any],
        seed: int,
        folder: Path,
        sealed: bool,
        on_report: Callable[[Report], None],
        say: Callable[[str], None],
        judge: Judge = Judge(),  # noqa: B008 - it is frozen
    ) -> None:
        super().__init__(number=0, params=params, seed=seed, folder=folder, sealed=sealed)
        self.last: Report | None = None
        # The last step of an earlier attempt with a checkpoint.
        self.resumed_at = self.reported if self.resume_from is not None else None
        self._judge = judge
        self._on_report = on_report
        self._say = say

    def _remark(self, kind: str, text: str) -> None:
        self._say(text)

    def set_attribute(self, name: str, value: Any) -> None:
        """There is no study to store it in."""

    def deliver(self, report: Report) -> bool:
        self.last = report
        self._on_report(report)
        return self._judge.ends(report.value)


def as_number(value: Any, what: str) -> float:
    """A float from a number, a numpy scalar or a tensor of one element; `TypeError` for anything else."""
    if value is None or isinstance(value, (str, bytes, bool)):
        raise TypeError(f"{what} {value!r}; it must be a number")
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{what} {value!r}; it must be a number") from error
