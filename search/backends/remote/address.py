"""Where a search listens to its workers: a Unix socket of this user, named after the study.

HPSEARCH_HOME/work-<study>.sock    by default in ~/.local/state/hpsearch
"""

from __future__ import annotations

import os
import re
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import SearchError, why

LONGEST_PATH = 100  # bytes; the system takes 104 to 108
STUDY_LETTERS = 16  # of a study's id, by which sockets and leases name it
_STUDY = re.compile(rf"[0-9a-f]{{{STUDY_LETTERS}}}")


def home_folder() -> Path:
    """The folder of this user's services and searches."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(os.environ.get("HPSEARCH_HOME") or f"{state}/hpsearch").expanduser().absolute()


def short_id(study: str) -> str:
    """The beginning of a study's id (`claims.ID`), which stands for it in sockets and leases."""
    letters = re.sub("[^0-9a-f]", "", study.lower())
    return letters[:STUDY_LETTERS].ljust(STUDY_LETTERS, "0")


def socket_path(study: str, home: Path | None = None) -> Path:
    """The socket of the search of a study, by its id or the beginning of that."""
    return (home or home_folder()) / f"work-{short_id(study)}.sock"


def study_in(lease: str) -> str | None:
    """The beginning of the id of the study that a lease is of; None for what is no lease."""
    study = lease.partition("-")[0]
    return study if _STUDY.fullmatch(study) else None


def listen(path: Path) -> socket.socket:
    """Listen at a path, as this user alone. Raises `SearchError`.

    What an earlier search has left there is replaced: the study's lock says that none runs.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.is_symlink() or (path.exists() and not stat.S_ISSOCK(path.lstat().st_mode)):
            raise SearchError(f"{path} is no socket; remove it, and run the same command again")
        path.unlink(missing_ok=True)
        before = os.umask(0o177)  # nobody can connect between its making and a chmod
        try:
            with _reachable(path) as name:
                listener.bind(name)
        finally:
            os.umask(before)
        listener.listen(256)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise SearchError(f"cannot listen to workers at {path}: {why(error)}") from error
    except BaseException:
        listener.close()
        raise
    return listener


def connect(path: Path, seconds: float | None = None) -> socket.socket:
    """Connect to the search that listens at a path. Raises `OSError`, as where none does."""
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    end.settimeout(seconds)
    try:
        with _reachable(path) as name:
            end.connect(name)
    except BaseException:
        end.close()
        raise
    return end


@contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """A name of the socket that is short enough for the system, whatever its folder's path."""
    if len(os.fsencode(path)) <= LONGEST_PATH:
        yield str(path)
        return
    if sys.platform != "linux":
        raise SearchError(f"{path} is too long for a socket: set HPSEARCH_HOME to a folder with a short path")
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
