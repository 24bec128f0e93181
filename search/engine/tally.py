"""Counts and rankings over all trials of a search, updated as the trials change.

For every trial and many reports a search needs its best trials, how many have ended, and what is reserved. If
it looked at all trials for that, each trial would cost more than the one before. The storage says which
trials have changed since the last look; each of these is uncounted as it was and counted as it is.
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
from ...storage.trial_attrs import at_rung, audited_at, confirms, is_baseline, state_of, trained_to
from ..scheduling.audit import AuditSample
from ..trials.configuration import known_config


class Tally:
    """The trials of one study, as they are now."""

    def __init__(self, spec: Spec, storage: LiveStorage) -> None:
        self._spec = spec
        self._storage = storage
        self.audit_sample = AuditSample.of(spec)  # a short budget of time may leave it out
        self._changes = 0  # of the storage, up to the last update
        self._counted: dict[int, _Part] = {}  # by trial: Optuna changes the trials themselves
        self._turns = 0  # see `turns`
        self._states: Counter[str] = Counter()
        self._own: list[int] = []  # trials of the search itself; all lists of numbers are sorted
        self._ranked: list[tuple[float, int]] = []  # losses and numbers of the complete ones
        self._whole: set[int] = set()  # of these, those known to have all parameters
        self._ended = self._complete = 0
        self._trained = 0  # units that the incomplete ones took
        self._open: list[int] = []  # have not ended
        self._waiting: list[int] = []
        self._confirming: list[int] = []
        self._baselines: list[int] = []
        self._drawn = _Audit()  # in the sample, and would not have been stopped so far
        self._audited = _Audit()  # would have been stopped

    # Queries

    @property
    def states(self) -> Counter[str]:
        """How many trials are in each state, `paused` among them."""
        self._follow()
        return self._states

    @property
    def turns(self) -> int:
        """How often a trial has begun, paused, resumed or ended: reports alone do not count."""
        self._follow()
        return self._turns

    @property
    def searched(self) -> int:
        """How many trials of the search itself there are."""
        self._follow()
        return len(self._own)

    @property
    def ended(self) -> int:
        """How many trials of the search itself have ended."""
        self._follow()
        return self._ended

    def trainings(self, last: int | None) -> float:
        """What the search's trials took, in trainings of `last` units; unchanged when paused ones end."""
        self._follow()
        return float(self._ended) if last is None else self._complete + self._trained / last

    @property
    def open(self) -> list[FrozenTrial]:
        """The trials that have not ended."""
        self._follow()
        return [self._storage.trials[number] for number in self._open]

    @property
    def waiting(self) -> Iterator[FrozenTrial]:
        """The requeued trials, and those that have not begun."""
        self._follow()
        return (self._storage.trials[number] for number in list(self._waiting))

    @property
    def confirming(self) -> list[FrozenTrial]:
        """The confirmation runs."""
        self._follow()
        return [self._storage.trials[number] for number in self._confirming]

    @property
    def baselines(self) -> list[FrozenTrial]:
        """The trials marked as the baseline."""
        self._follow()
        return [self._storage.trials[number] for number in self._baselines]

    def best(self, count: int, *, baseline: bool = True, but: int | None = None) -> list[FrozenTrial]:
        """The `count` best complete trials of the search, like `StudyRecords.best`.

        Optionally without the `baseline`, or without the trial `but`.
        """
        self._follow()
        best: list[FrozenTrial] = []
        rank = 0
        while len(best) < count and rank < len(self._ranked):
            number = self._ranked[rank][1]
            trial = self._storage.trials[number]
            if number not in self._whole:
                if known_config(self._spec, trial) is None:
                    del self._ranked[rank]  # another program wrote it; only the first few need this check
                    continue
                self._whole.add(number)
            rank += 1
            if number != but and (baseline or not is_baseline(trial)):
                best.append(trial)
        return best

    def confirmation_pool(self, top: int) -> list[FrozenTrial]:
        """The trials that decide which ones are confirmed, if at most `top` are."""
        pool = {trial.number for trial in self.best(top, baseline=False)}
        pool.update(self._own[-1:], self._baselines, self._confirming)
        pool.update(confirms(self._storage.trials[number]) or 0 for number in self._confirming)
        return [self._storage.trials[number] for number in sorted(pool)]

    def unfinished_audit(self, sample: AuditSample) -> list[int]:
        """The audited trials that have not ended: those that would have been stopped, and paused ones.

        `sample`: the audit's, which may be empty for lack of time.
        """
        self._follow()
        return sorted({*self._audited.unfinished, *(self._drawn.unfinished if sample.every else ())})

    def reserved_for_audit(self, sample: AuditSample) -> int:
        """The units reserved for the audited trials to reach their end.

        Reserved from their first reports on, and for good: if other trials could spend what an audited trial
        leaves, a search that was over would continue when the command is repeated.
        """
        self._follow()
        return self._audited.rest + (self._drawn.rest if sample.every else 0)

    # Updates

    def _follow(self) -> None:
        if self._changes == self._storage.changes:
            return
        for trial in self._storage.changed_since(self._changes):
            before, now = self._counted.get(trial.number), self._part_of(trial)
            if before is None or before.state != now.state:
                self._turns += 1
            if before is not None:
                self._count(before, -1)
                for numbers in before.lists:
                    if not any(numbers is each for each in now.lists):
                        _set_member(numbers, trial.number, False)
            self._count(now, 1)
            for numbers in now.lists:  # nothing moves where it stays in one
                _set_member(numbers, trial.number, True)
            self._counted[trial.number] = now
        self._changes = self._storage.changes

    def _part_of(self, trial: FrozenTrial) -> _Part:
        number, own, ended = trial.number, confirms(trial) is None, trial.state.is_finished()
        audited, drawn = audited_at(trial) is not None, number in self.audit_sample
        complete, last = trial.state == TrialState.COMPLETE, trial.last_step
        takes = own and last is not None and (audited or drawn)
        lists = (
            (self._own, own),
            (self._confirming, not own),
            (self._open, not ended),
            (self._waiting, trial.state == TrialState.WAITING),
            (self._baselines, own and is_baseline(trial)),
            (self._audited.unfinished, audited and not ended),
            (self._drawn.unfinished, drawn and at_rung(trial)),
        )
        value = trial.value if own and complete else None
        return _Part(
            state_of(trial),
            ended=own and ended,
            complete=own and complete,
            trained=trained_to(trial) if own and not complete else 0,
            audit=self._audited if audited else self._drawn,
            rest=max(0, (self._spec.early_stopping.max or 0) - (last or 0)) if takes else 0,  # some go beyond
            rank=None if value is None else (self._spec.loss(value), number),
            lists=[numbers for numbers, belongs in lists if belongs],
        )

    def _count(self, part: _Part, by: int) -> None:
        """Add a trial's part to the counts, or remove it: `by` is 1 or -1."""
        self._states[part.state] += by
        self._ended += by * part.ended
        self._complete += by * part.complete
        self._trained += by * part.trained
        part.audit.rest += by * part.rest
        if part.rank is not None:
            _set_member(self._ranked, part.rank, by > 0)  # the database may refuse its end


@dataclass
class _Audit:
    """A group of audited trials."""

    unfinished: list[int] = field(default_factory=list)
    rest: int = 0  # units that they take to their end


@dataclass(frozen=True)
class _Part:
    """What a trial contributes to the counts."""

    state: str
    ended: bool
    complete: bool
    trained: int
    audit: _Audit  # the group that counts its rest
    rest: int
    rank: tuple[float, int] | None  # loss and number, if it is complete
    lists: list[list[int]]  # that have its number


def _set_member(ordered: list[Any], one: Any, there: bool) -> None:
    """Add an item to a sorted list, or remove it."""
    index = bisect_left(ordered, one)
    is_there = index < len(ordered) and ordered[index] == one
    if there and not is_there:
        ordered.insert(index, one)
    elif is_there and not there:
        del ordered[index]
