"""Detects files that a script is writing when it has to end, so that no trial resumes from half a checkpoint.

A script should save and then report. One that reports first, or saves in another thread, may be stopped in
the middle of a file. So it gets time to finish the file, and files that are still unfinished when it is
killed are set aside. A file counts as being written while a process has it open for writing, except for logs
and databases, which stay open.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from .output import POLL_SECONDS, Output, Process

WRITE_SECONDS = 10.0  # for a script to finish writing before it is told to end
QUIET_SECONDS = 0.2  # without a change, after which a checkpoint counts as complete
STILL_SECONDS = 1.0  # for a process to stop after SIGSTOP; one that waits for a disk stops late
BETWEEN_SECONDS = 1.0  # to wait for that: some scripts save all the time while they train
TOLD_SECONDS = 1.0  # for a launcher such as torchrun to pass SIGTERM on to the processes that it started
INCOMPLETE = ".incomplete"  # suffix of unfinished files
FileState = tuple[int, int, int]  # of a file: its inode, bytes, and nanoseconds of its last change
STAY_OPEN = re.compile(r"events\.out\.tfevents.*|.*\.(csv|jsonl|log|db|sqlite3?)(-\w+)?")

# Held while processes are stopped to see what they write, so that no other thread continues them meanwhile.
SIGNALLING = threading.RLock()


def let_write(
    ranks: Sequence[Process], folder: Path, output: Output, heard: Callable[[], Sequence[int]]
) -> dict[Path, FileState]:
    """Wait, for a limited time, until nothing in the folder is being written, and stop the script there.

    `heard` returns the times of its last two reports in nanoseconds, also those that came since it was told
    to pause: a script that trains further saves again. It is assumed that the files written between two
    reports are written together: if some have been written again, the others are waited for. A script that
    reports and then saves gets a moment to begin.

    A stopped process receives further signals when it continues. The files that it is still writing at the
    time limit are returned with their states: if a state stays the same, the file was not finished.
    """
    since = time.monotonic()
    while None in [rank.poll() for rank in ranks]:
        waited = time.monotonic() - since
        with SIGNALLING:
            still = _stop(ranks)
            now_written = set(_written(_below(ranks), folder))
            output.drain(0)
            reports = heard()
            whole = _is_saved_again(folder, reports)
            between = whole is False or (
                whole is None
                and waited < BETWEEN_SECONDS
                and (_has_just_changed(folder) or _saves_next(ranks, folder, reports))
            )
            if waited >= WRITE_SECONDS or (still and not (between or now_written)):
                return {path: state for path in now_written if (state := _state(path)) is not None}
            _signal(_groups(ranks), signal.SIGCONT)
        output.drain(POLL_SECONDS)
    return {}


def terminate(ranks: Sequence[Process], output: Output) -> None:
    """Send SIGTERM to the script's process groups, which may be stopped, and let them continue.

    Processes that a launcher started in groups of their own, as torchrun does, are told by the launcher. They
    stay stopped until then: otherwise they would begin the next checkpoint, and be ended in the middle of it.
    """
    others = [process for process in _below(ranks) if _group(process) not in {rank.pid for rank in ranks}]
    groups = _groups(ranks) - {rank.pid for rank in ranks}
    with SIGNALLING:
        _signal([rank.pid for rank in ranks], signal.SIGTERM)
        _signal([rank.pid for rank in ranks], signal.SIGCONT)
        until = time.monotonic() + TOLD_SECONDS
        while groups and None in [rank.poll() for rank in ranks] and time.monotonic() < until:
            is_told = any(map(_has_pending_sigterm, others))
            output.drain(POLL_SECONDS)  # after the first one that is told, a moment for the rest
            if is_told:
                break
        _signal(groups, signal.SIGCONT)


def kill(ranks: Sequence[Process]) -> None:
    """Kill what is left of the script, also where a launcher did not end and so told nobody."""
    _signal(_groups(ranks), signal.SIGKILL)
    for rank in ranks:
        rank.wait()


def await_save(folder: Path) -> None:
    """Give a script a moment to save for the first time.

    Some report first and then save. A trial that has no checkpoint cannot pause at its report.
    """
    until = time.monotonic() + BETWEEN_SECONDS
    while time.monotonic() < until and (not any(True for _ in changes(folder)) or _has_just_changed(folder)):
        time.sleep(POLL_SECONDS)


def unfinished(files: Mapping[Path, FileState]) -> list[Path]:
    """The files that have not changed since their script was told to end."""
    return [path for path, state in files.items() if _state(path) == state]


def half_written(ranks: Sequence[Process], folder: Path) -> list[Path]:
    """Stop the script, and return the files in the folder that it is writing."""
    _stop(ranks)
    return list(_written(_below(ranks), folder))


def await_still(processes: Sequence[psutil.Process]) -> bool:
    """Wait, for a limited time, until all threads of stopped processes stand still; whether they do.

    Each continues for a moment after the signal, and files that it opens then would be missed.
    """
    until = time.monotonic() + STILL_SECONDS
    while not (still := all(map(_is_still, processes))) and time.monotonic() < until:
        time.sleep(0.001)
    return still


def being_written(processes: Iterable[psutil.Process], counts: Callable[[Path], bool]) -> Iterator[Path]:
    """The files that these processes have open for writing (not appending), if `counts` is true for them."""
    for process in processes:
        with suppress(psutil.Error):  # it has ended, or is not ours
            for file in process.open_files():
                mode, path = getattr(file, "mode", "r"), Path(file.path)  # only Linux has the mode
                if mode[:1] != "a" and mode != "r" and not STAY_OPEN.fullmatch(path.name) and counts(path):
                    yield path


def set_aside(files: Iterable[Path]) -> None:
    """Rename unfinished files."""
    for file in set(files):
        with suppress(FileNotFoundError):  # already renamed, as another process of the script had it open too
            file.rename(file.with_name(file.name + INCOMPLETE))


def _written(processes: Iterable[psutil.Process], folder: Path) -> Iterator[Path]:
    inside = folder.resolve()  # like the paths of open files
    return being_written(processes, lambda path: path.is_relative_to(inside))


def _state(path: Path) -> FileState | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _has_just_changed(folder: Path) -> bool:
    """Whether the script may be between two files of a checkpoint, or two pieces of a file."""
    now = time.time_ns()
    return any(abs(now - changed) < QUIET_SECONDS * 1e9 for _, changed in changes(folder))


def _is_saved_again(folder: Path, reports: Sequence[int]) -> bool | None:
    """Whether all files saved between the last two reports were saved again after the last one.

    None if none was, or there are not two reports. Names that differ only in numbers count as one file:
    `model-3.pt` replaces `model-2.pt`.
    """
    if len(reports) < 2:
        return None
    earlier, last = reports
    parts = [(re.sub(r"\d+", "", path.relative_to(folder).as_posix()), at) for path, at in changes(folder)]
    again = {part for part, at in parts if at >= last}
    return again >= {part for part, at in parts if at >= earlier} if again else None


def _saves_next(ranks: Sequence[Process], folder: Path, reports: Sequence[int]) -> bool:
    """Whether the script probably saves after its last report, rather than before, and has not yet.

    It does if it has never saved before a report, or saved soon after the last but one.
    """
    saved = [at for _, at in changes(folder)]
    if not reports or any(at >= reports[-1] for at in saved):
        return False
    if len(reports) == 1:
        with suppress(psutil.Error):
            begun = psutil.Process(ranks[0].pid).create_time() * 1e9
            return not any(at >= begun for at in saved)
        return False
    earlier, last = reports
    return bool(saved) and max(saved) - earlier < last - max(saved)


def changes(folder: Path) -> Iterator[tuple[Path, int]]:
    """The files of a checkpoint, with the times of their last changes in nanoseconds."""
    for inside, _, names in os.walk(folder):
        for path in (Path(inside, name) for name in names if not STAY_OPEN.fullmatch(name)):
            if (state := _state(path)) is not None:
                yield path, state[2]


def _below(ranks: Sequence[Process]) -> Iterator[psutil.Process]:
    """The script's processes, and those that they started."""
    for rank in ranks:
        with suppress(psutil.Error):
            process = psutil.Process(rank.pid)
            yield process  # first, in case its children cannot be listed
            yield from process.children(recursive=True)


