"""Bundles at the server: what is kept, and that nothing hostile gets in."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import struct
import tempfile
import threading
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpsearch.search.errors import UsageError
from hpsearch.search.service.bundles import store
from hpsearch.search.service.bundles.packing import pack
from hpsearch.search.service.bundles.store import Bundles


def zipped(*entries: tuple[Any, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", method) as packed:
        warnings.simplefilter("ignore")  # of names that are there twice
        for entry, content in entries:
            packed.writestr(entry, content)
    return stream.getvalue()


def entry(name: str, mode: int = 0o100644, **fields: Any) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo("x")
    made.filename, made.external_attr = name, mode << 16
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def put(bundles: Bundles, content: bytes, sha256: str | None = None) -> bool:
    chunks = [content[at : at + 1000] for at in range(0, len(content), 1000)]
    return bundles.put(sha256 or hashlib.sha256(content).hexdigest(), chunks)


@pytest.fixture
def bundles(tmp_path: Path) -> Bundles:
    return Bundles(tmp_path / "home" / "bundles")


def test_a_bundle_is_kept_as_it_was_packed_and_cannot_be_changed(bundles: Bundles, tmp_path: Path) -> None:
    (tmp_path / "code" / "sub").mkdir(parents=True)
    (tmp_path / "code" / "mine.py").write_text("print(1)")
    (tmp_path / "code" / "sub" / "run.sh").write_text("#!/bin/sh")
    (tmp_path / "code" / "sub" / "run.sh").chmod(0o4755)
    bundle = pack(tmp_path / "code")
    assert not bundles.has(bundle.sha256)
    assert bundles.put(bundle.sha256, [bundle.content]) and bundles.has(bundle.sha256)
    assert not bundles.put(bundle.sha256, [bundle.content]), "the second time it was there"
    kept = bundles.path(bundle.sha256)
    modes = {path.relative_to(kept).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in kept.rglob("*")}
    assert modes == {"mine.py": 0o400, "sub": 0o500, "sub/run.sh": 0o500}
    assert stat.S_IMODE(kept.stat().st_mode) == 0o500 and (kept / "mine.py").read_text() == "print(1)"
    assert [path.name for path in bundles.folder.iterdir()] == [bundle.sha256]


def test_bundles_that_no_study_names_go_after_a_day(bundles: Bundles) -> None:
    for name in ("a", "b", "c"):
        put(bundles, zipped((name, b"1")))
    (bundles.folder / f"{store.STAGING}left").mkdir()
    a, b, c = sorted(path.name for path in bundles.folder.iterdir() if path.name[0] != ".")
    assert bundles.sweep({a}) == []
    os.utime(bundles.path(c), (time.time() + 1e6,) * 2)
    assert bundles.sweep({a}, time.time() + 2 * store.GRACE_SECONDS) == [b]
    assert sorted(path.name for path in bundles.folder.iterdir()) == [a, c]


def test_many_that_send_the_same_at_once_keep_one(bundles: Bundles) -> None:
    content = zipped(*((f"f{number}", b"x" * 1000) for number in range(50)))
    came: list[bool] = []
    threads = [threading.Thread(target=lambda: came.append(put(bundles, content))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(came) == [False, False, False, True] and len(list(bundles.folder.iterdir())) == 1


BOMB = zipped(("zeros", bytes(40 * 2**20)))
HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "a folder above": (lambda: zipped((entry("../x"), b"1")), "leaves its folder"),
    "a folder above, inside": (lambda: zipped((entry("a/../../x"), b"1")), "leaves its folder"),
    "absolute": (lambda: zipped((entry("/etc/x"), b"1")), "is absolute"),
    "of Windows": (lambda: zipped((entry("C:x"), b"1")), "is absolute"),
    "backslashes": (lambda: zipped((entry("..\\x"), b"1")), "no name of a file"),
    "NUL": (lambda: zipped((entry("x"), b"1")).replace(b"x", b"\0"), "no name of a file|names one"),
    "a newline": (lambda: zipped((entry("a\nb"), b"1")), "no name of a file"),
    "an escape": (lambda: zipped((entry("\x1b[2J"), b"1")), "no name of a file"),
    "a dot": (lambda: zipped((entry("./x"), b"1")), "names one that is none"),
    "two slashes": (lambda: zipped((entry("a//x"), b"1")), "names one that is none"),
    "long": (lambda: zipped((entry("x" * 300), b"1")), "too long a name"),
    "a link": (lambda: zipped((entry("x", stat.S_IFLNK | 0o777), b"/etc/passwd")), "is a link"),
    "a device": (lambda: zipped((entry("x", stat.S_IFCHR | 0o600), b"")), "a device"),
    "a pipe": (lambda: zipped((entry("x", stat.S_IFIFO | 0o600), b"")), "a pipe"),
    "a folder that is a file": (lambda: zipped((entry("x/", 0o100644), b"")), "the other way round"),
    "twice": (lambda: zipped((entry("x"), b"1"), (entry("x"), b"2")), "'x' twice"),
    "a file that is a folder": (lambda: zipped((entry("x"), b"1"), (entry("x/y"), b"2")), "twice"),
    "a folder that is a file, later": (lambda: zipped((entry("x/y"), b"2"), (entry("x"), b"1")), "twice"),
    "bzip2": (lambda: zipped((entry("x", compress_type=zipfile.ZIP_BZIP2), b"1")), "another method"),
    "a bomb": (lambda: BOMB, "times as large, at most 100"),
    "a bomb that lies": (lambda: _lies(BOMB, 40 * 2**20, 1000), "sound zip|larger than it says"),
    "many files": (lambda: zipped(*((str(n), b"") for n in range(10_001)), method=0), "10,001 files"),
    "a long list": (lambda: _lies(zipped(("x", b"1")), 0, 0, directory=2**25), "list of files is too long"),
    "empty": (lambda: zipped(), "it is empty"),
    "nothing": (lambda: b"", "it is no zip"),
    "no zip": (lambda: b"PK\3\4" + bytes(5000), "it is no zip"),
    "cut": (lambda: zipped(("x", b"1" * 5000))[:-30], "no zip"),
    "damaged": (lambda: _flipped(zipped(("x", os.urandom(5000)))), "no sound zip"),
}


def _lies(content: bytes, size: int, says: int, directory: int | None = None) -> bytes:
    """A zip that says another size of its file, or of its list of files."""
    if directory is not None:
        at = content.rfind(b"PK\5\6")
        return content[: at + 12] + struct.pack("<I", directory) + content[at + 16 :]
    return content.replace(struct.pack("<I", size), struct.pack("<I", says))


def _flipped(content: bytes) -> bytes:
    return content[:2000] + bytes([content[2000] ^ 255]) + content[2001:]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_zip_is_refused_and_leaves_nothing(bundles: Bundles, name: str) -> None:
    make, said = HOSTILE[name]
    with pytest.raises(UsageError, match=said) as refused:
        put(bundles, make())
    assert refused.value.code in ("bundle", "bundle-too-large")
    assert list(bundles.folder.iterdir()) == []
    assert {path.name for path in bundles.folder.parent.iterdir()} == {"bundles"}


def test_what_is_larger_than_allowed_or_not_what_it_says_is_refused(
    bundles: Bundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = zipped(("x", b"1"))
    with pytest.raises(UsageError, match=r"has the SHA-256 .* not 0000"):
        put(bundles, content, "0" * 64)
    for name in ("..", "A" * 64, "0" * 63, "", "0" * 63 + "\n"):
        with pytest.raises(UsageError, match="is no SHA-256"):
            bundles.has(name)
    monkeypatch.setattr(store, "MOST_ZIPPED", 50)
    with pytest.raises(UsageError, match="is larger than") as refused:
        put(bundles, content)
    assert refused.value.code == "bundle-too-large" and list(bundles.folder.iterdir()) == []


@given(at=st.integers(0, 300), byte=st.integers(0, 255))
@settings(max_examples=300)
def test_any_byte_may_be_another_one(at: int, byte: int) -> None:
    """Such a zip is taken, or refused in words; it never leaves its folder."""
    content = bytearray(zipped((entry("a/b"), b"hello" * 9), (entry("c"), b"1")))
    content[at % len(content)] = byte
    with tempfile.TemporaryDirectory() as folder:
        bundles = Bundles(Path(folder, "in", "bundles"))
        try:
            put(bundles, bytes(content))
        except UsageError:
            assert list(bundles.folder.iterdir()) == []
        assert {path.name for path in Path(folder, "in").iterdir()} == {"bundles"}
        for path in bundles.folder.iterdir():
            store._remove(path)
