"""Flags and options with several values: real scripts read from every proposal what its trial has."""

from __future__ import annotations

import contextlib
import io
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpsearch.objectives.user.macros import expand
from hpsearch.search.exchange.space_from import proposal
from hpsearch.spaces import Constant, Spec, loads

LINE = "p.add_argument"
WORDS = st.text("ab_ =x", min_size=1, max_size=4)
INTS, REALS = st.integers(-5, 99), st.sampled_from([1e-05, -1e-05, 0.5, 3.0, -2.5])


@st.composite
def options(draw: st.DrawFn, name: str) -> str:
    """A line that declares an option."""
    kind = draw(st.sampled_from(KINDS))
    sep = draw(st.sampled_from("-_"))
    option = f"--{name}{sep}x"
    return f"{LINE}({option!r}, {kind(draw)})"


KINDS: list[Callable[[st.DrawFn], str]] = [
    lambda draw: "action='store_true'",
    lambda draw: "action='store_false'",
    lambda draw: f"action='store_false', dest='dest{draw(st.integers(0, 10**6))}'",
    lambda draw: f"action=argparse.BooleanOptionalAction, default={draw(st.booleans())}",
    lambda draw: f"type=bool, default={draw(st.booleans())}",
    lambda draw: f"type=int, default={draw(INTS)}",
    lambda draw: f"type=float, default={draw(REALS)}",
    lambda draw: f"default={draw(WORDS)!r}",
    lambda draw: f"type=int, nargs='+', default={draw(st.lists(INTS, min_size=1, max_size=3))}",
    lambda draw: f"type=int, nargs='*', default={draw(st.lists(INTS, max_size=3))}",
    lambda draw: f"type=float, nargs=2, default={draw(st.lists(REALS, min_size=2, max_size=2))}",
    lambda draw: f"nargs='+', default={draw(st.lists(WORDS, min_size=1, max_size=3))}",
    lambda draw: f"nargs='+', default={draw(INTS)}",
    lambda draw: f"type=int, nargs='?', default={draw(INTS)}",
    lambda draw: "type=int, action='append', default=[]",
    lambda draw: f"type=int, action='append', default={draw(st.lists(INTS, min_size=1, max_size=2))}",
    lambda draw: "action='count', default=0",
    lambda draw: "type=float",
]


@st.composite
def scripts(draw: st.DrawFn) -> str:
    """A script with options of argparse, some of them exclusive, and an argument."""
    lines = [draw(options(name)) for name in "abcdefg"[: draw(st.integers(1, 7))]]
    head = ["import argparse", "p = argparse.ArgumentParser()"]
    head += ["p.add_argument('data')"] * draw(st.booleans())
    if draw(st.booleans()):
        lines += ["g = p.add_mutually_exclusive_group()"]
        lines += ["g.add_argument('--steps', type=int)", "g.add_argument('--epochs', type=int, default=3)"]
        lines += ["g.add_argument('--fast', action='store_true')"]
    return "\n".join([*head, "p.add_argument('--lr', type=float, default=0.1)", *lines])


def other(value: Any, rng: random.Random) -> Any:
    """Another value of this kind."""
    if isinstance(value, bool):
        return rng.random() < 0.5
    if isinstance(value, list) and value:
        return [other(each, rng) for each in value]
    if isinstance(value, int | float):
        return value + rng.randrange(-9, 9)
    return value


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scripts(), st.integers(0, 9))
def test_argparse_reads_the_values_of_the_trial(tmp_path: Path, text: str, seed: int) -> None:
    source = tmp_path / "script.py"
    source.write_text(text)
    spec = loads(proposal(source))
    rng = random.Random(seed)
    for _ in range(5):
        params = spec.space.sample(rng)
        params |= {
            name: other(value, rng) for name, value in params.items() if name not in ("data", "epochs")
        }
        params["fast_"] = params.pop("fast", None) and False  # it excludes the epochs
        params["fast"] = params.pop("fast_")
        params = {name: value for name, value in params.items() if name in spec.parameters}
        words = expand([*spec.objective_words], params)
        space: dict[str, Any] = {}
        exec(compile(text, "script", "exec"), space)
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            try:
                read = vars(space["p"].parse_args(words[2:]))
            except SystemExit:
                raise AssertionError(f"{words}: {errors.getvalue()}") from None
        for name, value in params.items():
            assert read[name] == value, (name, words)
        for name in read.keys() - params.keys():
            assert read[name] == space["p"].get_default(name), (name, words)


