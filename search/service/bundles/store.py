"""Bundles at the server: taken in with distrust, kept read-only, each in a folder named by its hash."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...errors import SearchError, UsageError, why
from . import MOST_BYTES, MOST_FILES, MOST_ZIPPED

SHA256 = re.compile(r"[0-9a-f]{64}")
GRACE_SECONDS = 24 * 3600.0  # that a bundle stays which no study names: its study may be on its way
MOST_RATIO = 100  # of bytes unpacked to bytes sent, above `UNSUSPICIOUS`
UNSUSPICIOUS = 16 * 2**20
LONGEST_NAME, LONGEST_PATH = 255, 1000  # bytes
LARGEST_DIRECTORY = 16 * 2**20  # bytes of the list of a zip's files, which is read as a whole
CHUNK = 2**20
UNSOUND = (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError, ValueError)  # what zipfile raises
STAGING = ".staging-"


class Bundles:
    """The bundles of a server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, sha256: str) -> Path:
        """The folder of a bundle, whether it is there or not. Raises `UsageError` for what is no hash."""
        if not SHA256.fullmatch(sha256):
            raise UsageError(
                f'"{sha256[:80]}" is no SHA-256 of a bundle: 64 of 0-9 and a-f',
                code="bundle-name",
            )
        return self.folder / sha256

    def has(self, sha256: str) -> bool:
        """Whether a bundle is there. Then it stays for a day at least."""
        path = self.path(sha256)
        with suppress(OSError):
            os.utime(path)
        return path.is_dir()

    def put(self, sha256: str, content: Iterable[bytes]) -> bool:
        """Take in a bundle; False where it was there. Raises `UsageError` for one that is refused.

        It is staged, hashed, unpacked and then renamed, so that nobody sees a part of it.
        """
        path = self.path(sha256)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._staged() as staged:
                packed = staged / "zip"
                _receive(content, packed, sha256)
                unpack(packed, staged / "files")
                return self._keep(staged / "files", path)
        except OSError as error:
            raise SearchError(f"the server cannot keep the bundle: {why(error)}", code="disk") from error

    def sweep(self, named: Collection[str], now: float | None = None) -> list[str]:
        """Remove bundles that no study names, a day after they came; the hashes of those that went."""
        now, gone = time.time() if now is None else now, []
        for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            with suppress(OSError):
                old = now - path.lstat().st_mtime > GRACE_SECONDS
                if old and path.name not in named and (SHA256.fullmatch(path.name) or _is_staged(path)):
                    _remove(path)
                    gone.append(path.name)
        return [name for name in gone if SHA256.fullmatch(name)]

    @contextmanager
    def _staged(self) -> Iterator[Path]:
        staged = Path(tempfile.mkdtemp(prefix=STAGING, dir=self.folder))
        try:
            yield staged
        finally:
            _remove(staged)

    def _keep(self, files: Path, path: Path) -> bool:
        if path.is_dir():
            return False
        _make_read_only(files)
        files.chmod(0o700)  # a folder that may not be written cannot be renamed
        try:
            files.rename(path)
        except OSError:
            if path.is_dir():  # somebody sent the same meanwhile
                return False
            raise
        path.chmod(0o500)
        return True


def unpack(packed: Path, into: Path) -> None:
    """Unpack a zip of somebody else's. Raises `UsageError` for anything in it that is no plain file.

    Nothing is written outside of `into`, which is made, and no more than `MOST_BYTES`.
    """
    _check_directory(packed)
    try:
        with zipfile.ZipFile(packed) as opened:
            entries = opened.infolist()
            _check(entries, packed.stat().st_size)
            into.mkdir(mode=0o700)
            left = MOST_BYTES
            for entry in entries:
                target = into / entry.filename.rstrip("/")
                if entry.is_dir():
                    target.mkdir(mode=0o700, parents=True, exist_ok=True)
                    continue
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                left -= _write(opened, entry, target, left)
    except (*UNSOUND, zlib.error) as error:
        raise _refused(f"it is no sound zip: {error}") from None


def _receive(content: Iterable[bytes], file: Path, sha256: str) -> None:
    digest, size = hashlib.sha256(), 0
    with file.open("xb") as stream:
        for chunk in content:
            size += len(chunk)
            if size > MOST_ZIPPED:
                raise UsageError(
                    f"the bundle is larger than {MOST_ZIPPED >> 20} MiB", code="bundle-too-large"
                )
            digest.update(chunk)
            stream.write(chunk)
    if (found := digest.hexdigest()) != sha256:
        raise UsageError(
            f"the content has the SHA-256 {found}, not {sha256}: it was changed on its way, or misnamed",
            code="bundle-hash",
        )


