"""Slices of machines: lanes, and certain amounts."""

from __future__ import annotations

import pytest

from hpsearch.search.queue.slots import Machine, Need, Slice, need_of
from hpsearch.storage.wanted import Slots, Wanted

MACHINE = Machine(tuple(range(8)), ("0", "1"), 80, lanes=2)


def test_lanes_share_evenly_and_the_first_have_the_rest() -> None:
    assert MACHINE.even == (Slice((0, 1, 2, 3), ("0",), 40), Slice((4, 5, 6, 7), ("1",), 40))
    odd = Machine((0, 1, 2), ("0",), 9, lanes=2)
    assert [(lane.cpus, lane.gpus) for lane in odd.even] == [((0, 1), ("0",)), ((2,), ())]
    assert len(Machine((0,), memory=1, lanes=9).even) == 1, "a lane has a core"


def test_a_certain_amount_leaves_the_first_lanes_whole() -> None:
    small = MACHINE.pick(Need(2, 1, 10), [])
    assert small == Slice((6, 7), ("1",), 10)
    lane = MACHINE.pick(Need(lane=True), [small])
    assert lane == MACHINE.even[0]
    assert MACHINE.pick(Need(lane=True), [small, lane]) is None
    assert MACHINE.pick(Need(2), [small, lane]) == Slice((4, 5))
    assert MACHINE.pick(Need(1, memory=31), [small, lane]) is None, "there is no memory left"
    assert MACHINE.pick(Need(ray=1), [lane, small] + [Slice(ray=1)] * 7) == Slice(ray=1)
    assert MACHINE.pick(Need(ray=1), [Slice(ray=1)] * 8) is None


@pytest.mark.parametrize(
    ("slots", "execution", "begun", "need"),
    [
        (None, {}, {}, Need(lane=True)),
        (None, {"workers": 4}, {}, Need(lane=True)),
        (None, {"workers": 2, "cpus_per_trial": 1.5, "gpus_per_trial": 0.5}, {}, Need(3, 1, 30)),
        (None, {"workers": 2, "cpus_per_trial": 1, "max_memory": 7, "pack": 3}, {}, Need(2, 0, 42)),
        (Slots(cpus=4), {}, {}, Need(4, 0, 40)),
        (Slots(gpus=1), {}, {}, Need(4, 1, 40)),
        (Slots(memory=5), {}, {}, Need(4, 0, 5)),
        (Slots(), {}, {}, Need(lane=True)),
        # Values depend on the cores of a worker: each has as many as those that the study began with.
        (None, {"processes_per_trial": 2}, {"threads": 3, "gpus": 1.0}, Need(6, 1, lane=True)),
        (Slots(cpus=2), {}, {"threads": 4, "gpus": 0}, Need(4, 0, 20)),
    ],
)
def test_a_study_asks_for_its_slots_its_execution_or_a_lane(
    slots: Slots | None, execution: dict[str, object], begun: dict[str, object], need: Need
) -> None:
    assert need_of(Wanted(since=1.0, slots=slots), execution, begun, MACHINE) == need


def test_what_runs_elsewhere_takes_nothing_here() -> None:
    assert need_of(Wanted(since=1.0, backend="remote"), {}, {"threads": 9}, MACHINE) == Need()
    assert need_of(Wanted(since=1.0, ray_address="auto"), {}, {}, MACHINE) == Need(ray=1)
