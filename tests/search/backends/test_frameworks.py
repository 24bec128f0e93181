"""The spaces of other libraries, as they ship: a search on each backend, and its winner trained again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hpsearch.objectives.catalog import BUILT_IN
from hpsearch.search.training.run import train
from hpsearch.search.trials.document import load_document
from hpsearch.search.trials.export import document, render
from hpsearch.spaces import load

TRIALS = 5  # of which the first rung promotes one
ON_TENSORFLOW = os.environ.get("KERAS_BACKEND") == "tensorflow"  # which not every run of CI installs


@pytest.mark.slow
@pytest.mark.any_storage
@pytest.mark.parametrize(
    ("name", "model"),
    [
        pytest.param("xgboost", "model.ubj", marks=pytest.mark.any_backend),
        ("lightgbm", "model.txt"),
        pytest.param("sklearn", "model.skops", marks=pytest.mark.any_backend),
        pytest.param("catboost", "model.cbm", marks=pytest.mark.extras),
        pytest.param(
            "keras",
            "model.keras",
            marks=[pytest.mark.any_backend, *[pytest.mark.extras] * ON_TENSORFLOW],
        ),
        pytest.param("hf_lora", "adapter_model.safetensors", marks=pytest.mark.extras),
    ],
)
def test_the_shipped_space_prunes_and_its_winner_can_be_trained(
    name: str, model: str, bench: Any, tmp_path: Path
) -> None:
    if missing := BUILT_IN[name].missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    spec = load(name).override(budget={"trials": TRIALS}, execution={"workers": 1, "cpus_per_trial": 1})
    result = bench.run(spec)
    trials = bench.trials(name)
    states = [trial.state.name for trial in trials]
    assert len(states) == TRIALS and set(states) == {"COMPLETE", "PRUNED"}
    stopping: Any = spec.early_stopping
    for trial in trials:
        assert all(step % stopping.min == 0 for step in trial.intermediate_values)
        assert (max(trial.intermediate_values) == stopping.max) == (trial.state.name == "COMPLETE")
    best = result.best_trial
    assert best is not None
    file = tmp_path / "best.yaml"
    file.write_text(render(document(spec, best, result.provenance), "yaml"))
    summary = train(load_document(file), tmp_path / "trained")
    assert summary.value == best.value and summary.reproduced
    assert model in summary.files and (tmp_path / "trained" / model).stat().st_size > 0
