"""Tokens: who may do what, for which studies, until when.

Only their hashes are kept: a token has 256 random bits, so SHA-256 needs no salt. The file is replaced as a
whole under a lock, and read again when it has changed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, get_args

from ..errors import SearchError, UsageError, why
from ..operations import Scope
from ..values import Value
from .home import Home, refuse_others

SCOPES: tuple[Scope, ...] = get_args(Scope)
HAS: dict[Scope, frozenset[Scope]] = {
    "read": frozenset({"read"}),
    "work": frozenset({"work"}),
    "write": frozenset({"read", "work", "write"}),
    "code": frozenset({"read", "work", "write", "code"}),
    "admin": frozenset(SCOPES),
}
FORM = re.compile(r"hps_([0-9a-f]{8})_[A-Za-z0-9_-]{43}")
NAME = re.compile(r"[\w. @:+-]{1,64}")
LOCK_SECONDS = 10.0
FOREVER = 100 * 365 * 86400.0


class InvalidToken(SearchError):
    """A token that opens nothing: it is unknown, revoked, expired, or of no token's form."""

    code = "token-invalid"


@dataclass(frozen=True)
class Caller:
    """Who calls, and what they may do."""

    name: str
    scopes: frozenset[Scope]
    studies: tuple[str, ...] = ()  # patterns of the names they may see; none: all of them
    token: str = ""  # the id of theirs

    def may_see(self, study: str) -> bool:
        """Whether a study is one of theirs."""
        return not self.studies or any(fnmatchcase(study, pattern) for pattern in self.studies)


@dataclass(frozen=True)
class Token(Value):
    """A token as it is listed."""

    id: str
    name: str
    scope: Scope
    studies: tuple[str, ...]
    created: str  # a moment, ISO 8601 in UTC
    expires: str | None


@dataclass(frozen=True)
class NewToken(Token):
    """A token with its text, which is shown this once."""

    token: str


@dataclass(frozen=True)
class TokenList(Value):
    """The tokens that open a server of this home, in the order they were created."""

    tokens: tuple[Token, ...]

    def to_json(self) -> Any:
        return [token.to_json() for token in self.tokens]

    @classmethod
    def shape(cls) -> Any:
        return list[Token]


@dataclass(frozen=True)
class _Kept:
    """A token with the hash of its text."""

    token: Token
    hash: str

    @property
    def expires(self) -> float:
        moment = self.token.expires
        return FOREVER * 2 if moment is None else datetime.fromisoformat(moment).timestamp()


