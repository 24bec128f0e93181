"""The errors of the search that a user is shown without a traceback."""

import errno

_HELP = {
    errno.EMFILE: "raise the limit of this shell: ulimit -n 4096",
    errno.EAGAIN: "this user has too many processes, or too little memory (ulimit -u)",
    errno.EFBIG: "this shell limits the size of files: ulimit -f unlimited",
}


class SearchError(Exception):
    """The search cannot go on or begin; the message says what was found and what to do about it."""


class UsageError(SearchError):
    """Something was asked for that there is not, or in a way that cannot be."""


def why(error: OSError) -> str:
    """What the system said no to and why, in words; what helps, where that is known."""
    told = error.strerror or str(error)
    told = told if error.filename is None else f"{error.filename}: {told}"
    return f"{told}; {_HELP[error.errno]}" if error.errno in _HELP else told
