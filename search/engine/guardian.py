"""What outlives a driver that is killed: ends the processes it left, and puts its running trials back.

While the search runs, this is a shell of a megabyte that waits at the end of a pipe. The driver says a word
when it leaves by itself. An end of file without one means that it was killed: the shell becomes this module.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ...storage.files import remove_folder
from ...storage.locks import tidying

if TYPE_CHECKING:
    from ...storage.workspace import Workspace

MARK_VARIABLE = "HPSEARCH_SEARCH"  # in the environment of all that a search starts
TEMPORARY_PREFIX = "hpsearch-"  # and the process, in the names of temporary folders
GIVE_UP_SECONDS = 600.0  # with a process that cannot end, or a database that does not answer
WORKER_EXIT_SECONDS = 1.0  # for workers to notice by themselves that their driver is gone
_WAIT = """
trap "" HUP INT TERM
read -r about
read -r word || printf '%s\\n' "$about" | exec "$0" -P -m hpsearch.search.engine.guardian
"""


@contextmanager
def guarded(workspace: Workspace, study: str, *, kept: str) -> Iterator[None]:
    """Let a guardian watch over this process meanwhile. The study's files are `kept` under that name."""
    mark = f"{os.getpid()}-{secrets.token_hex(8)}"
    about = {"url": workspace.url, "runs": str(workspace.runs), "study": study, "kept": kept}
    about |= {"mark": mark, "pid": str(os.getpid())}
    before = os.environ.get(MARK_VARIABLE)
    guardian = subprocess.Popen(
        ["/bin/sh", "-c", _WAIT, sys.executable],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert guardian.stdin is not None
    os.environ[MARK_VARIABLE] = mark
    with guardian:
        try:
            _send(guardian, json.dumps(about))  # by the pipe: arguments can be read by everybody
            yield
        finally:
            _send(guardian, "done")
            os.environ.pop(MARK_VARIABLE) if before is None else os.environ.update({MARK_VARIABLE: before})
            end_orphans(mark)


def _send(guardian: subprocess.Popen[bytes], line: str) -> None:
    assert guardian.stdin is not None
    with suppress(BrokenPipeError):  # somebody killed it; a search goes on without
        guardian.stdin.write(line.encode() + b"\n")
        guardian.stdin.flush()


def end_orphans(mark: str) -> None:
    """Kill what trials have left behind; what this process itself has started stays."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # ended meanwhile, or not ours
            if process.environ().get(MARK_VARIABLE) == mark and psutil.Process() not in process.parents():
                process.kill()


def end_processes(mark: str, pid: int) -> None:
    """Kill what the driver `pid` started and left behind, and remove its temporary folders."""
    deadline = time.monotonic() + WORKER_EXIT_SECONDS
    while (left := _remaining(mark, pid)) and time.monotonic() < deadline:
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
    """Living processes with the mark; Ray's agents write their titles over it, but keep their logs open."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # ended meanwhile, or not ours
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            files = (file.path for file in process.open_files())
            if process.environ().get(MARK_VARIABLE) == mark or any(
                f"/{TEMPORARY_PREFIX}{pid}-" in file for file in files
            ):
                found.append(process)
    return found


def requeue_running(workspace: Workspace, study: str, *, kept: str) -> None:
    """Let the trials that a killed driver left running wait to be taken up again.

    Leaves them to a search that has begun meanwhile.
    """
    from optuna.trial import TrialState

    from ...storage import StorageError
    from ...storage.connection import patiently
    from ...storage.database import open_storage
    from ...storage.live import LiveStorage
    from ...storage.states import at_rung

    deadline = time.monotonic() + GIVE_UP_SECONDS

    def waits(message: str) -> None:
        if time.monotonic() > deadline:
            raise StorageError(message)

    with tidying(workspace, kept) as free, suppress(StorageError, KeyError):  # gone with its database
        if not free:
            return
        opened = patiently(lambda: open_storage(workspace.url), waits)
        live = patiently(lambda: LiveStorage(opened, study), waits)
        for trial in live.get_all_trials(0, deepcopy=False, states=(TrialState.RUNNING,)):
            if not at_rung(trial):
                live.suspend(trial.number)
        patiently(live.flush, waits)
        live.close()


def main() -> None:
    """Tidy up after the driver that the first line of standard input tells of."""
    about = json.loads(sys.stdin.readline())
    end_processes(about["mark"], int(about["pid"]))
    from ...storage.workspace import Workspace

    requeue_running(Workspace(about["url"], Path(about["runs"])), about["study"], kept=about["kept"])


if __name__ == "__main__":
    main()
