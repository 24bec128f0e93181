"""The files of a study: one folder per trial under `runs/`, and the driver's lock.

runs/<study>/<trial>/checkpoint/         written by the objective; kept for the best few trials
runs/<study>/<trial>/checkpoint.sealed/  a copy as of the last report, to resume from
runs/<study>/<trial>/metrics.jsonl       every report with its metrics
runs/<study>/<trial>/output.log          what the trial printed
runs/<study>/<trial>/rest.json           what a script has reported after its trial was paused
runs/<study>/<trial>/counted.jsonl       when the reports of a script came that gives them no steps
runs/<study>/<trial>/config.json         its configuration, ready for `hpsearch train`
runs/<study>/.study                      the study that the folder belongs to (`claims.py`)
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
SEALED = "checkpoint.sealed"  # a copy as of the last report
METRICS = "metrics.jsonl"
OUTPUT = "output.log"
CONFIG = "config.json"
CLAIM = ".study"  # in a study's folder: which study it belongs to
# Names that programs give to files that are not complete yet: `state.pt.tmp`, `tmp-checkpoint-500`.
UNFINISHED = re.compile(
    r".+\.(te?mp|incomplete|partial)([-_.]\w+)?|.+(\.part|~)|\.?tmp[-_].+|tmp[a-z0-9_]{8}(\..+)?",
    re.IGNORECASE,
)
LONGEST_NAME = 100  # bytes; file systems allow 255, and an attribute with its artifact's id 512
LONGEST_OUTPUT = 16 << 20  # bytes that a trial prints, above which the middle is cut out
KEPT_OUTPUT = 1 << 20  # bytes that stay at the beginning and at the end
REMOVER_THREADS = 8  # threads that delete folders in parallel
_LEFT_OUT = re.compile(rb"\n\[(\d{1,18}) bytes are omitted here: [^]]*]\n")
_NO_FILE = "it is a pipe, a device or a folder, not a file"
_LOCK = re.compile(r"\.[0-9a-f]{8}\.(lock|pid)")  # of a driver, on its machine and in its folder
_ARTIFACTS = {METRICS: "application/jsonl", OUTPUT: "text/plain", CONFIG: "application/json"}


def file_name(name: str) -> str:
    """A file name for any text: the text where it is plain, else percent-encoded; long ones are cut."""
    plain = re.fullmatch(r"\w[\w .-]*", name)
    encoded = name if plain else quote(name, safe=" ", errors="surrogatepass").replace(".", "%2E") or "%"
    whole = encoded.encode()
    if len(whole) > LONGEST_NAME:
        digest = hashlib.sha256(whole).hexdigest()[:16]
        encoded = f"{whole[:LONGEST_NAME].decode(errors='ignore')}~{digest}"
    return encoded


def study_folder(runs: Path, study: str) -> Path:
    """The folder of a study: directly inside `runs`, and different for each study, whatever its name."""
    return runs / file_name(study)


def has_trials(folder: Path) -> bool:
    """Whether a study's folder has files of trials."""
    return any(name.isdecimal() for name in _names(folder))


def has_files(folder: Path) -> bool:
    """Whether a study's folder has files of the study."""
    return not all(map(_is_no_file_of_it, _names(folder)))


def _names(folder: Path) -> list[str]:
    """The names in a folder; none where there is no such folder, or it was just removed."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_no_file_of_it(name: str) -> bool:
    """Whether a file in a study's folder is a driver's lock or the folder's claim."""
    return name == CLAIM or _LOCK.fullmatch(name) is not None


def opened(path: Path, flags: int) -> int:
    """Open a file whose name others can predict, without following a link or blocking on a pipe.

    Raises `OSError` that says so for a link, dangling or not, a pipe and a device.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(error.errno, "it is a link, which may lead to another's file", str(path)) from None
        if error.errno == errno.ENXIO:  # no process reads the pipe
            raise OSError(error.errno, _NO_FILE, str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, _NO_FILE, str(path))
    os.set_blocking(descriptor, True)
    return descriptor


def make_folder(folder: Path) -> None:
    """Create a trial's folder and its parents. Raises `OSError` that says so for a link.

    `runs/` and a study's folder may be links that the user made, such as to a larger disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "it is a link, which may lead to another's folder", str(folder))


@contextmanager
def copied_files(source: Path, target: Path) -> Iterator[None]:
    """Copy a study's folder, whole or not at all; removed again where the code inside the context fails.

    Files are copied before rows: a copy that is killed in between leaves files that the next copy reports,
    rather than a study without its files.
    """

    def not_its_files(folder: str, names: list[str]) -> list[str]:
        return list(filter(_is_no_file_of_it, names)) if Path(folder) == source else []

    placed: list[Path] = []
    try:
        try:
            target.mkdir(parents=True, exist_ok=True)  # it may exist, with a lock or a claim
            shutil.copymode(source, target)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as beside:
                whole = shutil.copytree(source, Path(beside) / "whole", symlinks=True, ignore=not_its_files)
                for path in whole.iterdir():
                    placed.append(path.rename(target / path.name))
        except shutil.Error as error:  # a list of files that could not be copied
            path, _, reason = error.args[0][0]
            raise StorageError(f"cannot copy {path}: {reason}") from error
        except OSError as error:
            raise StorageError(f"cannot copy {source} to {target}: {error.strerror}") from error
        yield
    except BaseException:
        for path in placed:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        with suppress(OSError):  # it has a lock, or does not exist
            target.rmdir()
        raise


