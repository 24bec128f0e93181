"""The forms of arguments, read by the programs and libraries that they are for."""

from __future__ import annotations

import argparse
import ast
import math
from typing import Any

import click
import pytest
import typer
from click.testing import CliRunner
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from typer.testing import CliRunner as TyperRunner

from hpsearch.objectives.base import ObjectiveError
from hpsearch.objectives.user.forms import arguments, text
from hpsearch.objectives.user.macros import expand, unknown_macro

TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    st.text("\\'\"${}a=,[] :\n#/.-eE1"),
    st.sampled_from(["null", "True", "nan", "-inf", "1e5", "a.b", "a/b", "1", "", "~", "-x"]),
).filter(lambda value: value != "???")  # OmegaConf's missing value
NUMBERS = st.one_of(st.integers(-(2**60), 2**60), st.floats(allow_nan=False, allow_infinity=False))
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
KEYS = st.text("ab_ /.:=,", min_size=1).filter(lambda key: key == key.strip())
VALUES = st.one_of(
    SCALARS, st.lists(SCALARS), st.lists(st.lists(SCALARS)), st.lists(st.dictionaries(KEYS, SCALARS))
)


def same(first: Any, second: Any) -> bool:
    """Whether two values are equal, and alike in kind: 1 is not true, but 1e5 may come back as 100000.0."""
    if isinstance(first, float):
        return isinstance(second, int | float) and first == second
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


@given(VALUES)
def test_hydra_reads_back_every_value(value: Any) -> None:
    [word] = expand(["${args_hydra}"], {"model.x": value})
    assert word == expand(["model.x=${model.x:hydra}"], {"model.x": value})[0]
    override = OverridesParser.create().parse_override(word)
    assert override.key_or_group == "model.x"
    read = OmegaConf.to_container(OmegaConf.create({"x": override.value()}), resolve=True)
    assert isinstance(read, dict)
    assert same(value, read["x"]), word


def test_hydra_names_what_it_cannot_say() -> None:
    with pytest.raises(ObjectiveError, match="no form for the key"):
        expand(["${args_hydra}"], {"x": [{"it's": 1}]})


@given(st.one_of(SCALARS, st.lists(SCALARS)))
def test_a_literal_is_one_also_after_a_split_at_the_equals_sign(value: Any) -> None:
    [word] = expand(["${args:literal}"], {"x": value})
    name, read = word.split("=")  # nanoGPT's configurator does so, without a limit
    assert name == "--x"
    assert ast.literal_eval(read) == value


@given(NUMBERS, st.lists(NUMBERS, min_size=1), st.booleans(), st.booleans(), st.lists(NUMBERS))
def test_argparse_reads_lists_and_truth_values(
    lr: float, layers: list[float], amp: bool, cache: bool, extra: list[float]
) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    parser.add_argument("--layers", type=float, nargs="+")
    parser.add_argument("--use-cache", action=argparse.BooleanOptionalAction)
    parser.add_argument("--extra", type=float, action="append", default=[])
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--note")
    params = {"lr": lr, "layers": layers, "use_cache": cache, "note": None}
    words = expand(
        ["${args:dashes,flags,words}", "--extra=${extra:repeat}", "${amp:--amp|}"],
        params | {"extra": extra, "amp": amp},
    )
    of_all = arguments(params, ("dashes", "flags", "words"))
    tail = words[len(arguments(params | {"extra": extra, "amp": amp}, ("dashes", "flags", "words"))) :]
    read = vars(parser.parse_args([*of_all, *tail]))
    expected = {"lr": float(lr), "layers": [*map(float, layers)], "use_cache": cache, "note": None}
    assert read == expected | {"extra": [*map(float, extra)], "amp": amp}


