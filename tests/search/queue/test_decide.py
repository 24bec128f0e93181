"""What starts and what makes room: on made-up machines, by a clock that tests move."""

from __future__ import annotations

import math
from dataclasses import replace
from operator import attrgetter

from hypothesis import given, settings
from hypothesis import strategies as st

from hpsearch.search.queue.decide import Decision, Entry, Preempt, Start, decide
from hpsearch.search.queue.slots import Machine, Need, Slice

NOW = 1_000_000.0


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    cores, gpus = draw(st.integers(1, 8)), draw(st.integers(0, 3))
    return Machine(tuple(range(cores)), tuple(map(str, range(gpus))), 100, draw(st.integers(1, 3)), 2)


@st.composite
def needs(draw: st.DrawFn) -> Need:
    if draw(st.integers(0, 9)) == 0:
        return Need(ray=1)
    if draw(st.booleans()):
        return Need(cpus=draw(st.integers(0, 3)), lane=True)
    return Need(draw(st.integers(0, 9)), draw(st.integers(0, 3)), draw(st.integers(0, 110)))


@st.composite
def queues(draw: st.DrawFn) -> list[Entry]:
    """Studies that wait."""
    return [
        Entry(
            name=f"s{key}",
            priority=draw(st.integers(0, 2)),
            since=draw(st.integers(0, 3)),
            need=draw(needs()),
            key=key,
            seconds=draw(st.none() | st.integers(1, 300)),
            preemptible=draw(st.booleans()),
            between_reports=draw(st.integers(0, 20)),
        )
        for key in range(draw(st.integers(1, 8)))
    ]


class Play:
    """A queue that is played to its end: each study takes the seconds that it said, or `unknown` ones."""

    def __init__(self, queue: list[Entry], machine: Machine, unknown: float = 200.0) -> None:
        self.machine, self.now = machine, NOW
        self.state = {entry.name: entry for entry in queue}
        self.rest = {entry.name: float(entry.seconds or unknown) for entry in queue}
        self.began: dict[str, list[float]] = {entry.name: [] for entry in queue}
        self.order: list[str] = []  # as they began first
        self.last: Decision | None = None

    def step(self) -> Decision:
        """Decide, act, and go on to the next event."""
        self.last = decision = decide(self.state.values(), self.machine, self.now)
        for action in decision.actions:
            entry = self.state[action.study]
            if isinstance(action, Start):
                assert entry.holds is None
                self.state[entry.name] = replace(entry, holds=action.slice, begun=self.now)
                self.began[entry.name].append(self.now)
                self.order += [entry.name] if entry.name not in self.order else []
            else:
                self.state[entry.name] = replace(entry, leaving=self.now + entry.between_reports)
        self.check_slots()
        running = [entry for entry in self.state.values() if entry.holds is not None]
        ends = {e.name: min(self.now + self.rest[e.name], e.leaving or math.inf) for e in running}
        until = min(
            [
                *ends.values(),
                *(at for e in running if (at := e.begun + self.machine.settle) > self.now),
            ],
            default=self.now,
        )
        for entry in running:
            self.rest[entry.name] -= until - self.now
            seconds = entry.seconds and max(0.0, self.rest[entry.name])
            if self.rest[entry.name] <= 1e-6:
                del self.state[entry.name]
            elif ends[entry.name] <= until:
                self.state[entry.name] = replace(entry, seconds=seconds, holds=None, leaving=None)
            else:
                self.state[entry.name] = replace(entry, seconds=seconds)
        self.now = until
        return decision

    def check_slots(self) -> None:
        """Nobody has what another has, and nobody more than there is."""
        held = [entry.holds for entry in self.state.values() if entry.holds is not None]
        for place in (attrgetter("cpus"), attrgetter("gpus")):
            given_out = [each for one in held for each in place(one)]
            assert len(given_out) == len(set(given_out))
        assert {core for one in held for core in one.cpus} <= set(self.machine.cpus)
        assert sum(one.memory for one in held) <= self.machine.memory
        assert sum(one.ray for one in held) <= self.machine.ray_studies


