"""What programs log with TensorBoard, W&B, MLflow and Trackio is read while they run."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from hpsearch.objectives.base import ScriptError, TrialStopped
from hpsearch.objectives.user.command import CommandObjective
from hpsearch.objectives.user.output import Piece
from hpsearch.objectives.user.sources.base import Source
from hpsearch.objectives.user.sources.records import EventRows, WandbRows, scalar_of
from hpsearch.objectives.user.sources.trackers import (
    TrackioSource,
    mlflow_source,
    tensorboard_source,
    wandb_source,
)

SILENT = Piece((), {False: 0.0, True: 0.0})


class HandTrial:
    number = 0
    seed = 7
    resume_from = None

    def __init__(self, folder: Path, stop_at: int | None = None) -> None:
        self.params: dict[str, Any] = {"lr": 0.5}
        self.checkpoint = folder / "run" / "checkpoint"
        self.checkpoint.mkdir(parents=True)
        self.reports: list[tuple[int, float]] = []
        self.remarks: list[tuple[str, str]] = []
        self.trained = self.reported = 0
        self.last_value: float | None = None
        self._stop_at = stop_at

    def set_attribute(self, name: str, value: Any) -> None:
        """Nobody reads it."""

    def remark(self, kind: str, text: str) -> None:
        self.remarks.append((kind, text))

    def report(self, value: float, step: int, **metrics: float) -> None:
        self.reports.append((step, value))
        if step == self._stop_at:
            raise TrialStopped


SCRIPTS = {
    "tensorboard": """
from tensorboardX import SummaryWriter
def begin(): global writer; writer = SummaryWriter(folder, flush_secs=1)  # its flush() waits for no value
def log(value, step): writer.add_scalar("eval/loss", value, step)
""",
    "wandb": """
import wandb
def begin(): wandb.init(project="p", settings=wandb.Settings(console="off"))
def log(value, step): wandb.log({"eval/loss": value, "lr": 0.5}, step=step, commit=True)
""",
    "mlflow": """
import mlflow
def begin(): mlflow.start_run()
def log(value, step): mlflow.log_metric("eval/loss", value, step=step)
""",
}
REST = """
begin()
for step in (10, 20, 30):
    log(1 / step, step)
    until = time.monotonic() + 60
    while not os.path.exists(f"{folder}/heard-{step}") and WAITS and time.monotonic() < until:
        time.sleep(0.01)
