"""What several processes train together has the losses of one, and goes on in any number of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.trainer.config.models import LoraConfig, PretrainConfig
from hpsearch.trainer.errors import ConfigError
from hpsearch.trainer.ranks import ProcessGroup
from hpsearch.trainer.runs.run import fit

from .ranks_of_runs import Asked, in_one, in_processes, same


@given(count=st.integers(1, 9), passes=st.integers(1, 20), rows=st.integers(1, 20))
def test_every_row_of_a_step_is_one_processs_and_all_have_as_much_to_do(
    count: int, passes: int, rows: int
) -> None:
    seen = []
    shapes = set()
    for rank in range(count):
        mine = ProcessGroup(rank, count).passes(passes, rows)
        shapes.add(tuple(rows if share is None else share.rows for _, share in mine))
        for number, share in mine:
            ones = torch.arange(1, rows + 1) + rows * number
            seen += (ones if share is None else share.of(ones)).tolist()
    assert sorted(row for row in seen if row) == list(range(1, passes * rows + 1))
    assert len(shapes) == 1


DROPOUT = {"dropout": 0.1, "width": 8, "depth": 2, "heads": 2}
CASES: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "rows, and none for some": ("pretrain", DROPOUT | {"batch_size": 5, "eval_samples": 9}, ("ddp", "fsdp")),
    "passes, and rows": (
        "pretrain",
        DROPOUT | {"batch_size": 2, "gradient_accumulation_steps": 5, "max_samples": 60, "eval_every": 10},
        ("ddp", "fsdp"),
    ),
    "computed twice": ("pretrain", DROPOUT | {"gradient_checkpointing": True}, ("ddp", "fsdp")),
    "adapters": (
        "lora",
        {"lora_r": 2, "lora_dropout": 0.1, "use_dora": True, "optimizer": "muon"},
        ("ddp", "fsdp"),
    ),
    "all of a base, the best of it": (
        "lora",
        {"finetuning_type": "full", "optimizer": "lion", "early_stopping_patience": 1},
        ("ddp", "fsdp"),
    ),
    "a head": ("lora", {"finetuning_type": "linear", "optimizer": "adafactor"}, ("ddp", "fsdp")),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "cases"), [(2, [*CASES]), (3, ["rows, and none for some", "passes, and rows"])]
)
def test_the_losses_are_those_of_one_process(
    tiny: dict[str, Any], base_file: Path, count: int, cases: list[str]
) -> None:
    asked: Asked = []
    expected = []
    for objective, options, strategies in map(CASES.__getitem__, cases):
        base = {"base": str(base_file)} if objective == "lora" else {}
        params = tiny | base | options
        kind = LoraConfig if objective == "lora" else PretrainConfig
        expected += [in_one(kind.from_params(params))] * len(strategies)
        asked += [{"objective": objective, "params": params, "strategy": each} for each in strategies]
    found = in_processes(count, asked)
    for case, its, one in zip(asked, found, expected, strict=True):
        assert same(its, one), f"{case}:\n{its}\n{one}"


@pytest.mark.slow
def test_a_run_resumes_with_another_number_of_processes(tiny: dict[str, Any], tmp_path: Path) -> None:
    """Stopped under DDP it goes on under FSDP, then in one process; and the other way round."""
    params = tiny | DROPOUT | {"early_stopping_patience": 4}
    config = PretrainConfig.from_params(params)
    undisturbed = in_one(config)

    def stage(strategy: str, folder: str, stop: int) -> dict[str, Any]:
        where = {"folder": str(tmp_path / folder), "stop": stop}
        return {"objective": "pretrain", "params": params, "strategy": strategy} | where

    with pytest.raises(KeyboardInterrupt):
        fit(config, on_report=_stop, checkpoint=tmp_path / "b", resume_from=tmp_path / "b")
    parts = in_processes(2, [stage("ddp", "a", 16), stage("fsdp", "a", 32), stage("fsdp", "b", 48)])
    parts.append(in_one(config, tmp_path / "a"))
    assert [part[0][0] for part in parts] == [8, 16, 8, 32], "the report of a checkpoint is made again"
    assert same([*parts[0], *parts[1][1:], *parts[3][1:]], undisturbed)
    assert same(parts[2], undisturbed)


def _stop(report: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("options", "strategy", "said"),
    [
        ({"torch_compile": True}, "ddp", "torch_compile: found true"),
        ({"finetuning_type": "full", "optimizer": "muon"}, "fsdp", "optimizer: found 'muon'"),
        ({"optimizer": "adafactor"}, "deepspeed", "optimizer: found 'adafactor'"),
        ({"precision": "fp16"}, "deepspeed", "precision: found 'fp16'"),
    ],
)
def test_runs_that_cannot_be_shared_are_refused(
    tiny: dict[str, Any], base_file: Path, options: dict[str, Any], strategy: str, said: str
) -> None:
    config = LoraConfig.from_params(tiny | {"base": str(base_file)} | options)
    with pytest.raises(ConfigError) as caught:
        fit(config, on_report=_stop, ranks=ProcessGroup(0, 2, strategy))
    assert [problem for problem in caught.value.problems if problem.startswith(said)]
