"""The files of a study: one folder per trial under `runs/`, and the lock of its driver.

runs/<study>/<trial>/checkpoint/     what the objective left there; kept for the best few
runs/<study>/<trial>/checkpoint.sealed/  a copy as of its last report, to go on from
runs/<study>/<trial>/metrics.jsonl   every report with its metrics
runs/<study>/<trial>/output.log      what the trial printed
runs/<study>/<trial>/config.json     its configuration, ready for `hpsearch train`
runs/<study>/.study                  whose folder it is (`claims.py`)
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from . import StorageError

# Workers import this module, so it loads neither Optuna nor SQLAlchemy before they are needed.

CHECKPOINT = "checkpoint"
SEALED = "checkpoint.sealed"  # a copy of it as of the last report
METRICS = "metrics.jsonl"
OUTPUT = "output.log"
CONFIG = "config.json"
CLAIM = ".study"  # in the folder of a study: whose it is
# Names that programs give what they write until it is whole: `state.pt.tmp`, `tmp-checkpoint-500`.
UNFINISHED = re.compile(
    r".+\.(te?mp|incomplete|partial)([-_.]\w+)?|.+(\.part|~)|\.?tmp[-_].+|tmp[a-z0-9_]{8}(\..+)?",
    re.IGNORECASE,
)
LONGEST_NAME = 100  # bytes; file systems take 255, an attribute with its artifact's id 512
LONGEST_OUTPUT = 16 << 20  # bytes of what a trial prints, before its middle is cut out
KEPT_OUTPUT = 1 << 20  # bytes at its beginning and at its end that stay
REMOVERS = 8  # threads that delete folders side by side
_NO_FILE = "it is a pipe, a device or a folder, and no file"
_LOCK = re.compile(r"\.[0-9a-f]{8}\.(lock|pid)")  # a driver's, on the machine and in the folder it searches
_ARTIFACTS = {METRICS: "application/jsonl", OUTPUT: "text/plain", CONFIG: "application/json"}


def file_name(name: str) -> str:
    """A file name for any text: as it is where it is plain, else percent-encoded; long ones are cut."""
    plain = re.fullmatch(r"\w[\w .-]*", name)
    found = name if plain else quote(name, safe=" ", errors="surrogatepass").replace(".", "%2E") or "%"
    whole = found.encode()
    if len(whole) > LONGEST_NAME:
        digest = hashlib.sha256(whole).hexdigest()[:16]
        found = f"{whole[:LONGEST_NAME].decode(errors='ignore')}~{digest}"
    return found


def study_folder(runs: Path, study: str) -> Path:
    """The folder of a study: right inside `runs`, and no other study's, whatever its name."""
    return runs / file_name(study)


def has_trials(folder: Path) -> bool:
    """Whether a study's folder holds files of trials."""
    return folder.is_dir() and any(path.name.isdecimal() for path in folder.iterdir())


def has_files(folder: Path) -> bool:
    """Whether a study's folder holds files of the study."""
    return folder.is_dir() and not all(_is_no_file_of_it(path.name) for path in folder.iterdir())


def _is_no_file_of_it(name: str) -> bool:
    """Whether a file in the folder of a study is a driver's lock there, or says whose the folder is."""
    return name == CLAIM or _LOCK.fullmatch(name) is not None


def opened(path: Path, flags: int) -> int:
    """Open a file of ours, whose name anybody can foresee; nothing else there is followed or waited for.

    Raises `OSError`, which says so of a link, dangling or not, a pipe and a device.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(error.errno, "it is a link, which may lead to another's file", str(path)) from None
        if error.errno == errno.ENXIO:  # nobody reads the pipe
            raise OSError(error.errno, _NO_FILE, str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, _NO_FILE, str(path))
    os.set_blocking(descriptor, True)
    return descriptor


def make_folder(folder: Path) -> None:
    """Make a folder of a trial's, with those it is in. Raises `OSError`, which says so of a link.

    `runs/` and a study's folder may be links: the user's, to a larger disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "it is a link, which may lead to another's folder", str(folder))


@contextmanager
def copied_files(source: Path, target: Path) -> Iterator[None]:
    """Copy a study's folder, whole or not at all; taken away again where what comes next fails.

    The files come before the rows: a copy that is killed in between leaves files that the next one names,
    rather than a study that lacks them.
    """

    def not_its_files(folder: str, names: list[str]) -> list[str]:
        return list(filter(_is_no_file_of_it, names)) if Path(folder) == source else []

    placed: list[Path] = []
    try:
        try:
            target.mkdir(parents=True, exist_ok=True)  # it may be there, with a lock or a claim
            shutil.copymode(source, target)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as beside:
                whole = shutil.copytree(source, Path(beside) / "whole", symlinks=True, ignore=not_its_files)
                for path in whole.iterdir():
                    placed.append(path.rename(target / path.name))
        except shutil.Error as error:  # a list of what could not be copied
            path, _, reason = error.args[0][0]
            raise StorageError(f"cannot copy {path}: {reason}") from error
        except OSError as error:
            raise StorageError(f"cannot copy {source} to {target}: {error.strerror}") from error
        yield
    except BaseException:
        for path in placed:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        with suppress(OSError):  # a lock is in it, or it is not there
            target.rmdir()
        raise


def trial_folder(runs: Path, study: str, number: int) -> Path:
    return study_folder(runs, study) / str(number)


def has_checkpoint(folder: Path) -> bool:
    """Whether a trial left something to go on from: a file whose name says of no part that it is half."""
    for _, folders, files in os.walk(folder / CHECKPOINT):
        folders[:] = [name for name in folders if not UNFINISHED.fullmatch(name)]
        if not all(map(UNFINISHED.fullmatch, files)):
            return True
    return False


