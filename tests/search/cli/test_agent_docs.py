"""The page for coding agents is of the commands as they are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hpsearch.search.cli.agent_docs import page
from hpsearch.search.cli.app import app
from hpsearch.spaces import loads

from ...support.agents import SCRIPT
from ...support.outputs import COMMANDS


def test_the_page_is_short_and_its_commands_have_these_options() -> None:
    text = page(COMMANDS)
    assert len(text.splitlines()) < 250 and text.startswith("---\nname: hpsearch\n")
    assert not re.search(r"\b(EVIDENCE|FORMS|OBJECTIVES|SAMPLERS|STOPPING|COMMANDS)\b", text)
    lines = [line.strip() for line in text.splitlines() if re.match(r" +hpsearch ", line)]
    assert len(lines) >= 15
    for line in lines:
        words = shlex.split(line.removeprefix("hpsearch --server local ").removeprefix("hpsearch "))
        known = {option for parameter in COMMANDS[words[0]].params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known, line


def test_its_space_is_one_and_its_first_steps_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spaces = re.findall(r"```yaml\n(.*?)```", page(COMMANDS), re.DOTALL)
    assert [loads(text).name for text in spaces] == ["mine"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    for words in ("init --from train.py -o space.yaml", "validate space.yaml"):
        done = CliRunner().invoke(app, words.split())
        assert done.exit_code == 0, done.output
