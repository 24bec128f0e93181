"""Trains one configuration to its end, outside a search.

    document = load_document("best.yaml")
    summary = train(override(document, {"max_samples": 20_000}), "trained/mine")

The folder of a run holds its `config.yaml`, `metrics.jsonl` and checkpoint, and when the run is finished, its
results (an adapter, a model) and `summary.json`.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock

from ...objectives.base import ObjectiveError, TrialStopped
from ...objectives.catalog import export
from ...objectives.guides import EndedRun, RunEnd, advice
from ...objectives.info import ObjectiveInfo
from ...objectives.resolve import reports_again, resolve
from ...objectives.user.config_file import copies
from ...objectives.user.macros import flat
from ...objectives.user.script_settings import changed_files
from ...storage.files import METRICS, OUTPUT, drop_checkpoint, file_name, write
from ...storage.provenance import versions
from ..errors import SearchError, UsageError
from ..exchange.trackers.training import START_FILE, RunTracking
from ..formatting import position
from ..trials.document import Document, load_document
from ..trials.failures import failure_of, is_full
from ..trials.judging import how_without_value
from ..trials.reports import Report, read_reports
from ..trials.trial import LocalTrial, as_number
from ..trials.yaml_text import block_of
from ..values import Value
from .checks import check
from .ranks import RanksFailedError, described, value_of_ranks

CONFIG, SUMMARY, LOCK = "config.yaml", "summary.json", ".lock"
RUNS = Path("trained")


@dataclass(frozen=True)
class Summary(Value):
    """The result of a training."""

    computed = ("reproduced",)
    value: float
    metric: str
    at: int  # of the last report, in `unit`
    unit: str
    seconds: float  # of this attempt
    resumed_at: int | None  # the step from which this attempt resumed; None where it did not
    parameters: dict[str, Any]
    seed: int
    versions: dict[str, str]
    source: dict[str, Any]  # the file, and the trial it comes from
    folder: Path
    files: tuple[str, ...]  # in the folder
    merged: bool
    expected: float | None  # the trial's value; None where none can be expected
    advice: tuple[str, ...]  # of the guides, where the run could have gone better

    @property
    def reproduced(self) -> bool | None:
        """Whether the value equals the trial's bit for bit; None where that is not expected."""
        return None if self.expected is None else self.value == self.expected

    @property
    def drift(self) -> list[str]:
        """The versions that differ from those of the trial, as `torch 2.13.0 -> 2.14.0`."""
        before = self.source.get("versions") or {}
        return [f"{n} {before[n]} -> {v}" for n, v in self.versions.items() if before.get(n, v) != v]


def default_folder(document: Document) -> Path:
    """`trained/STUDY-TRIAL`, or the name of the file."""
    study, trial = document.provenance.get("study"), document.provenance.get("trial")
    name = Path(document.file.strip("<>")).stem if study is None or trial is None else f"{study}-{trial}"
    return RUNS / file_name(name)


def train(
    document: Document,
    folder: str | Path | None = None,
    *,
    merge: bool = False,
    force: bool = False,
    on_begin: Callable[[int | None], None] = lambda resumed_at: None,
    on_report: Callable[[Report], None] = lambda report: None,
    say: Callable[[str], None] = lambda message: None,
) -> Summary:
    """Train a configuration to its end; an unfinished run in the folder is continued from its checkpoint.

    `merge` leaves a whole model beside an adapter; `force` trains again over an earlier run. Computes with as
    many threads as the trial that the document comes from, so that a CPU gives the same value again.
    `on_begin` is called once the folder is ready, with the step that an earlier attempt reached, if any;
    `say` gets messages of trackers.

    Raises `SpaceError` for what is wrong in the file, `UsageError` where the folder holds something else,
    `SearchError` where the objective fails or diverges, and lets `KeyboardInterrupt` pass.
    """
    check(document)
    if merge and ObjectiveInfo(document.objective).training is None:
        raise UsageError("only the objectives lora and hf_lora leave adapters to merge", code="not-mergeable")
    where = Path(folder) if folder is not None else default_folder(document)
    with _threads(document.provenance.get("threads")), _room(), _held(where):
        _prepare(where, document, merge=merge, force=force)
        for notice in _changed_files(document):
            say(notice)
        with RunTracking(document, where, say) as tracked:

            def reported(report: Report) -> None:
                on_report(report)
                tracked.show()

            trial = LocalTrial(
                params=document.parameters,
                seed=document.seed,
                folder=where,
                sealed=not reports_again(described(document)),
                judge=document.judge,
                on_report=reported,
                say=say,
            )
            on_begin(trial.resumed_at)
            began = time.monotonic()
            value = _value(document, trial)
            files = export(document.objective, trial.checkpoint, where, merge=merge)
            summary = _conclude(document, trial, value, time.monotonic() - began, files, merge)
            tracked.complete(value)
        return summary


