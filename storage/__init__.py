"""Studies in a database, and their files on disk."""

import difflib
from collections.abc import Iterable


class StorageError(Exception):
    """The database or the files of a study cannot be used; the message says what to do.

    `code` names the kind of error for programs, and stays the same when the message is reworded.
    """

    code = "storage"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class UrlError(StorageError):
    """A URL that can never be that of a database of studies."""

    code = "storage-url"


class Refused(StorageError):
    """The database rejects what is to be written, however often it is tried."""

    code = "refused"


class DatabaseUnavailable(StorageError):
    """The database cannot be read or written now; unwritten changes are kept, and can be retried."""

    code = "database-unavailable"


def missing_study(name: str, names: Iterable[str]) -> StorageError:
    """That there is no study of this name among those that there are, with the nearest."""
    near = difflib.get_close_matches(name, names, 1)
    hint = f', did you mean "{near[0]}"?' if near else f"; there are: {', '.join(sorted(names)) or 'none'}"
    return StorageError(f'there is no study "{name}"{hint}', code="study-missing")
