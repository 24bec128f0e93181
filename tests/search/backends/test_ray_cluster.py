"""A search on a real Ray cluster of two nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search.operations import show
from hpsearch.search.operations.submit import submit
from hpsearch.search.queue.slots import Machine
from hpsearch.search.service.queue.reconciler import Reconciler
from hpsearch.storage.workspace import Workspace

from ...support.remote import wait_for
from ...support.spaces import small

pytestmark = [pytest.mark.slow, pytest.mark.ray]

HERE = Path(__file__).parent
OBJECTIVE = """\
import json, os, socket, time
from my_helper import half

def train(trial):
    begun = int((trial.resume_from / "step").read_text()) if trial.resume_from else 0
    node = os.environ["NODE"] if "NODE" in os.environ else os.getcwd()
    for step in range(begun + 1, 10):
        time.sleep(1.5 if trial.number < 2 and not begun else 0.1)  # one of them loses its node
        print(json.dumps({"cwd": os.getcwd(), "begun": begun, "step": step}), flush=True)
        (trial.checkpoint / "step").write_text(str(step))
        trial.report(half(trial.params["x"]) + 1 / step, step=step)
    return half(trial.params["x"])
"""


class TwoNodes:
    """The cluster, in a process of its own, with a token that its users need."""

    def __init__(self, folder: Path) -> None:
        self.environment = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "two_nodes.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self.environment | {"RAY_TMPDIR": str(folder)},
        )
        self.address = self._read()

    def tell(self, words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{words}\n")
        self._process.stdin.flush()
        assert self._read() == "done"

    def end(self) -> None:
        self._process.communicate(timeout=60)

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[TwoNodes]:
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # pytest's own paths are too long for sockets
        nodes = TwoNodes(Path(folder))
        yield nodes
        nodes.end()


@pytest.fixture
def backend_name() -> str:
    return "ray"


@pytest.fixture
def storage_name() -> str:
    return "sqlite"


@pytest.fixture
def search(bench: Any, command: Any) -> Any:
    """A space whose objective stands beside it, with a module of its own."""
    bench.folder.joinpath("my_objective.py").write_text(OBJECTIVE)
    bench.folder.joinpath("my_helper.py").write_text("def half(x):\n    return x / 2\n")
    return command(objective="my_objective:train", budget={"trials": 5}, execution={"workers": 2})


@pytest.mark.timeout(900)
def test_packs_on_two_nodes_are_their_trials_alone(bench: Any, command: Any, two_nodes: TwoNodes) -> None:
    space: dict[str, Any] = {
        "objective": "lora",
        "metric": "val_loss",
        "parameters": {
            "learning_rate": {"min": 1e-4, "max": 1e-2, "log": True},
            "batch_size": 2,
            "max_length": 16,
            "eval_samples": 4,
            "max_samples": 400,  # so long that both nodes train for a while at the same time
            "eval_every": 40,
        },
        "early_stopping": {"method": "none", "resource": "samples"},
        "budget": {"trials": 5},
        "execution": {"workers": 2, "pack": 2},
    }
    search = command(**space)
    process = search.start("--ray-address", two_nodes.address, env=two_nodes.environment)
    runs = bench.folder / "runs" / "study"
    together: set[int] = set()

    def over() -> bool:
        logs = [log.read_text().count("\n") for log in runs.glob("*/metrics.jsonl")]
        together.add(sum(0 < lines < 10 for lines in logs))
        return process.poll() is not None

    search.wait_for(over, 600)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert max(together) > 2, "which one worker cannot have"
    spec = bench.make_spec(**space | {"name": "alone", "execution": {"workers": 1, "cpus_per_trial": 1}})
    bench.run(spec, backend="optuna")
    here, alone = bench.trials(), bench.trials("alone")
    assert [t.intermediate_values for t in here] == [t.intermediate_values for t in alone]
    for trial in here:
        assert trial.state.name == "COMPLETE" and len(trial.intermediate_values) == 10
        assert len(runs.joinpath(str(trial.number), "metrics.jsonl").read_text().splitlines()) == 10


def test_a_node_that_dies_costs_its_trial_an_attempt_and_the_search_nothing(
    bench: Any, search: Any, two_nodes: TwoNodes
) -> None:
    process = search.start("--ray-address", two_nodes.address, env=two_nodes.environment)

    def lines(number: int) -> list[dict[str, Any]]:
        path = bench.folder / "runs" / "study" / str(number) / "output.log"
        found = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in found]

    def away() -> list[int]:
        """The trials that run on the other node, and have reported from there."""
        return [n for n in (0, 1) if len(lines(n)) > 2 and lines(n)[0]["cwd"] != str(bench.folder)]

    search.wait_for(away)
    (there,) = away()
    two_nodes.tell("kill")
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0, output
    ours = ("each trial runs ", "trial ", "best ", "the space has no baseline", "next:", "  ")
    assert [line for line in output.splitlines() if not line.startswith(ours)] == []

    trials = bench.trials()
    assert [t.state.name for t in trials] == ["COMPLETE"] * 5
    assert [t.number for t in trials] == list(range(5))
    for trial in trials:
        assert list(trial.intermediate_values) == list(range(1, 10))
        assert trial.value == trial.params["x"] / 2
        folder = bench.folder / "runs" / "study" / str(trial.number)
        assert len(folder.joinpath("metrics.jsonl").read_text().splitlines()) == 9
    assert trials[there].user_attrs["retries"] == 1
    assert "gone" in trials[there].user_attrs["error"] or "died" in trials[there].user_attrs["error"]
    begun = [line["begun"] for line in lines(there)]
    assert begun[0] == 0 and begun[-1] >= 2, "it went on from the checkpoint that had come home"


def test_a_node_without_hpsearch_is_named_with_what_to_do(
    search: Any, two_nodes: TwoNodes, tmp_path: Path
) -> None:
    shadow = tmp_path / "path" / "hpsearch"
    shadow.mkdir(parents=True)
    shadow.joinpath("__init__.py").write_text("raise ImportError('No module named hpsearch')\n")
    two_nodes.tell(f"add PYTHONPATH={shadow.parent}")
    process = search.start("--ray-address", two_nodes.address, env=two_nodes.environment)
    output, _ = process.communicate(timeout=120)
    two_nodes.tell("kill")
    assert process.returncode == 2, output
    assert "cannot import hpsearch: " in output and "No module named hpsearch" in output
    assert "pip install hpsearch==" in output
    assert "Traceback" not in output


def test_a_service_searches_on_the_cluster(
    bench: Any, two_nodes: TwoNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is started and watched like any other, and takes no core of the machine."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, two_nodes.environment[name])
    (tmp_path / "mine.py").write_text("def train(trial):\n    return trial.params['x']\n")
    workspace = Workspace.at(str(tmp_path / "studies.db"))
    space = small(objective="mine.py:train", budget={"trials": 3}).in_folder(tmp_path)
    where: dict[str, Any] = {"backend": "ray", "ray_address": two_nodes.address, "cwd": tmp_path}
    submit(workspace=workspace, space=space, **where)
    submit(workspace=workspace, space=space.override(name="second"), **where)
    queue = Reconciler(workspace, tmp_path, replace(Machine.here(), ray_studies=1))
    queue.start()
    try:
        first, second = wait_for(lambda: (all := queue.view().studies)[0].has and all)
        assert (first.has.ray, first.has.cpus) == (1, ()) and second.has is None
        assert "Ray" in second.state.reason
        ends = ("finished", "failed")
        wait_for(lambda: all(each.state.state in ends for each in queue.view().studies), 200.0)
        assert [each.state.state for each in queue.view().studies] == ["finished"] * 2, queue.view()
        wait_for(lambda: not queue._children)  # its processes have ended
    finally:
        queue.stop()
    for name in ("study", "second"):
        trials = show.trials(workspace=workspace, study=name).rows
        assert [row.state for row in trials] == ["complete"] * 3


def test_what_no_node_has_is_refused_with_what_there_is(search: Any, two_nodes: TwoNodes) -> None:
    process = search.start(
        "--ray-address", two_nodes.address, "--cpus-per-trial", "7", env=two_nodes.environment
    )
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2, output
    assert "execution.cpus_per_trial: a trial asks for 7 CPUs; the cluster has 1 CPU" in output


def test_a_wrong_token_is_reported(search: Any, two_nodes: TwoNodes) -> None:
    wrong = two_nodes.environment | {"RAY_AUTH_TOKEN": "f" * 64}
    process = search.start("--ray-address", two_nodes.address, env=wrong)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 1, output
    assert len(output.splitlines()) == 2 and output.startswith("each trial runs "), output
    assert "it has another token than RAY_AUTH_TOKEN" in output
