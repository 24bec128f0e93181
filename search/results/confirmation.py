"""How good the winner is: the best few of a search, trained again with new seeds.

The best of many noisy values flatters its configuration, which was partly lucky. So the best few are trained
again, each with the same new seeds, and judged by these values alone. The model is two-way: value =
configuration + seed + noise. What a seed does to all configurations is no difference between them.

The best of these means is partly lucky too, if less so. It is therefore shrunk towards the mean of the
candidates (empirical Bayes, Efron and Morris 1975) by noise / seeds / (variance of the candidates' means), at
most by 1. That takes the luck of the selection away, so the intervals around it are Student's, as without a
selection. `benchmarks/confirm.py` shows that they cover the truth as often as they state.

| error of | spread | degrees of freedom |
|---|---|---|
| a difference | sqrt(2 noise / seeds) | those of the noise, (candidates - 1) (seeds - 1) |
| a mean | sqrt((seed + noise) / seeds) | Satterthwaite 1946, of (MS_seed + (candidates - 1) MS_noise) |

A candidate ties with the winner if noise may explain the difference of their means. The winner was selected
as the best, so this is tested for all pairs at once (Bonferroni). Otherwise, one of three equally good
candidates would be called worse in one study of nine.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..trials.records import StudyRecords, TrialRecord

LEVEL = 0.95  # of every interval
ROUNDING = 1e-13  # of the larger of two rows: their means are equal if they differ by less


@dataclass(frozen=True)
class Interval:
    """A value that was estimated, and between which it lies at `LEVEL`."""

    value: float
    low: float
    high: float

    @classmethod
    def around(cls, value: float, half: float) -> Interval:
        return cls(value, value - half, value + half)


@dataclass(frozen=True)
class _Error:
    """What an estimate may be off by: its spread, which is itself estimated."""

    spread: float
    freedom: float  # the degrees of it

    def half(self, of: int = 1) -> float:
        """Half the length of an interval; of so many that hold at once (Bonferroni)."""
        from scipy.special import stdtrit  # half a second, which no command but those that confirm pays

        return float(stdtrit(self.freedom, 1 - (1 - LEVEL) / (2 * of))) * self.spread


@dataclass(frozen=True)
class Confirmed:
    """What training again told. Numbers are those of the trials whose configurations were trained."""

    winner: int
    value: Interval
    optimism: float  # how much better the value of the search was; negative where it was worse
    gain: Interval | None  # how much better than the baseline; None where there is none, or it is the winner
    ties: tuple[int, ...]  # candidates that may be as good as the winner; of the baseline `gain` tells
    seeds: int
    seedless: bool  # no seed changed any value


@dataclass(frozen=True)
class NewTraining:
    """A training of a configuration with a new seed."""

    trial: int  # its own number
    seed: int  # from 1
    state: str
    value: float | None  # of the metric; None until it is complete


@dataclass(frozen=True)
class Candidate:
    """A trial whose configuration is trained again."""

    trial: int
    is_baseline: bool
    searched: float | None  # its value in the search
    mean: Interval | None  # of the seeds that all have; None while there are too few, or where one diverged
    trainings: tuple[NewTraining, ...]  # by seed


def confirmed(
    losses: Mapping[int, Sequence[float]],
    searched: Mapping[int, float],
    *,
    baseline: int | None = None,
) -> Confirmed:
    """The winner among candidates that were trained again, each with the same seeds (at least two).

    `losses` are those of the new trainings by candidate, the baseline's among them where there is one: it may
    be the winner itself; `searched` what each candidate had in the search. A candidate with a loss that is
    not finite is out.
    """
    numbers = [number for number, row in losses.items() if all(map(math.isfinite, row))]
    table = np.array([losses[number] for number in numbers])
    scale = _scale(table)
    table /= scale
    means = dict(zip(numbers, _means(table).tolist(), strict=True))
    sizes: dict[int, float] = dict(zip(numbers, np.abs(table).max(axis=1).tolist(), strict=True))

    def rounding(one: int, other: int) -> float:
        return ROUNDING * max(sizes[one], sizes[other])

    best = min(means, key=means.__getitem__)
    equal = [number for number in numbers if means[number] - means[best] <= rounding(number, best)]
    winner = min(equal, key=lambda n: (n != baseline, searched[n]))
    mean_error, difference_error = _errors(table)
    picked_from = [row for row, number in enumerate(numbers) if number != baseline]
    expected = _without_luck(table, picked_from) if winner != baseline else means[winner]
    value = Interval.around(expected * scale, mean_error.half() * scale)
    gain = None
    if baseline is not None and baseline in means and baseline != winner:
        gain = Interval.around((means[baseline] - expected) * scale, difference_error.half() * scale)
    others = [number for number in numbers if number not in (winner, baseline)]
    half = difference_error.half(of=max(1, math.comb(len(others) + 1, 2)))
    ties = [n for n in others if means[n] - means[winner] <= max(half, rounding(n, winner))]
    optimism = expected * scale - searched[winner]
    seedless = bool((table == table[:, :1]).all())
    return Confirmed(winner, value, optimism, gain, tuple(ties), table.shape[1], seedless)


def _scale(table: np.ndarray) -> float:
    """A power of two about as large as the values: no float holds the squares of huge or tiny ones."""
    return float(2.0 ** (math.frexp(float(np.abs(table).max()))[1] - 1))


def _without_luck(table: np.ndarray, picked_from: Sequence[int]) -> float:
    """What the best of some rows can be expected to come to; `table` [candidates, seeds], less is better."""
    means = _means(table)[list(picked_from)]
    if len(means) < 2:
        return float(means.min())
    noise = _mean_squares(table)[1] / table.shape[1]
    between = float(means.var(ddof=1))
    luck = min(1.0, noise / between) if between else 0.0
    return float((1 - luck) * means.min() + luck * means.mean())


def _means(table: np.ndarray) -> np.ndarray:
    """The mean of each row: of equal values exactly their value, which their sum divided may miss."""
    first = table[:, 0]
    means: np.ndarray = first + (table - first[:, None]).mean(1)
    return means


def _mean_squares(table: np.ndarray) -> tuple[float, float]:
    """The mean squares of the seeds' effects and of the noise; the latter is 0 with one candidate."""
    count, seeds = table.shape
    seed_effect = table.mean(0) - table.mean()
    ms_seed = count * float(seed_effect @ seed_effect) / (seeds - 1)
    noise = table - _means(table)[:, None] - seed_effect
    return ms_seed, float((noise * noise).sum()) / max(1, (count - 1) * (seeds - 1))


