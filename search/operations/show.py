"""What a study says: the whole of it, one trial, its rows, its best."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from optuna.trial import FrozenTrial

from ...spaces import Spec
from ...spaces.errors import hint
from ...storage.pages import Order, read_page, study_head
from ...storage.rows import MOST_NAMED
from ...storage.studies import SPEC
from ...storage.workspace import Workspace
from ..errors import SearchError, UsageError
from ..results.confirmation import Confirmed
from ..results.ladder import RungLadder, rung_ladder
from ..results.ranges import NarrowRanges, narrow_ranges
from ..results.report import StudyReport, TrialReport, study_report, trial_report
from ..results.sentences import against, confirmation
from ..results.study import StudySnapshot, load_result, stored_spec
from ..results.trials import TrialRow, trial_row
from ..results.why import TrialHistory, history_of
from ..sampling.view import StudyAtRung
from ..trials.records import TrialRecord
from ..values import State, Value


@dataclass(frozen=True)
class TrialRows(Value):
    """Trials of a study, and what their columns are."""

    rows: tuple[TrialRow, ...]
    metric: str
    resource: str
    parameters: tuple[str, ...]  # all of the space, in its order
    searched: tuple[str, ...]  # those of them that the search chooses
    fields: tuple[str, ...] = ()  # of each row that are told; none: all
    more: bool = False  # whether others follow

    def to_json(self) -> Any:
        """The rows alone."""
        rows = [row.to_json() for row in self.rows]
        return [{name: row[name] for name in self.fields} for row in rows] if self.fields else rows

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Of the rows alone: what their columns are is in the space."""
        return super().from_json(
            {"rows": data, "metric": "", "resource": "", "parameters": [], "searched": []}
        )

    @classmethod
    def shape(cls) -> Any:
        return list[TrialRow]

    def of_space(self, spec: Spec) -> TrialRows:
        """The same rows, with what the study's space says of their columns."""
        names, searched = tuple(spec.parameters), tuple(spec.space.searched)
        return TrialRows(self.rows, spec.metric, spec.resource, names, searched, self.fields, self.more)


@dataclass(frozen=True)
class DrawnFigure(Value):
    """A figure as Plotly's JSON."""

    name: str
    text: str

    def to_json(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class BestTrial(Value):
    """The winner, and what it rests on."""

    study: str
    metric: str
    number: int
    value: float
    params: dict[str, Any]  # searched, constant and derived values by name
    folder: Path  # its checkpoint, reports and configuration
    confirmed: Confirmed | None  # the outcome of training it again
    comparison: str  # with the baseline, in words
    confirmation: list[str]  # that outcome in words


def show(*, workspace: Workspace, study: str) -> StudyReport:
    """Explain a study: what was found, what it rests on, why trials ended, what to do next."""
    return study_report(as_it_stands(workspace, study))


def show_trial(*, workspace: Workspace, study: str, trial: int) -> TrialReport:
    """Show one trial: its configuration, its curve, its rank at the rungs, its files."""
    return trial_report(as_it_stands(workspace, study), trial)


def why(*, workspace: Workspace, study: str, trial: int) -> TrialHistory:
    """Explain why a trial was suggested, paused, resumed or ended."""
    return history_of(as_it_stands(workspace, study), trial)


def ranges(*, workspace: Workspace, study: str) -> NarrowRanges:
    """Find the parameters whose best values press against an end of their range, and propose wider ones."""
    return narrow_ranges(as_it_stands(workspace, study))


def ladder(*, workspace: Workspace, study: str) -> RungLadder:
    """Show which trials have reached which rung, who waits there, and who went on."""
    spec = stored_spec(study, study_head(workspace, study).attrs[SPEC])
    return rung_ladder(study, spec, lambda: as_it_stands(workspace, study))


def trials(
    *,
    workspace: Workspace,
    study: str,
    state: State | None = None,
    best_first: bool = False,
    newest_first: bool = False,
    after: int | None = None,
    limit: int | None = None,
    fields: Sequence[str] = (),
) -> TrialRows:
    """List the trials of a study, of one state perhaps, by number, or the newest or the best first.

    A page of them follows the trial `after` in this order. `fields` are those of the rows that are told.
    Raises `UsageError` for a field that rows do not have.
    """
    known = [field.name for field in dataclasses.fields(TrialRow)]
    for name in fields:
        if name not in known:
            raise UsageError(f'a trial has no field "{name}"; {hint(name, known)}', code="unknown-field")
    head = study_head(workspace, study)
    spec = stored_spec(study, head.attrs[SPEC])
    order: Order = "best" if best_first else "newest" if newest_first else "number"
    found: list[FrozenTrial] = []
    more = True
    while more and (limit is None or len(found) < limit):
        page = MOST_NAMED if limit is None else min(MOST_NAMED, limit - len(found))
        minimize = spec.goal == "minimize"
        some, more = read_page(head, state=state, order=order, minimize=minimize, after=after, limit=page)
        found += some
        after = found[-1].number if found else after
    rows = tuple(trial_row(TrialRecord(spec, trial)) for trial in found)
    return TrialRows(rows, "", "", (), (), tuple(fields), more).of_space(spec)


def figure(*, workspace: Workspace, study: str, name: str) -> DrawnFigure:
    """Draw one of Optuna's figures. Raises `UsageError` with the names that there are."""
    result = load_result(workspace, study)
    if name not in result.figures:
        raise UsageError(f'there is no figure "{name}"; {hint(name, result.figures)}', code="no-such-file")
    try:
        drawn = result.figures[name]()
    except (ValueError, RuntimeError) as error:  # too few trials, say
        raise SearchError(f"the figure {name} cannot be drawn: {error}", code="no-figure") from error
    return DrawnFigure(name, drawn.to_json())


def best(*, workspace: Workspace, study: str) -> BestTrial:
    """The best trial: its value, its parameters, and how it compares.

    Raises `SearchError` while no trial is complete.
    """
    result = as_it_stands(workspace, study)
    best, winner = result.best, result.winner
    assert winner is not None
    return BestTrial(
        study,
        result.spec.metric,
        **vars(best),
        comparison=against(result.records.baseline, winner, best.confirmed),
        confirmation=confirmation(result),
    )


def as_it_stands(workspace: Workspace, study: str) -> StudySnapshot:
    """A study whose trials are read once."""
    result = load_result(workspace, study)
    trials = result.all_trials
    seen = StudyAtRung(result.study, lambda: trials)
    return StudySnapshot(result.name, seen, result.spec, result.workspace)
