"""Trials of several processes: all ranks of one go its way, and none stays behind."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from hpsearch.search.trials.seeds import derived_seed
from hpsearch.trainer.config.models import PretrainConfig
from hpsearch.trainer.runs.run import fit

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("storage_name", ["sqlite"], indirect=True),
]

RANKED = Path(__file__).with_name("ranked.py")
TWO = {"workers": 1, "processes_per_trial": 2, "cpus_per_trial": 1, "retries": 1}
PRETRAIN: dict[str, Any] = {
    "objective": "pretrain",
    "metric": "val_loss",
    "parameters": {
        "learning_rate": [3e-3, 1e-9],
        "dropout": 0.1,
        "batch_size": 4,
        "width": 16,
        "depth": 2,
        "max_length": 16,
        "eval_samples": 6,
        "max_steps": 9,
        "eval_every": 1,
    },
    "search": {"sampler": "grid"},
    "budget": {"trials": 2},
}


def ranks_in(folder: Path) -> list[psutil.Process]:
    """The processes of workers and their ranks that a search in this folder has started."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            own = process.environ().get("HPSEARCH_SEARCH") and Path(process.cwd()) == folder
            if own and "hpsearch.search.backends.worker" in process.cmdline():
                found.append(process)
    return found


@pytest.mark.parametrize(
    "strategy",
    [
        "ddp",
        pytest.param("fsdp", marks=pytest.mark.any_backend),  # a strategy is the ranks' among themselves
        pytest.param(
            "deepspeed",
            marks=[pytest.mark.extras("deepspeed"), pytest.mark.any_backend],
        ),
    ],
)
def test_trials_are_pruned_in_the_middle_and_have_the_losses_of_one_process(
    bench: Any, strategy: str, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.chdir(bench.folder)
    pruner = {"method": "threshold", "upper": 5.5, "n_warmup_steps": 3, "max": 9}
    spec = bench.make_spec(**PRETRAIN, early_stopping=pruner, execution=TWO | {"strategy": strategy})
    bench.search(spec)
    learned, idle = bench.trials()
    assert (learned.state.name, idle.state.name) == ("COMPLETE", "PRUNED")
    assert list(idle.intermediate_values) == [1, 2, 3]
    params = {name: p.get("value", p) for name, p in spec.to_json()["parameters"].items()}
    config = PretrainConfig.from_params(params | {"learning_rate": 3e-3, "seed": derived_seed(0, "trial", 0)})
    alone: list[float] = []
    fit(config, on_report=lambda report: alone.append(report.value))
    assert list(learned.intermediate_values.values()) == pytest.approx(alone, abs=1e-5)
    assert ranks_in(bench.folder) == []


@pytest.mark.extras("peft")
@pytest.mark.any_backend
def test_adapters_of_hugging_face_have_the_losses_of_one_process(
    bench: Any, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    """Of a step's three passes each process has one, and its part of the rows of the third."""
    from hpsearch.objectives.hf_lora.config import Config
    from hpsearch.objectives.hf_lora.run import HfRun
    from hpsearch.trainer.runs.base import drive, train_to_end

    monkeypatch.chdir(bench.folder)
    params = {"learning_rate": 1e-2, "batch_size": 3, "gradient_accumulation_steps": 3, "max_length": 32}
    params |= {"max_steps": 3, "eval_every": 1, "eval_samples": 5}
    bench.search(
        bench.make_spec(
            objective="hf_lora",
            metric="val_loss",
            parameters=params | {"learning_rate": [1e-2]},
            early_stopping={"method": "none"},
            budget={"trials": 1},
            execution=TWO,
        )
    )
    (trial,) = bench.trials()
    alone: list[float] = []
    run = HfRun(Config.from_params(params | {"seed": derived_seed(0, "trial", 0)}))
    train_to_end(run, drive(run, on_report=lambda report: alone.append(report.value)))
    assert list(trial.intermediate_values.values()) == pytest.approx(alone, abs=1e-5)
    assert ranks_in(bench.folder) == []


@pytest.mark.any_backend
def test_a_rank_that_fails_ends_its_trial_alone(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 waits for it in a collective meanwhile, and no other trial has any part in it."""
    monkeypatch.chdir(bench.folder)
    faults = ["none", "SIGKILL", "memory", "exception"]
    spec = bench.make_spec(
        objective=f"{RANKED}:ranked",
        parameters={"fault": faults, "reports": "all", "x": 0.5, "folder": str(bench.folder)},
        search={"sampler": "grid"},
        execution=TWO,
    )
    bench.search(spec)
    trials = {t.params["fault"]: t for t in bench.trials()}
    assert {fault: t.state.name for fault, t in trials.items()} == {
        "none": "COMPLETE",
        "SIGKILL": "COMPLETE",
        "memory": "PRUNED",
        "exception": "COMPLETE",
    }
    for fault in ("none", "SIGKILL", "exception"):
        values = trials[fault].intermediate_values
        assert values == {step: 0.5 + 1 / step for step in range(1, 10)}, "those of rank 0, each once"
        begins = [note["begins"] for note in bench.notes(trials[fault].number) if note["rank"] == 1]
        assert begins == ([0] if fault == "none" else [0, 4]), "all ranks go on from the checkpoint"
    told = {fault: t.user_attrs.get("error") for fault, t in trials.items()}
    assert told["SIGKILL"] == "rank 1 was killed by SIGKILL; the machine may have run out of memory"
    assert told["exception"] == "rank 1: ValueError: bad luck"
    assert told["none"] is None
    assert trials["memory"].user_attrs["reason"] == "out of memory: rank 1: MemoryError: no more of it"
    assert ranks_in(bench.folder) == []


@pytest.mark.any_backend
def test_ranks_that_do_not_report_are_ended_with_the_trial(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait in a collective for rank 0, which has left; gloo tells them, and they have the next trial."""
    monkeypatch.chdir(bench.folder)
    spec = bench.make_spec(
        objective=f"{RANKED}:ranked",
        parameters={"fault": "none", "reports": "first", "x": [5.0, 5.1, 0.5], "folder": str(bench.folder)},
        search={"sampler": "grid"},
        early_stopping={"method": "threshold", "upper": 4.0, "n_warmup_steps": 3, "max": 9},
        budget={"trials": 3},
        execution=TWO,
    )
    bench.search(spec)
    assert sorted(bench.states()) == ["COMPLETE", "PRUNED", "PRUNED"]
    assert len({note["pid"] for number in range(3) for note in bench.notes(number)}) == 2
    assert ranks_in(bench.folder) == []


@pytest.mark.any_backend
def test_a_script_runs_in_all_ranks_and_resumes_after_one_is_killed(bench: Any) -> None:
    spec = bench.make_spec(
        objective={"command": ["python", str(RANKED), "${x}"]},
        parameters={"x": [5.0, 0.6]},
        search={"sampler": "grid"},
        early_stopping={"method": "threshold", "upper": 4.0, "n_warmup_steps": 5, "max": 9},
        budget={"trials": 2},
        execution=TWO,
    )
    bench.search(spec)
    trials = bench.trials()
    assert [t.state.name for t in trials] == ["PRUNED", "COMPLETE"]
    assert ["error" in t.user_attrs for t in trials] == [False, True]
    told = f"{sys.executable}, rank 1, was killed by SIGKILL"
    assert told in trials[1].user_attrs["error"]
    for trial in trials:
        steps = range(1, 6 if trial.state.name == "PRUNED" else 10)
        assert trial.intermediate_values == {step: trial.params["x"] + 2 / step for step in steps}
    here = [p for p in psutil.process_iter() if _runs(p, str(RANKED))]
    assert here == []


def _runs(process: psutil.Process, path: str) -> bool:
    with suppress(psutil.Error):
        return path in process.cmdline()
    return False


@pytest.mark.any_backend
def test_a_stopped_or_killed_search_leaves_nothing_and_continues_exactly(
    command: Any, bench: Any, recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.folder)
    fields = PRETRAIN | {"budget": {"trials": 1}, "execution": TWO}
    fields["parameters"] = PRETRAIN["parameters"] | {"learning_rate": [3e-3], "max_steps": 24}
    search = command(**fields)
    metrics = bench.folder / "runs" / "study" / "0" / "metrics.jsonl"

    def reports() -> int:
        return len(metrics.read_bytes().splitlines()) if metrics.exists() else 0

    def stop(driver: Any) -> None:
        if reports() > 3:
            driver.request_stop("enough")

    bench.search(bench.make_spec(**fields), watcher=recorder(at_tick=stop))
    assert bench.states() == ["WAITING"] and ranks_in(bench.folder) == []
    before = reports()
    process = search.start()
    search.wait_for(lambda: reports() > before + 3)
    processes = ranks_in(bench.folder)
    assert len(processes) == 2
    process.kill()
    process.communicate()
    search.wait_for(lambda: not any(map(psutil.Process.is_running, processes)))
    search.wait_for(lambda: bench.states() == ["WAITING"])
    bench.search(bench.make_spec(**fields))
    assert bench.states() == ["COMPLETE"]
    bench.search(bench.make_spec(**fields, name="undisturbed"))
    ours, theirs = bench.trials()[0], bench.trials("undisturbed")[0]
    assert ours.intermediate_values == theirs.intermediate_values
