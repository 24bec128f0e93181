"""The state of a study, and why it is in it."""

from __future__ import annotations

import pytest

from hpsearch.search.queue.foreseen import Progress
from hpsearch.search.queue.observe import DriverProcess, Observed
from hpsearch.search.queue.slots import Machine, Slice
from hpsearch.search.queue.states import state_of
from hpsearch.search.queue.view import Situation, view
from hpsearch.storage.studies import Phase
from hpsearch.storage.wanted import Desired, Wanted, moment

from ...support.spaces import SMALL, small

NOW = 1000.0


@pytest.mark.parametrize(("desired", "said"), [("run", "starting"), ("pause", "paused"), ("stop", "stopped")])
def test_a_process_that_ends_as_it_was_told_is_none_that_starts(desired: Desired, said: str) -> None:
    """It has no lock before it has the study, nor once it has left it."""
    study = Observed("study", 1, Wanted(since=0.0).to(desired, "anna", 1.0), SMALL)
    assert state_of(study, starting=True).state == said


def test_a_study_that_made_room_or_was_put_back_waits_since_then() -> None:
    waits = Wanted(since=1.0).to("pause", "anna", 5.0).to("run", "anna", 9.0)
    made_room = Wanted(since=1.0).begun("s", 2.0).preempted_by("high", 5.0).has_left(0, 8.0)
    studies = [Observed("put back", 1, waits, SMALL), Observed("made room", 2, made_room, SMALL)]
    shown = view(Situation(studies, Machine((0, 1)), NOW))
    found = {each.study: (each.state.state, each.state.since, each.preemptions) for each in shown.studies}
    assert found == {"put back": ("queued", moment(9.0), 0), "made room": ("preempted", moment(8.0), 1)}


def test_what_is_over_tells_when_it_began_and_ended() -> None:
    over = Observed("over", 1, Wanted(since=1.0), SMALL, phase=Phase.OVER, began=20.0, ended=30.0)
    (told,) = view(Situation([over], Machine((0, 1)), NOW)).studies
    assert told.begins is not None and told.begins.expected == moment(20.0)
    assert told.ends is not None and (told.ends.expected, told.ends.latest) == (moment(30.0),) * 2
    assert told.state.since == moment(30.0)


@pytest.mark.parametrize("running", [0, 1])
def test_a_search_without_workers_says_so_and_has_no_end(running: int) -> None:
    driver = DriverProcess(7, 10.0, served=True, slice=Slice())
    wanted = Wanted(since=1.0, backend="remote")
    progress = Progress(elapsed=90.0, ended=2)
    study = Observed("mine", 1, wanted, SMALL, driver=driver, running=running, progress=progress)
    (told,) = view(Situation([study], Machine((0, 1)), NOW)).studies
    assert (told.ends is None) == (running == 0)
    waits = "it waits for a worker: hpsearch work URL mine"
    assert told.state.reason == ("process 7 searches it" if running else waits)


@pytest.mark.parametrize("budget", [{"trials": 999_999_999_999}, {"trials": 10**15}])
def test_a_budget_beyond_all_dates_leaves_the_queue_to_the_others(budget: dict[str, int]) -> None:
    driver = DriverProcess(7, 10.0, served=True, slice=Slice((0, 1)))
    spec, progress = small(budget=budget).to_json(), Progress(elapsed=90.0, ended=3)
    huge = Observed("huge", 1, Wanted(since=1.0), spec, driver=driver, running=1, progress=progress)
    over = Observed("over", 2, Wanted(since=1.0), SMALL, phase=Phase.OVER, began=20.0, ended=30.0)
    behind = Observed("behind", 3, Wanted(since=2.0), SMALL)
    told = view(Situation([huge, over, behind], Machine((0, 1)), NOW))
    found = {each.study: None if each.ends is None else each.ends.expected for each in told.studies}
    assert found == {"huge": None, "over": moment(30.0), "behind": None}
    waits = told.of("behind")
    assert waits is not None and "nobody knows when" in waits.state.reason
