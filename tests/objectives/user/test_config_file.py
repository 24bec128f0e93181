"""A copy of a script's configuration file has a trial's values, and all else as it was."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from functools import reduce
from itertools import cycle, pairwise
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
import tomlkit
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from hpsearch.objectives.base import ObjectiveError
from hpsearch.objectives.user.config_file import check_config, read_config, write_config
from hpsearch.objectives.user.macros import expand

CONFIG = """\
# of mine
optimizer: {name: adamw, lr: 1e-3} # the rate
train:
  epochs: 3
  amp: yes
  note: "it's \\t"
run: !!python/object/apply:os.mkdir [made]
"""


def test_only_the_values_change_and_every_reader_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.yaml").write_text(CONFIG)
    words = ["train", "--config=${config:train.yaml}", "${optimizer.lr}"]
    found = expand(words, {"optimizer.lr": 1e-05, "train.new": True}, {"run": str(tmp_path)})
    assert found == ["train", f"--config={tmp_path / 'trial.yaml'}", "1e-05"]
    text = Path("trial.yaml").read_text()
    assert text == CONFIG.replace("1e-3", "1.0e-05").replace(' \\t"\n', ' \\t"\n  new: true\n')
    for content in (yaml.safe_load(text.replace("!!python/object/apply:os.mkdir ", "")), YAML().load(text)):
        assert (content["optimizer"]["lr"], content["train"]["epochs"]) == (1e-05, 3)
    assert not Path("made").exists(), "a tag is no order"
    Path("train.json").write_text(json.dumps({"a": {"lr": 1}}))
    write_config(Path("train.json"), {"a.lr": 1e-05, "b": [1]}, Path("trial.json"))
    assert json.loads(Path("trial.json").read_text()) == {"a": {"lr": 1e-05}, "b": [1]}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "cannot be read"),
        ("a: [", "is not valid YAML: line 1, column 5: expected the node content"),
        ("a: 1\n b: 'x\n", "is not valid YAML: line 2, column"),
        ("a: 1", 'no place for the parameter "a.b"'),
        ("", "does not hold a YAML mapping"),
        ("a: 1\nb: &x\n  c: [*x]", r"line 3: the alias \*x refers to a value that contains it"),
        ("&r {a: *r}", r"line 1: the alias \*r refers to a value that contains it"),
        ("a: &x [&x 1, *x, &x [*x]]", r"line 1: the alias \*x refers to a value that contains it"),
        (
            "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
            + "".join(f"{b}: &{b} [{', '.join(9 * [f'*{a}'])}]\n" for a, b in pairwise("abcdefghij")),
            "line 6: more than 100,000 values, with aliases expanded",
        ),
        ("a: " + 101 * "[" + 101 * "]", "line 1: nested deeper than 100 levels"),
    ],
)
def test_files_that_cannot_hold_the_values_are_refused(tmp_path: Path, text: str | None, told: str) -> None:
    if text is not None:
        (tmp_path / "train.yaml").write_text(text)
    with pytest.raises(ObjectiveError, match=f"train.yaml .*{told}"):
        write_config(tmp_path / "train.yaml", {"a.b": 1}, tmp_path / "trial.yaml")


def test_a_copy_changes_what_is_named_and_nothing_else(tmp_path: Path) -> None:
    source, target = tmp_path / "a.yaml", tmp_path / "b.yaml"
    text = "\ufeffmodel: &m {lr: 1e-3, n: 010, s: {x: 1}}\nhead: *m\nmore: [*m]\nu: 1_000\non: 2\ndo: true\n"
    source.write_text(text, encoding="utf-8")
    write_config(
        source,
        {"head.lr": 0.5, "model.n": 10, "u": 1000, "head.s.x": 2, "eval": "no", "do": 1, "e": "1e-3"},
        target,
    )
    assert yaml.safe_load(target.read_text()) == {
        "model": {"lr": "1e-3", "n": 10, "s": {"x": 1}}, "head": {"lr": 0.5, "n": 8, "s": {"x": 2}},
        "more": [{"lr": "1e-3", "n": 8, "s": {"x": 1}}], "u": 1000, True: 2, "eval": "no", "do": 1, "e": "1e-3",
    }  # fmt: skip
    source = tmp_path / "a.json"
    source.write_text('\ufeff{"lr": 1}', encoding="utf-8")
    write_config(source, {"lr": 0.5, "eval": "no"}, target)
    assert json.loads(target.read_text()) == {"lr": 0.5, "eval": "no"}
    source.write_text("[1]")
    with pytest.raises(ObjectiveError, match="does not hold a JSON mapping"):
        write_config(source, {"lr": 0.5}, target)


SHARED = """\
base: &base {lr: &lr 1.0e-3, targets: [q, v], opt: {eps: 1.0e-8, b: 1}, n: 3, nothing: null}
train: {<<: *base, epochs: 3}
val:
  <<: *base
  lr: 0.5  # its own
