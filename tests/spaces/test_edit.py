"""A range put into a space file: those characters, and no other."""

from __future__ import annotations

import json

import pytest

from hpsearch.spaces import SpaceError, load, loads, log_range, shipped, with_log_range
from hpsearch.spaces.document import text_of

NEW = "{min: 2e-4, max: 5e-2, log: true}"


def space(value: str, *, name: str = "learning_rate") -> str:
    return (
        "# mine\nversion: 1\nname:   mine   # odd\nobjective: lora\nmetric: val_loss\n"
        f"parameters:\n  # how fast\n  {name}: {value}\n\n  # how many\n  lora_r: [2,4]   # ranks\n"
        "# the end\nbudget: {trials: 3}\n"
    )


def edited(text: str) -> str:
    return with_log_range(text, "mine.yaml", "learning_rate", 2e-4, 5e-2)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{min: 1e-4, max: 3e-2, log: true}  # said", "{min: 2e-4, max: 5e-2, log: true}  # said"),
        ("{max:  0.03,log: true,  min: 0.0001 }", "{max:  5e-2,log: true,  min: 2e-4 }"),
        ("{min: 1e-4, max: 3e-2}", "{min: 2e-4, max: 5e-2, log: true}"),
        ("{min: 1e-4, max: 3e-2, log: false} # x", "{min: 2e-4, max: 5e-2, log: true} # x"),
        (
            "{min: 1e-4, # low\n    max: 3e-2, log: true, when: {lora_r: 2}}",
            "{min: 2e-4, # low\n    max: 5e-2, log: true, when: {lora_r: 2}}",
        ),
        (
            "\n    min: 1e-4   # low\n    max: 3e-2   # high",
            "\n    min: 2e-4   # low\n    max: 5e-2   # high\n    log: true",
        ),
        ("\n    max: 3e-2\n    min: 1e-4\n    log: true", "\n    max: 5e-2\n    min: 2e-4\n    log: true"),
        ("[1e-4, 1e-3]  # three", f"{NEW}  # three"),
        ("1e-3   # fixed", f"{NEW}   # fixed"),
        ('"1e-3"', NEW),
    ],
)
@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_only_the_range_changes(before: str, after: str, line_break: str) -> None:
    text, wanted = (space(value).replace("\n", line_break) for value in (before, after))
    assert edited(text) == wanted
    found = loads(wanted).parameters["learning_rate"]
    assert (found.min, found.max, found.log) == (2e-4, 5e-2, True)  # type: ignore[union-attr]


def test_a_parameter_that_is_not_there_comes_after_the_last() -> None:
    text = space("0.5", name="weight_decay")
    last = "  lora_r: [2,4]   # ranks\n"
    assert edited(text) == text.replace(last, f"{last}  learning_rate: {NEW}\n")
    assert edited(text.partition("# the end")[0].rstrip()).endswith(f"# ranks\n  learning_rate: {NEW}")


@pytest.mark.parametrize("name", [name for name in shipped() if load(name).objective in ("lora", "pretrain")])
def test_every_space_of_the_trainer_that_ships_can_be_changed(name: str) -> None:
    from importlib.resources import files
    from pathlib import Path

    text = text_of(Path(str(files("hpsearch.spaces") / f"{name}.yaml")))
    before, after = text.splitlines(), edited(text).splitlines()
    [(old, new)] = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
    assert new.startswith(f"  learning_rate: {NEW[:-1]}")  # a prior stays behind it
    changed = load(name).parameters.keys()
    assert loads("\n".join(after)).parameters.keys() == changed and old != new


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (space("{min: 0.0, max: 1.0, step: 0.1}"), "cannot be changed in place"),
        (space("{choices: [1e-3]}"), "cannot be changed in place"),
        (space("[1e-4, # low\n    1e-3]"), "cannot be changed in place"),
        (space("\n  - 1e-4\n  - 1e-3"), "cannot be changed in place"),
        (space("{min: 1e-5, max: 3e-2, prior: {at: 1e-4}}"), "outside"),
        (space("{min: 1e-5, max: 3e-2}") + "baseline: {learning_rate: 1e-5}\n", "outside"),
        (space("{min: &low 1e-5, max: 3e-2}").replace("[2,4]", "{min: *low, max: 1.0}"), "cannot be"),
        (space("&rate {min: 1e-5, max: 3e-2}").replace("[2,4]", "*rate"), "shares its text"),
    ],
)  # fmt: skip
def test_what_would_lose_something_is_refused_with_the_line_to_write(text: str, why: str) -> None:
    with pytest.raises(SpaceError, match=why) as refused:
        edited(text)
    assert "mine.yaml:" in str(refused.value)
    assert f"learning_rate: {NEW}" in str(refused.value)


@pytest.mark.parametrize("value", [{"min": 0.0001, "max": 0.03}, [0.001, 0.01], 0.001])
def test_json_stays_json(value: object) -> None:
    before = {
        **{"version": 1, "name": "mine", "objective": "lora", "metric": "val_loss", "budget": {"trials": 3}},
        "parameters": {"lora_r": [2, 4], "learning_rate": value},
    }
    after = json.loads(edited(json.dumps(before)))
    assert after["parameters"].pop("learning_rate") == {"min": 2e-4, "max": 5e-2, "log": True}
    assert after == before | {"parameters": {"lora_r": [2, 4]}}


def test_an_alias_is_refused() -> None:
    text = (
        space("*rate")
        .replace("# mine\n", "")
        .replace("parameters:\n", "parameters:\n  other: &rate {min: 1e-5, max: 1.0}\n")
    )
    with pytest.raises(SpaceError, match="alias"):
        edited(text)


def test_numbers_are_short() -> None:
    assert log_range(1.0, 12.5) == "{min: 1e0, max: 1.25e1, log: true}"
