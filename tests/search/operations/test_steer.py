"""What is asked of a search that begins or leaves just then, or by many at once: it takes effect, once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest

from hpsearch.search.cli.hints import with_options
from hpsearch.search.errors import UsageError
from hpsearch.search.operations import control
from hpsearch.search.operations import steer as steering
from hpsearch.search.operations import submit as submitting
from hpsearch.search.operations.control import kill, pause, retry, stop, try_config
from hpsearch.search.operations.run import run
from hpsearch.search.operations.steer import set_sections
from hpsearch.search.operations.studies import delete
from hpsearch.search.operations.submit import submit
from hpsearch.search.results.study import space_of
from hpsearch.storage import StorageError, claims, studies
from hpsearch.storage.commands import COMMAND_PREFIX
from hpsearch.storage.locks import driver_lock
from hpsearch.storage.studies import PHASE, Phase, find_study
from hpsearch.storage.workspace import Workspace

from ...support.driving import DrivenStudy
from ...support.in_process import InProcessBackend
from ...support.spaces import small
from ...support.watchers import Recorder


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A workspace with a study that is over, and one trial of which has failed."""
    found = Workspace.at(str(tmp_path / "a.db"))
    submit(workspace=found, space=small(name="s", objective="remote"), backend="remote")
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
        set_sections(workspace, "s", budget={"trials": 9})
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


