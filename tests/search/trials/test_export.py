"""An exported document reads back equal to its trial, in every format."""

import io
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest
from ruamel.yaml import YAML

from hpsearch.search import open_study, run
from hpsearch.search.cli.studies import csv_text
from hpsearch.search.results.study import StudyResult
from hpsearch.search.results.trials import trial_row
from hpsearch.search.training.run import train
from hpsearch.search.trials.configuration import config_of
from hpsearch.search.trials.document import load_document, override
from hpsearch.search.trials.export import beyond, document, render
from hpsearch.search.trials.seeds import derived_seed

OBJECTIVE = """
def train(trial):
    return trial.params["x"] ** 2
"""
SPACE = """
version: 1
name: forms
objective: "{folder}/objective.py:train"
metric: loss
parameters:
  x: {{min: 1.0e-7, max: 1.0, log: true}}
  width: {{min: 2, max: 32, factor: 2}}
  modules: [[q, v], [q, k], "yes", 1]
  double: {{expr: "width * 2"}}
  optimizer.name: [adam, "it's"]
  text: "no: #1"
  nothing: {{value: null}}
  flag: true
baseline: {{x: 1.0e-7, modules: [q, k]}}
search: {{seed: 5}}
budget: {{trials: 4}}
execution: {{workers: 1}}
"""


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    """Four trials over parameters of every kind."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "objective.py").write_text(OBJECTIVE)
    (folder / "space.yaml").write_text(SPACE.format(folder=folder))
    run(folder / "space.yaml", storage=str(folder / "studies.db"))
    return open_study("forms", storage=str(folder / "studies.db"))


@pytest.mark.parametrize("number", range(4))
def test_yaml_and_json_read_back_equal(searched: StudyResult, number: int) -> None:
    trial = searched.study.trials[number]
    content = document(searched.spec, trial, searched.provenance)
    assert YAML(typ="safe", pure=True).load(render(content, "yaml")) == content
    assert json.loads(render(content, "json")) == content
    assert content["parameters"] == config_of(searched.spec, trial)


def test_parameters_are_the_trial_in_the_files_order(searched: StudyResult) -> None:
    config = config_of(searched.spec, searched.study.trials[0])
    assert list(config) == list(searched.spec.parameters)
    assert config["x"] == 1e-7
    assert config["modules"] == ["q", "k"]  # a list again, not Optuna's label of it
    assert config["double"] == 2 * config["width"]
    assert (config["text"], config["nothing"], config["flag"]) == ("no: #1", None, True)


def test_provenance_names_study_seed_and_versions(searched: StudyResult) -> None:
    trial = searched.study.trials[2]
    content = document(searched.spec, trial, searched.provenance)
    found = content["provenance"]
    assert (found["study"], found["trial"], found["value"]) == ("forms", 2, trial.value)
    assert found["space"] == searched.spec.fingerprint()
    assert {"python", "hpsearch", "optuna", "torch"} <= set(found["versions"])
    assert content["seed"] == derived_seed(5, "trial", 2)


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ({}, {}),
        ({"strategy": "fsdp"}, {"strategy": "fsdp"}),
        ({"strategy": "deepspeed"}, {"strategy": "deepspeed", "zero_stage": 2}),
        ({"strategy": "deepspeed", "zero_stage": 3}, {"strategy": "deepspeed", "zero_stage": 3}),
    ],
)
def test_a_winner_is_shared_among_processes_as_its_trial_was(
    searched: StudyResult, tmp_path: Path, said: dict[str, object], known: dict[str, object]
) -> None:
    spec = searched.spec.override(execution={"processes_per_trial": 2, **said})
    content = document(spec, searched.study.trials[1], searched.provenance)
    (tmp_path / "best.yaml").write_text(render(content, "yaml"))
    found = load_document(tmp_path / "best.yaml")
    assert (found.processes, found.sharing) == (2, known)


def test_flags_survive_the_shell(searched: StudyResult) -> None:
    content = document(searched.spec, searched.study.trials[1], searched.provenance)
    words = shlex.split(render(content, "flags"))
    pairs = dict(word.removeprefix("--").split("=", 1) for word in words)
    assert list(pairs) == [*content["parameters"], "seed"]
    for name, value in (content["parameters"] | {"seed": content["seed"]}).items():
        assert pairs[name] == value if isinstance(value, str) else json.loads(pairs[name]) == value


def test_the_worker_got_what_is_exported(searched: StudyResult) -> None:
    winner = searched.best
    trial = searched.best_trial
    assert trial is not None
    assert winner.params == config_of(searched.spec, trial)
    assert winner.value == winner.params["x"] ** 2
    assert winner.folder == searched.workspace.runs / "forms" / str(winner.number)


SCRIPT = """
import json, os, sys
from pathlib import Path

