"""What is asked of a search that leaves just then: it takes effect all the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
import pytest

from hpsearch.search.operations.control import pause, retry, stop, try_config
from hpsearch.search.operations.steer import set_budget
from hpsearch.search.operations.submit import submit
from hpsearch.search.results.study import space_of
from hpsearch.storage.commands import COMMAND_PREFIX
from hpsearch.storage.locks import driver_lock
from hpsearch.storage.studies import PHASE, Phase, find_study
from hpsearch.storage.workspace import Workspace

from ...support.driving import DrivenStudy
from ...support.spaces import small


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A workspace with a study that is over, and one trial of which has failed."""
    found = Workspace.at(str(tmp_path / "a.db"))
    submit(workspace=found, space=small(name="s", objective="remote"))
    stored = find_study(found, "s").study
    stored.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.FAIL))
    stored.set_user_attr(PHASE, Phase.OVER)
    return found


@contextmanager
def leaving(workspace: Workspace) -> Iterator[None]:
    """A driver that leaves once a command was sent to it, and has not read that."""
    stored, begun = find_study(workspace, "s"), threading.Event()

    def leave() -> None:
        with driver_lock(workspace, stored.folder):
            begun.set()
            deadline = time.monotonic() + 20
            while not commands(workspace) and time.monotonic() < deadline:
                time.sleep(0.01)

    thread = threading.Thread(target=leave)
    thread.start()
    begun.wait()
    yield
    thread.join()


def commands(workspace: Workspace) -> list[str]:
    return [key for key in find_study(workspace, "s").study.user_attrs if key.startswith(COMMAND_PREFIX)]


def test_a_budget_takes_effect_whenever_the_driver_ends(workspace: Workspace) -> None:
    with leaving(workspace):
        set_budget(workspace, "s", {"trials": 9})
    assert space_of(workspace, "s").budget.trials == 9
    assert find_study(workspace, "s").study.user_attrs[PHASE] == Phase.SEARCHING
    assert not commands(workspace)


def test_a_budget_that_a_killed_driver_has_not_read_is_the_next_ones(tmp_path: Path) -> None:
    study = DrivenStudy(tmp_path)
    study.driver(small()).close()
    study.command(do="budget", driver=1, budget={"trials": 9})
    driver = study.driver(small())
    driver.tick()
    assert driver.spec.budget.trials == 9
    driver.close()
    study.close()


def ask_stop(workspace: Workspace) -> bool:
    return stop(workspace=workspace, study="s").searching


def ask_pause(workspace: Workspace) -> bool:
    told = pause(workspace=workspace, study="s")
    assert told.wanted == "pause"
    return told.searching


def ask_retry(workspace: Workspace) -> bool:
    told = retry(workspace=workspace, study="s").searching
    assert find_study(workspace, "s").study.trials[0].state == optuna.trial.TrialState.WAITING
    return told


def ask_try(workspace: Workspace) -> bool:
    told = try_config(workspace=workspace, study="s", params={"x": 0.5})
    assert (told.trial, told.made) == (1, True)
    return told.searching


@pytest.mark.parametrize("ask", [ask_stop, ask_pause, ask_retry, ask_try])
def test_no_search_answers_where_it_has_just_ended(
    workspace: Workspace, ask: Callable[[Workspace], bool]
) -> None:
    with leaving(workspace):
        assert not ask(workspace)
    assert not commands(workspace), "nothing is left for the next search"
