"""What the commands share: options, and words for the terminal."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

Storage = Annotated[
    str | None,
    typer.Option(
        help="The database: a URL or a SQLite file.", envvar="HPSEARCH_STORAGE", show_default="hpsearch.db"
    ),
]
Runs = Annotated[
    Path | None,
    typer.Option(help="The folder for checkpoints and reports.", show_default="runs beside the database"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def number_or_word(value: str) -> int | str:
    """`4` as a number, `auto` as it is."""
    return int(value) if value.lstrip("-").isdecimal() else value


def command(*words: str) -> str:
    """A command to type, quoted for the shell."""
    return shlex.join(["hpsearch", *words])


def text(value: Any) -> str:
    """A value as a space file would write it."""
    return value if isinstance(value, str) else json.dumps(value)


def print_json(content: Any) -> None:
    """Print plain data as JSON; what is no number in JSON becomes null."""
    typer.echo(json.dumps(_finite(content), indent=2, default=str))


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {str(key): _finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    if isinstance(content, float) and (content != content or content in (float("inf"), float("-inf"))):
        return None
    return content
