"""A search whose checkpoints are damaged while nobody searches, continued: the trainer behind it, as it ships."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FrozenTrial

from hpsearch.trainer.checkpoint import CHECKPOINT, PREVIOUS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize(("backend_name", "storage_name"), [("optuna", "sqlite")], indirect=True),
]

SPACE: dict[str, Any] = {
    "objective": "lora",
    "metric": "val_loss",
    "parameters": {
        "learning_rate": {"min": 1e-4, "max": 1e-2, "log": True},
        "lora_r": 2,
        "lora_dropout": 0.1,
        "batch_size": 4,
        "max_length": 16,
        "eval_samples": 2,
        "max_samples": 240,
        "eval_every": 4,
    },
    "early_stopping": {"method": "none", "resource": "samples"},
    "budget": {"trials": 2},
    # More threads than free cores wait for each other.
    "execution": {"workers": 1, "retries": 0, "cpus_per_trial": 1},
}
CLOCKED = {"tokens_per_second", "host_memory_mb"}


def told(trial: FrozenTrial) -> Any:
    attrs = {name: value for name, value in trial.user_attrs.items() if name not in CLOCKED}
    return trial.state, trial.params, trial.value, trial.intermediate_values, attrs


def recorded(folder: Path) -> list[dict[str, Any]]:
    """A trial's reports with their metrics, but for those of a clock."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in each.items() if name not in CLOCKED} for each in records]


def test_a_killed_search_with_damaged_checkpoints_is_the_undisturbed_one(command: Any, bench: Any) -> None:
    runs = bench.folder / "runs" / "study"
    search = command(**SPACE)
    for number, damaged in ((0, [CHECKPOINT]), (1, [CHECKPOINT, PREVIOUS])):
        process = search.start()
        metrics = runs / str(number) / "metrics.jsonl"
        search.wait_for(lambda path=metrics: path.exists() and len(path.read_bytes().splitlines()) >= 3)
        process.kill()
        process.communicate()
        search.wait_for(lambda: not list(bench.folder.glob(".*.pid")))  # the guardian has ended the worker
        checkpoints = runs / str(number) / "checkpoint"
        if not (
            checkpoints / CHECKPOINT
        ).exists():  # ended after the old one was renamed, before the new one was
            os.replace(checkpoints / f".{CHECKPOINT}.partial", checkpoints / CHECKPOINT)
        for name in damaged:
            os.truncate(checkpoints / name, (checkpoints / name).stat().st_size - 1)
    bench.search(bench.make_spec(**SPACE))
    found = bench.trials()
    assert [len(trial.intermediate_values) for trial in found] == [60, 60]
    for number, place in ((0, "from the checkpoint before it"), (1, "from the beginning")):
        [line] = (runs / str(number) / "output.log").read_text().splitlines()
        assert line.endswith(f"resuming {place}") and f"{number}/checkpoint/{CHECKPOINT}: " in line

    bench.search(bench.make_spec(name="whole", **SPACE))
    assert [told(trial) for trial in bench.trials("whole")] == [told(trial) for trial in found]
    for number in (0, 1):
        assert recorded(runs / str(number)) == recorded(runs.with_name("whole") / str(number))
