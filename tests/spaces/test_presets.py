"""`preset:` in a file: as if its values were written there, under the file's own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from hpsearch.spaces import Constant, Range, SpaceError, Spec, differences, json_schema, loads
from hpsearch.spaces.document import read

SMALL = "version: 1\nname: t\nobjective: lora\nmetric: m\nparameters:\n  x: {min: 0.0, max: 1.0}\n"
TABLE: dict[str, dict[str, Any]] = {"fast": {"x": 3, "y": 1}, "slow": {"y": 2, "z": [1]}}


def presets(objective: Any, names: list[str], given: Collection[str]) -> dict[str, Any]:
    """Two presets of an objective called lora."""
    assert objective == "lora"
    if missing := [name for name in names if name not in TABLE]:
        raise ValueError("\n".join(f"no {name}" for name in missing))
    values = {key: value for name in names for key, value in TABLE[name].items()}
    return {key: value for key, value in values.items() if key not in given}


def test_the_file_s_own_word_goes_before() -> None:
    spec = loads(SMALL + "preset: fast\n", presets=presets)
    assert isinstance(spec.parameters["x"], Range)
    assert spec.parameters["y"] == Constant(value=1)
    assert (spec.preset, spec.from_preset) == (["fast"], ("y",))


def test_a_resolved_spec_holds_the_plain_values_alone() -> None:
    spec = loads(SMALL + "preset: [fast, slow]\n", presets=presets)
    written_out = loads(SMALL + "  y: 2\n  z: {value: [1]}\n")
    assert spec == written_out == Spec.from_json(spec.to_json())
    assert spec.fingerprint() == written_out.fingerprint()
    assert "preset" not in spec.to_json()
    assert spec.override(budget={"trials": 3}).parameters == written_out.parameters


def test_another_preset_is_another_search() -> None:
    fast, slow = (loads(f"{SMALL}preset: {name}\n", presets=presets) for name in TABLE)
    assert differences(fast.to_json(), slow.to_json())[0] == "parameters.y.value: 1 -> 2"


def test_expressions_read_what_a_preset_gives() -> None:
    text = SMALL + "  w: {expr: 2 * y}\npreset: fast\nconstraints: [x < y]\n"
    values = loads(text, presets=presets).space.resolve(lambda name, parameter: 0.5)
    assert values["w"] == 2


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("preset: fats", ["f.yaml:7:9 preset: no fats"]),
        ("preset: [a, b]", ["f.yaml:7:9 preset: no a", "f.yaml:7:9 preset: no b"]),
        ("preset: 3", ["f.yaml:7:9 preset: must be a preset's name or a list of them, not 3"]),
        ("preset: [1]", ["f.yaml:7:9 preset: must be a preset's name or a list of them, not [1]"]),
        ("preset: fast\nbaseline: {y: 1}", ['f.yaml:8:15 baseline.y: "y" is a constant; a baseline gives']),
    ],
)
def test_a_wrong_preset_is_reported_at_its_place(line: str, told: list[str]) -> None:
    with pytest.raises(SpaceError) as error:
        loads(SMALL + line, "f.yaml", presets)
    for found, wanted in zip(map(str, error.value.issues), told, strict=True):
        assert found.startswith(wanted)


def test_without_presets_none_is_passed_over() -> None:
    with pytest.raises(SpaceError, match="preset: presets are resolved when a search begins"):
        loads(SMALL + "preset: fast\n")


@pytest.mark.parametrize(
    ("line", "valid"),
    [
        ("preset: fast", True),
        ("preset: [fast, slow]", True),
        ("preset: fats", False),
        ("preset: [fats]", False),
    ],
)
def test_the_schema_knows_the_names(line: str, valid: bool) -> None:
    data, _, _ = read(SMALL + line, "f.yaml")
    schema = json_schema(list(TABLE))
    Draft202012Validator.check_schema(schema)
    assert Draft202012Validator(schema).is_valid(data) is valid
    assert Draft202012Validator(json_schema()).is_valid(data), "where nobody says which there are"
