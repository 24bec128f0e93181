"""Where a user's studies are: one database, and one folder for their files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from .database import resolve_url, sqlite_file


@dataclass(frozen=True)
class Workspace:
    """A database of studies, and the folder under which each study has one for its files."""

    url: str = field(repr=False)  # it may hold a password
    runs: Path

    @classmethod
    def at(cls, storage: str | None = None, runs: str | Path | None = None) -> Self:
        """The workspace that a user names by a SQLite file or a URL, and a folder.

        Without `storage`, HPSEARCH_STORAGE names it, else it is hpsearch.db in this folder. Without `runs`,
        the files are in `runs` beside the SQLite file, or in this folder for a server's database. Raises
        `UrlError` where `storage` is no database's URL.
        """
        url = resolve_url(storage)
        if runs is not None:
            return cls(url, Path(runs).absolute())
        file = sqlite_file(url)
        return cls(url, (file.parent if file else Path.cwd()) / "runs")

    @property
    def file(self) -> Path | None:
        """The SQLite file; None for a server's database."""
        return sqlite_file(self.url)
