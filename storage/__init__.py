"""Studies in a database, and their files on disk."""


class StorageError(Exception):
    """The database or the files of a study cannot be used; the message says what to do about it."""


class UrlError(StorageError):
    """A URL cannot be that of a database of studies: wrong use, whatever there is."""


class Refused(StorageError):
    """The database does not take what was to be written, whenever it is tried."""


class DatabaseUnavailable(StorageError):
    """The database cannot be read or written now; what was not written is kept, and may be tried again."""
