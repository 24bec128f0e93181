"""The spec: what a file means, how it is stored, changed and compared."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.spaces import (
    Constant,
    Issue,
    Range,
    SpaceError,
    Spec,
    differences,
    json_schema,
    load,
    loads,
    shipped,
    warnings,
)
from hpsearch.spaces.settings import Command

SMALL = "version: 1\nname: t\nobjective: lora\nmetric: val_loss\nparameters:\n  x: {min: 0.0, max: 1.0}\n"


def test_defaults() -> None:
    spec = loads(SMALL)
    assert spec.goal == "minimize" and spec.constraints == [] and spec.baseline is None
    assert (spec.search.sampler, spec.search.seed) == ("tpe", 0)
    assert spec.early_stopping.method == "none" and spec.early_stopping.max is None
    assert spec.budget.trials == 50 and spec.budget.time is None
    how = spec.execution
    assert (how.workers, how.retries, how.trial_timeout, how.keep) == ("auto", 1, None, 3)
    assert how.cpus_per_trial is how.gpus_per_trial is how.max_memory is None


@given(texts=st.lists(st.text(), min_size=2, max_size=4, unique=True), escaped=st.booleans())
def test_any_text_is_read_as_json_writes_it(texts: list[str], escaped: bool) -> None:
    """With `ensure_ascii`, as by default, it writes what is beyond 16 bits as two surrogates."""
    data = loads(SMALL).to_json() | {"parameters": {"x": {"choices": texts}}}
    written = json.dumps({k: v for k, v in data.items() if v is not None}, ensure_ascii=escaped)
    if not escaped:  # some characters stand in no YAML as they are
        written = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in written)
    spec = loads(written)
    assert spec.space.searched["x"].values() == texts
    assert Spec.from_json(json.loads(json.dumps(spec.to_json()))).fingerprint() == spec.fingerprint()


@pytest.mark.parametrize("text", ["\ud83e", "\udd86\ud83e", "a\udc80"])
@pytest.mark.parametrize(
    "fields",
    [
        lambda text: {"parameters": {"x": [text, "b"]}},
        lambda text: {"parameters": {"x": [1, 2], "y": {"value": [{"a": text}]}}},
        lambda text: {"parameters": {"x": [1, 2], "y": {"value": {text: 1}}}},
        lambda text: {"metric": text},
        lambda text: {"name": text},
        lambda text: {"objective": {"command": ["echo", text]}},
    ],
)
def test_half_a_character_is_refused_from_python_too(fields: Any, text: str) -> None:
    with pytest.raises(SpaceError, match=r"half a character|no name may have"):
        Spec.from_json(loads(SMALL).to_json() | fields(text))


SCALARS: dict[str, Any] = {
    "1e-4": 1e-4,
    "1E3": 1000.0,
    ".5": 0.5,
    "1.": 1.0,
    "0x10": 16,
    "0o10": 8,
    "010": 10,
    "+3": 3,
    "yes": "yes",
    "off": "off",
    "true": True,
    "1:30": "1:30",
    "1_000": "1_000",
    "2024-01-01": "2024-01-01",
    "~null": "~null",
    "{value: ~}": None,
    "'1'": "1",
    "0b1": "0b1",
    "nan": "nan",
    "{value: [1, {a: b}]}": [1, {"a": "b"}],
    "{value: 'uniform(0, 1)'}": "uniform(0, 1)",  # said to be a value, it is no other tool's range
}


def test_scalars_are_yaml_1_2(subtests: pytest.Subtests) -> None:
    for written, value in SCALARS.items():
        with subtests.test(written):
            constant = loads(f"{SMALL}  c: {written}\n").parameters["c"]
            assert isinstance(constant, Constant)
            assert constant.value == value and type(constant.value) is type(value)


@pytest.mark.parametrize(
    ("written", "seconds"),
    {
        "90": 90.0,
        "1.5": 1.5,
        "90s": 90.0,
        "30m": 1800.0,
        "1.5h": 5400.0,
        "2d": 172800.0,
        "'2 h'": 7200.0,
        "1h30m": 5400.0,
        "'1h 30m'": 5400.0,
        "1d2h3m4.5s": 93784.5,
        "'90'": 90.0,
    }.items(),
)
def test_times_are_seconds(written: str, seconds: float) -> None:
    assert loads(f"{SMALL}budget: {{time: {written}}}").budget.time == seconds


@pytest.mark.parametrize(
    ("written", "amount"),
    {
        "1048576": 1 << 20,
        "5000000.5": 5_000_000,
        "4e9": 4 * 10**9,
        "'50000000'": 50_000_000,
        "10000000B": 10_000_000,
        "1536.5k": 1_573_376,
        "4GiB": 4 << 30,
        "4GB": 4 << 30,
        "4g": 4 << 30,
        "500 MiB": 500 << 20,
        "0.5T": 1 << 39,
    }.items(),
)
def test_memory_is_bytes(written: str, amount: int) -> None:
    spec = loads(f"{SMALL}execution: {{max_memory: {written}}}")
    assert spec.execution.max_memory == amount and type(spec.execution.max_memory) is int
    assert Spec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@pytest.mark.parametrize("field", ["cpus_per_trial", "gpus_per_trial"])
@pytest.mark.parametrize("amount", ["0.25", "1", "1.0", "4", "1e1"])
def test_devices_are_whole_ones_or_a_share_of_one(field: str, amount: str) -> None:
    spec = loads(f"{SMALL}execution: {{{field}: {amount}}}")
    found = getattr(spec.execution, field)
    assert found == float(amount) and type(found) is float
    assert Spec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_an_anchor_stands_for_its_value() -> None:
    spec = loads("version: 1\nname: t\nobjective: lora\nmetric: m\nparameters:\n  a: &r [1, 2]\n  b: *r\n")
    assert spec.parameters["a"] == spec.parameters["b"]


def test_an_objective_is_a_name_or_a_command() -> None:
    command = loads(SMALL.replace("lora", '{command: [python, train.py, "${args}"]}')).objective
    assert command == Command(command=["python", "train.py", "${args}"])
    assert loads(SMALL.replace("lora", "a/b.py:train")).objective == "a/b.py:train"


TO_20, TO_3 = "{method: asha, min: 5, max: 20, eta: 2}", "{method: asha, min: 1, max: 3}"
NONE = "{method: none}"


@pytest.mark.parametrize(
    ("objective", "lengths", "stopping", "unit"),
    [
        ("lora", "", NONE, "steps"),
        ("lora", "max_samples: 100", NONE, "samples"),
        ("lora", "max_samples: [100, 400]", TO_20, "samples"),
        ("lora", "max_samples: {expr: 100 * a}", NONE, "samples"),
        ("lora", "num_train_epochs: 3", NONE, "epochs"),
        ("lora", "num_train_epochs: {value: null}, max_steps: 20", NONE, "steps"),
        ("m.py:f", "num_train_epochs: 3", "{method: none, resource: epochs}", "epochs"),
        # What a user's program reports, early stopping's end tells; names alone do not.
        ("m.py:f", "num_train_epochs: 1, max_steps: 20", TO_20, "steps"),
        ("m.py:f", "max_steps: 20, num_train_epochs: 3", TO_3, "epochs"),
        ("m.py:f", "num_train_epochs: 3", TO_20, "steps"),
        ("m.py:f", "num_train_epochs: [1, 3]", TO_3, "epochs"),
        ("m.py:f", "num_train_epochs: {min: 1, max: 3}, max_steps: -1", TO_3, "epochs"),
        ("m.py:f", "num_train_epochs: 3, max_samples: 3", TO_3, "steps"),
        ("m.py:f", "max_samples: 20", TO_20, "samples"),
        ("m.py:f", "num_train_epochs: 3", NONE, "steps"),
        ("{command: [a]}", "epochs: 20, batch_size: [8, 16]", TO_20, "epochs"),
        ("{command: [a]}", "train.max_epochs: 20", TO_20, "epochs"),
        ("m.py:f", "nEpochs: [10, 20], total_steps: 500", TO_20, "epochs"),
        ("m.py:f", "trainer.num_training_steps: 20, epochs: 3", TO_20, "steps"),
        ("m.py:f", "epochs: 20, max_iters: 20", TO_20, "steps"),
        ("m.py:f", "warmup_epochs: 20, start_epoch: 20", TO_20, "steps"),
        ("keras", "epochs: 20", TO_20, "epochs"),
        ("lora", "max_steps: 100, epochs: 20", TO_20, "steps"),
        ("{command: [a]}", "num_train_epochs: 1, max_steps: 20", NONE, "steps"),
    ],
)
def test_the_unit_is_what_is_counted_or_says_nothing(
    objective: str, lengths: str, stopping: str, unit: str
) -> None:
    head, _, _ = SMALL.replace("objective: lora", f"objective: {objective}").partition("parameters:")
    text = f"{head}parameters: {{a: [1, 2], {lengths}}}\nearly_stopping: {stopping}\n"
    assert loads(text).resource == unit


def test_json_round_trips(spec: Spec, text: str) -> None:
    data = spec.to_json()
    assert Spec.from_json(json.loads(json.dumps(data))) == spec
    assert Spec.from_json(data).to_json() == data
    assert Spec.from_json(data).fingerprint() == spec.fingerprint() == loads(text).fingerprint()
    assert data["budget"] == {"trials": 40, "time": 1800.0, "samples": 100000, "target": 1.7}
    null = loads(SMALL + "  c: {value: null}\n  d: [null, 1]\nbaseline: {d: null}")
    assert Spec.from_json(null.to_json()) == null


def test_json_of_something_else_is_refused() -> None:
    with pytest.raises(SpaceError, match="<json> version: is missing"):
        Spec.from_json({"name": "t"})
    with pytest.raises(SpaceError, match="64 bits"):
        Spec.from_json(loads(SMALL).to_json() | {"parameters": {"x": {"min": 1, "max": 10**30}}})


def test_a_spec_crosses_processes(spec: Spec) -> None:
    spec.space.baseline()
    copy = pickle.loads(pickle.dumps(spec))
    assert copy == spec and copy.space.baseline() == spec.space.baseline()
    assert copy.issue("budget.trials", "no") == spec.issue("budget.trials", "no")


def test_name_budget_and_execution_do_not_define_a_search(spec: Spec) -> None:
    other = spec.override(name="other", budget={"trials": 9}, execution={"workers": 7})
    assert (other.name, other.execution.workers) == ("other", 7)
    assert (other.budget.trials, other.budget.time) == (9, 1800.0)
    assert other.fingerprint() == spec.fingerprint() and differences(spec.to_json(), other.to_json()) == []


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("max: 3e-2", "max: 0.1", "parameters.learning_rate.max: 0.03 -> 0.1"),
        ("[1, 2, 4]", "[1, 2]", "parameters.alpha_over_r.choices: [1, 2, 4] -> [1, 2]"),
        ("seed: 3", "seed: 4", "search.seed: 3 -> 4"),
        ("hyperband", "asha", 'early_stopping.method: "hyperband" -> "asha"'),
        ("goal: minimize", "goal: maximize", 'goal: "minimize" -> "maximize"'),
        ("lora_r: 8}", "lora_r: 16}", "baseline.lora_r: 8 -> 16"),
        ("lora_r: 8}", "lora_r: 8, batch_size: 8}", "baseline.batch_size: none -> 8"),
        ("max_steps: 400", "max_steps: null_", 'parameters.max_steps.value: 400 -> "null_"'),
        (", prior: {at: 2e-3, confidence: medium}", "", "parameters.learning_rate.prior.at: 0.002 -> none"),
    ],
)
def test_a_changed_search_shows(spec: Spec, text: str, old: str, new: str, line: str) -> None:
    changed = loads(text.replace(old, new))
    assert changed.fingerprint() != spec.fingerprint()
    assert line in differences(spec.to_json(), changed.to_json())


def test_true_and_one_are_different_searches() -> None:
    one, true = (loads(SMALL + f"  c: {value}\n") for value in ("1", "true"))
    assert differences(one.to_json(), true.to_json()) == ["parameters.c.value: 1 -> true"]
    assert one.fingerprint() != true.fingerprint()


def test_an_override_changes_what_it_names(spec: Spec) -> None:
    seeded = spec.override(search={"seed": 5})
    assert seeded.search.seed == 5 and seeded.to_json()["search"]["n_startup_trials"] == 10
    gp = spec.override(search={"sampler": "gp"})
    assert (gp.search.sampler, gp.search.seed) == ("gp", 3)
    calm = spec.override(early_stopping={"method": "none"})
    assert (calm.early_stopping.method, calm.early_stopping.max) == ("none", 400)
    assert spec.override(budget={"time": None}).budget.time is None
    assert spec.override(parameters={"max_steps": 20}).parameters["max_steps"] == Constant(value=20)
    assert spec.override(objective={"command": ["a"]}).objective == Command(command=["a"])
    assert spec.search.seed == 3


def test_a_bad_override_is_refused(spec: Spec) -> None:
    with pytest.raises(SpaceError) as caught:
        spec.override(budget={"trials": 0}, search={"sampler": "tpee"}, executoin={"workers": 2})
    assert sorted(map(str, caught.value.issues)) == [
        "<override> budget.trials: must be at least 1, not 0",
        '<override> executoin: unknown key, did you mean "execution"?',
        '<override> search.sampler: there is no "tpee"; did you mean "tpe"?',
    ]
    with pytest.raises(SpaceError, match="needs trials, time or samples"):
        spec.override(budget={"trials": None, "time": None, "samples": None})


def test_other_rooms_can_name_a_place(spec: Spec) -> None:
    assert spec.issue("parameters.lora_r", "no") == Issue("lora.yaml", 8, 11, "parameters.lora_r", "no")
    assert spec.issue("parameters.model.width", "no")[1:3] == (17, 16)
    assert spec.issue("parameters.lora_r.step", "no")[1:3] == (8, 11)
    assert spec.issue("constraints[1]", "no")[1:3] == (19, 51)
    assert str(Issue("a", 0, 0, "", "no")) == "a: no"
    assert spec.override(name="b").issue("parameters.lora_r", "no").line == 8


def test_a_spec_cannot_be_changed(spec: Spec) -> None:
    with pytest.raises(ValueError, match="frozen"):
        spec.name = "other"


def test_a_file_and_a_string_are_the_same(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8-sig")
    assert load(path) == load(str(path)) == loads(text)
    assert load(path).issue("name", "no").file == str(path)


@pytest.mark.parametrize("name", shipped())
def test_what_ships_is_right(name: str) -> None:
    spec = load(name)
    assert spec.name == name and [str(issue) for issue in warnings(spec)] == []


def test_the_room_imports_quickly_and_nothing_heavy() -> None:
    heavy = ("torch", "optuna", "numpy", "rich")
    code = f"import sys, hpsearch.spaces; print([name for name in {heavy} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


LINES = [
    *SMALL.splitlines(),
    "  y: [1, 2]",
    "  z: {expr: 'x * 2'}",
    "search: {sampler: gp}",
    "budget: {trials: 3}",
    "constraints: ['x < 1']",
    "baseline: {x: 0.5}",
    "early_stopping: {method: none}",
]
PIECES = [
    "",
    " ",
    "\n",
    ":",
    "{",
    "}",
    "[",
    "]",
    "-",
    "'",
    '"',
    "1e9",
    "null",
    "&a ",
    "*a",
    "\t",
    "true",
    ".nan",
    "9" * 30,
    "é",
    ",",
    "min",
    "#",
]
KEYS = [*json_schema()["$defs"]["Range"]["properties"], "choices", "expr", "x"]


@given(
    st.one_of(
        st.text(max_size=60),
        st.text("ab:[]{}&*!|>'\"%@`#,-? \n\t01.~", max_size=60),
        st.lists(st.sampled_from(LINES), max_size=12).map("\n".join),
    )
)
def test_any_text_is_a_spec_or_a_space_error(text: str) -> None:
    try:
        loads(text)
    except SpaceError as error:
        assert error.issues


@given(st.data())
def test_a_mutated_file_is_a_spec_or_a_space_error(text: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(start + 6, len(text))))
        text = text[:start] + data.draw(st.sampled_from(PIECES)) + text[end:]
    try:
        spec = loads(text)
    except SpaceError as error:
        assert all(isinstance(issue.line, int) for issue in error.issues)
    else:
        assert Spec.from_json(spec.to_json()) == spec


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=5),
        st.sampled_from(["tpe", "hyperband", "x * 2", "30m", "lora"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(data=st.data(), value=VALUES)
def test_any_json_is_a_spec_or_a_space_error(spec: Spec, data: st.DataObject, value: Any) -> None:
    document = spec.to_json()
    place: Any = document
    while isinstance(place, dict) and place:
        key = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[key], dict) or data.draw(st.booleans()):
            place[key] = value
            break
        place = place[key]
    try:
        read = Spec.from_json(document)
    except SpaceError:
        return
    assert Spec.from_json(read.to_json()).to_json() == read.to_json()


def test_a_folder_does_not_hide_a_space_that_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lora").mkdir()
    assert load("lora").name == "lora"
    Path("lora_quick").write_text(SMALL)
    assert load("lora_quick").name == "t"


def test_a_stored_range_whose_step_reaches_max_by_rounding_stays_valid(make_spec: Any) -> None:
    """A study may be older than that check."""
    stored = make_spec().to_json()
    stored["parameters"]["x"] = {"min": 0.0, "max": 0.7, "step": 0.09999999999999999}
    x = Spec.from_json(stored).parameters["x"]
    assert isinstance(x, Range) and x.max == 0.7
