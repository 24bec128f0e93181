"""What a bundle holds, and that it holds the same each time."""

from __future__ import annotations

import io
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from hpsearch.search.errors import UsageError
from hpsearch.search.service.bundles import packing
from hpsearch.search.service.bundles.ignored import Ignored
from hpsearch.search.service.bundles.packing import pack


def make(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


def test_of_a_repository_what_git_tracks_is_sent_and_the_rest_is_named(tmp_path: Path) -> None:
    repository = make(tmp_path, mine_py="1", sub__data_csv="2", secret_txt="3", new_py="4", sub__big_bin="5")
    git(repository, "init", "-q")
    make(repository, **{"_gitignore": "secret.txt\n", "_hpsearchignore": "*.bin\n"})
    git(repository, "add", "mine.py", "sub", ".gitignore")
    (repository / "link.py").symlink_to("mine.py")
    (repository / "away.py").symlink_to("/etc/passwd")
    git(repository, "add", "link.py", "away.py")
    bundle = pack(repository)
    assert bundle.files == (".gitignore", "link.py", "mine.py", "sub/data.csv")
    assert bundle.left_out == (".hpsearchignore", "new.py")
    assert "new.py" in pack(repository, needed=["new.py"]).files
    below = pack(repository / "sub")
    assert below.files == ("data.csv", "big.bin") or below.files == ("big.bin", "data.csv")


def test_of_another_folder_all_but_the_usual_rubbish_is_sent(tmp_path: Path) -> None:
    folder = make(
        tmp_path,
        mine_py="1",
        __pycache____mine_pyc="x",
        runs__log="x",
        env__pyvenv_cfg="x",
        env__lib_py="x",
        hpsearch_db="x",
        home__bundles__a="x",
        serve_yaml="x",
        _env="KEY=1",
        keep__data_csv="2",
        drop__data_csv="3",
        _hpsearchignore="drop/\n!mine.py\n",
    )
    for name in ("hpsearch.db-wal", "home/server-id", "home/tokens.jsonl", "serve-8765.json"):
        (folder / name).write_text("x")
    assert pack(folder).files == (".hpsearchignore", "keep/data.csv", "mine.py")


def test_the_same_files_make_the_same_bytes(tmp_path: Path) -> None:
    first, second = (make(tmp_path / name, a_py="1", b__c_py="2") for name in ("first", "second"))
    (second / "a.py").touch()
    os.utime(second / "a.py", (1, 1))
    bundle = pack(first)
    assert bundle.sha256 == pack(second).sha256
    (second / "a.py").chmod(0o755)
    assert bundle.sha256 != pack(second).sha256
    with zipfile.ZipFile(io.BytesIO(bundle.content)) as packed:
        assert {entry.filename: packed.read(entry) for entry in packed.infolist()} == {
            "a.py": b"1",
            "b/c.py": b"2",
        }


def test_what_cannot_be_sent_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "x", mine_py="1" * 1000, data__large_csv="2" * 5000)
    with pytest.raises(UsageError, match="lies outside of"):
        pack(folder, needed=["../other.py"])
    monkeypatch.setenv("HOME", str(folder))
    with pytest.raises(UsageError, match="a folder of their own"):
        pack(folder)
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.setattr(packing, "MOST_FILES", 1)
    with pytest.raises(UsageError, match=r"2 files, at most 1.*Most of it: data .*hpsearchignore"):
        pack(folder)
    monkeypatch.setattr(packing, "MOST_FILES", 10)
    monkeypatch.setattr(packing, "MOST_BYTES", 100)
    with pytest.raises(UsageError, match="too large to be sent"):
        pack(folder)
    with pytest.raises(UsageError, match="is no folder"):
        pack(folder / "mine.py")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no file"):
        pack(tmp_path / "empty")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "a\nb").write_text("x")
    with pytest.raises(UsageError, match=r"'a\\nb' has a character"):
        pack(tmp_path / "odd")


@pytest.mark.parametrize(
    ("pattern", "out", "stays"),
    [
        ("*.bin", ["a.bin", "x/y.bin"], ["a.bins", "bin"]),
        ("/data", ["data/x", "data"], ["x/data"]),
        ("data/", ["data/x", "x/data/y"], ["data"]),
        ("a/*/c", ["a/b/c"], ["a/b/d/c", "a/c"]),
        ("a/**/c", ["a/b/d/c", "a/c"], ["b/a/c"]),
        ("a/**", ["a/b/c"], ["a"]),
        ("**/b", ["b", "a/b", "a/c/b"], ["ab"]),
        ("[ab]?.py", ["a1.py"], ["c1.py", "a.py"]),
        ("[!a]b", ["cb"], ["ab", "/b"]),
        (r"\#x", ["#x"], ["x"]),
        ("# x", [], ["x", "# x"]),
        ("[z-a", [], ["z"]),
        ("a\\", [], ["b"]),
    ],
)
def test_patterns_are_those_of_gitignore(
    tmp_path: Path, pattern: str, out: list[str], stays: list[str]
) -> None:
    ignored = Ignored([pattern])
    assert [path for path in out if path not in ignored] == []
    assert [path for path in stays if path in ignored] == []
    assert "x.py" not in Ignored(["*.py", "!x.py"]) and "y.py" in Ignored(["*.py", "!x.py"])
