"""Trials that train together in one worker end as each would alone, whatever happens to the others."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import optuna
import psutil
import pytest
import sqlalchemy
from filelock import FileLock
from optuna.trial import FrozenTrial

from hpsearch.search.backends.packing import pack_size
from hpsearch.search.backends.resources import WorkerShare
from hpsearch.search.backends.worker import process
from hpsearch.search.backends.worker.process import Worker
from hpsearch.search.engine.commands import killed
from hpsearch.search.errors import UsageError
from hpsearch.search.trials.records import usage_of
from hpsearch.spaces import Spec
from hpsearch.storage.commands import COMMAND_PREFIX

from ...support.watchers import Recorder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("storage_name", ["sqlite"], indirect=True),
]

TRIALS = 5
SPACE: dict[str, Any] = {
    "objective": "lora",
    "metric": "val_loss",
    "parameters": {
        "learning_rate": {"min": 1e-4, "max": 1e-2, "log": True},
        "lora_r": [2, 8, 16],
        "lora_dropout": [0.0, 0.1],
        "batch_size": [2, 4],
        "max_length": 16,
        "eval_samples": 4,
        "max_samples": 120,
        "eval_every": 8,
    },
    "search": {"sampler": "random", "seed": 3},
    "early_stopping": {"method": "none", "resource": "samples"},
    "budget": {"trials": TRIALS},
}
CLOCKED = {"tokens_per_second", "host_memory_mb", "retries", "reason", "error"}


def packed(size: int | str, **execution: Any) -> dict[str, Any]:
    cores = {"workers": 1, "cpus_per_trial": 1, "retries": 1}
    return SPACE | {"execution": cores | {"pack": size} | execution}


def told(trial: FrozenTrial) -> Any:
    attrs = {name: value for name, value in trial.user_attrs.items() if name not in CLOCKED}
    return trial.state.name, trial.params, trial.value, trial.intermediate_values, attrs


@pytest.fixture
def alone(bench: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What the trials are when they train one at a time: for all tests the same, on whichever backend.

    They train once for all processes that run these tests.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    url = f"sqlite:///{folder / 'alone.db'}"
    with FileLock(folder / "alone.lock"):
        bench.run(bench.make_spec(name="alone", **packed(1)), backend="optuna", storage=url)
    storage = optuna.storages.RDBStorage(url, engine_kwargs={"poolclass": sqlalchemy.NullPool})
    return [told(trial) for trial in optuna.load_study(study_name="alone", storage=storage).trials]


def workers_of(pid: int) -> list[int]:
    """The worker processes below a search's, and below its Ray's."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # nor a zombie, which is one
            if "hpsearch.search.backends.worker" in child.cmdline():
                found.append(child.pid)
    return found


def test_packs_of_a_search_are_its_trials_alone(bench: Any, alone: list[Any]) -> None:
    together: set[int] = set()

    watcher = Recorder(at_tick=lambda driver: together.add(len(driver.running)))
    began = time.monotonic()
    bench.search(bench.make_spec(**packed(2, workers=2, cpus_per_trial=0.5)), watcher=watcher)
    lasted = time.monotonic() - began
    assert [told(trial) for trial in bench.trials()] == alone
    used = [usage_of(trial) for trial in bench.trials()]
    assert 0 < sum(each.seconds or 0.0 for each in used if each) < 2 * lasted, "four trials share two workers"
    assert max(together) == 4


