"""Reports in the log files that a program writes."""

from __future__ import annotations

import difflib
import glob
import re
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path

from ...base import ScriptError
from ...reports import PrintedReport
from .base import Arrived
from .columns import Columns, RowSource
from .follow import FollowedFile
from .rows import Row, RowReader, Rows, flat_row

MAX_FILES = 1000  # that match a path with wildcards


class FileSource(RowSource):
    """Follows a file, or all files that match a path with wildcards."""

    def __init__(
        self,
        metric: str,
        path: str,
        columns: Columns,
        *,
        place: str = "",
        reader: Callable[[], RowReader] = Rows,
        resumed: bool = False,
        before: int = 0,
    ) -> None:
        """`place`: where the rows are, for messages, if not in files that the user has named.

        `resumed`: whether an earlier attempt may have left rows in the files. `before`: the last step of what
        the checkpoint has in it.
        """
        super().__init__(metric, place, columns, before)
        self._before = before
        self.asks = columns.asks or f'write rows with "{columns.value}" to {path}'
        self._path, self._reader, self._resumed = path, reader, resumed
        self._named = path
        self._logs: dict[Path, Log] = {}
        self._began = False  # whether the program may have written already
        self._look()

    def end(self) -> Arrived:
        arrived = super().end()
        if not self.found_any and self._resumed:  # nothing was left to train
            for log in self._logs.values():
                log.rewind()
            self._rewound()
            arrived = super().end()._replace(from_first=True)
        return arrived

    def close(self) -> None:
        for log in self._logs.values():
            log.file.close()

    @property
    def near_misses(self) -> list[str]:
        value, logs = self._columns.value, self._logs.values()
        headless = [
            f'{log.file.path} has no header that names "{value}": its first line is {log.no_header}'
            for log in logs
            if log.no_header
        ]
        if headless and not self._unusable and value not in self._seen:
            return headless
        if self._unusable or self._seen:
            return super().near_misses
        faults = [f"{log.file.path} {fault}" for log in logs if (fault := log.fault)]
        return faults or [self._columns.missing() or self._missing()]

    def _missing(self) -> str:
        """What is there in place of a file that was not written."""
        log = next(iter(self._logs.values()), None)
        if log is not None and log.was_there:
            return f"{self._path} was there before and has not changed"
        if Path(self._path).exists():
            return f"{self._path} has no row"
        folder, there = Path(self._path).parent, ""
        if not folder.is_dir() and not glob.has_magic(self._path):
            there = f", and no folder {folder}"
        elif folder.is_dir():
            names = [each.name for each in folder.iterdir()]
            near = difflib.get_close_matches(Path(self._path).name, names, 1)
            there = f'; did you mean "{folder / near[0]}"?' if near else ""
        return f"there is no file {self._path} in {Path.cwd()}{there}"

    def _rewound(self) -> None:
        """All files are read again, with what earlier attempts have written."""
        self._has_zeros = False

    def _in_order(self) -> list[Log]:
        """The files in the order in which what is new in them is read."""
        return list(self._logs.values())

    def _counting(self, row: Row, path: Path) -> Row | None:
        """A row of this file as it counts; None if it does not. Raises `ScriptError` if nobody knows."""
        return row

    def _repeats(self, log: Log, step: int | None, is_old: bool) -> bool:
        """Whether a row was read before; `is_old`: its step does not rise."""
        return log.repeats(step, is_old) or (is_old and len(self._logs) > 1)

    def _check_names(self, log: Log) -> None:
        """Raise `ScriptError` if the metric or the step may be in several columns."""
        for name in (self._columns.value, self._columns.step or self._step):
            if name in log.twice:
                raise ScriptError(
                    f'{log.file.path} has several columns "{name}"; give each a name of its own, or report '
                    "from the program's output"
                )

    def _look(self) -> None:
        """Find the files that are there."""
        paths = [self._path]
        if glob.has_magic(self._path):
            paths = sorted(glob.glob(self._path, recursive=True), key=_by_numbers)[-MAX_FILES:]
        for path in map(Path, paths):
            if path not in self._logs:
                self._logs[path] = Log(path, self._reader, is_new=self._began, before=self._before)

    def _reports(self, *, ended: bool) -> Iterator[PrintedReport]:
        self._began = True
        self._look()
        for log in self._in_order():
            place = str(log.file.path)
            repeats = partial(self._repeats, log)
            for read in log.news(ended=ended):
                self._check_names(log)
                if (row := self._counting(flat_row(read), log.file.path)) is None:
                    continue
                report = self._report(row, place=place, number=log.number, repeats=repeats)
                if report is not None:
                    yield report
            if log.damage is not None:
                raise ScriptError(f"{place} is damaged {log.damage}; what follows cannot be read")