def _changed_files(document: Document) -> Iterator[str]:
    """Notices of configuration files that have changed since the trial."""
    folder = document.provenance.get("folder")
    if isinstance(document.objective, str) or not isinstance(folder, str):
        return
    changed = changed_files(
        document.objective, document.parameters, Path(folder), document.overridden, document.folder
    )
    for file in changed:
        copy = Path(folder) / copies(document.objective)[file]
        yield (f"{file} has changed since the trial, whose copy is {copy}; this trains with the present file")


def _value(document: Document, trial: LocalTrial) -> float:
    """Run the objective, and turn its failures into messages."""
    try:
        if document.processes > 1:
            value = value_of_ranks(document, trial)
        else:
            objective = resolve(described(document), metric=document.metric)
            value = as_number(objective(trial), "the objective returned")
    except TrialStopped:
        value = math.nan
    except ObjectiveError:
        raise
    except (Exception, SystemExit) as error:
        failure = error.failure if isinstance(error, RanksFailedError) else failure_of(error)
        if failure["kind"] == "memory":
            lines = (f"out of memory: {failure['message']}", *_advice(document, trial, "out_of_memory"))
            raise SearchError("\n  ".join(lines)) from error
        if failure["kind"] == "disk":
            raise _full(failure["message"]) from error
        raise SearchError("\n".join(filter(None, (failure["message"], failure["traceback"])))) from error
    judge, last = document.judge, trial.last
    if last is not None and judge.ends(last.value):
        at = position(last.step, document.unit)
        raise _divergence(document, trial, f"{document.metric} was {last.value} at {at}")
    reports = {report.step: report.value for report in read_reports(trial.checkpoint.parent / METRICS)}
    returned, value = value, judge.at_end(reports, value)
    if not math.isfinite(value):
        raise _divergence(document, trial, how_without_value(document.metric, returned, judge))
    return value


@contextmanager
def _room() -> Iterator[None]:
    """Turn errors of writing files into messages, above all that of a full disk."""
    try:
        yield
    except OSError as error:
        raise (_full(str(error)) if is_full(error) else SearchError(f"the run's files: {error}")) from error


def _full(what: str) -> SearchError:
    return SearchError(f"the disk is full: {what}; free some space, and the same command continues")


def _divergence(document: Document, trial: LocalTrial, what: str) -> SearchError:
    """The error of a divergence, with a line for each remedy."""
    advice = _advice(document, trial, "diverged")
    if not advice:  # an objective of the user's, with parameters of other names
        return SearchError(f"diverged: {what}; try a lower learning rate, or a longer warm-up")
    return SearchError("\n  ".join((f"diverged: {what}", *advice)))


def _advice(document: Document, trial: LocalTrial, ended: RunEnd) -> tuple[str, ...]:
    """The guides' advice after this run and its earlier attempts."""
    run = EndedRun(
        flat(document.parameters),
        ended,
        read_reports(trial.checkpoint.parent / METRICS),
        metric=document.metric,
        unit=document.unit,
        maximize=document.maximize,
        best=document.best,
        searched=document.searched,
    )
    return tuple(advice(document.objective, run))


