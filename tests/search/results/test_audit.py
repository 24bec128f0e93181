"""What the audit tells, where the truth is known."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hpsearch.search.results.audit import audited, rank_correlation, share
from hpsearch.search.scheduling.rungs import MIN_AUDITED

LOSSES = st.integers(0, 6).map(float)


@pytest.mark.parametrize(("count", "of"), [(0, 5), (1, 6), (6, 6), (17, 40)])
def test_the_interval_is_clopper_and_pearson_s(count: int, of: int) -> None:
    theirs = stats.binomtest(count, of).proportion_ci(0.95, method="exact")
    found = share(count, of)
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


@pytest.mark.parametrize("truth", [0.0, 0.01, 0.05, 0.2, 0.5, 0.97])
@pytest.mark.parametrize("trials", [5, 12, 60])
def test_the_interval_covers_the_truth_at_its_rate(truth: float, trials: int) -> None:
    found = [share(count, trials) for count in range(trials + 1)]
    covered = [count for count, s in enumerate(found) if s.low <= truth <= s.high]
    assert sum(float(stats.binom.pmf(count, trials, truth)) for count in covered) >= 0.95


@given(st.lists(st.tuples(LOSSES, LOSSES), min_size=MIN_AUDITED, max_size=30))
def test_the_correlation_is_spearman_s(pairs: list[tuple[float, float]]) -> None:
    one, other = zip(*pairs, strict=True)
    if len(set(one)) == 1 or len(set(other)) == 1:
        assert rank_correlation(pairs) is None
    else:
        assert rank_correlation(pairs) == pytest.approx(stats.spearmanr(one, other).statistic)


def test_lost_trials_are_counted_among_the_best_that_were_let_through() -> None:
    stopped = [0.1, 0.3, 0.31, 5.0, math.inf, 0.2]
    found = audited(stopped, [0.9, 0.2, 0.3, 0.5, 0.6, 0.7], 3, [(1, [(1.0, 2.0)] * 4)])
    assert found.lost == share(3, 6), "the best two of six are 0.2 and 0.3"
    assert found.better_than_all == 1
    assert [(rung.step, rung.correlation, rung.trials) for rung in found.rungs] == [(1, None, 4)]


@pytest.mark.parametrize(("stopped", "through"), [(4, 9), (9, 4), (0, 0)])
def test_too_few_trials_tell_no_share(stopped: int, through: int) -> None:
    found = audited([0.0] * stopped, [1.0] * through, 3, [])
    assert found.lost is None
    assert (found.ended, found.let_through) == (stopped, through)


def test_recorded_searches_contain_the_share_that_is_lost() -> None:
    """Halving over curves whose ends are known: what a few tell agrees with what all do, at the stated rate."""
    covered = 0
    for seed in range(200):
        rng = random.Random(seed)
        ends = [rng.gauss(0, 1) for _ in range(300)]
        early = [end + rng.gauss(0, 1) for end in ends]
        bar = sorted(early)[100]
        through = [end for end, value in zip(ends, early, strict=True) if value < bar]
        stopped = [end for end, value in zip(ends, early, strict=True) if value >= bar]
        truth = sum(end <= sorted(through)[33] for end in stopped) / len(stopped)
        found = audited(rng.sample(stopped, 20), through, 3, [(1, list(zip(early, ends, strict=True)))])
        assert found.lost is not None and found.rungs[0].correlation == pytest.approx(0.7, abs=0.12)
        covered += found.lost.low <= truth <= found.lost.high
    assert covered >= 190
