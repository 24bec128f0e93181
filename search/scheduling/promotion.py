"""Promotion: a trial pauses at a rung, and goes on when it is among the best there.

Asynchronous successive halving as its authors wrote it (Li et al. 2020, "A System for Massively Parallel
Hyperparameter Tuning", Algorithm 2), which Syne Tune calls the type `promotion`. The type `stopping`
asks once, when a trial comes to a rung, whether it goes on: who came early is judged by few, and who was
stopped is lost. Here all at a rung are judged again whenever somebody else gets there:

    rung 2   o o o                      a worker that is free takes up the best of those that wait at
    rung 1   o o o o o . . . .          the highest rung of which fewer than n / eta have gone on, of
    rung 0   o o o o o o o o o . . .    the n that got there; if there is none, it begins a new trial

So no more than one in eta ever goes on from a rung. The paper lets on whoever is in the first n / eta by now:
where trials get better, as those of a model do, these are many more, and the search begins fewer.

Who goes on and is ended on its way leaves its place to the next. Who cannot be trained (it diverges, runs out
of memory, fails) ranks last from then on, too, wherever it was.

Who is best, where trials are of several kinds? One whose learning rate decays looks worse than one whose rate
is constant until it is nearly over. So like is compared with like: it is the turn of the kind of which the
smallest part has gone on, and of its best.

Pure: this sees values and answers, and knows no clock, no worker and no file. All it knows can be told again
from the reports of a study, so a search that was killed decides as it would have.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from .rungs import Bracket


@dataclass(frozen=True)
class Standing:
    """How a trial stands at a rung."""

    step: int  # of the rung
    rank: int  # from 1
    reached: int  # how many trials have got there

    def __str__(self) -> str:
        return f"ranked {self.rank} of {self.reached}"


@dataclass(frozen=True)
class QueuePosition:
    """How a trial waits at a rung."""

    step: int  # of the rung
    place: int  # in the queue of those that wait there, from 1
    waiting: int  # how many those are
    gone: int  # how many have gone on from there
    reached: int  # how many have got there
    needed: int  # how many must have got there so that it goes on, where none of them is better


UNTRAINABLE_BOUND = (math.inf, -1)  # all trials rank before it but those that cannot be trained


class _Rung:
    """Who has come to one rung of a bracket."""

    def __init__(self, bracket: int, index: int, step: int) -> None:
        self.bracket, self.index, self.step = bracket, index, step
        self.ranked: dict[Hashable, list[tuple[float, int]]] = {}  # by kind: losses and trials, rising
        self.waiting: set[int] = set()
        self.going: set[int] = set()  # on the way from here
        self.done: set[int] = set()  # who went on from here to its end

    @property
    def reached(self) -> int:
        return sum(map(len, self.ranked.values()))

    def trainable(self) -> Counter[Hashable]:
        """How many of each kind are there, without those that turned out to be none."""
        return Counter({kind: bisect_left(ranked, UNTRAINABLE_BOUND) for kind, ranked in self.ranked.items()})

    def lines(self) -> dict[Hashable, list[tuple[float, int]]]:
        """Who waits: the losses and trials of each kind, rising."""
        return {
            kind: [one for one in ranked if one[1] in self.waiting] for kind, ranked in self.ranked.items()
        }


class PromotionRule:
    """The rungs of a study and who is at each. Losses: lower is better."""

    def __init__(self, brackets: Sequence[Bracket], eta: int, most: int | None = None) -> None:
        """`most`: how many trials there will be, where that is known."""
        self.eta = eta
        self._most = most
        self._rungs = [
            [_Rung(b, i, step) for i, step in enumerate(each.rungs)] for b, each in enumerate(brackets)
        ]
        every = (rung for bracket in self._rungs for rung in bracket)
        self._highest_first = sorted(every, key=lambda rung: rung.step, reverse=True)
        # The last rung of each trial, its loss there, its kind.
        self._at: dict[int, tuple[_Rung, float, Hashable]] = {}

    def report(self, number: int, bracket: int, step: int, loss: float, kind: Hashable = None) -> list[int]:
        """Take in what a trial has at a step; the rungs of its bracket that it comes to with it.

        A grid of reports that is sparser than the rungs brings it to several at once. Trials of the same kind
        are compared by their losses; kinds share what may go on.
        """
        came = []
        last = self._at[number][0] if number in self._at else None
        for rung in self._rungs[bracket]:
            if step >= rung.step and (last is None or rung.index > last.index):
                insort(rung.ranked.setdefault(kind, []), (loss, number))
                self._at[number] = rung, loss, kind
                came.append(rung.index)
        if came and last is not None:
            last.going.discard(number)
        return came

    def pause(self, number: int) -> None:
        """Let a trial wait at the last rung that it has come to."""
        self._at[number][0].waiting.add(number)

    def promote(self, number: int) -> None:
        """A trial goes on from the last rung that it has come to."""
        self.end(number)
        self._at[number][0].going.add(number)

    def end(self, number: int) -> None:
        """A trial that waited waits no more."""
        self._at[number][0].waiting.discard(number)

    def complete(self, number: int) -> None:
        """A trial has come to its end; nothing where it has come to no rung."""
        if number in self._at:
            rung = self._at[number][0]
            rung.going.discard(number)
            rung.done.add(number)

    def stop(self, number: int) -> None:
        """A trial was ended on its way, and leaves its place; nothing where it has come to no rung."""
        if number in self._at:
            self._at[number][0].going.discard(number)

    def mark_untrainable(self, number: int) -> None:
        """A trial cannot be trained to its end: it ranks last, and takes nobody's place any more."""
        if number not in self._at:
            return
        last, _, kind = self._at[number]
        last.going.discard(number)
        last.waiting.discard(number)
        for rung in self._rungs[last.bracket][: last.index + 1]:
            ranked = [one for one in rung.ranked[kind] if one[1] != number]
            insort(ranked, (math.inf, number))
            rung.ranked[kind] = ranked
        self._at[number] = last, math.inf, kind

    @property
    def paused(self) -> int:
        """How many trials wait."""
        return sum(len(rung.waiting) for rung in self._highest_first)

    def next(self) -> int | None:
        """The paused trial to take up; None where none is good enough."""
        for rung in self._highest_first:
            if rung.waiting and self._promoted(rung) < rung.reached // self.eta:
                return next(self._queue(rung))
        return None

    def passes(self, number: int) -> bool:
        """Whether a trial goes on that cannot wait: it is judged once, as by the type `stopping`."""
        standing = self.standing(number)
        return standing.rank <= max(1, standing.reached // self.eta)

    def leading_waiter(self) -> int | None:
        """Who waits at the highest rung that its bracket has come to, and was better there than all of its
        kind that went on from there; None where there is nobody.

        The places at the last rungs are few, and early ones are given when few have come. A search that ends
        there would leave its best waiting.
        """
        for rung in filter(self._is_top_reached, self._highest_first):
            best = {line[0][1] for line in rung.lines().values() if line}  # others have it ahead of them
            found = next((n for n in self._queue(rung) if n in best and self._is_unbeaten(n)), None)
            if found is not None:
                return found
        return None

    def _is_top_reached(self, rung: _Rung) -> bool:
        """Whether it is the highest rung that its bracket has come to."""
        higher = self._rungs[rung.bracket][rung.index + 1 :]
        return rung.trainable().total() > 0 and not any(each.trainable().total() for each in higher)

    def cannot_be_promoted(self) -> list[int]:
        """The paused trials that are not to be taken up any more, however bad all are that still come.

        Two are kept for each place that is not yet one's who came to its end: who goes on may turn out not to
        be trainable.
        """
        if self._most is None:
            return []
        found = []
        for rung in self._highest_first:
            higher = self._rungs[rung.bracket][rung.index + 1 :]
            unsure = len(rung.going) + sum(len(each.going) + len(each.waiting) for each in higher)
            places = max(0, self._most // self.eta - self._promoted(rung) + unsure)
            for line in rung.lines().values():
                kept = max(2 * places, int(bool(line) and self._is_unbeaten(line[0][1])))
                found += [number for _, number in line[kept:]]
        return found

    def _is_unbeaten(self, number: int) -> bool:
        """Whether a trial that waits was better than all of its kind that went on from there, also those of
        other brackets that have a rung at the same step.
        """
        at, loss, kind = self._at[number]
        for rung in self._highest_first:
            if rung.step != at.step:
                continue
            above = (
                one for each in self._above(rung) for ranked in each.ranked.values() for _, one in ranked
            )
            gone, ranked = (rung.going | rung.done).union(above), rung.ranked.get(kind, [])
            if any(one in gone for _, one in ranked[: bisect_left(ranked, (loss, number))]):
                return False
        return True

    def _above(self, rung: _Rung) -> list[_Rung]:
        """The next rung of its bracket, if there is one."""
        return self._rungs[rung.bracket][rung.index + 1 :][:1]

    def _promoted(self, rung: _Rung) -> int:
        """How many have gone on from a rung: those that are at the next one, on the way, or at their end."""
        above = sum(each.trainable().total() for each in self._above(rung))
        return above + len(rung.going) + len(rung.done)

    def _queue(self, rung: _Rung) -> Iterator[int]:
        """Who waits at a rung, in the order in which they go on if nobody else comes."""
        gone = Counter(self._at[number][2] for number in rung.going | rung.done)
        for each in self._above(rung):
            gone += each.trainable()
        lines = {kind: deque(line) for kind, line in rung.lines().items() if line}
        while lines:
            kind = min(lines, key=lambda kind: (gone[kind] / len(rung.ranked[kind]), lines[kind][0]))
            yield lines[kind].popleft()[1]
            gone[kind] += 1
            if not lines[kind]:
                del lines[kind]

    def standing(self, number: int) -> Standing:
        """How a trial stands, among those of its kind, at the last rung that it has come to."""
        rung, loss, kind = self._at[number]
        ranked = rung.ranked[kind]
        return Standing(rung.step, 1 + bisect_left(ranked, (loss, number)), len(ranked))

    def promoted_count(self, number: int) -> tuple[int, int]:
        """How many have gone on from the last rung that a trial has come to, and of how many."""
        rung = self._at[number][0]
        return self._promoted(rung), rung.reached

    def queue_position(self, number: int) -> QueuePosition:
        """How a paused trial waits, among all."""
        rung = self._at[number][0]
        queue, gone = list(self._queue(rung)), self._promoted(rung)
        place = 1 + queue.index(number)
        return QueuePosition(rung.step, place, len(queue), gone, rung.reached, (gone + place) * self.eta)
