"""A study as it stands: its trials, its winner, its figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
from optuna.trial import FrozenTrial

from ...spaces import SpaceError, Spec
from ...storage import StorageError, files, studies
from ...storage.database import open_storage
from ...storage.wanted import read_wanted
from ...storage.workspace import Workspace
from ..errors import SearchError
from ..scheduling.pruners import make_pruner
from ..trials.records import StudyRecords, TrialRecord
from ..values import plain
from .audit import Audited, audit_outcome
from .confirmation import Confirmed, confirmation_outcome, confirmed_winner

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

TIMES = ("datetime_start", "datetime_complete", "duration")
COLUMNS = ("number", "value", "state", *TIMES, "params", "user_attrs")  # of `StudyResult.trials`


@dataclass(frozen=True)
class Best:
    """The best complete trial."""

    number: int
    value: float
    params: dict[str, Any]  # searched, constant and derived values by name
    folder: Path  # its checkpoint, reports and configuration
    confirmed: Confirmed | None = None  # what training it again told


@dataclass(frozen=True)
class StudyResult:
    """A study as it stands."""

    name: str
    study: optuna.Study
    spec: Spec
    workspace: Workspace  # its database, and the folder of its files
    ran: int = 0  # trials that ended in the search that returned this; 0 where it was only opened
    stop_reason: str | None = None  # why that search ended before its trials were all asked, if it did
    stopped: bool = False  # on request, before its budget was spent: the same command continues it
    interrupted: bool = False  # by a signal

    def to_json(self) -> dict[str, Any]:
        """Its winner and how its search ended, as plain data."""
        best = None if self.best_trial is None else asdict(self.best)
        ended = {"ran": self.ran, "stop_reason": self.stop_reason, "stopped": self.stopped}
        about = {"study": self.name, "metric": self.spec.metric, "goal": self.spec.goal, "best": best}
        return plain(about | ended | {"interrupted": self.interrupted})  # type: ignore[no-any-return]

    @property
    def best(self) -> Best:
        """The winner. Raises `SearchError` while no trial is complete."""
        winner = self.winner
        if winner is None:
            raise SearchError(f'no trial of "{self.name}" has run to its end yet, so there is no winner')
        assert winner.value is not None and winner.config is not None
        folder = self.trial_folder(winner.number)
        return Best(winner.number, winner.value, winner.config, folder, self.confirmed)

    @property
    def folder_name(self) -> str:
        """The name of the study's folder under `runs`."""
        return studies.folder_in(self.study.user_attrs, self.spec.name)

    def trial_folder(self, number: int) -> Path:
        """The folder of a trial: its configuration, reports, output and checkpoint."""
        return files.trial_folder(self.workspace.runs, self.folder_name, number)

    @property
    def records(self) -> StudyRecords:
        """The trials as results read them."""
        return StudyRecords(self.spec, self.all_trials)

    @property
    def winner(self) -> TrialRecord | None:
        """The winner; None while no trial is complete."""
        records = self.records
        return confirmed_winner(records) or next(iter(records.best(1)), None)

    @property
    def best_trial(self) -> FrozenTrial | None:
        """The winner as Optuna's trial; None while no trial is complete."""
        winner = self.winner
        return None if winner is None else winner.trial

    @property
    def confirmed(self) -> Confirmed | None:
        """What training the best again told; None where that was not done, or not to an end."""
        return confirmation_outcome(self.records)

    @property
    def audited(self) -> Audited | None:
        """What came of the audited trials; None where there was none."""
        return audit_outcome(self.records)

    @property
    def trials(self) -> pandas.DataFrame:
        """One row per trial: number, state, value, times, and parameters and attributes under prefixes."""
        return self.study.trials_dataframe(COLUMNS)

    @cached_property
    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        """Optuna's plotly figures by name; call one to draw it."""
        from optuna import visualization as plots

        value = self.spec.metric
        return {
            "history": lambda: plots.plot_optimization_history(self.study, target_name=value),
            "curves": lambda: plots.plot_intermediate_values(self.study),
            "importance": lambda: plots.plot_param_importances(self.study, target_name=value),
            "parallel": lambda: plots.plot_parallel_coordinate(self.study, target_name=value),
            "slice": lambda: plots.plot_slice(self.study, target_name=value),
            "contour": lambda: plots.plot_contour(self.study, target_name=value),
            "edf": lambda: plots.plot_edf(self.study, target_name=value),
            "timeline": lambda: plots.plot_timeline(self.study),
        }

    @property
    def price_per_hour(self) -> float | None:
        """What an hour costs: as its space says, else as the machine did when it began; None: unknown."""
        price: float | None = self.provenance.get("price_per_hour")
        return self.spec.execution.price_per_hour or price

    @property
    def provenance(self) -> dict[str, Any]:
        """Versions, commit, backend and start of the study."""
        provenance: dict[str, Any] = self.study.user_attrs.get(studies.PROVENANCE, {})
        return provenance

    @property
    def all_trials(self) -> list[FrozenTrial]:
        """Optuna's trials, confirmation runs among them; not to be changed."""
        return self.study.get_trials(deepcopy=False)


@dataclass(frozen=True)
class StudySnapshot(StudyResult):
    """A study whose trials are read once, even if a search continues: a report asks for them many times."""

    @cached_property
    def records(self) -> StudyRecords:
        return StudyRecords(self.spec, self.all_trials)


def load_result(workspace: Workspace, name: str) -> StudyResult:
    """A study that was searched before. Raises `StorageError` where there is none of that name."""
    study = studies.find_study(workspace, name).study
    spec = stored_spec(name, study.user_attrs[studies.SPEC])
    spec = spec.in_folder(study.user_attrs.get(studies.SPACE_FOLDER))
    study.pruner = make_pruner(spec)  # Optuna stores none, and only this one knows the brackets
    study.study_name = spec.name  # the one it was born with, by which the pruner gives out brackets
    return StudyResult(name, study, spec, workspace)


def space_of(workspace: Workspace, name: str) -> Spec:
    """The space that a study holds, under the study's present name.

    Raises `StorageError` where there is no such study, or another program made it.
    """
    database = open_storage(workspace.url)
    attrs = studies.attrs_of(database, name)
    if attrs is None:
        studies.load_study(database, name)  # raises, with the nearest name
    if attrs is None or studies.SPEC not in attrs:
        told = f'the study "{name}" was made by another program; hpsearch knows nothing of its space'
        raise StorageError(told)
    spec = stored_spec(name, attrs[studies.SPEC]).in_folder(attrs.get(studies.SPACE_FOLDER))
    return spec.model_copy(update={"name": name})


def backend_of(workspace: Workspace, name: str) -> str:
    """The backend that a study was begun with, or is to begin with."""
    database = open_storage(workspace.url)
    attrs = studies.attrs_of(database, name) or {}
    wanted = read_wanted(database, name)
    begun = attrs.get(studies.PROVENANCE, {}).get("backend")
    named: str = begun or (wanted and wanted.backend) or "optuna"
    return named


def stored_spec(name: str, stored: dict[str, Any]) -> Spec:
    """The space that a study holds. Raises `StorageError` where it is none."""
    try:
        return Spec.from_json(stored)
    except SpaceError as error:
        raise StorageError(f'the study "{name}" holds a space that is none: {error.issues[0]}') from error