def trial_folder(runs: Path, study: str, number: int) -> Path:
    return study_folder(runs, study) / str(number)


def has_checkpoint(folder: Path) -> bool:
    """Whether a trial left something to resume from: a file with no incomplete part in its path."""
    for _, folders, files in os.walk(folder / CHECKPOINT):
        folders[:] = [name for name in folders if not UNFINISHED.fullmatch(name)]
        if not all(map(UNFINISHED.fullmatch, files)):
            return True
    return False


def is_of_a_checkpoint(file: Path) -> bool:
    """Whether a file is in the checkpoint of any trial."""
    return any(inner == CHECKPOINT and outer.isdecimal() for outer, inner in pairwise(file.parts))


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """A new folder that is deleted in the end, even if an interrupt comes while it is created.

    `tempfile.TemporaryDirectory` only knows its folder a moment after creating it.
    """
    folder = Path(tempfile.gettempdir(), f"{prefix}{secrets.token_hex(8)}")
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Delete a folder and everything in it, except what cannot be deleted and what a link leads to.

    Threads delete the deepest folders first: on busy processors Linux takes milliseconds for each folder.
    """
    if folder.is_symlink():
        return  # like `rmtree`; `walk` would enter it
    levels: dict[int, list[str]] = defaultdict(list)
    for path, _, _ in os.walk(folder):
        levels[path.count(os.sep)].append(path)
    with ThreadPoolExecutor(REMOVER_THREADS) as pool:
        for depth in sorted(levels, reverse=True):
            list(pool.map(partial(shutil.rmtree, ignore_errors=True), levels[depth]))


def why_left(folder: Path) -> str | None:
    """Why a folder still exists that `remove_folder` was to delete; None where it is gone."""
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
    """Delete the checkpoints of possibly many trials, in threads like `remove_folder`."""
    folders = list(folders)
    if len(folders) == 1:
        drop_checkpoint(folders[0])
        return
    with ThreadPoolExecutor(REMOVER_THREADS) as pool:
        list(pool.map(drop_checkpoint, folders))


def drop_checkpoint(folder: Path) -> None:
    """Delete a trial's checkpoint; its reports, output and configuration stay."""
    _drop(folder, CHECKPOINT)
    drop_seal(folder)


def drop_seal(folder: Path) -> None:
    """Delete the copy of a trial's checkpoint, which is no longer needed to resume."""
    _drop(folder, SEALED)


def _drop(folder: Path, name: str) -> None:
    if not folder.is_symlink():  # a link may lead to another's folder
        shutil.rmtree(folder / name, ignore_errors=True)


def shorten(output: Path) -> None:
    """Cut the middle out of what a trial printed, before it fills the disk.

    The trial appends to the file, so it can be cut while it grows.
    """
    try:
        descriptor = opened(output, os.O_RDWR | os.O_APPEND)
    except OSError:
        return  # nothing was printed yet, or it is not our file
    with open(descriptor, "rb+") as stream:
        size = os.fstat(descriptor).st_size
        if size <= LONGEST_OUTPUT:
            return
        stream.seek(KEPT_OUTPUT)
        before = _LEFT_OUT.match(stream.read(LONGEST_NAME))  # cut out earlier, there
        stream.seek(-KEPT_OUTPUT, os.SEEK_END)
        tail = stream.read(KEPT_OUTPUT)
        stream.truncate(KEPT_OUTPUT)
        left_out = size - 2 * KEPT_OUTPUT
        if before is not None:
            left_out += int(before[1]) - len(before[0])
        stream.write(b"\n[%d bytes are omitted here: the trial printed too much]\n" % left_out + tail)


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
        raise StorageError("artifacts are the files of a trial; none can be uploaded")

    def remove(self, artifact_id: str) -> None:
        from optuna.artifacts.exceptions import ArtifactNotFound

        try:
            self._path(artifact_id).unlink(missing_ok=True)
        except ValueError as error:
            raise ArtifactNotFound("not found") from error

    def _path(self, artifact_id: str) -> Path:
        """The file behind an id. Raises `ValueError` where it is not one of a trial's files."""
        folder, number, name = bytes.fromhex(artifact_id).decode().split(":")
        runs = self._runs.resolve()
        path = runs / folder / number / name
        inside = path.parents[2] == runs and path.resolve() == path  # inside `runs`, and through no link
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


def write(path: Path, content: str | bytes) -> None:
    """Write a file, whole or not at all; its permissions stay the same, and a link is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.part")
    beside.unlink(missing_ok=True)  # from a killed process; or a link, which may lead anywhere
    try:
        with beside.open("xb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
        if path.is_file() and not path.is_symlink():
            shutil.copymode(path, beside)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
