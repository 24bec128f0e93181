"""Output that no letter stops, and that moves no terminal: what is shown may come from anywhere.

What a terminal's encoding lacks is written in letters that it has: lines and bars of ours become `-`, `|`,
`+` and `#`; a letter of a user becomes an escape (`\\u0142`). What a terminal would obey becomes a picture of
it, such as `␛`. Imports next to nothing, as each worker does so too.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

NARROWEST = 20  # letters of a line: Rich breaks words, and leaves cells out, to keep to fewer
WIDEST = 100_000  # it fills lines with spaces
LONGEST_SIZE = 9  # digits
LACKING = "hpsearch.lacking"  # the name under which Python's streams know `_in_other_letters`
_OURS = {  # by what draws them: charts, tables, bars; each of one letter, so that columns stay
    **dict.fromkeys("─━═╌╍┄┅┈┉╸╺╴╶▁▏▎▍", "-"),
    **dict.fromkeys("│┃║╎╏┆┇┊┋", "|"),
    **dict.fromkeys("▄▅▆▇█▌▋▊▉", "#"),
    **dict.fromkeys("▂▃", "="),
    "…": ".",
}
_PICTURES = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"},
    **dict.fromkeys([*range(0x80, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A)], "\ufffd"),
    **dict.fromkeys([0x061C, 0x200E, 0x200F], "\ufffd"),
    **dict.fromkeys([0x00AD, 0x180E, 0x200B, *range(0x2060, 0x2065), *range(0x206A, 0x2070)], "\ufffd"),
    **dict.fromkeys([0xFEFF, *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080)], "\ufffd"),
    0x7F: "\u2421",
}  # one letter for one, so that columns stay; some end a line, turn what follows the other way round, or hide
# The joiners U+200C and U+200D stay: Persian, Hindi and emoji are written with them.


def harmless(text: str) -> str:
    """The text with pictures of what a terminal would obey, read backwards, or not show."""
    return text if text.isprintable() else text.translate(_PICTURES)


def _in_other_letters(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = (
        _OURS.get(letter)
        or ("+" if "\u2500" <= letter <= "\u257f" else letter.encode("ascii", "backslashreplace").decode())
        for letter in error.object[error.start : error.end]
    )
    return "".join(letters), error.end


codecs.register_error(LACKING, _in_other_letters)


def open_closed() -> None:
    """Open the standard streams that were closed before Python began, to nowhere.

    Else the next file that is opened, a database maybe, is what others in this process print to.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, "r" if name == "stdin" else "w", closefd=False))  # noqa: SIM115 - it stays open


def never_refusing(stream: Any) -> None:
    """Let a stream take every letter, whatever its encoding; others than Python's own are left alone."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors != LACKING:
        stream.reconfigure(errors=LACKING)


def make_readable(environ: MutableMapping[str, str]) -> None:
    """Let an environment tell of a terminal's size at which something can be read.

    What is no size goes, and what is too narrow is made wider, for the terminal to break: of no columns Rich
    prints nothing at all, and says so to nobody.
    """
    for name in ("COLUMNS", "LINES", "TERMINAL_WIDTH"):  # the last one is Typer's
        if name in environ:
            given = environ.pop(name)
            if (size := int(given) if given.isdecimal() and len(given) <= LONGEST_SIZE else 0) > 0:
                least = 1 if name == "LINES" else NARROWEST
                environ[name] = str(min(max(size, least), WIDEST))
    if "COLUMNS" not in environ and 0 < _columns() < NARROWEST:
        environ["COLUMNS"] = str(NARROWEST)


def _columns() -> int:
    """Those of the terminal that Rich would ask; 0 where there is none."""
    for descriptor in (0, 1, 2):
        with suppress(OSError):
            return os.get_terminal_size(descriptor).columns
    return 0


def let_rest_go(stream: Any) -> None:
    """Let go what a stream cannot write: Python would try again as it ends, and exit with 120."""
    try:
        if stream is not None and not stream.closed:
            stream.flush()
    except OSError:
        silence(stream.fileno())


def silence(*descriptors: int) -> None:
    """Let what is written to these go nowhere: their reader, or terminal, is gone, and a write fails."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
