"""What a study says: the whole of it, one trial, its rows, its best."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...storage.workspace import Workspace
from ..results.confirmation import Confirmed
from ..results.ranges import NarrowRanges, narrow_ranges
from ..results.report import StudyReport, TrialReport, study_report, trial_report
from ..results.sentences import against, confirmation
from ..results.study import StudySnapshot, load_result
from ..results.trials import TrialRow, trial_rows
from ..results.why import TrialHistory, history_of
from ..sampling.view import StudyAtRung
from ..values import State, Value


@dataclass(frozen=True)
class TrialRows(Value):
    """Trials of a study, and what their columns are."""

    rows: tuple[TrialRow, ...]
    metric: str
    resource: str
    parameters: tuple[str, ...]  # all of the space, in its order
    searched: tuple[str, ...]  # those of them that the search chooses

    def to_json(self) -> Any:
        """The rows alone."""
        return [row.to_json() for row in self.rows]


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
    return study_report(_as_it_stands(workspace, study))


def show_trial(*, workspace: Workspace, study: str, trial: int) -> TrialReport:
    """Show one trial: its configuration, its curve, its rank at the rungs, its files."""
    return trial_report(_as_it_stands(workspace, study), trial)


def why(*, workspace: Workspace, study: str, trial: int) -> TrialHistory:
    """Explain why a trial was suggested, paused, resumed or ended."""
    return history_of(_as_it_stands(workspace, study), trial)


def ranges(*, workspace: Workspace, study: str) -> NarrowRanges:
    """Find the parameters whose best values press against an end of their range, and propose wider ones."""
    return narrow_ranges(_as_it_stands(workspace, study))


def trials(
    *,
    workspace: Workspace,
    study: str,
    state: State | None = None,
    best_first: bool = False,
    limit: int | None = None,
) -> TrialRows:
    """List the trials of a study, of one state perhaps, by number or the best complete trial first."""
    result = _as_it_stands(workspace, study)
    spec, rows = result.spec, trial_rows(result, state=state, best_first=best_first)[:limit]
    names, searched = tuple(spec.parameters), tuple(spec.space.searched)
    return TrialRows(tuple(rows), spec.metric, spec.resource, names, searched)


def best(*, workspace: Workspace, study: str) -> BestTrial:
    """The best trial: its value, its parameters, and how it compares.

    Raises `SearchError` while no trial is complete.
    """
    result = _as_it_stands(workspace, study)
    best, winner = result.best, result.winner
    assert winner is not None
    return BestTrial(
        study,
        result.spec.metric,
        **vars(best),
        comparison=against(result.records.baseline, winner, best.confirmed),
        confirmation=confirmation(result),
    )


def _as_it_stands(workspace: Workspace, study: str) -> StudySnapshot:
    result = load_result(workspace, study)
    trials = result.all_trials
    seen = StudyAtRung(result.study, lambda: trials)
    return StudySnapshot(result.name, seen, result.spec, result.workspace)
