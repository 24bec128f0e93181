"""How many of the best trials are confirmed, with how many seeds: as a space asks, or its budget allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...spaces import Spec

CONFIRMATION_SHARE = 1 / 5  # of a search's cost or time, unless the space asks for a size
CONFIRMATION_SIZES = ((3, 3), (3, 2), (2, 2), (1, 2))  # trials and seeds, unless the space gives them
MIN_SEEDS = 2  # for each candidate: a single value shows nothing


@dataclass(frozen=True)
class ConfirmationSize:
    """How many of the best trials are trained again, and with how many seeds each."""

    top: int
    seeds: int

    @classmethod
    def of(
        cls,
        spec: Spec,
        cost: float | None,
        time: float | None = None,
        price: Callable[[ConfirmationSize], float] | None = None,
    ) -> ConfirmationSize:
        """The size that a space asks for, or one that suits a search that costs `cost` whole trainings.

        `time`: how many whole trainings its time allows; a confirmation may also use what the trials leave of
        it. `price`: the cost of a confirmation in whole trainings, if its trials cost more or less than
        others. The size is zero if a confirmation would cost too much. A size that the space asks for shrinks
        if its samples do not suffice for a search too.
        """
        known = [limit for limit in (cost, time) if limit is not None]
        most = CONFIRMATION_SHARE * min(known, default=0.0)
        if cost is not None and time is not None and spec.budget.samples is None:  # samples are all spent
            most = max(most, min(CONFIRMATION_SHARE * time, time - cost))
        for choice in CONFIRMATION_SIZES:
            size = cls.asked(spec, choice)
            costs = size.trainings(spec) if price is None else price(size)
            if spec.confirm.top is not None or costs <= most:
                return size.within(spec)
        return cls(0, 0)

    @classmethod
    def asked(cls, spec: Spec, choice: tuple[int, int] = CONFIRMATION_SIZES[0]) -> ConfirmationSize:
        """The size that a space asks for; `choice`, by default the largest, for what it leaves open."""
        (top, seeds), asked = choice, spec.confirm
        return cls(top if asked.top is None else asked.top, seeds if asked.seeds is None else asked.seeds)

    def within(self, spec: Spec) -> ConfirmationSize:
        """The largest part of it that the samples allow."""
        return next(size for size in self.shrinking if size.needs(spec) <= (spec.budget.samples or 0))

    def needs(self, spec: Spec) -> int:
        """The samples for it and for one whole training of each candidate; 0 if the budget has no samples."""
        last = spec.early_stopping.max
        if last is None or spec.budget.samples is None or not self.top:
            return 0
        return self.trainings(spec) // self.seeds * (self.seeds + 1) * last

    def trainings(self, spec: Spec) -> int:
        """The number of confirmation runs, with those of the baseline."""
        return (self.top + (spec.baseline is not None)) * self.seeds if self.top else 0

    def fitting(
        self, room: float, seconds: Callable[[ConfirmationSize], float]
    ) -> tuple[ConfirmationSize, float]:
        """The largest part of it that takes at most `room` seconds, else the smallest, and its `seconds`."""
        for size in self.shrinking:
            if (takes := seconds(size)) <= room:
                break
        return size, takes

    @property
    def shrinking(self) -> list[ConfirmationSize]:
        """This size and smaller ones: with fewer seeds, then with fewer trials, at last zero."""
        fewer = [ConfirmationSize(top, min(self.seeds, MIN_SEEDS)) for top in range(self.top, -1, -1)]
        return fewer if self == fewer[0] else [self, *fewer]
