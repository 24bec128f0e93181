"""When trials are compared, and which go on."""

from .promotion import Promotion, Standing, Waiting
from .rungs import (
    Bracket,
    alike_of,
    bracket_of_trial,
    brackets_of,
    expected_cost,
    expected_saving,
    hyperband_brackets,
    places_of,
    promotes,
    rungs,
)

__all__ = [
    "Bracket",
    "Promotion",
    "Standing",
    "Waiting",
    "alike_of",
    "bracket_of_trial",
    "brackets_of",
    "expected_cost",
    "expected_saving",
    "hyperband_brackets",
    "places_of",
    "promotes",
    "rungs",
]
