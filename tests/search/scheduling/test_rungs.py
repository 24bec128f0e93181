"""Rungs and brackets, against Optuna's own."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from typing import Any

import optuna
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from hpsearch.search.scheduling.pruners import make_pruner
from hpsearch.search.scheduling.rungs import brackets_of, hyperband_brackets, rungs
from hpsearch.spaces import Spec


def spec_of(**stopping: Any) -> Spec:
    return Spec.from_json(
        {
            "version": 1,
            "name": "s",
            "objective": "a:b",
            "metric": "m",
            "parameters": {"x": {"min": 0.0, "max": 1.0}},
            "early_stopping": stopping,
        }
    )


@pytest.mark.parametrize(
    ("minimum", "maximum", "eta", "first"),
    [
        (1, 243, 3, [1, 3, 9, 27, 81, 243]),
        (1, 1000, 10, [1, 10, 100, 1000]),
        (1, 242, 3, [1, 3, 9, 27, 81]),
        (25, 400, 3, [25, 75, 225]),
        (1, 9, 3, [1, 3, 9]),
        (2, 3, 2, [2]),
    ],
)
def test_every_power_of_eta_up_to_the_maximum_begins_a_bracket(
    minimum: int, maximum: int, eta: int, first: list[int]
) -> None:
    found = hyperband_brackets(minimum, maximum, eta)
    assert len(found) == len(first)
    assert [b.rungs[0] for b in found if b.rungs] == [f for f in first if f < maximum]


def test_the_shares_are_those_of_the_table() -> None:
    shares = [round(b.share, 2) for b in hyperband_brackets(1, 81, 3)]
    assert shares == [0.57, 0.24, 0.1, 0.06, 0.03]


ETAS = st.integers(2, 12)


@given(st.integers(1, 10**6), st.integers(0, 12), ETAS, st.integers(-1, 1) | st.integers(0, 10**6))
@example(986_896, 9, 10, 0)
def test_optuna_has_the_same_brackets(minimum: int, power: int, eta: int, beside: int) -> None:
    """Especially near powers of eta, where a float logarithm fails."""
    maximum = minimum * eta**power + beside
    assume(minimum < maximum < 2**50)
    brackets = hyperband_brackets(minimum, maximum, eta)
    pruner = make_pruner(spec_of(method="hyperband", min=minimum, max=maximum, eta=eta))
    assert isinstance(pruner, optuna.pruners.HyperbandPruner)
    pruner._try_initialization(optuna.create_study(study_name="s"))
    assert pruner._n_brackets == len(brackets)
    firsts = [p._min_resource * eta**p._min_early_stopping_rate for p in pruner._pruners]
    assert firsts == [minimum * eta**b for b in range(len(brackets))]
    shares = [Fraction(p, pruner._total_trial_allocation_budget) for p in pruner._trial_allocation_budgets]
    assert [float(share) for share in shares] == pytest.approx([b.share for b in brackets])


@given(st.integers(1, 1000), st.integers(1, 10**6), ETAS)
def test_rungs_rise_by_eta_below_the_maximum(first: int, maximum: int, eta: int) -> None:
    found = rungs(first, maximum, eta)
    assert all(step < maximum for step in found)
    assert all(b == a * eta for a, b in pairwise(found))
    assert (found[-1] * eta if found else first) >= maximum


def test_successive_halving_is_one_bracket_that_may_start_later() -> None:
    (bracket,) = brackets_of(spec_of(method="asha", min=1, max=81, eta=3))
    assert bracket.rungs == (1, 3, 9, 27)
    late = spec_of(method="asha", min=1, max=81, eta=3, min_early_stopping_rate=2)
    assert [b.rungs for b in brackets_of(late)] == [(9, 27)]
    assert brackets_of(spec_of(method="median")) == []


def test_the_expected_number_of_complete_trials() -> None:
    brackets = hyperband_brackets(1, 9, 3)
    assert [b.rungs for b in brackets] == [(1, 3), (3,), ()]
    found = [b.expected_complete(90, 3) for b in brackets]
    assert found == pytest.approx([90 * b.share / 3 ** len(b.rungs) for b in brackets])


def test_trials_fall_into_brackets_by_their_shares() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(study_name="shares")
    pruner = make_pruner(spec_of(method="hyperband", min=1, max=27, eta=3))
    assert isinstance(pruner, optuna.pruners.HyperbandPruner)
    pruner._try_initialization(study)
    frozen = [
        optuna.trial.FrozenTrial(
            number=n,
            state=optuna.trial.TrialState.RUNNING,
            value=None,
            datetime_start=None,
            datetime_complete=None,
            params={},
            distributions={},
            user_attrs={},
            system_attrs={},
            intermediate_values={},
            trial_id=n,
        )
        for n in range(2000)
    ]
    counts = Counter(pruner._get_bracket_id(study, trial) for trial in frozen)
    for index, bracket in enumerate(hyperband_brackets(1, 27, 3)):
        assert counts[index] / 2000 == pytest.approx(bracket.share, abs=0.04)
