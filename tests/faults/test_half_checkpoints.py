"""A script is ended while it writes its checkpoint: nobody goes on from half of it."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search.backends.worker.server import alone_in

pytestmark = pytest.mark.slow

SCRIPT = """\
import json, os, time
state, other = (os.environ["HPSEARCH_CHECKPOINT"] + f"/{name}.json" for name in ("state", "other"))
begun = 0
if os.path.exists(state):
    begun = json.load(open(state))["step"]
    if not os.path.exists(other) or json.load(open(other)) != begun:
        print("of two steps")
print("begins at", begun)
for step in range(begun + 1, 10):
    print(json.dumps({"step": step, "val_loss": 1 / step}), flush=True)
    with open(state, "w") as stream:  # after the report, and slowly
        stream.write('{"step"')
        stream.flush()
        time.sleep(0.2)
        stream.write(f': {step}}}')
    time.sleep(0.3)
    with open(other, "w") as stream:
        json.dump(step, stream)
    time.sleep(0.1)
"""


def fields(folder: Path) -> dict[str, Any]:
    (folder / "train.py").write_text(SCRIPT)
    return {
        "objective": {"command": ["python", str(folder / "train.py")]},
        "metric": "val_loss",
        "parameters": {"x": {"min": 0.0, "max": 1.0}},
        "early_stopping": {"method": "asha", "type": "promotion", "min": 3, "max": 9, "eta": 3},
        "budget": {"trials": 6},
        "execution": {"workers": 2, "retries": 0},
        "confirm": {"top": 0},
        "audit": 0.0,
    }


def logs(folder: Path) -> dict[int, str]:
    return {int(path.parent.name): path.read_text() for path in folder.glob("runs/study/*/output.log")}


@pytest.mark.parametrize("backend_name", ["optuna"])  # workers do this, which both backends have
def test_a_trial_that_pauses_while_it_saves_goes_on_from_a_whole_checkpoint(bench: Any) -> None:
    result = bench.run(bench.make_spec(**fields(bench.folder)))
    trials = bench.trials()
    assert {trial.state.name for trial in trials} == {"COMPLETE", "PRUNED"}
    told = "".join(logs(bench.folder).values())
    assert "Error" not in told and "of two steps" not in told
    assert result.best.value == 1 / 9
    assert told.count("begins at ") > len(trials), "some paused and went on"


@pytest.mark.parametrize("backend_name", ["optuna"])
def test_a_search_that_is_killed_while_scripts_save_goes_on(bench: Any, command: Any) -> None:
    space = fields(bench.folder) | {"early_stopping": {"method": "none"}, "budget": {"trials": 2}}
    search = command(**space)
    process = search.start()
    for number in (0, 1):
        metrics = bench.folder / "runs" / "study" / str(number) / "metrics.jsonl"
        search.wait_for(lambda path=metrics: path.exists() and len(path.read_bytes().splitlines()) >= 3)
    process.kill()
    process.communicate()
    search.wait_for(lambda: not list(bench.folder.glob(".*.pid")))  # the guardian has ended the workers
    states = list(bench.folder.glob("runs/study/*/checkpoint/state.json"))
    assert all(json.loads(path.read_text()) for path in states)
    output, _ = search.start().communicate(timeout=120)
    assert bench.states() == ["COMPLETE"] * 2, output
    assert not any("Error" in told for told in logs(bench.folder).values())


def test_an_attempt_begins_when_the_one_before_it_has_left(tmp_path: Path) -> None:
    came: list[str] = []
    inside, may_leave = threading.Event(), threading.Event()

    def first() -> None:
        with alone_in(tmp_path):
            inside.set()
            may_leave.wait(30)
            came.append("the first has left")

    def second() -> None:
        with alone_in(tmp_path):
            came.append("the second begins")

    threads = [threading.Thread(target=each) for each in (first, second)]
    threads[0].start()
    assert inside.wait(30)
    threads[1].start()
    threads[1].join(0.3)
    assert came == []
    may_leave.set()
    for thread in threads:
        thread.join(30)
    assert came == ["the first has left", "the second begins"]


LATE = """\
import os, sys, time
state = sys.argv[1]
begun = int(open(state).read()) if os.path.exists(state) else 0
print("begins at", begun)
for step in range(begun + 1, 10):
    time.sleep(0.4)
    print(f'{{"step": {step}, "val_loss": {1 / step}}}', flush=True)
    time.sleep(0.1)  # between the report and the checkpoint
    with open(state, "w") as stream:
        stream.write(str(step))
"""


@pytest.mark.any_backend
def test_a_script_that_saves_after_its_report_goes_on_from_there(bench: Any) -> None:
    space = fields(bench.folder)
    (bench.folder / "train.py").write_text(LATE)
    space["objective"]["command"].append("${checkpoint}/state")
    space["early_stopping"] = {"method": "asha", "type": "promotion", "min": 1, "max": 9, "eta": 3}
    bench.run(bench.make_spec(**space))
    begun = [int(at) for told in logs(bench.folder).values() for at in re.findall("begins at (.*)", told)]
    assert begun.count(0) == len(bench.trials()), "none starts over"
    assert 1 in begun and set(begun) <= {0, 1, 3}  # at the rungs