def test_of_changes_at_the_same_time_all_are_made(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first(*asked: Any) -> bool:
        monkeypatch.setattr(steering, "obeyed", control.obeyed)
        set_sections(workspace, "s", confirm={"top": 2})
        set_sections(workspace, "s", budget={"samples": 900})
        return control.obeyed(*asked)

    monkeypatch.setattr(steering, "obeyed", first)
    set_sections(workspace, "s", budget={"trials": 60})
    now = space_of(workspace, "s")
    assert (now.budget.trials, now.budget.samples, now.confirm.top) == (60, 900, 2)


def test_a_search_changes_the_fields_that_it_is_told_and_no_others(tmp_path: Path) -> None:
    study = DrivenStudy(tmp_path)
    driver = study.driver(small())
    changes = (
        {"budget": {"samples": 900}},
        {"budget": {}, "confirm": {"top": 2}},
        {"budget": {"trials": 60}},
    )
    for change in (*changes, {"budget": {"samples": None}}, {"budget": {"trials": None}}):
        study.command(do="budget", **change)
        driver.tick()
    assert dict(driver.spec.budget) == {"trials": 60, "time": None, "samples": None, "target": None}
    assert driver.spec.confirm.top == 2
    assert "a budget that is none, which is ignored" in study.watcher.said[-1]
    driver.close()
    study.close()


def steady(trial: Any) -> float:
    return 0.5


def test_a_search_that_begins_goes_on_with_what_changes_until_then(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def claim_of(*asked: Any) -> Any:
        set_sections(workspace, "t", budget={"trials": 3})  # it has read its space
        return real(*asked)

    monkeypatch.setattr(
        "hpsearch.search.operations.run.make_backend", lambda name, *of: InProcessBackend(*of[:2])
    )
    one = small(name="t", budget={"trials": 1})
    run(workspace=workspace, space=one, objective=steady, watcher=Recorder())
    real = studies.claim_of
    monkeypatch.setattr("hpsearch.search.operations.run.studies.claim_of", claim_of)
    done = run(workspace=workspace, study="t", objective=steady, watcher=Recorder())
    assert (done.ran, space_of(workspace, "t").budget.trials) == (2, 3)


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


def ask_kill(workspace: Workspace) -> bool:
    stored = find_study(workspace, "s").study
    number = stored.ask().number
    told = kill(workspace=workspace, study="s", trial=number).searching
    assert stored.trials[number].state == optuna.trial.TrialState.FAIL
    return told


@pytest.mark.parametrize("ask", [ask_stop, ask_pause, ask_retry, ask_try])
def test_no_search_answers_where_it_has_just_ended(
    workspace: Workspace, ask: Callable[[Workspace], bool]
) -> None:
    with leaving(workspace):
        assert not ask(workspace)
    assert not commands(workspace), "nothing is left for the next search"


@pytest.mark.parametrize("ask", [ask_kill, ask_retry, ask_try])
def test_a_search_that_has_just_begun_is_told(
    workspace: Workspace, ask: Callable[[Workspace], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []

    def sent(*asked: Any) -> bool:
        looks.append(asked)  # at the first one no search runs yet
        return len(looks) > 1 and real(*asked)

    real = control.sent
    monkeypatch.setattr(control, "sent", sent)
    with leaving(workspace):
        assert not ask(workspace), "it left again"
    assert len(looks) > 1 and not commands(workspace)


def at_once(count: int, ask: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(count) as pool:
        return [each.result() for each in [pool.submit(ask) for _ in range(count)]]


def test_of_equal_requests_at_once_one_makes_the_trial(workspace: Workspace) -> None:
    told = at_once(
        4, lambda: try_config(workspace=workspace, study="s", params={"x": 0.5}, request="a", by="anna")
    )
    assert {each.trial for each in told} == {1} and sum(each.made for each in told) == 1


def test_of_equal_submissions_at_once_one_makes_the_study(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=60)
    real = claims.claim_new

    def claim_new(*asked: Any) -> claims.Claim:
        both.wait()  # neither has found a study
        return real(*asked)

    monkeypatch.setattr(submitting, "claim_new", claim_new)
    told = at_once(
        2, lambda: submit(workspace=workspace, space=small(name="t", objective="remote"), backend="remote")
    )
    assert sorted(each.made for each in told) == [False, True]


@pytest.mark.parametrize("backend", ["optuna", "ray"])
def test_a_space_whose_code_others_bring_is_not_queued_for_a_backend_without_it(
    tmp_path: Path, backend: str
) -> None:
    with pytest.raises(UsageError, match="search with the backend remote"):
        submit(
            workspace=Workspace.at(str(tmp_path / "b.db")), space=small(objective="remote"), backend=backend
        )
    assert not (tmp_path / "b.db").exists()


def test_what_is_searched_can_be_deleted_once_it_is_stopped_whatever_its_name(workspace: Workspace) -> None:
    with driver_lock(workspace, "s"), pytest.raises(StorageError) as caught:
        delete(workspace=workspace, study="s")
    told = with_options(caught.value)
    assert told.endswith('is running the study "s"; wait for it, or end it (hpsearch stop)')


def test_a_configuration_to_try_is_one_of_the_budgets_trials_or_one_more(workspace: Workspace) -> None:
    set_sections(workspace, "s", budget={"trials": 2})
    told = [try_config(workspace=workspace, study="s", params={"x": x}, request=str(x)) for x in (0.1, 0.2)]
    assert [each.budget for each in told] == [None, 3]
    assert [each.on_budget for each in told] == ["", "; the budget is 3 trials now, one more than before"]
    assert space_of(workspace, "s").budget.trials == 3
    again = try_config(workspace=workspace, study="s", params={"x": 0.2}, request="0.2")
    assert (again.trial, again.made, again.budget) == (2, False, None)


def test_a_configuration_that_is_tried_before_a_search_leaves_its_baseline_to_it(tmp_path: Path) -> None:
    study = DrivenStudy(tmp_path)
    workspace = Workspace.at(str(study.file))
    spec = small(baseline={"x": 0.5}, objective="remote")
    submit(workspace=workspace, space=spec, backend="remote")
    assert try_config(workspace=workspace, study="study", params={"x": 0.25}).trial == 0
    for _ in range(2):  # a second search adds no other
        study.driver(spec)
        asked = [trial.system_attrs["fixed_params"]["x"] for trial in study.trials()]
        assert asked == [0.25, 0.5]
        assert [("baseline" in trial.user_attrs) for trial in study.trials()] == [False, True]
    study.close()
