"""MLflow, in a SQLite file of its own: an experiment for each group, written as runs progress."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import filelock
import sqlalchemy

from .base import CLEARED_BY_RETRY, TrackedRun, Tracker, near

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read on import

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

DATABASE = "mlflow.db"
NAME_TAG, END_TAG = "hpsearch.run", "hpsearch.ended"  # which run it is, and the mark of its written end
STATUS = {
    **{"running": "RUNNING", "paused": "SCHEDULED", "waiting": "SCHEDULED"},
    **{"complete": "FINISHED", "pruned": "KILLED", "fail": "FAILED"},
}
MOST_METRICS, MOST_PARAMS = 1000, 100  # in one request
LONGEST_KEY, LONGEST_VALUE = 250, 5000  # characters


@dataclass
class _Known:
    """A run in MLflow."""

    run_id: str
    status: str
    mark: str | None
    clearable: frozenset[str] = frozenset()  # tags that a retry may make invalid


class MLflow(Tracker):
    """A run for each trial, in an experiment for the study."""

    def __init__(self, root: Path, group: str) -> None:
        super().__init__(root, group)
        for noisy in ("mlflow", "alembic"):  # they report every table that they create
            logging.getLogger(noisy).setLevel(logging.WARNING)
        self.root.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(self.root / f".{DATABASE}.lock"):  # other processes may start at the same time
            self._make_file()
            self._client = MlflowClient(tracking_uri=_uri(self.root / DATABASE))
            if (experiment := self._client.get_experiment_by_name(group)) is not None:
                self._experiment = str(experiment.experiment_id)
            else:
                self._experiment = self._client.create_experiment(group, str(root / "mlruns"))
        self._runs = dict(self._stored())

    def _make_file(self) -> None:
        """Create all tables or none: MLflow could not continue with those that a kill leaves."""
        if (self.root / DATABASE).exists():
            return
        beside = self.root / ".mlflow.new"
        shutil.rmtree(beside, ignore_errors=True)  # also SQLite's journal of a killed process
        beside.mkdir()
        MlflowClient(tracking_uri=_uri(beside / DATABASE)).search_experiments(max_results=1)
        (beside / DATABASE).replace(self.root / DATABASE)
        beside.rmdir()

    @property
    def view(self) -> str:
        return shlex.join(["mlflow", "ui", "--backend-store-uri", f"sqlite:///{near(self.root / DATABASE)}"])

    def write(self, run: TrackedRun) -> None:
        known = self._runs.get(run.name) or self._begin(run)
        new = self._new(run)
        at_once = MOST_METRICS // max((1 + len(report.metrics) for report in new), default=1) or 1
        for start in range(0, len(new), at_once):  # a report is written whole, or not at all
            some = new[start : start + at_once]
            now = int(time.time() * 1000)
            metrics = [Metric(_key(n), v, now, r.step) for r in some for n, v in run.values(r).items()]
            self._client.log_batch(known.run_id, metrics=metrics)
            self._written[run.name] = some[-1].step
        if run.is_over and known.mark != run.mark:
            self._end(run, known)
        elif not run.is_over and known.status != STATUS[run.state]:  # paused, resumed or retried
            self._client.update_run(known.run_id, status=STATUS[run.state])
            known.status, known.mark = STATUS[run.state], None
            self._describe(run, known)

    def _begin(self, run: TrackedRun) -> _Known:
        start, tags = _milliseconds(run.began), {NAME_TAG: run.name}
        made = self._client.create_run(self._experiment, start_time=start, run_name=run.name, tags=tags)
        known = self._runs[run.name] = _Known(made.info.run_id, "RUNNING", None)
        self._written[run.name] = 0
        self._describe(run, known)
        return known

    def _end(self, run: TrackedRun, known: _Known) -> None:
        if run.value is not None:
            final = Metric(_key(f"final_{run.metric}"), run.value, int(time.time() * 1000), run.last_step)
            self._client.log_batch(known.run_id, metrics=[final])
        self._describe(run, known)
        status = STATUS[run.state]
        ended = None if run.ended is None else _milliseconds(run.ended)
        self._client.set_terminated(known.run_id, status, ended)
        self._client.set_tag(known.run_id, END_TAG, run.mark)  # last: a run with the tag is complete
        known.status, known.mark = status, run.mark

    def _describe(self, run: TrackedRun, known: _Known) -> None:
        """Write the parameters of the run, and where it comes from."""
        params = [Param(_key(name), str(value)[:LONGEST_VALUE]) for name, value in run.flat.items()]
        tags = [RunTag(_key(name), str(value)[:LONGEST_VALUE]) for name, value in run.about.items()]
        for start in range(0, len(params), MOST_PARAMS):
            self._client.log_batch(known.run_id, params=params[start : start + MOST_PARAMS])
        self._client.log_batch(known.run_id, tags=[*tags, RunTag("state", run.state)])
        for name in known.clearable - set(run.about):
            self._client.delete_tag(known.run_id, name)
        known.clearable = CLEARED_BY_RETRY.intersection(run.about)

    def _stored(self) -> Iterator[tuple[str, _Known]]:
        """The runs that earlier processes wrote."""
        token = None
        while True:
            page = self._client.search_runs([self._experiment], max_results=1000, page_token=token)
            for run in page:
                tags = run.data.tags
                if NAME_TAG in tags:
                    clearable = CLEARED_BY_RETRY.intersection(tags)
                    name, mark = tags[NAME_TAG], tags.get(END_TAG)
                    yield name, _Known(run.info.run_id, run.info.status, mark, clearable)
            token = page.token
            if not token:
                return

    def _last_step(self, run: TrackedRun) -> int:
        history = self._client.get_metric_history(self._runs[run.name].run_id, _key(run.metric))
        return max((metric.step for metric in history), default=0)


def _uri(file: Path) -> str:
    return sqlalchemy.URL.create("sqlite", database=str(file)).render_as_string()


def _key(name: str) -> str:
    """A name that MLflow accepts, which it may turn into a path."""
    parts = re.sub(r"[^\w./ -]", "_", name)[:LONGEST_KEY].split("/")
    return "/".join(part for part in parts if part.strip(".")) or "_"


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1000)
