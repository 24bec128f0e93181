"""Promotion on a simulated clock, against the paper's algorithm and on recorded curves."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.search.scheduling.promotion import PromotionRule, Standing
from hpsearch.search.scheduling.rungs import Bracket, bracket_of_trial, hyperband_brackets, rungs

Curve = Callable[[int], float]  # step -> loss


@dataclass
class Simulated:
    """Workers that train curves under promotion; a step takes a second."""

    promotion: PromotionRule
    brackets: list[Bracket]
    last: int
    kind_of: Callable[[int], int] = lambda number: 0
    trained: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # trial -> from, to
    complete: list[int] = field(default_factory=list)
    begun: int = 0

    def run(self, curves: list[Curve], workers: int, bracket_of: Callable[[int], int]) -> None:
        at: dict[int, int] = {}
        clock: list[tuple[int, int, int]] = []  # when, worker, trial

        def train(now: int, worker: int, number: int) -> None:
            place = at.get(number, 0)
            stops = [rung for rung in self.brackets[bracket_of(number)].rungs if rung > place]
            at[number] = stops[0] if stops else self.last
            self.trained.setdefault(number, []).append((place, at[number]))
            heapq.heappush(clock, (now + at[number] - place, worker, number))

        def give(now: int, worker: int) -> None:
            promoted = self.promotion.next()
            if promoted is not None:
                self.promotion.promote(promoted)
                train(now, worker, promoted)
            elif self.begun < len(curves):
                self.begun += 1
                train(now, worker, self.begun - 1)
            else:
                idle.append(worker)

        idle: list[int] = []
        for worker in range(workers):
            give(0, worker)
        while clock:
            now, worker, number = heapq.heappop(clock)
            came = self.promotion.report(
                number, bracket_of(number), at[number], curves[number](at[number]), self.kind_of(number)
            )
            if came:
                self.promotion.pause(number)
            else:
                self.complete.append(number)
            free, idle[:] = [worker, *idle], []
            for each in free:
                give(now, each)


def flat(loss: float) -> Curve:
    return lambda step: loss


def simulate(
    curves: list[Curve],
    *,
    first: int = 1,
    last: int = 27,
    eta: int = 3,
    workers: int = 1,
    kind_of: Callable[[int], int] = lambda n: 0,
) -> Simulated:
    brackets = [Bracket(rungs(first, last, eta), 1.0)]
    found = Simulated(PromotionRule(brackets, eta), brackets, last, kind_of)
    found.run(curves, workers, lambda number: 0)
    return found


LOSSES = st.lists(st.sampled_from([float(n) for n in range(12)]), min_size=1, max_size=40)


@given(LOSSES, st.integers(1, 5), st.integers(2, 4))
def test_no_step_is_trained_twice_and_the_best_trial_finishes(
    losses: list[float], workers: int, eta: int
) -> None:
    done = simulate([flat(loss) for loss in losses], eta=eta, workers=workers)
    for parts in done.trained.values():
        assert parts[0][0] == 0
        assert [start for start, _ in parts[1:]] == [end for _, end in parts[:-1]]
    assert len(done.trained) == len(losses)
    enough = eta ** len(rungs(1, 27, eta))  # trials for one to reach the end
    if len(losses) >= enough:
        assert min(range(len(losses)), key=lambda n: (losses[n], n)) in done.complete


@given(LOSSES, st.integers(1, 5), st.integers(2, 4))
def test_one_in_eta_is_promoted_and_no_promotable_trial_waits(
    losses: list[float], workers: int, eta: int
) -> None:
    done = simulate([flat(loss) for loss in losses], eta=eta, workers=workers)
    places = rungs(1, 27, eta)
    ends = [parts[-1][1] for parts in done.trained.values()]
    for place, above in zip(places, [*places[1:], 27], strict=True):
        there = sum(end >= place for end in ends)
        assert sum(end >= above for end in ends) == there // eta


def test_its_first_promotions_are_those_of_the_paper() -> None:
    """Algorithm 2 of Li et al. 2020 with eta 3: the order of figure 1, if trials do not improve over time."""
    promotion = PromotionRule([Bracket((1, 3, 9), 1.0)], 3)
    order = []
    for number in range(9):
        promotion.report(number, 0, 1, float(number))
        promotion.pause(number)
        while (taken := promotion.next()) is not None:
            order.append(taken)
            promotion.promote(taken)
            rung = 3 if order.count(taken) == 1 else 9
            promotion.report(taken, 0, rung, float(taken))
            promotion.pause(taken)
    assert order == [0, 1, 2, 0]


def test_improving_trials_are_not_promoted_more_often() -> None:
    """Each of thirty trials is better than all before it: still one in three is promoted."""
    done = simulate([flat(-float(n)) for n in range(30)])
    assert sum(parts[-1][1] >= 3 for parts in done.trained.values()) == 10


def test_an_early_trial_is_promoted_when_later_ones_are_worse() -> None:
    promotion = PromotionRule([Bracket((1, 3, 9), 1.0)], 3)
    for number, loss in enumerate([5.0, 6.0]):
        promotion.report(number, 0, 1, loss)
        promotion.pause(number)
    assert promotion.next() is None  # one in three of two is zero
    promotion.report(2, 0, 1, 7.0)
    promotion.pause(2)
    assert promotion.next() == 0
    assert promotion.standing(1) == Standing(step=1, rank=2, reached=3)


def test_a_higher_rung_goes_first() -> None:
    promotion = PromotionRule([Bracket((1, 3), 1.0)], 2)
    for number, loss in enumerate([1.0, 2.0, 3.0, 4.0]):
        promotion.report(number, 0, 1, loss)
        promotion.pause(number)
    for number in (0, 1):
        promotion.promote(number)
        promotion.report(number, 0, 3, 9.0 + number)
        promotion.pause(number)
    for number, loss in ((4, 0.5), (5, 5.0)):
        promotion.report(number, 0, 1, loss)
        promotion.pause(number)
    assert promotion.next() == 0
    promotion.promote(0)
    assert promotion.next() == 4


def test_a_sparse_grid_of_reports_brings_a_trial_to_several_rungs_at_once() -> None:
    promotion = PromotionRule([Bracket((1, 3, 9), 1.0)], 3)
    assert promotion.report(0, 0, 4, 2.0) == [0, 1]
    assert promotion.report(0, 0, 8, 1.0) == []
    assert promotion.report(0, 0, 30, 1.0) == [2]


@given(LOSSES, st.integers(2, 4), st.data())
def test_a_hopeless_trial_is_never_promoted(losses: list[float], eta: int, data: st.DataObject) -> None:
    places = rungs(1, 27, eta)
    promotion = PromotionRule([Bracket(places, 1.0)], eta, most=len(losses))
    given_up: set[int] = set()
    training: list[int] = []

    def take_up() -> None:
        while (taken := promotion.next()) is not None:
            assert taken not in given_up
            promotion.promote(taken)
            training.append(taken)
        for number in promotion.cannot_be_promoted():
            promotion.end(number)
            given_up.add(number)

    def complete_one() -> None:
        promotion.complete(training.pop(data.draw(st.integers(0, len(training) - 1), label="which ends")))

    for number, loss in enumerate(losses):
        promotion.report(number, 0, 1, loss)
        promotion.pause(number)
        take_up()
        if data.draw(st.booleans(), label="one ends") and training:
            complete_one()
    while training:
        complete_one()
        take_up()
    take_up()
    if len(set(losses)) == len(losses):  # the slots go to the best trials, and no other trial waits for one
        assert promotion.paused_count in (0, 1)
        assert len(losses) - len(given_up) - len(losses) // eta == promotion.paused_count


def test_two_trials_are_kept_for_each_free_slot() -> None:
    """The two promoted trials may turn out to be untrainable, and so may the next."""
    promotion = PromotionRule([Bracket((1, 3), 1.0)], 3, most=6)
    for number in range(6):
        promotion.report(number, 0, 1, float(number))
        promotion.pause(number)
    assert promotion.cannot_be_promoted() == [4, 5]
    for number in (4, 5):
        promotion.end(number)
    for number in (0, 1):
        promotion.promote(number)
        assert promotion.cannot_be_promoted() == []
    promotion.mark_untrainable(0)
    assert promotion.cannot_be_promoted() == [] and promotion.next() == 2
    promotion.promote(2)
    promotion.complete(1)
    assert promotion.cannot_be_promoted() == []
    promotion.complete(2)
    assert promotion.cannot_be_promoted() == [3]


def test_an_untrainable_trial_frees_its_slots_at_all_rungs() -> None:
    promotion = PromotionRule([Bracket((1, 3, 9), 1.0)], 3)
    for number in range(9):
        promotion.report(number, 0, 1, float(number))
        promotion.pause(number)
    for number in (0, 1, 2):
        assert promotion.next() == number
        promotion.promote(number)
    assert promotion.next() is None and promotion.promoted_count(3) == (3, 9)
    promotion.mark_untrainable(1)  # promoted, and running
    assert (promotion.next(), promotion.promoted_count(3)) == (3, (2, 9))
    promotion.promote(3)
    for number in (0, 2, 3):
        promotion.report(number, 0, 3, float(number))
        promotion.pause(number)
    assert promotion.next() == 0
    promotion.promote(0)
    promotion.mark_untrainable(0)  # it frees a slot at its last rung, and one at the rung below
    assert promotion.next() == 2 and promotion.standing(2) == Standing(3, 1, 3)
    promotion.promote(2)
    promotion.complete(2)
    assert promotion.next() == 4 and promotion.standing(0) == Standing(3, 3, 3)
    promotion.promote(4)
    assert promotion.next() is None


def test_a_stopped_trial_frees_its_slot_and_keeps_its_rank() -> None:
    promotion = PromotionRule([Bracket((1, 3), 1.0)], 3)
    for number in range(3):
        promotion.report(number, 0, 1, float(number))
        promotion.pause(number)
    promotion.pause(2)  # as it is
    assert promotion.paused_count == 3
    promotion.promote(0)
    promotion.stop(0)
    assert promotion.next() == 1 and promotion.standing(1) == Standing(1, 2, 3)
    promotion.stop(9)  # which never reached a rung


def test_the_best_paused_trial_is_unbeaten_if_all_promoted_ones_were_untrainable() -> None:
    promotion = PromotionRule([Bracket((1, 3), 1.0)], 2)
    for number in range(3):
        promotion.report(number, 0, 1, float(number))
        promotion.pause(number)
    promotion.promote(0)
    promotion.report(0, 0, 3, 0.0)
    promotion.pause(0)
    assert promotion.leading_waiter() == 0
    promotion.promote(0)
    promotion.mark_untrainable(0)
    assert promotion.leading_waiter() == 1


def test_a_trial_at_a_rung_goes_first_leads_or_waits() -> None:
    def entry(losses: list[float], *, can_wait: bool) -> tuple[int | None, bool, bool]:
        promotion = PromotionRule([Bracket((1, 3), 1.0)], 3)
        for number, loss in enumerate(losses):
            promotion.report(number, 0, 1, loss)
            came = promotion.enter(number, can_wait=can_wait)
            if came.goes_first:
                promotion.promote(number)
        return came.first, came.goes_first, came.leads

    assert entry([2.0], can_wait=True) == (None, False, True)  # one in three, but better than none yet
    assert entry([2.0, 1.0, 3.0], can_wait=True) == (1, False, False)
    assert entry([2.0, 3.0, 1.0], can_wait=True) == (2, True, False)
    assert entry([2.0], can_wait=False) == (None, True, False)  # judged once: the best so far
    assert entry([2.0, 3.0], can_wait=False) == (None, False, False)


def test_near_the_end_the_best_paused_trial_is_promoted_out_of_turn() -> None:
    promotion = PromotionRule([Bracket((1, 3), 1.0)], 3)
    choose = functools.partial(promotion.choose, is_last_chance=lambda number, other: False)
    assert choose(all_asked=True, idle=True) is None
    for number in range(2):
        promotion.report(number, 0, 1, float(number))
        promotion.pause(number)
    assert choose(all_asked=False, idle=False) is None  # a new one is next
    assert choose(all_asked=True, idle=False) is None  # a running one may still come in between
    assert choose(all_asked=True, idle=True) == 0

    asked: list[tuple[int, int | None]] = []

    def is_last_chance(number: int, other: int | None) -> bool:
        asked.append((number, other))
        return True

    assert promotion.choose(all_asked=False, idle=False, is_last_chance=is_last_chance) == 0
    assert asked == [(0, None)]


@pytest.mark.parametrize("workers", [1, 4])
def test_every_bracket_of_hyperband_is_filled_by_its_share(workers: int) -> None:
    brackets = hyperband_brackets(1, 27, 3)
    counts = [0] * len(brackets)
    for number in range(10_000):
        counts[bracket_of_trial(brackets, "lora", number)] += 1
    for bracket, count in zip(brackets, counts, strict=True):
        assert count / 10_000 == pytest.approx(bracket.share, abs=0.02)
    done = Simulated(PromotionRule(brackets, 3), brackets, 27)
    done.run(
        [flat(float(n % 17)) for n in range(120)],
        workers,
        lambda number: bracket_of_trial(brackets, "lora", number),
    )
    finished = {bracket_of_trial(brackets, "lora", number) for number in done.complete}
    assert finished == set(range(len(brackets)))


@given(st.permutations(range(14)), st.text(max_size=3), st.integers(2, 3))
def test_the_best_trial_at_the_last_rung_of_a_bracket_finishes(
    losses: list[int], name: str, eta: int
) -> None:
    """Each bracket may have used its few promotions before its best trial came."""
    brackets = hyperband_brackets(1, 9, eta)
    promotion = PromotionRule(brackets, eta)
    done = Simulated(promotion, brackets, 9)
    bracket_of = functools.partial(bracket_of_trial, brackets, name)
    done.run([flat(float(loss)) for loss in losses], 1, bracket_of)
    while (number := promotion.leading_waiter()) is not None:
        done.complete.append(number)
        promotion.promote(number)
        for rung in brackets[bracket_of(number)].rungs:
            promotion.report(number, bracket_of(number), rung, float(losses[number]))
    assert len(done.complete) == len(set(done.complete))
    best = losses.index(0)
    its, came = brackets[bracket_of(best)].rungs, done.trained[best][-1][1]
    assert best in done.complete or came < its[-1]


def late(loss: float) -> Curve:
    """A curve that is worse than any flat one until its end, and better there."""
    return lambda step: loss - 10 if step == 27 else loss + 10


@given(st.permutations(range(27)), st.permutations(range(27)), st.integers(1, 4))
def test_late_bloomers_finish_when_compared_within_their_kind(
    ours: list[int], others: list[int], workers: int
) -> None:
    curves = [curve for a, b in zip(ours, others, strict=True) for curve in (late(float(a)), flat(float(b)))]
    assert {number % 2 for number in simulate(curves, workers=workers).complete} == {1}
    done = simulate(curves, workers=workers, kind_of=lambda number: number % 2)
    assert {number % 2 for number in done.complete} == {0, 1}


@given(LOSSES, st.lists(st.integers(0, 3), min_size=40, max_size=40), st.integers(1, 5))
def test_kinds_do_not_raise_the_number_of_promotions(
    losses: list[float], kinds: list[int], workers: int
) -> None:
    done = simulate([flat(loss) for loss in losses], workers=workers, kind_of=lambda number: kinds[number])
    ends = [parts[-1][1] for parts in done.trained.values()]
    for place, above in ((1, 3), (3, 9), (9, 27)):
        assert sum(end >= above for end in ends) == sum(end >= place for end in ends) // 3


def test_the_best_of_each_kind_are_promoted_first() -> None:
    promotion = PromotionRule([Bracket((1, 3), 1.0)], 3)
    for number, (kind, loss) in enumerate([("a", 1.0), ("a", 2.0), ("a", 3.0), ("b", 11.0), ("b", 10.0)]):
        promotion.report(number, 0, 1, loss, kind)
        promotion.pause(number)
    assert promotion.next() == 0
    promotion.promote(0)
    assert promotion.next() is None
    promotion.report(5, 0, 1, 12.0, "b")
    promotion.pause(5)
    assert promotion.next() == 4
    assert promotion.standing(5) == Standing(1, 3, 3) and promotion.queue_position(5).position == 5
