"""Reports without steps are counted over all attempts of a trial, from what its checkpoint has in it."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from hpsearch.objectives.reports import PrintedReport
from hpsearch.objectives.user.command import CommandObjective, _Delivery
from hpsearch.objectives.user.counting import COUNTED, Count
from hpsearch.objectives.user.output import Chunk, Piece
from hpsearch.objectives.user.rest import Rest
from hpsearch.objectives.user.sources import Arrived
from hpsearch.objectives.user.sources.output import AutoSource
from hpsearch.objectives.user.sources.trackers import wandb_source

from ..hand_trial import HandTrial

# Trains three epochs in each attempt, unless it is stopped before, and goes on from its checkpoint.
EPOCHS = """
import csv, json, os, pathlib, sys, time
how, run = sys.argv[1], pathlib.Path(os.environ["HPSEARCH_RUN"])
state = pathlib.Path(os.environ["HPSEARCH_CHECKPOINT"], "done")
history = json.loads(state.read_text()) if state.exists() else []
def steps(value):
    if how == "output":
        print("val_loss", value, flush=True)
    elif how == "mlflow":  # as its library writes it
        metrics = run / "mlflow" / "0" / str(os.getpid()) / "metrics"
        metrics.mkdir(parents=True, exist_ok=True)
        with open(metrics / "val_loss", "a") as stream:
            stream.write(f"1700000000 {value} 0\\n")
    elif how == "appended":
        with open(run / "log.csv", "a") as stream:
            stream.write(f"{value}\\n" if stream.tell() else f"val_loss\\n{value}\\n")
    else:
        (run / "log.csv").write_text("val_loss\\n" + "".join(f"{each}\\n" for each in history))
for epoch in range(len(history) + 1, len(history) + 4):
    history.append(1 / epoch)
    state.write_text(json.dumps(history))
    steps(1 / epoch)
    heard = run / f"heard-{epoch}"
    for _ in range(0 if how == "mlflow" else 1000):
        if heard.exists():
            break
        time.sleep(0.005)
