"""A checkpoint on its way between machines: a zip out of a folder, and a folder out of a zip of anybody's."""

from __future__ import annotations

import os
import shutil
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ....storage.files import UNFINISHED

LARGEST = 16 << 30  # bytes of a checkpoint, packed or not
MOST_FILES = 10_000
LEFT_FREE = 256 << 20  # bytes of the disk that an upload leaves
LONGEST_NAME = 1000  # bytes of a file's path in a zip
COMPRESSES = 1 << 20  # bytes up to which a file is compressed; weights do not get smaller


class ArchiveError(Exception):
    """A zip is no checkpoint, or more than may be unpacked; the message says what was found."""


class TooLarge(ArchiveError):
    """A checkpoint is larger than one may be."""


class NoRoom(ArchiveError):
    """The disk has no room for a checkpoint."""


def files_of(folder: Path) -> Iterator[Path]:
    """The files of a checkpoint that are complete, without links."""
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not UNFINISHED.fullmatch(name))
        for name in sorted(names):
            path = Path(base, name)
            if not UNFINISHED.fullmatch(name) and path.is_file() and not path.is_symlink():
                yield path


def pack(folder: Path, target: BinaryIO) -> None:
    """Write a checkpoint as a zip."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED, strict_timestamps=False) as archive:
        for path in files_of(folder):
            small = path.stat().st_size <= COMPRESSES
            how = zipfile.ZIP_DEFLATED if small else zipfile.ZIP_STORED
            archive.write(path, path.relative_to(folder).as_posix(), how)


def unpack(source: BinaryIO, folder: Path, largest: int = LARGEST) -> None:
    """Write the files of a zip into a new folder, whole or not at all.

    Raises `ArchiveError` for what is no zip, has a name that leads elsewhere, or is too large.
    """
    try:
        folder.mkdir(parents=True)
        with zipfile.ZipFile(source) as archive:
            entries = [_checked(entry) for entry in archive.infolist() if not entry.is_dir()]
            if len(entries) > MOST_FILES:
                raise ArchiveError(f"it has {len(entries):,} files; a checkpoint may have {MOST_FILES:,}")
            left = min(largest, shutil.disk_usage(folder).free - LEFT_FREE)
            if sum(entry.file_size for entry in entries) > left:
                raise _too_large(largest, left)
            for entry in entries:
                path = folder.joinpath(*PurePosixPath(entry.filename).parts)
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as stream, path.open("xb") as written:
                    left -= _copy(stream, written, left, largest)  # whatever size it claims to have
    except ArchiveError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError, ValueError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise ArchiveError(f"it cannot be read as a zip: {error}") from error
    except (FileExistsError, NotADirectoryError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise ArchiveError(f"it holds two files at {error.filename}") from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _checked(entry: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """An entry whose name stays in the folder, and that is a plain file."""
    name, mode = entry.filename, entry.external_attr >> 16
    parts = name.split("/")
    if (
        len(name.encode(errors="surrogatepass")) > LONGEST_NAME
        or any(part in ("", ".", "..") for part in parts)
        or any(letter in name for letter in "\\\0")
        or PurePosixPath(name).is_absolute()
        or entry.orig_filename != name  # Python cuts a name at its first NUL
    ):
        raise ArchiveError(f"{name!r:.80} is no name of a file inside a checkpoint")
    if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise ArchiveError(f"{name!r:.80} is a link or a device; a checkpoint holds files")
    return entry


def _copy(stream: object, written: BinaryIO, left: int, largest: int) -> int:
    copied = 0
    while piece := stream.read(1 << 20):  # type: ignore[attr-defined]
        copied += len(piece)
        if copied > left:
            raise _too_large(largest, left)
        written.write(piece)
    return copied


def _too_large(largest: int, left: int) -> ArchiveError:
    if left >= largest:
        return TooLarge(f"it is larger than the {largest >> 20:,} MiB that a checkpoint may have")
    return NoRoom(f"the disk of the search has room for {max(0, left) >> 20:,} MiB")