def _check_directory(packed: Path) -> None:
    """Refuse a list of files that is too large to be read: a million names fit into a small zip."""
    size = packed.stat().st_size
    with packed.open("rb") as stream:
        stream.seek(max(0, size - 2**16 - 22))
        tail = stream.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) - at < 22:
        raise _refused("it is no zip")
    if int.from_bytes(tail[at + 12 : at + 16], "little") > LARGEST_DIRECTORY:
        raise _refused(f"its list of files is too long; there may be {MOST_FILES:,} files")


def _check(entries: Collection[zipfile.ZipInfo], sent: int) -> None:
    if not entries:
        raise _refused("it is empty")
    if len(entries) > MOST_FILES:
        raise _refused(f"it has {len(entries):,} files, at most {MOST_FILES:,}", "bundle-too-large")
    seen: set[str] = set()
    folders: set[str] = set()
    for entry in entries:
        _check_entry(entry)
        name = entry.filename.rstrip("/")
        above = {name[: at.start()] for at in re.finditer("/", name)}
        if name in seen or (name in folders and not entry.is_dir()) or above & seen:
            raise _refused(f"it has {entry.filename!r} twice")
        folders |= above
        (folders if entry.is_dir() else seen).add(name)
    total = sum(entry.file_size for entry in entries)
    if total > MOST_BYTES:
        told = f"unpacked it is {total / 2**20:,.0f} MiB, at most {MOST_BYTES >> 20}"
        raise _refused(told, "bundle-too-large")
    if total > UNSUSPICIOUS and total > MOST_RATIO * sent:
        told = f"unpacked it is {total // max(1, sent):,} times as large, at most {MOST_RATIO}"
        raise _refused(told, "bundle-too-large")


def _check_entry(entry: zipfile.ZipInfo) -> None:
    name, mode = entry.orig_filename, entry.external_attr >> 16
    parts = name.removesuffix("/").split("/")
    if name != entry.filename or "\\" in name or not name.isprintable():
        raise _refused(f"{name!r} is no name of a file: it has a character that none may have")
    if name.startswith("/") or re.match("[A-Za-z]:", name):
        raise _refused(f"{name!r} is absolute; names are relative to the bundle")
    if any(part in ("", ".", "..") for part in parts):
        raise _refused(f"{name!r} leaves its folder, or names one that is none")
    if len(name.encode()) > LONGEST_PATH or any(len(part.encode()) > LONGEST_NAME for part in parts):
        raise _refused(f"{name[:40]!r}... is too long a name")
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise _refused(f"{name!r} is a link, a device or a pipe; a bundle has plain files and folders")
    if entry.is_dir() != (stat.S_IFMT(mode) == stat.S_IFDIR) and stat.S_IFMT(mode):
        raise _refused(f"{name!r} is called a folder and is none, or the other way round")
    if entry.header_offset < 0:
        raise _refused(f"{name!r} lies before the begin of the zip")
    if entry.flag_bits & 1:
        raise _refused(f"{name!r} is encrypted")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _refused(f"{name!r} is compressed by another method than deflate")


def _write(opened: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, left: int) -> int:
    """Write a file of a zip; its bytes, which may be more than the zip says."""
    written = 0
    with opened.open(entry) as source, target.open("xb") as stream:
        while chunk := source.read(CHUNK):
            written += len(chunk)
            if written > min(left, entry.file_size):
                raise _refused(f"{entry.filename!r} is larger than it says", "bundle-too-large")
            stream.write(chunk)
    target.chmod(0o700 if (entry.external_attr >> 16) & 0o100 else 0o600)
    return written


def _make_read_only(folder: Path) -> None:
    for here, _, files in os.walk(folder, topdown=False):
        for name in files:
            path = Path(here, name)
            path.chmod(path.stat().st_mode & 0o500)
        Path(here).chmod(0o500)


def _is_staged(path: Path) -> bool:
    return path.name.startswith(STAGING)


def _remove(path: Path) -> None:
    """Remove a folder whose folders may not be written."""
    for here, _, _ in os.walk(path):
        Path(here).chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)


def _refused(reason: str, code: str = "bundle") -> UsageError:
    return UsageError(f"the bundle is refused: {reason}", code=code)
