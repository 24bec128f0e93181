"""Odd names of studies: refused with a reason, or good for every command, and their files inside `runs`."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import optuna
import pytest
from optuna.storages import RDBStorage

from hpsearch.search import run
from hpsearch.search.cli import main
from hpsearch.search.service.dashboard import application
from hpsearch.search.training.run import default_folder
from hpsearch.search.trials.document import Document
from hpsearch.spaces import SpaceError, Spec
from hpsearch.storage.files import study_folder
from hpsearch.storage.studies import FOLDER, SPEC

REFUSED = [
    "../x",
    "a/b",
    "a\\b",
    "/etc",
    "",
    " ",
    "a\nb",
    "a\tb",
    "a\0b",
    "x" * 300,
    "-x",
    "--help",
    "a\x1b[31m",
    "‮x",
    "\udcff",
]
TAKEN = [
    "{}", "{0.__class__}", ".", "..", ".hidden", "CON", " space d ", "'\"", "$(touch x)", "%2e%2e", "a:b", "[red]x",
    "🚀 é 漢字", "~root", "x" * 200, "漢" * 200, "<script>alert(1)", "&?#|;*",
]  # fmt: skip
# What other programs may call their studies in a database of ours.
FOREIGN = ["", "../victim", "/", "a/../../victim", ".", "..", "\n", "a\nb", "{}", "-x", "x" * 300]

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command in a folder of the test: its exit code, its output, and its errors."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hpsearch", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return call


def content(**fields: Any) -> dict[str, Any]:
    return {
        "version": 1, "name": "s", "objective": "obj.py:train", "metric": "loss", "parameters": {"x": [1, 2]},
        "budget": {"trials": 1}, "execution": {"workers": 1},
    } | fields  # fmt: skip


@pytest.mark.parametrize("name", REFUSED, ids=repr)
def test_a_name_that_is_none_is_refused_at_its_line(name: str, cli: Call) -> None:
    with pytest.raises(SpaceError) as caught:
        Spec.from_json(content(name=name))
    assert [issue.path for issue in caught.value.issues] == ["name"]
    assert str(caught.value).isprintable(), "nothing that a terminal would obey"
    if "\udcff" in name:
        return  # no file holds half a character
    Path("s.yaml").write_text(json.dumps(content(name=name), indent=1), encoding="utf-8")
    code, _, errors = cli("run", "s.yaml")
    assert code == 2 and errors.startswith("s.yaml:3:10 name: ") and "Traceback" not in errors
    assert sorted(path.name for path in Path().iterdir()) == ["s.yaml"]


def test_a_name_by_the_command_line_is_held_to_the_same(cli: Call) -> None:
    Path("s.yaml").write_text(json.dumps(content()), encoding="utf-8")
    Path("obj.py").write_text("def train(trial): return 1.0\n")
    code, _, errors = cli("run", "s.yaml", "--name", "../x")
    assert code == 2 and "has a slash" in errors
    code, _, errors = cli("run", "s.yaml", "--name", "~7")
    assert code == 2 and "means the study of that number to a server; write 7 without ~" in errors
    assert not Path("hpsearch.db").exists()


def test_a_study_that_has_the_form_of_a_number_already_can_be_changed_and_renamed() -> None:
    old = Spec.from_json(content(name="~7"))
    assert old.override(budget={"trials": 2}).name == "~7"
    assert old.override(name="seven").name == "seven"
    for name in ("~7", "~99"):
        with pytest.raises(SpaceError, match="means the study of that number"):
            old.override(name=name)


@pytest.mark.slow
def test_odd_names_are_good_for_every_command(cli: Call, tmp_path: Path) -> None:
    """Searched for real once; the other studies have that one's files, as if they had been searched too."""
    Path("obj.py").write_text("def train(trial):\n    trial.report(1.0, step=1)\n    return 1.0\n")
    first = TAKEN[1]
    run(Spec.from_json(content(name=first)))
    storage = RDBStorage("sqlite:///hpsearch.db")
    for name in TAKEN:
        if name != first:
            optuna.copy_study(
                from_study_name=first, from_storage=storage, to_study_name=name, to_storage=storage
            )
            study = optuna.load_study(study_name=name, storage=storage)
            study.set_user_attr(SPEC, content(name=name))
            study.set_user_attr(FOLDER, name)
            shutil.copytree(study_folder(Path("runs"), first), study_folder(Path("runs"), name))
    assert len(list(Path("runs").iterdir())) == len(TAKEN)
    listed = cli("list", "--json")
    assert sorted(study["name"] for study in json.loads(listed[1])) == sorted(TAKEN)
    assert cli("list")[0] == 0
    for name in TAKEN:
        assert name in cli("show", name)[1]
        assert cli("show", name, "--trial", "0")[0] == 0
        exported = cli("export", name, "-o", "best.yaml", "--force")
        assert exported[0] == 0, exported
        assert json.loads(cli("best", name, "--json")[1])["value"] == 1.0
    app = application(storage, runs=Path("runs"))

    def get(path: str) -> tuple[str, bytes]:
        environ: dict[str, Any] = {"PATH_INFO": path, "HTTP_HOST": "localhost:8080"}
        setup_testing_defaults(environ)
        status: list[str] = []
        answer: Any = app(environ, lambda answer, headers, *_: status.append(answer))  # type: ignore[arg-type]
        body = b"".join(answer)
        getattr(answer, "close", lambda: None)()
        return status[0], body

    shown = json.loads(get("/api/studies")[1])["study_summaries"]
    assert sorted(study["study_name"] for study in shown) == sorted(TAKEN)
    for study in shown:
        number = study["study_id"]
        status, body = get(f"/api/studies/{number}")
        assert status == "200 OK"
        if study["study_name"] == first:
            trial = json.loads(body)["trials"][0]
            assert trial["artifacts"]
            for artifact in trial["artifacts"]:
                status, body = get(f"/artifacts/{number}/{trial['trial_id']}/{artifact['artifact_id']}")
                assert status == "200 OK" and body
    for left, name in enumerate(TAKEN):
        assert len(list(Path("runs").iterdir())) == len(TAKEN) - left
        code, _, errors = cli("delete", name, "--yes")
        assert code == 0, errors
    storage.engine.dispose()
    assert list(Path("runs").iterdir()) == [] and json.loads(cli("list", "--json")[1]) == []
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


@pytest.mark.parametrize("name", FOREIGN, ids=repr)
def test_deleting_another_programs_study_deletes_nothing_else(cli: Call, tmp_path: Path, name: str) -> None:
    storage = RDBStorage("sqlite:///hpsearch.db")
    optuna.create_study(study_name=name, storage=storage)
    storage.engine.dispose()
    for kept in (
        tmp_path / "victim",
        tmp_path / "here" / "victim",
        tmp_path / "here" / "runs" / "other" / "0",
    ):
        kept.mkdir(parents=True)
        (kept / "precious").touch()
    assert cli("list")[0] == 0
    code, _, errors = cli("delete", "--yes", "--", name)
    assert code == 0, errors
    assert len(list(tmp_path.rglob("precious"))) == 3


def test_a_training_by_default_stays_in_its_folder(subtests: pytest.Subtests) -> None:
    for name in [*REFUSED, *TAKEN]:
        with subtests.test(repr(name)):
            document = Document("best.yaml", "lora", "loss", {}, 0, {"study": name, "trial": "../1"})
            folder = default_folder(document)
            assert folder.parent == Path("trained") and folder.name not in ("", ".", "..")
            assert len(folder.name.encode()) < 255 and not set(folder.name) & set("/\\\0\n")
