"""A report on studies, to send: what the page shows of them in one file, or a page of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args
from urllib.parse import quote

from ...storage.texts import changed
from ...storage.workspace import Workspace
from ..errors import UsageError
from ..page.report import report_html
from ..results.ladder import rung_ladder
from ..results.report import study_report, trial_report
from ..results.study import StudySnapshot
from ..results.trials import endings, trial_row
from ..results.why import history_of
from ..values import Value
from . import show, studies, watch
from .export import export
from .markdown import comparison_in_markdown, space_text, study_in_markdown, winner_text
from .winner import winner_of

Form = Literal["html", "md"]
POINTS = 60  # of a curve
FULL = 300  # trials of which everything is told; of more, only of those that matter most
BEST = 50  # that matter
MOST_STUDIES = 20
HERE: dict[str, Any] = {"folder": None, "files": [], "traceback": None}  # instead of paths of this machine
# How the reason of a script's failure ends, in whose study's folder the trial's output is.
OUTPUT_PLACE = re.compile(r"(?<=its output is in )[^\n]*?/(?=[^/\n]+/\d+/output\.log)")


@dataclass(frozen=True)
class WrittenReport(Value):
    """A report as text."""

    studies: tuple[str, ...]
    form: Form
    text: str


def report(*, workspace: Workspace, study: Sequence[str], form: Form = "html") -> WrittenReport:
    """Write a report on a study, or on several to compare them.

    `html` is one file that opens without a server or a network, `md` a text for a pull request. Neither holds
    paths of this machine. Raises `UsageError` for no study, or too many.
    """
    names = tuple(dict.fromkeys(study))
    if not 1 <= len(names) <= MOST_STUDIES:
        raise UsageError(f"a report is on 1 to {MOST_STUDIES} studies, not {len(names)}")
    if form not in get_args(Form):
        raise UsageError(f'there is no report as "{form}"; choose {" or ".join(get_args(Form))}')
    at = datetime.now().astimezone()
    snapshots = [show.as_it_stands(workspace, name) for name in names]
    if form == "md":
        alone = snapshots[0]
        several = len(names) > 1
        text = (
            comparison_in_markdown(snapshots) if several else study_in_markdown(alone, provenance_of(alone))
        )
        return WrittenReport(names, form, _without_places(text))
    listed = studies.list_studies(workspace=workspace).studies
    answers: dict[str, Any] = {"studies": [each.to_json() for each in listed if each.name in names]}
    for snapshot in snapshots:
        answers |= changed(dict(_answers(workspace, snapshot)), _without_places)
    first = f"studies/{_quoted(names[0])}/report"
    if len(names) > 1:
        named = ",".join(map(_quoted, names))
        first = f"compare?of={quote(named, safe=',')}"
    return WrittenReport(names, form, report_html(answers, title=" and ".join(names), at=at, first=first))


def _without_places(text: str) -> str:
    return OUTPUT_PLACE.sub("runs/", text)


def _quoted(name: str) -> str:
    """A name in an address, as `encodeURIComponent` of the page writes it."""
    return quote(name, safe="!'()*")


def provenance_of(result: StudySnapshot) -> dict[str, Any]:
    """Where a study comes from: versions, commit, backend, start."""
    known = dict(result.provenance)
    versions = known.pop("versions", None) or {}
    named = {name: value for name, value in known.items() if value is not None}
    return named | {f"version of {name}": version for name, version in sorted(versions.items())}


def _answers(workspace: Workspace, result: StudySnapshot) -> Iterator[tuple[str, Any]]:
    """What the routes of a study answer, by their paths."""
    path = f"studies/{_quoted(result.name)}"
    told, winner = study_report(result), winner_of(result)
    yield path, told.to_json() | {"queue": None}
    yield f"{path}/winner", winner.to_json()
    yield f"{path}/ladder", rung_ladder(result.name, result.spec, lambda: result).to_json()
    yield f"{path}/improvements", watch.improvements(workspace=workspace, study=result.name).to_json()
    yield f"{path}/provenance", provenance_of(result)
    yield f"{path}/space", space_text(result.spec)
    records = list(result.records.by_number.values())
    rows = {record.number: trial_row(record).to_json() for record in records}
    yield f"{path}/trials", list(rows.values())
    yield f"{path}/curves", _curves(workspace, result)
    if winner.trial is not None:
        taken = export(workspace=workspace, study=result.name).to_json()
        yield (
            f"{path}/winner/recipe?format=yaml",
            taken | {"text": winner_text(result, winner.trial), "lost": {}},
        )
    for number in _told_in_full(result):
        told_of = trial_report(result, number).to_json()
        here = ("curve", *rows[number])  # once is enough: a wide space is most of a report
        yield f"{path}/trials/{number}", {k: v for k, v in told_of.items() if k not in here} | HERE
        yield f"{path}/trials/{number}/story", history_of(result, number).to_json()


def _curves(workspace: Workspace, result: StudySnapshot) -> dict[str, Any]:
    """All curves as one page of them, and how many reports each has."""
    study = result.name
    pages = [watch.curves(workspace=workspace, study=study, points=POINTS)]
    while pages[-1].more and pages[-1].trial:
        after = pages[-1].trial[-1]
        pages.append(watch.curves(workspace=workspace, study=study, points=POINTS, after=after))
    known = result.records.by_number  # without the trials that have begun since
    curves = [each for page in pages for each in zip(page.trial, page.step, page.value, strict=True)]
    curves = [each for each in curves if each[0] in known]
    columns = {
        name: [each[place] for each in curves] for place, name in enumerate(("trial", "step", "value"))
    }
    reports = [len(known[number].trial.intermediate_values) for number, _, _ in curves]
    return columns | {"reports": reports, "last": 0, "more": False}


def _told_in_full(result: StudySnapshot) -> list[int]:
    """The trials of which everything is told: all, or in a large study those that somebody will look at."""
    records = result.records
    if len(records.by_number) <= FULL:
        return list(records.by_number)
    matter = {trial.number for trial in records.best(BEST)} | {run.number for run in records.confirmations}
    matter |= {ending.trials[-1] for ending in endings(records.by_number.values())}
    return sorted(matter | ({records.baseline.number} if records.baseline is not None else set()))