"""


@pytest.mark.slow
@pytest.mark.parametrize("library", ["tensorboard", "wandb", "mlflow"])
@pytest.mark.parametrize("stops", [False, True])
def test_what_a_script_logs_is_reported_while_it_runs(tmp_path: Path, library: str, stops: bool) -> None:
    """Each report is heard before the script goes on; one that is stopped never ends by itself."""
    log = tmp_path / "log"
    log.mkdir()

    class Hearing(HandTrial):
        def report(self, value: float, step: int, **metrics: float) -> None:
            (log / f"heard-{step}").touch()
            super().report(value, step, **metrics)

    text = f"import os, sys, time\nfolder = {str(log)!r}\n{SCRIPTS[library]}\n{REST}"
    (tmp_path / "script.py").write_text(
        text.replace("WAITS", str(library != "wandb")) + "time.sleep(600)\n" * stops
    )
    trial = Hearing(tmp_path, stop_at=20 if stops else None)
    report = (
        {library: "eval/loss"}
        if library != "tensorboard"
        else {"tensorboard": str(log), "value": "eval/loss"}
    )
    objective = CommandObjective(["python", str(tmp_path / "script.py")], "val_loss", report=report)
    if stops:
        with pytest.raises(TrialStopped):
            objective(trial)
    else:
        assert objective(trial) == pytest.approx(1 / 30)
    told = [step for step, _ in trial.reports]
    assert told == ([10, 20] if stops else [10, 20, 30])
    said = next(text for kind, text in trial.remarks if kind == "source")
    assert said.startswith('reports: val_loss from "eval/loss"')


@pytest.mark.slow
def test_a_script_for_a_sweep_of_wandb_finds_its_parameters_in_the_config(tmp_path: Path) -> None:
    (tmp_path / "sweep.py").write_text(
        "import wandb\n"
        "wandb.init(config={'lr': 0.1, 'own': 2}, settings=wandb.Settings(console='off'))\n"
        "config = wandb.config\n"
        "wandb.log({'loss': config.lr + config.own + config.optimizer['beta']})\n"
    )
    trial = HandTrial(tmp_path)
    trial.params = {"lr": 0.25, "optimizer": {"beta": 0.5}}
    objective = CommandObjective(["python", str(tmp_path / "sweep.py")], "loss", report={"wandb": "loss"})
    assert objective(trial) == 2.75


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path


def found(source: Source) -> list[tuple[int | None, float]]:
    return [(report.step, report.value) for report in source.take(SILENT).found]


def test_trackios_database_is_followed(run: Path) -> None:
    def database() -> sqlite3.Connection:
        (run / "trackio").mkdir(exist_ok=True)
        made = sqlite3.connect(run / "trackio" / "p.db")
        made.execute(
            "CREATE TABLE IF NOT EXISTS metrics"
            " (id INTEGER PRIMARY KEY, run_name TEXT, step INTEGER, metrics TEXT)"
        )
        return made

    def log(run: str = "a", **values: object) -> None:
        row = run, values.pop("step"), json.dumps(values)
        made = database()
        with made:
            made.execute("INSERT INTO metrics (run_name, step, metrics) VALUES (?, ?, ?)", row)
        made.close()

    source = TrackioSource("val_loss", run, "loss")
    assert found(source) == [] and "does it call trackio.init?" in source.near_misses[0]
    log(step=0, other=1)
    assert found(source) == [] and '"other"' in source.near_misses[0]
    log(step=1, loss=0.5, x=2)
    log(step=2, loss="NaN")
    (first, second) = source.take(SILENT).found
    assert (first.step, first.value, first.metrics) == (1, 0.5, {"x": 2.0})
    assert second.value != second.value
    again = TrackioSource("val_loss", run, "loss")
    assert found(again) == [], "of an earlier attempt"
    log(run="b", step=0, other=1)
    log(run="b", step=1, loss=0.5)
    (counted,) = again.take(SILENT).found
    assert counted.counted and counted.step == 1
    (run / "trackio" / "q.db").write_bytes(b"no database")
    assert found(again) == []
    assert source.environment["TRACKIO_SPACE_ID"] is None


def record(event: Any) -> bytes:
    """An event as an event file has it."""
    from tensorboardX.record_writer import masked_crc32c

    content = bytes(event.SerializeToString())
    length = struct.pack("<Q", len(content))
    checksums = (struct.pack("<I", masked_crc32c(part)) for part in (length, content))
    return length + next(checksums) + content + next(checksums)


def events(file: Path, *scalars: tuple[int, float], at: float = 0) -> None:
    """Append scalars of the tag `loss` to an event file, logged `at` so many seconds."""
    from tensorboardX.proto import event_pb2, summary_pb2

    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as stream:
        for step, number in scalars:
            summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag="loss", simple_value=number)])
            stream.write(record(event_pb2.Event(step=step, summary=summary, wall_time=at)))


def test_one_tag_in_several_folders_is_refused(run: Path) -> None:
    """As Keras's callback writes it; which of them is the metric is for the user to say."""
    source = tensorboard_source("val_loss", str(run), "loss", resumed=False, written="${run}/logs")
    events(run / "train" / "events.tfevents.1", (1, 9.0))
    assert found(source) == [(1, 9.0)]
    assert source.origin is not None and f"in {run / 'train'}," in source.origin
    events(run / "train" / "events.tfevents.2", (2, 8.0))
    assert found(source) == [(2, 8.0)], "of a resumed attempt"
    events(run / "validation" / "events.tfevents.1", (1, 0.5), (2, 0.25))
    with pytest.raises(ScriptError, match="several folders") as refused:
        source.take(SILENT)
    assert f"{run / 'train'} and {run / 'validation'}" in str(refused.value)
    assert 'tensorboard: "${run}/logs/train" or "${run}/logs/validation"' in str(refused.value)
    source.close()


