"""The errors of the search that a user is shown without a traceback."""

import errno
from collections.abc import Sequence

from .values import NextStep

_HELP = {
    errno.EMFILE: "raise the limit of this shell: ulimit -n 4096",
    errno.EAGAIN: "this user has too many processes, or too little memory (ulimit -u)",
    errno.EFBIG: "this shell limits the size of files: ulimit -f unlimited",
}


class SearchError(Exception):
    """Something cannot be done; the message says what was found and what to do about it.

    `code` names the kind of error for programs, and stays the same where the message is reworded.
    `next_steps` are operations that may help.
    """

    code = "failed"

    def __init__(self, message: str, *, code: str | None = None, next_steps: Sequence[NextStep] = ()) -> None:
        super().__init__(message)
        self.next_steps = tuple(next_steps)
        if code is not None:
            self.code = code


class UsageError(SearchError):
    """The request itself is wrong: it names what does not exist, or asks for what cannot be."""

    code = "usage"


def why(error: OSError) -> str:
    """What the system said no to and why, in words; what helps, where that is known."""
    message = error.strerror or str(error)
    message = message if error.filename is None else f"{error.filename}: {message}"
    return f"{message}; {_HELP[error.errno]}" if error.errno in _HELP else message
