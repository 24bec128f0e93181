"""MLflow, in a SQLite file of its own: an experiment for each group, written as it goes."""

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

from .base import PASSING, Run, Tracker, near

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read as it is imported

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

FILE = "mlflow.db"
NAME, MARK = "hpsearch.run", "hpsearch.ended"  # tags: which run it is, and which of its ends it has
STATUS = {
    **{"running": "RUNNING", "paused": "SCHEDULED", "waiting": "SCHEDULED"},
    **{"complete": "FINISHED", "pruned": "KILLED", "fail": "FAILED"},
}
MOST_METRICS, MOST_PARAMS = 1000, 100  # of one request
LONGEST_KEY, LONGEST = 250, 5000  # letters of a name, and of a value


@dataclass
class _Known:
    """A run of MLflow's."""

    run_id: str
    status: str
    mark: str | None
    passing: frozenset[str] = frozenset()  # the tags that may not hold when it is tried again


class MLflow(Tracker):
    """A run for each trial, in an experiment for the study."""

    def __init__(self, root: Path, group: str) -> None:
        super().__init__(root, group)
        for noisy in ("mlflow", "alembic"):  # they tell of every table that they make
            logging.getLogger(noisy).setLevel(logging.WARNING)
        self.root.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(self.root / f".{FILE}.lock"):  # others may begin beside it
            self._make_file()
            self._client = MlflowClient(tracking_uri=_uri(self.root / FILE))
            self._experiment = self._in_it()
        self._runs = dict(self._stored())

    def _make_file(self) -> None:
        """Make all tables or none: a kill would leave some, and MLflow could not go on with these."""
        if (self.root / FILE).exists():
            return
        beside = self.root / ".mlflow.new"
        shutil.rmtree(beside, ignore_errors=True)  # also SQLite's journal of one that was killed
        beside.mkdir()
        MlflowClient(tracking_uri=_uri(beside / FILE)).search_experiments(max_results=1)
        (beside / FILE).replace(self.root / FILE)
        beside.rmdir()

    def _in_it(self) -> str:
        """The experiment of the group."""
        found = self._client.get_experiment_by_name(self.group)
        if found is not None:
            return str(found.experiment_id)
        return str(self._client.create_experiment(self.group, str(self.root / "mlruns")))

    @property
    def view(self) -> str:
        return shlex.join(["mlflow", "ui", "--backend-store-uri", f"sqlite:///{near(self.root / FILE)}"])

    def write(self, run: Run) -> None:
        known = self._runs.get(run.name) or self._begin(run)
        new = self._new(run)
        at_once = MOST_METRICS // max((1 + len(report.metrics) for report in new), default=1) or 1
        for start in range(0, len(new), at_once):  # a report is there whole, or not at all
            some = new[start : start + at_once]
            now = int(time.time() * 1000)
            metrics = [Metric(_key(n), v, now, r.step) for r in some for n, v in run.values(r).items()]
            self._client.log_batch(known.run_id, metrics=metrics)
            self._written[run.name] = some[-1].step
        if run.is_over and known.mark != run.mark:
            self._end(run, known)
        elif not run.is_over and known.status != STATUS[run.state]:  # it waits, goes on, or is tried again
            self._client.update_run(known.run_id, status=STATUS[run.state])
            known.status, known.mark = STATUS[run.state], None
            self._tell(run, known)

    def _begin(self, run: Run) -> _Known:
        made = self._client.create_run(
            self._experiment, start_time=_milliseconds(run.began), run_name=run.name, tags={NAME: run.name}
        )
        known = self._runs[run.name] = _Known(made.info.run_id, "RUNNING", None)
        self._written[run.name] = 0
        self._tell(run, known)
        return known

    def _end(self, run: Run, known: _Known) -> None:
        if run.value is not None:
            final = Metric(_key(f"final_{run.metric}"), run.value, int(time.time() * 1000), run.last_step)
            self._client.log_batch(known.run_id, metrics=[final])
        self._tell(run, known)
        status = STATUS[run.state]
        ended = None if run.ended is None else _milliseconds(run.ended)
        self._client.set_terminated(known.run_id, status, ended)
        self._client.set_tag(known.run_id, MARK, run.mark)  # last: what has it is whole
        known.status, known.mark = status, run.mark

    def _tell(self, run: Run, known: _Known) -> None:
        """Write the parameters, and what is known about the run."""
        params = [Param(_key(name), str(value)[:LONGEST]) for name, value in run.flat.items()]
        tags = [RunTag(_key(name), str(value)[:LONGEST]) for name, value in run.about.items()]
        for start in range(0, len(params), MOST_PARAMS):
            self._client.log_batch(known.run_id, params=params[start : start + MOST_PARAMS])
        self._client.log_batch(known.run_id, tags=[*tags, RunTag("state", run.state)])
        for name in known.passing - set(run.about):
            self._client.delete_tag(known.run_id, name)
        known.passing = PASSING.intersection(run.about)

    def _stored(self) -> Iterator[tuple[str, _Known]]:
        """The runs that earlier processes wrote."""
        token = None
        while True:
            page = self._client.search_runs([self._experiment], max_results=1000, page_token=token)
            for run in page:
                tags = run.data.tags
                if NAME in tags:
                    passing = PASSING.intersection(tags)
                    yield tags[NAME], _Known(run.info.run_id, run.info.status, tags.get(MARK), passing)
            token = page.token
            if not token:
                return

    def _last_step(self, run: Run) -> int:
        history = self._client.get_metric_history(self._runs[run.name].run_id, _key(run.metric))
        return max((metric.step for metric in history), default=0)


def _uri(file: Path) -> str:
    return sqlalchemy.URL.create("sqlite", database=str(file)).render_as_string()


def _key(name: str) -> str:
    """A name that MLflow takes, which it may make a path of."""
    parts = re.sub(r"[^\w./ -]", "_", name)[:LONGEST_KEY].split("/")
    return "/".join(part for part in parts if part.strip(".")) or "_"


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1000)