@pytest.mark.any_backend  # for Ray a trial alone is a pack of one: its kills are in the contract and the faults
def test_kills_of_worker_and_driver_cost_a_packed_search_nothing(
    bench: Any, command: Any, alone: list[Any]
) -> None:
    search = command(**packed(3))
    process = search.start()
    runs = bench.folder / "runs" / "study"

    def reported(number: int, lines: int) -> bool:
        path = runs / str(number) / "metrics.jsonl"
        return path.exists() and len(path.read_bytes().splitlines()) >= lines

    search.wait_for(lambda: reported(1, 3))
    [worker] = workers_of(process.pid)
    os.kill(worker, signal.SIGSTOP)  # or more of its trials might end meanwhile
    training = {number for number in range(3) if not reported(number, 15)}
    os.kill(worker, signal.SIGKILL)  # it is started again, and its trials with it
    search.wait_for(lambda: reported(3, 2))
    process.kill()
    process.communicate()
    bench.search(bench.make_spec(**packed(3)))
    assert [told(trial) for trial in bench.trials()] == alone
    assert 1 in training
    assert training <= {t.number for t in bench.trials() if "retries" in t.user_attrs} <= {0, 1, 2}


def test_a_trial_that_is_killed_takes_no_other_along(bench: Any, recorder: Any, alone: list[Any]) -> None:
    workers: set[int] = set()
    asked: list[str] = []

    def kill(driver: Any) -> None:
        if not asked and 1 in driver.running and driver.running[1].reported:
            asked.append(f"{COMMAND_PREFIX}1")
            study = optuna.load_study(study_name="study", storage=bench.url)
            study.set_user_attr(asked[0], {"do": "kill", "trial": 1})
        workers.update(workers_of(os.getpid()))

    bench.search(bench.make_spec(**packed(3)), watcher=recorder(at_tick=kill))
    found = bench.trials()
    assert found[1].state.name == "FAIL" and found[1].user_attrs["reason"] == killed().reason
    assert [told(t) for t in found if t.number != 1] == [a for n, a in enumerate(alone) if n != 1]
    assert len(workers) == 1, "and its worker stays"


