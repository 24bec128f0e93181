"""DeepSpeed's ZeRO: the losses of one process at every stage, and a run that goes on at another, or without it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from hpsearch.trainer.config.models import LoraConfig, PretrainConfig
from hpsearch.trainer.runs.run import fit

from ..ranks_of_runs import Asked, in_one, in_processes, same

pytestmark = [
    pytest.mark.slow,
    pytest.mark.extras("deepspeed"),
]
# Their sizes are odd: of three processes, the last has less than the others.
DROPOUT = {"dropout": 0.1, "width": 9, "depth": 2, "heads": 3}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("pretrain", DROPOUT | {"batch_size": 2, "gradient_accumulation_steps": 4, "max_grad_norm": 0.3}),
    ("pretrain", DROPOUT | {"optimizer": "sgd", "learning_rate": 0.3, "gradient_checkpointing": True}),
    ("lora", {"use_dora": True, "lora_r": 3, "lora_dropout": 0.1, "loraplus_lr_ratio": 4.0}),
    ("lora", {"finetuning_type": "full", "optimizer": "lion", "early_stopping_patience": 1}),
    ("lora", {"finetuning_type": "linear", "learning_rate": 1e30, "eval_every": 48}),
]


def _asked(strategy: dict[str, Any], objective: str, params: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"strategy": "deepspeed", "objective": objective, "params": params, **strategy, **more}


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_losses_are_those_of_one_process(tiny: dict[str, Any], base_file: Path, stage: int) -> None:
    """One run after another in the same processes; the last has no number for a loss, here as there."""
    base = {"lora": {"base": str(base_file)}, "pretrain": {}}
    cases = [(objective, tiny | base[objective] | options) for objective, options in CASES]
    asked: Asked = [_asked({"zero_stage": stage}, objective, params) for objective, params in cases]
    for case, found in zip(cases, in_processes(3 if stage == 3 else 2, asked), strict=True):
        objective, params = case
        expected = in_one((LoraConfig if objective == "lora" else PretrainConfig).from_params(params))
        assert same(found, expected), f"{case}:\n{found}\n{expected}"
    assert math.isnan(found[-1][1])


def test_a_run_resumes_at_another_zero_stage_and_without(tiny: dict[str, Any], tmp_path: Path) -> None:
    params = tiny | DROPOUT | {"early_stopping_patience": 4}
    config = PretrainConfig.from_params(params)
    undisturbed = in_one(config)

    def part(strategy: dict[str, Any], stop: int) -> dict[str, Any]:
        return _asked(strategy, "pretrain", params, folder=str(tmp_path / "run"), stop=stop)

    with pytest.raises(KeyboardInterrupt):
        fit(config, on_report=_stop, checkpoint=tmp_path / "run", resume_from=tmp_path / "run")
    ways: list[dict[str, Any]] = [{"zero_stage": 3}, {"zero_stage": 1}, {"strategy": "fsdp"}]
    parts = in_processes(3, [part(way, stop) for way, stop in zip(ways, (16, 24, 32), strict=True)])
    parts += in_processes(2, [part({"zero_stage": 2}, 40)])
    parts.append(in_one(config, tmp_path / "run"))
    assert [each[0][0] for each in parts] == [8, 16, 24, 32, 40], "the report of a checkpoint is made again"
    assert same([*parts[0], *(report for each in parts[1:] for report in each[1:])], undisturbed)


def _stop(report: Any) -> None:
    raise KeyboardInterrupt
