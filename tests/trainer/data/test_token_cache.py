from __future__ import annotations

import os
import resource
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hpsearch.trainer.data import token_cache
from hpsearch.trainer.data.token_cache import cache_folder, fetch, hash_of, store

TRAIN, HELD = bytes(range(256)) * 20, b"to validate on"


def keep(key: str, train: bytes = TRAIN, validation: bytes = HELD) -> None:
    store(key, train, validation, sha256=hash_of(train, validation), left_out=3)


def test_stored_tokens_are_fetched(own_cache: Path) -> None:
    assert fetch("a") is None
    keep("a")
    entry = fetch("a")
    assert entry is not None and fetch("b") is None
    assert (bytes(entry.train.tolist()), bytes(entry.validation.tolist())) == (TRAIN, HELD)
    assert (entry.sha256, entry.left_out) == (hash_of(TRAIN, HELD), 3)
    assert [path.name for path in own_cache.rglob("*") if path.is_file()] == ["a.tokens"]


def test_tokens_outlive_their_file(own_cache: Path) -> None:
    keep("a")
    entry = fetch("a")
    keep("a", b"x", b"y")
    (own_cache / "tokens/a.tokens").unlink()
    assert entry is not None and bytes(entry.train.tolist()) == TRAIN
    entry.train[0] = 7  # as any tensor may be


@pytest.mark.parametrize("place", [0, 1, 12, 40, 90, 110, 150, 3000, -1])
def test_a_changed_byte_is_noticed(own_cache: Path, place: int, capfd: pytest.CaptureFixture[str]) -> None:
    keep("a")
    path = own_cache / "tokens/a.tokens"
    content = bytearray(path.read_bytes())
    content[place] ^= 0x11
    path.write_bytes(content)
    entry = fetch("a")
    if entry is None:
        assert f"{path} is damaged: its tokens are made again" in capfd.readouterr().err
    else:  # a letter of "left_out" has no part in the tokens
        assert (bytes(entry.train.tolist()), bytes(entry.validation.tolist())) == (TRAIN, HELD)


@pytest.mark.parametrize("size", [0, 1, 50, 200, 5000])
def test_a_truncated_file_is_noticed(own_cache: Path, size: int, capfd: pytest.CaptureFixture[str]) -> None:
    keep("a")
    os.truncate(own_cache / "tokens/a.tokens", size)
    assert fetch("a") is None
    assert "is damaged" in capfd.readouterr().err
    keep("a")
    assert fetch("a") is not None


def test_a_file_of_another_kind_is_damaged(own_cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    keep("a")
    for content in (
        b"[1]\n",
        b"{}\n",
        b'{"train": Infinity, "sha256": ""}\n',
        b"[" * 99999,
        b"\n" * 9,
        b"\xff\n",
    ):
        (own_cache / "tokens/a.tokens").write_bytes(content)
        assert fetch("a") is None
        assert "is damaged" in capfd.readouterr().err


def test_many_may_write_and_read_at_once(own_cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def work(number: int) -> bool:
        keep("same")
        entry = fetch("same")
        return entry is not None and bytes(entry.train.tolist()) == TRAIN

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(100)))
    assert [path.name for path in (own_cache / "tokens").iterdir()] == ["same.tokens"]
    assert capfd.readouterr().err == ""


def test_the_least_recently_used_files_are_deleted_first(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_cache, "MAX_CACHE_BYTES", 3 * (len(TRAIN) + len(HELD) + 200))
    folder = own_cache / "tokens"
    for age, key in enumerate("abc"):
        keep(key)
        os.utime(folder / f"{key}.tokens", (1000 + age, 1000 + age))
    (folder / "theirs.txt").write_bytes(TRAIN)
    assert fetch("a") is not None  # so that it is b that nobody used
    keep("d")
    assert sorted(path.name for path in folder.iterdir()) == [
        "a.tokens",
        "c.tokens",
        "d.tokens",
        "theirs.txt",
    ]
    keep("too large", TRAIN * 4)
    assert fetch("too large") is None and fetch("a") is not None


def test_old_unfinished_files_are_deleted(own_cache: Path) -> None:
    keep("a")
    folder = own_cache / "tokens"
    for name, seconds in (("old.part", 1.0), ("new.part", None)):
        (folder / name).write_bytes(b"half")
        if seconds:
            os.utime(folder / name, (seconds, seconds))
    keep("b")
    assert sorted(path.name for path in folder.iterdir()) == ["a.tokens", "b.tokens", "new.part"]


def test_a_full_disk_is_reported_and_leaves_no_files(
    own_cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A limit on the size of files fails in the middle of the write, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        keep("a")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    told = "token cache (HPSEARCH_CACHE): cannot be written: [Errno 27] File too large\n"
    assert capfd.readouterr().err == told
    assert list((own_cache / "tokens").iterdir()) == []


def test_the_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.setenv("HPSEARCH_CACHE", "/c")
    assert cache_folder() == Path("/c")
    monkeypatch.setenv("HPSEARCH_CACHE", "")
    assert cache_folder() == Path("/x/hpsearch")
    at_home = tmp_path / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "hpsearch"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == at_home
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == at_home


def test_a_user_without_a_home_goes_without(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As in a container whose user is only a number."""
    for name in ("HOME", "XDG_CACHE_HOME", "HPSEARCH_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda number: (_ for _ in ()).throw(KeyError(number)))
    keep("a")
    assert fetch("a") is None
    assert "Could not determine home directory" in capfd.readouterr().err