def _errors(table: np.ndarray) -> tuple[_Error, _Error]:
    """The error of a mean, and of a difference of two; `table` [candidates, seeds]."""
    count, seeds = table.shape
    ms_seed, ms_noise = _mean_squares(table)
    if count == 1:  # seeds and noise are one
        return _Error(math.sqrt(ms_seed / seeds), seeds - 1), _Error(math.inf, 1)
    freedom = (count - 1) * (seeds - 1)
    both = ms_seed + (count - 1) * ms_noise
    if both == 0:  # seeds change nothing
        return _Error(0.0, freedom), _Error(0.0, freedom)
    of_seeds = ms_seed / both
    mean_freedom = 1 / (of_seeds**2 / (seeds - 1) + (1 - of_seeds) ** 2 / freedom)
    mean = _Error(math.sqrt(both / count / seeds), mean_freedom)
    return mean, _Error(math.sqrt(2 * ms_noise / seeds), freedom)


def confirmation_outcome(records: StudyRecords) -> Confirmed | None:
    """What the trainings that confirm say; None where there are too few yet."""
    losses = {n: row for n, row in records.confirming_losses.items() if n in records.by_number}
    baseline = next((n for n in losses if records.by_number[n].is_baseline), None)
    if not losses.keys() - {baseline} or not any(all(map(math.isfinite, row)) for row in losses.values()):
        return None
    before = {number: records.by_number[number].loss or 0.0 for number in losses}
    found, value = confirmed(losses, before, baseline=baseline), records.spec.loss
    low, high = sorted((value(found.value.low), value(found.value.high)))
    return replace(found, value=Interval(value(found.value.value), low, high))


def candidates_of(records: StudyRecords, outcome: Confirmed | None) -> tuple[Candidate, ...]:
    """The trials that are trained again, the best mean first, and last those without one.

    `outcome` is that of `confirmation_outcome`: every mean is off by as much as the winner's value.
    """
    by_trial: dict[int, list[NewTraining]] = defaultdict(list)
    for run in records.confirmations:
        if run.confirms is not None and run.confirms in records.by_number:
            by_trial[run.confirms].append(NewTraining(run.number, run.seed + 1, run.state, run.value))
    rows = records.confirming_losses
    means = {n: float(np.mean(row)) for n, row in rows.items() if all(map(math.isfinite, row))}
    found = []
    for number in sorted(by_trial, key=lambda number: (means.get(number, math.inf), number)):
        trial, mean = records.by_number[number], None
        if outcome is not None and number in means:
            half = (outcome.value.high - outcome.value.low) / 2
            mean = Interval.around(records.spec.loss(means[number]), half)
        trainings = sorted(by_trial[number], key=lambda training: training.seed)
        found.append(Candidate(number, trial.is_baseline, trial.value, mean, tuple(trainings)))
    return tuple(found)


def confirmed_winner(records: StudyRecords) -> TrialRecord | None:
    """The winner as confirmations decide; None where they do not.

    `records`: of the runs that confirm and of the trials that they confirm; others change nothing.
    """
    outcome = confirmation_outcome(records)
    winner = None if outcome is None else records.by_number[outcome.winner]
    return winner if winner is not None and winner.config is not None else None


def overlooked(records: StudyRecords) -> TrialRecord | None:
    """The best trial of the search, where it is not among those that were compared; None where it is."""
    compared, best = records.confirming_losses, records.best(1)
    return best[0] if compared and best and best[0].number not in compared else None