def _groups(ranks: Sequence[Process]) -> set[int]:
    """The process groups of the script: those of its ranks, and those that launchers made below them."""
    below = {group for process in _below(ranks) if (group := _group(process)) is not None}
    return {rank.pid for rank in ranks} | below - {os.getpgrp()}


def _stop(ranks: Sequence[Process]) -> bool:
    """Stop the script. Returns whether all its processes have stopped in time."""
    groups, before = _groups(ranks), set[int]()
    while groups != before:  # one that has not stopped yet may start another
        _signal(groups - before, signal.SIGSTOP)
        groups, before = groups | _groups(ranks), groups
    return await_still([process for process in _below(ranks) if _group(process) in groups])


def _group(process: psutil.Process) -> int | None:
    try:
        return os.getpgid(process.pid)
    except (ProcessLookupError, PermissionError):
        return None  # it has ended, or is not ours


def _has_pending_sigterm(process: psutil.Process) -> bool:
    """Whether a stopped process was sent SIGTERM, which it receives when it continues."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:  # it has ended, or this is not Linux
        return False
    pending = re.findall(r"^(?:Sig|Shd)Pnd:\t(\w+)$", status, re.MULTILINE)
    return any(int(mask, 16) >> (signal.SIGTERM - 1) & 1 for mask in pending)


def _is_still(process: psutil.Process) -> bool:
    try:
        tasks = list(Path(f"/proc/{process.pid}/task").iterdir())
        states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks]
    except OSError:  # it has ended, or this is not Linux, where open files cannot be examined anyway
        return True
    return all(state in "TtZX" for state in states)


def _signal(groups: Iterable[int], number: signal.Signals) -> None:
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):  # it has ended, or is not ours
            os.killpg(group, number)
