"""Studies are found, listed, made and deleted in a real database."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from hpsearch.storage import StorageError
from hpsearch.storage.database import Tables, open_storage, open_tables
from hpsearch.storage.files import study_folder
from hpsearch.storage.provenance import git_commit, versions
from hpsearch.storage.studies import (
    SPEC,
    claim_on,
    delete_study,
    load_study,
    open_live,
    sharing_folder,
    summaries,
)
from hpsearch.storage.trial_attrs import AT_RUNG, CONFIRMS, CONFIRMS_SEED
from hpsearch.storage.workspace import Workspace

SPEC_OF = {"name": "lora", "metric": "val_loss", "budget": {"trials": 40}}


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[optuna.storages.RDBStorage]:
    opened = open_storage(f"sqlite:///{tmp_path / 'a.db'}", create=True)
    yield opened
    opened.engine.dispose()


def test_a_study_is_made_once_and_found_again(storage: optuna.storages.RDBStorage) -> None:
    live = open_live(storage, "lora", goal="maximize", attrs={"a": 1, SPEC: SPEC_OF})
    optuna.load_study(study_name="lora", storage=live).ask()
    live.flush()
    again = open_live(storage, "lora", goal="maximize", attrs={"a": 2, SPEC: SPEC_OF})
    study = optuna.load_study(study_name="lora", storage=again)
    assert study.user_attrs == {"a": 1, SPEC: SPEC_OF}
    assert (study.direction.name, study.metric_names, len(study.trials)) == ("MAXIMIZE", ["val_loss"], 1)


def test_a_half_created_study_is_completed(storage: optuna.storages.RDBStorage) -> None:
    optuna.create_study(study_name="lora", storage=storage).set_user_attr("a", 0)
    live = open_live(storage, "lora", goal="minimize", attrs={"a": 1, SPEC: SPEC_OF})
    assert live.attrs == {"a": 1, SPEC: SPEC_OF}


@pytest.mark.parametrize("directions", [["maximize"], ["minimize", "minimize"]])
def test_an_empty_study_of_other_directions_is_not_ours(
    storage: optuna.storages.RDBStorage, directions: list[Any]
) -> None:
    optuna.create_study(study_name="lora", storage=storage, directions=directions)
    with pytest.raises(StorageError, match="made by another program; choose another name"):
        open_live(storage, "lora", goal="minimize", attrs={SPEC: SPEC_OF})


def test_a_missing_study_is_answered_with_the_nearest_or_with_all(
    storage: optuna.storages.RDBStorage,
) -> None:
    with pytest.raises(StorageError, match='no study "lora"; there are: none'):
        load_study(storage, "lora")
    optuna.create_study(study_name="lora", storage=storage)
    with pytest.raises(StorageError, match='no study "lara", did you mean "lora"'):
        load_study(storage, "lara")
    with pytest.raises(StorageError, match='no study "pretrain"; there are: lora'):
        load_study(storage, "pretrain")
    assert load_study(storage, "lora").study_name == "lora"


def test_all_studies_are_listed_whatever_program_made_them(storage: optuna.storages.RDBStorage) -> None:
    ours = optuna.create_study(study_name="ours", storage=storage, direction="maximize")
    ours.set_user_attr(SPEC, SPEC_OF)
    for value in (1.0, 3.0, 2.0):
        ours.tell(ours.ask(), value)
    again = ours.trials[1]
    again.value = 9.0  # of the same configuration with another seed
    again.set_user_attr(CONFIRMS, 1)
    again.set_user_attr(CONFIRMS_SEED, 0)
    ours.add_trial(again)
    ours.ask()
    theirs = optuna.create_study(study_name="theirs", storage=storage, directions=["minimize", "maximize"])
    theirs.tell(theirs.ask(), [1.0, 2.0])
    found = {s.name: s for s in summaries(storage)}
    assert (found["ours"].metric, found["ours"].best, found["ours"].budget) == ("val_loss", 3.0, 40)
    assert found["ours"].states == {"complete": 4, "running": 1}
    assert (found["theirs"].best, found["theirs"].direction) == (None, "minimize, maximize")


def statements(database: Tables | optuna.storages.RDBStorage) -> int:
    """How many statements a list of its studies takes."""
    counted: list[str] = []
    sqlalchemy.event.listen(database.engine, "before_cursor_execute", lambda *told: counted.append(told[2]))
    summaries(database)
    return len(counted)


def test_a_list_takes_the_same_statements_whatever_there_is_and_reads_no_trial(
    storage: optuna.storages.RDBStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpsearch.storage.figures.read_trials", None)
    few = statements(open_tables(storage.url))
    for number in range(3):
        study = optuna.create_study(study_name=f"s{number}", storage=storage)
        study.set_user_attr(SPEC, SPEC_OF)
        for value in range(5):
            study.add_trial(optuna.create_trial(value=value, user_attrs={"epoch": 1}))
    tables = open_tables(storage.url)
    assert isinstance(tables, Tables)
    assert statements(tables) == few
    assert [(found.best, found.ended) for found in summaries(tables)] == [(0.0, 5)] * 3


def test_of_a_confirmed_study_only_the_trials_that_decide_are_read(
    storage: optuna.storages.RDBStorage,
) -> None:
    study = optuna.create_study(study_name="lora", storage=storage)
    study.set_user_attr(SPEC, SPEC_OF)
    for value in (3.0, 1.0, 2.0):
        study.add_trial(optuna.create_trial(value=value))
    for of, value in ((0, 5.0), (2, 4.0)):
        study.add_trial(optuna.create_trial(value=value, user_attrs={CONFIRMS: of, CONFIRMS_SEED: 0}))
    given: list[list[int]] = []

    def winner(name: str, spec: dict[str, Any], trials: list[FrozenTrial]) -> FrozenTrial | None:
        given.append([trial.number for trial in trials])
        assert (name, spec) == ("lora", SPEC_OF)
        return next((trial for trial in trials if trial.number == 2), None) if len(given) == 1 else None

    assert [summaries(storage, winner)[0].best for _ in range(2)] == [2.0, 1.0]
    assert given == [[3, 4, 0, 2]] * 2


def test_trials_are_read_as_optuna_reads_them_and_a_start_reads_those_of_no_other_study(
    storage: optuna.storages.RDBStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    goals = (("low", StudyDirection.MINIMIZE, -math.inf), ("high", StudyDirection.MAXIMIZE, math.inf))
    for name, direction, value in goals:
        study = optuna.create_study(study_name=name, storage=storage, direction=direction)
        study.set_user_attr(SPEC, SPEC_OF)
        for each in (1.0, value, 2.0):
            study.tell(study.ask(), each)
        study.ask().set_user_attr(AT_RUNG, 1)
        again = study.ask()
        again.set_user_attr(CONFIRMS, 0)
        again.set_user_attr(CONFIRMS_SEED, 0)
        study.tell(again, state=optuna.trial.TrialState.FAIL)
    read = storage.get_all_trials(1)
    assert read == optuna.storages.RDBStorage(storage.url).get_all_trials(1)
    assert storage.get_all_trials(1, states=(optuna.trial.TrialState.FAIL,)) == read[-1:]
    low, high = summaries(storage)
    assert (low.best, high.best) == (-math.inf, math.inf)
    assert low.states == {"complete": 3, "paused": 1, "fail": 1}
    assert (low.ended, low.confirming) == (3, 1)
    monkeypatch.setattr(type(storage), "_get_trials", None)
    assert sharing_folder(storage, "low") == ["high"]


def test_deleting_takes_the_files_only_where_asked(
    storage: optuna.storages.RDBStorage, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        optuna.create_study(study_name=name, storage=storage)
        study_folder(tmp_path, name).mkdir()
        claim = claim_on(storage, name, Workspace("postgresql://h/d", tmp_path))
        delete_study(storage, name, claim if name == "a" else None)
    assert not study_folder(tmp_path, "a").exists()
    assert study_folder(tmp_path, "b").exists()
    with pytest.raises(StorageError, match='no study "a"'):
        delete_study(storage, "a", None)


def test_provenance_names_versions_and_the_commit_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert versions()["optuna"] == optuna.__version__
    assert set(versions()) == {"python", "hpsearch", "optuna", "torch", "numpy"}
    assert git_commit(tmp_path) is None
    monkeypatch.setenv("PATH", "")
    assert git_commit(tmp_path) is None
