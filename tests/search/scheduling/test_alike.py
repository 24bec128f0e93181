"""Kinds of trials, which are compared separately."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hpsearch.search.scheduling.rungs import kind_choices
from hpsearch.search.scheduling.standings import trial_kind
from hpsearch.spaces import SpaceError, Spec

PROMOTION = {"method": "asha", "type": "promotion", "min": 1, "max": 27, "resource": "steps"}
SCHEDULED = {
    "learning_rate": {"min": 1e-4, "max": 1e-2, "log": True},
    "lr_scheduler": ["constant", "cosine"],
    "warmup": [True, False],
    "decay": {"choices": ["late", "early"], "when": {"lr_scheduler": "cosine"}},
}
SpaceOf = Callable[..., Spec]


@pytest.fixture
def space(make_spec: Any) -> SpaceOf:
    def make(parameters: dict[str, Any] = SCHEDULED, **stopping: Any) -> Spec:
        spec: Spec = make_spec(parameters=parameters, early_stopping=PROMOTION | stopping)
        return spec

    return make


def kinds(spec: Spec, *params: dict[str, Any]) -> set[Any]:
    trials = [SimpleNamespace(params=each) for each in params]
    return {trial_kind(spec, trial) for trial in trials}  # type: ignore[arg-type]


def test_trials_are_compared_with_those_of_their_kind(space: SpaceOf) -> None:
    constant = [{"lr_scheduler": "constant", "learning_rate": 1e-3 * n} for n in range(1, 9)]
    cosine = [{"lr_scheduler": "cosine", "warmup": n % 2 == 0} for n in range(9)]
    assert kinds(space(alike=["lr_scheduler"]), *constant, *cosine) == {
        (("lr_scheduler", "constant"),),
        (("lr_scheduler", "cosine"),),
    }


def test_all_trials_compare_if_no_choice_is_named(space: SpaceOf) -> None:
    assert kinds(space(), {"lr_scheduler": "cosine"}, {"lr_scheduler": "constant"}) == {()}


def test_a_space_names_the_choices_that_count(space: SpaceOf) -> None:
    """Trials that lack a conditional choice form a kind of their own."""
    spec = space(method="hyperband", alike=["warmup", "decay"])
    params = [{"warmup": w} | d for w in (True, False) for d in ({}, {"decay": "late"}, {"decay": "early"})]
    assert len(kinds(spec, *params)) == 6


def test_stopping_compares_trials_of_all_kinds(space: SpaceOf) -> None:
    assert kind_choices(space(type="stopping")) == []
    with pytest.raises(SpaceError, match=r"early_stopping.alike: needs type: promotion"):
        space(type="stopping", alike=["warmup"])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("lr_schedular", r'alike\[0\]: "lr_schedular" is not a parameter; did you mean "lr_scheduler"'),
        ("learning_rate", r'alike\[0\]: "learning_rate" is not a list of choices, so few trials'),
    ],
)
def test_names_that_divide_no_trials_are_refused(space: SpaceOf, name: str, told: str) -> None:
    with pytest.raises(SpaceError, match=told):
        space(alike=[name])