def test_the_named_folder_itself_counts_before_those_in_it(run: Path) -> None:
    """`add_hparams` writes the last value again, into a folder of its own."""
    source = tensorboard_source("val_loss", str(run), "loss", resumed=False)
    events(run / "events.tfevents.1", (1, 0.5))
    events(run / "1700000000" / "events.tfevents.2", (9, 0.1))
    events(run / "events.tfevents.3", (2, 0.25))
    assert found(source) == [(1, 0.5), (2, 0.25)]
    source.close()


@pytest.mark.parametrize(
    ("steps", "told"),
    [([0, 0, 0], [None, None, None]), ([0, 1, 2], [0, 1, 2]), ([0, 5, 0], [0, 5, 0]), ([0], [0])],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_scalars_without_steps_are_counted(
    run: Path, steps: list[int], told: list[int | None], at_once: bool
) -> None:
    """Without steps, all have the step 0. From 0 on, the first keeps it."""
    source = tensorboard_source("val_loss", str(run), "loss", resumed=False)
    heard = []
    for step in steps:
        events(run / "events.tfevents.1", (step, 0.5))
        heard += [] if at_once else [each for each, _ in found(source)]
    heard += [report.step for report in source.end().found]
    assert heard == told
    source.close()


def test_zeros_of_a_resumed_attempt_are_no_steps(run: Path) -> None:
    """Even one alone: what has a step is past 0 there."""
    file = run / "events.tfevents.1"
    events(file, (0, 0.5), (0, 0.25))
    source = tensorboard_source("val_loss", str(run), "loss", resumed=True, before=2)
    events(file, (0, 0.125))
    assert found(source) == [(None, 0.125)]
    source.close()
    source = tensorboard_source("val_loss", str(run), "loss", resumed=True, before=3)
    ended = source.end()
    source.close()
    assert ended.from_first and [report.step for report in ended.found] == [None] * 3


def test_half_an_event_waits_and_tensors_are_scalars(run: Path) -> None:
    from tensorboardX.proto import event_pb2, summary_pb2, tensor_pb2

    def scalar(step: int = 3, **value: Any) -> bytes:
        summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag="loss", **value)])
        return record(event_pb2.Event(step=step, summary=summary))

    source = tensorboard_source("val_loss", str(run / "tb"), "loss", resumed=False)
    assert found(source) == [] and source.near_misses == [f"there is no event file in {run / 'tb'}"]
    (run / "tb" / "deep").mkdir(parents=True)
    file = run / "tb" / "deep" / "events.out.tfevents.1.host"
    content = scalar(simple_value=0.5)
    file.write_bytes(content[:-6])
    assert found(source) == []
    with file.open("ab") as stream:
        stream.write(content[-6:])
    assert found(source) == [(3, 0.5)]
    other = run / "tb" / "deep" / "events.out.tfevents.2.host"
    tensor = tensor_pb2.TensorProto(dtype=1, tensor_content=struct.pack("<f", 0.25))
    other.write_bytes(scalar(step=4, tensor=tensor))
    assert found(source) == [(4, 0.25)]
    other.write_bytes(b"\xff" * 100)
    assert found(source) == []
    source.close()


