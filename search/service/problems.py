"""Problem documents (RFC 9457): what went wrong, as every answer of the service says it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from ...objectives import ObjectiveError
from ...spaces import SpaceError
from ...storage import StorageError
from ...storage.passwords import without_passwords
from ..errors import SearchError, UsageError, why
from ..trials.failures import is_full
from ..values import plain

MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True)
class Kind:
    """A type of problem: its status, its title, and what to do about it."""

    status: int
    title: str
    advice: str


KINDS = {
    "malformed": Kind(400, "The request cannot be read", "Send JSON in UTF-8, and a path without `..`."),
    "host-refused": Kind(
        421,
        "The server does not answer to this host name",
        "The server's owner allows names by --allow-host.",
    ),
    "token-missing": Kind(
        401, "A token is needed", "Send `Authorization: Bearer hps_...`. `hpsearch token create` makes one."
    ),
    "token-invalid": Kind(
        401, "The token is not valid", "It was revoked, has expired, or is another server's."
    ),
    "scope-missing": Kind(
        403,
        "The token may not do this",
        "`needs` names the scope: ask the server's owner for a token that has it.",
    ),
    "path-not-allowed": Kind(
        403,
        "The server may not read this file",
        "Submitted spaces may name files in the server's roots or in their bundle.",
    ),
    "origin-refused": Kind(
        403, "Another website may not change anything", "The server's owner allows pages by --allow-origin."
    ),
    "not-found": Kind(404, "There is nothing at this path", "GET /openapi.json lists all paths."),
    "no-such-study": Kind(404, "There is no such study", "GET /v1/studies lists them."),
    "no-such-trial": Kind(404, "There is no such trial", "GET /v1/studies/{study}/trials lists them."),
    "no-such-lease": Kind(404, "There is no such lease", "POST /v1/studies/{study}/ask gives one."),
    "no-such-token": Kind(404, "There is no such token", "GET /v1/tokens lists them."),
    "no-such-bundle": Kind(
        404,
        "There is no such bundle",
        "Send it by PUT /v1/bundles/{sha256}: what no study names stays for a day.",
    ),
    "no-such-plan": Kind(
        404, "There is no such plan", "POST /v1/plans makes one; a server that ends forgets its plans."
    ),
    "no-such-file": Kind(404, "There is no such file", "Lists of files name those that there are."),
    "method-not-allowed": Kind(405, "The path has no such method", "`Allow` lists the methods that it has."),
    "slow-request": Kind(408, "The request took too long to arrive", "Send it again."),
    "space-differs": Kind(
        409,
        "A different study has this name",
        "`difference` shows how: choose another name, or delete that study.",
    ),
    "not-confirmed": Kind(
        409, "The winner is not confirmed yet", "Ask for an unconfirmed one by ?unconfirmed=yes, or wait."
    ),
    "name-taken": Kind(409, "Another study has this name", "Choose another name, or delete that study."),
    "busy-elsewhere": Kind(409, "Another search has this study", "Wait for it, or stop it."),
    "no-room": Kind(409, "No part of the machine is free for it now", "GET /v1/queue says when others end."),
    "wrong-state": Kind(409, "The state it is in does not allow this", "The detail says the state."),
    "lease-over": Kind(
        410, "The lease is over", "Another worker has the trial, or it has ended: stop training it."
    ),
    "study-over": Kind(410, "The study is over", "There is no more work."),
    "changed-meanwhile": Kind(412, "It has changed since it was read", "Read it again."),
    "too-large": Kind(413, "The request is too large", "`limit` says how many bytes are allowed."),
    "media-type": Kind(
        415, "The body has a type that is not understood", "Send application/json, without Content-Encoding."
    ),
    "range": Kind(416, "There is no such range", "`Content-Range` says how long it is."),
    "request-invalid": Kind(422, "The request has wrong values", "`issues` lists them."),
    "space-invalid": Kind(
        422, "The space is not valid", "`issues` lists every mistake, with line and column."
    ),
    "objective-invalid": Kind(422, "The objective cannot be used so", "The detail says what is allowed."),
    "needs-if-match": Kind(428, "The change needs If-Match", "Read it, and send its ETag as If-Match."),
    "too-many": Kind(429, "Too many requests", "Try again after `Retry-After` seconds."),
    "headers-too-large": Kind(431, "The headers are too large", "Send fewer or shorter headers."),
    "failed": Kind(500, "This could not be done", "The detail says why."),
    "internal": Kind(500, "The server made a mistake", "`instance` finds it in the server's log."),
    "extra-missing": Kind(
        501, "The server lacks a library for this", "The detail says what its owner installs."
    ),
    "database-unavailable": Kind(
        503, "The database cannot be used now", "Try again after `Retry-After` seconds."
    ),
    "draining": Kind(503, "The server starts nothing now", "Its owner drains it, for a reboot perhaps."),
    "no-answer": Kind(503, "The search does not answer", "The command stays for it."),
    "unavailable": Kind(503, "The server cannot do this now", "Try again after `Retry-After` seconds."),
    "disk-full": Kind(507, "The server's disk is full", "Ask its owner for room."),
}
BY_CODE = {
    "study-missing": "no-such-study",
    "trial-missing": "no-such-trial",
    "token-missing": "no-such-token",
    "trial-state": "wrong-state",
    "not-searching": "wrong-state",
    "study-busy": "busy-elsewhere",
    "home": "failed",
    "database-missing": "database-unavailable",
}


class Problem(Exception):
    """What an answer says instead of a value; `more` are members of its own."""

    def __init__(
        self,
        status: int,
        type: str,
        title: str | None = None,
        detail: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        kind = KINDS.get(type)
        super().__init__(detail or title or type)
        self.status, self.type, self.detail, self.more = status, type, detail, more
        self.title = title or (kind.title if kind else HTTPStatus(status).phrase)
        self.headers = dict(headers or {})
        if status == 401:
            self.headers.setdefault("WWW-Authenticate", "Bearer")
        if status in (429, 503):
            self.headers.setdefault("Retry-After", str(random.randint(1, 5)))  # clients spread out

    def body(self, instance: str, base: str = "") -> bytes:
        """The document."""
        content = {"type": f"{base}/problems/{self.type}", "title": self.title, "status": self.status}
        if self.detail is not None:
            content["detail"] = self.detail
        return json.dumps(content | plain(self.more) | {"instance": instance}, ensure_ascii=False).encode(
            errors="backslashreplace"
        )


def problem(type: str, detail: str | None = None, **more: Any) -> Problem:
    """A problem of a known type, with its status and title."""
    return Problem(KINDS[type].status, type, None, detail, **more)


def problem_of(error: Exception, secrets: Sequence[str] = ()) -> Problem:
    """An error as a problem document. What is no error of ours has no detail.

    `secrets` are URLs whose passwords no message may show.
    """
    told = without_passwords(why(error) if isinstance(error, OSError) else str(error), list(secrets))
    if isinstance(error, Problem):
        return error
    full = any(is_full(each) for each in (error, error.__cause__) if each is not None)
    if isinstance(error, SpaceError):
        issues = [issue.to_json() for issue in error.issues]
        title = f"The space has {len(issues)} issue{'s' * (len(issues) != 1)}"
        return Problem(422, "space-invalid", title, told, issues=issues)
    if isinstance(error, OSError):
        return problem("disk-full" if full else "failed", told)
    if not isinstance(error, (SearchError, StorageError, ObjectiveError)):
        return problem("internal")
    code = "disk-full" if full else error.code
    steps = [step.to_json() for step in getattr(error, "next_steps", ())]
    more: dict[str, Any] = {"code": code} | ({"next_steps": steps} if steps else {})
    type = BY_CODE.get(code, code)
    if type not in KINDS or (type == "failed" and code != "home"):
        if isinstance(error, ObjectiveError):
            type = "objective-invalid"
        elif isinstance(error, UsageError):
            type = "request-invalid"
        else:
            type = "wrong-state" if isinstance(error, SearchError) else "failed"
    return problem(type, told, **more)
