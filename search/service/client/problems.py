"""Problem documents of a server as the errors that they were there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....objectives import ObjectiveError
from ....spaces import Issue, SpaceError
from ....storage import DatabaseUnavailable, StorageError
from ...errors import SearchError, UsageError
from ...values import NextStep, from_plain

STORAGE = {  # types of problems that the storage has
    "no-such-study": "study-missing",
    "no-such-trial": "trial-missing",
    "busy-elsewhere": "study-busy",
    "name-taken": "name-taken",
}
WRONG_USE = (400, 401, 403, 413, 415, 421, 422, 431)  # the caller has to change something
LONGEST = 20_000  # characters of a message


class ServerUnavailable(SearchError):
    """The server cannot be reached, or does not answer."""

    code = "server-unavailable"


def error_of(status: int, document: Mapping[str, Any], file: str | None = None) -> Exception:
    """The error that a problem document tells of; `file` is what a space that was sent is called here."""
    type = str(document.get("type", "")).rpartition("/")[2]
    code = str(document.get("code") or STORAGE.get(type) or type or "failed")
    told = str(document.get("detail") or document.get("title") or f"the server answers with {status}")
    told = told[:LONGEST]
    if type == "space-invalid" and (issues := _issues(document.get("issues"), file)):
        return SpaceError(issues)
    if type == "objective-invalid":
        error: Exception = ObjectiveError(told)
        error.code = code  # type: ignore[attr-defined]
        return error
    if type == "database-unavailable":
        return DatabaseUnavailable(told)
    if type in STORAGE:
        return StorageError(told, code=code)
    if needed := document.get("needs"):
        told += f". A token with the scope {needed} comes from the server's owner: hpsearch login stores it"
    kind = UsageError if status in WRONG_USE else SearchError
    return kind(told, code=code, next_steps=_steps(document.get("next_steps")))


def _issues(content: Any, file: str | None) -> list[Issue]:
    try:
        found = [from_plain(dict[str, Any], each) for each in from_plain(list[Any], content)]
        return [
            Issue(
                file or str(each.get("file", "<space>")),
                from_plain(int, each.get("line", 0)),
                from_plain(int, each.get("column", 0)),
                str(each.get("path", "")),
                str(each.get("message", "")),
            )
            for each in found
        ]
    except ValueError:
        return []


def _steps(content: Any) -> list[NextStep]:
    try:
        steps: list[NextStep] = from_plain(list[NextStep], content or [])
    except ValueError:
        return []
    return steps