def is_of_a_checkpoint(file: Path) -> bool:
    """Whether a file stands in the checkpoint of a trial, whichever that is."""
    return any(inner == CHECKPOINT and outer.isdecimal() for outer, inner in pairwise(file.parts))


@contextmanager
def passing_folder(prefix: str) -> Iterator[Path]:
    """A new folder that goes in the end, also where an interrupt comes while it is made.

    `tempfile.TemporaryDirectory` knows of its folder a moment after that is there.
    """
    folder = Path(tempfile.gettempdir(), f"{prefix}{secrets.token_hex(8)}")
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Delete a folder with all in it; what cannot be deleted stays, and what a link leads to.

    In threads, the deepest first: where the processors are busy, Linux takes milliseconds for each folder.
    """
    if folder.is_symlink():
        return  # as `rmtree` does; `walk` would go in
    levels: dict[int, list[str]] = defaultdict(list)
    for path, _, _ in os.walk(folder):
        levels[path.count(os.sep)].append(path)
    with ThreadPoolExecutor(REMOVERS) as pool:
        for depth in sorted(levels, reverse=True):
            list(pool.map(partial(shutil.rmtree, ignore_errors=True), levels[depth]))


def why_left(folder: Path) -> str | None:
    """Why a folder is still there that `remove_folder` was to delete; None where it is gone."""
    if folder.is_symlink():
        return f"it is a link to {folder.readlink()}, which may be another's"
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None


def drop_checkpoints(folders: Iterable[Path]) -> None:
    """Delete the checkpoints of trials that may be many, in threads, as `remove_folder` does."""
    with ThreadPoolExecutor(REMOVERS) as pool:
        list(pool.map(drop_checkpoint, folders))


def drop_checkpoint(folder: Path) -> None:
    """Delete a trial's checkpoint; its reports, output and configuration stay."""
    _drop(folder, CHECKPOINT)
    drop_seal(folder)


def drop_seal(folder: Path) -> None:
    """Delete the copy of a trial's checkpoint, which nobody goes on from any more."""
    _drop(folder, SEALED)


def _drop(folder: Path, name: str) -> None:
    if not folder.is_symlink():  # which may lead to another's
        shutil.rmtree(folder / name, ignore_errors=True)


def shorten(output: Path) -> None:
    """Cut the middle out of what a trial printed, where that would fill the disk.

    Whoever writes to it appends, so the file may be cut while it grows.
    """
    try:
        descriptor = opened(output, os.O_RDWR | os.O_APPEND)
    except OSError:
        return  # it has printed nothing yet, or what stands there is no output of ours
    with open(descriptor, "rb+") as stream:
        size = os.fstat(descriptor).st_size
        if size <= LONGEST_OUTPUT:
            return
        stream.seek(-KEPT_OUTPUT, os.SEEK_END)
        tail = stream.read(KEPT_OUTPUT)
        stream.truncate(KEPT_OUTPUT)
        left_out = size - 2 * KEPT_OUTPUT
        stream.write(b"\n[%d bytes are left out here: the trial printed too much]\n" % left_out + tail)


class RunsArtifactStore:
    """Serves files of `runs/` as Optuna artifacts.

    An artifact's id is `<study folder>:<trial>:<file>` in hexadecimal: optuna-dashboard routes nothing else.
    """

    def __init__(self, runs: Path) -> None:
        self._runs = runs

    def open_reader(self, artifact_id: str) -> BinaryIO:
        from optuna.artifacts.exceptions import ArtifactNotFound

        try:
            return open(opened(self._path(artifact_id), os.O_RDONLY), "rb")
        except (OSError, ValueError) as error:
            raise ArtifactNotFound("not found") from error

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        raise StorageError("artifacts are the files of a trial; none are uploaded")

    def remove(self, artifact_id: str) -> None:
        from optuna.artifacts.exceptions import ArtifactNotFound

        try:
            self._path(artifact_id).unlink(missing_ok=True)
        except ValueError as error:
            raise ArtifactNotFound("not found") from error

    def _path(self, artifact_id: str) -> Path:
        """The file behind an id. Raises `ValueError` where it is none of a trial's files."""
        folder, number, name = bytes.fromhex(artifact_id).decode().split(":")
        runs = self._runs.resolve()
        path = runs / folder / number / name
        inside = path.parents[2] == runs and path.resolve() == path  # not up, not elsewhere, over no link
        if not number.isdecimal() or name not in _ARTIFACTS or not inside:
            raise ValueError(artifact_id)
        return path


def artifact_attrs(runs: Path, study: str, number: int) -> dict[str, str]:
    """The system attributes that make optuna-dashboard list a trial's files as its artifacts."""
    attrs = {}
    for name, mimetype in _ARTIFACTS.items():
        path = trial_folder(runs, study, number) / name
        if path.is_file() and path.stat().st_size:
            key = f"{path.parent.parent.name}:{number}:{name}".encode().hex()
            meta = {"artifact_id": key, "filename": name, "mimetype": mimetype, "encoding": None}
            attrs[f"artifacts:{key}"] = json.dumps(meta)
    return attrs


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all; who may read it stays the same, and a link gives way to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.part")
    beside.unlink(missing_ok=True)  # of a process that was killed; or a link, which may lead anywhere
    try:
        with beside.open("x", encoding="utf-8", newline="") as stream:
            stream.write(text)
        if path.is_file() and not path.is_symlink():
            shutil.copymode(path, beside)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
