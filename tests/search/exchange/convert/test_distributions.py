"""Supports and distributions: what a converted parameter draws, beside what the other tool draws.

The other tools' draws are written here as formulas, from the packages that `convert`'s modules name;
`test_peers.py` compares with the packages themselves.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hpsearch.search.exchange.convert import conversion
from hpsearch.spaces import Range, Spec, loads

DRAWS = 1500
SURE = 1e-4  # of p-values, with fixed seeds
Reference = Callable[[np.random.Generator], Any]


def space_of(folder: Path, file: str, text: str) -> Spec:
    path = folder / file
    path.write_text(text, encoding="utf-8")
    converted = conversion(path)
    assert converted is not None
    return loads(converted, "space.yaml")


def drawn(spec: Spec, name: str, count: int = DRAWS) -> list[Any]:
    rng = random.Random(1)
    return [spec.space.passed(spec.space.sample(rng)).get(name) for _ in range(count)]


def same(ours: list[Any], theirs: list[Any]) -> None:
    """Whether two samples have one distribution, by their values where these are few, else as numbers."""
    kinds = {type(value) for value in ours}
    assert kinds == {type(value) for value in theirs}
    values = sorted({*ours, *theirs}, key=str)
    if len(values) <= 100:
        counts = [[sample.count(value) for value in values] for sample in (ours, theirs)]
        assert stats.chi2_contingency(counts).pvalue > SURE
    else:
        assert stats.ks_2samp(ours, theirs).pvalue > SURE


def plain(sample: NDArray[Any], *, digits: int = 9) -> list[Any]:
    return [round(value, digits) if isinstance(value, float) else value for value in sample.tolist()]


def log_range(low: float, high: float) -> Reference:
    return lambda rng: np.exp(rng.uniform(math.log(low), math.log(high), DRAWS))


def rounded(reference: Reference, q: float, clip: tuple[float, float] | None = None) -> Reference:
    def draw(rng: np.random.Generator) -> NDArray[Any]:
        sample: NDArray[Any] = np.round(reference(rng) / q) * q
        sample = sample if clip is None else np.clip(sample, *clip)
        return sample.astype(int) if isinstance(q, int) and clip is None else sample

    return draw


def uniform(low: float, high: float) -> Reference:
    return lambda rng: rng.uniform(low, high, DRAWS)


def whole(low: int, high: int) -> Reference:
    return lambda rng: rng.integers(low, high, DRAWS, endpoint=True)


def values(choices: list[Any], weights: list[float] | None = None) -> Reference:
    return lambda rng: np.array(choices)[rng.choice(len(choices), DRAWS, p=weights)]


WANDB: dict[str, Reference] = {
    "min: 0, max: 3": whole(0, 3),
    "min: 0.0, max: 3": uniform(0, 3),
    "distribution: uniform, min: 0, max: 3": uniform(0, 3),
    "distribution: int_uniform, min: -2, max: 3": whole(-2, 3),
    "distribution: log_uniform, min: -9, max: 0": lambda rng: np.exp(rng.uniform(-9, 0, DRAWS)),
    "distribution: log_uniform_values, min: 1, max: 100": log_range(1, 100),
    "distribution: inv_log_uniform_values, min: 0.001, max: 100": lambda rng: np.exp(
        -rng.uniform(-math.log(100), -math.log(0.001), DRAWS)
    ),
    "distribution: inv_log_uniform, min: -1, max: 7": lambda rng: np.exp(-rng.uniform(-1, 7, DRAWS)),
    "distribution: q_log_uniform_values, min: 16, max: 256, q: 8": rounded(log_range(16, 256), 8),
    "distribution: q_log_uniform_values, min: 16, max: 256, q: 8.0": rounded(log_range(16, 256), 8.0),
    "distribution: q_log_uniform, min: 1, max: 3, q: 0.5": rounded(log_range(math.e, math.e**3), 0.5),
    "distribution: q_uniform, min: 0, max: 1, q: 1": rounded(uniform(0, 1), 1),
    "values: [1, 2, a]": values(["1", "2", "a"]),
    "values: [a, b, c], probabilities: [0.5, 0.3, 0.2]": values(["a", "b", "c"], [0.5, 0.3, 0.2]),
    "values: [4, 8], probabilities: [0.9, 0.1]": values([4, 8], [0.9, 0.1]),
    'values: ["x_raw", "a\\"b"], probabilities: [0.9, 0.1]': values(["x_raw", 'a"b'], [0.9, 0.1]),
    "distribution: beta, a: 1, b: 1": uniform(0, 1),
}
NNI: dict[str, Reference] = {
    "_type: uniform, _value: [0, 3]": uniform(0, 3),
    "_type: randint, _value: [2, 6]": whole(2, 5),
    "_type: loguniform, _value: [1, 100]": log_range(1, 100),
    "_type: quniform, _value: [1, 10, 4]": rounded(uniform(1, 10), 4, (1, 10)),
    "_type: quniform, _value: [0.5, 9, 2.5]": rounded(uniform(0.5, 9), 2.5, (0.5, 9)),
    "_type: qloguniform, _value: [1, 64, 3]": rounded(log_range(1, 64), 3, (1, 64)),
    "_type: choice, _value: [4, 8, 16]": values([4, 8, 16]),
}
DETERMINED: dict[str, Reference] = {
    "type: int, minval: 2, maxval: 5": whole(2, 5),
    "type: double, minval: 0, maxval: 3": uniform(0, 3),
    "type: log, base: 10, minval: -4, maxval: 0": log_range(1e-4, 1),
    "type: log, base: 2, minval: 1, maxval: 8": log_range(2, 256),
    "type: log, base: 0.1, minval: 1, maxval: 4": log_range(1e-4, 0.1),
    "type: categorical, vals: [a, b]": values(["a", "b"]),
}
KATIB: dict[str, Reference] = {
    'double, feasibleSpace: {min: "0.01", max: "0.05"}': uniform(0.01, 0.05),
    'double, feasibleSpace: {min: "1", max: "2", step: "0.25"}': values([1.0, 1.25, 1.5, 1.75, 2.0]),
    'double, feasibleSpace: {min: "1e-5", max: "1", distribution: logUniform}': log_range(1e-5, 1),
    'int, feasibleSpace: {min: "1", max: "6"}': whole(1, 6),
    'int, feasibleSpace: {min: "1", max: "6", step: "2"}': values([1, 3, 5]),
    "categorical, feasibleSpace: {list: [a, b]}": values(["a", "b"]),
    'discrete, feasibleSpace: {list: ["1", "2.50"]}': values(["1", "2.50"]),
}
AT_ENDS = {  # multiples of q, whose ends get half as much as the others there: the support is the same
    "distribution: q_uniform, min: 0, max: 1, q: 0.1": rounded(uniform(0, 1), 0.1),
    "distribution: q_uniform, min: 0, max: 10": rounded(uniform(0, 10), 1.0),
    "distribution: q_uniform, min: 3, max: 20, q: 4": rounded(uniform(3, 20), 4),
    "distribution: q_uniform, min: 0.7, max: 5.2, q: 2": rounded(uniform(0.7, 5.2), 2),
}


def wandb(parameter: str) -> str:
    return f"method: random\nprogram: t.py\nparameters: {{x: {{{parameter}}}, z: {{values: [1, 2]}}}}\n"


def nni(parameter: str) -> str:
    return f"x: {{{parameter}}}\n"


def determined(parameter: str) -> str:
    searcher = "{name: random, metric: m, max_trials: 3}"
    return f"entrypoint: python t.py\nhyperparameters: {{x: {{{parameter}}}}}\nsearcher: {searcher}\n"


def katib(parameter: str, algorithm: str = "multivariate-tpe") -> str:
    return (
        "apiVersion: kubeflow.org/v1beta1\nkind: Experiment\nspec:\n  objective: {type: minimize, objectiveMetricName: m}\n"
        f"  algorithm: {{algorithmName: {algorithm}}}\n  parameters: [{{name: x, parameterType: {parameter}}}]\n"
    )


def katib_by_hyperopt(parameter: str) -> str:
    return katib(parameter, "random")


HYPEROPT: dict[str, Reference] = {
    'int, feasibleSpace: {min: "1", max: "40", distribution: logUniform}': rounded(log_range(1, 40), 1),
    'double, feasibleSpace: {min: "1", max: "40", step: "1.5", distribution: logUniform}': rounded(
        log_range(1, 40), 1.5
    ),
}


@pytest.mark.parametrize(
    ("write", "cases"),
    [(wandb, WANDB), (nni, NNI), (determined, DETERMINED), (katib, KATIB), (katib_by_hyperopt, HYPEROPT)],
    ids=["wandb", "nni", "determined", "katib", "hyperopt"],
)
def test_both_sides_draw_alike(
    tmp_path: Path, subtests: pytest.Subtests, write: Callable[[str], str], cases: dict[str, Reference]
) -> None:
    for parameter, reference in cases.items():
        with subtests.test(parameter):
            ours = drawn(space_of(tmp_path, "other.yaml", write(parameter)), "x")
            theirs = plain(np.asarray(reference(np.random.default_rng(2))))
            if isinstance(theirs[0], str):
                ours = list(map(str, ours))
            same([round(each, 9) if isinstance(each, float) else each for each in ours], theirs)


BY_HYPEROPT: dict[str, Reference] = {  # for which a step means its multiples
    'double, feasibleSpace: {min: "1", max: "2", step: "0.25"}': rounded(uniform(1, 2), 0.25),
    'double, feasibleSpace: {min: "0.5", max: "2", step: "0.4"}': rounded(uniform(0.5, 2), 0.4),
    'int, feasibleSpace: {min: "1", max: "9"}': rounded(uniform(1, 9), 1),
    'int, feasibleSpace: {min: "1", max: "9", step: "2"}': rounded(uniform(1, 9), 2),
}


def test_what_is_rounded_has_the_same_values(tmp_path: Path, subtests: pytest.Subtests) -> None:
    rounding = {wandb(parameter): reference for parameter, reference in AT_ENDS.items()}
    rounding |= {katib(parameter, "random"): reference for parameter, reference in BY_HYPEROPT.items()}
    for text, reference in rounding.items():
        with subtests.test(text):
            spec = space_of(tmp_path, "other.yaml", text)
            ours = {round(value, 9) for value in drawn(spec, "x")}
            theirs = plain(np.asarray(reference(np.random.default_rng(2))))
            assert ours == set(theirs) and {type(each) for each in ours} == {type(each) for each in theirs}
            inner = sorted(ours)[1:-1]  # equally likely on both sides
            if len(inner) > 1:
                counts = [theirs.count(value) for value in inner]
                assert stats.chisquare(counts).pvalue > SURE


NORMAL = {
    wandb("distribution: normal, mu: 1, sigma: 0.5"): (-0.5, 2.5, 1.0, False),
    wandb("distribution: normal"): (-3.0, 3.0, 0.0, False),
    wandb("distribution: q_normal, mu: 1, sigma: 2, q: 0.5"): (-5.0, 7.0, 1.0, False),
    wandb("distribution: log_normal, mu: 0, sigma: 1"): (math.exp(-3), math.exp(3), 1.0, True),
    nni("_type: normal, _value: [1, 0.5]"): (-0.5, 2.5, 1.0, False),
    nni("_type: qnormal, _value: [1, 2, 0.5]"): (-5.0, 7.0, 1.0, False),
    nni("_type: lognormal, _value: [0, 1]"): (math.exp(-3), math.exp(3), 1.0, True),
    katib('double, feasibleSpace: {min: "1", max: "3", distribution: normal}'): (1.0, 3.0, 2.0, False),
    katib('double, feasibleSpace: {min: "1", max: "9", distribution: logNormal}'): (1.0, 9.0, 3.0, True),
}


def test_a_normal_distribution_becomes_three_deviations_with_a_prior(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for text, (low, high, at, log) in NORMAL.items():
        with subtests.test(text):
            spec = space_of(tmp_path, "other.yaml", text)
            parameter = spec.parameters["x"]
            assert isinstance(parameter, Range) and parameter.prior is not None
            found = [parameter.min, parameter.max, parameter.prior.at]
            assert found == pytest.approx([low, high, at]) and parameter.log is log
            assert "normally distributed" in (conversion(tmp_path / "other.yaml") or "")


ALONE = {  # equal bounds and deviations of 0
    wandb("min: 3, max: 3"): 3,
    wandb("distribution: uniform, min: 3, max: 3"): 3.0,
    wandb("distribution: normal, mu: 3, sigma: 0"): 3.0,
    wandb("distribution: q_uniform, min: 2.9, max: 3.1, q: 1"): 3,
    wandb("value: [1, 2]"): [1, 2],
    wandb("value: null"): None,
    wandb("values: [a, b], probabilities: [0, 1]"): "b",
    nni("_type: randint, _value: [2, 3]") + "z: {_type: uniform, _value: [0, 1]}": 2,
    determined("type: const, val: a}, y: {type: double, minval: 0, maxval: 1"): "a",
}


def test_one_value_is_a_constant(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for text, value in ALONE.items():
        with subtests.test(text):
            (only, *_) = drawn(space_of(tmp_path, "other.yaml", text), "x", 1)
            assert only == value and type(only) is type(value)
