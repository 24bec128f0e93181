"""What a search asks of all its trials again and again, counted on as they change.

At every trial and at many reports it asks who the best are, how many have ended, what is kept back for whom.
To look at all trials for that would make each one dearer than those before it. The storage tells which have
changed since somebody asked last; each of these is taken out as it was and put in as it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ...storage.live import LiveStorage
from ...storage.states import at_rung, audited_at, confirms, state_of, trained_to
from ..scheduling.audit import AuditSample
from ..trials.configuration import has_config


class Tally:
    """The trials of one study, as they are now."""

    def __init__(self, spec: Spec, storage: LiveStorage) -> None:
        self._spec = spec
        self._storage = storage
        self.audit_sample = AuditSample.of(spec)  # of the audit, as far as no time makes it smaller
        self._sign = 1 if spec.goal == "minimize" else -1
        self._changes = 0  # of the storage, that are counted here
        self._counted: dict[int, _Part] = {}  # of each trial; it itself is not what it was: Optuna changes it
        self._states: Counter[str] = Counter()
        self._own: list[int] = []  # trials of the search itself; numbers rise, here and below
        self._ranked: list[tuple[float, int]] = []  # the complete ones of them: losses and numbers
        self._ended = self._complete = 0
        self._trained = 0  # what those took of the resource that are not complete
        self._open: list[int] = []  # that have not ended
        self._waiting: list[int] = []
        self._confirming: list[int] = []
        self._baselines: list[int] = []
        self._drawn = _Audit()  # that only the draw says are not stopped
        self._audited = _Audit()  # that were to stop

    # What there is to know

    @property
    def states(self) -> Counter[str]:
        """How many trials are in each state, `paused` among them."""
        self._follow()
        return self._states

    @property
    def searched(self) -> int:
        """How many trials of the search itself there are."""
        self._follow()
        return len(self._own)

    @property
    def ended(self) -> int:
        """How many of these have ended."""
        self._follow()
        return self._ended

    def trainings(self, last: int | None) -> float:
        """What these took in whole trainings, of so many units each; the same when those who wait end."""
        self._follow()
        return float(self._ended) if last is None else self._complete + self._trained / last

    @property
    def open(self) -> list[FrozenTrial]:
        """The trials that have not ended."""
        self._follow()
        return [self._storage.trials[number] for number in self._open]

    @property
    def waiting(self) -> Iterator[FrozenTrial]:
        """The trials that wait to be taken up, or to begin."""
        self._follow()
        return (self._storage.trials[number] for number in list(self._waiting))

    @property
    def confirming(self) -> list[FrozenTrial]:
        """The trainings that confirm others."""
        self._follow()
        return [self._storage.trials[number] for number in self._confirming]

    @property
    def baselines(self) -> list[FrozenTrial]:
        """The trials of the search that are marked as its baseline."""
        self._follow()
        return [self._storage.trials[number] for number in self._baselines]

    def best(self, count: int, *, baseline: bool = True, but: int | None = None) -> list[FrozenTrial]:
        """So many of the best complete trials of the search, as `confirming.best_of` has them.

        Without a `baseline`, or `but` one trial, where that is asked.
        """
        self._follow()
        found: list[FrozenTrial] = []
        place = 0
        while len(found) < count and place < len(self._ranked):
            number = self._ranked[place][1]
            trial = self._storage.trials[number]
            if not has_config(self._spec, trial):
                del self._ranked[place]  # another program wrote it; asked of those few alone that come first
                continue
            place += 1
            if number != but and (baseline or "baseline" not in trial.user_attrs):
                found.append(trial)
        return found

    def confirmation_pool(self, top: int) -> list[FrozenTrial]:
        """The trials by which is decided which of the best are confirmed, where so many may be."""
        few = {trial.number for trial in self.best(top, baseline=False)}
        few.update(self._own[-1:], self._baselines, self._confirming)
        few.update(confirms(self._storage.trials[number]) or 0 for number in self._confirming)
        return [self._storage.trials[number] for number in sorted(few)]

    def unfinished_audit(self, sample: AuditSample) -> list[int]:
        """Those that were to stop, or wait at a rung until the search is over, and go on to their end.

        `draw`: that of the audit, or none of it where it has too little room.
        """
        self._follow()
        return sorted(self._audited.unfinished | (self._drawn.unfinished if sample.every else set()))

    def reserved_for_audit(self, sample: AuditSample) -> int:
        """What is kept back for the trials of the audit, which take it to their end.

        From their first reports on, and for good: what one leaves that ends before is not spent by others, or
        a search that was over would go on once it was begun again.
        """
        self._follow()
        return self._audited.rest + (self._drawn.rest if sample.every else 0)

    # How it is counted

    def _follow(self) -> None:
        if self._changes == self._storage.changes:
            return
        for trial in self._storage.changed_since(self._changes):
            if (before := self._counted.get(trial.number)) is not None:
                self._count(before, -1)
                self._rank(before, False)
            self._counted[trial.number] = now = self._part_of(trial)
            self._count(now, 1)
            self._rank(now, True)
            self._place(trial)
        self._changes = self._storage.changes

    def _part_of(self, trial: FrozenTrial) -> _Part:
        own, audited, last = confirms(trial) is None, audited_at(trial) is not None, trial.last_step
        complete, drawn = trial.state == TrialState.COMPLETE, trial.number in self.audit_sample
        takes = own and last is not None and (audited or drawn)
        value = trial.value if own and complete else None
        return _Part(
            state_of(trial),
            ended=own and trial.state.is_finished(),
            complete=own and complete,
            rank=None if value is None else (self._sign * value, trial.number),
            trained=trained_to(trial) if own and not complete else 0,
            audit=self._audited if audited else self._drawn,
            rest=max(0, (self._spec.early_stopping.max or 0) - (last or 0)) if takes else 0,  # some go beyond
        )

    def _count(self, part: _Part, by: int) -> None:
        """Count a trial's part in, or out again: by one, or minus one."""
        self._states[part.state] += by
        self._ended += by * part.ended
        self._complete += by * part.complete
        self._trained += by * part.trained
        part.audit.rest += by * part.rest

    def _rank(self, part: _Part, there: bool) -> None:
        """Let a trial be among the complete ones, or no more: the database may refuse its end."""
        if part.rank is not None:
            _set_member(self._ranked, part.rank, there)

    def _place(self, trial: FrozenTrial) -> None:
        """Put a trial where it belongs now."""
        number, state, own = trial.number, trial.state, confirms(trial) is None
        audited = audited_at(trial) is not None
        _set_member(self._own, number, own)
        _set_member(self._open, number, not state.is_finished())
        _set_member(self._waiting, number, state == TrialState.WAITING)
        _set_member(self._confirming, number, not own)
        _set_member(self._baselines, number, own and "baseline" in trial.user_attrs)
        for audit, there in (
            (self._audited, audited),
            (self._drawn, at_rung(trial) and number in self.audit_sample),
        ):
            audit.unfinished.discard(number)
            if there and not state.is_finished():
                audit.unfinished.add(number)


@dataclass
class _Audit:
    """Some of the trials that are not stopped."""

    unfinished: set[int] = field(default_factory=set)
    rest: int = 0  # of the resource, that they take to their end


@dataclass(frozen=True)
class _Part:
    """What a trial counts for."""

    state: str
    ended: bool
    complete: bool
    rank: tuple[float, int] | None  # among the complete ones: its loss and its number
    trained: int
    audit: _Audit  # that has its rest
    rest: int


def _set_member(ordered: list[Any], one: Any, there: bool) -> None:
    """Let something be in an ordered list, or not."""
    place = bisect_left(ordered, one)
    is_there = place < len(ordered) and ordered[place] == one
    if there and not is_there:
        ordered.insert(place, one)
    elif is_there and not there:
        del ordered[place]
