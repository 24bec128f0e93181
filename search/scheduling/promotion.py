"""Promotion: a trial pauses at a rung, and is promoted when it is among the best there.

This is asynchronous successive halving as its authors wrote it (Li et al. 2020, "A System for Massively
Parallel Hyperparameter Tuning", Algorithm 2); Syne Tune calls it the type `promotion`. The type `stopping`
decides once, when a trial reaches a rung: an early trial is judged against few others, and a stopped one is
lost. Here all trials at a rung are judged again whenever another one reaches it:

    rung 2   o o o                      a free worker resumes the best trial paused at the highest rung
    rung 1   o o o o o . . . .          that has promoted fewer than n / eta of the n trials that have
    rung 0   o o o o o o o o o . . .    reached it; if there is none, it begins a new trial

So a rung never promotes more than one trial in eta. The paper promotes every trial that is in the first n /
eta at any time: if later trials are better than earlier ones, as proposals of a model are, that promotes many
more, and the search begins fewer trials.

A promoted trial that is stopped before the next rung frees its slot for the next one. A trial that cannot be
trained (it diverges, runs out of memory, fails) ranks last from then on, also at the rungs below.

Trials may be of several kinds. One whose learning rate decays looks worse than one with a constant rate until
the end is near. So trials are compared within their kind: the kind with the smallest promoted fraction is
next, and of it the best trial.

Pure: there is no clock, no worker and no file here. The whole state can be rebuilt from the reports of a
study, so a search that was killed makes the same decisions as one that was not.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from .rungs import Bracket


@dataclass(frozen=True)
class Standing:
    """The rank of a trial at a rung."""

    step: int  # of the rung
    rank: int  # from 1
    reached: int  # how many trials have reached the rung


@dataclass(frozen=True)
class QueuePosition:
    """The position of a paused trial in the queue at its rung."""

    step: int  # of the rung
    position: int  # in the queue, from 1
    waiting: int  # length of the queue
    gone: int  # how many trials the rung has promoted
    reached: int  # how many trials have reached the rung
    needed: int  # how many must have reached it for this promotion, if none of them is better


@dataclass(frozen=True)
class RungEntry:
    """A trial at a rung that its report has brought it to."""

    first: int | None  # the waiting trial that is promoted next; it may be this one
    goes_first: bool  # it is promoted at once
    leads: bool  # if not: it is better than all that its rung has promoted, so it runs to its end in any case
    can_wait: bool  # it has a checkpoint to wait with


UNTRAINABLE_BOUND = (math.inf, -1)  # sorts after all trials except those that cannot be trained


class _Rung:
    """The trials that have reached one rung of a bracket."""

    def __init__(self, index: int, step: int, bracket: list[_Rung]) -> None:
        self.index, self.step = index, step
        self.bracket = bracket  # all its rungs, rising
        self.ranked: dict[Hashable, list[tuple[float, int]]] = {}  # by kind: losses and trials, rising
        self.lines: dict[Hashable, list[tuple[float, int]]] = {}  # those that are paused here, likewise
        self.going: set[int] = set()  # promoted from here, and not yet at the next rung
        self.done: set[int] = set()  # promoted from here, and run to their end

    @property
    def reached(self) -> int:
        return sum(map(len, self.ranked.values()))

    @property
    def promoted(self) -> int:
        """How many trials it has promoted: those at the next rung, on the way to it, or at their end."""
        arrived = sum(rung.trainable_count for rung in self.above)
        return arrived + len(self.going) + len(self.done)

    @property
    def higher(self) -> list[_Rung]:
        return self.bracket[self.index + 1 :]

    @property
    def above(self) -> list[_Rung]:
        """The next rung of its bracket, if there is one."""
        return self.higher[:1]

    def trainable(self) -> Counter[Hashable]:
        """How many trials of each kind have reached it, without those that cannot be trained."""
        return Counter({kind: bisect_left(ranked, UNTRAINABLE_BOUND) for kind, ranked in self.ranked.items()})

    @property
    def trainable_count(self) -> int:
        """How many trials have reached it, without those that cannot be trained."""
        return sum(bisect_left(ranked, UNTRAINABLE_BOUND) for ranked in self.ranked.values())

    @property
    def waiting(self) -> int:
        """How many trials are paused here."""
        return sum(map(len, self.lines.values()))


class PromotionRule:
    """The rungs of a study and the trials at each. Losses: lower is better."""

    def __init__(self, brackets: Sequence[Bracket], eta: int, most: int | None = None) -> None:
        """`most`: how many trials there will be, if known."""
        self.eta = eta
        self._most = most
        self._brackets: list[list[_Rung]] = [[] for _ in brackets]
        for rungs, bracket in zip(self._brackets, brackets, strict=True):
            rungs += [_Rung(index, step, rungs) for index, step in enumerate(bracket.rungs)]
        every = (rung for rungs in self._brackets for rung in rungs)
        self._highest_first = sorted(every, key=lambda rung: rung.step, reverse=True)
        # The last rung of each trial, its loss there, its kind.
        self._at: dict[int, tuple[_Rung, float, Hashable]] = {}

    def report(self, number: int, bracket: int, step: int, loss: float, kind: Hashable = None) -> list[int]:
        """Add a trial's loss at a step. Returns the rungs of its bracket that it reaches with this step.

        These are several if reports are sparser than rungs. Trials of a kind are compared by their losses;
        the kinds share the promotions.
        """
        came = []
        last = self._at[number][0] if number in self._at else None
        for rung in self._brackets[bracket]:
            if step >= rung.step and (last is None or rung.index > last.index):
                insort(rung.ranked.setdefault(kind, []), (loss, number))
                self._at[number] = rung, loss, kind
                came.append(rung.index)
        if came and last is not None:
            last.going.discard(number)
        return came

    def pause(self, number: int) -> None:
        """Pause a trial at its last rung."""
        self.end(number)  # it may be paused already
        rung, loss, kind = self._at[number]
        insort(rung.lines.setdefault(kind, []), (loss, number))

    def promote(self, number: int) -> None:
        """Promote a trial from its last rung."""
        self.end(number)
        self._at[number][0].going.add(number)

    def end(self, number: int) -> None:
        """Remove a trial from the queue of its rung; no effect if it is not paused."""
        rung, loss, kind = self._at[number]
        line = rung.lines.get(kind, [])
        place = bisect_left(line, (loss, number))
        if line[place : place + 1] == [(loss, number)]:
            del line[place]

    def complete(self, number: int) -> None:
        """A trial has run to its end; no effect if it has reached no rung."""
        if number in self._at:
            rung = self._at[number][0]
            rung.going.discard(number)
            rung.done.add(number)

    def stop(self, number: int) -> None:
        """A trial was stopped: it leaves the queue, and a promoted one frees its slot.

        No effect if it has reached no rung.
        """
        if number in self._at:
            self.end(number)
            self._at[number][0].going.discard(number)

    def mark_untrainable(self, number: int) -> None:
        """A trial cannot be trained to its end: it ranks last, and frees the slots that it took."""
        if number not in self._at:
            return
        self.stop(number)
        last, _, kind = self._at[number]
        for rung in last.bracket[: last.index + 1]:
            ranked = [one for one in rung.ranked[kind] if one[1] != number]
            insort(ranked, (math.inf, number))
            rung.ranked[kind] = ranked
        self._at[number] = last, math.inf, kind

    @property
    def paused_count(self) -> int:
        """How many trials are paused."""
        return sum(rung.waiting for rung in self._highest_first)

    def next(self) -> int | None:
        """The paused trial to promote; None if none is good enough."""
        for rung in self._highest_first:
            if rung.waiting and rung.promoted < rung.reached // self.eta:
                return next(self._queue(rung))
        return None

    def enter(self, number: int, *, can_wait: bool) -> RungEntry:
        """Put a trial into the queue of its last rung, and say whether it is promoted at once.

        One that cannot wait is judged once, as with the type `stopping`, and is then to be removed.
        """
        self.pause(number)
        first, standing = self.next(), self.standing(number)
        passes = standing.rank <= max(1, standing.reached // self.eta)
        goes_first = first == number if can_wait else passes
        leads = not goes_first and self.leading_waiter() == number
        return RungEntry(first, goes_first, leads, can_wait)

    def choose(
        self, *, all_asked: bool, idle: bool, is_last_chance: Callable[[int, int | None], bool]
    ) -> int | None:
        """The paused trial to promote now; None if it is the turn of a new trial, or of none.

        `all_asked`: there are no more new trials. `idle`: no trial runs. `is_last_chance`: whether a paused
        trial cannot finish any more if another one, or a new one, goes first.

        By the rule alone few trials run to their end, and none in a short search. So near the end paused
        trials that are better than all promoted ones continue too: the winner should be one of the best.
        """
        chosen, unbeaten = self.next(), self.leading_waiter()
        if chosen is None and all_asked:
            return unbeaten if idle else None
        if unbeaten is not None and unbeaten != chosen and is_last_chance(unbeaten, chosen):
            return unbeaten
        return chosen

    def leading_waiter(self) -> int | None:
        """The paused trial that is at the highest rung reached in its bracket, and was better there than
        every trial of its kind that the rung has promoted; None if there is none.

        The last rungs promote few trials, and choose the first ones from few. A search that ended without
        this rule would leave its best trial paused.
        """
        for rung in self._highest_first:
            if not rung.waiting or any(each.trainable_count for each in rung.higher):
                continue  # no trial waits, or it is not the highest rung that its bracket has reached
            leaders = {line[0][1] for line in rung.lines.values() if line}
            if unbeaten := set(filter(self._is_unbeaten, leaders)):
                return next(number for number in self._queue(rung) if number in unbeaten)
        return None

    def cannot_be_promoted(self) -> list[int]:
        """The paused trials that can never be promoted, however bad all later trials are.

        Two are kept for each slot that no completed trial has taken yet: a promoted trial may turn out to be
        untrainable.
        """
        if self._most is None:
            return []
        hopeless = []
        for rung in self._highest_first:
            unsure = len(rung.going) + sum(len(each.going) + each.waiting for each in rung.higher)
            slots = max(0, self._most // self.eta - rung.promoted + unsure)
            for line in rung.lines.values():
                kept = max(2 * slots, int(bool(line) and self._is_unbeaten(line[0][1])))
                hopeless += [number for _, number in line[kept:]]
        return hopeless

    def _is_unbeaten(self, number: int) -> bool:
        """Whether a paused trial was better than every promoted trial of its kind, also of other brackets
        with a rung at the same step.
        """
        at, loss, kind = self._at[number]
        for rung in self._highest_first:
            if rung.step != at.step:
                continue
            ranked = rung.ranked.get(kind, [])
            better = islice(ranked, bisect_left(ranked, (loss, number)))
            if any(self._was_promoted(one, rung) for _, one in better):
                return False
        return True

    def _was_promoted(self, number: int, rung: _Rung) -> bool:
        """Whether a trial that has reached a rung has been promoted from it."""
        return self._at[number][0].index > rung.index or number in rung.going or number in rung.done

    def _queue(self, rung: _Rung) -> Iterator[int]:
        """The trials paused at a rung, in the order of their promotion if no other trial reaches it."""
        gone = Counter(self._at[number][2] for number in rung.going | rung.done)
        for each in rung.above:
            gone += each.trainable()
        lines = {kind: iter(line) for kind, line in rung.lines.items()}
        first = {kind: one for kind, line in lines.items() if (one := next(line, None)) is not None}
        while first:
            kind = min(first, key=lambda kind: (gone[kind] / len(rung.ranked[kind]), first[kind]))
            yield first.pop(kind)[1]
            gone[kind] += 1
            if (one := next(lines[kind], None)) is not None:
                first[kind] = one

    def standing(self, number: int) -> Standing:
        """The standing of a trial among those of its kind at its last rung."""
        rung, loss, kind = self._at[number]
        ranked = rung.ranked[kind]
        return Standing(rung.step, 1 + bisect_left(ranked, (loss, number)), len(ranked))

    def promoted_count(self, number: int) -> tuple[int, int]:
        """How many trials the last rung of a trial has promoted, and how many have reached it."""
        rung = self._at[number][0]
        return rung.promoted, rung.reached

    def queue_position(self, number: int) -> QueuePosition:
        """The position of a paused trial in the queue of all kinds."""
        rung = self._at[number][0]
        queue, gone = list(self._queue(rung)), rung.promoted
        position = 1 + queue.index(number)
        needed = (gone + position) * self.eta
        return QueuePosition(rung.step, position, len(queue), gone, rung.reached, needed)
