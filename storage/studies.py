"""Finds, makes and deletes studies. What hpsearch knows of a study stands in its user attributes."""

from __future__ import annotations

import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import optuna
import sqlalchemy
from optuna.storages import BaseStorage, RDBStorage
from optuna.study import StudyDirection
from optuna.study.study import _SYSTEM_ATTR_METRIC_NAMES
from optuna.trial import FrozenTrial, TrialState

from . import DatabaseUnavailable, StorageError, missing_study
from .attributes import (
    UNREADABLE,
    check,
    check_trials,
    is_a,
    is_count,
    is_seconds,
    is_text,
    is_text_or_none,
    mapping_with,
    readable_rows,
)
from .claims import ID as ID
from .claims import Claim, Owner, claim_new
from .damage import readable
from .database import Tables, open_storage
from .figures import StudyFigures, decisive_trials, member, study_figures, value_of
from .files import copied_files, has_files, has_trials, remove_folder, study_folder
from .live import LiveStorage
from .rows import (
    STUDIES,
    STUDY_SYSTEM,
    STUDY_USER,
    TRIALS,
    insert_study,
    write_attrs,
)
from .wanted import WANTED, is_wanted
from .workspace import Workspace

SPEC = "hpsearch:spec"  # the space file as resolved, plain JSON
PROVENANCE = "hpsearch:provenance"  # versions, commit, backend, start
ELAPSED = "hpsearch:elapsed_seconds"  # searched so far, over all resumes
SPACE_FOLDER = "hpsearch:space_folder"  # of the space file, in which a user's objective has its files
TEXTS = "hpsearch:texts"  # the SHA-256 of each text that it trains on, by its path
FOLDER = "hpsearch:folder"  # the name of its folder under runs
MEMORY = "hpsearch:memory"  # what trials take of this machine's memory, as far as it was measured
PHASE = "hpsearch:phase"  # of its search: a `Phase`
PAUSED = "hpsearch:paused"  # whether its search waits to be resumed
LEASES_LOST = "hpsearch:leases_lost"  # how often a remote worker was silent for too long


class Phase(StrEnum):
    """What a search does. A failed trial that is retried takes it back to an earlier phase."""

    SEARCHING = "searching"
    AUDITING = "auditing"  # trials of the audit run to their end
    CONFIRMING = "confirming"  # the best trials are trained again with new seeds
    OVER = "over"


_KINDS = {
    SPEC: mapping_with(
        name=is_text,
        metric=is_text,
        budget=mapping_with(trials=lambda value: value is None or is_count(value)),
    ),
    PROVENANCE: mapping_with(
        backend=is_text,
        threads=is_a(int, type(None)),
        gpus=is_a(int, float, type(None)),
        started=is_text,
        git_commit=is_text_or_none,
        versions=is_a(dict),
        space=is_text_or_none,
    ),
    ELAPSED: is_seconds,
    SPACE_FOLDER: is_text,
    TEXTS: lambda value: type(value) is dict and all(map(is_text, value.values())),
    ID: is_text,
    FOLDER: is_text,  # `study_folder` makes a name of whatever it is
    MEMORY: is_a(dict, type(None)),
    PHASE: lambda value: value in tuple(Phase),
    PAUSED: is_a(bool),
    LEASES_LOST: is_count,
    WANTED: is_wanted,
}
Winner = Callable[[str, dict[str, Any], list[FrozenTrial]], FrozenTrial | None]


@dataclass(frozen=True)
class StoredStudy:
    """A study that hpsearch searched, and where it is kept."""

    study: optuna.Study
    workspace: Workspace
    folder: str  # the name of its folder under the workspace's runs


@dataclass(frozen=True)
class StudySummary:
    """What the database says of a study."""

    name: str
    folder: str | None = None  # the name of its folder under runs
    metric: str = ""
    direction: str = ""
    best: float | None = None
    states: dict[str, int] = field(default_factory=dict)
    ended: int = 0  # trials of the search that are over
    confirming: int = 0  # trainings that confirm its best
    budget: int | None = None
    paused: bool = False
    over: bool = False  # whether its search has nothing left to do
    unreadable: str | None = None  # why nothing else is known of it


def phase_of(attrs: Mapping[str, Any]) -> Phase:
    """The phase of a study's search, or the last one it was in."""
    return Phase(attrs.get(PHASE, Phase.SEARCHING))