@pytest.mark.parametrize(
    ("place", "why"), [(0, "begins there"), (9, "begins there"), (20, "its content"), (-1, "its content")]
)
def test_a_damaged_event_file_is_told_with_its_place(run: Path, place: int, why: str) -> None:
    source = tensorboard_source("val_loss", str(run), "loss", resumed=False)
    file = run / "events.tfevents.1"
    events(file, (1, 0.5))
    begin = file.stat().st_size
    events(file, (2, 0.25))
    content = bytearray(file.read_bytes())
    content[begin + place if place >= 0 else place] ^= 0xFF
    file.write_bytes(content[:begin])
    assert found(source) == [(1, 0.5)]
    file.write_bytes(content)
    with pytest.raises(ScriptError) as refused:
        source.take(SILENT)
    assert f"{file} is damaged at byte {begin:,}, " in str(refused.value) and why in str(refused.value)
    source.close()
    later = tensorboard_source("val_loss", str(run), "loss", resumed=False)
    file.write_bytes(content + b"\0" * 12)
    with pytest.raises(ScriptError, match=f"damaged at byte {len(content):,}"):
        later.take(SILENT)
    later.close()


def test_two_processes_that_log_one_tag_are_refused(run: Path) -> None:
    """They overlap in time. A process that was started again goes on where the other one ended."""
    source = tensorboard_source("val_loss", str(run), "loss", resumed=False)
    one, two = run / "events.tfevents.1", run / "events.tfevents.2"
    events(one, (1, 0.5), at=1.0)
    events(one, (2, 0.25), at=2.0)
    events(two, (2, 0.5), at=3.0)
    events(two, (3, 0.125), at=4.0)
    assert found(source) == [(1, 0.5), (2, 0.25), (2, 0.5), (3, 0.125)], "the third is told as a repeat"
    events(one, (4, 0.5), at=5.0)
    assert found(source) == [(4, 0.5)]
    events(two, (4, 0.5), at=5.1)
    assert found(source) == [], "they agree"
    events(two, (4, 0.75), at=5.2)
    with pytest.raises(ScriptError, match=r'two processes log "loss" at the same time, .*1 and .*2'):
        source.take(SILENT)
    source.close()


@pytest.mark.parametrize(
    ("of", "number"),
    [
        ({"dtype": 1, "float_val": [0.5]}, 0.5),
        ({"dtype": 2, "tensor_content": struct.pack("<d", 0.1)}, 0.1),
        ({"dtype": 9, "int64_val": [7]}, 7.0),
        ({"dtype": 14, "tensor_content": b"\x00\x3f"}, 0.5),
        ({"dtype": 1, "float_val": [0.5, 1]}, None),
        ({"dtype": 7, "string_val": [b"a"]}, None),
        ({"dtype": 1}, None),
    ],
)
def test_scalars_of_tensors(of: dict[str, Any], number: float | None) -> None:
    from tensorboardX.proto import summary_pb2, tensor_pb2

    assert scalar_of(summary_pb2.Summary.Value(tensor=tensor_pb2.TensorProto(**of))) == number


def wandb_file(rows: list[dict[str, Any]]) -> bytes:
    """The file of a run of W&B: records in several parts, and blocks that end with padding."""
    from wandb.proto import wandb_internal_pb2

    messages: Any = wandb_internal_pb2
    content = b":W&B\xe1\xbe\x00"
    for row in rows:
        record = messages.Record()
        for key, value in row.items():
            record.history.item.add(nested_key=[key], value_json=json.dumps(value))
        left = record.SerializeToString()
        first = True
        while left or first:
            room = 32768 - len(content) % 32768
            if room < 7:
                content += b"\0" * room
                continue
            part, left = left[: room - 7], left[room - 7 :]
            place = (1 if not left else 2) if first else (4 if not left else 3)
            content += struct.pack("<IHB", 0, len(part), place) + part
            first = False
    return content


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_run_of_wandb_is_read_in_pieces(size: int) -> None:
    content = wandb_file(
        [{"_step": step, "loss": 0.5, "text": "a" * (1 << (step % 16))} for step in range(40)]
    )
    rows, reader = [], WandbRows()
    for at in range(0, len(content), size * 37):
        rows += reader.feed(content[at : at + size * 37])
    assert [row["_step"] for row in rows] == list(range(40))
    assert rows[-1]["loss"] == 0.5
    strange = WandbRows()
    assert strange.feed(os.urandom(7) + b"\xff" * 100) == [] and strange.fault is not None
    assert EventRows().feed(b"\xff" * 100) == []


