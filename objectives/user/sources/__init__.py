"""Where the reports of a command come from: `report:` in a space."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from typing import Any

from ...base import Trial
from ..macros import as_text
from ..shell import MACRO
from .base import Arrived, Source
from .columns import Columns
from .files import FileSource
from .output import AutoSource
from .pattern import PatternSource
from .trackers import TrackioSource, mlflow_source, tensorboard_source, wandb_source

__all__ = ["Arrived", "Source", "lines_before", "source_of"]

OUTPUT_FILE = "output.log"  # in the trial's folder, if a search runs it


def lines_before(trial: Trial) -> int:
    """The number of the line in a trial's output that comes next."""
    try:
        with open(trial.checkpoint.parent / OUTPUT_FILE, "rb") as stream:
            return 1 + sum(piece.count(b"\n") for piece in iter(lambda: stream.read(1 << 20), b""))
    except OSError:
        return 1


def source_of(
    report: Mapping[str, str], metric: str, trial: Trial, known: Mapping[str, Any], before: int = 0
) -> Source:
    """The source of an attempt's reports.

    `report` is that of the space, empty for `auto`; `known` the values of the macros in a path; `before` the
    last step of what the checkpoint has in it.
    """

    is_kept = (trial.checkpoint.parent / OUTPUT_FILE).exists()
    output = OUTPUT_FILE if is_kept else "its output"

    def filled(path: str) -> str:
        path = MACRO.sub(lambda macro: glob.escape(as_text(known[macro[1]])), path)
        path = os.path.expanduser(path)
        return path if glob.has_magic(path.replace("[[]", "")) else path.replace("[[]", "[")

    if not report:
        return AutoSource(metric, output)
    if (pattern := report.get("stdout")) is not None:
        return PatternSource(metric, output, pattern)
    run = trial.checkpoint.parent.absolute()
    if "wandb" in report:
        return wandb_source(metric, run, report["wandb"], trial.params)
    if "mlflow" in report:
        return mlflow_source(metric, run, report["mlflow"], before)
    if "trackio" in report:
        return TrackioSource(metric, run, report["trackio"])
    value = report.get("value", metric)
    path = report.get("file", report.get("tensorboard", ""))
    own = {"run", "checkpoint"} & {macro[1] for macro in MACRO.finditer(path)}
    resumed = trial.resume_from is not None and bool(own)
    if "tensorboard" in report:
        return tensorboard_source(metric, filled(path), value, resumed=resumed, written=path, before=before)
    columns = Columns(value, report.get("step"))
    return FileSource(metric, filled(path), columns, resumed=resumed, before=before)
