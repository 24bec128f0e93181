"""`hpsearch report`: which file it writes, and what it refuses before the work."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hpsearch.search.cli.app import app
from hpsearch.search.errors import SearchError, UsageError
from hpsearch.search.operations import submit
from hpsearch.storage.workspace import Workspace

from ...support.spaces import small


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current one; its database has a study without trials."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("def train(trial):\n    return 0.0\n")
    space = small(name="empty", objective="train.py:train")
    submit.submit(workspace=Workspace.at("hpsearch.db"), space=space)
    return tmp_path


def report(*words: str) -> Result:
    return CliRunner().invoke(app, ["report", *words])


def test_the_name_of_the_file_says_what_it_is(folder: Path) -> None:
    assert "wrote report.html: empty" in report("empty").output
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    report("empty", "-o", "found.md")
    assert (folder / "found.md").read_text().startswith("# empty\n")
    assert report("empty", "--format", "md").output == (folder / "found.md").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["empty", "-o", "there.html"], "there.html is there already"),
        (["empty", "-o", "nowhere/r.html"], "there is no folder nowhere"),
        (["empty", "--format", "pdf", "-o", "-"], "standard output cannot take a PDF"),
    ],
)
def test_what_cannot_be_written_is_refused_first(folder: Path, words: list[str], told: str) -> None:
    (folder / "there.html").write_text("mine")
    refused = report(*words).exception
    assert isinstance(refused, UsageError) and told in str(refused)
    assert (folder / "there.html").read_text() == "mine"


def test_a_pdf_needs_a_browser(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    refused = report("empty", "-o", "r.pdf").exception
    assert isinstance(refused, SearchError) and "Chromium, Chrome or Edge" in str(refused)
    assert not (folder / "r.pdf").exists()


@pytest.mark.browser
def test_a_browser_prints_a_pdf(folder: Path) -> None:
    if shutil.which("chromium") is None and shutil.which("google-chrome") is None:
        pytest.skip("needs chromium on the PATH")
    assert "wrote r.pdf: empty" in report("empty", "-o", "r.pdf").output
    assert (folder / "r.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("name", ["r.html", "r.md"])
def test_a_file_stays_as_it_is_until_the_new_one_is_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (folder / "kept").write_text("mine")
    (folder / name).symlink_to("kept")

    def fails(self: Path, target: Path) -> Path:
        assert (folder / "kept").read_text() == "mine" and self.stat().st_size > 100
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fails)
        refused = report("empty", "-o", name, "--force").exception
    assert isinstance(refused, SearchError) and "No space left on device" in str(refused)
    assert (folder / "kept").read_text() == "mine"
    names = {path.name for path in folder.iterdir()}
    assert report("empty", "-o", name, "--force").exit_code == 0
    assert (folder / name).is_symlink() and (folder / "kept").stat().st_size > 100
    assert {path.name for path in folder.iterdir()} == names, "nothing is left beside it"
