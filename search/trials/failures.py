"""How an attempt failed, in what a study keeps of it."""

from __future__ import annotations

import errno
import traceback

from ...objectives.base import NothingReported, ObjectiveError, ScriptError

TRACEBACK_LINES = 30


MAX_MESSAGE_CHARS = 500  # letters of it, and of each line of a traceback, that a study keeps


def failure_of(error: BaseException) -> dict[str, str]:
    """What the study keeps of an exception. Running out of memory is a kind of its own."""
    lines = traceback.format_exception(error)
    tail = "".join(lines).splitlines()[-TRACEBACK_LINES:]
    name = type(error).__name__
    message = f"{name}: {error}".strip().rstrip(":")
    no_memory = isinstance(error, MemoryError) or name == "OutOfMemoryError"
    no_memory = no_memory or "can't allocate memory" in message  # torch's words on CPU
    if isinstance(error, ScriptError):
        kind = "silent" if isinstance(error, NothingReported) else "error"
        return {"kind": kind, "message": error.message, "traceback": "", "detail": error.detail}
    if isinstance(error, ObjectiveError):  # our own sentence says it all
        return {"kind": "error", "message": str(error), "traceback": ""}
    kind = "memory" if no_memory else "disk" if is_full(error) else "error"
    first = message.splitlines()[0][:MAX_MESSAGE_CHARS]
    return {"kind": kind, "message": first, "traceback": "\n".join(line[:MAX_MESSAGE_CHARS] for line in tail)}


def is_full(error: BaseException) -> bool:
    """Whether it says that there is no room on a disk."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
