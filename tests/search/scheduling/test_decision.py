"""What a report leads to."""

from __future__ import annotations

import itertools

import pytest

from hpsearch.search.scheduling.decision import Continue, Decision, Pause, Requeue, Situation, decide
from hpsearch.search.trials.stops import Stop

OVER = Stop("over", "the time budget of 60 s is spent")
PRUNED = Stop("pruned", "pruned at step 3: rung 1 of 2", "pruned at step 3")
LEAVES = "the search is stopping"


@pytest.mark.parametrize(
    ("situation", "decision"),
    [
        (Situation(), Continue()),
        (Situation(requeues=LEAVES), Requeue(LEAVES)),
        (Situation(waits=True), Pause()),
        (Situation(waits=True, requeues=LEAVES), Pause()),
        (Situation(stop=PRUNED), PRUNED),
        (Situation(stop=PRUNED, requeues=LEAVES), PRUNED),
        (Situation(stop=PRUNED, in_audit=True), Continue(audited=PRUNED)),
        (Situation(stop=PRUNED, in_audit=True, requeues=LEAVES), Requeue(LEAVES, audited=PRUNED)),
        (Situation(over=OVER, waits=True), OVER),
        (Situation(over=OVER, stop=PRUNED, in_audit=True), OVER),
    ],
)
def test_the_first_rule_that_applies_decides(situation: Situation, decision: Decision) -> None:
    assert decide(situation) == decision


def test_a_search_that_is_over_ends_a_trial_whatever_else_is_so() -> None:
    for stop, in_audit, waits, requeues in itertools.product(
        (None, PRUNED), (False, True), (False, True), (None, LEAVES)
    ):
        assert decide(Situation(OVER, stop, in_audit, waits, requeues)) == OVER
