"""Times as people write them: `90`, `45s`, `30m`, `1.5h`, `1h30m`, `1 h 30 m`, `2d`. Without a unit, seconds.

The one reader of spaces, options of commands, and Python. A number means the same as a text: `1e3`, "1e3".
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from .document import FLOAT
from .fields import refuse, show

UNIT_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
AMOUNT = r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
# Some of the units in this order, such as 1h30m.
TIME = "(?=.*[0-9])" + r"\s*".join(rf"(?:({AMOUNT})\s*{unit})?" for unit in UNIT_SECONDS)
LONGEST_SECONDS = 100 * 365 * 86400.0  # far less than clocks and files can represent
# Units as people also write them, which an error translates.
SPELLED = r"d(?:ays?)?|h(?:our|r)?s?|m(?:inute|in)?s?|s(?:econd|ec)?s?"
SMALLER = {"d": "h", "h": "m", "m": "s"}  # the unit of a last number that has none: 1h30


def seconds(value: Any) -> float:
    """A time in seconds, from a text, a number of seconds or a `timedelta`.

    Raises `ValueError`, whose message goes after the name of the field or option.
    """
    amount: Any = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(value, str):
        text = value.strip()
        if FLOAT.fullmatch(text):
            amount = float(text)
        elif match := re.fullmatch(TIME, text):
            amounts = zip(match.groups(), UNIT_SECONDS.values(), strict=True)
            amount = sum(float(amount or 0) * unit for amount, unit in amounts)
    if isinstance(amount, bool) or not isinstance(amount, int | float) or amount != amount:
        raise ValueError(
            f'must be a time such as "90s", "30m", "1.5h" or "2d", not {show(value)}{_meant(value)}'
        )
    if amount <= 0:
        raise ValueError("must be above 0")
    if amount > LONGEST_SECONDS:
        raise ValueError(f"must be at most a hundred years, not {show(value)}")
    return float(amount)


def _meant(value: Any) -> str:
    """The time that was probably meant by what is none."""
    words = value.lower().rstrip() if isinstance(value, str) and len(value) <= 60 else ""
    pairs = [(amount, unit[0]) for amount, unit in re.findall(rf"({AMOUNT})\s*({SPELLED})", words)]
    rest = re.sub(rf"{AMOUNT}\s*(?:{SPELLED})|[\s,]|and", "", words)
    if pairs and pairs[-1][1] in SMALLER and re.fullmatch(AMOUNT, rest) and words.endswith(rest):
        pairs.append((rest, SMALLER[pairs[-1][1]]))
        rest = ""
    letters = {unit: amount for amount, unit in pairs}
    if not pairs or rest or len(letters) < len(pairs):
        return ""
    return (
        f'; did you mean "{"".join(f"{letters[unit]}{unit}" for unit in UNIT_SECONDS if unit in letters)}"?'
    )


def _read(value: Any) -> float:
    try:
        return seconds(value)
    except ValueError as error:
        raise refuse(str(error)) from None


# What a schema can say of it: digits that are not all 0, alone or with units.
PATTERN = rf"\s*(?=.*[1-9])(?:\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|{TIME})\s*"
Seconds = Annotated[
    float,
    PlainValidator(_read),
    WithJsonSchema({"type": ["string", "number"], "pattern": f"^{PATTERN}$", "exclusiveMinimum": 0}),
]
