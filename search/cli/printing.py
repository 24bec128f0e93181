"""What commands print: data on standard output, all else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from ...storage.passwords import hidden, without_passwords
from ..streams import harmless
from ..values import plain


def about_password(words: Iterable[str]) -> str | None:
    """How to type commands whose words have lost a password; None where none has."""
    if all(hidden(word) == word for word in words):
        return None
    return "*** stands for the password; where HPSEARCH_STORAGE has the URL, commands need no --storage"


def text(value: Any) -> str:
    """A value as a space file would write it."""
    from ...spaces.document import written

    return written(value)


def brief(value: Any) -> str:
    """A value for a table: three digits of a number say enough there."""
    return f"{value:.3g}" if isinstance(value, float) else text(value)


def say(message: str) -> None:
    """Tell the user something that is no data."""
    print(harmless(without_passwords(message, sys.argv[1:])), file=sys.stderr, flush=True)


def tell(message: str) -> None:
    """Print what the user asked for. Typer's `echo` would go past a stream whose encoding is ASCII."""
    print(harmless(message), flush=True)


def print_document(content: str) -> None:
    """Print what is a file where it is redirected: in UTF-8, as `write_file` writes it."""
    if sys.stdout.isatty():
        content = harmless(content)
    sys.stdout.flush()
    sys.stdout.buffer.write(content.encode(errors="backslashreplace"))
    sys.stdout.flush()


def print_json(content: Any) -> None:
    """Print plain data as JSON; what is no number in JSON becomes null."""
    tell(json.dumps(plain(content), indent=2, default=str))
