"""When trials are compared, and which of them continue."""

from .promotion import PromotionRule, QueuePosition, Standing
from .rungs import (
    MIN_AUDITED,
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
    "MIN_AUDITED",
    "Bracket",
    "PromotionRule",
    "QueuePosition",
    "Standing",
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
