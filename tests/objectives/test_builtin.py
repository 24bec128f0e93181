"""The two built-in objectives: a trial in, the reports and the loss out."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hpsearch.objectives.base import TrialStopped
from hpsearch.objectives.catalog import export
from hpsearch.objectives.gpt import lora, pretrain
from hpsearch.objectives.info import ObjectiveInfo
from hpsearch.search.preflight.checks import check_objective, warnings
from hpsearch.search.scheduling.rungs import plan_of
from hpsearch.spaces import load
from hpsearch.trainer.config.models import LoraConfig, PretrainConfig, TrainConfig
from hpsearch.trainer.errors import ConfigError
from hpsearch.trainer.optim.schedule import report_due

from .hand_trial import HandTrial

PARAMS: dict[str, dict[str, Any]] = {
    "lora": {"max_length": 16, "lora_r": 2, "target_modules": ["qkv"]},
    "pretrain": {"max_length": 16, "width": 8, "depth": 1, "heads": 2},
}


@pytest.fixture(params=["lora", "pretrain"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def objective(kind: str) -> Callable[[Any], float]:
    torch.set_num_threads(1)
    return {"lora": lora.train, "pretrain": pretrain.train}[kind]


@pytest.fixture
def params(kind: str, tmp_path: Path) -> dict[str, Any]:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {number} of the text\n" for number in range(200)))
    return PARAMS[kind] | {
        "train_file": str(text),
        "max_samples": 12,
        "eval_every": 4,
        "eval_samples": 2,
        "batch_size": 2,
        "device": "cpu",
    }


def test_it_reports_on_the_grid_and_returns_the_last_loss(
    objective: Callable[[Any], float], params: dict[str, Any], tmp_path: Path
) -> None:
    trial = HandTrial(params, tmp_path / "run")
    value = objective(trial)
    assert [step for step, _ in trial.reports] == [4, 8, 12]
    assert value == trial.reports[-1][1]
    assert all(type(number) is float for metrics in trial.metrics for number in metrics.values())


def test_the_trials_seed_is_used_unless_a_parameter_fixes_one(
    objective: Callable[[Any], float], params: dict[str, Any], tmp_path: Path
) -> None:
    seven, eight = (objective(HandTrial(params, tmp_path / f"{seed}", seed=seed)) for seed in (7, 8))
    fixed = objective(HandTrial(params | {"seed": 7}, tmp_path / "fixed", seed=8))
    assert seven == fixed != eight


def test_a_stopped_trial_resumes_from_its_checkpoint(
    objective: Callable[[Any], float], params: dict[str, Any], tmp_path: Path
) -> None:
    whole = HandTrial(params, tmp_path / "whole")
    objective(whole)
    first = HandTrial(params, tmp_path / "run", stop_at=8)
    with pytest.raises(TrialStopped):
        objective(first)
    second = HandTrial(params, tmp_path / "run")
    objective(second)
    assert first.reports + second.reports[1:] == whole.reports
    assert second.reports[0] == whole.reports[1]


def test_its_checkpoint_can_be_exported(
    kind: str, objective: Callable[[Any], float], params: dict[str, Any], tmp_path: Path
) -> None:
    objective(HandTrial(params, tmp_path / "run"))
    written = export(kind, tmp_path / "run", tmp_path / "out", merge=True)
    assert (tmp_path / "out" / "model.safetensors") in written
    assert (tmp_path / "out" / "adapter.safetensors" in written) == (kind == "lora")


def test_an_unknown_parameter_fails_before_training(
    objective: Callable[[Any], float], tmp_path: Path
) -> None:
    trial = HandTrial({"max_samples": 8, "learning_rat": 1e-3}, tmp_path / "run")
    with pytest.raises(ConfigError, match='did you mean "learning_rate"'):
        objective(trial)
    assert not trial.reports and not list((tmp_path / "run").iterdir())


def test_the_parameters_are_known_without_torch(kind: str) -> None:
    known = ObjectiveInfo(kind).known_parameters
    assert known is not None and {"learning_rate", "batch_size", "max_samples", "seed"} <= known
    check = (
        "import sys; from hpsearch.objectives.info import ObjectiveInfo; "
        f"ObjectiveInfo({kind!r}).known_parameters; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


@pytest.mark.parametrize("name", ["lora", "lora_quick", "pretrain"])
def test_the_spaces_that_ship_are_ones_the_trainer_takes(name: str) -> None:
    """Thirty random configurations can be trained, and report at every rung of the early stopping."""
    spec = load(name)
    check_objective(spec)
    assert not warnings(spec)
    kinds: dict[str, type[TrainConfig]] = {"lora": LoraConfig, "pretrain": PretrainConfig}
    rungs = {rung for bracket in plan_of(spec).brackets for rung in bracket.rungs}
    generator = random.Random(0)
    for _ in range(30):
        config = kinds[str(spec.objective)].from_params(spec.space.sample(generator))
        places = {report_due(config, step) for step in range(config.total_steps + 1)}
        assert rungs <= places and config.length in places
        assert config.unit == spec.resource and config.length == spec.early_stopping.max
