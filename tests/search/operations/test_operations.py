"""Every operation keeps the contract, and the command line is a face of all of them."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import sqlite3
import subprocess
import sys
import typing
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer

from hpsearch.search import operations
from hpsearch.search.cli import hints
from hpsearch.search.cli.app import app
from hpsearch.search.cli.commands import of_step
from hpsearch.search.errors import SearchError, UsageError
from hpsearch.search.operations import OPERATIONS, control, run, show, spaces, studies
from hpsearch.spaces import SpaceError
from hpsearch.storage import StorageError
from hpsearch.storage.database import sqlite_file
from hpsearch.storage.workspace import Workspace

from ...support.watchers import Recorder

ONLY_COMMANDS = {
    "agent-docs",
    "dashboard",
    "login",
    "mcp",
    "serve",
    "top",
    "token",
    "work",
}  # faces and servers
SPACE = """\
version: 1
name: curve
objective: curve.py:curve
metric: loss
parameters:
  x: {min: 0.0, max: 1.0}
baseline: {x: 0.5}
search: {sampler: random, seed: 1}
early_stopping: {method: none, max: 2}
budget: {trials: 4}
execution: {workers: 1}
"""
CURVE = """\
def curve(trial):
    for step in (1, 2):
        trial.report((trial.params["x"] - 0.3) ** 2 + 1 / step, step)
    return (trial.params["x"] - 0.3) ** 2
