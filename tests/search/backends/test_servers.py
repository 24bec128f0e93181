"""What only a server does: it goes away in the middle of a search, and asks for a password."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import sqlalchemy

from hpsearch.storage.studies import STOP

AWAY = 8.0  # seconds that a server is gone: more than the first pauses between two tries


@pytest.fixture
def backend_name() -> str:
    return "optuna"


@pytest.fixture(params=[pytest.param("postgres", marks=pytest.mark.postgres)])
def storage_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class Outage:
    """A server that is killed once a trial has ended, and comes back; what it has not written is lost."""

    def __init__(self, server: Any, seconds: float) -> None:
        self._server, self._seconds = server, seconds
        self._thread = threading.Thread(target=self._happen)
        self.over = False

    def __call__(self, driver: Any) -> None:
        if self._thread.ident is None:
            self._thread.start()

    def wait(self) -> None:
        self._thread.join()

    def _happen(self) -> None:
        self._server.stop(signal.SIGQUIT)  # PostgreSQL's "immediate"
        time.sleep(self._seconds)
        self._server.start()
        self.over = True


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, AWAY])
def test_a_search_waits_for_a_server_that_is_restarted_and_loses_nothing(
    bench: Any, recorder: Any, postgres: Any, seconds: float
) -> None:
    outage = Outage(postgres, seconds)
    watcher = recorder(at_end=outage)
    try:
        bench.search(
            "steady", budget={"trials": 8}, execution={"workers": 2, "retries": 0}, watcher=watcher
        )
    finally:
        outage.wait()
    trials = bench.trials()
    assert [(t.number, t.state.name) for t in trials] == [(n, "COMPLETE") for n in range(8)]
    for trial in trials:
        noted = bench.notes(trial.number)
        assert [note["step"] for note in noted if "step" in note] == list(range(1, 10)), "in one attempt"
        assert list(trial.intermediate_values) == list(range(1, 10))
        assert trial.value == noted[0]["x"] == trial.params["x"]
    assert len(watcher.ended) == 8
    if seconds:
        waited = [said for said in watcher.said if "the database cannot be written" in said]
        assert len(waited) >= 2 and "trying again in 2 s" in waited[1]
    assert not any(re.search("p@ss|p%40ss", said) for said in watcher.said)
