"""Locks: which process searches a study, on this machine and in its folder."""

from __future__ import annotations

import errno
import fcntl
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import filelock
import psutil

from . import StorageError
from .files import opened, study_folder

if TYPE_CHECKING:
    from .workspace import Workspace

TIDY_SECONDS = 60.0  # for a guardian to requeue the trials of a killed driver


def locked(descriptor: int) -> bool:
    """Lock an open file until this process ends; False where another process holds the lock.

    On a file system without locks it always succeeds.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
    return True


@contextmanager
def driver_lock(workspace: Workspace, folder: str) -> Iterator[None]:
    """Lock the study of this folder for one driver.

    The lock belongs to the operating system and ends with its process.
    Raises `StorageError` where another driver holds it.
    """
    path = _lock_file(workspace, folder)
    lock = filelock.FileLock(path, timeout=0)
    owner = _owner_file(path)
    deadline = time.monotonic() + TIDY_SECONDS
    while not lock.is_locked:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except filelock.Timeout:
            pid = _owner(path)
            if pid is not None and not _lives(pid) and time.monotonic() < deadline:
                time.sleep(0.1)  # that driver was killed, and its guardian is cleaning up
                continue
            whose = "a search that hpsearch serve has started" if _is_served(pid) else "another search"
            raise StorageError(
                f'{whose} (process {pid or "unknown"}) is running the study "{folder}"; '
                "wait for it, or end it (hpsearch stop)",
                code="study-busy",
            ) from None
        except OSError as error:
            raise StorageError(f"cannot lock the study: {error}") from error
    try:
        _write_owner(owner)
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()  # the empty file stays: deleting it could give the same lock to two drivers


def driver_running(workspace: Workspace, folder: str) -> int | None:
    """The process that is searching the study on this machine; None where there is none."""
    path = _lock_file(workspace, folder)
    pid = _owner(path)
    if pid is None or not _lives(pid):
        return None
    try:
        with filelock.FileLock(path, timeout=0):
            return None  # the driver was killed and left its number behind
    except OSError:  # it is locked, or belongs to another user
        return pid


@contextmanager
def tidying(workspace: Workspace, folder: str) -> Iterator[bool]:
    """Lock the study of a killed driver; yields whether that succeeded, so that no other driver has it."""
    path = _lock_file(workspace, folder)
    lock = filelock.FileLock(path, timeout=0)
    try:
        lock.acquire()
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        _owner_file(path).unlink(missing_ok=True)
        lock.release()


def _write_owner(path: Path) -> None:
    """Write this process's number. A link of that name may lead anywhere, and is replaced, not followed."""
    try:
        path.unlink(missing_ok=True)  # from a killed driver
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        with open(descriptor, "w") as stream:
            stream.write(str(os.getpid()))
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise  # any file would have met the limit
        raise StorageError(f"cannot write {path}: {error.strerror}") from error


def _owner_file(lock: Path) -> Path:
    return lock.with_suffix(".pid")


def _owner(lock: Path) -> int | None:
    """The process that holds the lock, or held it when it was killed.

    A driver writes its number after it has locked, and removes it before it unlocks.
    """
    try:
        with open(opened(_owner_file(lock), os.O_RDONLY)) as stream:
            return int(stream.read(20))
    except (OSError, ValueError):
        return None


def _lives(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _is_served(pid: int | None) -> bool:
    """Whether a service has started this driver."""
    from .wanted import DRIVER_VARIABLE

    try:
        return pid is not None and DRIVER_VARIABLE in psutil.Process(pid).environ()
    except (psutil.Error, OSError):  # it has ended, or is another user's
        return False


def _lock_file(workspace: Workspace, folder: str) -> Path:
    name = f"{zlib.crc32(folder.encode()):08x}.lock"
    if workspace.file is None:
        return study_folder(workspace.runs, folder) / f".{name}"
    file = workspace.file.resolve()  # one lock for all links to the file
    return file.with_name(f".{file.name}-{name}")