class Log:
    """A followed file with its rows."""

    def __init__(self, path: Path, reader: Callable[[], RowReader], *, is_new: bool, before: int = 0) -> None:
        """`is_new`: whether the program may have written all of it.

        `before`: how many rows without a step the checkpoint has in it.
        """
        self.file = FollowedFile(path)
        self._reader = reader
        self._rows: RowReader | None = None
        self._first: Row | None = None  # the first row of this content
        self._earlier: Row | None = None  # that of the content before it
        self._contents = 0  # how often the file began anew
        self._repeats = False  # whether this content has the rows of the one before it
        self._read = 0  # rows of this content
        self._index = self._counted = 0  # rows without a step: in this content, and reported
        if is_new:
            self.file.rewind()
        elif self.file.there_before:
            self._rows = reader()
            self._rows.skip(self.file.head, self.file.at)
            if before:
                self._first = next(iter(reader().feed(self.file.beginning(), ended=True)), None)
                self._counted = before

    @property
    def fault(self) -> str | None:
        """Why it has no rows."""
        return self.file.fault or (self._rows.fault if self._rows is not None else None)

    @property
    def damage(self) -> str | None:
        """Where it is damaged, and how."""
        return self._rows.damage if self._rows is not None else None

    @property
    def was_there(self) -> bool:
        """Whether it was there before the program, and has not changed."""
        return self.file.there_before and not self._contents

    @property
    def number(self) -> int:
        """The number of the row that was read last; 0 if rows before it were skipped."""
        return 0 if self.was_there else self._read

    @property
    def no_header(self) -> str | None:
        """What is there in place of a line of names."""
        return self._rows.no_header if self._rows is not None else None

    @property
    def twice(self) -> Collection[str]:
        """Names that several of its columns have."""
        return self._rows.twice if self._rows is not None else ()

    def rewind(self) -> None:
        """Read it again from its beginning."""
        self.file.rewind()
        self._rows, self._first, self._counted = None, None, 0

    def news(self, *, ended: bool) -> Iterator[Row]:
        """The rows that are new, or that a rewritten file has again."""
        for part in self.file.news():
            if part.anew or self._rows is None:
                if part.moved and self._rows is not None:
                    yield from self._fed(b"", ended=True)
                self._rows = self._reader()
                self._index = self._read = 0
                self._contents += 1
                self._earlier, self._first = self._first, None
            yield from self._fed(part.content)
        if ended and self._rows is not None:
            yield from self._fed(b"", ended=True)

    def _fed(self, content: bytes, *, ended: bool = False) -> Iterator[Row]:
        """The rows that are complete with a part of the content."""
        assert self._rows is not None
        for row in self._rows.feed(content, ended=ended):
            if self._first is None:
                self._first, self._repeats = row, row == self._earlier
            self._read += 1
            yield row

    def repeats(self, step: int | None, is_old: bool) -> bool:
        """Whether a row of this content was reported before; `is_old`: its step does not rise."""
        if step is not None:
            return is_old and self._contents > 1
        self._index += 1
        known = self._repeats and self._index <= self._counted
        self._counted = self._index if self._repeats else self._counted + 1
        return known


def _by_numbers(path: str) -> list[tuple[int, str]]:
    """Sorts checkpoint-1000 behind checkpoint-500."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path)]
