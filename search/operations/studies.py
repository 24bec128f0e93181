"""The studies of a workspace: list, delete, copy and back up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial

from ...storage import DatabaseUnavailable, StorageError, files, locks, studies, transfer
from ...storage import backup as backups
from ...storage.claims import Claim
from ...storage.database import Tables, open_storage, open_tables
from ...storage.passwords import hidden
from ...storage.studies import StudySummary
from ...storage.workspace import Workspace
from ..errors import UsageError
from ..values import Value
from .outputs import check_free


@dataclass(frozen=True)
class ListedStudy(StudySummary, Value):
    """A study in a list; `best` is the value of the winner, which may have been confirmed."""

    searching: int | None = None  # the process that searches it now


@dataclass(frozen=True)
class Studies(Value):
    """The studies of a workspace, in the order they were made."""

    studies: tuple[ListedStudy, ...]

    def to_json(self) -> Any:
        return [study.to_json() for study in self.studies]

    @classmethod
    def from_json(cls, data: Any) -> Self:
        return super().from_json({"studies": data})

    @classmethod
    def shape(cls) -> Any:
        return list[ListedStudy]


@dataclass(frozen=True)
class Deletion(Value):
    """What a deletion took away, or would take."""

    study: str
    trials: int
    folder: Path | None  # the folder of its files that goes with it; None where that stays, or is not there
    files_stay: str | None = None  # why its files stay, though they were to go
    left: str | None = None  # that the folder is still there, though it was to go, and why


@dataclass(frozen=True)
class CopiedStudy(transfer.Copied, Value):
    """What was copied of a study."""


@dataclass(frozen=True)
class BackedUp(backups.Backup, Value):
    """A backup, and what it holds."""

    file: Path = Path()


def list_studies(*, workspace: Workspace, state: str | None = None) -> Studies:
    """List the studies of a workspace, those of other programs too; or those in a state of the queue."""
    tables = open_tables(workspace.url)
    inside = None if state is None else _in_state(workspace, tables, state)
    found = studies.summaries(tables, _winner)
    return Studies(
        tuple(_listed(workspace, study) for study in found if inside is None or study.name in inside)
    )


def listed_study(workspace: Workspace, name: str) -> ListedStudy | None:
    """One study, as the list has it; None where there is no such study."""
    found = studies.summary_of(open_tables(workspace.url), name, _winner)
    return None if found is None else _listed(workspace, found)


def _listed(workspace: Workspace, study: StudySummary) -> ListedStudy:
    searching = locks.driver_running(workspace, study.folder) if study.folder else None
    return ListedStudy(**vars(study), searching=searching)


def _in_state(workspace: Workspace, tables: Tables | RDBStorage, state: str) -> set[str]:
    """The names of the studies that are in a state as the queue has it."""
    from ..queue.observe import observe
    from ..queue.states import state_of

    names = studies.study_keys(tables)
    return {each.name for each in observe(workspace, tables, names=names) if state_of(each).state == state}


def _winner(study: str, spec: dict[str, Any], trials: list[FrozenTrial]) -> FrozenTrial | None:
    """The trial that won as it was confirmed, rather than the luckiest."""
    from ..results.confirmation import confirmed_winner  # loads what studies that confirmed nothing spare
    from ..results.study import stored_spec
    from ..trials.records import StudyRecords

    winner = confirmed_winner(StudyRecords(stored_spec(study, spec), trials))
    return None if winner is None else winner.trial


def delete(*, workspace: Workspace, study: str, keep_files: bool = False, dry_run: bool = False) -> Deletion:
    """Delete a study with its trials and their files; a `dry_run` only says what would go.

    Files stay where they may be another study's. Raises `StorageError` where the study is searched now.
    """
    opened = open_storage(workspace.url)
    count = studies.count_trials(opened, study)
    stays = None
    try:
        claim = studies.claim_on(opened, study, workspace)
    except DatabaseUnavailable:
        raise
    except StorageError as error:  # a damaged one can be deleted, too
        stays = f"{error}; its files stay"
        claim = Claim(workspace, study, "")
    place = claim.folder
    if others := studies.sharing_folder(opened, study):
        stays = f"its files stay in {place}: they are those of {', '.join(others)} too"
    elif not keep_files and stays is None and not claim.is_ours():
        stays = f"{place} stays: it is another study's"
    goes = place.is_dir() and not keep_files and stays is None
    left = None
    with locks.driver_lock(workspace, claim.kept):
        if not dry_run:
            studies.delete_study(opened, study, claim if goes else None)
            reason = files.why_left(place) if goes else None
            left = reason and f"{place} is left: {reason}"
    return Deletion(study, count, place if goes and left is None else None, stays, left)


def copy(*, workspace: Workspace, study: str, to: Workspace) -> CopiedStudy:
    """Copy a study to another database with all its trials and files; the original stays.

    Every row is compared with its original before the copy is kept. Raises `StorageError` where the other
    database has a study or files of that name.
    """
    return CopiedStudy(**vars(transfer.transfer(study, workspace, to)))


def backup(*, workspace: Workspace, output: Path | None = None, force: bool = False) -> BackedUp:
    """Copy a SQLite database into one file, as it is at this moment, while searches write to it.

    Without `output` the file is named after the database and the time. Raises `UsageError` where the file is
    there already, unless `force` is set, and for a server's database, which its own tools back up.
    """
    file = workspace.file
    if file is None:
        raise UsageError(
            f"{hidden(workspace.url)} is a server's: back it up with its own tools (pg_dump, mysqldump), "
            "or copy one study out of it (hpsearch copy)",
            code="server-database",
        )
    if output is None:
        output = file.with_name(f"{file.stem}-{datetime.now():%Y%m%d-%H%M%S}{file.suffix}")
    if not force:
        check_free(output)
    return BackedUp(**vars(backups.backup(file, output.absolute())), file=output)
