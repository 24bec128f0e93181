"""README and docs are transcripts: their files are written, their commands run, and print what they say.

Another machine computes other values: where a page prints a number with a decimal point or that of a trial, the
command has to print one too, but not the same. Two searches are shorter than on their pages.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *(page for page in sorted(ROOT.glob("docs/*.md")) if "```console" in page.read_text())]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MEASURED = re.compile(r"(\btrial\s+|\blora_quick-)\d+|\d+\.\d+(?:e-?\d+)?")
SHORTER = {  # searches whose first trials show all that a page says
    "hpsearch run lora_quick --backend optuna": "--trials 3",  # of 24
    "hpsearch run moved.yaml": "--trials 2",  # of 4, each of which loads wandb
}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks() -> list[tuple[str, str]]:
    """Those of all pages, as one reader meets them."""
    return [block for page in PAGES for block in BLOCK.findall(page.read_text(encoding="utf-8"))]


def commands(transcript: str) -> list[tuple[str, str]]:
    """The commands of a console block with what they are to print."""
    parts = re.split(r"^\$ (.*)\n", transcript, flags=re.MULTILINE)
    assert not parts[0].strip(), "output before the first command"
    return list(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_pages_run_as_printed(tmp_path: Path) -> None:
    bin_folder = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "120"}
    ran: list[str] = []
    for kind, content in blocks():
        named = re.match(r"# file: (\S+)\n", content)
        if named:
            (tmp_path / named[1]).write_text(content)
        if kind != "console":
            assert named, f"a block that nothing uses:\n{content}"
            continue
        for command, wanted in commands(content):
            result = subprocess.run(
                f"{command} {SHORTER.get(command, '')}", shell=True, cwd=tmp_path, env=environment, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            assert result.returncode == 0, f"$ {command}\n{result.stdout}"
            masked, printed = (MEASURED.sub(r"\1#", text) for text in (wanted, result.stdout))
            matches = doctest.OutputChecker().check_output(masked, printed, FLAGS)
            assert matches, f"$ {command}\nwanted:\n{wanted}\nprinted:\n{result.stdout}"
            ran.append(command)
    assert len(ran) >= 10 and SHORTER.keys() <= {*ran}


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) < 800
    for page in [README, *ROOT.glob("docs/**/*.md")]:
        for link in re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", page.read_text(encoding="utf-8")):
            assert link.startswith("https://") or (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    makefile = README.with_name("Makefile").read_text()
    for target in re.findall(r"^    make (\w+)", README.read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_every_command_is_in_the_help_with_an_example() -> None:
    from hpsearch.search.cli.app import app

    names = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    wanted = {
        "run", "validate", "schema", "list", "show", "trials", "best",
        "export", "train", "dashboard", "stop", "pause", "resume", "kill", "retry",
        "delete", "copy", "backup", "doctor", "generate", "lr-find", "plan", "objectives", "init",
        "serve", "token", "login", "submit", "steer", "queue", "top", "work", "try",
        "mcp", "report", "agent-docs",
    }  # fmt: skip
    assert names == wanted
    for command in app.registered_commands:
        assert "Example: hpsearch" in (command.callback.__doc__ or ""), command.name
