"""TensorBoard: a folder with event files for each run, written as it progresses."""

from __future__ import annotations

import os
import shlex
import shutil
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from tensorboardX import summary
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary

from ....storage.files import write
from .base import TrackedRun, Tracker, near

HPARAMS_FOLDER = "hparams"  # beside a run's event files, for the row that its end writes
END_FILE = "ended"


class TensorBoard(Tracker):
    """Scalars at each report; parameters and the final value in the table of the HParams plugin."""

    def __init__(self, root: Path, group: str) -> None:
        super().__init__(root, group)
        self._open: dict[str, EventsWriter] = {}

    @property
    def folder(self) -> Path:
        """The group's folder."""
        return self.root / "tensorboard" / self.group

    @property
    def view(self) -> str:
        return shlex.join(["tensorboard", "--logdir", near(self.folder)])

    def write(self, run: TrackedRun) -> None:
        if new := self._new(run):
            if run.name not in self._open:
                self._open[run.name] = _writer(self.folder / run.name)
            for report in new:
                _write(self._open[run.name], run.values(report), report.step)
            self._open[run.name].flush()
            self._written[run.name] = new[-1].step
        if run.state != "running" and run.name in self._open:  # hundreds of runs may wait
            self._open.pop(run.name).close()
        if run.is_over:
            self._end(run)

    def close(self) -> None:
        for writer in self._open.values():
            writer.close()
        self._open.clear()
        super().close()

    def _end(self, run: TrackedRun) -> None:
        """Write the row of the table, in place of that of an earlier end."""
        ended = self.folder / run.name / END_FILE
        if ended.exists() and ended.read_text(encoding="utf-8") == run.mark:
            return
        folder = ended.parent / HPARAMS_FOLDER
        shutil.rmtree(folder, ignore_errors=True)
        final = {} if run.value is None else {f"final/{run.metric}": run.value}
        about = {**run.about, "state": run.state}
        row = run.flat | {f"run/{name}": str(value) for name, value in about.items()}
        writer = _writer(folder)
        for part in summary.hparams(row, final):
            writer.write_event(Event(wall_time=time.time(), summary=part))
        _write(writer, final, run.last_step)
        writer.close()
        write(ended, run.mark)

    def _last_step(self, run: TrackedRun) -> int:
        files = sorted((self.folder / run.name).glob("events.out.tfevents.*"))
        return max((event.step for file in files for event in events(file)), default=0)


def events(file: Path) -> Iterator[Any]:
    """The events of a file, up to where a kill truncated it.

    A record is its length, a checksum of that, the event, and a checksum of it.
    """
    content, offset = file.read_bytes(), 0
    while offset + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, offset)
        if offset + length + 16 > len(content):
            return
        try:
            yield Event.FromString(content[offset + 12 : offset + 12 + length])
        except DecodeError:
            return
        offset += length + 16


def _writer(folder: Path) -> EventsWriter:
    folder.mkdir(parents=True, exist_ok=True)
    # The name has only seconds: two processes, or attempts, must not take the same.
    return EventsWriter(str(folder / "events"), f".{os.getpid()}.{time.time_ns()}")


def _write(writer: EventsWriter, values: Mapping[str, float], step: int) -> None:
    """Write one event with all values, so that a kill leaves a whole report or none."""
    together = Summary(value=[Summary.Value(tag=name, simple_value=v) for name, v in values.items()])
    writer.write_event(Event(wall_time=time.time(), step=step, summary=together))
