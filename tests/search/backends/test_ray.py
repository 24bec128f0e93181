"""What is Ray's alone: its quiet, its lost actors, its way in and out of a study that Optuna ran."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray._common.utils import get_default_ray_temp_dir
from ray._private.state import jobs
from ray.air.execution.resources import placement_group
from ray.air.execution.resources.request import ResourceRequest
from ray.util import placement_group_table

from hpsearch.search import run
from hpsearch.search.backends.ray import backend, cluster, failures
from hpsearch.search.backends.ray.cluster import open_ports
from hpsearch.search.backends.ray.placement import pending_places_kept
from hpsearch.search.backends.resources import Node
from hpsearch.search.engine.driver import Driver
from hpsearch.search.errors import SearchError, UsageError

pytestmark = pytest.mark.ray

POINTS = [0.2, 0.1, 0.0, 5.0, 6.0, 7.0]  # each of the first three is the best so far


@pytest.fixture
def backend_name() -> str:
    return "ray"


@pytest.fixture
def storage_name() -> str:
    return "sqlite"


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder whose path leaves room for the names of Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        yield Path(folder)


@pytest.mark.slow
def test_a_search_says_and_leaves_nothing_that_is_not_ours(
    bench: Any, command: Any, temporary: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    search = command("descend", budget={"trials": 4}, execution={"workers": 2})
    home = tmp_path_factory.mktemp("home")
    process = search.start(env={"TMPDIR": str(temporary), "HOME": str(home), "RAY_ADDRESS": "10.9.8.7:6379"})
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    ours = (
        "trial ",
        "best ",
        "  x: ",
        "  folder: ",
        "the space has no baseline",
        "next:",
        "each trial runs ",
        "  hpsearch ",
    )
    assert [line for line in output.splitlines() if not line.startswith(ours)] == []
    assert len([line for line in output.splitlines() if line.startswith("trial ")]) == 4
    assert list(temporary.iterdir()) == list(home.iterdir()) == []
    theirs = Path(get_default_ray_temp_dir())  # type: ignore[no-untyped-call]
    assert not theirs.exists() or not list(theirs.glob(f"session_*_{process.pid}"))
    notes = {f"{number}.jsonl" for number in range(4)}
    made = {path.name for path in bench.folder.iterdir() if path.suffix != ".lock"}
    assert made == notes | {"runs", "space.yaml", "studies.db"}
    everybody = partial(psutil.process_iter, ["cmdline"])  # which is None of a zombie
    search.wait_for(lambda: not [p for p in everybody() if str(temporary) in str(p.info["cmdline"])])


def test_an_actor_that_is_killed_costs_its_trial_an_attempt(bench: Any, recorder: Any) -> None:
    killed: list[int] = []
    loaded: list[str] = []

    def kill(driver: Any) -> None:
        running = driver.running.get(1)
        if running is None or running.reported < 2 or killed:
            return
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # it has just ended
                if "hpsearch.search.backends.worker" in process.cmdline():
                    killed.append(process.ppid())
        loaded.append(Path(f"/proc/{killed[0]}/maps").read_text())
        os.kill(killed[0], 9)

    fields = {"budget": {"trials": 3}, "execution": {"workers": 1, "retries": 1}}
    bench.search("steady", watcher=recorder(at_tick=kill), **fields)
    assert killed
    assert bench.states() == ["COMPLETE"] * 3
    trial = bench.trials()[1]
    assert trial.user_attrs["retries"] == 1
    assert "actor" in trial.user_attrs["error"]
    assert list(trial.intermediate_values) == list(range(1, 10))
    begins = [note["begins"] for note in bench.notes(1) if "begins" in note]
    assert begins[0] == 0 and begins[1] >= 2, "from its checkpoint"
    assert "/ray/" in loaded[0] and "/pandas/" not in loaded[0], "Tune, which takes longer than all else"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gcs_server"])  # the raylet goes the same way
def test_a_search_whose_ray_is_killed_says_so_and_can_be_continued(
    bench: Any, command: Any, name: str
) -> None:
    search = command("steady", budget={"trials": 3}, execution={"workers": 1, "retries": 0})
    process = search.start()
    search.begun(0)
    started = psutil.Process(process.pid).children(recursive=True)
    (killed,) = [each for each in started if each.name() == name]
    killed.kill()
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1, output
    assert psutil.wait_procs(started, timeout=120)[1] == []
    said = f"hpsearch: Ray's {name} ended in the middle of the search"
    assert [line for line in output.splitlines() if line.startswith(said)] == output.splitlines()[-1:]
    assert "RUNNING" not in bench.states()
    fields: dict[str, Any] = {"budget": {"trials": 3}, "execution": {"workers": 1, "retries": 0}}
    bench.run(bench.spec("steady", **fields), backend="optuna")  # a start of Ray is seconds
    assert bench.states() == ["COMPLETE"] * 3
    assert all(list(t.intermediate_values) == list(range(1, 10)) for t in bench.trials())


def test_ray_does_not_get_the_command_line_which_may_hold_a_password(shared_ray: None) -> None:
    (job,) = [job for job in jobs() if job["DriverPid"] == os.getpid()]  # type: ignore[no-untyped-call]
    assert job["Entrypoint"] == "hpsearch"


def test_a_ray_started_here_listens_on_this_machine_only(shared_ray: None) -> None:
    @ray.remote
    def listening() -> list[str]:
        return open_ports()

    assert ray.get(listening.remote()) == []
    assert open_ports() == []
    (raylet,) = [each for each in psutil.Process().children() if each.name() == "raylet"]
    others = [each.name() for each in raylet.children() if not each.name().startswith("ray::IDLE")]
    assert others == ["cat", "cat"], "in place of Ray's agents"
    with socket.create_server(("", 0)) as door:
        assert open_ports() == [f"{psutil.Process().name()} 0.0.0.0:{door.getsockname()[1]}"]


@pytest.mark.slow
def test_sigterm_leaves_a_trial_its_time_to_report(bench: Any, command: Any) -> None:
    """Ray's own handler would abort the process three seconds after the signal."""
    search = command("slow_to_report", budget={"trials": 1}, execution={"workers": 1, "retries": 0})
    process = search.start()
    search.begun(0)
    process.terminate()
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert "SIGTERM received" not in output
    assert bench.states() == ["WAITING"]
    assert list(bench.trials()[0].intermediate_values) == [1, 2]