"""
SOURCES: dict[str, dict[str, str]] = {
    "output": {"stdout": r"val_loss (?P<value>\S+)"},
    "appended": {"file": "${run}/log.csv", "value": "val_loss"},
    "rewritten": {"file": "${run}/log.csv", "value": "val_loss"},
    "mlflow": {"mlflow": "val_loss"},
}


class Hearing(HandTrial):
    """Lets the program go on once a report was heard; from the third on, another attempt follows."""

    def __init__(self, folder: Path) -> None:
        super().__init__({}, folder / "checkpoint")
        self.resume_from = self.checkpoint if any(self.checkpoint.iterdir()) else None

    def remark(self, kind: str, text: str) -> None:
        assert kind in ("source", "late"), text

    def report(self, value: float, step: int, **metrics: float) -> None:
        (self.checkpoint.parent / f"heard-{step}").touch()
        super().report(value, step, **metrics)


@pytest.mark.slow
@pytest.mark.parametrize("how", SOURCES)
def test_an_attempt_goes_on_with_the_steps_of_the_one_before(tmp_path: Path, how: str) -> None:
    objective = CommandObjective(
        [sys.executable, "-c", EPOCHS, how], "val_loss", report=SOURCES[how], folder=str(tmp_path)
    )
    for attempt in range(2):
        trial = Hearing(tmp_path)
        objective(trial)
        values = [1 / each for each in range(3 * attempt + 1, 3 * attempt + 4)]
        assert trial.reports == [*enumerate(values, 1 + 3 * attempt)]


def reported(folder: Path, *times: tuple[int, float], saved: float) -> HandTrial:
    """A trial that resumes from a checkpoint of second `saved`, and its reports of the attempt before."""
    trial = HandTrial({}, folder / "checkpoint")
    trial.resume_from = trial.checkpoint
    (trial.checkpoint / "state").touch()
    os.utime(trial.checkpoint / "state", ns=(0, int(saved * 1e9)))
    lines = "".join(f"{json.dumps([step, int(at * 1e9)])}\n" for step, at in times)
    (folder / COUNTED).write_text(lines + "[9, 12")  # a kill cut it short
    return trial


@pytest.mark.parametrize(
    ("saved", "before"),
    [
        (1.0, 0),  # as it began
        (19.5, 2),  # before the second report
        (20.5, 2),  # after it
        (29.5, 3),
        (31.0, 3),
        (500.0, 3),  # a copy
    ],
)
def test_the_report_that_is_nearest_belongs_to_the_checkpoint(
    tmp_path: Path, saved: float, before: int
) -> None:
    trial = reported(tmp_path, (0, 0.0), (1, 10.0), (2, 20.0), (3, 30.0), saved=saved)
    count = Count(trial, None)
    assert count.before == before and count.offset == (before + 1 if before else 0)
    again = Count(trial, None)
    again.note(before + 1)
    assert Count(trial, None).before == before, "and still does if the next attempt is killed early"


def test_what_a_program_reports_after_its_pause_is_in_a_later_checkpoint(tmp_path: Path) -> None:
    trial = reported(tmp_path, (0, 0.0), (1, 10.0), saved=31.0)
    rest = Rest(0.1, False, [(step, PrintedReport(0.1, None, {})) for step in (2, 3)])
    assert Count(trial, rest).before == 3


@pytest.mark.parametrize("line", ["val_loss {}", "epoch {} val_loss {}"], ids=["counted", "named"])
@pytest.mark.parametrize("kills", [1, 2])
def test_a_first_report_that_waits_is_not_lost_with_its_process(
    tmp_path: Path, line: str, kills: int
) -> None:
    """Each attempt but the last is killed after its first report, whose checkpoint is there."""
    trial = Hearing(tmp_path)
    for epoch in range(1, kills + 2):
        trial = Hearing(tmp_path)
        trial.reported = 0
        rest = Rest.of(trial)
        source = AutoSource("val_loss", "output.log")
        delivery = _Delivery(trial, Count(trial, rest), rest)
        text = line.format(*(epoch, 1 / epoch)[-line.count("{") :]) + "\n"
        delivery.add(source, source.take(Piece([Chunk(text.encode(), False, 1)], {False: 0.0, True: 0.0})))
        assert trial.reports == [], "JSON may follow"
        (trial.checkpoint / "state").write_text(str(epoch))
        time.sleep(0.01)
    delivery.add(source, source.end())
    assert trial.reports == [(epoch, 1 / epoch) for epoch in range(1, kills + 2)]
    assert Rest.of(Hearing(tmp_path)) is None, "it is reported"


def test_without_times_the_last_report_counts(tmp_path: Path) -> None:
    """As on another machine."""
    trial = reported(tmp_path, saved=1.0)
    trial.reported = 4
    assert Count(trial, None).before == 4
    trial.resume_from = None
    assert Count(trial, None).before == 0, "it starts over"


def test_a_program_with_nothing_left_to_train_has_all_its_rows_again(tmp_path: Path) -> None:
    trial = Hearing(tmp_path)
    (tmp_path / "log.csv").write_text("val_loss\n0.5\n0.25\n")
    trial.resume_from, trial.reported = trial.checkpoint, 2
    objective = CommandObjective(["true"], "val_loss", report=SOURCES["appended"])
    assert objective(trial) == 0.25
    assert trial.reports == [(1, 0.5), (2, 0.25)]


def test_steps_that_a_library_counts_in_each_attempt_go_on(tmp_path: Path) -> None:
    trial = reported(tmp_path, (0, 0.0), (7, 10.0), saved=10.0)
    delivery = _Delivery(trial, Count(trial, None), None)
    source = wandb_source("val_loss", tmp_path, "loss", {})
    found = [PrintedReport(0.5, 1, {}, counted=True), PrintedReport(0.25, 3, {}, counted=True)]
    delivery.add(source, Arrived(found))
    assert trial.reports == [(9, 0.5), (11, 0.25)]
