"""Reports in what a program logs with TensorBoard, W&B, Trackio or MLflow.

The libraries write into the trial's folder, without a network, and their files are read while they grow.
"""

from __future__ import annotations

import glob
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from ....trainer.anew import write_anew
from ...base import ObjectiveError, ScriptError
from ...reports import PrintedReport
from .base import STEP_NAMES, Arrived, Source
from .columns import Columns, RowSource
from .files import FileSource, Log
from .records import WRITTEN, EventRows, MlflowRows, WandbRows
from .rows import Row, RowReader, flat_row

MAX_VALUES = 1 << 16  # of a tag that are remembered
FLUSH_SECONDS = "0.2"  # between two writes of a W&B run; 15 by default
WANDB_CONFIG = "wandb-sweep.json"  # in the trial's folder: its parameters, as an agent of W&B's passes them
WANDB_STEPS = (*STEP_NAMES, "train/global_step", "trainer/global_step", "_step")


class EventSource(FileSource):
    """Scalars in the event files of one folder; a tag in several would be several metrics."""

    written = named = ""  # the folder as the space writes it, and with its macros filled in
    _folder: Path | None = None  # whose event files have the tag
    _again = False  # whether those of all earlier attempts are read
    _row: Row  # that is read now
    _spans: dict[Path, tuple[float, float]]  # when the tag was logged first and last, by files
    _values: dict[int, float]  # of the tag, by steps: the latest of them

    def end(self) -> Arrived:
        try:
            return super().end()
        finally:
            self._again = False

    def _rewound(self) -> None:
        super()._rewound()
        self._again = True

    def _in_order(self) -> list[Log]:
        """The named folder's own files first."""
        return sorted(super()._in_order(), key=lambda log: log.file.path.parent != Path(self.named))

    def _counting(self, row: Row, path: Path) -> Row | None:
        self._row = row
        row = {name: value for name, value in row.items() if name != WRITTEN}
        if self._columns.value not in row:
            return row
        first, folder = self._folder or path.parent, path.parent
        if first == folder or self._again:
            self._folder = folder
            return row
        if first == Path(self.named):  # a copy such as `add_hparams` makes in a folder of its own
            return None
        inner = [each for each in (first, folder) if each != Path(self.named)]
        raise ScriptError(
            f'the tag "{self._columns.value}" is in event files of several folders, {first} and {folder}; '
            f"write tensorboard: {' or '.join(map(self._as_written, inner))}"
        )

    def _repeats(self, log: Log, step: int | None, is_old: bool) -> bool:
        """Values that several processes log are left out if they are the same, and else refused."""
        value, written, file = self._row[self._columns.value], self._row[WRITTEN], log.file.path
        began, _ = self._spans.get(file, (written, written))
        self._spans[file] = began, written
        if self._again:
            return super()._repeats(log, step, is_old)
        is_known = is_old and len(self._spans) > 1 and self._values.get(step or 0, value) == value
        if not is_known and (is_old or step is None):
            for other, (first, last) in self._spans.items():
                if other != file and first < written and began < last:
                    raise ScriptError(
                        f'two processes log "{self._columns.value}" at the same time, to {other} and '
                        f"{file.name}, and a trial has one curve; let one of them log it, or each to a "
                        "folder of its own"
                    )
        if step is not None:
            self._values[step] = value
            if len(self._values) > MAX_VALUES:
                del self._values[next(iter(self._values))]
        return log.repeats(step, is_old) or is_known

    def _as_written(self, folder: Path) -> str:
        """A folder as a space may name it."""
        inside = folder.is_relative_to(self.named)
        return f'"{Path(self.written) / folder.relative_to(self.named) if inside else folder}"'

    def _origin(self, place: str) -> str:
        return str(Path(place).parent)


class OneRun:
    """The run of a tracker that logs the metric: of several, nobody knows which one is meant."""

    def __init__(self, library: str, metric: str) -> None:
        self._library, self._metric = library, metric
        self._run: str | None = None

    def check(self, run: str) -> None:
        """The metric is logged to this run. Raises `ScriptError` if it was logged to another before."""
        self._run = self._run or run
        if run != self._run:
            raise ScriptError(
                f'it logs "{self._metric}" to several runs of {self._library}, {self._run} and {run}, and a '
                "trial has one curve; log it to one run alone, and in the others under another name"
            )


class RunSource(FileSource):
    """What is logged to one run of W&B or MLflow, of which each has files of its own."""

    one: OneRun
    run_of: Callable[[Path], str]  # the name of a run, from its file

    def _counting(self, row: Row, path: Path) -> Row | None:
        if self._columns.value in row:
            self.one.check(self.run_of(path))
            if path.suffix == ".wandb" and path.parent.name.startswith("run-"):  # else offline-run-
                self.unusual = 'it logs to W&B over the network, by its own mode="online"'
        return row


def tensorboard_source(
    metric: str, folder: str, value: str, *, resumed: bool, written: str = "", before: int = 0
) -> Source:
    """Scalars in the event files of a folder, and of the folders in it. Raises `ObjectiveError`.

    `written`: the folder as the space writes it, for messages. `before`: the last step of what the checkpoint
    has in it.
    """
    _check(EventRows, "tensorboardX", "tensorboard")
    columns = Columns(
        value,
        step="step",
        counts_zeros=True,
        rows="scalars",
        asks=f'write scalars with the tag "{value}" to event files in {folder}',
        missing=lambda: f"there is no event file in {folder}",
    )
    path = f"{folder.rstrip('/')}/**/*tfevents*"
    source = EventSource(
        metric, path, columns, place=folder, reader=EventRows, resumed=resumed, before=before
    )
    source.written, source.named = written or folder, folder
    source._spans, source._values = {}, {}
    return source


