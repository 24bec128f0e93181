"""The space of `hf_lora`, made out to a model: what it holds, and that it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpsearch.search.errors import UsageError
from hpsearch.search.exchange.space_from.of_model import space_of_model
from hpsearch.search.operations import spaces
from hpsearch.spaces import Constant, Range, load, loads, shipped_text

from ....objectives.tiny_models import make_models, sentences, write_rows

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048}
BERT = {"architectures": ["BertForMaskedLM"], "model_type": "bert", "hidden_size": 768}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes the folder of a model into the present one, and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(config: dict[str, Any], name: str = "mine") -> str:
        Path(name).expanduser().mkdir()
        (Path(name).expanduser() / "config.json").write_text(json.dumps(config))
        return name

    return write


@pytest.fixture(scope="module")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The folders of `make_models`, by their kinds."""
    return make_models(tmp_path_factory.mktemp("models"))


def test_what_it_says_of_the_model_goes_into_the_space_that_ships(model: Any) -> None:
    ships = load("hf_lora")
    made = loads(space_of_model(model(LLAMA)))
    rate = made.parameters["learning_rate"]
    assert isinstance(rate, Range) and rate.prior is not None and rate.log
    assert (rate.min, rate.prior.at, rate.max) == (4.9e-5, 4.9e-4, 4.9e-3)
    assert made.parameters["model"] == Constant(value="mine")
    assert made.parameters["task"] == Constant(value="causal_lm")
    assert made.parameters.keys() - ships.parameters.keys() == {"model", "task"}
    others = ships.parameters.keys() - {"learning_rate"}
    assert {name: made.parameters[name] for name in others} == {
        name: ships.parameters[name] for name in others
    }
    assert made.space.baseline() == {**(ships.space.baseline() or {}), "learning_rate": 4.9e-4} | {
        "model": "mine",
        "task": "causal_lm",
    }


def test_the_sources_of_the_learning_rate_are_beside_it(model: Any) -> None:
    lines = space_of_model(model(LLAMA)).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("  learning_rate:"))
    beside = " ".join(line.removeprefix("  # ") for line in lines[at - 2 : at])
    formula = "5e-5 * 10 * (2000 / 2048)^0.781, the fit for Llama in the Tinker cookbook"
    assert f"A decade on either side of 4.9e-4: {formula}" in beside
    assert max(map(len, lines)) <= 120 and lines[0].startswith("# LoRA on mine, ")
    assert "sft_sweep.md" in space_of_model(model(BERT, "bert")), "of public runs, where there is no fit"


def test_rows_that_the_task_needs_are_to_fill_in(model: Any) -> None:
    made = spaces.init(objective="hf_lora", model=model(BERT | {"max_position_embeddings": 64}))
    assert made.file == Path("hf_lora.yaml") and made.to_fill == ("train_file (rows with text and label)",)
    parameters = yaml.safe_load(made.text)["parameters"]
    assert (parameters["task"], parameters["train_file"]) == ("sequence_classification", "FILL_IN")
    assert parameters["max_length"] == 64, "the model has places for no more"


@pytest.mark.parametrize("name", ["a b: #c", "~/m", "m [1]", "choice(m)", 'a"b', "1e3", "null", "é"])
def test_any_name_is_the_same_in_the_space(
    name: str, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert loads(space_of_model(model(LLAMA, name))).parameters["model"] == Constant(value=name)


def test_whatever_a_model_calls_its_type_stays_in_the_comment(model: Any) -> None:
    text = space_of_model(model({"model_type": "a\u2028b: c\n# d", "hidden_size": 64}))
    assert loads(text).parameters["model"] == Constant(value="mine") and "\\u2028b:" in text


def test_a_model_is_for_an_objective_that_takes_one(model: Any) -> None:
    given = model(LLAMA)
    with pytest.raises(UsageError, match="the space of lora has no parameter model; that of hf_lora has one"):
        spaces.init(objective="lora", model=given)
    for more in ({}, {"source": Path("train.py")}, {"source": Path("train.py"), "text": "x = 1"}):
        with pytest.raises(
            UsageError, match="a model is for the space of an objective: name hf_lora"
        ) as caught:
            spaces.init(model=given, **more)
        assert caught.value.code == "init-model"


def test_without_a_model_the_space_is_the_one_that_ships() -> None:
    assert spaces.init(objective="hf_lora").text == shipped_text("hf_lora")


@pytest.mark.extras("peft")
@pytest.mark.in_process
@pytest.mark.any_backend
@pytest.mark.any_storage
@pytest.mark.parametrize("kind", ["llama", "t5", "bert"])
def test_what_is_written_runs(kind: str, tiny_models: dict[str, str], bench: Any, tmp_path: Path) -> None:
    """With rows in the place of those to fill in; all else is as it was written."""
    import torch

    torch.set_num_threads(1)
    rows: list[dict[str, object]] = [
        {"text": text, "label": "long" if len(text) > 30 else "short"}
        if kind == "bert"
        else {"prompt": text, "completion": text}
        for text in sentences(80, seed=3)
    ]
    text = space_of_model(tiny_models[kind]).replace("FILL_IN", write_rows(tmp_path / "rows.jsonl", rows))
    assert "english" in text or kind != "llama"
    spec = loads(text).override(budget={"trials": 1}, execution={"workers": 1, "cpus_per_trial": 1})
    assert spaces.validate(space=spec).warnings == []
    result = bench.run(spec)
    assert result.best_trial is not None and result.best_trial.params["learning_rate"] > 0
    assert {trial.state.name for trial in bench.trials(spec.name)} <= {"COMPLETE", "PRUNED"}
