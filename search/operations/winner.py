"""The winner of a study: how sure it is, and its files to take away."""

from __future__ import annotations

import json
import os
import shutil
import stat
import zipfile
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import IO, Any, Literal

from ...storage import StorageError
from ...storage.files import CHECKPOINT, UNFINISHED
from ...storage.inside import files_inside, open_inside
from ...storage.locks import driver_running
from ...storage.workspace import Workspace
from ..errors import SearchError
from ..formatting import counted
from ..results.confirmation import Candidate, Interval, candidates_of
from ..results.next_steps import confirmation_changes, steps_of_search, winner_steps
from ..results.sentences import against, audit_of, confirmation
from ..results.study import StudyResult, load_result
from ..trials.export import document, render
from ..values import NextStep, Value, plain

Status = Literal["confirmed", "tie", "baseline", "unconfirmed", "none"]
STATUSES: dict[Status, str] = {  # what each means
    "confirmed": "it was trained again with new seeds, and is better than all others",
    "tie": "it was trained again with new seeds, and others may be as good",
    "baseline": "it is the baseline, or is not shown to be better than that",
    "unconfirmed": "it has the best value of the search, which flatters it; it was not trained again",
    "none": "no trial has run to its end",
}
FROM_1980 = (1980, 1, 1, 0, 0, 0)  # the time of every file in a zip, so that equal winners are equal bytes


@dataclass(frozen=True)
class Winner(Value):
    """The winner of a study, and what it rests on."""

    study: str
    status: Status  # how sure it is: see `STATUSES`
    verdict: str  # the same in a few words
    why: str  # and in a sentence
    metric: str
    goal: str
    trial: int | None
    params: dict[str, Any]
    searched: float | None  # its value in the search
    value: Interval | None  # what to expect of it, by training it again
    gain: Interval | None  # how much better than the baseline it is; below 0: worse
    ties: tuple[int, ...]  # trials that may be as good
    seeds: int  # that each candidate was trained again with
    baseline: int | None  # the number of the baseline's trial
    comparison: str | None  # with the baseline, in words
    confirmation: list[str]  # what training again told, in lines
    candidates: tuple[Candidate, ...]  # the trials that are trained again
    audit: list[str]  # what early stopping may have lost, in lines
    next: list[NextStep]


@dataclass(frozen=True)
class WinnerFiles(Value):
    """What was written into a zip."""

    study: str
    trial: int
    status: Status
    files: tuple[str, ...]


def winner(*, workspace: Workspace, study: str) -> Winner:
    """Give the winner of a study, how sure that is, and what would make it surer."""
    return winner_of(load_result(workspace, study))


def winner_of(result: StudyResult) -> Winner:
    """The winner of a study that is loaded."""
    records, best, confirmed = result.records, result.winner, result.confirmed
    baseline = records.baseline
    number = None if baseline is None else baseline.number
    found = Winner(
        study=result.name,
        status="none",
        verdict="No winner",
        why="No trial has run to its end.",
        metric=result.spec.metric,
        goal=result.spec.goal,
        trial=None,
        params={},
        searched=None,
        value=None,
        gain=None,
        ties=(),
        seeds=0,
        baseline=number,
        comparison=None if best is None else against(baseline, best, confirmed),
        confirmation=confirmation(result),
        candidates=candidates_of(records, confirmed),
        audit=audit_of(result),
        next=_next(result),
    )
    if best is None:
        return found
    found = replace(
        found, status="unconfirmed", trial=best.number, params=best.config or {}, searched=best.value
    )
    if confirmed is None or confirmed.winner != best.number:
        return in_words(found)
    gain, ties = confirmed.gain, confirmed.ties
    is_no_better = best.is_baseline or (gain is not None and gain.low <= 0)
    status: Status = "baseline" if is_no_better else "tie" if ties else "confirmed"
    return in_words(
        replace(found, status=status, value=confirmed.value, gain=gain, ties=ties, seeds=confirmed.seeds)
    )