@pytest.mark.slow
def test_a_long_tmpdir_and_files_named_as_what_ray_needs_are_no_hindrance(bench: Any, command: Any) -> None:
    long = bench.folder / ("long" * 20)
    long.mkdir()
    for name in ("hpsearch.py", "numpy.py", "typing.py"):
        (bench.folder / name).write_text("raise RuntimeError('the user has this for something else')")
    search = command("descend", budget={"trials": 1})
    output, _ = search.start(env={"TMPDIR": str(long)}).communicate(timeout=120)
    assert bench.states() == ["COMPLETE"], output
    assert list(long.iterdir()) == []


@pytest.mark.slow
def test_sigterm_while_ray_starts_is_the_drivers(bench: Any, command: Any) -> None:
    search = command("descend", budget={"trials": 3})
    process = search.start()
    children = psutil.Process(process.pid).children
    search.wait_for(lambda: [child for child in children() if child.name() == "gcs_server"])
    process.terminate()
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert "stopped: interrupted by SIGTERM" in output
    assert "continue with: hpsearch run" in output
    assert bench.states() == []


def test_a_search_that_finds_no_place_says_so_and_waits(
    bench: Any, recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "PLACE_WAIT_SECONDS", 0.5)

    class Somebody:  # it travels whole: Ray's processes do not have this folder on their path
        """Another user of the cluster."""

        def is_here(self) -> bool:
            return True

    somebody: Any = ray.remote(num_cpus=2)(Somebody).remote()
    ray.get(somebody.is_here.remote())
    watcher: Any = recorder()
    watcher.at_tick = lambda driver: ray.kill(somebody) if watcher.said else None
    bench.search(watcher=watcher, budget={"trials": 1})
    assert watcher.said == ["waiting for resources on the cluster, which others use"]
    assert bench.states() == ["COMPLETE"]


