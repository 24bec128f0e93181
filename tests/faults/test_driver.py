"""The driver is interrupted, hung up on or killed: what stays is whole, and the same command goes on."""

from __future__ import annotations

import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from optuna.trial import FrozenTrial

from hpsearch.search import open_study
from hpsearch.storage.locks import driver_running
from hpsearch.storage.studies import ELAPSED
from hpsearch.storage.workspace import Workspace

from ..support.bench import HPSEARCH

pytestmark = pytest.mark.slow

OBJECTIVES = Path(__file__).with_name("objectives.py")


def fields(bench: Any, **more: Any) -> dict[str, Any]:
    constants = {"fault": "", "pause": 2.0, "folder": str(bench.folder)}
    return {
        "objective": f"{OBJECTIVES}:faulty",
        "parameters": {"x": {"min": 0.0, "max": 1.0}, **constants},
        "budget": {"trials": 4},
        "execution": {"workers": 2, "retries": 0},
    } | more


def of_the_search(folder: Path) -> list[psutil.Process]:
    """Processes that were started by a search in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if "HPSEARCH_SEARCH" in process.environ() and Path(process.cwd()) == folder:
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.status() != psutil.STATUS_ZOMBIE]


def goes_on(bench: Any, search: Any = None) -> None:
    """The same command, or this process, finishes the search.

    Nothing is done twice but what the last checkpoint had not.
    """
    (bench.folder / "hurry").touch()
    if search is None:
        bench.run(bench.make_spec(**fields(bench)), backend="optuna")
    else:
        process = search.start()
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
    trials = bench.trials()
    assert [(t.number, t.state.name) for t in trials] == [(n, "COMPLETE") for n in range(4)]
    assert all(list(t.intermediate_values) == list(range(1, 10)) for t in trials)
    begins = [[n["begins"] for n in bench.notes(number) if "begins" in n] for number in (0, 1)]
    assert all(len(found) == 2 and found[1] > 0 for found in begins), "in place, from a checkpoint"


def test_a_killed_driver_leaves_no_process_and_no_running_trial(bench: Any, command: Any) -> None:
    """Even where a worker is frozen, and cannot see that its driver is gone."""
    search = command(**fields(bench))
    process = search.start()
    search.begun(0)
    search.begun(1)
    frozen = [n["pid"] for n in bench.notes(0) if "pid" in n][-1]
    os.kill(frozen, signal.SIGSTOP)
    assert len(of_the_search(bench.folder)) >= 2
    process.kill()
    process.wait()
    search.wait_for(lambda: bench.states() == ["WAITING", "WAITING"])
    search.wait_for(lambda: not of_the_search(bench.folder))
    assert driver_running(Workspace(bench.url, bench.folder / "runs"), "study") is None
    assert not list(bench.folder.glob(".*.pid"))
    goes_on(bench)


@pytest.mark.any_backend
def test_the_same_command_may_follow_a_kill_at_once(bench: Any, command: Any) -> None:
    """While the guardian of the killed driver still tidies up after it."""
    search = command(**fields(bench))
    process = search.start()
    search.begun(0)
    search.begun(1)
    process.kill()
    process.wait()
    goes_on(bench, search)


@pytest.mark.any_backend
def test_a_search_that_promotes_goes_on_after_kills_as_if_nothing_had_been(bench: Any, command: Any) -> None:
    """And audits and confirms: the same trials, reports and ends as in a search that nobody killed."""
    promotion = fields(
        bench,
        early_stopping={"method": "asha", "type": "promotion", "min": 1, "max": 9, "eta": 3},
        budget={"trials": 9},
        confirm={"top": 2, "seeds": 2},
        audit=1.0,
        execution={"workers": 1, "retries": 0},
    )
    promotion["parameters"]["pause"] = 0.1
    search = command(**promotion)
    for number in (1, 6, 10):
        process = search.start()
        search.begun(number)
        process.kill()
        process.communicate()
        paused = [t.number for t in bench.trials() if "paused" in t.user_attrs]
        assert bool(paused) == (number < 9), "who waits ends before the best train again"
    bench.search(bench.make_spec(**promotion))
    trained = [note["step"] for n in range(13) for note in bench.notes(n) if "step" in note]
    bench.search(bench.make_spec(**promotion, name="undisturbed"))
    ours, theirs = bench.trials(), bench.trials("undisturbed")

    def rows(trials: list[FrozenTrial]) -> list[Any]:
        return [(t.params, t.state, t.value, t.intermediate_values) for t in trials]

    assert rows(ours) == rows(theirs)
    assert [t.user_attrs.get("audited") for t in ours] == [t.user_attrs.get("audited") for t in theirs]
    assert sum("audited" in trial.user_attrs for trial in ours) >= 2
    assert len(trained) - sum(len(t.intermediate_values) for t in ours) <= 3, "at most a step for each kill"


def in_a_terminal(bench: Any, *, output: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start the search in a terminal of its own, with its output there (`terminal`) or in a file."""
    ours, theirs = pty.openpty()
    words = [HPSEARCH, "run", "space.yaml", "--plain", "--backend", bench.backend, "--storage", bench.url]
    told = (
        theirs if output.startswith("terminal") else os.open(bench.folder / "log", os.O_CREAT | os.O_WRONLY)
    )
    script = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY); os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, words)],
        cwd=bench.folder,
        stdin=theirs,
        stdout=told,
        stderr=told,
        start_new_session=True,
        preexec_fn=(lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) if "ignored" in output else None,
    )
    for descriptor in {theirs, told}:
        os.close(descriptor)
    return process, ours


