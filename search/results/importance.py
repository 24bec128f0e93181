"""Which parameters make trials good, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..formatting import position
from ..scheduling.observed import comparable_trials
from .ped_anova import PedAnova
from .study import StudyResult

FEWEST = 10  # trials: PED-ANOVA asks what tells the best tenth from the others
STEADY = 50  # trials: Optuna advises five in the best tenth
RESAMPLES = 40  # with 200 trials of 8 parameters they take half a second
LEAST_RESAMPLES = 10  # fewer say nothing about 5 and 95 %
MOST_VALUES = 2_000_000  # of parameters, in all resamples together: some three seconds
AS_MANY_VALUES = 600  # of one parameter in as many trials take as long as what its estimate costs at least
WITHIN = (5, 50, 95)  # percent of the resamples


@dataclass(frozen=True)
class Importance:
    """A parameter's share of what tells good trials from the others, 0 to 1."""

    share: float
    low: float | None  # 5 % of the resamples are below; None where resamples would take too long
    middle: float  # of the resamples, else the share
    high: float | None  # and 5 % above; low to high always has the share, which few trials bias upwards


def importances_of(result: StudyResult) -> tuple[dict[str, Importance], str | None]:
    """The importance of each searched parameter by Optuna's PED-ANOVA, and how far to trust it."""
    step, trials = comparable_trials(result.spec, result.all_trials, FEWEST)
    if not result.spec.space.searched:
        return {}, None
    if len(trials) < FEWEST:
        return {}, f"importance needs {FEWEST} trials that compare, there are {len(trials)}"
    if len({trial.value for trial in trials}) == 1:
        return {}, f"importance: the values of {len(trials)} trials are all the same"
    where = "complete trials" if step is None else f"trials at {position(step, result.spec.resource)}"
    said = f"importance: PED-ANOVA over {len(trials)} {where}"
    anova = PedAnova(trials, result.spec.loss(1.0))
    shares = anova.shares(np.ones(len(trials), int))
    resamples = min(RESAMPLES, MOST_VALUES // ((len(trials) + AS_MANY_VALUES) * len(shares)))
    if resamples < LEAST_RESAMPLES:
        said += f"; of {len(shares)} parameters an interval would take too long"
        importances = {name: Importance(share, None, share, None) for name, share in shares.items()}
    else:
        said += ", 90 % interval by bootstrap"
        drawn = _bootstrap(anova, len(trials), list(shares), resamples)
        importances = {name: _between(share, drawn[name]) for name, share in shares.items()}
    if len(trials) < STEADY:
        said += f"; a rough guess, {STEADY} make it steady"
    return importances, said


def _between(share: float, drawn: Sequence[float]) -> Importance:
    low, middle, high = (float(each) for each in np.percentile(drawn, WITHIN))
    return Importance(share, min(low, share), middle, max(high, share))


def _bootstrap(anova: PedAnova, count: int, names: Sequence[str], resamples: int) -> dict[str, list[float]]:
    """The importances in other searches that might have been: `count` trials drawn with replacement."""
    rng = np.random.default_rng(0)
    drawn: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(resamples):
        shares = anova.shares(np.bincount(rng.integers(count, size=count), minlength=count))
        for name in names:
            drawn[name].append(shares.get(name, 0.0))
    return drawn
