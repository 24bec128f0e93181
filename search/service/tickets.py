"""Tickets: links that work once, for downloads by a browser, which sends no token with a link."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass

from ..values import Value
from .problems import problem
from .tokens import HAS, Caller

SECONDS = 60.0
MOST = 1024  # that wait to be used


@dataclass(frozen=True)
class Ticket(Value):
    """A link that works once."""

    link: str  # relative to the server's address
    seconds: float  # for which it works


class Tickets:
    """The tickets that wait to be used. They end with the server, as they would soon anyway."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[float, str, Caller]] = {}
        self._lock = threading.Lock()

    def give(self, path: str, caller: Caller) -> Ticket:
        """A link to a path, under which its bearer reads what the caller may."""
        text = secrets.token_urlsafe(24)
        now = time.monotonic()
        reader = Caller(caller.name, HAS["read"], caller.studies)
        with self._lock:
            self._waiting = {key: each for key, each in self._waiting.items() if each[0] > now}
            if len(self._waiting) >= MOST:
                raise problem("too-many", f"{MOST} links wait to be used")
            self._waiting[text] = (now + SECONDS, path.partition("?")[0], reader)
        return Ticket(f"{path}{'&' if '?' in path else '?'}ticket={text}", SECONDS)

    def take(self, text: str, path: str) -> Caller | None:
        """Who gave the ticket out; None where it opens nothing, or another path. It works no more then."""
        with self._lock:
            until, of, caller = self._waiting.pop(text, (0.0, "", None))
        return caller if until > time.monotonic() and of == path else None