def open_live(
    database: RDBStorage, name: str, *, goal: Literal["minimize", "maximize"], attrs: dict[str, Any]
) -> LiveStorage:
    """The study `name` in the driver's memory; made, with `attrs` as its user attributes, if missing.

    Raises `StorageError` where a study of that name holds another program's trials, or another search has it,
    and `DatabaseUnavailable` where the database cannot be used now.
    """
    with readable(), readable_rows(f'the study "{name}"'):
        born = _make(database, name, goal, attrs)
        live = LiveStorage(database, name, born=born, identity=ID)
        try:
            if live.attrs.get(ID) != attrs.get(ID, live.attrs.get(ID)):
                raise _begun_together(name)
            check_study(name, live.attrs)
            study = live.get_study_id_from_name(live.born)
            check_trials(name, live.get_all_trials(study, deepcopy=False))
        except BaseException:
            live.close()
            raise
        return live


def attrs_of(database: BaseStorage, name: str) -> dict[str, Any] | None:
    """The attributes of a study; None where there is no such study.

    Raises `DatabaseUnavailable` where the database cannot be read now.
    """
    try:
        with readable():
            row = database.get_study_id_from_name(name)
    except KeyError:
        return None
    with readable(), readable_rows(f'the study "{name}"'):
        attrs: dict[str, Any] = database.get_study_user_attrs(row)
    check_study(name, attrs)
    return attrs


def folder_in(attrs: Mapping[str, Any], name: str) -> str:
    """The name of the folder under `runs` of a study with these attributes, which is called `name` now."""
    folder: str = attrs.get(FOLDER) or attrs.get(SPEC, {}).get("name", name)
    return folder


def claim_of(database: RDBStorage, name: str, workspace: Workspace) -> Claim:
    """The folder for the files of a study, which may have to be made yet, in the workspace of `database`.

    It is taken already where it is a new one: of a new study, or of one whose folder is another's. A copy of
    a study gets copies of its files. Any other folder is to be taken under the study's lock.

    Raises `DatabaseUnavailable` where the database cannot be used now.
    """
    attrs = attrs_of(database, name)
    if attrs is None or not {FOLDER, SPEC} & attrs.keys():
        return claim_new(workspace, name)
    claim = claim_on(database, name, workspace)
    keys = study_keys(database)
    is_copy = any(keys[other] < keys[name] for other in sharing_folder(database, name))
    if not is_copy and (claim.is_ours() or not has_trials(claim.folder)):
        return claim
    owner = Owner.of(claim.folder)
    is_copy |= owner is not None and owner.study == attrs.get(ID)
    with ExitStack() as undo:
        moved = undo.enter_context(claim_new(workspace, name))
        copies = is_copy and has_files(claim.folder)
        with copied_files(claim.folder, moved.folder) if copies else nullcontext():
            _move(database, name, keys[name], attrs, {FOLDER: moved.kept, ID: moved.study})
        undo.pop_all()  # it stays taken
    return moved


def claim_on(database: RDBStorage, name: str, workspace: Workspace) -> Claim:
    """The claim of a study on the folder that its attributes name. Raises `DatabaseUnavailable`."""
    attrs = attrs_of(database, name) or {}
    kept = folder_in(attrs, name)
    return Claim(workspace, kept, attrs.get(ID) or _id_for(database, workspace, kept))


def _id_for(database: RDBStorage, workspace: Workspace, kept: str) -> str:
    """An id for a study without one: that of its folder's claim, where this database has no such study.

    That one began here and was ended before its id was written, or the database was put back from a backup.
    """
    owner, file = Owner.of(study_folder(workspace.runs, kept)), workspace.file
    if owner is None or owner.database != (file and file.resolve()):
        return uuid.uuid4().hex
    same = STUDY_USER.c.key == ID, STUDY_USER.c.value_json == json.dumps(owner.study)
    with readable(), database.engine.connect() as connection:
        known = connection.scalar(sqlalchemy.select(STUDY_USER.c.study_id).where(*same))
    return owner.study if known is None else uuid.uuid4().hex


