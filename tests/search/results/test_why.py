"""The story of a trial, told from the database of a search that is driven by hand."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search.engine.running import Assignment, Failure
from hpsearch.search.results.why import TrialHistory, history_of
from hpsearch.spaces import Spec
from hpsearch.storage import StorageError

from ...support.driving import PROMOTION, DrivenStudy, asked, save_checkpoint


class Hand:
    """A search without workers: this test answers for them."""

    def __init__(self, folder: Path, spec: Spec) -> None:
        self._study = DrivenStudy(folder)
        self.driver = self._study.driver(spec)

    def ask(self) -> Assignment:
        given = asked(self.driver)
        save_checkpoint(given)
        return given

    def to(self, step: int, value: float) -> int:
        """The next trial, trained to a step."""
        number = self.ask().number
        self.driver.report(number, value, step, {})
        return number

    def complete(self, value: float) -> int:
        number = self.ask().number
        self.driver.complete(number, value)
        return number

    def story(self, number: int) -> TrialHistory:
        return history_of(self._study.result(), number)

    def close(self) -> None:
        self._study.close()


@pytest.fixture
def search(tmp_path: Path, make_spec: Callable[..., Spec]) -> Iterator[Callable[..., Hand]]:
    hands: list[Hand] = []

    def begin(**fields: Any) -> Hand:
        hands.append(Hand(tmp_path, make_spec(**fields)))
        return hands[-1]

    yield begin
    for hand in hands:
        hand.close()


def test_a_trial_that_waits_tells_what_would_let_it_go_on(search: Callable[..., Hand]) -> None:
    hand = search(early_stopping=PROMOTION, budget={"trials": 30})
    for value in (5.0, 6.0, 4.0):
        number = hand.to(1, value)
    hand.driver.report(number, 4.0, 3, {})
    first, second, third = (hand.story(number) for number in range(3))
    assert first.state == "paused" and first.end is None
    assert first.events == ["paused at step 1, ranked 1 of 1"]
    assert first.by_now == ["at step 1 ranked 2 of 3, loss 5"]
    assert first.waits[:3] == [
        "at step 1, number 1 of 2 that wait there",
        "1 of the 3 that got there were promoted, one in 3 may be",
        "it is promoted when 3 more have got there, if none of them is better",
    ]
    assert "when 6 more have" in second.waits[2]
    assert third.events == ["promoted at step 1, ranked 1 of 3", "paused at step 3, ranked 1 of 1"]
    assert third.waits[2] == "it is promoted when 2 more have got there, if none of them is better"
    assert third.waits[-1].startswith("no search runs now")


def test_the_best_at_a_rung_names_the_trials_promoted_before_it(search: Callable[..., Hand]) -> None:
    hand = search(early_stopping=PROMOTION, budget={"trials": 4})
    for value in (5.0, 6.0, 4.0):
        number = hand.to(1, value)
    hand.driver.report(number, 4.0, 3, {})
    best = hand.to(1, 1.0)
    hand.driver.finish()
    end = hand.story(best).end
    assert end == "paused at step 1: ranked 1 of 4; one in 3 is promoted, so far 1 of 4"


def test_what_cannot_come_any_more_is_not_told_to_be_waited_for(search: Callable[..., Hand]) -> None:
    hand = search(early_stopping=PROMOTION, budget={"trials": 5})
    for value in (5.0, 6.0, 4.0):
        hand.to(1, value)
    assert hand.story(0).waits[2] == (
        "it is promoted when 3 more have got there, if none of them is better; "
        "at most 2 will, so it is promoted only as the best that waits in the end"
    )


def test_what_is_told_comes_true(search: Callable[..., Hand]) -> None:
    """As many come as the story says, none of them better, and the trial is taken up, and not before."""
    hand = search(early_stopping=PROMOTION, budget={"trials": 30})
    for value in (5.0, 6.0, 4.0):
        number = hand.to(1, value)
    hand.driver.report(number, 4.0, 3, {})
    for more in (3, 2, 1):
        said = f"{more} more have" if more > 1 else "one more has"
        assert said in hand.story(0).waits[2]
        assert hand.to(1, 10.0 - more) > 2
    assert "with the next worker that is free" in hand.story(0).waits[2]
    assert hand.ask().number == 0
    story = hand.story(0)
    assert (story.state, story.waits) == ("running", [])
    assert story.events[-1] == "resumed at step 1, ranked 2 of 6"


def test_the_sampler_that_suggested_it_is_named(search: Callable[..., Hand]) -> None:
    hand = search(search={"sampler": "tpe", "n_startup_trials": 3})
    for value in (3.0, 2.0, 1.0):
        hand.complete(value)
    hand.complete(4.0)
    hand.driver.study.enqueue_trial({"x": 0.25})
    hand.complete(5.0)
    assert hand.story(0).suggested == ("drawn at random: tpe begins its model with 3 trials, and 0 had ended")
    assert hand.story(2).suggested.endswith("and 2 had ended")
    assert hand.story(3).suggested == "proposed by the model of tpe, from 3 trials that had ended"
    assert hand.story(4).suggested == "enqueued with its parameters"
    assert hand.story(2).end == "ran to its end: loss 1, ranked 1 of 5 complete"


def test_the_sampler_that_suggested_it_is_named_where_trials_pause(search: Callable[..., Hand]) -> None:
    hand = search(search={"sampler": "tpe", "n_startup_trials": 2}, early_stopping=PROMOTION)
    for value in (3.0, 2.0, 1.0):
        hand.to(1, value)
    assert hand.story(1).suggested == "drawn at random: tpe begins its model with 2 trials"
    assert hand.story(2).suggested == "proposed by the sampler tpe"


def test_our_own_sampler_says_by_what(search: Callable[..., Hand]) -> None:
    hand = search(search={"sampler": "rung_gp"})
    assert hand.story(hand.complete(1.0)).suggested == "point 1 of the quasi-random sequence (rung_gp)"


def test_attempts_and_failures(search: Callable[..., Hand]) -> None:
    hand = search(execution={"retries": 1}, budget={"trials": 5})
    number = hand.to(1, 2.0)
    hand.driver.fail(number, Failure("lost", "the worker was killed (SIGKILL)"))
    waiting = hand.story(number)
    assert waiting.state == "waiting" and waiting.end is None
    assert waiting.waits[0] == "for a worker that is free: requeued at step 1"
    hand.ask()
    hand.driver.fail(number, Failure("error", "ValueError: no"))
    failed = hand.story(number)
    assert (failed.state, failed.end, failed.waits) == ("fail", "ValueError: no", [])
    assert failed.attempts == ["tried 2 times"]
    with pytest.raises(StorageError, match="no trial 7"):
        hand.story(7)


def test_baseline_and_confirmation(search: Callable[..., Hand]) -> None:
    hand = search(baseline={"x": 0.5}, budget={"trials": 2}, confirm={"top": 1, "seeds": 2})
    for value in (3.0, 2.0, 2.5):
        hand.complete(value)
    assert hand.story(0).suggested.startswith("the baseline of the space")
    assert (
        hand.story(2).suggested
        == "confirms trial 1: its parameters again, with new seed 1; it runs to its end"
    )
    assert hand.story(2).end == "ran to its end: loss 2.5"
    assert hand.story(1).end == "ran to its end: loss 2, ranked 1 of 2 complete"