@pytest.mark.any_backend
def test_a_trial_that_takes_too_long_leaves_its_pack(
    bench: Any, recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And tries again at once, in a place that is free: its worker may not have heard of it yet.

    The clock of its limit stands still until the others have ended, however long these take.
    """
    ended: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() - ended[0] if ended else 0.0)
    monkeypatch.setattr(process, "time", clock)

    def look(driver: Any) -> None:
        others = [t for t in driver.trials if t.params["max_samples"] == 120]
        if not ended and len(driver.trials) == 3 and all(t.state.is_finished() for t in others):
            ended.append(time.monotonic())

    space = packed(4, trial_timeout="2s", retries=1) | {"budget": {"trials": 3}}
    long = SPACE["parameters"] | {"max_samples": [120, 10**6], "eval_every": 8}
    bench.search(bench.make_spec(**space | {"parameters": long}), watcher=recorder(at_tick=look))
    assert {t.params["max_samples"] for t in bench.trials()} == {120, 10**6}
    for trial in bench.trials():
        late = trial.params["max_samples"] > 120
        assert trial.state.name == ("FAIL" if late else "COMPLETE")
        assert trial.user_attrs.get("reason") == ("the trial ran longer than 2 s" if late else None)
        assert trial.user_attrs.get("retries", 0) == late


@pytest.mark.any_backend
def test_a_faulty_trial_does_not_harm_its_pack(bench: Any) -> None:
    """One diverges, one cannot begin, and the others do not notice."""
    parameters = SPACE["parameters"] | {
        "learning_rate": [1e-3, 1e30],
        "max_grad_norm": 0.0,
        "max_length": [
            16,
            200,
            201,
        ],  # two kinds of failures: a search that begins with three alike would end
    }
    space = packed(4, retries=0) | {"parameters": parameters, "search": {"sampler": "random", "seed": 5}}
    space |= {"budget": {"trials": 6}}
    bench.search(bench.make_spec(**space))
    for trial in bench.trials():
        if trial.params["max_length"] > 128:
            assert trial.state.name == "FAIL" and "the base was made for 128" in trial.user_attrs["reason"]
        elif trial.params["learning_rate"] > 1:
            assert trial.state.name != "COMPLETE" and "diverged" in trial.user_attrs["reason"]
        else:
            assert trial.state.name == "COMPLETE" and trial.value < 2
    assert len({t.state.name for t in bench.trials()}) > 1


@pytest.mark.ray
@pytest.mark.parametrize("backend_name", ["ray"], indirect=True)
def test_an_actor_that_is_killed_costs_each_of_its_trials_an_attempt(
    bench: Any, recorder: Any, alone: list[Any]
) -> None:
    killed: list[int] = []

    def kill(driver: Any) -> None:
        if not killed and all(n in driver.running and driver.running[n].reported for n in (0, 1, 2)):
            [worker] = workers_of(os.getpid())
            killed.append(psutil.Process(worker).ppid())
            os.kill(killed[0], signal.SIGKILL)

    bench.search(bench.make_spec(**packed(3)), watcher=recorder(at_tick=kill))
    assert [told(trial) for trial in bench.trials()] == alone
    tried_again = {t.number: t.user_attrs["error"] for t in bench.trials() if "retries" in t.user_attrs}
    assert set(tried_again) == {0, 1, 2} and all("Ray actor died" in e for e in tried_again.values())


@pytest.mark.any_backend  # that a pause reaches Ray's actors is among the faults
def test_a_pause_leaves_the_machine_and_costs_nothing(bench: Any, recorder: Any, alone: list[Any]) -> None:
    left: list[int] = []

    def pause(driver: Any) -> None:
        if not driver.paused and not left and any(each.reported for each in driver.running.values()):
            driver.pause()
        elif driver.paused and not driver.running and not workers_of(os.getpid()):
            left.append(driver.finished)
            driver.resume()

    bench.search(bench.make_spec(**packed(3)), watcher=recorder(at_tick=pause))
    assert left and left[0] < TRIALS
    assert [told(trial) for trial in bench.trials()] == alone


@pytest.mark.any_backend
def test_auto_measures_and_says_what_it_took(bench: Any, recorder: Any) -> None:
    watcher = recorder()
    bench.search(bench.make_spec(**packed("auto") | {"budget": {"trials": 2}}), watcher=watcher)
    [said] = [line for line in watcher.said if "each worker trains" in line]
    assert "measured" in said
    assert bench.states() == ["COMPLETE"] * 2


@pytest.mark.any_backend
@pytest.mark.parametrize("alone", [{"finetuning_type": "full"}, {"torch_compile": True}])
def test_auto_does_not_measure_what_trains_alone(bench: Any, alone: dict[str, Any]) -> None:
    spec: Spec = bench.make_spec(**packed("auto") | {"parameters": SPACE["parameters"] | alone})
    told = "each worker trains one trial at a time: their computation cannot be shared"
    assert pack_size(spec, WorkerShare(1, 1.0, 0.0, None), 16 << 30) == (1, told)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("seconds", "taken"),
    [
        ({"2": 8.8, "4": 9.6}, 1),  # slower than one at a time
        ({"2": 7.7, "4": 8.0}, 1),  # faster by less than machines differ from minute to minute
        ({"2": 7.0, "4": 8.8}, 2),
    ],
)
def test_a_pack_that_is_not_clearly_faster_is_not_taken(
    bench: Any, monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], taken: int
) -> None:
    measured = {"seconds": {"1": 8.0} | seconds, "memory_mb": dict.fromkeys(["1", *seconds], 300.0)}
    monkeypatch.setattr("hpsearch.search.backends.packing._measured", lambda configs, sizes, share: measured)
    size, told = pack_size(bench.make_spec(**packed("auto")), WorkerShare(1, 1.0, 0.0, None), 16 << 30)
    assert size == taken
    assert told is not None and ("measured to be no faster" in told) == (taken == 1)


@pytest.mark.any_backend
def test_a_pack_that_does_not_fit_into_memory_is_not_taken(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    peaks = {"1": 300.0, "2": 400.0, "4": 500.0, "8": 1e9}
    seconds = {"1": 8.0, "2": 5.0, "4": 4.0, "8": 1.0}
    measured = {"seconds": seconds, "memory_mb": peaks}
    monkeypatch.setattr("hpsearch.search.backends.packing._measured", lambda configs, sizes, share: measured)

    def size(workers: int, **execution: Any) -> int:
        spec: Spec = bench.make_spec(**packed("auto", **execution))
        return pack_size(spec, WorkerShare(workers, 1.0, 0.0, None), 16 << 30)[0]

    assert (size(1), size(1, max_memory="4GiB"), size(2, max_memory="4GiB")) == (4, 4, 2)
    assert (size(40), size(1, max_memory="9GiB")) == (2, 1)


@pytest.mark.any_backend
def test_a_gpu_has_room_for_larger_packs(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[int]] = []
    seconds = {"1": 64.0, "2": 32.0, "4": 16.0, "8": 8.0, "16": 4.0, "32": 2.0}

    def measured(configs: Sequence[Any], sizes: Sequence[int], share: WorkerShare) -> dict[str, Any]:
        asked.append(sizes)
        assert len(configs) == sizes[-1]
        return {"seconds": seconds, "memory_mb": dict.fromkeys(seconds, 300.0)}

    monkeypatch.setattr("hpsearch.search.backends.packing._measured", measured)
    spec: Spec = bench.make_spec(**packed("auto"))
    with_gpu = WorkerShare(1, 1.0, 1.0, None)
    assert pack_size(spec, with_gpu, 16 << 30)[0] == 32
    assert pack_size(spec, WorkerShare(1, 1.0, 0.0, None), 16 << 30)[0] == 8
    assert [list(sizes) for sizes in asked] == [[1, 2, 4, 8, 16, 32], [1, 2, 4, 8]]
    del seconds["16"], seconds["32"]  # it has too little memory for so many
    assert pack_size(spec, with_gpu, 16 << 30)[0] == 8
    seconds.clear()
    assert "some trials need all the memory of a GPU" in (pack_size(spec, with_gpu, 16 << 30)[1] or "")


@pytest.fixture
def unforeseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows beforehand what trials take of memory, or none of these would begin."""
    monkeypatch.setattr("hpsearch.search.preflight.memory.MemoryModel.of", lambda *args: None)


@pytest.mark.usefixtures("unforeseen")
def test_a_pack_that_takes_too_much_memory_becomes_smaller_until_one_trial_is_to_blame(
    bench: Any, recorder: Any
) -> None:
    watcher = recorder()
    bench.search(
        bench.make_spec(**packed(4, max_memory="50MiB") | {"budget": {"trials": 4}}), watcher=watcher
    )
    sizes = [re.search(r"each worker trains (\d) at a time", line) for line in watcher.said]
    assert [int(size[1]) for size in sizes if size] == [2, 1]
    for trial in bench.trials():
        assert trial.state.name == "PRUNED" and "retries" not in trial.user_attrs
        assert re.match(
            r"out of memory: the trial took \S+ MiB, max_memory is 50 MiB", trial.user_attrs["reason"]
        )


@pytest.mark.usefixtures("unforeseen")
@pytest.mark.parametrize("backend_name", ["optuna"], indirect=True)
def test_trials_that_are_too_many_for_the_memory_lose_nothing(
    bench: Any, alone: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "memory", lambda self: len(self.numbers) ** 2 << 26)
    bench.search(bench.make_spec(**packed(4, max_memory="64MiB", retries=0)))
    assert [told(trial) for trial in bench.trials()] == alone


def test_what_cannot_be_packed_is_refused(bench: Any) -> None:
    with pytest.raises(UsageError, match=r"execution.pack: found 4, but only trials of the objective lora"):
        bench.search("descend", execution={"pack": 4})
    assert bench.untouched()