def _move(database: RDBStorage, name: str, row: int, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Give a study another folder and id, unless another process has just done so."""
    with readable(), database.engine.begin() as connection:
        folder = STUDY_USER.c.study_id == row, STUDY_USER.c.key == FOLDER
        as_read = STUDY_USER.c.value_json == json.dumps(old.get(FOLDER))
        if FOLDER in old and not connection.execute(STUDY_USER.delete().where(*folder, as_read)).rowcount:
            raise _begun_together(name)
        write_attrs(connection, STUDY_USER, {"study_id": row}, new, {})


def study_keys(database: RDBStorage | Tables) -> dict[str, int]:
    """The names of all studies in the order they were made, with their keys, whatever else is in their rows.

    Raises `DatabaseUnavailable` where the database cannot be read now.
    """
    query = sqlalchemy.select(STUDIES.c.study_name, STUDIES.c.study_id).order_by(STUDIES.c.study_id)
    with readable(), database.engine.connect() as connection:
        return {name: row for name, row in connection.execute(query)}


def _make(
    database: RDBStorage, name: str, goal: Literal["minimize", "maximize"], attrs: dict[str, Any]
) -> str:
    """Make the study where it is missing, or nobody has begun it; the name it was born with."""
    row = study_keys(database).get(name)
    stored: dict[str, Any] = {} if row is None else database.get_study_user_attrs(row)
    begins = SPEC not in stored
    made = PROVENANCE not in stored  # at most: it may have been made without being searched
    empty = row is None or (made and not database.get_all_trials(row, deepcopy=False))
    if row is not None and begins:
        directions = [direction.name.lower() for direction in database.get_study_directions(row)]
        if not empty or directions != [goal]:
            message = f'the study "{name}" was made by another program; choose another name'
            raise StorageError(message, code="name-taken")
    lacks = (attrs.keys() if empty else {ID}) - stored.keys()
    new = {key: value for key, value in attrs.items() if begins or key in lacks}
    try:
        with readable(), database.engine.begin() as connection:
            if row is None:
                row = insert_study(connection, name, StudyDirection[goal.upper()])
            key = {"study_id": row}
            if ID in new:  # before the rest: of two that begin together, one adds it
                value = json.dumps(new.pop(ID))
                connection.execute(STUDY_USER.insert(), [key | {"key": ID, "value_json": value}])
            if begins:
                metric = {_SYSTEM_ATTR_METRIC_NAMES: [attrs[SPEC]["metric"]]}
                write_attrs(connection, STUDY_SYSTEM, key, metric, {})
            write_attrs(connection, STUDY_USER, key, new, {})
    except sqlalchemy.exc.IntegrityError as error:
        raise _begun_together(name) from error
    born: str = (stored.get(SPEC) or attrs.get(SPEC, {})).get("name", name)
    return born


def _begun_together(name: str) -> StorageError:
    return StorageError(
        f'another search began the study "{name}" at the same moment; wait for it, or end it (hpsearch stop)',
        code="study-busy",
    )


def load_study(storage: RDBStorage, name: str) -> optuna.Study:
    """The study `name`, as Optuna loads it.

    Raises `StorageError` with the nearest name where it is missing.
    """
    names = study_keys(storage)
    if name not in names:
        raise missing_study(name, names)
    return optuna.load_study(study_name=name, storage=storage)


def count_trials(database: RDBStorage, name: str) -> int:
    """How many trials a study has, whatever is in them. Raises `StorageError` where there is none."""
    load_study(database, name)
    count = sqlalchemy.select(sqlalchemy.func.count()).select_from(TRIALS.join(STUDIES))
    with readable(), database.engine.connect() as connection:
        return connection.scalar(count.where(STUDIES.c.study_name == name)) or 0


def quiet_optuna() -> None:
    """Leave the talking to us: Optuna's own lines would stand between those of the progress."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def check_study(name: str, attrs: Mapping[str, Any]) -> None:
    """Raise `StorageError` where an attribute of a study is not one that hpsearch could have written."""
    check(f'the study "{name}"', attrs, _KINDS)


def find_study(workspace: Workspace, name: str) -> StoredStudy:
    """The study `name` of a workspace.

    Raises `StorageError` where there is none, or another program made it.
    """
    quiet_optuna()
    database = open_storage(workspace.url)
    with readable_rows(f'the study "{name}"'):
        study = load_study(database, name)
        attrs, trials = study.user_attrs, study.get_trials(deepcopy=False)
    check_study(name, attrs)
    if SPEC not in attrs:
        raise StorageError(
            f'the study "{name}" was made by another program; hpsearch knows nothing of its space'
        )
    check_trials(name, trials)
    return StoredStudy(study, workspace, folder_in(attrs, name))


def trial_of(study: optuna.Study, number: int) -> FrozenTrial:
    """The trial of a number. Raises `StorageError` with the numbers there are."""
    trials = study.get_trials(deepcopy=False)
    if 0 <= number < len(trials):
        return trials[number]
    there = f"they go from 0 to {len(trials) - 1}" if trials else "it has none yet"
    raise StorageError(f"the study has no trial {number}; {there}", code="trial-missing")


def summaries(
    database: RDBStorage | Tables, winner: Winner = lambda name, spec, trials: None
) -> list[StudySummary]:
    """All studies of the database, hpsearch's and others'.

    `winner` decides which trial wins a study of this name and space, by the trials that confirm others and
    those that they confirm: no other trial is read.
    """
    names = study_keys(database)
    figures: dict[int, StudyFigures] | None = None
    with readable(), database.engine.connect() as connection:
        with suppress(StorageError), readable():  # a damaged page spoils some studies, which are then told
            figures = study_figures(connection, _KINDS)
        return [_summary(connection, name, row, figures, winner) for name, row in names.items()]


def summary_of(
    database: RDBStorage | Tables, name: str, winner: Winner = lambda name, spec, trials: None
) -> StudySummary | None:
    """One study of the database, as `summaries` has it; None where there is no such study."""
    key = study_keys(database).get(name)
    if key is None:
        return None
    with readable(), database.engine.connect() as connection:
        return _summary(connection, name, key, None, winner)


def _summary(
    connection: sqlalchemy.Connection,
    name: str,
    row: int,
    all_figures: dict[int, StudyFigures] | None,
    winner: Winner,
) -> StudySummary:
    try:
        figures = (all_figures or study_figures(connection, _KINDS, row))[row]
        check("a study", {"its name": name}, {"its name": is_text})
        with readable_rows(f'the study "{name}"'):
            attrs = {key: json.loads(text) for key, text in figures.attrs}
            directions = [member(StudyDirection, text).name.lower() for (text,) in figures.directions]
            if not directions:
                raise ValueError("it has no direction")
            ours = SPEC in attrs  # what is another program's says nothing by names of ours
            trials = [
                (member(TrialState, text), at, ours and again, n) for text, at, again, n in figures.trials
            ]
            extremes = [(kind, ends) for again, kind, *ends in figures.values if not (ours and again)]
            values = [value_of(kind, end) for kind, ends in extremes for end in ends]
            best = (max if directions == ["maximize"] else min)(values, default=None)
        if ours:
            check_study(name, attrs)
        states = Counter[str]()
        for state, at_rung, _, count in trials:
            states["paused" if at_rung and state == TrialState.RUNNING else state.name.lower()] += count
        confirming = sum(count for _, _, again, count in trials if again)
        if confirming:
            confirmed = winner(name, attrs[SPEC], decisive_trials(connection, name, row, states.total()))
            best = best if confirmed is None else confirmed.value
    except DatabaseUnavailable:
        raise
    except StorageError as error:
        return StudySummary(str(name), unreadable=str(error))
    spec = attrs.get(SPEC, {})
    return StudySummary(
        name=name,
        folder=folder_in(attrs, name),
        metric=spec.get("metric", "value"),
        direction=", ".join(directions),
        best=best if len(directions) == 1 else None,
        states=dict(states),
        ended=sum(count for state, _, again, count in trials if state.is_finished() and not again),
        confirming=confirming,
        budget=spec.get("budget", {}).get("trials"),
        paused=bool(attrs.get(PAUSED)),
        over=attrs.get(PHASE) == Phase.OVER,
    )


def sharing_folder(database: RDBStorage, name: str) -> list[str]:
    """The other studies whose files are in the folder of this one: a copy has those of its original."""
    query = sqlalchemy.select(STUDIES.c.study_name, STUDY_USER.c.key, STUDY_USER.c.value_json)
    attrs: dict[str, dict[str, Any]] = defaultdict(dict)
    with readable(), database.engine.connect() as connection:
        rows = connection.execute(query.join(STUDY_USER).where(STUDY_USER.c.key.in_([FOLDER, SPEC]))).all()
    for other, key, text in rows:
        with suppress(*UNREADABLE):  # what cannot be read tells no folder
            if _KINDS[key](value := json.loads(text)):
                attrs[other][key] = value
    folders = {other: folder_in(attrs[other], other) for other in study_keys(database)}
    return sorted(other for other in folders if other != name and folders[other] == folders.get(name))


def delete_study(database: RDBStorage, name: str, claim: Claim | None) -> None:
    """Delete the study and, where its folder is given and no other's by now, that too."""
    load_study(database, name)
    with claim or nullcontext():
        taken = False
        with suppress(StorageError):  # it cannot be written, nor can it be deleted then
            taken = claim is not None and claim.take()  # nobody begins in it meanwhile
        with readable():
            optuna.delete_study(study_name=name, storage=database)
        if claim is not None and taken:
            remove_folder(claim.folder)