several: {<<: [*base, {z: 1}], opt: {eps: 4}}
inner: {deep: {<<: *base}, rate: *lr}
chain: &chain {<<: *base, m: 2}
last: {<<: *chain}
alias: *base
targets: &t [1, 2]
same: *t
"""


def names(content: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in content.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from names(value, f"{prefix}{name}.")


@pytest.mark.parametrize("section", yaml.safe_load(SHARED))
def test_a_value_that_is_shared_changes_where_it_is_named_alone(tmp_path: Path, section: str) -> None:
    source, target = tmp_path / "a.yaml", tmp_path / "b.yaml"
    source.write_text(SHARED)
    of_the_section = names({section: yaml.safe_load(SHARED)[section]})
    for name, value in zip(of_the_section, cycle([0.25, ["k"], "w", 3, None]), strict=False):
        wanted = json.loads(json.dumps(yaml.safe_load(SHARED)))  # nothing of it is shared
        *outer, last = name.split(".")
        reduce(getitem, outer, wanted)[last] = value
        write_config(source, {name: value}, target)
        assert yaml.safe_load(target.read_text()) == wanted, name
    write_config(source, {}, target)
    assert "<<: *base" in target.read_text() and "# its own" in target.read_text()


@pytest.mark.parametrize(
    "there", ["optimizer:", "optimizer: ~ # none\nb: 1", "optimizer: {}", "b: 1", "optimizer: {a: 1}"]
)
def test_a_group_with_nothing_in_it_is_a_place(tmp_path: Path, there: str) -> None:
    source, target = tmp_path / "a.yaml", tmp_path / "b.yaml"
    source.write_text(f"x: 1\n{there}\n")
    check_config([f"${{config:{source}}}"], ["optimizer.lr", "optimizer.sgd.momentum"])
    write_config(source, {"optimizer.lr": 0.5, "optimizer.sgd.momentum": 0.9}, target)
    found = yaml.safe_load(target.read_text())
    assert found["x"] == 1
    assert found["optimizer"] | {"lr": 0.5, "sgd": {"momentum": 0.9}} == found["optimizer"]


@pytest.mark.parametrize("names", [["a.b"], ["c.d.e"], ["f.g"]])
def test_a_name_without_a_place_is_refused_before_a_trial(tmp_path: Path, names: list[str]) -> None:
    source = tmp_path / "a.yaml"
    source.write_text("a: 1\nc: {d: no}\nf: [1]\n")
    with pytest.raises(ObjectiveError, match=f'no place for the parameter "{names[0]}"'):
        check_config([f"--c=${{config:{source}}}"], names)
    with pytest.raises(ObjectiveError, match=f'no place for the parameter "{names[0]}"'):
        check_config([f"${{config:{source} {names[0]}=$seed}}"], [])


@pytest.mark.parametrize("there", ["010", "0o12", "0xA", "1_0", "+10", "0b1010", "10.0", "'10'"])
def test_every_reader_has_the_trials_whole_number(tmp_path: Path, there: str) -> None:
    source, target = tmp_path / "a.yaml", tmp_path / "b.yaml"
    source.write_text(f"n: {there} # n\n")
    write_config(source, {"n": 10}, target)
    assert (
        yaml.safe_load(target.read_text())
        == YAML(typ="safe", pure=True).load(target.read_text())
        == {"n": 10}
    )


TOML = """\
# mine
name = "x"   # keep me
lr = 1e-3

[model]
layers = [{units = 1}, {units = 2}]
drop = 0.1   # of the model

