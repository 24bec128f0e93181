"""`hpsearch token`: who else may use a server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from . import options, printing

if TYPE_CHECKING:
    from ..service.tokens import Tokens

app = typer.Typer(
    name="token",
    help="Create, list and revoke the tokens that open your server (hpsearch serve).",
    no_args_is_help=True,
)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What it is listed as: whose it is, or what for.")],
    scope: Annotated[
        str,
        typer.Option(help="read; work (on trials of --study); write; code (equals a shell); admin."),
    ] = "read",
    study: Annotated[
        list[str] | None,
        typer.Option(help="Only for studies of this name, or pattern: 'lora*'. May be repeated."),
    ] = None,
    expires: Annotated[str | None, typer.Option(help="When it ends: 12h, 30d.", show_default="never")] = None,
    json: options.Json = False,
) -> None:
    """Create a token and print it: its text is shown this once.

    Example: hpsearch token create anna --scope write --expires 30d
    """
    time = None if expires is None else options.seconds("--expires", expires, 1, 100 * 365 * 86400)
    if scope not in (known := _scopes()):
        from ...spaces.errors import hint

        raise UsageError(f'there is no scope "{scope}"; {hint(scope, known)}', code="token-scope")
    made = _tokens().create(name, scope, studies=study or (), seconds=time)  # type: ignore[arg-type]
    if json:
        printing.print_json(made.to_json())
        return
    printing.tell(made.token)
    until = "" if made.expires is None else f", until {made.expires}"
    of = f", for {', '.join(made.studies)}" if made.studies else ""
    printing.say(f'the token "{made.name}" may {made.scope}{of}{until}; it is not shown again')


@app.command("list")
def list_tokens(json: options.Json = False) -> None:
    """List tokens, without their texts.

    Example: hpsearch token list
    """
    found = _tokens().list()
    if json:
        printing.print_json(found.to_json())
        return
    if not found.tokens:
        printing.say("there are no tokens; hpsearch token create NAME makes one")
        return
    from .console import PlainConsole, frameless

    table = frameless()
    for column in ("id", "name", "scope", "studies", "created", "expires"):
        table.add_column(column)
    now = datetime.now(UTC)
    for token in found.tokens:
        over = token.expires is not None and datetime.fromisoformat(token.expires) <= now
        until = "never" if token.expires is None else f"{token.expires[:10]}{' (over)' * over}"
        studies = ", ".join(token.studies) or "all"
        table.add_row(token.id, token.name, token.scope, studies, token.created[:10], until)
    PlainConsole().print(table)


@app.command()
def revoke(
    token: Annotated[str, typer.Argument(help="Its id, or its name.")], json: options.Json = False
) -> None:
    """Take a token away. A running server refuses it at once.

    Example: hpsearch token revoke anna
    """
    gone = _tokens().revoke(token)
    if json:
        printing.print_json(gone.to_json())
        return
    printing.say(f'revoked the token "{gone.name}" ({gone.id})')


def _tokens() -> Tokens:
    with options.needs_extra():
        from ..service.home import Home
        from ..service.tokens import Tokens
    return Tokens(Home.at())


def _scopes() -> tuple[Any, ...]:
    from ..service.tokens import SCOPES

    return SCOPES
