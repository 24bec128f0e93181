"""The servers that a user knows: those they have logged in at, and those of their own on this machine."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ...storage.passwords import hidden
from ...storage.workspace import Workspace
from ..errors import SearchError, UsageError, why
from .home import Home

LOCAL = "local"  # the name of a server of one's own on this machine


@dataclass(frozen=True)
class Place:
    """Where a server is, and the token that it takes."""

    url: str
    token: str | None
    uds: str | None = None
    database: str | None = None  # that it serves, where that is known


def file_of_servers() -> Path:
    """The file that holds the tokens of servers."""
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "hpsearch" / "servers.yaml"


def find(server: str, token: str | None = None) -> Place:
    """A server by its address, or `local`, with the token given, $HPSEARCH_TOKEN, or the one that is stored.

    Raises `UsageError` where no server of this name, or no token, is known.
    """
    token = token or token_in(server) or os.environ.get("HPSEARCH_TOKEN") or None
    mine = _own()
    if server == LOCAL:
        if not mine:
            raise UsageError(
                "no server of yours runs on this machine; hpsearch serve starts one", code="no-local-server"
            )
        return Place(mine[0].url, token or mine[0].token, mine[0].uds)
    url = address(server)
    own = next((each.token for each in mine if _is_same(each.url, url)), None)
    stored = token or own or _stored().get(url)
    if stored is None:
        raise UsageError(
            f"no token for {url} is known: hpsearch login {url} stores one, or HPSEARCH_TOKEN has it",
            code="token-missing",
        )
    return Place(url, stored)


def own_of(workspace: Workspace) -> Place | None:
    """The server of this user that lives on this machine and serves this database; None where none does."""
    database = database_of(workspace)
    return next((each for each in _own() if each.database == database), None)


def database_of(workspace: Workspace) -> str:
    """What tells a database from others: its file, or its URL without a password."""
    return hidden(workspace.url) if workspace.file is None else str(workspace.file.resolve())


def store(url: str, token: str | None) -> Path:
    """Keep the token of a server, or forget it where it is None; the file, which only its user reads."""
    path, kept = file_of_servers(), _stored()
    kept.pop(url, None)
    if token is not None:
        kept[url] = token
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as stream:
            servers = {name: {"token": text} for name, text in sorted(kept.items())}
            YAML(typ="safe").dump({"servers": servers}, stream)
        temporary.replace(path)
    except OSError as error:
        raise SearchError(f"cannot write {path}: {why(error)}", code="servers-file") from error
    return path


def _stored() -> dict[str, str]:
    """The tokens of the servers where the user has logged in."""
    path = file_of_servers()
    try:
        if path.stat().st_mode & 0o077:
            raise UsageError(f"others may read the tokens in {path}: chmod 600 {path}", code="servers-file")
        content: Any = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
        return {str(url): str(each["token"]) for url, each in (content or {}).get("servers", {}).items()}
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, YAMLError, AttributeError, KeyError, TypeError) as error:
        told = why(error) if isinstance(error, OSError) else "it is damaged"
        raise UsageError(
            f"cannot read {path} ({told}); remove it, and log in again", code="servers-file"
        ) from error


def _own() -> list[Place]:
    """The servers of this user that live on this machine, the newest first."""
    found = []
    with suppress(SearchError):  # others may write there: nothing in it is to be trusted
        home = Home.known()
        for link in [] if home is None else home.links():
            with suppress(KeyError, TypeError, json.JSONDecodeError):
                found.append(Place(link["url"], link["token"], link.get("uds"), link.get("storage")))
    return found


def address(url: str) -> str:
    """The address of a server from what users type or copy: `host:port`, or the link with its token."""
    text = url.strip().partition("#")[0]
    text = (text if "://" in text else f"http://{text}").rstrip("/")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{url!r} is no address of a server: {error}", code="server-url") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise UsageError(
            f"{url!r} is no address of a server: it has the form http://HOST:PORT", code="server-url"
        )
    if parts.username or parts.password or parts.query:
        raise UsageError("the address of a server has neither a user nor a query", code="server-url")
    return text


def token_in(url: str) -> str | None:
    """The token in a link that `hpsearch serve` prints; None in any other address."""
    fragment = url.partition("#")[2]
    return fragment.removeprefix("token=") if fragment.startswith("token=") else None


def is_loopback(host: str) -> bool:
    """Whether a host is this machine alone."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _is_same(own: str, url: str) -> bool:
    """Whether an address is that of a server of this machine, by another of its names perhaps."""
    one, other = urlsplit(own), urlsplit(url)
    loopback = is_loopback(one.hostname or "") and is_loopback(other.hostname or "")
    return own == url or (loopback and (one.scheme, one.port) == (other.scheme, other.port))
