"""What the trainer tells on standard error where nothing fails."""

from __future__ import annotations

import sys


def say(sentence: str) -> None:
    """Print a sentence, for people: what moves a terminal is left out of the names that it holds."""
    plain = "".join(letter if letter.isprintable() else "\ufffd" for letter in sentence)
    print(plain, file=sys.stderr, flush=True)