[[stage]]
steps = 5
[[stage]]
steps = 6
"""


def test_a_toml_file_keeps_its_comments(tmp_path: Path) -> None:
    source, target = tmp_path / "c.toml", tmp_path / "trial.toml"
    source.write_text(TOML)
    values = {
        "lr": 2e-05,
        "name": 'a "b"\n# c',
        "model.layers.1.units": 7,
        "stage.0.steps": 9,
        "model.drop": None,
        "optimizer.betas": [0.9, 0.99],
        "flag": True,
    }
    write_config(source, values, target)
    assert tomllib.loads(target.read_text()) == {
        "name": 'a "b"\n# c',
        "lr": 2e-05,
        "flag": True,
        "model": {"layers": [{"units": 1}, {"units": 7}]},
        "stage": [{"steps": 9}, {"steps": 6}],
        "optimizer": {"betas": [0.9, 0.99]},
    }
    assert "# mine\n" in target.read_text() and "# keep me" in target.read_text()


KEYS = st.sampled_from(["a", "b", "c-d", "e"])
LEAVES = st.one_of(
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.text("a#\"'\\ é\n"),
)
TREES = st.recursive(
    LEAVES, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3))
)


@given(
    st.dictionaries(KEYS, TREES, max_size=4),
    st.dictionaries(st.sampled_from(["a", "b.x", "a.0", "new.y.z"]), LEAVES),
)
def test_every_format_holds_the_same_values(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any], values: dict[str, Any]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    texts = {"json": json.dumps(content), "toml": tomlkit.dumps(content)}
    read: list[Any] = []
    for suffix, text in texts.items():
        source, target = folder / f"c.{suffix}", folder / f"trial.{suffix}"
        source.write_text(text)
        try:
            write_config(source, values, target)
        except ObjectiveError as error:
            read.append(str(error).replace(str(source), "FILE"))
        else:
            written = target.read_text()
            read.append(json.loads(written) if suffix == "json" else tomllib.loads(written))
    assume("cannot be written" not in str(read[1]))  # a table in the place of a number
    assert read[0] == read[1]


@pytest.mark.parametrize("suffix", ["yaml", "json", "toml"])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("list.2", 'the list "list" has the elements list.0 to list.1'),
        ("list.x", 'the list "list" has the elements list.0 to list.1'),
        ("list.0.x", '"list.0" is a value'),
        ("none.0", 'the list "none" has no element'),
        ("one.1", 'the list "one" has the one element one.0'),
    ],
)
def test_an_element_that_a_list_does_not_have_is_refused(
    tmp_path: Path, suffix: str, name: str, told: str
) -> None:
    source = tmp_path / f"c.{suffix}"
    content = {"list": [1, 2], "none": [], "one": [{"x": 1}]}
    source.write_text(tomlkit.dumps(content) if suffix == "toml" else json.dumps(content))
    with pytest.raises(ObjectiveError, match=f'no place for the parameter "{name}": {told}'):
        check_config([f"${{config:{source}}}"], [name])
    check_config([f"${{config:{source}}}"], ["list.1", "one.0.x", "one.0.y.z"])
    write_config(source, {"one.0.y.z": 3}, tmp_path / f"t.{suffix}")
    assert read_config(tmp_path / f"t.{suffix}")["one"] == [{"x": 1, "y": {"z": 3}}]


def test_null_is_a_value_but_in_toml(tmp_path: Path) -> None:
    for suffix, text in {"yaml": "a: 1\n", "json": '{"a": 1}', "toml": "a = 1\n"}.items():
        source, target = tmp_path / f"c.{suffix}", tmp_path / f"t.{suffix}"
        source.write_text(text)
        write_config(source, {"a": None}, target)
        assert read_config(target) == ({} if suffix == "toml" else {"a": None})
    source = tmp_path / "c.toml"
    source.write_text("a = [1]\n")
    with pytest.raises(ObjectiveError, match="TOML has no null"):
        write_config(source, {"a.0": None}, tmp_path / "t.toml")


@pytest.mark.parametrize("text", ["a = ", "[a]\n[a]\n", "a = 1\na = 2", "\0", "= 1", "[" * 500])
def test_a_toml_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    source = tmp_path / "c.toml"
    source.write_text(text)
    for use in (read_config, lambda file: write_config(file, {"a": 1}, tmp_path / "t.toml")):
        with pytest.raises(ObjectiveError, match="is not valid TOML"):
            use(source)
