"""Eight workers, and others at the same database: nothing is locked out, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import optuna
import pytest
import sqlalchemy

pytestmark = [pytest.mark.slow, pytest.mark.any_backend]

READER = """\
import sys, time, optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)
while True:
    storage = optuna.storages.RDBStorage(sys.argv[1], skip_table_creation=True)
    study = optuna.load_study(study_name="study", storage=storage)
    study.get_trials()
    storage.engine.dispose()
    print("read", flush=True)
    time.sleep(0.05)
"""


class Neighbours:
    """A dashboard-like reader in another process, and somebody who writes now and then."""

    def __init__(self, url: str, engine: sqlalchemy.Engine) -> None:
        self.errors: list[str] = []
        self.writes = 0
        self._engine = engine
        self._over = threading.Event()
        self._reader = subprocess.Popen(
            [sys.executable, "-c", READER, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._reader.stdout is not None
        self._reader.stdout.readline()  # it takes longer to start than a small search
        self._writer = threading.Thread(target=self._write)
        self._writer.start()

    def end(self) -> tuple[int, str]:
        """Stop them; how often the study was read since they were there, and what the reader complained of."""
        self._over.set()
        self._writer.join()
        self._reader.terminate()
        out, err = self._reader.communicate(timeout=30)
        return out.count("read"), err

    def _write(self) -> None:
        while not self._over.wait(0.2):
            try:
                with self._engine.begin() as connection:
                    connection.execute(sqlalchemy.text("UPDATE studies SET study_name = study_name"))
                    self._over.wait(0.1)
                self.writes += 1
            except sqlalchemy.exc.SQLAlchemyError as error:
                self.errors.append(str(error))


@pytest.fixture
def neighbours(bench: Any) -> Iterator[list[Neighbours]]:
    found: list[Neighbours] = []
    yield found
    for neighbour in found:
        neighbour.end()


def test_many_trials_of_8_workers_beside_a_reader_and_a_writer(
    bench: Any, recorder: Any, neighbours: list[Neighbours]
) -> None:
    count = 64 if bench.backend == "optuna" else 32  # whose workers take ten times as long to start

    def join(driver: Any) -> None:
        if not neighbours:
            neighbours.append(Neighbours(bench.url, bench.engine()))

    watcher = recorder(at_end=join)
    bench.search(
        budget={"trials": count},
        execution={"workers": 8, "retries": 0},
        early_stopping={"method": "hyperband", "min": 1, "max": 9, "eta": 3},
        watcher=watcher,
    )
    reads, complaints = neighbours[0].end()
    trials = bench.trials()
    assert [t.number for t in trials] == list(range(count))
    assert all(t.state.is_finished() for t in trials)
    assert {t.state.name for t in trials} == {"COMPLETE", "PRUNED"}
    for trial in trials:
        noted = [(n["step"], n["value"]) for n in bench.notes(trial.number)]
        assert list(trial.intermediate_values.items()) == noted, "each reported once"
    assert neighbours[0].errors == []
    assert neighbours[0].writes > 0
    assert complaints == ""
    assert reads > 0
    assert watcher.said == [], "the driver never had to wait for the database"
    assert [t.number for t in watcher.ended if t.state == optuna.trial.TrialState.FAIL] == []