def in_words(found: Winner) -> Winner:
    """A winner with the words for how sure it is."""
    trial, again = f"Trial {found.trial}", f"trained again with {counted(found.seeds, 'new seeds')}"
    is_baseline = found.trial == found.baseline
    if found.status == "confirmed":
        better = ", and better than the baseline" if found.gain is not None else ""
        words = "Confirmed", f"{trial} is the best of those {again}{better}."
    elif found.status == "tie":
        *others, last = (str(number) for number in found.ties)
        ties = f"trials {', '.join(others)} and {last}" if others else f"trial {last}"
        words = "A tie", f"{trial} came out first, but {ties} may be as good: all were {again}."
    elif found.status == "baseline" and is_baseline:
        words = "The baseline", f"{trial} is the baseline, and nothing was better: all were {again}."
    elif found.status == "baseline":
        words = (
            "No better than the baseline",
            f"{trial}, {again}, is not shown to be better than the baseline.",
        )
    else:
        end = "lowest" if found.goal == "minimize" else "highest"
        which = f"{trial}, the baseline," if is_baseline else trial
        flatters = f"{which} has the {end} value of the search, which flatters it: it was not trained again."
        words = "Not confirmed", flatters
    return replace(found, verdict=words[0], why=words[1])


def winner_zip(
    *, workspace: Workspace, study: str, output: IO[bytes], unconfirmed: bool = False
) -> WinnerFiles:
    """Write the winner as a zip: its model or adapter, its configuration, what it depends on.

    Raises `SearchError` where there is no winner, or it is not confirmed, unless `unconfirmed` is set.
    """
    result = load_result(workspace, study)
    found = winner_of(result)
    best = result.winner
    if best is None or found.trial is None:
        raise SearchError(f'no trial of "{study}" has run to its end yet', code="not-confirmed")
    if found.status == "unconfirmed" and not unconfirmed:
        raise SearchError(
            f"trial {found.trial} is the best of the search, which flatters it: it was not trained "
            "again yet; it can be had unconfirmed where that is asked for",
            code="not-confirmed",
            next_steps=found.next,
        )
    content = document(result.spec, best.trial, result.provenance, best=result.best_trial)
    texts = {
        "winner.json": json.dumps(found.to_json(), indent=2) + "\n",
        "config.yaml": render(content, "yaml"),
        "space.json": json.dumps(plain(result.spec.to_json()), indent=2) + "\n",
        "versions.txt": _versions(result),
    }
    written = list(texts)
    with zipfile.ZipFile(output, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, text in texts.items():
            archive.writestr(_entry(name), text.encode())
        for file in files_inside(workspace.runs, result.folder_name, str(best.number), CHECKPOINT):
            if any(UNFINISHED.fullmatch(part) for part in file.path.split("/")):
                continue
            name = f"{CHECKPOINT}/{file.path}"
            with suppress(StorageError):  # it may go while it is listed
                _add(archive, name, workspace, result.folder_name, best.number)
                written.append(name)
    return WinnerFiles(study, best.number, found.status, tuple(written))


def _add(archive: zipfile.ZipFile, name: str, workspace: Workspace, folder: str, trial: int) -> None:
    descriptor = open_inside(workspace.runs, folder, str(trial), *name.split("/"))
    with open(descriptor, "rb") as source:
        large = os.fstat(descriptor).st_size > zipfile.ZIP64_LIMIT // 2
        with archive.open(_entry(name), "w", force_zip64=large) as target:
            shutil.copyfileobj(source, target, 1 << 20)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, FROM_1980)
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    return entry


def _versions(result: StudyResult) -> str:
    """What the winner was trained with, as pip can install it."""
    known = dict(result.provenance.get("versions") or {})
    lines = [f"# {result.name}: what its trials were trained with"]
    if python := known.pop("python", None):
        lines.append(f"# Python {python}")
    if commit := result.provenance.get("git_commit"):
        lines.append(f"# commit {commit}")
    return "\n".join([*lines, *(f"{name}=={version}" for name, version in sorted(known.items()))]) + "\n"


def _next(result: StudyResult) -> list[NextStep]:
    """What makes the winner surer, and how to take it."""
    if driver_running(result.workspace, result.folder_name) is not None:
        return steps_of_search(result.name, paused=False)
    steps = []
    backend = result.provenance.get("backend", "optuna")
    if result.confirmed is None and (changes := confirmation_changes(result)) is not None:
        arguments = {"space": None, "name": result.name, "backend": backend} | changes
        steps.append(NextStep("run", arguments, "confirm the winner"))
    return steps + (winner_steps(result.name) if result.best_trial is not None else [])
