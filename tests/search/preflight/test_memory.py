"""What does not fit into a trial's memory is left out before a trial exists, and what ran out of it teaches."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FrozenTrial

from hpsearch.search.backends.resources import Room, WorkerShare, room_for, share, this_machine
from hpsearch.search.engine.driver import Driver
from hpsearch.search.engine.running import Failure
from hpsearch.search.errors import SearchError, UsageError
from hpsearch.search.preflight.memory import (
    OWN_BYTES,
    SAFETY,
    SCALE,
    MemoryLine,
    MemoryModel,
    expected_memory,
)
from hpsearch.search.trials.configuration import config_of
from hpsearch.spaces import SpaceError, Spec
from hpsearch.spaces.samplers import SAMPLERS
from hpsearch.spaces.settings import Execution
from hpsearch.storage.studies import MEMORY

from ...support.driving import DrivenStudy
from ...support.watchers import Recorder

MODELS = {
    "objective": "pretrain",
    "metric": "val_loss",
    "parameters": {
        "batch_size": [1, 8, 64],
        "width": {"min": 16, "max": 256, "step": 16},
        "depth": {"min": 1, "max": 6},
        "max_steps": 3,
        "eval_every": 1,
        "eval_samples": 4,
        "max_length": 64,
        "train_file": "english",
    },
}
MEASURED = {"own": 300e6, "scale": 1.5}
FULL = Failure("memory", "it is full")


def room(megabytes: float) -> Room:
    return Room(round(megabytes * 1e6), "host", "a trial may take so much")


def limited_driver(study: DrivenStudy, spec: Spec, memory: MemoryModel) -> Driver:
    """A driver whose space has no configuration that does not fit."""
    return study.driver(spec.limited(memory.problem), memory=memory)


@pytest.fixture
def models(make_spec: Any) -> Spec:
    found: Spec = make_spec(**MODELS, baseline={"batch_size": 1, "width": 16, "depth": 1}, confirm={"top": 0})
    return found


def peaks(memory: MemoryModel, spec: Spec, trials: Sequence[FrozenTrial]) -> list[float]:
    return [memory.peak(config_of(spec, trial)) or 0.0 for trial in trials]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_no_sampler_proposes_what_does_not_fit(study: DrivenStudy, models: Spec, sampler: str) -> None:
    search = {"sampler": sampler, "seed": 3}
    parameters: dict[str, Any] = {"batch_size": {"min": 1, "max": 64}} if sampler == "cmaes" else {}
    spec = models.override(search=search, budget={"trials": 14}, parameters=parameters)
    memory = MemoryModel(spec, room(370), MEASURED)
    driver = limited_driver(study, spec, memory)
    while (given := driver.ask()) is not None:
        driver.complete(given.number, given.params["width"])
    driver.close()
    found = peaks(memory, spec, driver.trials)
    assert len(found) == 14
    assert SAFETY * max(found) <= 370e6
    assert memory.expected().fitting < 0.6, "or it would show nothing"


def test_a_grid_is_as_long_as_what_fits(models: Spec) -> None:
    spec = models.override(search={"sampler": "grid"})
    memory = MemoryModel(spec, room(370), MEASURED)
    fitting = [config for config in spec.space.grid() if memory.problem(config) is None]
    limited = spec.limited(memory.problem).space
    assert (list(limited.grid()), limited.grid_size) == (fitting, len(fitting))
    assert 0 < len(fitting) < (spec.space.grid_size or 0)
    assert limited.feasible_share() == pytest.approx(len(fitting) / (spec.space.grid_size or 1), abs=0.05)


def test_a_space_far_below_its_limit_is_not_measured(models: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryModel, "measured", None)
    memory = MemoryModel(models, room(1e6))
    said: list[str] = []
    assert memory.measure(1, said.append) is None and not said
    assert (memory.line, memory.exclusion(), memory.to_json()) == (None, None, None)
    memory.check(begins=True)
    assert memory.problem(models.space.corners()[-1]) is None


def test_a_configuration_that_does_not_fit_is_reported_and_refused(models: Spec) -> None:
    assert re.fullmatch(
        r"\d\d% of the space does not fit and is left out: it takes up to \S+ [MG]iB of memory; "
        "a trial may take so much",
        MemoryModel(models, room(370), MEASURED).exclusion() or "",
    )
    with pytest.raises(
        UsageError, match="no configuration of the space fits: the smallest may come to take 31"
    ):
        MemoryModel(models, room(200), MEASURED).check(begins=False)
    large = models.override(baseline={"batch_size": 64, "width": 256, "depth": 6})
    MemoryModel(large, room(430), MEASURED).check(begins=False)
    with pytest.raises(
        SpaceError, match=r"may come to take .* a trial may take so much; halve batch_size"
    ) as caught:
        MemoryModel(large, room(430), MEASURED).check(begins=True)
    assert [issue.path for issue in caught.value.issues] == ["baseline"]


@pytest.mark.parametrize("changes", [{"objective": "file.py:f"}, {"objective": {"command": ["true"]}}])
def test_of_an_objective_of_the_users_nothing_is_known(models: Spec, changes: dict[str, Any]) -> None:
    assert MemoryModel.of(models, room(1)) is not None
    assert MemoryModel.of(models.override(**changes), room(1)) is None


def program(folder: Path, commands: str) -> str:
    """A program in the place of Python that does something else."""
    file = folder / "python"
    file.write_text(f"#!/bin/sh\n{commands}\n")
    file.chmod(0o700)
    return str(file)


def test_a_measurement_that_fails_leaves_nothing_out(
    models: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", program(tmp_path, "echo DataError: no such file >&2; exit 1"))
    memory = MemoryModel(models, room(400))
    told = "the memory of trials cannot be measured (DataError: no such file), so none is left out for it"
    said: list[str] = []
    assert memory.measure(1, said.append) == told
    assert said == ["trials may come near the memory limit: measuring what they take"]
    assert memory.problem(models.space.corners()[-1]) is None


def test_a_measurement_takes_a_part_of_the_time_of_a_search(
    models: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", program(tmp_path, "exec sleep 60"))
    memory = MemoryModel(models.override(budget={"time": 2}), room(400))
    failed = memory.measure(1, lambda message: None) or ""
    assert "three steps took longer than 0.2 s" in failed


def test_what_ran_out_of_memory_is_left_out_with_all_that_takes_more(
    study: DrivenStudy, models: Spec
) -> None:
    spec = models.override(search={"sampler": "random", "seed": 1}, budget={"trials": 30})

    def counted(memory: MemoryModel, trials: Sequence[FrozenTrial]) -> list[float]:
        return peaks(memory, spec, trials)

    memory = MemoryModel(spec, room(1e6))
    driver = limited_driver(study, spec, memory)
    over = None
    while (given := driver.ask()) is not None and len(driver.trials) < 20:
        peak = memory.peak(given.params) or 0.0
        if over is None and peak > 330e6:
            over = given.number
            driver.fail(given.number, FULL)
        else:
            driver.complete(given.number, 1.0)
    assert given is not None and over is not None
    driver.close()
    found = counted(memory, driver.trials)
    assert len(found) == 20 and max(found[over + 1 :]) < found[over]
    (said,) = (line for line in study.watcher.said if "ran out of memory" in line)
    assert said.startswith(f"trial {over} ran out of memory, although it should have taken about ")

    again = MemoryModel(spec, room(1e6))  # which knows nothing but the study
    driver = limited_driver(study, spec, again)
    while (given := driver.ask()) is not None:
        driver.complete(given.number, 1.0)
    driver.close()
    found = counted(again, driver.trials)
    assert len(found) == 30 and max(found[over + 1 :]) < found[over]


def test_memory_that_was_short_for_another_reason_teaches_nothing(study: DrivenStudy, models: Spec) -> None:
    spec = models.override(search={"sampler": "random", "seed": 1})
    memory = MemoryModel(spec, room(1e6))
    driver = limited_driver(study, spec, memory)
    first, second = driver.ask(), driver.ask()
    assert first is not None and second is not None
    assert (memory.peak(first.params) or 0.0) < (memory.peak(second.params) or 0.0)
    driver.complete(second.number, 1.0)
    driver.fail(first.number, FULL)
    assert memory.learn(driver.trials) is None
    assert memory.problem(first.params) is None
    driver.close()


@pytest.mark.parametrize(
    ("execution", "share", "expected"),
    [
        ({"max_memory": "1GiB"}, WorkerShare(4, 1.0, 0.0, None), 1 << 30),
        ({"max_memory": "1GiB", "pack": 4}, WorkerShare(1, 1.0, 0.0, None), 1 << 30),
        ({}, WorkerShare(4, 1.0, 0.0, None), (24 << 30) // 4),
        ({"pack": 2}, WorkerShare(3, 1.0, 0.0, None), (24 << 30) // 6),
        ({"pack": "auto"}, WorkerShare(3, 1.0, 0.0, None), (24 << 30) // 3),
        ({}, WorkerShare(3, 1.0, 2.0, None), 80 << 30),
        ({"max_memory": "1GiB", "pack": 2}, WorkerShare(8, 1.0, 0.25, None), 10 << 30),
    ],
)
def test_the_memory_of_a_trial_is_what_it_may_take_or_its_share(
    execution: dict[str, Any], share: WorkerShare, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpsearch.search.backends.resources.gpu_memory", lambda: 80 << 30)
    whole = type("Memory", (), {"total": 24 << 30})
    monkeypatch.setattr("psutil.virtual_memory", lambda: whole)
    found = room_for(Execution.model_validate(execution), share)
    assert found is not None and found.limit == expected
    assert found.kind == ("device" if share.gpus else "host")


def test_the_memory_of_an_undescribed_gpu_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert room_for(Execution(), WorkerShare(1, 1.0, 1.0, None)) is None


def test_a_process_takes_what_is_counted_times_a_scale_and_its_own() -> None:
    assert MemoryLine(1.0, 2.0).at(3) == 7.0
    assert MemoryLine() == MemoryLine(OWN_BYTES, SCALE)


def loaded_bytes() -> int:
    """What a process takes that has done nothing but load torch: with CUDA more than twice as much as without."""
    code = "import psutil, torch; print(psutil.Process().memory_info().rss)"
    return int(
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    )


@pytest.mark.any_backend
@pytest.mark.any_storage
@pytest.mark.slow
def test_a_search_with_too_large_configurations_runs_out_of_memory_nowhere(
    bench: Any, models: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = f"{loaded_bytes() + 140_000_000}B"
    spec = models.override(execution={"workers": 1, "max_memory": limit}, budget={"trials": 4})
    result = bench.run(spec)
    assert bench.states() == ["COMPLETE"] * 4
    kept = result.study.user_attrs[MEMORY]
    memory = MemoryModel(spec, None, kept)
    assert memory.expected().largest > 600e6
    actual = max(trial.user_attrs["host_memory_mb"] for trial in bench.trials())
    assert max(peaks(memory, spec, bench.trials())) == pytest.approx(actual * 1e6, rel=0.15)

    def twice(self: MemoryModel, threads: int, seconds: float) -> MemoryLine:
        raise SearchError("it was measured already")

    monkeypatch.setattr(MemoryModel, "measured", twice)
    watcher = Recorder()
    bench.run(spec.override(budget={"trials": 5}), watcher=watcher)
    assert bench.states() == ["COMPLETE"] * 5
    assert not any("measured" in line for line in watcher.said)
    with pytest.raises(UsageError, match="no configuration of the space fits"):
        bench.run(spec.override(budget={"trials": 6}, execution={"max_memory": "100MiB"}))


def test_a_plan_is_refused_as_its_search_is(models: Spec) -> None:
    small = models.override(execution={"workers": 1, "max_memory": "100MiB"})
    here = share(small.execution, [this_machine()], "this machine")
    with pytest.raises(UsageError, match="no configuration of the space fits"):
        expected_memory(small, here)
