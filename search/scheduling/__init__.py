"""When trials are compared, and which go on."""

from .promotion import PromotionRule, Standing, Waiting
from .rungs import (
    FEWEST_AUDITED,
    Bracket,
    alike_of,
    audited_one_in,
    bracket_of_trial,
    brackets_of,
    expected_cost,
    expected_saving,
    hyperband_brackets,
    most_trials,
    places_of,
    promotes,
    rungs,
)

__all__ = [
    "FEWEST_AUDITED",
    "Bracket",
    "PromotionRule",
    "Standing",
    "Waiting",
    "alike_of",
    "audited_one_in",
    "bracket_of_trial",
    "brackets_of",
    "expected_cost",
    "expected_saving",
    "hyperband_brackets",
    "most_trials",
    "places_of",
    "promotes",
    "rungs",
]
