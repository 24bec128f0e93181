"""Claims: a folder under `runs/` belongs to the study that has claimed it, and no other study uses it.

    runs/<folder>/.study    the study's id, and its database

A search locks this file, so that two that start at the same time take different folders. A folder without
trials that is not locked is free, whoever has claimed it. A folder of an earlier hpsearch has no claim: it
belongs to the first study that names it, which then claims it.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import sqlite3
import uuid
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from . import StorageError
from .database import uri_of
from .files import CLAIM, has_trials, opened, study_folder
from .locks import locked
from .workspace import Workspace

ID = "hpsearch:id"  # the study attribute that identifies it, whatever its name and wherever its database


@dataclass(frozen=True)
class Owner:
    """The study that a folder belongs to."""

    study: str  # its id
    database: Path | None  # its SQLite file when it was last searched; None for a server

    @classmethod
    def of(cls, folder: Path) -> Owner | None:
        """The owner in a folder's claim; None without one. Raises `StorageError` where it cannot be read."""
        file = folder / CLAIM
        try:
            descriptor = opened(file, os.O_RDONLY)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"cannot read {file}: {error.strerror}") from error
        with open(descriptor, encoding="utf-8", errors="surrogateescape") as stream:
            study, _, database = stream.read().partition("\n")
        if not study:
            return None
        path = database.removesuffix("\n")  # from the folder
        return cls(study, Path(os.path.normpath(folder.resolve() / path)) if path else None)

    def is_study(self, study: str | None, database: Path | None) -> bool:
        """Whether the owner is the study of this id in this database, which may have been moved here.

        It is not where the study is also in the claim's database: then this one is a copy.
        """
        if self.study != study:
            return False
        if self.database is None or database is None or self.database == database.resolve():
            return True
        return not _holds(self.database, study)


class Claim:
    """A folder under `runs` for the files of a study, locked from `take` until this is left."""

    def __init__(self, workspace: Workspace, kept: str, study: str) -> None:
        """`kept` is the folder's name, `study` the study's id."""
        self.kept = kept
        self.study = study
        self.folder = study_folder(workspace.runs, kept)
        self._database = workspace.file
        self._descriptor: int | None = None

    def take(self, *, begins: bool = False) -> bool:
        """Make and lock the folder; False where it belongs to another study.

        A study that `begins` takes no folder with trials. Raises `StorageError` where it cannot be written.
        """
        if self._descriptor is not None:
            return True
        file = self.folder / CLAIM
        if begins and has_trials(self.folder):
            return False  # without creating anything in it
        try:
            with ExitStack() as undo:
                self.folder.mkdir(parents=True, exist_ok=True)
                try:
                    descriptor = opened(file, os.O_RDWR | os.O_CREAT)
                except FileNotFoundError:
                    return self.take(begins=begins)  # its last holder has just removed the folder
                undo.callback(os.close, descriptor)
                if not locked(descriptor):
                    return False
                if not _is_at(file, descriptor):
                    return self.take(begins=begins)  # its last holder removed it before releasing the lock
                if has_trials(self.folder) and (begins or not self.is_ours()):
                    return False
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, self._words().encode(errors="surrogateescape"), 0)
                undo.pop_all()
        except OSError as error:
            if error.errno == errno.EMFILE:
                raise  # any file would have met the limit
            raise StorageError(f"cannot write {file}: {error.strerror}") from error
        self._descriptor = descriptor
        return True

    def is_ours(self) -> bool:
        """Whether the folder belongs to the study, or to none."""
        owner = Owner.of(self.folder)
        return owner is None or owner.is_study(self.study, self._database)

    def _words(self) -> str:
        path = os.path.relpath(self._database.resolve(), self.folder.resolve()) if self._database else ""
        return f"{self.study}\n{path}\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Release the folder: it stays the study's where it has trials by now, and is removed otherwise."""
        if self._descriptor is None:
            return
        with suppress(OSError):
            if not has_trials(self.folder):
                (self.folder / CLAIM).unlink()
                self.folder.rmdir()
        os.close(self._descriptor)
        self._descriptor = None


def claim_new(workspace: Workspace, name: str) -> Claim:
    """A folder for a new study, named after it unless another study has a folder of that name.

    That study may have been renamed, be in another database, or have lost its database.
    """
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    claims = (Claim(workspace, kept, uuid.uuid4().hex) for kept in names)
    return next(claim for claim in claims if claim.take(begins=True))


def _is_at(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(file, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _holds(database: Path, study: str) -> bool:
    """Whether a SQLite file has the study of this id; assumed for a file that cannot be read."""
    query = "SELECT 1 FROM study_user_attributes WHERE key = ? AND value_json = ?"
    try:
        if not database.is_file():
            return False
        with closing(sqlite3.connect(uri_of(database), uri=True)) as connection:
            return connection.execute(query, (ID, json.dumps(study))).fetchone() is not None
    except (sqlite3.Error, OSError):
        return True
