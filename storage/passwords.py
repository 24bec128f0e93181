"""Keeps the passwords in database URLs out of what is printed, logged and stored."""

from __future__ import annotations

import re

_SECRET = re.compile(r"pass|pwd|secret|token|key", re.IGNORECASE)  # in the name of a URL's option


def hidden(word: str) -> str:
    """A URL, or a word of a command that holds one, with its passwords as `***`; other words as they are.

    The password reaches to the last "@", because one in it may not have been written as %40.
    """
    scheme, separator, rest = word.partition("://")
    if not separator or scheme.endswith("sqlite"):
        return word
    credentials, at, place = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    place, question, options = place.partition("?")
    shown = "&".join(map(_without_value, options.split("&")))
    return f"{scheme}://{user}{colon and ':***'}{at}{place}{question}{shown}"


def without_passwords(text: str, words: list[str]) -> str:
    """The text with the passwords of these words hidden, wherever it quotes one."""
    for word in words:
        for url in (word, word.partition("=")[2]):  # of --storage=URL, messages quote the URL
            text = text.replace(url, hidden(url)) if url else text
    return text


def _without_value(option: str) -> str:
    name, equals, value = option.partition("=")
    return f"{name}={'***' if value else ''}" if equals and _SECRET.search(name) else option