def wandb_source(metric: str, run: Path, name: str, params: Mapping[str, Any]) -> Source:
    """What `wandb.log` is given, in the files of offline runs. Raises `ObjectiveError`.

    The program finds its parameters in `wandb.config`, as in a sweep of W&B's.
    """
    _check(WandbRows, "wandb", "wandb")
    config = run / WANDB_CONFIG
    write_anew(config, json.dumps({name: {"value": value} for name, value in params.items()}))
    columns = Columns(
        name,
        steps=WANDB_STEPS,
        counter="_step",
        rows="values",
        asks=f'call wandb.log with "{name}"',
        missing=lambda: (
            f"there is no run of W&B in {run / 'wandb'}; does it call wandb.init, not disabled or online?"
        ),
        environment={
            "WANDB_MODE": "offline",
            "WANDB_DIR": str(run),
            "WANDB_SWEEP_PARAM_PATH": str(config),
            "WANDB_X_TRANSACTION_LOG_FLUSH_INTERVAL": FLUSH_SECONDS,
            **dict.fromkeys(("WANDB_DISABLED", "WANDB_RUN_ID", "WANDB_RESUME", "WANDB_SWEEP_ID")),
        },
    )
    path = f"{glob.escape(str(run))}/wandb/*run-*/run-*.wandb"
    source = RunSource(metric, path, columns, place="what it logs to W&B", reader=WandbRows)
    source.one, source.run_of = OneRun("W&B", name), lambda file: file.stem.removeprefix("run-")
    return source


def mlflow_source(metric: str, run: Path, name: str, before: int = 0) -> Source:
    """What `mlflow.log_metric` is given, in a store of files.

    `before`: the last step of what the checkpoint has in it.
    """
    store = run / "mlflow"
    columns = Columns(
        name,
        step="step",
        counts_zeros=True,
        asks=f'call mlflow.log_metric with "{name}"',
        missing=lambda: _logged_to_mlflow(store),
        environment={
            "MLFLOW_TRACKING_URI": store.as_uri(),
            "MLFLOW_ALLOW_FILE_STORE": "true",
            **dict.fromkeys(("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_REGISTRY_URI")),
        },
    )
    path = f"{glob.escape(str(store))}/*/*/metrics/{glob.escape(name)}"
    place = "what it logs to MLflow"
    source = RunSource(metric, path, columns, place=place, reader=lambda: MlflowRows(name), before=before)
    source.one, source.run_of = OneRun("MLflow", name), lambda file: file.relative_to(store).parts[1]
    return source


def _logged_to_mlflow(store: Path) -> str:
    """The names of metrics in a store."""
    files = [path for path in store.glob("*/*/metrics/**/*") if path.is_file()]
    names = sorted({"/".join(path.relative_to(store).parts[3:]) for path in files})
    if names:
        return f"it logs other metrics to MLflow: {', '.join(names)}"
    return f"there is no run of MLflow in {store}: does it call mlflow.set_tracking_uri?"


class TrackioSource(RowSource):
    """What `trackio.log` is given, in Trackio's databases."""

    def __init__(self, metric: str, run: Path, name: str) -> None:
        self._folder = run / "trackio"
        columns = Columns(
            name,
            counter="step",
            rows="values",
            asks=f'call trackio.log with "{name}"',
            missing=lambda: f"there is no run of Trackio in {self._folder}: does it call trackio.init?",
            environment={
                "TRACKIO_DIR": str(self._folder),
                **dict.fromkeys(
                    ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_BUCKET_ID", "TRACKIO_DATASET_ID")
                ),
            },
        )
        super().__init__(metric, "what it logs to Trackio", columns)
        self._one = OneRun("Trackio", name)
        self._read = {path: self._last_of(path) for path in self._databases()}  # the last row that was read
        self._numbers: Counter[str] = Counter()  # of new rows, by their runs

    def _databases(self) -> list[Path]:
        return sorted(self._folder.glob("*.db"))

    def _last_of(self, path: Path) -> int:
        rows = self._rows(path, "SELECT COALESCE(MAX(id), 0) FROM metrics", ())
        return rows[0][0] if rows else 0

    def _rows(self, path: Path, query: str, values: tuple[int, ...]) -> list[Any]:
        """The rows of a query; none while the database is being made, or is locked."""
        with suppress(sqlite3.Error):
            address = f"{path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(address, uri=True, timeout=1.0)) as database:
                return database.execute(query, values).fetchall()
        return []

    def _reports(self, *, ended: bool) -> Iterator[PrintedReport]:
        for path in self._databases():
            after = (self._read.get(path, 0),)
            query = "SELECT id, run_name, step, metrics FROM metrics WHERE id > ? ORDER BY id"
            for number, run, step, metrics in self._rows(path, query, after):
                self._read[path] = number
                self._numbers[run] += 1
                row = flat_row({"step": step, **json.loads(metrics)})
                report = self._report(
                    row,
                    place=f'the run "{run}" of Trackio',
                    number=self._numbers[run],
                    repeats=lambda step, is_old: False,
                )
                if report is not None:
                    self._one.check(run)
                    yield report


def _check(reader: Callable[[], RowReader], module: str, extra: str) -> None:
    """Load what a reader needs before the program runs: this may take seconds."""
    try:
        reader()
    except ImportError as error:
        raise ObjectiveError(
            f"report: {extra} needs the package {module} beside hpsearch ({error}); "
            f"pip install 'hpsearch[{extra}]'"
        ) from error
