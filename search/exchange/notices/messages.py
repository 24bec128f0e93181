"""What a notice says: one JSON for every target, whose sentence is what people read.

    {"type": "finished", "timestamp": "2026-11-29T13:04:05Z", "data": {"study": "lora", "sentence": "...",
     "metric": "loss", "best": 2.31, "winner": 12, "confirmed": true, "link": "https://host/#/studies/lora"}}

`best` is the value of the trial `winner` in its search; both are null while no trial is complete.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import psutil

from ....storage.told import Notice, Told
from ....storage.wanted import moment
from ...formatting import gibibytes
from ...results.sentences import against
from ...results.study import StudyResult
from ...values import plain
from .happenings import Kind

LONGEST_FAILURE = 500  # characters


def notice_of(kind: Kind, study: str, sentence: str, data: Mapping[str, Any], link: str | None) -> Notice:
    """A notice with an id of its own. `data`: its best trial, as `best_of` says."""
    body = {
        "type": kind,
        "timestamp": moment(time.time()),
        "data": {"study": study, "sentence": sentence, **plain(data), "link": link},
    }
    return Notice(f"msg_{uuid.uuid4().hex}", body)


def notice_of_test(link: str | None = None) -> Notice:
    """A notice that says only that notices arrive."""
    nothing = {"metric": None, "best": None, "winner": None, "confirmed": False}
    return notice_of("test", "test", "hpsearch can notify you here", nothing, link)


def best_of(result: StudyResult) -> dict[str, Any]:
    """The best trial of a study, for a notice."""
    winner = result.winner
    return {
        "metric": result.spec.metric,
        "best": None if winner is None else winner.value,
        "winner": None if winner is None else winner.number,
        "confirmed": winner is not None and result.confirmed is not None,
    }


def sentence_of(kind: Kind, result: StudyResult, before: Told, now: Told) -> str:
    """What has happened, in a sentence. `before` and `now`: what the target knew, and knows by this."""
    name = f'"{result.name}"'
    match kind:
        case "finished":
            return f"{name} is finished: {_best(result)}"
        case "failed":
            return f"{name} has failed: {(now.failure or '').strip()[:LONGEST_FAILURE]}"
        case "better":
            return f"{name} is better than its baseline for the first time: {_best(result)}"
        case "end_moved":
            assert before.end is not None and now.end is not None
            later = "later" if now.end[1] > before.end[1] else "earlier"
            return f"{name} ends {later} than foreseen: {_at(now.end[1])}, not {_at(before.end[1])}"
        case "disk_low":
            disk = psutil.disk_usage(str(_there(result)))
            left = f"{gibibytes(disk.free)} of {gibibytes(disk.total)}"
            return f"the disk on which {name} has its files is nearly full: {left} are free"
    raise AssertionError(kind)


def in_words(body: Mapping[str, Any]) -> tuple[str, str]:
    """The title and the text of a notice, for people."""
    data = body["data"]
    link = data.get("link")
    title = f"hpsearch: {data.get('study')}"
    return title, f"{data.get('sentence')}" + (f"\n{link}" if link else "")


def _best(result: StudyResult) -> str:
    best = result.winner
    if best is None or best.value is None:
        return "no trial has run to its end"
    compared = against(result.records.baseline, best, result.confirmed)
    return f"best {result.spec.metric} {best.value:.6g} by trial {best.number}, {compared}"


def _at(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"


def _there(result: StudyResult) -> Any:
    """The folder of the runs, or the nearest one above it that is there."""
    path = result.workspace.runs
    return next(each for each in (path, *path.parents) if each.exists())
