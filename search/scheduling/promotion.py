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

Pure: this sees values and answers, and knows no clock, no worker and no file. All it knows can be told again
from the reports of a study, so a search that was killed decides as it would have.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
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
class Waiting:
    """How a trial waits at a rung."""

    step: int  # of the rung
    place: int  # among those that wait there, from 1
    waiting: int  # how many those are
    gone: int  # how many have gone on from there
    reached: int  # how many have got there
    needed: int  # how many must have got there so that it goes on, where none of them is better


class Promotion:
    """The rungs of a study and who is at each. Losses: lower is better."""

    def __init__(self, ladders: Sequence[Bracket], eta: int, most: int | None = None) -> None:
        """`ladders`: the rungs that a trial may climb. `most`: how many trials there will be, if known."""
        self.eta = eta
        self._most = most
        self._ladders = ladders
        places = [(index, rung) for index, ladder in enumerate(ladders) for rung in range(len(ladder.rungs))]
        self._highest_first = sorted(places, key=lambda at: ladders[at[0]].rungs[at[1]], reverse=True)
        self._ranked: list[list[list[tuple[float, int]]]] = [[[] for _ in b.rungs] for b in ladders]
        self._at: dict[int, tuple[int, int, float]] = {}  # a trial's ladder, last rung and loss there
        self._paused: set[int] = set()
        self._going: list[list[set[int]]] = [
            [set() for _ in b.rungs] for b in ladders
        ]  # on the way from there

    def report(self, number: int, ladder: int, step: int, loss: float) -> list[int]:
        """Take in what a trial has at a step; the rungs of its ladder that it comes to with it.

        A grid of reports that is sparser than the rungs brings it to several at once.
        """
        came = []
        last = self._at[number][1] if number in self._at else -1
        for rung, place in enumerate(self._ladders[ladder].rungs):
            if step >= place and rung > last:
                insort(self._ranked[ladder][rung], (loss, number))
                self._at[number] = ladder, rung, loss
                came.append(rung)
        if came and last >= 0:
            self._going[ladder][last].discard(number)
        return came

    def pause(self, number: int) -> None:
        """Let a trial wait at the last rung that it has come to."""
        self._paused.add(number)

    def go_on(self, number: int) -> None:
        """A trial goes on from the last rung that it has come to."""
        self._paused.discard(number)
        ladder, rung, _ = self._at[number]
        self._going[ladder][rung].add(number)

    def end(self, number: int) -> None:
        """A trial that waited has ended."""
        self._paused.discard(number)

    def next(self) -> int | None:
        """The paused trial to take up; None where none is good enough."""
        for ladder, rung in self._highest_first:
            if self._gone(ladder, rung) < len(self._ranked[ladder][rung]) // self.eta:
                best = next(iter(self._waiting(ladder, rung)), None)
                if best is not None:
                    return best
        return None

    def hopeless(self) -> list[int]:
        """The paused trials that will never be taken up, however bad all are that still come."""
        if self._most is None:
            return []
        found = []
        for ladder, rung in self._highest_first:
            places = max(0, self._most // self.eta - self._gone(ladder, rung))
            found += self._waiting(ladder, rung)[places:]
        return found

    def _gone(self, ladder: int, rung: int) -> int:
        """How many have gone on from a rung: those that are at the next one, or on the way."""
        above = self._ranked[ladder][rung + 1 :][:1]
        return sum(map(len, above)) + len(self._going[ladder][rung])

    def _waiting(self, ladder: int, rung: int) -> list[int]:
        """Who waits at a rung, the best first."""
        ranked = self._ranked[ladder][rung]
        return [n for _, n in ranked if n in self._paused and self._at[n][1] == rung]

    def standing(self, number: int) -> Standing:
        """How a trial stands at the last rung that it has come to."""
        ladder, rung, loss = self._at[number]
        ranked = self._ranked[ladder][rung]
        return Standing(
            self._ladders[ladder].rungs[rung], 1 + bisect_left(ranked, (loss, number)), len(ranked)
        )

    def waiting(self, number: int) -> Waiting:
        """How a paused trial waits."""
        ladder, rung, _ = self._at[number]
        there, gone = self._waiting(ladder, rung), self._gone(ladder, rung)
        place = 1 + there.index(number)
        standing = self.standing(number)
        needed = (gone + place) * self.eta
        return Waiting(standing.step, place, len(there), gone, standing.reached, needed)
