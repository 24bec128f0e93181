"""A program that names no steps is paused, promoted and killed with its search: its reports keep their steps.

None of them is lost, even those that its search did not read before it was killed.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from hpsearch.storage.trial_attrs import EVENTS

pytestmark = pytest.mark.slow

SCRIPT = """\
import os, pathlib, sys, time
state = pathlib.Path(os.environ["HPSEARCH_CHECKPOINT"], "epoch")
done = int(state.read_text()) if state.exists() else 0
for epoch in range(done + 1, 7):
    time.sleep(0.5 * float(sys.argv[1]) ** 1.5)  # the best one comes first to its rung, and waits there
    state.with_suffix(".tmp").write_text(str(epoch))
    state.with_suffix(".tmp").rename(state)
    print("val_loss", float(sys.argv[1]) + 1 / epoch, flush=True)
"""


WAITING_SCRIPT = """\
import os, pathlib, sys, time
state = pathlib.Path(os.environ["HPSEARCH_CHECKPOINT"], "epoch")
done = int(state.read_text()) if state.exists() else 0
for epoch in range(done + 1, int(sys.argv[1]) + 1):
    while epoch in (3, 6) and not pathlib.Path(f"epoch {epoch}").exists():
        time.sleep(0.05)
    state.with_suffix(".tmp").write_text(str(epoch))
    state.with_suffix(".tmp").rename(state)
    print("val_loss", 1 / epoch, flush=True)
    if epoch == 5:
        print("val_loss 0.", end="", flush=True)
        pathlib.Path("half a line").touch()
print("left", flush=True)
"""


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n")


@pytest.mark.parametrize("backend_name", ["optuna"])
def test_counted_reports_keep_their_steps_through_promotion_and_a_kill(bench: Any, command: Any) -> None:
    (bench.folder / "train.py").write_text(SCRIPT)
    search = command(
        objective={"command": ["python", str(bench.folder / "train.py"), "${x}"]},
        metric="val_loss",
        parameters={"x": [1.0, 2.0, 3.0]},
        search={"sampler": "grid"},
        early_stopping={"method": "asha", "type": "promotion", "min": 2, "max": 6, "eta": 3},
        budget={"trials": 3},
        execution={"workers": 3},
        confirm={"top": 0},
        audit=0.0,
    )
    process = search.start()
    search.wait_for(
        lambda: max(map(lines_of, bench.folder.glob("runs/study/*/metrics.jsonl")), default=0) >= 4
    )
    process.kill()
    process.communicate()
    search.wait_for(lambda: not list(bench.folder.glob(".*.pid")))  # the guardian has ended the workers
    output, _ = search.start().communicate(timeout=120)
    trials = bench.trials()
    assert sorted(trial.state.name for trial in trials) == ["COMPLETE", "PRUNED", "PRUNED"], output
    (best,) = (trial for trial in trials if trial.state.name == "COMPLETE")
    assert {"paused", "resumed"} <= {event["kind"] for event in best.user_attrs[EVENTS]}
    for trial in trials:
        told = trial.intermediate_values
        assert list(told) == list(range(1, 7 if trial.state.name == "COMPLETE" else 3))
        assert told == {step: trial.params["x"] + 1 / step for step in told}, "each value is of its own epoch"


@pytest.mark.parametrize("heard", [2, 5])
@pytest.mark.parametrize("epochs", [5, 8], ids=["it ends", "it goes on"])
@pytest.mark.parametrize("backend_name", ["optuna"])
def test_what_a_program_reports_is_what_its_search_has_after_a_kill(
    bench: Any, command: Any, epochs: int, heard: int
) -> None:
    """Five epochs, of which the search has heard of two, because it hangs, or of all; then comes half a line."""
    (bench.folder / "train.py").write_text(WAITING_SCRIPT)
    search = command(
        objective={"command": ["python", "train.py", "${epochs}"]},
        metric="val_loss",
        parameters={"x": {"min": 0.0, "max": 1.0}, "epochs": epochs},
        budget={"trials": 1},
        early_stopping={"max": epochs, "method": "none"},
        confirm={"top": 0},
    )
    process = search.start()
    search.begun(0)

    def has_heard(*steps: int) -> bool:
        return [list(trial.intermediate_values) for trial in bench.trials()] == [[*steps]]

    search.wait_for(lambda: has_heard(1, 2))
    if heard == 2:
        process.send_signal(signal.SIGSTOP)
    (bench.folder / "epoch 3").touch()
    search.wait_for((bench.folder / "half a line").exists)
    if heard == 5:
        search.wait_for(lambda: has_heard(1, 2, 3, 4, 5))
    process.kill()
    process.communicate()
    (bench.folder / "epoch 6").touch()
    output, _ = search.start().communicate(timeout=120)
    (trial,) = bench.trials()
    assert trial.intermediate_values == {step: 1 / step for step in range(1, epochs + 1)}, output
    assert trial.value == 1 / epochs
