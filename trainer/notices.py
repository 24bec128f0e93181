"""The trainer's notices on standard error."""

from __future__ import annotations

import sys


def say(sentence: str) -> None:
    """Print a sentence to stderr. Control characters, which file names may contain, are replaced."""
    plain = "".join(letter if letter.isprintable() else "\ufffd" for letter in sentence)
    print(plain, file=sys.stderr, flush=True)