"""


def commands() -> dict[str, Any]:
    group = typer.main.get_command(app)
    return dict(group.commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_keeps_the_contract(name: str) -> None:
    operation = OPERATIONS[name]
    function = operation.function
    parameters = inspect.signature(function).parameters
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    assert all(parameter.kind in kinds for parameter in parameters.values())
    assert ("workspace" in parameters) == operation.of_workspace
    assert function.__doc__ and function.__doc__.split("\n")[0].endswith((".", ","))
    returned = typing.get_type_hints(function)["return"]
    assert dataclasses.is_dataclass(returned) and vars(returned)["__dataclass_params__"].frozen
    assert callable(getattr(returned, "to_json", None))


def test_every_operation_has_a_command_and_every_command_an_operation() -> None:
    found = commands()
    names = [name for name, operation in OPERATIONS.items() if operation.command]
    for name in names:
        command, _, option = name.partition(" ")
        assert command in found, name
        assert not option or any(option in parameter.opts for parameter in found[command].params), name
    assert found.keys() - ONLY_COMMANDS == {name.partition(" ")[0] for name in names}


def test_a_plan_loads_pytorch_no_more_than_a_search_does() -> None:
    """Else it would count as time that the search takes to start."""
    loads = "import sys, hpsearch.search.operations.{}; sys.exit('torch' in sys.modules)"
    assert [
        subprocess.run([sys.executable, "-P", "-c", loads.format(name)]).returncode
        for name in ("plan", "run")
    ] == [0, 0]


def test_operations_print_nothing() -> None:
    for file in Path(operations.__file__).parent.glob("*.py"):
        called = (node.func for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))
        assert not any(isinstance(each, ast.Name) and each.id == "print" for each in called), file


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """One whose study `curve` has been searched."""
    folder = tmp_path_factory.mktemp("operations")
    (folder / "curve.py").write_text(CURVE)
    (folder / "curve.yaml").write_text(SPACE)
    workspace = Workspace.at(str(folder / "studies.db"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = run.run(workspace=workspace, space=folder / "curve.yaml", watcher=Recorder())
    assert result.to_json()["ran"] == 4
    return workspace


def test_what_reads_gives_plain_data_and_changes_nothing(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    def stored() -> list[str]:
        with closing(sqlite3.connect(str(sqlite_file(workspace.url)))) as connection:
            return list(connection.iterdump())

    study = {"study": "curve"}
    arguments: dict[str, dict[str, Any]] = {
        "list": {},
        "show": study,
        "show --trial": study | {"trial": 0},
        "show --why": study | {"trial": 1},
        "show --ranges": study,
        "trials": study | {"state": "complete", "best_first": True, "limit": 2},
        "best": study,
        "export": study | {"form": "flags"},
        "report": {"study": ["curve"]},
        "curves": study,
        "ladder": study,
        "improvements": study,
        "files": study | {"trial": 0},
        "winner": study,
        "figure": study | {"name": "history"},
        "forecast": study,
        "objectives": {"name": "lora"},
        "init": {"objective": "xgboost"},
        "schema": {},
        "queue": {},
        "queue --machine": {},
        "validate": {"space": "lora"},
        "spaces": {},
        "convert": {"text": "program: a.py\nmethod: random\nparameters: {x: {values: [1, 2]}}\n"},
    }
    reading = {name for name, operation in OPERATIONS.items() if operation.scope == "read"}
    assert reading - {"generate", "doctor", "file", "log", "winner --zip"} == arguments.keys(), (
        "they read files"
    )
    before, found = stored(), []
    for name, given in arguments.items():
        where = {"workspace": workspace} if OPERATIONS[name].of_workspace else {}
        found.append(OPERATIONS[name].function(**where, **given))
    assert stored() == before
    for value in found:
        assert json.loads(json.dumps(value.to_json(), allow_nan=False)) == value.to_json(), type(value)
    rows = show.trials(workspace=workspace, study="curve", best_first=True)
    assert rows.rows[0].number == show.best(workspace=workspace, study="curve").number
    assert len(rows.to_json()) == 4
    assert capsys.readouterr() == ("", "")


def test_what_a_study_needs_next_is_data(workspace: Workspace) -> None:
    steps = show.show(workspace=workspace, study="curve").next_steps
    assert [step.operation for step in steps] == ["export", "train", "run"]
    more = {"budget": {"trials": 8}}
    assert steps[-1].arguments == {"space": None, "name": "curve", "backend": "optuna"} | more
    for step in steps:
        operation = OPERATIONS[step.operation]
        inspect.signature(operation.function).bind_partial(**step.arguments)
    assert [of_step(step, ()) for step in steps] == [
        "hpsearch export curve -o best.yaml",
        "hpsearch train best.yaml",
        "hpsearch run SPACE --name curve --backend optuna --trials 8",
    ]


def test_a_study_is_copied_backed_up_and_deleted(workspace: Workspace, tmp_path: Path) -> None:
    other = Workspace.at(str(tmp_path / "other.db"))
    copied = studies.copy(workspace=workspace, study="curve", to=other)
    assert (copied.trials, copied.folder) == (4, tmp_path / "runs" / "curve")
    assert studies.backup(workspace=other, output=tmp_path / "b.db").to_json()["studies"] == 1
    foreseen = studies.delete(workspace=other, study="curve", dry_run=True)
    assert (foreseen.trials, foreseen.folder) == (4, copied.folder)
    assert len(studies.list_studies(workspace=other).studies) == 1
    assert studies.delete(workspace=other, study="curve") == foreseen
    assert studies.list_studies(workspace=other).to_json() == []
    assert not (tmp_path / "runs" / "curve").exists()


def test_an_error_has_a_code_for_programs(workspace: Workspace, tmp_path: Path) -> None:
    def code_of(function: Any, **arguments: Any) -> str:
        with pytest.raises((SearchError, StorageError, SpaceError)) as caught:
            function(**arguments)
        return str(getattr(caught.value, "code", None))

    there = tmp_path / "there.db"
    there.touch()
    assert code_of(show.show, workspace=workspace, study="curv") == "study-missing"
    assert code_of(show.why, workspace=workspace, study="curve", trial=9) == "trial-missing"
    assert code_of(control.pause, workspace=workspace, study="curve") == "not-searching"
    assert code_of(control.kill, workspace=workspace, study="curve", trial=0) == "trial-state"
    assert code_of(control.retry, workspace=workspace, study="curve") == "trial-state"
    assert code_of(studies.backup, workspace=workspace, output=there) == "file-exists"
    assert (
        code_of(studies.list_studies, workspace=Workspace.at(str(tmp_path / "no.db"))) == "database-missing"
    )
    assert code_of(spaces.validate, space=tmp_path / "no.yaml") == "space"
    assert code_of(spaces.init) == "init-source"
    assert not control.stop(workspace=workspace, study="curve").searching
    assert issubclass(UsageError, SearchError)


def test_no_error_below_the_command_line_names_an_option() -> None:
    """Messages serve Python and programs too; `cli/hints.py` adds the options that help."""
    root = Path(operations.__file__).parents[2]
    for room in ("search", "storage", "spaces", "objectives", "trainer"):
        for file in (root / room).rglob("*.py"):
            if file.parent.name == "cli":
                continue
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Raise) and node.exc is not None:
                    words = [each.value for each in ast.walk(node.exc) if isinstance(each, ast.Constant)]
                    text = " ".join(word for word in words if isinstance(word, str))
                    assert not re.search(r"(^|[\s(:])--?[a-z]", text), f"{file}:{node.lineno}: {text}"


def test_every_hint_is_of_a_code_in_use() -> None:
    root = Path(operations.__file__).parents[2]
    files = [*(root / "search").rglob("*.py"), *(root / "storage").rglob("*.py")]
    used = "\n".join(file.read_text() for file in files if file.name != "hints.py")
    assert [code for code in hints.OPTIONS if f'code="{code}"' not in used] == []
