"""Keeps passwords in database URLs out of what is printed, logged and stored."""

from __future__ import annotations

import re
from itertools import takewhile

_SECRET = re.compile(r"pass|pwd|secret|token|key", re.IGNORECASE)  # in the names of a URL's options


def hidden(word: str) -> str:
    """A URL, or a word of a command that contains one, with `***` for its passwords; other words unchanged.

    The password extends to the last "@", since one inside it may not be written as %40.
    """
    scheme, separator, rest = word.partition("://")
    if not separator or scheme.endswith("sqlite"):
        return word
    credentials, at, server = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    server, question, options = server.partition("?")
    shown = "&".join(map(_without_value, options.split("&")))
    return f"{scheme}://{user}{colon and ':***'}{at}{server}{question}{shown}"


def without_passwords(text: str, words: list[str]) -> str:
    """The text with these words' passwords hidden, wherever it quotes one or the beginning of one."""
    for word in words:
        for url in (word, word.partition("=")[2]):  # messages quote the URL of --storage=URL
            if (shown := hidden(url)) != url:
                text = _without(text, url, shown)
                text = _without(text, _as_path(url), _as_path(shown))
    return text


def _as_path(url: str) -> str:
    return url.replace("://", ":/", 1)


def _without(text: str, url: str, shown: str) -> str:
    text = text.replace(url, shown)
    before = _common(url, shown)  # up to its password
    first, *quoted = text.split(before)
    return first + "".join(before + _cut(rest, url.removeprefix(before)) for rest in quoted)


def _cut(text: str, secret: str) -> str:
    """The text after a place for a password, without the password or the beginning of it."""
    shown = _common(text, secret)
    return f"***{text.removeprefix(shown)}" if shown else text


def _common(one: str, other: str) -> str:
    """The common beginning of both."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return "".join(letter for letter, _ in same)


def _without_value(option: str) -> str:
    name, equals, value = option.partition("=")
    return f"{name}={'***' if value else ''}" if equals and _SECRET.search(name) else option