@given(queues(), machines())
@settings(max_examples=150)
def test_a_queue_gives_out_what_there_is_and_everybody_comes_to_an_end(
    queue: list[Entry], machine: Machine
) -> None:
    play, fits = Play(queue, machine), {e.name for e in queue if machine.pick(e.need, ()) is not None}
    for _ in range(20 * len(queue) + 20):
        if not fits & play.state.keys():
            break
        play.step()
    assert play.state.keys() == {e.name for e in queue} - fits  # nobody starves who could ever run
    last = decide(play.state.values(), machine, play.now)
    assert {wait.why for wait in last.waits.values()} <= {"never"}
    # A study is stopped for those of higher priority alone, and each of these begins once: no cycles.
    higher = {e.name: sum(o.priority < e.priority for o in queue) for e in queue}
    assert all(len(play.began[name]) <= 1 + higher[name] for name in fits)


@given(queues(), machines())
@settings(max_examples=150)
def test_a_class_keeps_its_order_but_for_those_that_delay_nobody(
    queue: list[Entry], machine: Machine
) -> None:
    unknown = [replace(entry, seconds=None, since=key) for key, entry in enumerate(queue)]
    play = Play(unknown, machine)
    decision = play.step()
    reserved = decision.reservation
    for action in decision.actions:
        if isinstance(action, Start) and reserved is not None:
            first = next(e for e in unknown if e.name == reserved.study)
            mine = next(e for e in unknown if e.name == action.study)
            if first.order < mine.order and not action.slice.is_empty:  # it leaves the reserved slice alone
                others = list(reserved.beside)
                others.remove(action.slice)
                assert machine.has_room(action.slice, [reserved.slice, *others])


@given(queues(), machines())
@settings(max_examples=150)
def test_backfilling_never_delays_a_reservation(queue: list[Entry], machine: Machine) -> None:
    """As far as ends are foreseen: all are here, and come as foreseen."""
    queue = [replace(entry, seconds=entry.seconds or 50, preemptible=False, priority=1) for entry in queue]
    play, promised = Play(queue, machine), {}
    for _ in range(20 * len(queue) + 20):
        before = play.now
        decision = play.step()
        if decision.reservation is not None and decision.reservation.study not in promised:
            promised[decision.reservation.study] = decision.reservation.at
        assert all(at >= before or play.began[name] for name, at in promised.items())
    for name, at in promised.items():
        assert play.began[name][0] <= at + 1e-6


@given(queues(), machines())
def test_equal_input_gives_equal_output(queue: list[Entry], machine: Machine) -> None:
    assert decide(queue, machine, NOW) == decide(queue[::-1], machine, NOW)


def running(
    name: str, priority: int = 2, begun: float = 100.0, cores: tuple[int, ...] = (0, 1), **more: float
) -> Entry:
    """A study that was begun so many seconds ago."""
    return Entry(name, priority, 0.0, Need(len(cores)), holds=Slice(cores), begun=NOW - begun, **more)  # type: ignore[arg-type]


MACHINE = Machine((0, 1, 2, 3), memory=10)


def stopped_for(need: Need, *others: Entry) -> list[str]:
    waits = Entry("new", 0, 1.0, need)
    return [a.study for a in decide([waits, *others], MACHINE, NOW).actions if isinstance(a, Preempt)]


def test_the_fewest_lowest_and_latest_make_room() -> None:
    low, later = running("low"), running("later", begun=80, cores=(2,))
    normal = running("normal", priority=1, begun=90, cores=(3,))
    assert stopped_for(Need(1), low, later, normal) == ["later"]
    assert stopped_for(Need(2), low, later, normal) == ["low"]
    assert stopped_for(Need(3), low, later, normal) == ["later", "low"]
    assert stopped_for(Need(4), low, later, normal) == ["later", "low", "normal"]
    assert stopped_for(Need(9), low, later, normal) == []


def test_who_began_just_now_or_ends_soon_or_may_not_is_left_alone() -> None:
    whole = (0, 1, 2, 3)
    assert stopped_for(Need(1), running("a", begun=59, cores=whole)) == []
    assert stopped_for(Need(1), running("a", cores=whole, seconds=3, between_reports=5)) == []
    assert stopped_for(Need(1), running("a", cores=whole, seconds=30, between_reports=5)) == ["a"]
    assert stopped_for(Need(1), replace(running("a", cores=whole), preemptible=False)) == []
    assert stopped_for(Need(1), running("a", cores=whole, leaving=NOW + 9)) == [], "it makes room already"
    assert stopped_for(Need(1), running("a", priority=0, cores=whole)) == []
