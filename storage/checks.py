"""Checks whether a folder can hold a database: WAL, locks that end with their process, and the clock."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import psutil

from .database import WalConnection

# File systems that several machines write to: SQLite's WAL uses memory that only one machine shares.
NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "sshfs"}
)
UNLOCK_SECONDS = 5.0  # for the lock of a killed process to be released
LOCK_HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


def file_system(folder: Path) -> str:
    """The type of the folder's file system, such as `ext4` or `nfs4`; empty where it is unknown."""
    mounts = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    inside = folder.resolve()
    name: str = next((mounts[str(at)] for at in (inside, *inside.parents) if str(at) in mounts), "")
    return name.removeprefix("fuse.")  # fuse.sshfs, fuse.glusterfs


def sqlite_faults(folder: Path) -> list[str]:
    """What SQLite or the file system lacks here that a search needs; empty where nothing is missing.

    Writes a small database into the folder, and removes it. Raises `OSError` where it cannot be written.
    """
    scratch = Path(tempfile.mkdtemp(prefix=".hpsearch-check-", dir=folder))
    try:
        file = scratch / "check.db"
        with closing(sqlite3.connect(file, timeout=0, factory=WalConnection)) as connection:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            connection.execute("CREATE TABLE t (x INTEGER)")
            connection.commit()
        faults = [] if mode == "wal" else [f"SQLite has no WAL here: its journal mode stays {mode}"]
        return faults + _lock_faults(file)
    except sqlite3.Error as error:
        return [f"SQLite fails here: {error}"]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def clock_offset(folder: Path) -> float:
    """Seconds by which the clock of the folder's file system is ahead of this process's."""
    before = time.time()
    with tempfile.NamedTemporaryFile(prefix=".hpsearch-check-", dir=folder) as stream:
        stamp = os.stat(stream.name).st_mtime
    after = time.time()
    return stamp - before if stamp < before else max(0.0, stamp - after)


def _lock_faults(file: Path) -> list[str]:
    """Whether another process's write lock keeps this one out, and only as long as that process lives."""
    holder = subprocess.Popen(
        [sys.executable, "-I", "-c", LOCK_HOLDER, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        if holder.stdout.readline().strip() != b"held":
            return ["another process cannot lock a SQLite database here"]
        if not _waits(file, "BEGIN IMMEDIATE"):
            return ["the lock of another process does not keep a second writer out"]
        if _waits(file, "SELECT count(*) FROM t"):
            return ["a reader has to wait for a writer"]
        holder.kill()
        holder.wait()
        deadline = time.monotonic() + UNLOCK_SECONDS
        while _waits(file, "BEGIN IMMEDIATE"):
            if time.monotonic() > deadline:
                return [f"the lock of a killed process is still held after {UNLOCK_SECONDS:g} s"]
            time.sleep(0.05)
        return []
    finally:
        holder.kill()
        holder.communicate()


def _waits(file: Path, statement: str) -> bool:
    """Whether a statement has to wait for the lock of another process."""
    with closing(sqlite3.connect(file, timeout=0, factory=WalConnection)) as connection:
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                return True
            raise
        return False
