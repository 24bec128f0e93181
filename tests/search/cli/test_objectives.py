"""`hpsearch objectives` tells what there is, `hpsearch init` writes a space of it that runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpsearch.objectives import catalog
from hpsearch.objectives.base import ObjectiveError
from hpsearch.objectives.catalog import BUILT_IN, Requirements, describe_objective
from hpsearch.objectives.info import ObjectiveInfo
from hpsearch.search.cli.app import app, exit_code
from hpsearch.search.preflight import requirements
from hpsearch.search.preflight.checks import check_objective
from hpsearch.search.preflight.objective import load_space
from hpsearch.spaces import SpaceError, describe
from hpsearch.trainer.config.rules import rules

Told = tuple[int, str, str]
Cli = Callable[..., Told]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Told:
        code, said = 0, ""
        try:
            app(words, standalone_mode=False)
        except Exception as error:
            code, said = exit_code(error) or -1, str(error)
        out, err = capsys.readouterr()
        return code, out, err + said

    return run


def test_all_are_listed_with_a_sentence(cli: Cli) -> None:
    code, shown, _ = cli("objectives")
    assert code == 0
    for name in BUILT_IN:
        assert describe_objective(name).summary and name in shown


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_parameter_is_told_with_its_default(cli: Cli, name: str) -> None:
    code, shown, _ = cli("objectives", name, "--json")
    [found] = json.loads(shown)
    config = ObjectiveInfo(name).parameters
    assert code == 0 and config is not None
    assert [each["name"] for each in found["parameters"]] == list(rules(config))
    for each in found["parameters"]:
        rule = rules(config)[each["name"]]
        assert each["help"] == rule.help and each["allowed"]
        assert rule.problem(each["default"]) is None, "what is left out is allowed itself"
    code, table, _ = cli("objectives", name)
    assert code == 0 and all(each["name"] in table for each in found["parameters"])


def test_what_is_missing_is_told_with_what_installs_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        catalog, "BUILT_IN", {"xgboost": Requirements(("no_such_package", "sklearn"), "xgboost")}
    )
    told = "needs no_such_package, not installed here: pip install 'hpsearch[xgboost]'"
    assert told in " ".join(cli("objectives")[1].split())
    assert told in " ".join(cli("objectives", "xgboost")[1].split())
    with pytest.raises(ObjectiveError, match="no_such_package"):
        catalog.check_built_in("xgboost")


def test_a_strategy_of_an_extra_is_told_before_anything_runs(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(requirements.PACKAGES, "deepspeed", Requirements(("no_such_package",), "deepspeed"))
    execution = {"processes_per_trial": 2, "strategy": "deepspeed"}
    space = {"version": 1, "name": "s", "objective": "lora", "metric": "val_loss", "execution": execution}
    space |= {"parameters": {"learning_rate": [1e-3, 1e-2], "max_steps": 9}, "budget": {"trials": 1}}
    winner = {"objective": "lora", "metric": "val_loss", "parameters": {"max_steps": 9}, "seed": 0}
    Path("space.yaml").write_text(json.dumps(space | {"early_stopping": {"method": "none"}}))
    Path("best.yaml").write_text(json.dumps(winner | {"provenance": execution}))
    told = "\"deepspeed\" needs no_such_package, not installed here: pip install 'hpsearch[deepspeed]'"
    for words in (("validate", "space.yaml"), ("run", "space.yaml"), ("train", "best.yaml")):
        assert told in cli(*words)[2]
    assert not list(Path.cwd().glob("*.db"))


def test_another_name_is_refused(cli: Cli) -> None:
    for words in (("objectives", "xgbost"), ("init", "xgbost")):
        code, _, error = cli(*words)
        assert code == 2 and 'did you mean "xgboost"?' in error


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_space_is_written_that_is_sound(cli: Cli, name: str) -> None:
    code, shown, _ = cli("init", name)
    assert code == 0 and f"wrote {name}.yaml" in shown
    spec = load_space(f"{name}.yaml")
    if describe_objective(name).missing:
        with pytest.raises(SpaceError, match=rf"pip install 'hpsearch\[{BUILT_IN[name].extra}\]'"):
            check_objective(spec)
    else:
        check_objective(spec)
    assert spec.objective == name and Path(f"{name}.yaml").read_text().startswith("#")
    code, _, error = cli("init", name)
    assert code == 2 and "is there already" in error
    assert cli("init", name, "--force")[0] == 0


def test_a_space_is_written_for_a_model(cli: Cli) -> None:
    for name, config in {"small": {"model_type": "llama", "hidden_size": 128}, "odd": {}}.items():
        Path(name).mkdir()
        Path(name, "config.json").write_text(json.dumps(config))
    code, shown, _ = cli("init", "hf_lora", "--model", "small", "-o", "mine.yaml")
    assert code == 0 and "wrote mine.yaml; next:\n  hpsearch validate mine.yaml" in shown
    rate = load_space("mine.yaml").parameters["learning_rate"]
    assert describe(rate) == "float 0.00043 .. 0.043, log, prior 0.0043"
    for words, told in {
        ("hf_lora", "--model", "odd"): "odd/config.json says no width",
        ("hf_lora", "--model", "none/at/all"): "there is no folder 'none/at/all' in",
        (
            "lora",
            "--model",
            "small",
        ): "the space of lora has no parameter model; that of hf_lora has one",
        ("--model", "small"): "name hf_lora, and no file",
        ("hf_lora", "--model", "small", "-o", "mine.yaml"): "is there already",
    }.items():
        code, _, error = cli("init", *words)
        assert code == 2 and told in error


def test_the_list_loads_no_framework() -> None:
    code = (
        "import sys; from hpsearch.objectives.catalog import BUILT_IN, describe_objective\n"
        "for name in BUILT_IN: describe_objective(name)\n"
        "heavy = {'torch', 'sklearn', 'xgboost', 'lightgbm', 'pandas', 'optuna', 'transformers', 'peft'}\n"
        "heavy &= sys.modules.keys()\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
