"""What a study keeps of a failed attempt."""

from __future__ import annotations

import errno
import traceback

from ...objectives.base import NothingReported, ObjectiveError, ScriptError, SpaceMismatch, TrialEnded
from ...storage.texts import writable

TRACEBACK_LINES = 30
MAX_CHARS = 500  # of a message, and of each line of a traceback


def failure_of(error: BaseException) -> dict[str, str]:
    """An exception as the study keeps it. Running out of memory, and a full disk, are kinds of their own."""
    return {name: writable(text) for name, text in _told(error).items()}


def _told(error: BaseException) -> dict[str, str]:
    lines = traceback.format_exception(error)
    tail = "".join(lines).splitlines()[-TRACEBACK_LINES:]
    name = type(error).__name__
    message = f"{name}: {error}".strip().rstrip(":")
    no_memory = isinstance(error, MemoryError) or name == "OutOfMemoryError"
    no_memory = no_memory or "can't allocate memory" in message  # PyTorch on the CPU
    if isinstance(error, TrialEnded):
        why = "ended by its objective" + f": {error}" * bool(str(error))
        return {"kind": "ended", "message": why, "traceback": ""}
    if isinstance(error, ScriptError):
        kind = "silent" if isinstance(error, NothingReported) else "error"
        return {"kind": kind, "message": error.message, "traceback": "", "detail": error.detail}
    if isinstance(error, ObjectiveError):  # its message needs no traceback
        kind = "mismatch" if isinstance(error, SpaceMismatch) else "error"
        return {"kind": kind, "message": str(error), "traceback": ""}
    kind = "memory" if no_memory else "disk" if is_full(error) else "error"
    first = message.splitlines()[0][:MAX_CHARS]
    return {"kind": kind, "message": first, "traceback": "\n".join(line[:MAX_CHARS] for line in tail)}


def is_full(error: BaseException) -> bool:
    """Whether an error says that a disk is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
