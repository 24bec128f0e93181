"""How many of the best are trained again, and how often: as a space asks for it, or its budget allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...spaces import Spec

CONFIRMATION_SHARE = (
    1 / 3
)  # of a search, or of its time, for its confirmation where the space leaves that open
CONFIRMATION_SIZES = ((3, 3), (3, 2), (2, 2))  # of the best and of seeds, where the space leaves them open
MAX_SHARE_OF_TIME = 1 / 2  # of the time, for the least of them, where only the time ends a search
MIN_SEEDS = 2  # with which each of the best trains again: one alone says nothing


@dataclass(frozen=True)
class ConfirmationSize:
    """How many of the best are trained again, and how often."""

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
        """What a space asks for, or what suits a search that costs so many whole trainings.

        `time`: as many as its time has room for; what its trials leave of that is the confirmation's too.
        `price`: what a confirmation costs, in whole trainings, where the best cost more or less than others.
        Nobody where that would cost too much; where only the time ends a search, the least may take half.
        What a space asks for is made smaller where its samples have no room for it and a search before it.
        """
        known = [limit for limit in (cost, time) if limit is not None]
        most = CONFIRMATION_SHARE * min(known, default=0.0)
        if cost is not None and time is not None and spec.budget.samples is None:  # else they are all spent
            most = max(most, min(CONFIRMATION_SHARE * time, time - cost))
        for choice in CONFIRMATION_SIZES:
            size = cls.asked(spec, choice)
            if cost is None and time is not None and choice == CONFIRMATION_SIZES[-1]:
                most = MAX_SHARE_OF_TIME * time
            costs = size.trainings(spec) if price is None else price(size)
            if spec.confirm.top is not None or costs <= most:
                return size.within(spec)
        return cls(0, 0)

    @classmethod
    def asked(cls, spec: Spec, choice: tuple[int, int] = CONFIRMATION_SIZES[0]) -> ConfirmationSize:
        """What a space asks for; a choice, or the most that is chosen, where it leaves that open."""
        (top, seeds), asked = choice, spec.confirm
        return cls(top if asked.top is None else asked.top, seeds if asked.seeds is None else asked.seeds)

    def within(self, spec: Spec) -> ConfirmationSize:
        """As much of it as the samples have room for."""
        return next(size for size in self.shrinking if size.needs(spec) <= (spec.budget.samples or 0))

    def needs(self, spec: Spec) -> int:
        """The samples for it and, before, a whole training of each that it compares; 0 where none count."""
        last = spec.early_stopping.max
        if last is None or spec.budget.samples is None or not self.top:
            return 0
        return self.trainings(spec) // self.seeds * (self.seeds + 1) * last

    def trainings(self, spec: Spec) -> int:
        """How many that is; the baseline is trained as often as the best."""
        return (self.top + (spec.baseline is not None)) * self.seeds if self.top else 0

    @property
    def shrinking(self) -> list[ConfirmationSize]:
        """It, and what may be done in less time: fewer seeds, then fewer trials, at last nothing."""
        fewer = [ConfirmationSize(top, min(self.seeds, MIN_SEEDS)) for top in range(self.top, -1, -1)]
        return fewer if self == fewer[0] else [self, *fewer]
