"""The queue as a whole: each study's place, what it waits for, and when it begins and ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...storage.wanted import PRIORITIES, Wanted, moment
from ..engine.clock import SAVE_EVERY_SECONDS
from ..formatting import duration
from ..values import Value
from .decide import Decision, Entry, Preempt, Wait, decide
from .foreseen import START_SECONDS, Foreseen, Rest, foresee, moment_ahead, rest_of
from .observe import Observed
from .slots import Machine, Slice, need_of
from .states import WAITING, StudyState, state_of

MOST_LEAVING = 90.0  # seconds from the request to the end of a driver
UNSAVED_SECONDS = START_SECONDS + SAVE_EVERY_SECONDS  # that a study was searched and does not say, at most
NORMAL = PRIORITIES.index("normal")


@dataclass(frozen=True)
class Moment(Value):
    """A foreseen moment with its interval, in ISO 8601."""

    expected: str
    earliest: str
    latest: str


@dataclass(frozen=True)
class QueuedStudy(Value):
    """A study that a service has, or that is searched now."""

    study: str
    state: StudyState
    priority: str | None  # None: no service has it
    place: int | None = None  # among those that wait, from 1
    by: str | None = None  # who wanted it last
    asks: str = ""  # what of the machine, in words
    has: Slice | None = None  # what it has now
    preemptible: bool = True
    begins: Moment | None = None  # or began: of one that runs, when its driver was started; None: unknown
    ends: Moment | None = None  # or ended
    would_stop: tuple[str, ...] = ()  # studies that make room for it
    preemptions: int = 0  # so far
    lost_seconds: float = 0.0  # that these have cost
    driver: int | None = None  # the process that searches it
    id: int | None = None  # its number in the database, which stays when it is renamed


@dataclass(frozen=True)
class MachineView(Value):
    """What studies share on a machine, and who has which."""

    cores: tuple[int, ...]
    gpus: tuple[str, ...]
    memory: int  # bytes
    lanes: int
    free: Slice
    has: Mapping[str, Slice]  # by study
    draining: bool = False  # whether nothing is started


@dataclass(frozen=True)
class Queue(Value):
    """The studies of a workspace in the order of the queue: those that run, those that wait, all others."""

    studies: tuple[QueuedStudy, ...]
    machine: MachineView

    def of(self, study: str) -> QueuedStudy | None:
        """A study; None where it is not in the queue."""
        return next((each for each in self.studies if each.study == study), None)


@dataclass(frozen=True)
class Serving:
    """What a service goes by that has a queue."""

    machine: Machine
    server: str | None = None  # what it is called in the studies that it has; None: it has those of all
    draining: bool = False  # whether it starts nothing


@dataclass(frozen=True)
class Situation:
    """What there is at one moment, and what a service knows of it besides."""

    studies: Sequence[Observed]
    machine: Machine
    now: float
    server: str | None = None  # the service that asks
    starting: Mapping[str, Slice] | None = None  # drivers that were started and have no lock yet
    leaving: Mapping[str, float] | None = None  # since when drivers are told to leave
    draining: bool = False
    lent: tuple[Entry, ...] = ()  # parts of the machine that something short has, or asks for
    lacks: Mapping[str, str] = field(default_factory=dict)  # what is not here of studies whose server is gone
    full: Path | None = None  # a folder of the service whose disk is full

    @property
    def starts_nothing(self) -> str | None:
        """Why nothing is started; None where all may be."""
        if self.draining:
            return "the server is drained, and starts nothing"
        if self.full is not None:
            return f"the disk of {self.full} is full: nothing is started until it has room"
        return None

    def entries(self) -> list[tuple[Entry, Rest | None]]:
        """The studies that have a part of the machine, or wait for one."""
        found = [(self._entry(study), self._rest(study)) for study in self.studies]
        found += [(entry, _left(entry, self.now)) for entry in self.lent]
        return [
            (replace(entry, seconds=None if rest is None else rest.seconds), rest)
            for entry, rest in found
            if entry is not None
        ]

    def decide(self) -> Decision:
        """What to do now."""
        return decide([entry for entry, _ in self.entries()], self.machine, self.now)

    def state(self, study: Observed, waits_for: str | None = None) -> StudyState:
        """The state of a study."""
        starting = study.name in (self.starting or ())
        lacks = self.lacks.get(study.name)
        return state_of(study, starting=starting, server=self.server, lacks=lacks, waits_for=waits_for)

    def _entry(self, study: Observed) -> Entry | None:
        holds = study.occupied(self.machine)
        if holds is None and study.name in (self.starting or {}):
            holds = (self.starting or {})[study.name]
        if holds is None and self.state(study).state not in WAITING:
            return None
        wanted, served = study.wanted, study.driver is None or study.driver.served
        told = (self.leaving or {}).get(study.name)
        return Entry(
            name=study.name,
            priority=NORMAL if wanted is None else PRIORITIES.index(wanted.priority),
            since=0.0 if wanted is None else wanted.since,
            need=need_of(wanted, study.spec.get("execution") or {}, study.provenance, self.machine),
            key=study.key,
            holds=holds,
            begun=self.now if study.driver is None else study.driver.since,
            preemptible=served and self._may_stop(wanted) and study.driver is not None,
            leaving=None if told is None else told + MOST_LEAVING,
            between_reports=study.between_reports,
        )

    def _may_stop(self, wanted: Wanted | None) -> bool:
        """Whether a study may have to make room: not those of another service."""
        return (
            wanted is not None
            and wanted.preemptible
            and (self.server is None or wanted.server in (None, self.server))
        )

    def _rest(self, study: Observed) -> Rest | None:
        rest = rest_of(dict(study.spec), study.progress)
        if rest is None or study.waits_for_worker:
            return None
        return rest.plus(START_SECONDS) if study.driver is None else rest.or_less(UNSAVED_SECONDS)


def _left(entry: Entry, now: float) -> Rest:
    """What is left of something that takes so many seconds at most, and may end at any moment."""
    left = max(0.0, (entry.seconds or 0.0) - (now - entry.begun))
    return Rest(left, 0.0, left)


def view(situation: Situation) -> Queue:
    """The queue in order, with what is foreseen."""
    entries = situation.entries()
    decision = decide([entry for entry, _ in entries], situation.machine, situation.now)
    foreseen = foresee(entries, situation.machine, situation.now)
    if situation.starts_nothing is not None:
        foreseen = {entry.name: _without_begin(foreseen[entry.name], entry) for entry, _ in entries}
    by_name = {entry.name: entry for entry, _ in entries}
    stops = [action for action in decision.actions if isinstance(action, Preempt)]
    waiting = sorted((e for e in by_name.values() if e.holds is None), key=lambda each: each.order)
    places = {entry.name: place for place, entry in enumerate(waiting, 1)}
    found = []
    for study in situation.studies:
        entry, wanted = by_name.get(study.name), study.wanted
        seen = foreseen.get(study.name, _past(study))
        wait = decision.waits.get(study.name)
        words = None if wait is None or entry is None else _words(situation, decision, entry, wait)
        if situation.starts_nothing is not None and study.name in places:
            words = situation.starts_nothing
        found.append(
            QueuedStudy(
                study=study.name,
                state=situation.state(study, words),
                priority=None if wanted is None else wanted.priority,
                place=places.get(study.name),
                by=None if wanted is None else wanted.by,
                asks="" if entry is None else str(entry.need),
                has=None if entry is None else entry.holds,
                preemptible=wanted is None or wanted.preemptible,
                begins=_moment(situation.now, seen.begins, seen.begins_low, seen.begins_high),
                ends=_moment(situation.now, seen.ends, seen.ends_low, seen.ends_high),
                would_stop=tuple(stop.study for stop in stops if stop.by == study.name),
                preemptions=0 if wanted is None else wanted.times_preempted,
                lost_seconds=0.0 if wanted is None else round(wanted.lost, 1),
                driver=None if study.driver is None else study.driver.pid,
                id=study.key,
            )
        )
    has = {entry.name: entry.holds for entry in by_name.values() if entry.holds is not None}
    machine = situation.machine
    free = machine.free(has.values())
    shown = MachineView(
        machine.cpus, machine.gpus, machine.memory, len(machine.even), free, has, situation.draining
    )
    return Queue(tuple(sorted(found, key=lambda each: _rank(each, places))), shown)


def _past(study: Observed) -> Foreseen:
    """When a study that neither runs nor waits has begun, and has ended if it is over."""
    ended = study.ended if study.is_over else None
    return Foreseen(*[study.began] * 3, *[ended] * 3)


def _without_begin(foreseen: Foreseen, entry: Entry) -> Foreseen:
    """What is foreseen while nothing is started: only those that run end."""
    return foreseen if entry.holds is not None else Foreseen()


def _rank(study: QueuedStudy, places: Mapping[str, int]) -> tuple[int, int]:
    if study.has is not None:
        return 0, 0
    return (1, places[study.study]) if study.study in places else (2, 0)


def _moment(now: float, *moments: float | None) -> Moment | None:
    """The expected, earliest and latest one; None where one is unknown, or too far ahead to be known."""
    known = [at for at in moments if at is not None and moment_ahead(at, now) is not None]
    return None if len(known) < len(moments) else Moment(*(moment(round(at, 1)) for at in known))


def _words(situation: Situation, decision: Decision, entry: Entry, wait: Wait) -> str:
    """Why a study waits."""
    reserved = decision.reservation
    match wait.why:
        case "never":
            return f"it asks for {entry.need}, which this machine never has: {situation.machine}"
        case "room":
            holders = _holders(situation, entry)
            made = f"; {wait.other} is stopped for it" if wait.other else ""
            when = "" if reserved is None or made else _when(reserved.at, situation.now)
            return f"it waits for {entry.need}{holders}{when}{made}"
        case "reserved":
            return f"the free part of the machine is kept for {wait.other}, which is before it"
        case _:
            return f"it waits behind {wait.other} for {entry.need}"


def _holders(situation: Situation, entry: Entry) -> str:
    names = [each.name for each, _ in situation.entries() if each.holds and not each.holds.is_empty]
    if not names:
        return ""
    more = f" and {len(names) - 3} others" if len(names) > 3 else ""
    return f", which {', '.join(names[:3])}{more} {'has' if len(names) == 1 else 'have'}"


def _when(at: float, now: float) -> str:
    ahead = moment_ahead(at, now)
    if ahead is None:
        return " until nobody knows when"
    left = duration(max(1, round(at - now)))
    return f" for about {left} more, until {ahead.astimezone():%H:%M:%S}"
