"""Visits to optuna-dashboard: a cookie in place of a token, which no browser sends with links and images.

The cookie reads what is below `PATH` and opens nothing else. It stands for the token that has asked for it,
and ends with it.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from ..values import Value
from .problems import problem
from .tokens import HAS, Caller, InvalidToken, Tokens

PATH = "/optuna"  # where the dashboard is, below the server's own prefix
HOURS = 8
MOST = 8  # of a token, at the same time


@dataclass(frozen=True)
class Visit(Value):
    """Where the dashboard is, for the browser that has the cookie of this answer."""

    link: str  # an absolute path
    seconds: float  # for which it works


class Visits:
    """The visits that go on. They end with the server, and are used on its loop alone."""

    def __init__(self, tokens: Tokens) -> None:
        # Browsers send a cookie to all ports of a host: servers beside each other need names of their own.
        self.cookie = f"hpsearch_{secrets.token_hex(4)}"
        self._tokens = tokens
        self._open: dict[str, tuple[float, str]] = {}  # until when, and the id of whose token, by secret

    def begin(self, caller: Caller) -> str:
        """The value of the cookie for a new visit. The oldest one of the caller's token makes room for it."""
        refuse_bound(caller)
        now = time.monotonic()
        self._open = {secret: each for secret, each in self._open.items() if each[0] > now}
        same = [secret for secret, (_, token) in self._open.items() if token == caller.token]
        for secret in same[: max(0, len(same) + 1 - MOST)]:
            del self._open[secret]
        secret = secrets.token_urlsafe(32)
        self._open[secret] = (now + 3600.0 * HOURS, caller.token)
        return secret

    def reader(self, secret: str) -> Caller | None:
        """Who visits, with nothing but the scope `read`; None where no visit goes on."""
        until, token = self._open.get(secret, (0.0, ""))
        if until <= time.monotonic():
            return None
        try:
            caller = self._tokens.holder(token)
        except InvalidToken:
            return None
        return Caller(caller.name, HAS["read"], caller.studies, caller.token)


def is_below(path: str) -> bool:
    """Whether a path is the dashboard's."""
    return path == PATH or path.startswith(f"{PATH}/")


def refuse_bound(caller: Caller) -> None:
    """Raise `Problem` for who may see some studies only: the dashboard shows all of them."""
    if caller.studies:
        told = "optuna-dashboard shows every study, and this token is for some of them; the page shows those"
        raise problem("scope-missing", told)
