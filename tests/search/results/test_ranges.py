"""Edges: what the best values of a study press against."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import optuna
import pytest

from hpsearch.search.results.ranges import NarrowRange, narrow_ranges
from hpsearch.search.results.study import StudyResult
from hpsearch.search.sampling.distributions import distributions
from hpsearch.spaces import loads
from hpsearch.storage.workspace import Workspace

Goal = Literal["minimize", "maximize"]
SPACE = """
version: 1
name: edges
objective: {objective}
metric: val_loss
goal: {goal}
parameters: {{{parameters}}}
constraints: [{constraints}]
budget: {{trials: 100}}
"""


def study(
    parameter: str,
    values: Sequence[Any],
    *,
    goal: Goal = "minimize",
    objective: str = '"m:f"',
    name: str = "x",
    constraints: str = "",
) -> StudyResult:
    """A study with a complete trial for each value, the best first."""
    own = {"parameters": f"{name}: {parameter}", "constraints": constraints}
    spec = loads(SPACE.format(goal=goal, objective=objective, **own))
    found = optuna.create_study(direction=goal)
    for rank, value in enumerate(values):
        found.add_trial(
            optuna.trial.create_trial(
                value=float(rank if goal == "minimize" else -rank),
                params={name: value},
                distributions=distributions(spec.space),
            )
        )
    return StudyResult("edges", found, spec, Workspace("sqlite:///none.db", Path("runs")))


def edge_of(parameter: str, values: Sequence[Any], **options: Any) -> NarrowRange | None:
    return next(iter(narrow_ranges(study(parameter, values, **options)).found), None)


UNIT = "{min: 1.0, max: 2.0}"
MIDDLE = [1.5] * 10


RANGES: list[tuple[str, list[Any], Any]] = [
    (UNIT, [1.99, 1.98, 1.97, *MIDDLE], ("upper", 3, 3, True)),
    (UNIT, [1.5, 1.98, 1.97, *MIDDLE], ("upper", 2, 3, False)),
    (UNIT, [1.01, 1.5, 1.5, *MIDDLE], ("lower", 1, 3, True)),
    (UNIT, [1.5, 1.5, 1.97, *MIDDLE], None),
    (UNIT, [1.06, 1.94, 1.5, *MIDDLE], None),  # near an end, and not within 5 % of it
    (UNIT, [1.01, 1.99, 1.5, *MIDDLE], ("lower", 1, 3, True)),
    (UNIT, [2.0] * 40, ("upper", 4, 4, True)),  # the best tenth
    (UNIT, [2.0] * 9, None),  # too few
    ("{min: 0.0, max: 2.0}", [0.0, 0.0, 0.0, *MIDDLE], None),  # zero is an end for good
    ("{min: 1e-4, max: 1e-1, log: true}", [1.2e-4, *[1e-3] * 12], ("lower", 1, 3, True)),
    ("{min: 1e-4, max: 1e-1, log: true}", [1e-3] * 12, None),  # near the end, were it not in ratio
    ("{min: 2, max: 32, factor: 2}", [32, 16, 32, *[8] * 10], ("upper", 2, 3, True)),
    ("{min: 1, max: 3}", [3, 2, 2, *[2] * 10], None),  # of three values two are ends
    ("{min: 1, max: 3}", [2, 3, 3, 3, *[2] * 10], ("upper", 2, 3, False)),
    ("{min: 1, max: 3}", [2, 3, 3, *[2] * 8, *[3] * 5], None),  # elsewhere as often as among the best
    ("{min: 0, max: 1}", [1, 1, 0, 0, 1, 0, 1, 0, 0, 1, 1, 0], None),
    ("{min: 0, max: 1}", [1] * 12, None),  # nobody knows the other
    ("[4, 8, 16]", [16, 16, 8, *[8] * 10], ("upper", 2, 3, True)),
    ("[16, 8, 4]", [4, 4, 8, *[8] * 10], ("lower", 2, 3, True)),
    ("[a, b, c]", [*"ccc", *"bbbbbbbbbb"], None),
]


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_what_is_an_edge(subtests: pytest.Subtests, goal: Goal) -> None:
    for parameter, values, wanted in RANGES:
        with subtests.test(f"{parameter}, {values}"):
            edge = edge_of(parameter, values, goal=goal)
            assert (None if edge is None else (edge.end, edge.at, edge.best, edge.winner)) == wanted


def test_what_the_objective_takes_is_its_limit() -> None:
    best = [0.89] * 12
    shares = {"objective": "lora", "name": "lora_dropout"}
    edge = edge_of("{min: 0.0, max: 0.9}", best, **shares)
    assert edge is not None and edge.line == "lora_dropout: {min: 0.0, max: 0.95}"
    own = edge_of("{min: 0.0, max: 0.9}", best, name="layer.lora_dropout")
    assert own is not None and own.line == "layer.lora_dropout: {min: 0.0, max: 0.95}", "the name says it"
    free = edge_of("{min: 0.0, max: 0.9}", best)
    assert free is not None and free.line == "x: {min: 0.0, max: 1.4}"


@pytest.mark.parametrize(
    ("constraint", "wanted"),
    [
        ("x <= 2", None),
        ("x <= 2.2", "x: {min: 1.0, max: 2.5}"),  # some of what is beyond
        ("sqrt(2.0 - x) >= 0", None),  # has no value beyond
        ("x >= 1", "x: {min: 1.0, max: 2.5}"),
    ],
)
def test_what_the_constraints_refuse_is_not_proposed(constraint: str, wanted: str | None) -> None:
    edge = edge_of(UNIT, [1.99, 1.98, 1.97, *MIDDLE], constraints=f'"{constraint}"')
    assert (None if edge is None else edge.line) == wanted


def test_where_all_are_alike_nothing_is_best() -> None:
    same = study("{min: 0, max: 9}", [9, 9, 9, *[5] * 10])
    alike = optuna.create_study()
    for trial in same.study.get_trials():
        trial.value = 0.5
        alike.add_trial(trial)
    assert narrow_ranges(same).found and not narrow_ranges(dataclasses.replace(same, study=alike)).found