def _conclude(
    document: Document, trial: LocalTrial, value: float, seconds: float, files: list[Path], merged: bool
) -> Summary:
    """Write the summary, which marks the run as finished."""
    folder = trial.checkpoint.parent
    metrics = [METRICS] if (folder / METRICS).exists() else []
    summary = Summary(
        value=value,
        metric=document.metric,
        at=trial.last.step if trial.last is not None else 0,
        unit=document.unit,
        seconds=round(seconds, 3),
        resumed_at=trial.resumed_at,
        parameters=document.parameters,
        seed=document.seed,
        versions=versions(),
        source={"file": document.file, **document.content()["provenance"]},
        folder=folder,
        files=(*(str(path.relative_to(folder)) for path in files), *metrics, CONFIG, SUMMARY),
        merged=merged,
        expected=document.expected,
        advice=_advice(document, trial, "complete"),
    )
    write(folder / SUMMARY, json.dumps(summary.to_json(), indent=2) + "\n")
    return summary


# The folder


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Lock the folder of a run. Raises `UsageError` where it is in use, or not a run's folder."""
    try:
        if folder.exists() and any(folder.iterdir()) and not (folder / LOCK).exists():
            raise UsageError(f"{folder} holds other files; choose another folder", code="folder-taken")
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / LOCK, timeout=0)
        lock.acquire()
    except filelock.Timeout:
        message = f"another process trains in {folder}; choose another folder"
        raise UsageError(message, code="folder-taken") from None
    except OSError as error:
        raise SearchError(f"cannot use the folder {folder}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()  # the empty file stays, and marks the folder as a run's


def _prepare(folder: Path, document: Document, *, merge: bool, force: bool) -> None:
    """Prepare the folder to start or continue; raises `UsageError` where it holds another run.

    A finished run is continued only to merge its adapter: there is nothing left to train.
    """
    if force:
        _clear(folder)
    finished = _finished(folder)
    if finished is not None and (finished["merged"] or not merge):
        message = f"{folder} holds a finished run; start over, or choose another folder"
        raise UsageError(message, code="run-exists")
    path = folder / CONFIG
    if path.exists():
        there = load_document(path)
        if _identity(there) != _identity(document):
            raise UsageError(
                f"{folder} holds a run of another configuration ({path}); "
                "start over, or choose another folder",
                code="run-exists",
            )
    write(path, block_of(document.content()))


def _identity(document: Document) -> tuple[object, ...]:
    """What distinguishes this run from others."""
    parameters = ObjectiveInfo(document.objective).identifying(document.parameters)
    reading = document.metric, document.report, document.judge
    return document.objective, *reading, parameters, document.seed


def _clear(folder: Path) -> None:
    """Delete what an earlier run left, and nothing else."""
    finished = _finished(folder) or {"files": []}
    names = {METRICS, OUTPUT, CONFIG, SUMMARY, START_FILE, *finished["files"]}
    drop_checkpoint(folder)
    for name in map(Path, names):
        if name.is_absolute() or ".." in name.parts:
            continue  # the summary was edited
        (folder / name).unlink(missing_ok=True)
        if name.parent != Path():
            with suppress(OSError):  # not empty, or gone
                (folder / name.parent).rmdir()


def _finished(folder: Path) -> dict[str, Any] | None:
    """The summary of a finished run; None where there is none."""
    path = folder / SUMMARY
    summary: dict[str, Any] | None = json.loads(path.read_text("utf-8")) if path.exists() else None
    return summary


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Compute with so many threads meanwhile: other numbers of threads add up sums in another order."""
    if not isinstance(count, int):
        yield
        return
    torch = sys.modules.get("torch")  # where it is not imported yet, it reads the number from the environment
    before = torch.get_num_threads() if torch is not None else None
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, str(count)))
    if torch is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        for name, value in environment.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        if torch is not None:
            torch.set_num_threads(before)
