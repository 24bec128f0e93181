"""Every command does the same here and by a server: output, words, exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hpsearch.search import run
from hpsearch.search.cli.app import _message, app, exit_code
from hpsearch.storage.workspace import Workspace

from ....support.online import Served, serving

OBJECTIVE = """
def train(trial):
    if trial.number == 2:
        raise ValueError("no such data")
    for step in range(1, 10):
        trial.report((trial.params["x"] - 0.3) ** 2 + 1 / step, step=step, accuracy=0.5)
    return (trial.params["x"] - 0.3) ** 2
"""
SPACE = """
version: 1
name: curves
objective: "{folder}/objective.py:train"
metric: val_loss
parameters:
  x: {{min: -1.0, max: 1.0}}
  layers: [[1, 2], [3]]
  double: {{expr: "2 * x"}}
baseline: {{x: 0.9}}
search: {{seed: 1}}
early_stopping: {{method: asha, min: 3, max: 9, eta: 3}}
budget: {{trials: 12}}
execution: {{workers: 1, retries: 0}}
"""
SAME = [  # by a server and here
    "list",
    "list --json",
    "show curves",
    "show curves --json",
    "show curves --trial 2",
    "show curves --trial 3 --json",
    "show curves --trial 99",
    "trials curves",
    "trials curves --json",
    "trials curves --csv",
    "trials curves --state complete --sort value --limit 3",
    "trials curves --state waiting",
    "show curves --why 9",
    "show curves --why 9 --json",
    "show curves --ranges",
    "show curves --ranges --json",
    "best curves",
    "best curves --json",
    "export curves",
    "export curves --trial 3 --format json",
    "export curves --format flags",
    "show curve",
    "best curves --storage x",
    "pause curves",
    "resume curves",
    "stop curves",
    "kill curves 3",
    "retry curves 3",
    "objectives",
    "objectives lora",
    "objectives nothing",
    "schema",
    "validate lora",
    "validate lora --json",
    "validate wrong.yaml",
    "validate wrong.yaml --json",
    "validate missing.yaml",
    "delete curves",
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of a workspace in which a study has been searched."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "objective.py").write_text(OBJECTIVE)
    (folder / "space.yaml").write_text(SPACE.format(folder=folder))
    run(folder / "space.yaml", storage=str(folder / "studies.db"))
    with serving(Workspace.at(str(folder / "studies.db")), folder) as served:
        yield served


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HPSEARCH_HOME", str(tmp_path / "home"))
    for name in ("HPSEARCH_STORAGE", "HPSEARCH_SERVER", "HPSEARCH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "wrong.yaml").write_text("version: 1\nname: x\nobjective: lora\nparameters:\n  x: {mim: 1}\n")
    return tmp_path


def call(*words: str, **surroundings: str) -> tuple[int, str, str]:
    """The exit code, the output and the words of a command, as `main` would end it."""
    result: Result = CliRunner(env=surroundings).invoke(app, list(words))
    code, said, error = result.exit_code, result.stderr, result.exception
    if isinstance(error, Exception):
        found = exit_code(error)
        assert found is not None, f"{words}: {error!r}"
        code, said = found, said + _message(error) + "\n"
    return code, result.stdout, said


@pytest.mark.parametrize("line", SAME)
def test_a_command_prints_the_same_here_and_by_a_server(served: Served, line: str) -> None:
    words = line.split()
    here = call(*words, HPSEARCH_STORAGE=served.service.workspace.url)
    there = call(*words, HPSEARCH_SERVER=served.url, HPSEARCH_TOKEN=served.token())
    assert there == here


def test_own_code_is_sent_along_to_be_checked(served: Served, folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine/objective.py").write_text(OBJECTIVE)
    text = SPACE.replace("{folder}/", "").format()
    (folder / "mine/space.yaml").write_text(text)
    (folder / "mine/gone.yaml").write_text(text.replace("objective.py", "objectiv.py"))
    at = {"HPSEARCH_SERVER": served.url, "HPSEARCH_TOKEN": served.token()}
    code, checked, said = call("validate", "mine/space.yaml", **at)
    assert (code, said) == (0, "") and checked.startswith("curves: minimize val_loss of objective.py:train\n")
    code, checked, said = call("validate", "mine/gone.yaml", **at)
    assert (code, checked) == (2, "") and "'objectiv.py' is not in the bundle" in said
