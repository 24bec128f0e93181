"""The reports of a trial, in its file."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...storage.files import opened


@dataclass(frozen=True)
class Report:
    """What an objective reported."""

    step: int
    value: float
    metrics: dict[str, float]


def read_reports(path: Path, *, repair: bool = False) -> list[Report]:
    """The reports in a trial's file, up to the last whole one: a kill may cut a line short.

    `repair` truncates the file there. Without it the file stays as it is: a worker may be writing it.
    """
    reports: list[Report] = []
    whole = 0
    try:
        descriptor = opened(path, os.O_RDWR if repair else os.O_RDONLY)
    except FileNotFoundError:
        return []
    with open(descriptor, "rb") as stream:
        content = stream.read()
        for line in content.splitlines(keepends=True):
            report = _parsed(line)
            if report is None:
                break
            reports.append(report)
            whole += len(line)
        if repair and len(content) > whole:
            os.truncate(descriptor, whole)
    return reports


def _parsed(line: bytes) -> Report | None:
    if not line.endswith(b"\n"):
        return None
    try:
        record: dict[str, Any] = json.loads(line)
        step, value = operator.index(record.pop("step")), float(record.pop("value"))
        return Report(step, value, {name: float(metric) for name, metric in record.items()})
    except (ValueError, TypeError, KeyError, AttributeError):  # not a report
        return None


def record(path: Path, step: int, value: float, metrics: Mapping[str, float]) -> None:
    """Add a report to a trial's file."""
    line = json.dumps({"step": step, "value": value, **metrics})
    with open(opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a", encoding="utf-8") as stream:
        stream.write(line + "\n")