def test_a_node_that_leaves_as_a_search_joins_is_none_of_its_nodes(
    shared_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = cluster._alive()
    gone = {**here[0], "NodeID": "ab" * 28}
    listed = iter([[*here, gone], [*here, gone], here])
    monkeypatch.setattr(cluster, "_alive", lambda: next(listed))
    monkeypatch.setattr(cluster, "_importing", set())
    cluster.check_importable()
    assert cluster._importing == {node["NodeID"] for node in here}
    assert next(listed, None) is None, "it was asked again for as long as it was listed"


@pytest.mark.slow
def test_a_trial_that_ray_kills_for_memory_is_tried_again_and_takes_no_other_along(
    bench: Any, command: Any
) -> None:
    # Other tests take memory as well: where theirs is too much, a trial needs another attempt.
    search = command("hungry_once", budget={"trials": 3}, execution={"workers": 1, "retries": 9})
    memory = psutil.virtual_memory()
    room = min(0.6 * memory.available, 6 << 30)
    limit = 1 - (memory.available - room) / memory.total
    environment = {"RAY_memory_usage_threshold": f"{limit:.4f}", "RAY_memory_monitor_refresh_ms": "100"}
    process = search.start(env=environment)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0, output
    assert bench.states() == ["COMPLETE"] * 3
    trial = bench.trials()[1]
    assert trial.user_attrs["retries"] >= 1
    assert trial.user_attrs["error"] == "Ray killed the trial: its node ran out of memory"


@pytest.mark.parametrize("backends", [("optuna", "ray"), ("ray", "optuna")], ids="-".join)
def test_a_study_continues_with_the_other_backend(
    bench: Any, recorder: Any, backends: tuple[str, str]
) -> None:
    """Grid points in order: the first three are good, the others are worse at the first rung."""
    spec = bench.spec(
        "steady",
        parameters={"x": POINTS},
        early_stopping={"method": "asha", "min": 1, "max": 9, "eta": 3},
        execution={"workers": 1},
        budget={"trials": 6},
        search={"sampler": "grid"},
    )

    def stop(driver: Any) -> None:
        running = driver.running.get(2)
        if running is not None and running.reported >= 2:
            driver.request_stop("enough")

    first, second = backends
    run(spec, backend=first, storage=bench.url, watcher=recorder(at_tick=stop))
    before = bench.trials()
    assert [t.state.name for t in before] == ["COMPLETE", "COMPLETE", "WAITING"]
    run(spec, backend=second, storage=bench.url, watcher=recorder())
    trials = bench.trials()
    assert [t.params["x"] for t in trials] == POINTS
    begins = [note["begins"] for note in bench.notes(2) if "begins" in note]
    assert begins[0] == 0 and begins[1] >= 2, "taken up from its checkpoint"
    assert trials[2].params == before[2].params
    assert [t.state.name for t in trials[3:]] == ["PRUNED"] * 3, "compared with what the other backend saw"
    assert [t.last_step for t in trials[3:]] == [1, 1, 1]


LORA = """
version: 1
name: {name}
objective: lora
metric: val_loss
parameters:
  learning_rate: [1e-3, 1e-2]
  lora_r: [2, 8]
  batch_size: 4
  max_length: 32
  max_samples: 24
  eval_every: 8
search: {{sampler: grid}}
execution: {{workers: 1}}
"""


@pytest.mark.slow
def test_both_backends_record_the_same_values_step_by_step(bench: Any, recorder: Any) -> None:
    found = []
    for name in ("optuna", "ray"):
        path = bench.folder / f"{name}.yaml"
        path.write_text(LORA.format(name=name))
        run(path, backend=name, storage=bench.url, watcher=recorder())
        trials = bench.trials(name)
        found.append([(t.params, t.value, t.intermediate_values, t.state) for t in trials])
    assert len(found[0]) == 4
    assert all(list(reports) == [8, 16, 24] for _, _, reports, _ in found[0])
    assert found[0] == found[1], "bit for bit"


def test_as_many_actors_start_as_may_train_and_the_driver_counts_them(bench: Any, recorder: Any) -> None:
    """Also where trials end before the next actor has started, which Tune would then give up."""
    seen: list[int] = []

    def look(driver: Driver) -> None:
        seen.append(driver._costs.busy_slots or 0)
        if seen[-1] == 4:
            driver.stop("all have started")

    fields: dict[str, Any] = {"budget": {"trials": 3000}, "execution": {"workers": 4}}
    bench.search(**fields, watcher=recorder(at_end=look))
    assert seen == sorted(seen) and seen[-1] == 4


@pytest.mark.usefixtures("shared_ray")
def test_a_place_is_given_up_when_it_is_there_or_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """In between Ray may lose its cores, once in some thousand times."""
    given_up: list[str] = []
    remove = ray.util.remove_placement_group

    def look(group: Any) -> None:
        given_up.append(placement_group_table(group)["stats"]["scheduling_state"])
        remove(group)

    monkeypatch.setattr(ray.util, "remove_placement_group", look)
    manager, core = placement_group.PlacementGroupResourceManager(), ResourceRequest([{"CPU": 1}])
    with pending_places_kept():
        for places in (1, 1, 1, 3):  # there are two
            for _ in range(places):
                manager.request_resources(core)
            for _ in range(places):
                manager.cancel_resource_request(core)
    assert len(given_up) == 6 and set(given_up) <= {"FINISHED", "NO_RESOURCES"}


def test_a_trial_that_is_over_before_its_actor_starts_never_trains(bench: Any, recorder: Any) -> None:
    fields: dict[str, Any] = {"budget": {"trials": 2}, "execution": {"workers": 1}}
    bench.search(**fields, watcher=recorder(at_tick=ends_what_runs()))
    assert [trial.state.name for trial in bench.trials()] == ["PRUNED", "COMPLETE"]
    assert not bench.notes(0) and bench.notes(1)


@pytest.mark.slow
def test_a_pack_that_is_over_before_its_actor_starts_never_trains(bench: Any, recorder: Any) -> None:
    path = bench.folder / "packed.yaml"
    path.write_text(LORA.format(name="packed").replace("workers: 1", "workers: 1, pack: 2"))
    bench.run(path, watcher=recorder(at_tick=ends_what_runs()))
    states = [trial.state.name for trial in bench.trials("packed")]
    assert states == ["PRUNED", "COMPLETE", "COMPLETE", "COMPLETE"]
    trained = sorted(path.parent.name for path in bench.folder.glob("runs/packed/*/metrics.jsonl"))
    assert trained == ["1", "2", "3"]


def ends_what_runs() -> Callable[[Driver], None]:
    """Ends the first trial as the clock does, while its actor starts."""
    ended: list[int] = []

    def end(driver: Driver) -> None:
        if driver.running and not ended:
            ended.extend(driver.running)
            driver._lifecycle.end_out_of_time(*ended)

    return end


def test_the_ray_that_a_process_is_in_serves_the_search_and_stays(bench: Any, recorder: Any) -> None:
    bench.search(budget={"trials": 1})
    assert ray.is_initialized()
    with pytest.raises(UsageError, match="connected to a Ray cluster already"):
        run(bench.spec(), backend="ray", storage=bench.url, watcher=recorder(), ray_address="127.0.0.1:1")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ray://head:10001", "Run hpsearch on a node of the cluster, with the address auto"),
        ("somewhere", "write auto, or host:port"),
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
    ],
)
def test_an_address_without_a_cluster_is_refused_before_anything_is_written(
    bench: Any, recorder: Any, monkeypatch: pytest.MonkeyPatch, address: str, said: str
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(SearchError, match=said):
        run(bench.spec(), backend="ray", storage=bench.url, watcher=recorder(), ray_address=address)
    assert not bench.folder.joinpath("studies.db").exists()


def test_an_address_in_the_environment_that_is_none_is_refused(
    bench: Any, recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", "nonsense")
    with pytest.raises(UsageError, match="nonsense"):
        run(bench.spec(), backend="ray", storage=bench.url, watcher=recorder(), ray_address="auto")


def test_an_address_goes_with_ray_alone(bench: Any, recorder: Any) -> None:
    with pytest.raises(UsageError, match="the address of a Ray cluster needs the backend ray"):
        run(bench.spec(), backend="optuna", storage=bench.url, watcher=recorder(), ray_address="auto")


def test_ray_is_loaded_only_where_it_is_chosen(bench: Any, tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(
        "version: 1\nname: s\nobjective: lora\nmetric: val_loss\nbudget: {trials: 1}\n"
        "parameters: {learning_rate: [1e-3], batch_size: 2, max_length: 16, max_steps: 1}\n"
    )
    script = (
        "import sys; from hpsearch.search import run\n"
        f"run({str(path)!r}, storage={bench.url!r}, backend='optuna')\n"
        "assert 'optuna' in sys.modules and 'ray' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, cwd=tmp_path)


class Ended:
    """As much of a trial of Tune's as its end is told from."""

    status = "ERROR"

    def __init__(self, path: Path, text: str) -> None:
        path.write_text(text)
        self.error_file = str(path)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("", "lost", "Ray Tune ended the trial (error)"),
        (
            "Failure # 1\nThe actor died because its node has died. Node Id: 5e",
            "lost",
            "the node that ran the trial died",
        ),
        (
            "Failure # 1\nThe actor died unexpectedly before finishing this task.\n"
            "\tclass_name: WorkerActor\nWorker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits"
            " Some common causes include: (1) ...",
            "lost",
            "the trial's Ray actor died: Worker unexpectedly exits",
        ),
        (
            "Failure # 1\nray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
            "lost",
            "Ray killed the trial: its node ran out of memory",
        ),
        (
            "Failure # 1\nThe actor died unexpectedly before finishing this task.\n\tclass_name: WorkerActor\n"
            "Worker exit type: NODE_OUT_OF_MEMORY Worker exit detail: 1 worker(s) were killed due to the node"
            " running low on memory. Memory on the node (IP: 127.0.0.1) was 11.44GB used / 23.54GB limit",
            "lost",
            "Ray killed the trial: its node ran out of memory",
        ),
        (
            "Failure # 1\nray::WorkerActor.train()\nTraceback (most recent call last):\nOSError: no room",
            "error",
            "OSError: no room",
        ),
        (
            "Failure # 1\nThe actor died because of an error raised in its creation task, \x1b[36mray::T()\x1b[39m\n"
            '  File "numpy.py", line 1, in <module>\nRuntimeError: mine\n',
            "error",
            "RuntimeError: mine",
        ),
    ],
)
def test_a_lost_trial_says_what_ray_said_in_a_sentence(
    tmp_path: Path, text: str, kind: str, message: str
) -> None:
    trial: Any = Ended(tmp_path / "error.txt", text)
    failure = failures.failure_of(trial)
    assert (failure.kind, failure.message) == (kind, message)
    assert "\x1b" not in failure.traceback


def test_a_folder_that_a_cluster_could_not_work_in_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes get the folder before all others, as they get PYTHONPATH."""
    for name in ("numpy.py", "unheard_of.py", "time.py", "os.py", "typing.txt", "__main__.py", "__init__.py"):
        (tmp_path / name).touch()
    (tmp_path / "yaml").mkdir()  # no package: nothing takes a module's place by it
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    assert cluster.shadowing_names(tmp_path) == ["numpy.py", "ray"]
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # the other tests' is
    with (
        pytest.raises(UsageError, match=r"numpy\.py, ray in .*rename it, or run in another folder"),
        cluster.connected("127.0.0.1:9", Node(cpus=1, gpus=0, memory=1 << 30)),
    ):
        raise AssertionError
