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


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """The same in this process, which has loaded all of it: the exit code, and what is said."""

    def run(*words: str, text: str) -> tuple[int, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["hpsearch", *words])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), "".join(capsys.readouterr())

    return run


@pytest.mark.slow
def test_a_search_from_standard_input_continues_on_the_same_text(
    pipe: Pipe, here: Any, tmp_path: Path
) -> None:
    first = pipe("run", "-", text=SPACE)
    assert first.returncode == 0, first.stderr
    code, said = here("run", "-", "--trials", "3", text=SPACE)
    assert code == 0 and "[3/3]" in said
    assert "hpsearch run - --trials 6 < FILE" in here("run", "-", "--trials", "3", text=SPACE)[1]
    code, said = here("run", "-", text=SPACE.replace("max: 1.0", "max: 2.0"))
    assert code == 1 and "parameters.x.max" in said
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


@pytest.mark.parametrize(
    "words", [("backup", "-o", "-"), ("train", "-", "-o", "-"), ("lr-find", "-", "--write")]
)
def test_what_no_stream_can_be_is_refused(here: Any, words: tuple[str, ...]) -> None:
    code, said = here(*words, text=SPACE)
    assert code == 2 and ("name a file" in said or "name one" in said)


def test_mistakes_stand_in_standard_input(here: Any) -> None:
    code, said = here("validate", "-", text=SPACE.replace("budget", "budgets"))
    assert code == 2 and '<stdin>:6:1 budgets: unknown key, did you mean "budget"?' in said
