"""Our own sampler: quasi-random points, and what Gaussian processes at all rungs expect most of.

Trials that stop early have values at different rungs, which do not compare. So each rung has a model of its
own, of all trials that have reached it: the low ones know many trials, the high ones know better what the end
is like. A proposal maximises the product of the improvements expected at each, higher rungs weighing more
(rung k counts k + 1 times): it has to look good to all of them.

| proposals | by |
|---|---|
| the first `INITIAL_PROPOSALS` | a Sobol sequence, shifted by the seed; some near a stated prior |
| then `MODEL_SHARE` | the models |
| the others | the sequence goes on: what misleads the models does not mislead it |

Each is drawn from the study's seed and the trial's number alone, so a search that was interrupted goes on as
if it had not been.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState
from threadpoolctl import ThreadpoolController

from ...spaces import Choice, Spec
from ...storage.states import unusable
from ..scheduling import places_of
from ..scheduling.observed import value_at, without_audit
from ..scheduling.standings import SUGGESTED_BY
from ..trials.seeds import derived_seed
from .gaussian_process import Array, GaussianProcess, Indices, log_expected_improvement, standardised
from .tried import Key, UntriedConfigs, key_of
from .unit_cube import UnitCube
from .whole_sampler import MAX_PROPOSALS, MAX_REPEATS, WholeSampler, all_refused

INITIAL_PROPOSALS = 20  # proposals before the first model
MODEL_SHARE = 0.85  # of the proposals after that
MIN_MODEL_VALUES = 6  # values that a rung needs for a model
MAX_MODEL_VALUES = 256  # values that a model holds: its cost grows with the cube of their number
TARGET_IMPROVEMENT = 0.5  # that is asked for, in standard deviations of a rung
RANDOM_CANDIDATES, NEIGHBOUR_CANDIDATES = (
    100,
    100,
)  # candidates of a proposal, anywhere and near the best five
REFINEMENTS = ((2, 20), (1, 30))  # then near the best so many candidates, so many each
PRIOR_SHARE = {"low": 0.15, "medium": 0.25, "high": 0.5}  # of proposals near a prior, at first
PRIOR_HALF_LIFE, MIN_PRIOR_FADING = 20, 0.2  # it halves every so many trials, down to this part
PRIOR_SPREAD = {"low": 0.3, "medium": 0.2, "high": 0.1}  # in ranges


class RungGPSampler(WholeSampler):
    """Proposes whole configurations that satisfy the space's conditions and constraints."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._cube = UnitCube(spec.space)
        self._untried = UntriedConfigs(spec)
        last = spec.early_stopping.max  # all rungs are below it
        self._places = places_of(spec) + ([] if last is None else [last])  # none where only ends compare

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Any]:
        others = without_audit(study._get_trials(deepcopy=False))  # of all brackets
        trials = [t for t in others if t.params and t.number != trial.number]
        rng = np.random.default_rng(derived_seed(self._spec.search.seed, "sampler", trial.number))
        number = len(trials)
        point, by = self._proposed(trials, number, rng)
        labels = self._legal(point, rng, self.tried(study, trial.number), self.given(trial))
        study._storage.set_trial_system_attr(trial._trial_id, SUGGESTED_BY, by)
        return labels

    def _proposed(
        self, trials: Sequence[FrozenTrial], number: int, rng: np.random.Generator
    ) -> tuple[Array, str]:
        """A point for the trial after so many others, and what it comes from."""
        start = self._sequence(number)
        near = self._near_prior(start, number, rng)
        if near is not None:
            return near, "drawn near the prior"
        if number >= INITIAL_PROPOSALS and rng.random() < MODEL_SHARE:
            with self._one_thread.limit(limits=1):
                found = self._modelled(trials, rng)
            if found is not None:
                return found
        return start, f"point {number + 1} of the quasi-random sequence"

    @functools.cached_property
    def _one_thread(self) -> ThreadpoolController:
        """Keeps the algebra to one thread: its matrices are small, and the other cores train trials.

        More would wait for each other: a proposal takes three times as long, and six times the work.
        """
        return ThreadpoolController()

    def _sequence(self, number: int) -> Array:
        from scipy.stats import qmc  # half a second, which only this sampler pays

        seed = derived_seed(self._spec.search.seed, "sequence")
        sequence = qmc.Sobol(self._cube.dimensions, scramble=True, rng=np.random.default_rng(seed))
        if number:
            sequence.fast_forward(number)
        point: Array = sequence.random(1)[0]
        return point

    def _near_prior(self, point: Array, number: int, rng: np.random.Generator) -> Array | None:
        """`point` with the parameters that have a prior drawn near it; None where it is not its turn.

        The share of such proposals falls, so that a wrong prior costs little (as in PriorBand, Mallik et al.
        2023).
        """
        fading = max(0.5 ** (number / PRIOR_HALF_LIFE), MIN_PRIOR_FADING)
        chance = rng.random()
        found = point.copy()
        for index, name in enumerate(self._space.searched):
            parameter = self._space.searched_parameter(name)
            prior = parameter.prior
            if prior is None or chance >= PRIOR_SHARE[prior.confidence] * fading:
                continue
            at = self._cube.point({name: prior.at})[index]
            if isinstance(parameter, Choice):
                found[index] = at if rng.random() < 0.5 else rng.random()
            else:
                found[index] = _within(at + PRIOR_SPREAD[prior.confidence] * rng.standard_normal())
        return None if np.array_equal(found, point) else found

    def _modelled(self, trials: Sequence[FrozenTrial], rng: np.random.Generator) -> tuple[Array, str] | None:
        """The point that the models of all rungs expect most of; None where there is no model yet."""
        values = self._table(trials)
        points = np.stack([self._cube.point(self._config(trial)) for trial in trials])
        columns, owner = self._cube.features(points)
        pending = np.array([t.state == TrialState.RUNNING for t in trials]) & np.isnan(values[:, 0])
        models: list[tuple[GaussianProcess, float]] = []
        told, quality = [], np.zeros(len(trials))
        for rung in range(values.shape[1]):
            at = np.flatnonzero(~np.isnan(values[:, rung]))
            finite = np.isfinite(values[at, rung])
            if finite.sum() < MIN_MODEL_VALUES:
                break
            worst = values[at, rung][finite].max()  # for those that cannot be trained
            y = standardised(np.where(finite, values[at, rung], worst))
            keep = _thinned(y, MAX_MODEL_VALUES)
            x, y = columns[at[keep]], y[keep]
            model, few = GaussianProcess(owner), _thinned(y, MAX_MODEL_VALUES // 2)
            model.optimise(x[few], y[few])
            model.condition(x, y)
            best = float(model.predict(x)[0].min()) - TARGET_IMPROVEMENT
            if pending.any():  # what runs is taken to turn out as expected, so that nobody else goes there
                expected = model.predict(columns[pending])[0]
                model.condition(np.r_[x, columns[pending]], np.r_[y, expected])
            models.append((model, best))
            quality += (rung + 1) * model.predict(columns)[0]
            told.append(f"{len(at)} at {self._places[rung]:,}" if self._places else f"{len(at)}")
        if not models:
            return None
        best_five = points[np.argsort(quality, kind="stable")[:5]]
        point = self._best_of(models, best_five, rng)
        return None if point is None else (point, f"expected best by models of {', '.join(told)}")

    def _best_of(
        self, models: list[tuple[GaussianProcess, float]], good: Array, rng: np.random.Generator
    ) -> Array | None:
        d = self._cube.dimensions
        found, scores = np.empty((0, d)), np.empty(0)

        def add(candidates: Array, keep: int) -> None:
            nonlocal found, scores
            proposed = [self._space.proposed(self._cube.suggester(candidate)) for candidate in candidates]
            legal = [self._cube.point(config) for config, refused in proposed if refused is None]
            if legal:
                fresh = np.stack(legal)
                columns = self._cube.features(fresh)[0]
                score = np.zeros(len(fresh))
                for rung, (model, best) in enumerate(models):
                    score += (rung + 1) * log_expected_improvement(*model.predict(columns), best)
                found, scores = np.r_[found, fresh], np.r_[scores, score]
            order = np.argsort(-scores, kind="stable")[:keep]
            found, scores = found[order], scores[order]

        add(
            np.r_[
                rng.random((RANDOM_CANDIDATES, d)),
                self._neighbours(good, NEIGHBOUR_CANDIDATES // len(good), rng),
            ],
            5,
        )
        for keep, each in REFINEMENTS:
            if len(found):
                add(self._neighbours(found, each, rng), keep)
        return found[0] if len(found) else None

    def _neighbours(self, points: Array, each: int, rng: np.random.Generator) -> Array:
        """So many points near each: a step of 0.02 to 0.3, in a few, half or all of the coordinates."""
        around = np.repeat(points, each, 0)
        n, d = around.shape
        step = np.exp(rng.uniform(np.log(0.02), np.log(0.3), (n, 1)))
        moves = rng.random((n, d)) < rng.choice([2 / d, 0.5, 1.0], (n, 1))
        moves[np.arange(n), rng.integers(d, size=n)] = True
        moved = _within(around + step * rng.standard_normal((n, d)))
        moved = np.where(self._cube.unordered, rng.random((n, d)), moved)
        return np.where(moves, moved, around)

    def _table(self, trials: Sequence[FrozenTrial]) -> Array:
        """The loss of each trial at each place [trials, places].

        NaN where it has not been; infinite where it cannot be trained, also at rungs where it still looked
        good: or models would go on to propose the like.
        """
        sign = 1 if self._spec.goal == "minimize" else -1
        found = np.full((len(trials), max(1, len(self._places))), np.nan)
        for row, trial in enumerate(trials):
            if unusable(trial):
                found[row] = np.inf
                continue
            if self._places:
                values = [value_at(trial, place) for place in self._places]
            else:
                values = [trial.value if trial.state == TrialState.COMPLETE else None]
            for place, value in enumerate(values):
                if value is not None:
                    found[row, place] = sign * value
        return found

    def _config(self, trial: FrozenTrial) -> dict[str, Any]:
        parameters = self._spec.parameters
        return {
            name: p.value_of(label) if isinstance(p := parameters[name], Choice) else label
            for name, label in trial.params.items()
            if name in parameters
        }

    def _legal(
        self, point: Array, rng: np.random.Generator, taken: Container[Key], given: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The labels of the configuration at a point; of another where it breaks a constraint or is taken."""
        again, known, broken = 0, None, None
        for _ in range(MAX_PROPOSALS):
            labels, broken = self.proposal(self._cube.suggester(point, given), given)
            if broken is None:
                if key_of(labels) not in taken:
                    return labels
                again, known = again + 1, labels
                if again > MAX_REPEATS:
                    break
            point = rng.random(self._cube.dimensions)
        if given:
            return known or labels  # what is wrong with it is told as it begins
        if left := self._untried.left(taken):
            return left[rng.integers(len(left))]
        if known is not None:  # a small space may have no other
            return known
        assert broken is not None
        raise all_refused(broken)


def _within(coordinates: Any) -> Any:
    """Coordinates beyond the cube, reflected into it."""
    inside = np.abs(coordinates)
    return np.clip(np.where(inside > 1, 2 - inside, inside), 0, 1)


def _thinned(y: Array, most: int) -> Indices:
    """Which values a model keeps: the best half, and the others evenly over time."""
    if len(y) <= most:
        return np.arange(len(y))
    order = np.argsort(y, kind="stable")
    rest = np.sort(order[most // 2 :])
    evenly = rest[np.linspace(0, len(rest) - 1, most - most // 2).astype(int)]
    return np.sort(np.r_[order[: most // 2], evenly])