got = {"words": [word for word in sys.argv[1:] if "config" not in word], "seed": os.environ["HPSEARCH_SEED"]}
file = next(word.partition("=")[2] for word in sys.argv if "config" in word)
got["file"] = Path(file).read_text()
(Path(os.environ["HPSEARCH_CHECKPOINT"]).parent / "got.json").write_text(json.dumps(got))
print(json.dumps({"step": 1, "loss": 0.5}), flush=True)
"""
COMMAND = """
version: 1
name: told
objective:
  command:
    [python, told.py, "--config=${config:told.yaml}", "${args_no_boolean_flags}", "--m", "${m}", "--n=${n}-${amp}"]
metric: loss
parameters:
  k: {min: 1, max: 3, pass: false}
  lr: {expr: "0.1 * k"}
  amp: [true]
  off: [false]
  seed: 42
  m: {min: 0, max: 1, when: k > 3}
  n: {expr: m + 1}
budget: {trials: 1}
execution: {workers: 1}
"""


def test_a_script_gets_the_same_from_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("told.py").write_text(SCRIPT)
    Path("told.yaml").write_text("lr: 1\nmodel: m\n")
    Path("space.yaml").write_text(COMMAND)
    result = run("space.yaml", storage="studies.db")
    [trial] = result.study.trials
    folder = result.best.folder
    content = document(result.spec, trial, result.provenance, folder=folder)
    got = json.loads((folder / "got.json").read_text())
    assert shlex.split(render(content, "flags")) == got["words"]
    assert got["words"] == [f"--lr={0.1 * trial.params['k']}", "--amp", "--seed=42"]
    assert "k" not in content["parameters"] and "k:" not in got["file"]
    assert list(beyond(content, "flags", folder)) == ["told.yaml"]
    assert beyond(content, "yaml", folder) == {}
    Path("best.yaml").write_text(render(content, "yaml"))
    said: list[str] = []
    train(load_document("best.yaml"), "again", say=said.append)
    again = json.loads(Path("again/got.json").read_text())
    assert again == got
    Path("told.yaml").write_text("lr: 1\nmodel: other\n")
    assert str(folder / "trial.yaml") in beyond(content, "yaml", folder)["told.yaml"]
    assert said == []
    train(override(load_document("best.yaml"), {"lr": 0.7}), "other", say=said.append)
    assert len(said) == 1
    assert said[0].startswith("told.yaml has changed since the trial, whose copy is ")


@pytest.mark.parametrize(
    ("objective", "parameters", "flags"),
    [
        ("lora", {"lora_r": 8}, "--lora_r=8 --seed=7"),
        ("lora", {"seed": 42, "lora_r": 8}, "--seed=42 --lora_r=8"),
        ("a.py:train", {"seed": 42}, "--seed=42"),
        ({"command": ["./t", "${args}"]}, {"lr": 0.1}, "--lr=0.1"),
        ({"command": ["./t", "${config:t.yaml}"]}, {"lr": 0.1}, "--lr=0.1"),
    ],
)
def test_flags_have_no_seed_that_was_not_used(objective: Any, parameters: dict[str, Any], flags: str) -> None:
    content = {"objective": objective, "parameters": parameters, "seed": 7}
    assert render(content, "flags") == f"{flags}\n"
    told = isinstance(objective, dict) and "seed" not in parameters
    assert ("seed 7" in beyond(content, "flags", Path())) is told


MIXED = [None, "null", "1", 1, True, "true", 0.5, "0.5", "NA", "plain", [1, "1"]]


def test_values_of_a_csv_keep_their_kind_in_pandas(searched: StudyResult) -> None:
    row = trial_row(searched.records.by_number[0])
    text = csv_text([replace(row, params={"p": value}) for value in MIXED] + [replace(row, params={})], ["p"])
    *cells, absent = pandas.read_csv(io.StringIO(text), dtype=str)["params_p"]
    said = ["null" if pandas.isna(cell) else cell for cell in cells]  # pandas reads null as missing
    assert [value if value == "plain" else json.loads(value) for value in said] == MIXED
    assert pandas.isna(absent)
    numbers = csv_text([replace(row, params={"p": value}) for value in (1, 2)], ["p"])
    assert pandas.read_csv(io.StringIO(numbers))["params_p"].dtype == int


@pytest.mark.parametrize(
    ("objective", "flags"),
    [
        ("a.py:train", ['--a="1"', "--b=1", "--c=plain", '--d="null"', "--e=null"]),
        ({"command": ["python", "a.py", "${args}"]}, ["--a=1", "--b=1", "--c=plain", "--d=null"]),
    ],
)
def test_flags_keep_types_apart_except_for_a_script_that_got_texts(objective: Any, flags: list[str]) -> None:
    parameters = {"a": "1", "b": 1, "c": "plain", "d": "null", "e": None}
    content = {"objective": objective, "parameters": parameters, "seed": 0}
    assert shlex.split(render(content, "flags"))[:5] == flags
