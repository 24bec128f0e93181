"""The drivers that a server starts: processes of their own, which go on when the server ends.

Each is the command `hpsearch run --study NAME` in a slice of the machine, in a session of its own. Its output
goes to driver.log in the folder of the study.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from ....storage import StorageError
from ....storage.claims import Owner
from ....storage.files import study_folder
from ....storage.wanted import DRIVER_VARIABLE, Wanted, moment
from ....storage.workspace import Workspace
from ...backends.resources import CORES_VARIABLE, MEMORY_VARIABLE, PRICE_VARIABLE
from ...errors import SearchError, why
from ...queue.observe import Observed
from ...queue.slots import Machine, Slice

LOG = "driver.log"
LONGEST_LOG = 16 << 20  # bytes, above which a log is put aside when a driver starts
LONGEST_WORDS = 500  # characters of a failure
LAST_BYTES = 16 << 10  # of a log, in which its last words are
ERROR = "hpsearch: "  # before what a command ends with
STOP_SECONDS = 75.0  # for a driver to leave: its trials have 30 to report, and their workers as many to end
# Variables of the server. Who is notified of its studies is told by the server itself.
NOT_PASSED_ON = ("HPSEARCH_TOKEN", "HPSEARCH_SERVER", "HPSEARCH_SEARCH", "HPSEARCH_NOTIFY")


@dataclass
class Child:
    """A driver that this server has started."""

    study: int  # its key in the database
    process: subprocess.Popen[bytes]
    slice: Slice
    since: float
    log: Path
    has_locked: bool = False  # its study, so that it leaves where it holds the lock no more

    @property
    def code(self) -> int | None:
        """Its exit code, negative after a signal; None while it runs."""
        return self.process.poll()


def log_of(workspace: Workspace, folder: str) -> Path:
    """The log of a study's drivers."""
    return study_folder(workspace.runs, folder) / LOG


def start_driver(
    workspace: Workspace, study: str, key: int, folder: str, wanted: Wanted, place: Slice, machine: Machine,
    *, home: Path, bundles: Path,
) -> Child:  # fmt: skip
    """Start the driver of a study in a slice. Raises `SearchError` where that cannot be."""
    cwd = folder_of(wanted, bundles)
    log = log_of(workspace, folder)
    command = [sys.executable, "-P", "-m", "hpsearch.search.cli", "run", f"--study={study}", "--plain"]
    command += [f"--runs={workspace.runs}", f"--backend={wanted.backend}"]
    command += [] if wanted.ray_address is None else [f"--ray-address={wanted.ray_address}"]
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        _put_aside(log)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with open(os.open(log, flags, 0o666), "ab", buffering=0) as output:
            output.write(
                f"--- {moment(time.time())[:19]}Z started by hpsearch serve with {_words(place)}\n".encode()
            )
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=cwd,
                env=environment(os.environ, place, machine)
                | {
                    DRIVER_VARIABLE: "1",
                    "HPSEARCH_STORAGE": workspace.url,  # not an argument, which every user can read
                    "HPSEARCH_HOME": str(home),
                },
            )
    except OSError as error:
        raise SearchError(f"its driver cannot be started: {why(error)}") from error
    return Child(key, process, place, time.time(), log)


def folder_of(wanted: Wanted, bundles: Path) -> Path:
    """The folder that a driver starts in. Raises `SearchError` where it is gone.

    A bundle is among this server's, or where the server has it that was sent the study.
    """
    folder = Path(wanted.cwd or "/")
    if wanted.bundle is not None and (wanted.cwd is None or (bundles / wanted.bundle).is_dir()):
        folder = bundles / wanted.bundle
    if not folder.is_dir():
        what = "the bundle of its code" if wanted.bundle is not None else "the folder it was submitted from"
        raise SearchError(f"{what} is gone: {folder}")
    return folder


def what_lacks(
    study: Observed, wanted: Wanted, id: str | None, workspace: Workspace, bundles: Path
) -> str | None:
    """What is not here of the files of the study with this id: its code, or what its trials have written."""
    folder = study_folder(workspace.runs, study.folder)
    try:
        folder_of(wanted, bundles)
        owner = Owner.of(folder)
    except (SearchError, StorageError) as error:
        return str(error)
    are_here = not study.has_begun if owner is None else owner.study == id
    return None if are_here else f"the files of its trials are not in {folder}"


def environment(inherited: Mapping[str, str], place: Slice, machine: Machine) -> dict[str, str]:
    """The variables of a process that works in a slice, of those that a server has."""
    variables = {name: value for name, value in inherited.items() if name not in NOT_PASSED_ON}
    variables |= {
        CORES_VARIABLE: ",".join(map(str, place.cpus)),
        MEMORY_VARIABLE: str(place.memory),
        "COLUMNS": "160",
    }
    if machine.price_per_hour is not None:
        variables[PRICE_VARIABLE] = repr(machine.price_per_hour)
    if machine.gpus or "CUDA_VISIBLE_DEVICES" in variables:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(place.gpus)
    return variables


def _words(place: Slice) -> str:
    cores = f"cores {','.join(map(str, place.cpus))}" if place.cpus else "no core of its own"
    gpus = f", GPUs {','.join(place.gpus)}" if place.gpus else ""
    return cores + gpus + (f", {place.memory >> 20} MiB" if place.memory else "")


def _put_aside(log: Path) -> None:
    with suppress(FileNotFoundError):
        if log.stat().st_size > LONGEST_LOG:
            shutil.move(log, log.with_suffix(".log.old"))


def last_words(log: Path) -> tuple[str, bool]:
    """The last that a driver has printed, and whether that is an error of ours; empty where it is nothing."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - LAST_BYTES))
            lines = [line.strip() for line in stream.read().decode(errors="replace").splitlines()]
    except OSError:
        return "", False
    began = max((at for at, line in enumerate(lines) if line.startswith("--- ")), default=-1)
    said = [line for line in lines[began + 1 :] if line]
    error = next((at for at, line in enumerate(said) if line.startswith(ERROR)), None)
    words = said[-1:] if error is None else said[error:]
    return "; ".join(words).removeprefix(ERROR)[:LONGEST_WORDS], error is not None


def append_line(log: Path, line: str) -> None:
    """Add a line of the server to a log, where it can be written."""
    with suppress(OSError), open(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW), "ab") as stream:
        stream.write(f"--- {line}\n".encode(errors="replace"))


def end(pid: int) -> None:
    """Kill a driver that does not leave. Its guardian ends its workers and requeues its trials."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def starting_drivers(workspace: Workspace) -> Iterator[tuple[str, int, Slice]]:
    """Drivers that some server has started for this database, without a look at their locks.

    Their studies, processes and slices. A server that was killed may have started one just before.
    """
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            words = process.cmdline()
            if "hpsearch.search.cli" not in words or process.status() == psutil.STATUS_ZOMBIE:
                continue
            variables = process.environ()
            if DRIVER_VARIABLE not in variables or variables.get("HPSEARCH_STORAGE") != workspace.url:
                continue
            place = Slice.in_variables(variables)
            for word in words:
                if word.startswith("--study=") and place is not None:
                    yield word.removeprefix("--study="), process.pid, place