def spec_of(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Spec:
    monkeypatch.chdir(folder)
    Path("script.py").write_text(text)
    return loads(proposal(Path("script.py")))


def output(spec: Spec, **params: Any) -> str:
    """What the script prints with these values instead of those of the first trial."""
    baseline = spec.space.baseline()
    assert baseline is not None
    words = expand([*spec.objective_words], baseline | params)
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


CLICK = """
import click

@click.command()
@click.option("--lr", default=1e-3)
@click.option("--use-cache/--no-use-cache", default=True)
@click.option("--shout/--quiet", " /-q", default=False)
@click.option("--verbose", is_flag=True)
@click.option("--layers", type=int, multiple=True, default=[64, 32])
@click.option("--betas", type=float, nargs=2, default=(0.9, 0.99))
@click.option("-v", "--loud", count=True)
def main(**options): print(sorted(options.items()))

main()
"""
TYPER = """
from typing import Annotated, List, Tuple
import typer

def main(learning_rate: float = 1e-3, use_cache: bool = True, force: bool = typer.Option(False, "--force"),
         loud: Annotated[bool, typer.Option("--loud/--silent")] = False,
         layers: List[int] = [64, 32], betas: Tuple[float, float] = (0.9, 0.99)):
    print(sorted(locals().items()))

typer.run(main)
"""
HF = """
from dataclasses import dataclass, field

@dataclass
class Model:
    learning_rate: float = 1e-3
    bf16: bool = True
    layers: list[int] = field(default_factory=lambda: [64, 32])
    names: list[str] = field(default_factory=list)

def HfArgumentParser(kind): ...
HfArgumentParser(Model)
"""


@pytest.mark.slow
def test_click_reads_the_values_of_the_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(tmp_path, CLICK, monkeypatch)
    told = output(spec, use_cache=False, shout=True, verbose=True, layers=[1, 2, 3], betas=[-1e-05, 0.5])
    assert told == str(
        [("betas", (-1e-05, 0.5)), ("layers", (1, 2, 3)), ("loud", 0), ("lr", 0.001), ("shout", True),
         ("use_cache", False), ("verbose", True)]
    ) + "\n"  # fmt: skip
    defaults = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, check=True)
    assert output(spec) == defaults.stdout


@pytest.mark.slow
def test_typer_reads_the_values_of_the_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(tmp_path, TYPER, monkeypatch)
    told = output(spec, use_cache=False, force=True, loud=True, layers=[1, 2, 3], betas=[-1e-05, 0.5])
    assert told == str(
        [("betas", (-1e-05, 0.5)), ("force", True), ("layers", [1, 2, 3]), ("learning_rate", 0.001),
         ("loud", True), ("use_cache", False)]
    ) + "\n"  # fmt: skip
    defaults = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, check=True)
    assert output(spec) == defaults.stdout


def test_lists_of_dataclasses_are_several_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(tmp_path, HF, monkeypatch)
    assert spec.objective_words == ["python", "script.py", "${args:words}"]
    assert spec.parameters["layers"] == Constant(value=[64, 32])


def test_a_flag_that_is_known_to_matter_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import argparse\np = argparse.ArgumentParser()\n" + "\n".join(
        f"p.add_argument('--{name}', action='store_true')" for name in ("nesterov", "verbose", "use_dora")
    )
    spec = spec_of(tmp_path, text, monkeypatch)
    assert set(spec.space.searched) == {"nesterov", "use_dora"}
    assert spec.baseline == {"nesterov": False, "use_dora": False}
    assert spec.objective_words == ["python", "script.py", "${args:switches}"]


def test_an_argument_of_click_that_may_be_left_out_is_not_to_fill_in(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "import click\n@click.command()\n"
        "@click.argument('data', default='x.csv')\n@click.argument('model')\n"
        "@click.argument('more', required=False)\n@click.argument('rest', nargs=-1)\n"
        "@click.option('--lr', default=0.1)\ndef main(data, model, more, rest, lr): ...\n"
    )
    space = yaml.safe_load(proposal(path))
    assert space["objective"]["command"][2:] == ["${data}", "${model}", "--lr=${lr}"]
    assert (space["parameters"]["data"], space["parameters"]["model"]) == ("x.csv", "FILL_IN")
