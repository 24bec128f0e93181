"""Wait for a study: until it is in some state, or has a better best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ....storage import missing_study
from ...operations import queue, studies
from ...operations.winner import winner
from ..place import Place
from . import words

OVER = ("finished", "failed", "stopped", "paused")  # states in which nothing goes on by itself


@dataclass(frozen=True)
class Look:
    """A study at one moment, as far as it costs little to see."""

    state: str
    reason: str
    metric: str
    smaller_is_better: bool
    best: float | None
    ended: int  # trials of the search itself
    confirming: int  # trainings that confirm its best
    budget: int | None
    ends: str

    @classmethod
    def at(cls, place: Place, study: str) -> Look:
        """A study as it is now. Raises `StorageError` where there is none."""
        listed = place(studies.list_studies).studies
        found = next((each for each in listed if each.name == study), None)
        if found is None:
            raise missing_study(study, [each.name for each in listed])
        queued = place(queue.queue).of(study)
        state, reason = "stopped", "no search of it runs or waits"
        if queued is not None:
            state, reason = queued.state.state, queued.state.reason
        elif found.searching is not None:
            state, reason = "running", f"process {found.searching} searches it"
        return cls(
            state,
            reason,
            found.metric,
            found.direction != "maximize",
            found.best,
            found.ended,
            found.confirming,
            found.budget,
            words.moment(None if queued is None else queued.ends),
        )

    def is_better_than(self, known: float | None) -> bool:
        """Whether its best is better than one that is known."""
        if self.best is None or known is None:
            return self.best is not None and known is None
        return self.best < known if self.smaller_is_better else self.best > known

    @property
    def goes_on(self) -> bool:
        """Whether something happens by itself."""
        return self.state not in OVER


def told(
    place: Place, study: str, first: Look, now: Look, known: float | None, seconds: float
) -> Iterator[str]:
    """What has changed between two looks: how sure the best is before its value."""
    before = "" if first.state == now.state else f"{first.state}, then "
    yield f"{study}: {before}{now.state}: {now.reason}"
    if now.is_better_than(known) or not now.goes_on:
        yield from words.evidence(place(winner, study=study))
    if now.is_better_than(known):
        yield f"better: {now.metric} {words.number(known)}, then {words.number(now.best)}"
    else:
        yield f"no better best: {now.metric} {words.number(now.best)}"
    news = f"{now.ended - first.ended} in {seconds:.0f} s"
    news += f"; {now.confirming} trainings that confirm the best" * (now.confirming > 0)
    yield f"trials ended: {now.ended} of {words.number(now.budget)} ({news})"
    if now.goes_on:
        yield f"foreseen end: {now.ends}"
        yield f"next: {words.call('wait', study=study, best=now.best)}"
    else:
        yield f"next: {words.call('winner', study=study)}, {words.call('show_study', study=study)}"


def is_enough(now: Look, known: float | None, states: Sequence[str]) -> bool:
    """Whether there is something to tell."""
    return now.state in states or not now.goes_on or now.is_better_than(known)