class Tokens:
    """The tokens of a home, and those that live as long as this process."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._own: dict[str, _Kept] = {}
        self._read: dict[str, _Kept] = {}
        self._seen: tuple[int, ...] | None = None

    def create(
        self, name: str, scope: Scope, *, studies: Sequence[str] = (), seconds: float | None = None
    ) -> NewToken:
        """Make a token and keep its hash. Raises `UsageError` for a name or a scope that cannot be."""
        kept, text = _made(name, scope, studies, seconds)
        with self._changing() as tokens:
            tokens[kept.token.id] = kept
        return NewToken(**vars(kept.token), token=text)

    def mint(self, name: str, scope: Scope) -> str:
        """A token that lives in this process's memory alone."""
        kept, text = _made(name, scope, (), None)
        self._own[kept.token.id] = kept
        return text

    def verify(self, text: str) -> Caller:
        """Who has this token. Raises `InvalidToken`."""
        form = FORM.fullmatch(text)
        if form is None:
            raise InvalidToken("this is no token: one looks like hps_0a1b2c3d_ and 43 characters more")
        kept = self._own.get(form[1]) or self._current().get(form[1])
        return _holder(kept if kept is not None and hmac.compare_digest(kept.hash, _hash(text)) else None)

    def holder(self, id: str) -> Caller:
        """Who has the token of this id. Raises `InvalidToken` where it has been revoked, or has expired."""
        return _holder(self._own.get(id) or self._current().get(id))

    def list(self) -> TokenList:
        """All tokens that are kept, the expired ones too."""
        return TokenList(tuple(kept.token for kept in self._current().values()))

    def revoke(self, which: str) -> Token:
        """Take away the token of an id, or of a name that only one has. Raises `UsageError`."""
        with self._changing() as tokens:
            found = [kept for kept in tokens.values() if which in (kept.token.id, kept.token.name)]
            if not found:
                there = ", ".join(f"{kept.token.id} ({kept.token.name})" for kept in tokens.values())
                raise UsageError(
                    f'there is no token "{which}"; there are: {there or "none"}', code="token-missing"
                )
            if len(found) > 1:
                ids = ", ".join(kept.token.id for kept in found)
                raise UsageError(f'several tokens are called "{which}": name one by its id: {ids}')
            del tokens[found[0].token.id]
        return found[0].token

    def _current(self) -> dict[str, _Kept]:
        """What the file holds, which is read where it has changed."""
        file = self.home.tokens
        try:
            found = file.stat()
        except FileNotFoundError:
            self._read, self._seen = {}, None
            return self._read
        seen = (found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode, found.st_uid)
        if seen != self._seen:
            refuse_others(file, found)
            self._read, self._seen = _stored(file), seen
        return self._read

    @contextmanager
    def _changing(self) -> Iterator[dict[str, _Kept]]:
        """The tokens to be changed, which no other process changes meanwhile; written where that is done."""
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            with self.home.locked("tokens") as ours:
                if ours:
                    tokens = dict(self._current())
                    yield tokens
                    lines = (json.dumps(asdict(each.token) | {"hash": each.hash}) for each in tokens.values())
                    self.home.write(self.home.tokens, "".join(f"{line}\n" for line in lines))
                    self._seen = None
                    return
            if time.monotonic() > deadline:
                raise SearchError(f"another program keeps {self.home.tokens} locked", code="home")
            time.sleep(0.02)


def _holder(kept: _Kept | None) -> Caller:
    if kept is None:
        raise InvalidToken("this token is unknown here: it was revoked, or is another server's")
    token = kept.token
    if kept.expires <= time.time():
        raise InvalidToken(f'the token "{token.name}" expired at {token.expires}')
    return Caller(token.name, HAS[token.scope], token.studies, token.id)


def _made(name: str, scope: Scope, studies: Sequence[str], seconds: float | None) -> tuple[_Kept, str]:
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for a token: 1 to 64 letters, digits, spaces and . @ : + - _ are"
        )
    if scope not in SCOPES:
        raise UsageError(f'there is no scope "{scope}"; there are {", ".join(SCOPES)}')
    if scope == "work" and not studies:
        raise UsageError("a token for work needs the studies that it works for")
    if scope == "admin" and studies:
        raise UsageError("a token with the scope admin is for all studies: it can create any other")
    if seconds is not None and not 0 < seconds <= FOREVER:
        raise UsageError("a token expires after a time between 1 second and 100 years")
    now = time.time()
    text = f"hps_{secrets.token_hex(4)}_{secrets.token_urlsafe(32)}"
    expires = None if seconds is None else _moment(now + seconds)
    token = Token(text[4:12], name, scope, tuple(studies), _moment(now), expires)
    return _Kept(token, _hash(text)), text


def _stored(file: Path) -> dict[str, _Kept]:
    """The tokens in a file. Raises `SearchError` with the line that is none."""
    kept = {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        told = why(error) if isinstance(error, OSError) else str(error)
        raise SearchError(f"cannot read the tokens: {told}", code="home") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
            token = Token(**{name: content[name] for name in Token.__dataclass_fields__})
            assert token.scope in SCOPES and isinstance(content["hash"], str)
            assert isinstance(token.id, str) and all(isinstance(study, str) for study in token.studies)
            one = _Kept(Token(**vars(token) | {"studies": tuple(token.studies)}), content["hash"])
            assert one.expires
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            raise SearchError(
                f"{file}:{number}: this is no token; take the line away",
                code="home",
            ) from error
        kept[token.id] = one
    return kept


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
