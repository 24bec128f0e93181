"""The space: configurations that respect bounds, conditions, expressions and constraints."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.spaces import Choice, Range, SpaceError, Spec, loads, nested

HEAD = "version: 1\nname: t\nobjective: lora\nmetric: val_loss\nparameters:\n"


def space(parameters: str, rest: str = "") -> Any:
    return loads(HEAD + "".join(f"  {line}\n" for line in parameters.splitlines()) + rest).space


def holds(spec: Spec, config: dict[str, Any]) -> None:
    """What every configuration of the LoRA space satisfies."""
    for name, value in config.items():
        parameter = spec.parameters[name]
        if isinstance(parameter, Range | Choice):
            assert parameter.accept(value) == value
    assert ("warmup_ratio" in config) == (config["lr_scheduler"] != "constant")
    assert config["lora_alpha"] == config["alpha_over_r"] * config["lora_r"] <= 64
    assert config["batch_size"] * config["max_length"] <= 16384
    assert list(config) == [name for name in spec.parameters if name in config]


@given(seed=st.integers())
def test_a_sample_is_a_configuration(spec: Spec, seed: int) -> None:
    config = spec.space.sample(random.Random(seed))
    holds(spec, config)
    assert spec.space.violated(config) is None
    assert config == spec.space.sample(random.Random(seed))


def test_resolve_asks_for_active_parameters_in_order() -> None:
    asked = []

    def suggest(name: str, parameter: Range | Choice) -> Any:
        asked.append(name)
        return parameter.middle()

    config = space(
        "late: {min: 1, max: 9, when: {mode: b}}\ntwice: {expr: 2 * n}\nmode: [a, b]\nn: [1, 2]\n"
        "gone: {expr: 3 * late}\nnever: {value: 1, when: late > 3}"
    ).resolve(suggest)
    assert sorted(asked) == ["mode", "n"]
    assert config == {"twice": 2, "mode": "a", "n": 1} and list(config) == ["twice", "mode", "n"]


def test_what_depends_on_an_inactive_parameter_is_inactive() -> None:
    chain = space(
        "a: [off, on]\nb: {choices: [1, 2], when: {a: on}}\nc: {choices: [1, 2], when: b > 1}\n"
        "d: {expr: b + c}\ne: {value: [x], when: {c: [1, 2]}}"
    )
    configs = list(chain.grid())
    assert configs == [
        {"a": "off"},
        {"a": "on", "b": 1},
        {"a": "on", "b": 2, "c": 1, "d": 3, "e": ["x"]},
        {"a": "on", "b": 2, "c": 2, "d": 4, "e": ["x"]},
    ]
    assert chain.grid_size == 4
    assert not chain.is_plain, "some configurations lack parameters"


def test_a_condition_on_true_is_not_met_by_one() -> None:
    truth = space("a: [true, 2]\nb: {value: 1, when: {a: true}}")
    assert [len(config) for config in truth.grid()] == [2, 1]
    with pytest.raises(SpaceError, match="can never be this: true is none of 1, 2"):
        space("a: [1, 2]\nb: {value: 1, when: {a: true}}")


def test_a_constraint_that_names_an_inactive_parameter_is_not_applied() -> None:
    conditional = space("a: [x, y]\nb: {choices: [1, 2], when: {a: y}}", "constraints: [b < 2, a != 'z']")
    assert list(conditional.grid()) == [{"a": "x"}, {"a": "y", "b": 1}]
    assert conditional.violated({"a": "y", "b": 2}) == "b < 2"


def test_the_grid_is_every_configuration_once() -> None:
    plain = space("a: [1, 2, 3]\nb: {min: 2, max: 8, factor: 2}\nc: {min: 0.0, max: 1.0, step: 0.5}\nd: 7")
    configs = [tuple(config.values()) for config in plain.grid()]
    assert configs == list(itertools.product([1, 2, 3], [2, 4, 8], [0.0, 0.5, 1.0], [7]))
    assert plain.grid_size == 27 and plain.is_plain


def test_the_grid_leaves_out_what_the_constraints_forbid() -> None:
    some = space("a: [1, 2, 3]\nb: [1, 2, 3]", 'constraints: ["a < b"]')
    assert [tuple(config.values()) for config in some.grid()] == [(1, 2), (1, 3), (2, 3)]
    assert some.grid_size == 3 and not some.is_plain


def test_a_grid_of_a_continuous_range_is_refused_by_name() -> None:
    continuous = space("a: [1, 2]\nb: {min: 0.0, max: 1.0}")
    assert continuous.grid_size is None
    with pytest.raises(SpaceError, match=r"7:6 parameters\.b: a grid needs values that can be listed"):
        continuous.grid()


def test_a_huge_grid_is_measured_without_walking_it() -> None:
    names = "\n".join(f"p{i}: [{', '.join(map(str, range(9)))}]" for i in range(40))
    assert space(names, 'constraints: ["p0 < 8"]').grid_size == 9**40


def test_the_baseline_is_completed_by_priors_and_middles(spec: Spec) -> None:
    assert spec.space.baseline() == {
        "learning_rate": 1e-3,
        "lora_r": 8,
        "alpha_over_r": 1,
        "lora_alpha": 8,
        "lora_dropout": 0.1,
        "batch_size": 4,
        "lr_scheduler": "constant",
        "max_steps": 400,
        "max_length": 1024,
        "model.width": 128,
        "model.targets": ["q", "v"],
    }
    central = space(
        "a: {min: 1, max: 9, prior: {at: 2}}\nb: {choices: [x, y], prior: {at: y}}\n"
        "c: {min: 1e-4, max: 1e-2, log: true}\nd: {min: 0, max: 10}",
        "baseline: {}",
    )
    assert central.baseline() == {"a": 2, "b": "y", "c": pytest.approx(1e-3), "d": 5}
    assert space("a: [1, 2]").baseline() is None


def test_the_feasible_share_is_measured() -> None:
    assert space("a: [1, 2]").feasible_share() == 1.0
    triangle = space("a: {min: 0.0, max: 1.0}\nb: {min: 0.0, max: 1.0}", 'constraints: ["a < b"]')
    assert triangle.feasible_share() == pytest.approx(0.5, abs=0.05)
    one, again, two = (triangle.feasible_share(seed=seed) for seed in (1, 1, 2))
    assert one == again != two


def test_constraints_that_nothing_satisfies_end_a_draw() -> None:
    empty = space("a: {min: 0.0, max: 1.0}", 'constraints: ["a > 2"]')
    with pytest.raises(SpaceError, match="7:14 constraints: none of 10,000 random configurations"):
        empty.sample(random.Random(0))


def test_values_snap_to_those_of_their_range(spec: Spec) -> None:
    lora_r, lora_dropout = spec.parameters["lora_r"], spec.parameters["lora_dropout"]
    assert isinstance(lora_r, Range) and isinstance(lora_dropout, Range)
    assert lora_r.snap(11) == 8 and lora_dropout.snap(0.07) == 0.05


def test_an_expression_that_fails_in_use_is_a_space_error() -> None:
    corner = space("a: {min: 0.0, max: 1.0}\nb: {expr: 1 / (a - 0.123)}")
    with pytest.raises(SpaceError, match=r"7:13 parameters\.b\.expr: .* divides by zero where a: 0.123"):
        corner.resolve(lambda *_: 0.123)


# where one value of x, from 0 to 20, has none of something
WITHOUT_A_VALUE = {
    "y: {expr: 1 / (x - 10)}": "`1 / (x - 10)` divides by zero where x: 10",
    "y: {expr: log(abs(x - 10))}": "fails: ",
    "y: {expr: 3 if x != 10 else 1e308 * 1e308}": "does not give a finite number",
    "y: {expr: 10 ** (9 + 90 * int(x == 10))}": "gives a number that is too large",
    "y: {expr: (x - 10.5) ** 0.5 if x == 10 else 1}": "has no real value",
    "y: {value: 3, when: 1 / (x - 10) < 5}": "divides by zero",
    "y: {choices: [1, 2], when: 1 / (x - 10) < 5}": "divides by zero",
    "y: {expr: 1 / (x - 10), pass: false}\nz: {expr: y + 1}": "divides by zero",
}


@pytest.mark.parametrize("lines", WITHOUT_A_VALUE)
@pytest.mark.parametrize("sampler", ["grid", "random"])
def test_a_configuration_without_a_value_is_one_that_constraints_refuse(lines: str, sampler: str) -> None:
    one = space("x: {min: 0, max: 20}\n" + lines, f"search: {{sampler: {sampler}}}\n")
    listed = [config["x"] for config in one.grid()]
    assert sorted(set(listed)) == [x for x in range(21) if x != 10] and one.few() == len(listed)
    config, told = one.proposed(lambda name, p: 10 if name == "x" else p.choices[0])
    assert config["x"] == 10 and "y" not in config and WITHOUT_A_VALUE[lines] in (told or "")
    rng = random.Random(0)
    assert all(one.sample(rng)["x"] != 10 for _ in range(200)) and one.feasible_share() < 1
    assert one.central()["x"] != 10, "the middle has no value"
    assert [config["x"] for config in one.corners()] == [0, 20]


def test_a_mistake_that_shows_only_in_use_refuses_the_configuration() -> None:
    one = space("x: {min: 0, max: 5000}\ny: {expr: 'x if x != 4321 else \"a\" + 1'}")
    assert one.proposed(lambda *_: 4321)[1] == (
        "`x if x != 4321 else \"a\" + 1` does arithmetic with 'a', not a number where x: 4321"
    )
    assert 4321 not in [config["x"] for config in one.grid()]


@pytest.mark.parametrize(
    "constraint", ["1 / (x - 10) < 5", "log(abs(x - 10)) < 9", "x < 10 or sqrt(x - 11) >= 0"]
)
def test_a_constraint_without_a_value_is_broken(constraint: str) -> None:
    one = space("x: {min: 0, max: 20}", f'constraints: ["{constraint}"]\n')
    assert constraint in (one.violated({"x": 10}) or "") and one.violated({"x": 9}) is None
    assert [config["x"] for config in one.grid()] == [x for x in range(21) if x != 10]
    with pytest.raises(SpaceError, match=r"8:11 baseline: .* where x: 10"):
        space("x: {min: 0, max: 20}", f'constraints: ["{constraint}"]\nbaseline: {{x: 10}}')


def test_searched_names_come_in_the_order_of_the_file(spec: Spec) -> None:
    assert tuple(spec.space.searched) == (
        "learning_rate",
        "lora_r",
        "alpha_over_r",
        "lora_dropout",
        "batch_size",
        "lr_scheduler",
        "warmup_ratio",
        "model.width",
        "model.targets",
    )


def test_dotted_names_become_mappings() -> None:
    assert nested({"lr": 1, "model.width": 2, "model.depth.n": 3}) == {
        "lr": 1,
        "model": {"width": 2, "depth": {"n": 3}},
    }


HELPED = """\
alpha_over_r: {choices: [1, 2, 4], pass: false}
lora_r: {min: 2, max: 32, factor: 2}
most: {value: 64, pass: false}
lora_alpha: {expr: alpha_over_r * lora_r}
half: {expr: lora_r / 2, pass: false}
quarter: {expr: half / 2}
max_samples: {value: 10, pass: false}
max_steps: {expr: "max_samples // 2"}
"""


def test_a_helper_is_in_the_configuration_and_not_passed() -> None:
    helped = space(HELPED, 'constraints: ["lora_alpha <= most"]\n')
    config = helped.sample(random.Random(0))
    assert set(config) == set(helped.parameters)
    assert list(helped.passed(config)) == ["lora_r", "lora_alpha", "quarter", "max_steps"]
    assert helped.passed(config)["lora_alpha"] == config["alpha_over_r"] * config["lora_r"]


def test_a_spec_keeps_its_helpers_and_counts_by_what_it_passes() -> None:
    spec = loads(
        HEAD
        + "".join(
            f"  {line}\n" for line in HELPED.replace("most: {value: 64, pass: false}\n", "").splitlines()
        )
    )
    assert (
        Spec.from_json(spec.to_json())
        == spec
        == spec.override(budget={"trials": 3}).override(budget={"trials": 50})
    )
    assert list(spec.passed) == ["lora_r", "lora_alpha", "quarter", "max_steps"]
    assert spec.resource == "steps"  # max_samples feeds max_steps alone
    told = loads(HEAD + "  a: {choices: [1, 2], pass: true}\n")
    assert told.fingerprint() == loads(HEAD + "  a: [1, 2]\n").fingerprint()
