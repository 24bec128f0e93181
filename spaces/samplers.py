"""The samplers and their options, as `search:` names them.

An option that is not given stays None and takes the default of the library that runs the sampler.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, Tag, model_validator

from .fields import MOST_COUNT, Model, NotNegative, Positive, Proportion, members, named, refuse


class Sampler(Model):
    """The fields of every sampler."""

    default_startup_trials: ClassVar[int | None] = None  # `startup_trials` where no option says it

    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seeds every random draw of the search."""

    @property
    def startup_trials(self) -> int | None:
        """Trials before it uses its model; None without a model."""
        asked = (getattr(self, name, None) for name in ("n_startup_trials", "n_startup_jobs"))
        return next((count for count in asked if count is not None), self.default_startup_trials)


class TPE(Sampler):
    """Tree-structured Parzen estimator: the default, good at every kind of space."""

    default_startup_trials: ClassVar[int | None] = 10
    sampler: Literal["tpe"] = "tpe"
    n_startup_trials: NotNegative | None = None
    """Random trials before the model is used."""
    n_ei_candidates: Positive | None = None
    """Candidates drawn for each suggestion."""
    multivariate: bool | None = None
    """Model all parameters jointly."""
    group: bool | None = None
    """Model each group of parameters that occur together; for spaces with `when`."""
    constant_liar: bool | None = None
    """Keep parallel trials apart from each other."""

    @model_validator(mode="after")
    def _check(self) -> TPE:
        if self.group and self.multivariate is False:
            raise refuse("needs multivariate: true", "group")
        return self


class Random(Sampler):
    """Independent random draws."""

    sampler: Literal["random"]


class GP(Sampler):
    """Gaussian process: strong on few, mostly numeric parameters and small budgets."""

    default_startup_trials: ClassVar[int | None] = 10
    sampler: Literal["gp"]
    n_startup_trials: NotNegative | None = None
    """Random trials before the model is used."""
    deterministic_objective: bool | None = None
    """The objective has no noise."""


class RungGP(Sampler):
    """A Gaussian process for each rung, and a quasi-random sequence: learns from trials that stop early."""

    default_startup_trials: ClassVar[int | None] = 20
    sampler: Literal["rung_gp"]
    n_startup_trials: NotNegative | None = None
    """Trials before the models are used: quasi-random ones, some near a prior."""


class CMAES(Sampler):
    """Covariance matrix adaptation: numeric parameters only, larger budgets."""

    default_startup_trials: ClassVar[int | None] = 1
    sampler: Literal["cmaes"]
    n_startup_trials: NotNegative | None = None
    """Random trials before the model is used."""
    popsize: Annotated[int, Field(ge=2, le=MOST_COUNT)] | None = None
    """Trials per generation."""
    sigma0: Annotated[float, Field(gt=0)] | None = None
    """First step size."""
    with_margin: bool | None = None
    """Keep integers and stepped ranges from freezing."""
    lr_adapt: bool | None = None
    """Adapt the learning rate to noise."""
    use_separable_cma: bool | None = None
    """Ignore correlations; for many parameters."""

    @model_validator(mode="after")
    def _check(self) -> CMAES:
        on = [name for name in ("with_margin", "lr_adapt", "use_separable_cma") if getattr(self, name)]
        if len(on) > 1:
            raise refuse(f"cannot be combined with {on[0]}", on[1])
        return self


class QMC(Sampler):
    """Quasi-random sequences: random search that fills the space evenly."""

    sampler: Literal["qmc"]
    qmc_type: Literal["sobol", "halton"] | None = None
    """The sequence."""
    scramble: bool | None = None
    """Randomise the sequence."""


class Grid(Sampler):
    """Every configuration once; every range needs a step or a factor."""

    sampler: Literal["grid"]


class NSGAII(Sampler):
    """Genetic search: very large budgets."""

    sampler: Literal["nsgaii"]
    population_size: Annotated[int, Field(ge=2, le=MOST_COUNT)] | None = None
    """Trials per generation."""
    crossover_prob: Proportion | None = None
    """Chance that a child has two parents."""
    mutation_prob: Proportion | None = None
    """Chance that a parameter is redrawn."""
    swapping_prob: Proportion | None = None
    """Chance that two parents swap a parameter."""


class HyperoptTPE(Sampler):
    """Hyperopt's tree-structured Parzen estimator: models each parameter alone. Needs hpsearch[hyperopt]."""

    default_startup_trials: ClassVar[int | None] = 20
    sampler: Literal["hyperopt-tpe"]
    n_startup_jobs: NotNegative | None = None
    """Random trials before the model is used."""
    n_EI_candidates: Positive | None = None
    """Candidates drawn for each suggestion."""
    gamma: Annotated[float, Field(gt=0)] | None = None
    """Scales the number of good trials in the model, which grows with the root of all."""
    prior_weight: Annotated[float, Field(gt=0)] | None = None
    """Weight of the prior, the range itself, beside the trials."""


class HyperoptATPE(Sampler):
    """Hyperopt's adaptive TPE, whose options are chosen by pretrained models. Needs hpsearch[atpe]."""

    default_startup_trials: ClassVar[int | None] = 1
    sampler: Literal["hyperopt-atpe"]


class HyperoptAnneal(Sampler):
    """Hyperopt's annealing: draws closer and closer to the best trials. Needs hpsearch[hyperopt]."""

    default_startup_trials: ClassVar[int | None] = 1
    sampler: Literal["hyperopt-anneal"]
    avg_best_idx: Annotated[float, Field(ge=1)] | None = None
    """Mean rank of the trials to draw around; 1 is the best trial only."""
    shrink_coef: Annotated[float, Field(ge=0)] | None = None
    """How fast the draws narrow down."""


Search = Annotated[
    Annotated[TPE, Tag("tpe")]
    | Annotated[Random, Tag("random")]
    | Annotated[GP, Tag("gp")]
    | Annotated[RungGP, Tag("rung_gp")]
    | Annotated[CMAES, Tag("cmaes")]
    | Annotated[QMC, Tag("qmc")]
    | Annotated[Grid, Tag("grid")]
    | Annotated[NSGAII, Tag("nsgaii")]
    | Annotated[HyperoptTPE, Tag("hyperopt-tpe")]
    | Annotated[HyperoptATPE, Tag("hyperopt-atpe")]
    | Annotated[HyperoptAnneal, Tag("hyperopt-anneal")],
    named("sampler", "tpe"),
]

SAMPLERS = members(Search)
