"""What a script is writing when it is to end, so that nobody goes on from half a checkpoint.

A script is to save and then report. One that reports first, or saves in another thread, may be told to end
in the middle of a file. So it is given the time to come to the file's end, and what it is killed in is set
aside. A file is being written while a process has it open to write; logs and databases, which stay open, do
not count.
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

from .output import LOOK_SECONDS, Output, Process

WRITE_SECONDS = 10.0  # for a script to finish what it writes, before it is told to end
QUIET_SECONDS = 0.2  # without a change, after which a checkpoint counts as whole
STILL_SECONDS = 1.0  # for a process that was told to stop to do so; one that waits for a disk stops late
BETWEEN_SECONDS = 1.0  # that this is waited for: some scripts save all the time, and train on meanwhile
INCOMPLETE = ".incomplete"  # is put behind the name of a file that was not finished
State = tuple[int, int, int]  # of a file: its inode, bytes, and nanoseconds of its last change
STAY_OPEN = re.compile(r"events\.out\.tfevents.*|.*\.(csv|jsonl|log|db|sqlite3?)(-\w+)?")

# Held while processes are stopped to look at what they write: another thread would let them go on meanwhile.
SIGNALLING = threading.RLock()


def let_write(
    ranks: Sequence[Process], folder: Path, output: Output, reports: Sequence[int] = ()
) -> dict[Path, State]:
    """Wait until nothing in the folder is being written, for a while, and stop the script right there.

    `reports` are the times of its last two reports in nanoseconds. Of files that it wrote between them, it
    writes all again or none: one that follows another after a pause is waited for.

    A stopped process hears a signal to end when it is let go on. What it is writing still when it has had its
    time is returned, with its state: where that stays the same, the script has not come to its end.
    """
    since = time.monotonic()
    while None in [rank.poll() for rank in ranks]:
        waited = time.monotonic() - since
        with SIGNALLING:
            still = _stop(ranks)
            now_written = set(_written(_below(ranks), folder))
            whole = _is_saved_again(folder, reports)
            between = whole is False or (
                whole is None and waited < BETWEEN_SECONDS and _has_just_changed(folder)
            )
            if waited >= WRITE_SECONDS or (still and not (between or now_written)):
                return {path: state for path in now_written if (state := _state(path)) is not None}
            _signal(ranks, signal.SIGCONT)
        output.drain(LOOK_SECONDS)
    return {}


def unfinished(files: Mapping[Path, State]) -> list[Path]:
    """Those that are as they were when their script was told to end."""
    return [path for path, state in files.items() if _state(path) == state]


def half_written(ranks: Sequence[Process], folder: Path) -> list[Path]:
    """The files in the folder that the script is in the middle of; it is stopped, to be killed."""
    _stop(ranks)
    return list(_written(_below(ranks), folder))


def await_still(processes: Sequence[psutil.Process]) -> bool:
    """Wait until no thread runs of processes that were told to stop, for a while; whether none does.

    Each goes on for a moment, and what it opens in that moment would be missed.
    """
    until = time.monotonic() + STILL_SECONDS
    while not (still := all(map(_is_still, processes))) and time.monotonic() < until:
        time.sleep(0.001)
    return still


def being_written(processes: Iterable[psutil.Process], counts: Callable[[Path], bool]) -> Iterator[Path]:
    """The files that `counts` that these processes have open to write whole."""
    for process in processes:
        with suppress(psutil.Error):  # it has ended meanwhile, or is not ours
            for file in process.open_files():
                mode, path = getattr(file, "mode", "r"), Path(file.path)  # Linux alone knows the mode
                if mode[:1] != "a" and mode != "r" and not STAY_OPEN.fullmatch(path.name) and counts(path):
                    yield path


def set_aside(files: Iterable[Path]) -> None:
    """Rename files whose writer was killed in the middle of them."""
    for file in set(files):
        with suppress(FileNotFoundError):  # another process of the script had it open too
            file.rename(file.with_name(file.name + INCOMPLETE))


def _written(processes: Iterable[psutil.Process], folder: Path) -> Iterator[Path]:
    inside = folder.resolve()  # as the system names what is open
    return being_written(processes, lambda path: path.is_relative_to(inside))


def _state(path: Path) -> State | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _has_just_changed(folder: Path) -> bool:
    """Whether a checkpoint may be between two of its files, or two pieces of one."""
    now = time.time_ns()
    return any(abs(now - changed) < QUIET_SECONDS * 1e9 for _, changed in _changes(folder))


def _is_saved_again(folder: Path, reports: Sequence[int]) -> bool | None:
    """Whether what was saved between the last two reports was all saved again after the last one.

    None where nothing was, or there are no two. Files that differ in numbers are one part: `model-3.pt` is
    saved in place of `model-2.pt`.
    """
    if len(reports) < 2:
        return None
    earlier, last = reports
    parts = [(re.sub(r"\d+", "", path.relative_to(folder).as_posix()), at) for path, at in _changes(folder)]
    again = {part for part, at in parts if at >= last}
    return again >= {part for part, at in parts if at >= earlier} if again else None


def _changes(folder: Path) -> Iterator[tuple[Path, int]]:
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
            yield process  # first: it counts also where nobody can tell its children
            yield from process.children(recursive=True)


def _stop(ranks: Sequence[Process]) -> bool:
    """Stop them; whether all have stopped in time."""
    _signal(ranks, signal.SIGSTOP)
    groups = {rank.pid for rank in ranks}
    return await_still([process for process in _below(ranks) if _group(process) in groups])


def _group(process: psutil.Process) -> int | None:
    try:
        return os.getpgid(process.pid)
    except (ProcessLookupError, PermissionError):
        return None  # ended meanwhile, or not ours


def _is_still(process: psutil.Process) -> bool:
    try:
        tasks = list(Path(f"/proc/{process.pid}/task").iterdir())
        states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks]
    except OSError:  # it has ended, or this is no Linux, where nobody knows what is being written
        return True
    return all(state in "TtZX" for state in states)


def _signal(ranks: Sequence[Process], number: signal.Signals) -> None:
    for process in ranks:
        with suppress(ProcessLookupError, PermissionError):  # nothing of it is left, or nothing of ours
            os.killpg(process.pid, number)
