"""Events of trials in words."""

from __future__ import annotations

from typing import Any

import pytest

from hpsearch.search.trials.events import event_in_words


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"kind": "paused", "step": 3, "rank": 2, "of": 5}, "paused at epoch 3, ranked 2 of 5"),
        (
            {"kind": "promoted", "step": 1, "rank": 1, "of": 5, "alike": {"schedule": "cosine"}},
            "promoted at epoch 1, ranked 1 of 5 with schedule cosine",
        ),
        (
            {"kind": "audited", "reason": "pruned at epoch 3"},
            "drawn for the audit, so it runs to its end instead of being stopped: pruned at epoch 3",
        ),
        (
            {"kind": "started_over", "error": "ValueError"},
            "could not go on from its checkpoint (ValueError); it starts over",
        ),
        ({"kind": "retried", "reason": "bad luck"}, "retried on request; it had failed: bad luck"),
        ({"kind": "remark", "text": "it printed nothing"}, "it printed nothing"),
        ("paused at 3 steps, ranked 2 of 5", "paused at 3 steps, ranked 2 of 5"),  # of an older version
        ({"kind": "of a later version"}, "{'kind': 'of a later version'}"),
    ],
)
def test_an_event_in_words(event: Any, words: str) -> None:
    assert event_in_words(event, "epochs") == words
