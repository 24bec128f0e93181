"""Commands that read standard input, `-`, and write standard output, `-o -`."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search.cli import main

HPSEARCH = Path(sys.executable).with_name("hpsearch")
SPACE = """\
version: 1
name: piped
objective: mine.py:train
metric: loss
parameters: {x: {min: 0.0, max: 1.0}}
budget: {trials: 2}
confirm: {top: 0}
execution: {workers: 1}
"""
Pipe = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def pipe(tmp_path: Path) -> Pipe:
    """Run a command in a folder with an objective; its input is the text."""
    (tmp_path / "mine.py").write_text("def train(trial):\n    return trial.params['x']\n", encoding="utf-8")

    def run(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        command = [str(HPSEARCH), *words]
        return subprocess.run(command, input=text, cwd=tmp_path, capture_output=True, text=True)

    return run


@pytest.mark.slow
def test_a_search_from_standard_input_continues_on_the_same_text(pipe: Pipe, tmp_path: Path) -> None:
    first = pipe("run", "-", text=SPACE)
    assert first.returncode == 0, first.stderr
    again = pipe("run", "-", "--trials", "3", text=SPACE)
    assert again.returncode == 0 and "[3/3]" in again.stderr + again.stdout
    over = pipe("run", "-", "--trials", "3", text=SPACE)
    assert "hpsearch run - --trials 6 < FILE" in over.stderr + over.stdout
    other = pipe("run", "-", text=SPACE.replace("max: 1.0", "max: 2.0"))
    assert other.returncode == 1 and "parameters.x.max" in other.stderr
    best = pipe("export", "piped", "-o", "-")
    assert best.stdout.startswith("objective: mine.py:train\n")
    trained = pipe("train", "-", "--json", text=best.stdout)
    summary: dict[str, Any] = json.loads(trained.stdout)
    assert summary["reproduced"] is True
    assert not (tmp_path / "-").exists()


@pytest.mark.slow
def test_a_file_on_standard_output(pipe: Pipe, tmp_path: Path) -> None:
    assert json.loads(pipe("schema", "-o", "-").stdout)["type"] == "object"
    space = pipe("init", "sklearn", "-o", "-").stdout
    assert "objective: sklearn" in space
    assert pipe("validate", "-", text=space).returncode == 0
    assert not (tmp_path / "-").exists()


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """The errors of a command that is refused, in this process."""

    def run(*words: str, text: str) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["hpsearch", *words])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        return capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    "words", [("backup", "-o", "-"), ("train", "-", "-o", "-"), ("lr-find", "-", "--write")]
)
def test_what_no_stream_can_be_is_refused(refused: Any, words: tuple[str, ...]) -> None:
    errors = refused(*words, text=SPACE)
    assert "name a file" in errors or "name one" in errors


def test_mistakes_stand_in_standard_input(refused: Any) -> None:
    errors = refused("validate", "-", text=SPACE.replace("budget", "budgets"))
    assert '<stdin>:6:1 budgets: unknown key, did you mean "budget"?' in errors
