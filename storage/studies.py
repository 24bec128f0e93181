"""Finds, makes and deletes studies. What hpsearch knows of a study stands in its user attributes."""

from __future__ import annotations

import difflib
import itertools
import shutil
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial

from . import StorageError
from .attributes import (
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
from .database import open_storage, readable, resolve_url
from .files import has_trials, remove_folder, runs_folder, study_folder
from .live import COMMAND, Command, LiveStorage
from .states import confirms, state_of

SPEC = "hpsearch:spec"  # the space file as resolved, plain JSON
PROVENANCE = "hpsearch:provenance"  # versions, commit, backend, start
ELAPSED = "hpsearch:elapsed_seconds"  # searched so far, over all resumes
TEXTS = "hpsearch:texts"  # the SHA-256 of each text that it trains on, by its path
FOLDER = "hpsearch:folder"  # the name of its folder under runs
MEMORY = "hpsearch:memory"  # what trials take of this machine's memory, as far as it was measured
PAUSED = "hpsearch:paused"  # whether its search waits to be resumed
_KINDS = {
    SPEC: mapping_with(
        name=is_text,
        metric=is_text,
        budget=mapping_with(trials=lambda value: value is None or is_count(value)),
    ),
    PROVENANCE: mapping_with(
        backend=is_text,
        threads=is_a(int, type(None)),
        started=is_text,
        git_commit=is_text_or_none,
        versions=is_a(dict),
        space=is_text_or_none,
    ),
    ELAPSED: is_seconds,
    TEXTS: lambda value: type(value) is dict and all(map(is_text, value.values())),
    FOLDER: is_text,  # `study_folder` makes a name of whatever it is
    MEMORY: is_a(dict, type(None)),
    PAUSED: is_a(bool),
}
ANSWER_SECONDS = 10.0  # for a driver to take a command; it looks several times a second


@dataclass(frozen=True)
class Found:
    """A study that hpsearch searched, and where it is kept."""

    study: optuna.Study
    url: str = field(repr=False)  # of its database; it may hold a password
    runs: Path  # where the studies of that database keep their files
    folder: str  # the name of this study's among them


@dataclass(frozen=True)
class StudySummary:
    """A line of `hpsearch list`."""

    name: str
    folder: str  # the name of its folder under runs
    metric: str
    direction: str
    best: float | None
    states: dict[str, int]
    ended: int  # trials of the search that are over
    confirming: int  # trainings that confirm its best
    budget: int | None
    paused: bool


def open_live(
    database: RDBStorage, name: str, *, goal: Literal["minimize", "maximize"], attrs: dict[str, Any]
) -> LiveStorage:
    """The study `name` in the driver's memory; made, with `attrs` as its user attributes, if missing.

    Raises `StorageError` where a study of that name holds another program's trials, or another search has it,
    and `DatabaseUnavailable` where the database cannot be used now.
    """
    with readable(), readable_rows(f'the study "{name}"'):
        born = _make(database, name, goal, attrs)
        live = LiveStorage(database, name, born=born, identity=PROVENANCE)
        try:
            check_study(name, live.attrs)
            study = live.get_study_id_from_name(live.born)
            check_trials(name, live.get_all_trials(study, deepcopy=False))
        except BaseException:
            live.close()
            raise
        return live


def folder_of(database: BaseStorage, name: str) -> str | None:
    """The name of a study's folder under `runs`, whatever another program calls the study since it began.

    None where there is no such study. Raises `DatabaseUnavailable` where the database cannot be read now.
    """
    attrs = attrs_of(database, name)
    return None if attrs is None else folder_in(attrs, name)


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
        found: dict[str, Any] = database.get_study_user_attrs(row)
    check_study(name, found)
    return found


def folder_in(attrs: Mapping[str, Any], name: str) -> str:
    """The name of the folder of a study with these attributes, which is called `name` now."""
    found: str = attrs.get(FOLDER) or attrs.get(SPEC, {}).get("name", name)
    return found


def folder_to_begin_with(name: str, runs: Path) -> str:
    """The name for a new study's folder: the study's, unless another study has files there.

    That may be one that was renamed, one in another database, or one whose database is gone.
    """
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(found for found in names if not has_trials(study_folder(runs, found)))


def folder_of_its_own(database: RDBStorage, name: str, runs: Path) -> str | None:
    """The name of a study's folder, where that is an older study's too of a new one with the same files.

    Optuna's `copy_study` copies the attribute that tells it, and two studies would write into one folder.
    None where there is no such study. Raises `DatabaseUnavailable` where the database cannot be used now.
    """
    folder = folder_of(database, name)
    if folder is None:
        return None
    with readable():
        mine = database.get_study_id_from_name(name)
        others = [database.get_study_id_from_name(other) for other in sharing_folder(database, name)]
        if not any(other < mine for other in others):
            return folder
        found = folder_to_begin_with(name, runs)
        if has_trials(study_folder(runs, folder)):
            shutil.copytree(study_folder(runs, folder), study_folder(runs, found), dirs_exist_ok=True)
        database.set_study_user_attr(mine, FOLDER, found)
    return found


def _make(
    database: RDBStorage, name: str, goal: Literal["minimize", "maximize"], attrs: dict[str, Any]
) -> str:
    """Make the study where it is missing; the name it was born with."""
    study = optuna.create_study(study_name=name, storage=database, direction=goal, load_if_exists=True)
    if SPEC not in study.user_attrs:
        if study.get_trials(deepcopy=False) or [d.name.lower() for d in study.directions] != [goal]:
            raise StorageError(f'the study "{name}" was made by another program; choose another --name')
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names([attrs[SPEC]["metric"]])
        for key, value in attrs.items():  # the spec last: a study that has it is whole
            study.set_user_attr(key, value)
    born: str = (study.user_attrs.get(SPEC) or attrs.get(SPEC, {})).get("name", name)
    return born


def load_study(storage: BaseStorage, name: str) -> optuna.Study:
    """The study `name`, as Optuna loads it.

    Raises `StorageError` with the nearest name where it is missing.
    """
    names = optuna.get_all_study_names(storage)
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        hint = (
            f', did you mean "{near[0]}"?' if near else f"; there are: {', '.join(sorted(names)) or 'none'}"
        )
        raise StorageError(f'there is no study "{name}"{hint}')
    return optuna.load_study(study_name=name, storage=storage)


def quiet_optuna() -> None:
    """Leave the talking to us: Optuna's own lines would stand between those of the progress."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def check_study(name: str, attrs: Mapping[str, Any]) -> None:
    """Raise `StorageError` where an attribute of a study is nothing that hpsearch writes."""
    check(f'the study "{name}"', attrs, _KINDS)


def find_study(name: str, *, storage: str | None = None, runs: str | Path | None = None) -> Found:
    """The study `name` of the database that is meant by `storage`.

    Raises `StorageError` where there is none, or another program made it.
    """
    quiet_optuna()
    url = resolve_url(storage)
    database = optuna.storages.get_storage(open_storage(url))
    with readable_rows(f'the study "{name}"'):
        study = load_study(database, name)
        attrs, trials = study.user_attrs, study.get_trials(deepcopy=False)
    check_study(name, attrs)
    if SPEC not in attrs:
        raise StorageError(
            f'the study "{name}" was made by another program; hpsearch knows nothing of its space'
        )
    check_trials(name, trials)
    return Found(study, url, runs_folder(url, runs), folder_in(attrs, name))


def trial_of(study: optuna.Study, number: int) -> FrozenTrial:
    """The trial of a number. Raises `StorageError` with the numbers there are."""
    trials = study.get_trials(deepcopy=False)
    if 0 <= number < len(trials):
        return trials[number]
    there = f"they go from 0 to {len(trials) - 1}" if trials else "it has none yet"
    raise StorageError(f"the study has no trial {number}; {there}")


def summaries(storage: BaseStorage) -> list[StudySummary]:
    """All studies of the database, hpsearch's and others'."""
    found = []
    for study in _every(storage):
        with readable_rows(f'the study "{study.study_name}"'):
            trials = storage.get_all_trials(study._study_id, deepcopy=False)
        if SPEC in study.user_attrs:
            check_trials(study.study_name, trials)
        directions = [direction.name.lower() for direction in study.directions]
        complete = [t.values for t in trials if t.state.name == "COMPLETE" and confirms(t) is None]
        values = [found[0] for found in complete if found and len(directions) == 1]  # else none is the best
        spec = study.user_attrs.get(SPEC, {})
        best = max if directions == ["maximize"] else min
        found.append(
            StudySummary(
                name=study.study_name,
                folder=folder_in(study.user_attrs, study.study_name),
                metric=spec.get("metric", "value"),
                direction=", ".join(directions),
                best=best(values, default=None),
                states=dict(Counter(map(state_of, trials))),
                ended=sum(t.state.is_finished() and confirms(t) is None for t in trials),
                confirming=sum(confirms(t) is not None for t in trials),
                budget=spec.get("budget", {}).get("trials"),
                paused=bool(study.user_attrs.get(PAUSED)),
            )
        )
    return found


def _every(database: BaseStorage) -> list[optuna.study.StudySummary]:
    """All studies, as Optuna tells them; what their attributes are is known."""
    with readable_rows("the studies of the database"):
        found = optuna.get_all_study_summaries(database, include_best_trial=False)
    for study in found:
        if SPEC in study.user_attrs:
            check_study(study.study_name, study.user_attrs)
    return found


def command(study: optuna.Study, asked: Command) -> bool:
    """Ask the driver of a study for something; whether it took the command within a few seconds."""
    key = f"{COMMAND}{uuid.uuid4().hex}"
    study.set_user_attr(key, {name: value for name, value in asdict(asked).items() if value is not None})
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        time.sleep(0.1)
        if key not in study.user_attrs:
            return True
    return False


def sharing_folder(database: BaseStorage, name: str) -> list[str]:
    """The other studies whose files are in the folder of this one: a copy has those of its original."""
    every = _every(database)
    folders = {study.study_name: folder_in(study.user_attrs, study.study_name) for study in every}
    return sorted(other for other in folders if other != name and folders[other] == folders.get(name))


def delete_study(database: RDBStorage, name: str, *, runs: Path, files: bool) -> None:
    """Delete the study and, where `files` is set, its folder under `runs`."""
    load_study(database, name)
    folder = study_folder(runs, folder_of(database, name) or name)
    optuna.delete_study(study_name=name, storage=database)
    if files:
        remove_folder(folder)
