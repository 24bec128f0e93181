"""A study knows what it searches and the texts that its trials train on, and goes on with no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest

from hpsearch.search import run
from hpsearch.search.errors import SearchError
from hpsearch.search.preflight.objective import texts_of
from hpsearch.storage.studies import SPEC, TEXTS

from ...support.watchers import Recorder

LINES = "".join(f"line {n} of a small text\n" for n in range(400))


@pytest.fixture
def spec(make_spec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text(LINES)
    parameters = {
        "learning_rate": {"min": 1e-4, "max": 1e-2, "log": True},
        "batch_size": 2,
        "train_file": "mine.txt",
        "max_samples": 8,
        "eval_every": 2,
        "max_length": 16,
        "eval_samples": 2,
        "device": "cpu",
    }
    return make_spec(objective="lora", metric="val_loss", parameters=parameters, budget={"trials": 1})


def test_a_text_that_was_edited_under_a_study_is_refused(spec: Any, tmp_path: Path) -> None:
    storage = str(tmp_path / "s.db")
    result = run(spec, storage=storage, watcher=Recorder())
    assert result.study.user_attrs[TEXTS] == texts_of(spec) and len(texts_of(spec)["mine.txt"]) == 64
    more = spec.override(budget={"trials": 2})
    (tmp_path / "mine.txt").write_text(LINES + "and one more\n")
    with pytest.raises(SearchError, match=r"mine\.txt: changed since the study \"study\" began"):
        run(more, storage=storage, watcher=Recorder())
    (tmp_path / "mine.txt").write_text(LINES)
    assert run(more, storage=storage, watcher=Recorder()).ran == 1


def test_a_folder_is_known_by_its_files_and_their_names(make_spec: Any, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    (folder / "inner").mkdir(parents=True)
    (folder / "a.txt").write_text("one")
    (folder / "inner" / "b.txt").write_text("two")
    spec = make_spec(objective="lora", parameters={"train_file": [str(folder), "english"]})
    before = texts_of(spec)
    assert list(before) == [str(folder)], "what Python carries is the same everywhere"
    (folder / "a.txt").rename(folder / "c.txt")
    renamed = texts_of(spec)
    (folder / "c.txt").rename(folder / "a.txt")
    (folder / "inner" / "b.txt").write_text("owt")
    edited = texts_of(spec)
    assert len({*before.values(), *renamed.values(), *edited.values()}) == 3


def test_a_study_of_a_version_that_knew_fewer_fields_goes_on(spec: Any, tmp_path: Path) -> None:
    stopping = {"method": "asha", "min": 2, "max": 8}
    before = spec.override(early_stopping=stopping)
    storage = str(tmp_path / "s.db")
    result = run(before, storage=storage, watcher=Recorder())
    stored = result.study.user_attrs[SPEC]
    del stored["early_stopping"]["type"], stored["confirm"]
    database = optuna.load_study(study_name="study", storage=f"sqlite:///{storage}")
    database.set_user_attr(SPEC, stored)
    more = before.override(budget={"trials": 2})
    assert run(more, storage=storage, watcher=Recorder()).ran == 1
    promoting = more.override(early_stopping=stopping | {"type": "promotion"})
    with pytest.raises(SearchError, match=r'early_stopping\.type: "stopping" -> "promotion"'):
        run(promoting, storage=storage, watcher=Recorder())


def test_of_a_function_of_the_user_s_no_text_is_known(make_spec: Any) -> None:
    assert texts_of(make_spec(parameters={"x": [1, 2], "train_file": "mine.txt"})) == {}
    assert (
        texts_of(make_spec(objective="lora", parameters={"lora_r": [4, 8], "train_file": "not there.txt"}))
        == {}
    )
