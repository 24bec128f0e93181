"""The trials of a study as results, budgets and confirmations read them: by role, and in losses.

Optuna's samplers, pruners and figures need Optuna's own trials; all others read these. So only this module
and `Spec.loss` know that there is one metric, and whether it is minimized.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Spec
from ...storage.trial_attrs import (
    CONFIRMS_SEED,
    TOOK,
    USED,
    USED_BEFORE_AUDIT,
    audited_at,
    confirms,
    is_baseline,
    state_of,
    untrainable,
)
from .configuration import known_config
from .stops import Stop, stop_of
from .usage import Usage, unknown


@dataclass(frozen=True)
class TrialRecord:
    """A trial as it is now; one that changes gets another record. Losses: lower is better."""

    spec: Spec = field(repr=False, compare=False)
    trial: FrozenTrial  # Optuna's

    @property
    def number(self) -> int:
        return self.trial.number

    @property
    def state(self) -> str:
        """Optuna's state in lower case, or `paused`."""
        return state_of(self.trial)

    @property
    def has_ended(self) -> bool:
        return self.trial.state.is_finished()

    @property
    def value(self) -> float | None:
        """The metric's value at the end of a complete trial; else None."""
        return self.trial.value if self.trial.state == TrialState.COMPLETE else None

    @property
    def loss(self) -> float | None:
        """The loss at the end of a complete trial; else None."""
        value = self.value
        return None if value is None else self.spec.loss(value)

    @property
    def losses(self) -> dict[int, float]:
        """The reported losses by step."""
        return {step: self.spec.loss(value) for step, value in self.trial.intermediate_values.items()}

    @property
    def confirms(self) -> int | None:
        """The number of the trial that it trains again; None for a trial of the search itself."""
        return confirms(self.trial)

    @property
    def seed(self) -> int:
        """The index of its new seed, for a confirmation run."""
        seed: int = self.trial.user_attrs[CONFIRMS_SEED]
        return seed

    @property
    def is_baseline(self) -> bool:
        return is_baseline(self.trial)

    @property
    def audited_at(self) -> int | None:
        """The step at which an audited trial would have stopped; None for a trial that is not audited."""
        return audited_at(self.trial)

    @property
    def is_untrainable(self) -> bool:
        """Whether its configuration cannot be trained: it diverged, or ran out of memory."""
        return untrainable(self.trial)

    @property
    def used(self) -> Usage | None:
        """What it has used of machines; None where the study says nothing of that."""
        return usage_of(self.trial)

    @property
    def used_before_audit(self) -> Usage | None:
        """What it had used when it was drawn for the audit."""
        stored = self.trial.system_attrs.get(USED_BEFORE_AUDIT)
        return None if stored is None else Usage.from_list(stored)

    @property
    def was_cut_short(self) -> bool:
        """Whether it is a confirmation run that was stopped for lack of time, and may be repeated."""
        return self.trial.state == TrialState.PRUNED and not self.is_untrainable

    @property
    def stop(self) -> Stop | None:
        """How it ended early; None for any other trial."""
        return stop_of(self.trial)

    @cached_property
    def config(self) -> dict[str, Any] | None:
        """Its configuration; None if it has not begun, or another program wrote it incompletely."""
        return known_config(self.spec, self.trial)


def usage_of(trial: FrozenTrial) -> Usage | None:
    """What a trial has used of machines in all its attempts; None where the study says nothing of that."""
    stored, took = trial.system_attrs.get(USED), trial.system_attrs.get(TOOK)
    if stored is not None:
        return Usage.from_list(stored)
    return None if took is None else unknown(took)  # by a version that kept no account


class StudyRecords:
    """The trials of a study, or some of them, by number."""

    def __init__(self, spec: Spec, trials: Iterable[FrozenTrial]) -> None:
        self.spec = spec
        self.by_number = {trial.number: TrialRecord(spec, trial) for trial in trials}

    @cached_property
    def search(self) -> list[TrialRecord]:
        """The trials of the search itself, without confirmation runs."""
        return [trial for trial in self.by_number.values() if trial.confirms is None]

    @cached_property
    def confirmations(self) -> list[TrialRecord]:
        """The confirmation runs."""
        return [trial for trial in self.by_number.values() if trial.confirms is not None]

    @property
    def complete(self) -> list[TrialRecord]:
        """The trials of the search that have run to their end."""
        return [trial for trial in self.search if trial.value is not None]

    @property
    def baseline(self) -> TrialRecord | None:
        """The baseline; None if the space has none, or it has not begun."""
        return next((trial for trial in self.search if trial.is_baseline), None)

    def best(self, count: int, among: Callable[[TrialRecord], bool] = lambda _: True) -> list[TrialRecord]:
        """The `count` best complete trials of the search, the best first.

        A trial that another program wrote, and that lacks parameters of the space, is left out.
        """
        ranked = [(loss, t.number) for t in self.search if (loss := t.loss) is not None and among(t)]
        heapq.heapify(ranked)
        best: list[TrialRecord] = []
        while ranked and len(best) < count:
            trial = self.by_number[heapq.heappop(ranked)[1]]
            if trial.config is not None:
                best.append(trial)
        return best

    @property
    def at_target(self) -> TrialRecord | None:
        """The best trial if it reaches the budget's target; else None."""
        target, best = self.spec.budget.target, self.best(1)
        if target is None or not best or best[0].loss is None:
            return None
        return best[0] if best[0].loss <= self.spec.loss(target) else None

    @property
    def unconfirmable(self) -> dict[int, TrialRecord]:
        """The trials that could not be trained with every seed, each with a run that shows why."""
        return {t.confirms: t for t in self.confirmations if t.confirms is not None and t.is_untrainable}

    @cached_property
    def confirming_losses(self) -> dict[int, list[float]]:
        """The losses of each confirmed trial, for the seeds that all have: at least two, or nothing."""
        rows: dict[int, dict[int, float]] = {}
        failed: set[int] = set()
        for trial in self.confirmations:
            number = trial.confirms
            assert number is not None
            row = rows.setdefault(number, {})
            if trial.loss is not None:
                row[trial.seed] = trial.loss
            elif trial.is_untrainable:
                row[trial.seed] = math.inf  # it cannot be trained with every seed
            elif trial.has_ended and not trial.was_cut_short:
                failed.add(number)
        # A trial with time for fewer than two seeds cannot be judged, and must not reduce the common seeds.
        rows = {number: row for number, row in rows.items() if number not in failed and len(row) >= 2}
        seeds = set.intersection(*(set(row) for row in rows.values())) if rows else set()
        if len(seeds) < 2:
            return {}
        return {number: [row[seed] for seed in sorted(seeds)] for number, row in rows.items()}
