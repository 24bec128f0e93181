"""How sure a winner is, in the words that every interface has for it."""

from __future__ import annotations

from typing import Any

import pytest

from hpsearch.search.operations.winner import Winner, in_words
from hpsearch.search.results.confirmation import Interval

AGAIN = {"seeds": 2, "gain": Interval(0.2, 0.1, 0.3)}
NAMES = ("metric", "comparison", "params", "searched", "value", "confirmation", "candidates", "audit", "next")
WORDS: list[tuple[dict[str, Any], str, str]] = [
    (
        {"status": "confirmed", **AGAIN},
        "Confirmed",
        "Trial 6 is the best of those trained again with 2 new seeds, and better than the baseline.",
    ),
    (
        {"status": "confirmed", "seeds": 1, "baseline": None},
        "Confirmed",
        "Trial 6 is the best of those trained again with 1 new seed.",
    ),
    (
        {"status": "tie", "ties": (3,), **AGAIN},
        "A tie",
        "Trial 6 came out first, but trial 3 may be as good: all were trained again with 2 new seeds.",
    ),
    (
        {"status": "tie", "ties": (3, 9, 12), **AGAIN},
        "A tie",
        "Trial 6 came out first, but trials 3, 9 and 12 may be as good: all were trained again with 2 new seeds.",
    ),
    (
        {"status": "baseline", "trial": 0, **AGAIN},
        "The baseline",
        "Trial 0 is the baseline, and nothing was better: all were trained again with 2 new seeds.",
    ),
    (
        {"status": "baseline", **AGAIN},
        "No better than the baseline",
        "Trial 6, trained again with 2 new seeds, is not shown to be better than the baseline.",
    ),
    (
        {"status": "unconfirmed"},
        "Not confirmed",
        "Trial 6 has the lowest value of the search, which flatters it: it was not trained again.",
    ),
    (
        {"status": "unconfirmed", "trial": 0, "goal": "maximize"},
        "Not confirmed",
        "Trial 0, the baseline, has the highest value of the search, which flatters it: it was not trained again.",
    ),
]


@pytest.mark.parametrize(("fields", "verdict", "why"), WORDS)
def test_a_winner_in_words(fields: dict[str, Any], verdict: str, why: str) -> None:
    given: dict[str, Any] = dict.fromkeys(NAMES) | {
        "study": "s",
        "verdict": "",
        "why": "",
        "goal": "minimize",
        "trial": 6,
    }
    given |= {"gain": None, "ties": (), "seeds": 0, "baseline": 0} | fields
    found = in_words(Winner(**given))
    assert (found.verdict, found.why) == (verdict, why)
