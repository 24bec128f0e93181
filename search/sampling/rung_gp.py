"""hpsearch's own sampler: quasi-random points, then the maxima of Gaussian processes at all rungs.

Trials that stop early have values at different rungs, which do not compare. So each rung has its own model,
of all trials that have reached it: low rungs have many trials, high rungs predict the end better. A proposal
maximises the product of the expected improvements at all rungs, in which rung k counts k + 1 times: it must
look good to every model.

| proposals | source |
|---|---|
| a share that falls, but not to 0 | near the stated priors, if there are any |
| of the others, the first `n_startup_trials` | a Sobol sequence, scrambled by the seed |
| then `MODEL_SHARE` | the models |
| the rest | the sequence again, which does not share the models' errors |

Each proposal depends only on the study's seed, the trial's number and the trials so far, so an interrupted
search continues as if it had not been interrupted.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState
from threadpoolctl import ThreadpoolController

from ...spaces import Choice, Spec
from ...spaces.space import Suggest
from ...storage.trial_attrs import SUGGESTED_BY, search_trials, unusable
from ..scheduling.observed import as_searched, value_at
from ..scheduling.rungs import rung_steps
from ..trials.seeds import derived_seed
from .gaussian_process import Array, GaussianProcess, Indices, log_expected_improvement, standardised
from .unit_cube import UnitCube
from .whole_sampler import MAX_PROPOSALS, MAX_REPEATS, WholeSampler

MODEL_SHARE = 0.85  # of the later proposals
MIN_MODEL_VALUES = 6  # that a rung needs for a model
MAX_MODEL_VALUES = 256  # of a model, whose cost grows with the cube of their number
MAX_RANKED = 1000  # trials of which all are ranked by their predictions
TARGET_IMPROVEMENT = 0.5  # over the best prediction, in standard deviations of a rung
RANDOM_CANDIDATES, NEIGHBOUR_CANDIDATES = 1000, 1000  # anywhere, and near the five best points
REFINEMENTS = ((10, 50), (5, 60), (3, 60), (2, 60), (1, 60))  # near the best: points, neighbours of each
COMPARED_AT_LAST = 10  # points, scored anew without parameters that their configurations lack
PRIOR_SHARE = {"low": 0.15, "medium": 0.25, "high": 0.5}  # of proposals near a prior, at first
PRIOR_HALF_LIFE, MIN_PRIOR_FADING = 20, 0.2  # trials in which the share halves; the factor at which it stays
BLOCK, MAX_BLOCKS = 2**16, 64  # of the sequence: as many points as fill the cube evenly
PRIOR_SPREAD = {"low": 0.3, "medium": 0.2, "high": 0.1}  # as a fraction of the range


class RungGPSampler(WholeSampler):
    """Proposes whole configurations that satisfy the space's conditions and constraints."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._cube = UnitCube(spec.space)
        self._startup = max(1, spec.search.startup_trials or 0)  # without a trial there is nothing to model
        self._kept: dict[int, tuple[FrozenTrial, tuple[Array, Array]]] = {}  # by number, see `_observed`
        last = spec.early_stopping.max  # above all rungs
        self._steps = rung_steps(spec) + ([] if last is None else [last])  # empty if only ends compare

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Any]:
        others = search_trials(study._get_trials(deepcopy=False))  # of all brackets
        trials = [t for t in others if t.params and t.number != trial.number]
        rng = np.random.default_rng(derived_seed(self._spec.search.seed, "sampler", trial.number))
        given, by = self.given(trial), ""

        def proposals() -> Iterator[Suggest]:
            nonlocal by
            for point, source in self._proposed(trials, rng):
                by = source
                yield self._cube.suggester(point, given)
            by = f"drawn at random; refused or tried first: {by}"
            while True:
                yield self._cube.suggester(rng.random(self._cube.dimensions), given)

        labels = self.first_new(study, trial, given, islice(proposals(), MAX_PROPOSALS), rng.integers)
        study._storage.set_trial_system_attr(trial._trial_id, SUGGESTED_BY, by)
        return labels

    def _proposed(
        self, trials: Sequence[FrozenTrial], rng: np.random.Generator
    ) -> Iterator[tuple[Array, str]]:
        """Points for the next trial and their sources in words, until one is neither refused nor tried."""
        number = len(trials)
        sequence = self._sequence(number)
        start = next(sequence)
        if leaning := self._leaning(number, rng):
            for _ in range(MAX_REPEATS):
                yield self._near_priors(start, leaning, rng), "drawn near the prior"
            return
        if number >= self._startup and rng.random() < MODEL_SHARE:
            with self._one_thread.limit(limits=1):
                modelled = self._modelled(trials, rng)
            if modelled is not None:
                yield modelled
                return
        yield start, f"point {number + 1} of the quasi-random sequence"
        for block, point in enumerate(sequence, start=1):
            yield point, f"point {number + block * BLOCK + 1} of the quasi-random sequence"

    @functools.cached_property
    def _one_thread(self) -> ThreadpoolController:
        """Limits linear algebra to one thread: the matrices are small, and the other cores train trials.

        More threads wait for each other: a proposal takes three times as long, and six times the CPU time.
        """
        return ThreadpoolController()

    def _sequence(self, number: int) -> Iterator[Array]:
        """A point of the quasi-random sequence, then others to take its place: each a block further on."""
        from scipy.stats import qmc  # takes half a second, and only this sampler needs it

        seed = derived_seed(self._spec.search.seed, "sequence")
        sequence = qmc.Sobol(self._cube.dimensions, scramble=True, rng=np.random.default_rng(seed))
        if number:
            sequence.fast_forward(number)
        for _ in range(MAX_BLOCKS):
            yield sequence.random(1)[0]
            sequence.fast_forward(BLOCK - 1)

    def _leaning(self, number: int, rng: np.random.Generator) -> list[str]:
        """The parameters that this proposal draws near their priors: of many proposals, none.

        The share of the others falls, so that a wrong prior costs little (as in PriorBand, Mallik et al.
        2023).
        """
        fading = max(0.5 ** (number / PRIOR_HALF_LIFE), MIN_PRIOR_FADING)
        chance = rng.random()
        priors = {name: p.prior for name, p in self._space.searched.items() if p.prior is not None}
        return [name for name, prior in priors.items() if chance < PRIOR_SHARE[prior.confidence] * fading]

    def _near_priors(self, point: Array, leaning: Iterable[str], rng: np.random.Generator) -> Array:
        """The point with these parameters drawn near their priors."""
        near = point.copy()
        for name in leaning:
            parameter = self._space.searched[name]
            assert parameter.prior is not None
            index, at = self._cube.place(name, parameter.prior.at)
            if isinstance(parameter, Choice):
                near[index] = at if rng.random() < 0.5 else rng.random()
            else:
                near[index] = _within(at + PRIOR_SPREAD[parameter.prior.confidence] * rng.standard_normal())
        return near

    def _modelled(self, trials: Sequence[FrozenTrial], rng: np.random.Generator) -> tuple[Array, str] | None:
        """The point of the best expected improvement at all rungs, and why; None if there is no model."""
        values, points = map(np.stack, zip(*map(self._observed, trials), strict=True))
        columns, owner = self._cube.features(points)
        pending = np.array([t.state == TrialState.RUNNING for t in trials]) & np.isnan(values[:, 0])
        models: list[tuple[GaussianProcess, float]] = []
        counts, kept = [], []
        for rung in range(values.shape[1]):
            at = np.flatnonzero(~np.isnan(values[:, rung]))
            finite = np.isfinite(values[at, rung])
            if finite.sum() < MIN_MODEL_VALUES:
                break
            worst = values[at, rung][finite].max()  # stands for trials that cannot be trained
            y = standardised(np.where(finite, values[at, rung], worst))
            keep = _thinned(y, MAX_MODEL_VALUES)
            x, y = columns[at[keep]], y[keep]
            model, few = GaussianProcess(owner), _thinned(y, MAX_MODEL_VALUES // 2)
            model.optimise(x[few], y[few])
            model.condition(x, y)
            best = float(model.predict(x)[0].min()) - TARGET_IMPROVEMENT
            if pending.any():  # running trials count with their predicted values, so that others go elsewhere
                expected = model.predict(columns[pending])[0]
                model.condition(np.r_[x, columns[pending]], np.r_[y, expected])
            models.append((model, best))
            kept.append(at[keep])
            counts.append(f"{len(at)} at {self._steps[rung]:,}" if self._steps else f"{len(at)}")
        if not models:
            return None
        # Of very many trials those that the models have learned from: to predict the others takes longest.
        among = np.arange(len(trials)) if len(trials) <= MAX_RANKED else np.unique(np.concatenate(kept))
        predicted = (model.predict(columns[among])[0] for model, _ in models)
        quality = sum(((rung + 1) * mean for rung, mean in enumerate(predicted)), np.zeros(len(among)))
        best_five = points[among[np.argsort(quality, kind="stable")[:5]]]
        point = self._best_of(models, best_five, {tried.tobytes() for tried in points}, rng)
        return None if point is None else (point, f"expected best by models of {', '.join(counts)}")

    def _best_of(
        self,
        models: list[tuple[GaussianProcess, float]],
        good: Array,
        tried: set[bytes],
        rng: np.random.Generator,
    ) -> Array | None:
        """The point that the models expect most of; None if no candidate is allowed and new."""

        def best_first(points: Array) -> Array:
            columns, scores = self._cube.features(points)[0], np.zeros(len(points))
            for rung, (model, best) in enumerate(models):
                scores += (rung + 1) * log_expected_improvement(*model.predict(columns), best)
            ordered: Array = points[np.argsort(-scores, kind="stable")]
            return ordered

        anywhere = rng.random((RANDOM_CANDIDATES, self._cube.dimensions))
        near = self._neighbours(good, NEIGHBOUR_CANDIDATES // len(good), rng)
        points = self._cube.snapped(np.r_[anywhere, near])
        for keep, each in REFINEMENTS:
            kept = self._first_untried(best_first(points), keep, tried)
            if not len(kept):
                return None
            points = np.r_[kept, self._cube.snapped(self._neighbours(kept, each, rng))]
        last = self._first_untried(best_first(points), COMPARED_AT_LAST, tried)
        return best_first(last)[0] if len(last) else None

    def _first_untried(self, points: Array, most: int, tried: set[bytes]) -> Array:
        """The points of the first configurations that the space allows and no trial has, each once.

        Equal configurations have equal points, to the last bit, unless a range of steps is too long to list.
        """

        def new() -> Iterator[Array]:
            known = set(tried)
            for point in points if self._cube.snaps_to_configs else self._of_allowed(points):
                if (key := point.tobytes()) not in known:
                    known.add(key)
                    yield point

        return np.array(list(islice(new(), most)))

    def _of_allowed(self, points: Iterable[Array]) -> Iterator[Array]:
        """The points of the configurations that the space allows."""
        for point in points:
            config, refused = self._space.proposed(self._cube.suggester(point))
            if refused is None:
                yield self._cube.point(config)

    def _neighbours(self, points: Array, each: int, rng: np.random.Generator) -> Array:
        """Random points, `each` near every point: a step of 0.02 to 0.3 in a few, half or all coordinates."""
        around = np.repeat(points, each, 0)
        n, d = around.shape
        step = np.exp(rng.uniform(np.log(0.02), np.log(0.3), (n, 1)))
        moves = rng.random((n, d)) < rng.choice([2 / d, 0.5, 1.0], (n, 1))
        moves[np.arange(n), rng.integers(d, size=n)] = True
        moved = _within(around + step * rng.standard_normal((n, d)))
        moved = np.where(self._cube.unordered, rng.random((n, d)), moved)
        return np.where(moves, moved, around)

    def _observed(self, trial: FrozenTrial) -> tuple[Array, Array]:
        """The losses of a trial at each rung, and its point; kept until another object replaces the trial."""
        kept = self._kept.get(trial.number)
        if kept is None or kept[0] is not trial:
            known = self._spec.parameters  # another program's trials may have others
            labels = {name: label for name, label in trial.params.items() if name in known}
            losses = self._losses(as_searched(self._spec, trial))
            point = self._cube.point(self.values(labels))
            kept = self._kept[trial.number] = trial, (losses, point)
        return kept[1]

    def _losses(self, trial: FrozenTrial) -> Array:
        """The loss of a trial at each rung.

        NaN at rungs that it has not reached; a complete trial has reached the last one, even if its own rule
        ended it early. Infinite at all rungs if it cannot be trained, even if it looked good at some: the
        models would propose similar ones again.
        """
        if unusable(trial):
            return np.full(max(1, len(self._steps)), np.inf)
        values = [value_at(trial, step) for step in self._steps] or [None]
        if values[-1] is None and trial.state == TrialState.COMPLETE:
            values[-1] = trial.value
        return np.array([np.nan if value is None else self._spec.loss(value) for value in values])


def _within(coordinates: Any) -> Any:
    """The coordinates, reflected into the cube."""
    inside = np.abs(coordinates)
    return np.clip(np.where(inside > 1, 2 - inside, inside), 0, 1)


def _thinned(y: Array, most: int) -> Indices:
    """The values that a model keeps: the best ones for half of its room, the others evenly over time."""
    if len(y) <= most:
        return np.arange(len(y))
    order = np.argsort(y, kind="stable")
    rest = np.sort(order[most // 2 :])
    evenly = rest[np.linspace(0, len(rest) - 1, most - most // 2).astype(int)]
    return np.sort(np.r_[order[: most // 2], evenly])
