"""Every command's --json has a schema, and what it prints is of it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from hpsearch.search.cli.app import app
from hpsearch.search.cli.output_schemas import with_json
from hpsearch.search.operations import control
from hpsearch.storage.workspace import Workspace

from ...support.outputs import COMMANDS, check_output
from ...support.serving import searched

PRINTED = {  # in this order: the last ones change the study
    "list": "list",
    "show": "show curve",
    "show --trial": "show curve --trial 2",
    "show --why": "show curve --why 2",
    "show --ranges": "show curve --ranges",
    "trials": "trials curve",
    "best": "best curve",
    "objectives": "objectives",
    "validate": "validate curve.yaml",
    "queue": "queue",
    "queue --machine": "queue --machine",
    "doctor": "doctor",
    "try": "try curve x=0.5",
    "steer": "steer curve --priority low",
    "submit": "submit curve.yaml --name other",
    "token create": "token create me",
    "token list": "token list",
    "token revoke": "token revoke me",
}
ELSEWHERE = {  # commands that train, in the tests that run them
    "plan": "test_plan.py",
    "lr-find": "test_lr_find.py",
    "train": "test_run.py",
    "doctor --kill-test": "test_machine.py",
    "doctor --pack-test": "test_machine.py",
    "work": "test_work.py",
}
SPACE = """\
version: 1
name: curve
objective: curve.py:curve
metric: loss
parameters: {x: {min: 0.0, max: 1.0}}
baseline: {x: 0.5}
early_stopping: {method: none, max: 2}
budget: {trials: 4}
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("printed")
    (folder / "curve.yaml").write_text(SPACE)
    return searched(folder)


def printed(words: str, code: int = 0) -> object:
    """What a command prints."""
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def test_what_commands_print_is_of_their_schemas(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    assert workspace.file is not None
    folder = workspace.file.parent
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HPSEARCH_HOME", str(folder / "home"))
    monkeypatch.setenv("HPSEARCH_STORAGE", str(workspace.file))
    for command, words in PRINTED.items():
        with subtests.test(command):
            check_output(command, printed(f"{words} --json"))
    (folder / "wrong.yaml").write_text(SPACE.replace("min: 0.0", "mim: 0.0"))
    check_output("validate", printed("validate wrong.yaml --json", 2))
    stopped = control.stop(workspace=workspace, study="curve").to_json()
    with pytest.raises(jsonschema.ValidationError):
        check_output("steer", stopped)


def test_every_command_that_prints_json_is_among_these() -> None:
    assert PRINTED.keys() | ELSEWHERE.keys() == set(with_json(COMMANDS))
    tests = Path(__file__).parents[1]
    for command, name in ELSEWHERE.items():
        texts = [file.read_text() for file in tests.rglob(name)]
        assert any(f'check_output("{command}", ' in text for text in texts), command


def test_the_command_prints_a_schema_and_names_the_commands_that_there_are() -> None:
    schema = printed("schema --output best")
    assert isinstance(schema, dict)
    assert (schema["type"], "value" in schema["properties"]) == ("object", True)
    for words, told in (
        (["schema", "--output", "bset"], 'did you mean "best"?'),
        (["schema", "--output", "best", "--openapi"], "not both"),
    ):
        done = CliRunner().invoke(app, words)
        assert told in str(done.exception)