def test_mlflow_without_steps_is_counted_and_other_metrics_are_told(run: Path) -> None:
    folder = run / "mlflow" / "0" / "abc" / "metrics" / "eval"
    source = mlflow_source("val_loss", run, "eval/loss")
    assert "does it call mlflow.set_tracking_uri?" in source.near_misses[0]
    folder.mkdir(parents=True)
    (folder / "other").write_text("1 0.5 0\n")
    assert found(source) == [] and "other metrics to MLflow: eval/other" in source.near_misses[0]
    (folder / "loss").write_text("1 0.5 0\n2 0.4 0\n3 0.3 ")
    assert found(source) == [(None, 0.5), (None, 0.4)], "which are counted"
    source.close()


def test_several_runs_of_mlflow_are_refused(run: Path) -> None:
    def log(of: str, name: str) -> None:
        file = run / "mlflow" / "0" / of / "metrics" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as stream:
            stream.write("1700000000 0.5 1\n")

    log("earlier", "loss")
    source = mlflow_source("val_loss", run, "loss")
    log("b", "loss")
    log("a", "other")
    assert found(source) == [(1, 0.5)], "the run that logs it, in this attempt"
    log("a", "loss")
    with pytest.raises(ScriptError, match=r'"loss" to several runs of MLflow, b and a, .* another name'):
        source.take(SILENT)
    source.close()


def test_several_runs_of_trackio_are_refused(run: Path) -> None:
    (run / "trackio").mkdir()
    source = TrackioSource("val_loss", run, "loss")
    with sqlite3.connect(run / "trackio" / "p.db") as made:
        made.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_name TEXT, step INTEGER, metrics TEXT)"
        )
        made.executemany(
            "INSERT INTO metrics (run_name, step, metrics) VALUES (?, ?, ?)",
            [("a", 1, '{"loss": 0.5}'), ("b", 1, '{"other": 0.5}'), ("b", 2, '{"loss": 0.5}')],
        )
    made.close()
    with pytest.raises(ScriptError, match="several runs of Trackio, a and b"):
        source.take(SILENT)


def test_a_run_of_wandb_that_is_online_is_told_and_several_are_refused(run: Path) -> None:
    source = wandb_source("val_loss", run, "loss", {})
    for count, (folder, of) in enumerate([("offline-run-1-a", "a"), ("run-2-a", "a"), ("run-3-b", "b")], 1):
        file = run / "wandb" / folder / f"run-{of}.wandb"
        file.parent.mkdir(parents=True)
        file.write_bytes(wandb_file([{"_step": count, "loss": 0.5}]))
        if of == "a":
            assert found(source) == [(count, 0.5)]
            assert (source.unusual is not None) == (count == 2)
    assert source.unusual is not None and "over the network" in source.unusual
    with pytest.raises(ScriptError, match="several runs of W&B, a and b"):
        source.take(SILENT)
    source.close()


def test_what_the_users_environment_says_does_not_count(run: Path) -> None:
    source = wandb_source("val_loss", run, "loss", {})
    assert source.environment["WANDB_MODE"] == "offline" and source.environment["WANDB_RUN_ID"] is None
    assert "no run of W&B" in source.near_misses[0]
    source.close()


@pytest.mark.extras("trackio")
def test_a_program_that_logs_to_trackio_is_read(tmp_path: Path) -> None:
    program = (
        "import trackio\n"
        "trackio.init(project='p')\n"
        "for epoch in range(3):\n"
        "    trackio.log({'loss': 1 / (epoch + 1)}, step=epoch + 1)\n"
        "trackio.finish()\n"
    )
    trial = HandTrial(tmp_path)
    objective = CommandObjective([sys.executable, "-c", program], "val_loss", report={"trackio": "loss"})
    assert objective(trial) == pytest.approx(1 / 3)
    assert [step for step, _ in trial.reports] == [1, 2, 3]