def test_click_and_typer_read_flags_and_repeated_options() -> None:
    seen: list[dict[str, Any]] = []

    @click.command()
    @click.option("--learning-rate", type=float)
    @click.option("--shout/--no-shout", default=None)
    @click.option("--layers", type=int, multiple=True)
    @click.option("--note")
    def of_click(**options: Any) -> None:
        seen.append(options | {"layers": list(options["layers"])})

    app = typer.Typer()

    @app.command()
    def of_typer(
        learning_rate: float = 0.0,
        shout: bool = False,
        layers: list[int] = typer.Option([]),  # noqa: B008
        note: str | None = None,
    ) -> None:
        seen.append({"learning_rate": learning_rate, "shout": shout, "layers": layers, "note": note})

    for shout in (True, False):
        params = {"learning_rate": -1e-05, "shout": shout, "layers": [64, 32], "note": None}
        words = expand(["${args:dashes,flags,repeat}"], params)
        answer = CliRunner().invoke(of_click, words)
        assert answer.exit_code == 0, answer.output
        told = TyperRunner().invoke(app, words)
        assert told.exit_code == 0, told.output
        assert seen[-2:] == [params, params]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("${args}", "--a_b=1 --on=true --off=false --list=[1, 2] --text=x"),
        ("${args:dashes}", "--a-b=1 --on=true --off=false --list=[1, 2] --text=x"),
        ("${args:flags}", "--a_b=1 --on --no-off --list=[1, 2] --text=x"),
        ("${args:switches}", "--a_b=1 --on --list=[1, 2] --text=x"),
        ("${args_no_boolean_flags}", "--a_b=1 --on --list=[1, 2] --text=x"),
        ("${args:words, flags}", "--a_b 1 --on --no-off --list 1 2 --text x"),
        ("${args:repeat}", "--a_b=1 --on=true --off=false --list=1 --list=2 --text=x"),
        ("${args:commas}", "--a_b=1 --on=true --off=false --list=1,2 --text=x"),
        ("${args:nulls}", "--a_b=1 --on=true --off=false --none=null --list=[1, 2] --text=x"),
        ("${args:literal}", "--a_b=1 --on=True --off=False --none=None --list=[1, 2] --text='x'"),
        ("${args_hydra}", "a_b=1 on=true off=false none=null list=[1,2] text=x"),
        ("${args_no_hyphens}", "a_b=1 on=true off=false none=null list=[1, 2] text=x"),
        ("--l|${list:words}", "--l 1 2"),
        ("--l=${list:repeat}", "--l=1 --l=2"),
        ("--l|${list:repeat}", "--l 1 2"),
        ("--l=${list:commas}|--a=${a_b:words}", "--l=1,2 --a=1"),
        ("${on:--yes|--no}|${off:--yes|--no}|${off:--amp|}", "--yes --no"),
        ("-v|${off:--amp|}|-v|${none:--amp|}", "-v -v"),
        ("--n|${none}|--n=${none}|n=${none}|${none}|x-${none}", "n=null"),
        ("--n=${none:nulls}|--n=${none:literal}", "--n=null --n=None"),
        ("--l|${empty:words}|--l=${empty:repeat}", "--l"),
    ],
)
def test_forms_in_words(words: str, told: str) -> None:
    params = {"a_b": 1, "on": True, "off": False, "none": None, "list": [1, 2], "text": "x"}
    listed = words.startswith("${args")
    given_params = params if listed else params | {"empty": []}
    if words == "--l=${list:commas}|--a=${a_b:words}":
        with pytest.raises(ObjectiveError, match="must be a word of its own"):
            expand(["run", *words.split("|")], given_params)
        return
    split = [words] if listed or words.startswith("${on") or "|}" in words else words.split("|")
    if words.startswith("${on"):
        split = ["${on:--yes|--no}", "${off:--yes|--no}", "${off:--amp|}"]
    if words.startswith("-v"):
        split = ["-v", "${off:--amp|}", "-v", "${none:--amp|}"]
    assert " ".join(expand(["run", *split], given_params)[1:]) == told


@pytest.mark.parametrize(
    ("string", "told"),
    [
        ("t --l ${list:words} --x=${x}", "t --l 1 'a b' --x=2"),
        ("t --l=${list:repeat}; u", "t --l=1 '--l=a b'; u"),
        ("t ${on:--amp|} --n ${none} ${off:--amp|} end", "t --amp  end"),
        ("N=${none} t --n='${none}'", "N=null t"),
    ],
)
def test_forms_in_a_shells_string(string: str, told: str) -> None:
    params = {"list": [1, "a b"], "x": 2, "on": True, "off": False, "none": None}
    assert expand(["bash", "-c", string], params)[2] == told


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("${args:dash}", 'has no form "dash", did you mean "dashes"?'),
        ("${args:}", 'has no form ""'),
        ("${args:flags,switches}", "flags and switches, which exclude each other"),
        ("${args:words,commas}", "words and commas, which exclude each other"),
        ("--x=${args:flags}", "unknown macro"),
        ("${x:word}", 'has no form "word", did you mean "words"?'),
        ("${x:flags}", "or ${x:IF_TRUE|IF_FALSE}"),
        ("${y:words}", "unknown macro"),
        ("--x=${x:words}", "write ${x:repeat}"),
        ("${x:repeat}${x:repeat}", "repeats two lists"),
        ("${checkpoint:../x}", "must be last, or a pattern"),
        ("${checkpoint:}", "must be last, or a pattern"),
    ],
)
def test_a_form_that_there_is_not_is_refused(word: str, told: str) -> None:
    assert told in str(unknown_macro(word, ["x"]))
    with pytest.raises(ObjectiveError):
        expand(["run", word], {"x": [1]})


def test_a_switch_needs_a_truth_value() -> None:
    with pytest.raises(ObjectiveError, match="needs true or false, but x is 1"):
        expand(["run", "${x:--x|}"], {"x": 1})


def test_a_negative_number_as_a_word_is_no_option() -> None:
    assert expand(["${args:words}"], {"x": [-1e-05, -0.0, 1e-05]}) == ["--x", "-0.00001", "-0.0", "1e-05"]
    assert math.isclose(float(text(-1e-300)), -1e-300)


def test_a_switch_says_whether_a_trial_resumes() -> None:
    command = ["t", "${resume_from:--init_from=resume|}", "--init=${resume_from:resume|scratch}"]
    assert expand(command, {}, {"resume_from": ""}) == ["t", "--init=scratch"]
    assert expand(command, {}, {"resume_from": "/a"}) == ["t", "--init_from=resume", "--init=resume"]
    assert expand(command[:2], {"resume_from": True}, {"resume_from": ""}) == ["t", "--init_from=resume"]
