"""`hpsearch login`: remember the token of a server."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from ..errors import UsageError
from . import printing


def login(
    url: Annotated[str, typer.Argument(help="Address of a server, or the link that hpsearch serve prints.")],
    forget: Annotated[bool, typer.Option("--forget", help="Forget the token of this server.")] = False,
) -> None:
    """Store the token of a server, so that commands reach it by --server URL.

    Asks for the token, or reads it from standard input. It is kept in ~/.config/hpsearch/servers.yaml.

    Example: hpsearch login https://lab.example.org/hpsearch
    """
    from ..service.client import Server
    from ..service.known import address, store, token_in

    place = address(url)
    if forget:
        printing.say(f"forgot the token of {place} ({store(place, None)})")
        return
    token = token_in(url) or os.environ.get("HPSEARCH_TOKEN") or _asked(place)
    with Server(place, token) as server:
        about = server.about()
    file = store(place, token)
    scopes = ", ".join(map(str, about.get("scopes", ())))
    printing.say(f"logged in at {place} as {about.get('caller', '?')} ({scopes}); the token is in {file}")
    printing.tell(f"hpsearch --server {place} list")


def _asked(place: str) -> str:
    """The token that is typed, unseen, or comes by standard input."""
    if sys.stdin.isatty():
        token: str = typer.prompt(f"Token for {place}", hide_input=True, err=True)
    else:
        token = sys.stdin.read(10_000)
    if not token.strip():
        raise UsageError("there is no token: hpsearch token create makes one, at the server")
    return token.strip()
