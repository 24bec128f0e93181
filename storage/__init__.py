"""Studies in a database, and their files on disk."""


class StorageError(Exception):
    """The database or the files of a study cannot be used; the message says what to do about it.

    `code` names the kind of error for programs, and stays the same where the message is reworded.
    """

    code = "storage"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class UrlError(StorageError):
    """A URL cannot be that of a database of studies: wrong use, whatever there is."""

    code = "storage-url"


class Refused(StorageError):
    """The database does not take what was to be written, whenever it is tried."""

    code = "refused"


class DatabaseUnavailable(StorageError):
    """The database cannot be read or written now; what was not written is kept, and may be tried again."""

    code = "database-unavailable"