@pytest.mark.parametrize("backend_name", ["optuna"])
@pytest.mark.parametrize("output", ["terminal", "file", "terminal, ignored"])
def test_a_terminal_that_goes_stops_a_search_only_where_it_was_its_own(
    bench: Any, command: Any, output: str
) -> None:
    """With SIGHUP ignored, as by nohup, it goes on in any case."""
    search = command(**fields(bench))
    process, terminal = in_a_terminal(bench, output=output)
    search.started.append(process)
    search.begun(0)
    search.begun(1)
    os.close(terminal)  # the kernel hangs up on the session
    if output != "terminal":
        time.sleep(1)
        assert process.poll() is None and "RUNNING" in bench.states()
        (bench.folder / "hurry").touch()
        assert process.wait(60) == 0
        assert bench.states() == ["COMPLETE"] * 4
        return
    assert process.wait(60) == 130
    assert bench.states() == ["WAITING", "WAITING"]
    goes_on(bench)


@pytest.mark.parametrize("backend_name", ["optuna"])
def test_a_reader_that_goes_does_not_end_the_search(bench: Any, command: Any) -> None:
    """As in `hpsearch run space.yaml | head -1`."""
    search = command(**fields(bench))
    (bench.folder / "hurry").touch()
    process = search.start()
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 0
    assert bench.states() == ["COMPLETE"] * 4


@pytest.mark.parametrize("backend_name", ["optuna"])
def test_a_search_that_finds_its_database_locked_says_so_and_hears_a_signal(bench: Any, command: Any) -> None:
    search = command(**fields(bench))
    (bench.folder / "hurry").touch()
    search.start().communicate(timeout=60)
    with closing(sqlite3.connect(bench.folder / "studies.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        process = search.start("--trials", "8")
        assert process.stdout is not None
        assert "cannot be used now (database is locked)" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert "another signal leaves without waiting" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


@pytest.mark.any_backend
def test_a_clock_that_is_set_back_is_said_and_no_trial_ends_before_it_begins(
    bench: Any, command: Any
) -> None:
    library, clock = bench.folder / "clock.so", bench.folder / "clock"
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
    clock.write_text("0")
    space = fields(bench)
    space["parameters"]["pause"] = 0.3
    search = command(**space)
    process = search.start(env={"LD_PRELOAD": str(library), "CLOCK_OFFSET": str(clock)})
    search.begun(0)
    search.begun(1)
    clock.write_text("-3600")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert re.search(r"the clock was set back by 3[56]\d\d s", output), output
    trials = bench.trials()
    assert [t.state.name for t in trials] == ["COMPLETE"] * 4
    assert all(t.datetime_start <= t.datetime_complete for t in trials)
    assert 0 < open_study("study", storage=bench.url).study.user_attrs[ELAPSED] < 600
