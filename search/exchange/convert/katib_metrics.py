"""What collects a metric in Katib, as `report:` of a space."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ....spaces.fields import show
from ....spaces.reporting import Report
from .source import Section
from .space import Converted, Setting


def collector(spec: Section, made: Converted) -> None:
    """How the metric is read, from what collects it there."""
    section = spec.section("metricsCollectorSpec", None)
    how = section.section("collector", None)
    kind = how.text("kind", "StdOut")
    source = section.section("source", None)
    patterns = source.section("filter", None).items("metricsFormat", None) or []
    file = source.section("fileSystemPath", None)
    path = file.text("path", "")
    if kind in ("StdOut", "File") and patterns:
        pattern = _pattern(patterns[0], made.metric)
        if pattern is None:
            raise source.fault(
                "filter", f"{show(patterns[0])} is not two groups, a name and a number; see report:"
            )
        remarks = ("the first of several patterns",) if len(patterns) > 1 else ()
        made.reading.append(Setting("report", {"stdout": pattern}, source.at("filter"), remarks))
    elif kind == "TensorFlowEvent" or (kind == "File" and file.text("format", "TEXT") == "JSON"):
        what = "tensorboard" if kind == "TensorFlowEvent" else "file"
        own = f"${{run}}/{Path(path).name or 'logs'}"
        passed = [word.replace(path, own) if path else word for word in made.command]
        if passed == made.command:
            raise file.fault(
                "", f"the path {show(path)} is in no word of the command, so trials would share it"
            )
        made.command = passed
        made.reading.append(Setting("report", {what: own, "value": made.metric}, file.at("path")))
    elif kind == "File":
        made.metric_remarks.append(f"Katib reads lines of {path}; here they are read where they are printed")
    elif kind in ("None", "Push"):
        made.metric_remarks.append(
            'Katib\'s report_metrics must become a printed line, such as {"loss": 0.5}'
        )
    elif kind != "StdOut":
        message = f"{show(kind)} has no counterpart; there is StdOut, File and TensorFlowEvent"
        raise how.fault("kind", message)


def _pattern(pattern: Any, metric: str) -> str | None:
    """A pattern of Katib's, whose groups are a name and a number, as one of ours; None for any other."""
    try:
        groups = re.compile(pattern).groups if isinstance(pattern, str) else 0
    except re.error:
        return None
    starts = [each.start() for each in re.finditer(r"(?<!\\)\((?!\?)", str(pattern))]
    if groups < 2 or len(starts) != groups:
        return None
    name, end = starts[0], _end(pattern, starts[0])
    value = next((each for each in starts if each > end), None)
    if value is None:
        return None
    whole = f"(?<![\\w-]){re.escape(metric)}"  # not the end of another name
    converted = f"{pattern[:name]}{whole}{pattern[end:value]}(?P<value>{pattern[value + 1 :]}"
    try:
        Report.model_validate({"stdout": converted})
    except ValueError:
        return None
    return converted


def _end(pattern: str, start: int) -> int:
    """The place after the group that starts there."""
    depth = 0
    for match in re.finditer(r"\\.|\[\^?\]?[^\]]*\]|[()]", pattern[start:]):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth == 0:
            return start + match.end()
    return len(pattern)
