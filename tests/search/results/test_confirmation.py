"""What training the best again tells: beside SciPy's t-tests, and on noise whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import create_trial
from scipy import stats

from hpsearch.search.results.confirmation import (
    LEVEL,
    Confirmed,
    candidates_of,
    confirmation_outcome,
    confirmed,
)
from hpsearch.search.trials.records import StudyRecords
from hpsearch.spaces import Spec

from ...support.spaces import small

VALUES = st.floats(-10, 10, allow_nan=False).map(lambda x: round(x, 3))


@given(st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=6))
def test_of_two_the_difference_is_that_of_a_paired_t_test(rows: list[tuple[float, float]]) -> None:
    winner, baseline = zip(*rows, strict=True)
    found = confirmed({1: winner, 0: baseline}, {1: 0.0, 0: 0.0}, baseline=0)
    differences = np.subtract(baseline, winner)
    if np.mean(differences) < 1e-9:  # values of three digits differ by more, or by how they are rounded
        assert found.winner == 0 and found.gain is None, "nothing was better than the baseline"
        return
    assert found.gain is not None and found.winner == 1
    assert found.gain.value == pytest.approx(differences.mean())
    if np.ptp(differences) < 1e-9:
        return  # SciPy warns of samples without spread
    interval = stats.ttest_rel(baseline, winner).confidence_interval(LEVEL)
    assert (found.gain.low, found.gain.high) == pytest.approx(tuple(interval))


@given(st.lists(VALUES, min_size=2, max_size=6, unique=True))
def test_of_one_alone_the_interval_is_that_of_a_t_test(row: list[float]) -> None:
    found = confirmed({7: row}, {7: 1.0})
    interval = stats.ttest_1samp(row, 0.0).confidence_interval(LEVEL)
    assert (found.value.low, found.value.high) == pytest.approx(tuple(interval))
    assert found.optimism == pytest.approx(np.mean(row) - 1.0)
    assert found.gain is None and found.ties == ()


@pytest.mark.parametrize("exponent", [-1060, -500, 500, 1020])
def test_huge_and_tiny_values_are_judged_as_others_are(exponent: int) -> None:
    rows = {0: [0.5, 0.55, 0.51], 1: [0.1, 0.11, 0.13], 2: [0.13, 0.125, 0.15]}
    times = 2.0**exponent
    plain = confirmed(rows, {n: row[0] for n, row in rows.items()}, baseline=0)
    other = confirmed(
        {n: [value * times for value in row] for n, row in rows.items()},
        {n: row[0] * times for n, row in rows.items()},
        baseline=0,
    )
    assert (other.winner, other.ties) == (plain.winner, plain.ties) == (1, (2,))
    assert plain.gain is not None and other.gain is not None
    for found, expected in ((other.value, plain.value), (other.gain, plain.gain)):
        assert found.low / times == pytest.approx(expected.low, rel=1e-3)
        assert found.high / times == pytest.approx(expected.high, rel=1e-3)
    assert other.optimism / times == pytest.approx(plain.optimism, rel=1e-2)


def test_values_that_hardly_vary_beside_others_have_an_interval() -> None:
    found = confirmed({0: [1.0, 1.0], 1: [1e-100, 2e-100]}, {0: 1.0, 1: 1e-100}, baseline=0)
    assert found.winner == 1 and found.gain is not None and found.gain.low > 0


def study(rows: list[tuple[float, ...]], luck: int, goal: str) -> StudyRecords:
    """A study whose trials have these losses when they are trained again; the first is the baseline."""
    sign, trials = 1 if goal == "minimize" else -1, []
    for number in range(len(rows)):
        baseline = {"baseline": True} if number == 0 else {}
        trials.append(create_trial(value=sign * float(luck + number), user_attrs=baseline))
    for number, row in enumerate(rows):
        for seed, loss in enumerate(row):
            attrs = {"confirms": number, "confirms_seed": seed}
            trials.append(create_trial(value=sign * loss, user_attrs=attrs))
    for number, trial in enumerate(trials):
        trial.number = number
    return StudyRecords(small(goal=goal), trials)


def outcome(rows: list[tuple[float, ...]], luck: int, goal: str) -> Confirmed | None:
    """What such a study tells."""
    return confirmation_outcome(study(rows, luck, goal))


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_the_candidates_come_with_each_training_and_their_means(goal: str) -> None:
    sign = 1 if goal == "minimize" else -1
    records = study([(5.0, 5.5), (1.0, 1.5), (math.inf, 2.0), (0.5, 0.75)], 7, goal)
    found = candidates_of(records, confirmation_outcome(records))
    assert [each.trial for each in found] == [3, 1, 0, 2], "the best mean first, and last what diverged"
    assert [each.mean and each.mean.value for each in found] == [sign * 0.625, sign * 1.25, sign * 5.25, None]
    assert [each.is_baseline for each in found] == [False, False, True, False]
    assert [each.searched for each in found] == [sign * value for value in (10.0, 8.0, 7.0, 9.0)]
    first, second = found[0].trainings
    assert (first.trial, first.seed, first.value) == (10, 1, sign * 0.5)
    assert (second.trial, second.seed, second.value) == (11, 2, sign * 0.75)
    assert found[1].mean is not None and found[1].mean.low < found[1].mean.value < found[1].mean.high
    early = candidates_of(records, None)
    assert all(each.mean is None for each in early), "before there are two seeds of each"


@given(st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=2, max_size=5), st.integers(0, 4))
def test_more_is_better_just_as_less_is(rows: list[tuple[float, ...]], luck: int) -> None:
    less, more = outcome(rows, luck, "minimize"), outcome(rows, luck, "maximize")
    assert less is not None and more is not None
    assert (more.winner, more.ties) == (less.winner, less.ties)
    assert more.optimism == pytest.approx(less.optimism)
    assert more.value.value == pytest.approx(-less.value.value)
    assert (more.gain is None) == (less.gain is None)
    if more.gain is not None and less.gain is not None:
        assert (more.gain.low, more.gain.high) == pytest.approx((less.gain.low, less.gain.high))


def test_a_seed_that_is_bad_for_all_is_no_difference_between_them() -> None:
    found = confirmed(
        {0: [2.0, 5.0, 3.0], 4: [1.0, 4.0, 2.0], 9: [1.5, 4.5, 2.5]}, {0: 2, 4: 1, 9: 1}, baseline=0
    )
    assert found.winner == 4 and found.ties == ()
    assert found.gain is not None and (found.gain.low, found.gain.high) == pytest.approx((1.0, 1.0))
    assert found.value.low < 1 and found.value.high > 4, "but it makes the value itself uncertain"


@pytest.mark.parametrize("baseline", [0.9, 1.0, 1.1])
def test_the_baseline_wins_where_nothing_was_better(baseline: float) -> None:
    found = confirmed({0: [baseline] * 2, 4: [1.0, 1.0]}, {0: baseline, 4: 0.5}, baseline=0)
    assert found.winner == (0 if baseline <= 1 else 4)
    assert (found.gain is None) == (found.winner == 0)


def test_means_that_differ_only_by_rounding_are_equal() -> None:
    values = {0: [0.1, 0.2, 0.3], 4: [0.3, 0.1, 0.2], 7: [0.2, 0.3, 0.1]}
    assert len({np.mean(row) for row in values.values()}) > 1, "their sums differ in the last digit"
    found = confirmed(values, {0: 0.5, 4: 0.2, 7: 0.1}, baseline=0)
    assert found.winner == 0 and found.ties == (4, 7)
    assert confirmed(values, {0: 0.5, 4: 0.2, 7: 0.1}).winner == 7, "the best of the search"


def test_a_candidate_that_fails_with_one_seed_is_out() -> None:
    found = confirmed({3: [0.1, math.inf], 4: [1.0, 1.1]}, {3: 0.1, 4: 1.0})
    assert found.winner == 4


def test_what_no_seed_changes_is_certain() -> None:
    found = confirmed({3: [1.0, 1.0], 4: [1.0, 1.0], 0: [2.0, 2.0]}, {3: 1.0, 4: 1.0, 0: 2.0}, baseline=0)
    assert (found.winner, found.ties, found.optimism) == (3, (4,), 0.0)
    assert found.gain is not None and found.gain.low == found.gain.high == 1.0
    value = 0.784  # which the mean of three such misses
    exact = confirmed({3: [value] * 3, 4: [0.9] * 3}, {3: value, 4: 0.9})
    assert (exact.value.value, exact.optimism) == (value, 0.0)
    assert found.seedless, "which is told: the objective may not take its seed"
    assert not confirmed({3: [1.0, 1.0], 4: [1.0, 1.1]}, {3: 1.0, 4: 1.0}).seedless


@pytest.mark.parametrize("seed_effect", [0.0, 0.02])
def test_the_intervals_hold_whichever_trial_was_picked(seed_effect: float) -> None:
    """Of sixty configurations the luckiest four are trained again; the truth is known, and so the rate."""
    rng, covered, gained, optimism, left = np.random.default_rng(0), 0, 0, 0.0, 0.0
    studies = 1000
    for _ in range(studies):
        truth = rng.normal(0, 0.02, 60)
        truth[0] = 0.05
        seen = truth + rng.normal(0, 0.02, 60)
        seeds = rng.normal(0, seed_effect, 3)
        chosen = [0, *(int(n) for n in np.argsort(seen[1:])[:3] + 1)]
        values = {n: list(truth[n] + seeds + rng.normal(0, 0.02, 3)) for n in chosen}
        found = confirmed(values, {n: float(seen[n]) for n in chosen}, baseline=0)
        assert found.gain is not None
        covered += found.value.low <= truth[found.winner] <= found.value.high
        gained += found.gain.low <= truth[0] - truth[found.winner] <= found.gain.high
        optimism += (truth[chosen[1]] - seen[chosen[1]]) / studies
        left += (truth[found.winner] - found.value.value) / studies
    noise = 3 * math.sqrt(LEVEL * (1 - LEVEL) / studies)  # of such a rate
    assert covered / studies == pytest.approx(LEVEL, abs=noise), "as often as they state, and not more often"
    assert gained / studies == pytest.approx(LEVEL, abs=noise)
    assert optimism > 0.025 and abs(left) < 0.1 * optimism


@pytest.mark.parametrize("top", [2, 3, 10])
def test_what_is_no_better_is_seldom_called_better(top: int) -> None:
    """All are as good as the baseline: whoever is picked of them was lucky."""
    rng, told, apart, studies = np.random.default_rng(1), 0, 0, 1000
    for _ in range(studies):
        values = {number: list(rng.normal(0, 1, 3)) for number in range(top + 1)}
        found = confirmed(values, dict.fromkeys(values, 0.0), baseline=0)
        told += found.gain is not None and found.gain.low > 0
        apart += len(found.ties) < top - (found.winner != 0)
    assert told / studies <= 1 - LEVEL
    assert apart / studies <= 1 - LEVEL + 0.01, "and seldom is one of them called worse than the winner"


def test_the_baseline_is_no_tie_of_the_winner() -> None:
    found = confirmed({0: [1.0, 1.2], 4: [0.9, 1.2], 5: [0.95, 1.2]}, {0: 1.0, 4: 0.9, 5: 1.0}, baseline=0)
    assert (found.winner, found.ties) == (4, (5,))
    assert found.gain is not None and found.gain.low <= 0, "that it may be as good is told of the gain"


def test_a_trial_that_lacks_what_the_space_searches_is_never_the_best() -> None:
    space = {"version": 1, "name": "s", "metric": "loss", "objective": "o.py:f", "budget": {"trials": 9}}
    spec = Spec.from_json(space | {"parameters": {"x": {"min": 0.0, "max": 1.0}, "n": [1, 2]}})
    x = {"x": (0.5, FloatDistribution(0, 1)), "n": (1, CategoricalDistribution((1, 2)))}
    trials = [
        create_trial(
            value=value,
            params={name: x[name][0] for name in names},
            distributions={name: x[name][1] for name in names},
        )
        for value, names in ((0.3, "xn"), (-3.0, "x"), (0.2, "xn"), (-2.0, ""), (0.1, "xn"))
    ]
    for number, trial in enumerate(trials):
        trial.number = number
    records = StudyRecords(spec, trials)
    assert [trial.number for trial in records.best(2)] == [4, 2]
    assert [trial.number for trial in records.best(9)] == [4, 2, 0]


def test_a_huge_value_of_one_candidate_hides_no_difference_between_others() -> None:
    values = {0: [1e14, 1.0001e14], 1: [1.0, 1.01], 2: [2.0, 2.02]}
    result = confirmed(values, {0: 0.5, 1: 1.0, 2: 2.0}, baseline=2)
    assert result is not None and result.winner == 1 and result.gain is not None
