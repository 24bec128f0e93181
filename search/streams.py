"""Output that no letter stops: what a terminal's encoding lacks is written in letters that it has.

Lines and bars of ours become `-`, `|`, `+` and `#`; a letter of a user becomes an escape (`\\u0142`).
Imports nothing, as each worker does so too.
"""

from __future__ import annotations

import codecs
import io
import os
from typing import Any

LACKING = "hpsearch.lacking"  # the name under which Python's streams know `_in_other_letters`
_OURS = {  # by what draws them: charts, tables, bars; each of one letter, so that columns stay
    **dict.fromkeys("─━═╌╍┄┅┈┉╸╺╴╶▁▏▎▍", "-"),
    **dict.fromkeys("│┃║╎╏┆┇┊┋", "|"),
    **dict.fromkeys("▄▅▆▇█▌▋▊▉", "#"),
    **dict.fromkeys("▂▃", "="),
    "…": ".",
}


def _in_other_letters(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    told = (
        _OURS.get(letter) or ("+" if "\u2500" <= letter <= "\u257f" else _escaped(letter))
        for letter in lacking
    )
    return "".join(told), error.end


def _escaped(letter: str) -> str:
    return letter.encode("ascii", "backslashreplace").decode()


codecs.register_error(LACKING, _in_other_letters)


def never_refusing(stream: Any) -> None:
    """Let a stream take every letter, whatever its encoding; others than Python's own are left alone."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors != LACKING:
        stream.reconfigure(errors=LACKING)


def let_rest_go(stream: Any) -> None:
    """Let go what a stream cannot write: Python would try again as it ends, and exit with 120."""
    try:
        if stream is not None and not stream.closed:
            stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
