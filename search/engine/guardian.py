"""The guardian outlives a driver that is killed: it ends the driver's processes, and requeues its trials.

While the search runs, the guardian is a shell of a megabyte that waits at the end of a pipe. The driver
writes a word when it leaves by itself. An end of file without one means that it was killed: the shell
becomes this module. That of a server's plan only ends the plan's processes.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ...storage.files import remove_folder
from ...storage.locks import tidying
from ..garbage import seldom

if TYPE_CHECKING:
    from ...storage.workspace import Workspace

MARK_VARIABLE = "HPSEARCH_SEARCH"  # in the environment of every process of a search
TEMPORARY_PREFIX = "hpsearch-"  # of the names of temporary folders; the process id follows
GIVE_UP_SECONDS = 600.0  # on a process that does not end, or a database that does not answer
WORKER = "hpsearch.search.backends.worker"  # the module that is a worker's process
WORKER_EXIT_SECONDS = 3.0  # for workers to notice that their driver is gone, and to keep unread reports
LEAVE_SECONDS = 15.0  # for a process that is told to end to end what it has started
_marking = threading.Lock()
_sharing: dict[str, str | None] = {}  # the marks of this process, each with the one that was there before
_searches: Counter[str] = Counter()  # by their mark
_WAIT = """
trap "" HUP INT TERM
read -r about
read -r word || printf '%s\\n' "$about" | exec "$0" -P -m hpsearch.search.engine.guardian
"""
_WAIT_TO_END = """
trap "" HUP INT TERM
read -r word && exit
kill -s TERM "$0"
for second in $(seq "$1"); do
    kill -s 0 -- "-$0" && sleep 1 || exit
done
kill -s KILL -- "-$0"
"""


@contextmanager
def guarded(workspace: Workspace, study: str, *, kept: str) -> Iterator[None]:
    """Let a guardian watch over this process meanwhile. `kept`: the name of the study's folder."""
    about = {"url": workspace.url, "runs": str(workspace.runs), "study": study, "kept": kept}
    with _shell(_WAIT, sys.executable) as guardian, _marked() as mark:
        try:
            about |= {"mark": mark, "pid": str(os.getpid())}
            _send(guardian, json.dumps(about))  # through the pipe: every user can read arguments
            yield
        finally:
            _send(guardian, "done")


@contextmanager
def _marked() -> Iterator[str]:
    """Mark all that this process starts meanwhile, and end at last what was left behind; the mark.

    Searches in threads of one process share a mark, as they share the environment that has it.
    """
    with _marking:
        before = os.environ.get(MARK_VARIABLE)
        mark = before if before in _sharing else None
        if mark is None or not mark.startswith(f"{os.getpid()}-"):  # a fork has its parent's
            mark = f"{os.getpid()}-{secrets.token_hex(8)}"
            _sharing[mark] = before
        os.environ[MARK_VARIABLE] = mark
        _searches[mark] += 1
    try:
        yield mark
    finally:
        with _marking:
            _searches[mark] -= 1
            is_last = not _searches[mark]
            if is_last:
                del _searches[mark]
                before = _sharing.pop(mark)
                os.environ.pop(MARK_VARIABLE)
                os.environ.update({} if before is None else {MARK_VARIABLE: before})
        if is_last:
            end_orphans(mark)


@contextmanager
def ended_with_this_process(leader: int) -> Iterator[None]:
    """Let a guardian end a process and its group if this process is killed meanwhile."""
    with _shell(_WAIT_TO_END, str(leader), f"{LEAVE_SECONDS:.0f}") as guardian:
        try:
            yield
        finally:
            _send(guardian, "done")


def _shell(script: str, *words: str) -> subprocess.Popen[bytes]:
    """A shell that outlives this process, which is at the other end of its standard input."""
    return subprocess.Popen(
        ["/bin/sh", "-c", script, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _send(guardian: subprocess.Popen[bytes], line: str) -> None:
    assert guardian.stdin is not None
    with suppress(BrokenPipeError):  # it was killed; the search continues without it
        guardian.stdin.write(line.encode() + b"\n")
        guardian.stdin.flush()


def end_orphans(mark: str) -> None:
    """Kill what trials have left behind, except descendants of this process."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it ended meanwhile, or is not ours
            if process.environ().get(MARK_VARIABLE) == mark and psutil.Process() not in process.parents():
                process.kill()


def end_processes(mark: str, pid: int) -> None:
    """Kill what the driver `pid` started and left behind, and remove its temporary folders."""
    deadline = time.monotonic() + WORKER_EXIT_SECONDS
    while any(map(_is_worker, left := _remaining(mark, pid))) and time.monotonic() < deadline:
        time.sleep(0.05)
    deadline += GIVE_UP_SECONDS
    while left and time.monotonic() < deadline:
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1.0)
        left = _remaining(mark, pid)
    for root in {tempfile.gettempdir(), "/tmp"}:
        for folder in Path(root).glob(f"{TEMPORARY_PREFIX}{pid}-*"):
            remove_folder(folder)


def _remaining(mark: str, pid: int) -> list[psutil.Process]:
    """Living processes with the mark. Ray's agents overwrite it with a title, but keep their logs open."""
    folder, remaining = f"/{TEMPORARY_PREFIX}{pid}-", []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it ended meanwhile, or is not ours
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            files = (file.path for file in process.open_files())
            if process.environ().get(MARK_VARIABLE) == mark or any(folder in file for file in files):
                remaining.append(process)
    return remaining


def _is_worker(process: psutil.Process) -> bool:
    try:
        return WORKER in process.cmdline()
    except psutil.Error:  # it ended meanwhile
        return False


def requeue_running(workspace: Workspace, study: str, *, kept: str) -> None:
    """Requeue the trials that a killed driver left running, unless another search of the study has begun."""
    from optuna.trial import TrialState

    from ...storage import StorageError
    from ...storage.connection import patiently
    from ...storage.database import open_storage
    from ...storage.live import LiveStorage
    from ...storage.trial_attrs import at_rung

    deadline = time.monotonic() + GIVE_UP_SECONDS

    def waits(message: str) -> None:
        if time.monotonic() > deadline:
            raise StorageError(message)

    with tidying(workspace, kept) as free, suppress(StorageError, KeyError):  # the database may be gone
        if not free:
            return
        opened = patiently(lambda: open_storage(workspace.url), waits)
        live = patiently(lambda: LiveStorage(opened, study), waits)
        for trial in live.get_all_trials(0, deepcopy=False, states=(TrialState.RUNNING,)):
            if not at_rung(trial):
                live.requeue(trial.number)
        patiently(live.flush, waits)
        live.close()


def main() -> None:
    """Clean up after the driver that the first line of standard input describes."""
    seldom()
    about = json.loads(sys.stdin.readline())
    end_processes(about["mark"], int(about["pid"]))
    from ...storage.workspace import Workspace

    requeue_running(Workspace(about["url"], Path(about["runs"])), about["study"], kept=about["kept"])


if __name__ == "__main__":
    main()
