"""The objective `sklearn`: an estimator of scikit-learn, and its score on rows that it has not seen.

| estimator | each report has |
|---|---|
| with rounds: trees or epochs | the score on the validation rows after some rounds |
| without rounds, or any estimator with `cv` | the mean score of the folds so far |

The parameters have scikit-learn's names and defaults. Numbers are scaled, gaps are filled with the median,
categories are one-hot encoded. For `sgd`, `mlp` and `svm` a numeric target is scaled too; the model predicts
in the target's own unit.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...trainer.config.rules import Need, ReportPlan, one_of, optional, text
from ...trainer.errors import ConfigError, DataError
from ..base import Trial
from .boosting import threads
from .columns import as_numbers, read, write
from .rounds import Rounds, model_round
from .table import Metrics, Table, TableParameters

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

FILE = "model.skops"
ROUNDS, FOLDS = 100, 5  # by default


@dataclass(frozen=True)
class Estimator:
    """Where an estimator is in scikit-learn, and how more rounds are trained."""

    module: str
    classifier: str
    regressor: str
    parameters: tuple[str, ...]
    rounds: str | None = None  # the parameter for the number of rounds
    partial: bool = False  # whether rounds are trained by `partial_fit`; else by `fit` with `warm_start`
    scaled: bool = False  # whether its steps and penalties depend on the scale of the target


TREES = ("max_depth", "max_leaf_nodes", "min_samples_leaf", "max_features")
ESTIMATORS = {
    "sgd": Estimator(
        "linear_model", "SGDClassifier", "SGDRegressor",
        ("loss", "penalty", "alpha", "l1_ratio", "eta0", "average", "class_weight"), "max_iter", partial=True,
        scaled=True,
    ),
    "mlp": Estimator(
        "neural_network", "MLPClassifier", "MLPRegressor",
        ("hidden_layer_sizes", "activation", "alpha", "batch_size", "learning_rate_init"), "max_iter",
        partial=True, scaled=True,
    ),
    "hist_gradient_boosting": Estimator(
        "ensemble", "HistGradientBoostingClassifier", "HistGradientBoostingRegressor",
        (*TREES, "learning_rate", "l2_regularization", "class_weight"), "max_iter",
    ),
    "gradient_boosting": Estimator(
        "ensemble", "GradientBoostingClassifier", "GradientBoostingRegressor",
        (*TREES, "learning_rate", "subsample", "min_samples_split"), "n_estimators",
    ),
    "random_forest": Estimator(
        "ensemble", "RandomForestClassifier", "RandomForestRegressor",
        (*TREES, "min_samples_split", "class_weight"), "n_estimators",
    ),
    "extra_trees": Estimator(
        "ensemble", "ExtraTreesClassifier", "ExtraTreesRegressor",
        (*TREES, "min_samples_split", "class_weight"), "n_estimators",
    ),
    "linear": Estimator("linear_model", "LogisticRegression", "Ridge", ("C", "alpha", "class_weight")),
    "svm": Estimator("svm", "SVC", "SVR", ("C", "kernel", "gamma", "degree", "class_weight"), scaled=True),
    "knn": Estimator(
        "neighbors", "KNeighborsClassifier", "KNeighborsRegressor", ("n_neighbors", "weights", "p")
    ),
}  # fmt: skip
_OWN = dict.fromkeys(name for each in ESTIMATORS.values() for name in each.parameters)
_NEEDS = {
    name: one_of(
        "estimator", *(k for k, each in ESTIMATORS.items() if name in (*each.parameters, each.rounds))
    )
    for name in (*_OWN, "max_iter", "n_estimators")
}


@dataclass(frozen=True, kw_only=True)
class Config(TableParameters):
    """An estimator, and those of its parameters that are usually tuned."""

    objective: ClassVar[str] = "sklearn"
    needs: ClassVar[Mapping[str, Need]] = _NEEDS | {
        "validation_split": Need("cv is left out", "cv == null", lambda given: given["cv"] is None),
    }
    metrics: ClassVar[Metrics] = Metrics(
        two=("accuracy", "balanced_accuracy", "f1", "roc_auc", "average_precision", "neg_log_loss"),
        more=("accuracy", "balanced_accuracy", "f1_macro", "roc_auc_ovr", "neg_log_loss"),
        numbers=("r2", "neg_root_mean_squared_error", "neg_mean_absolute_error"),
    )

    estimator: str = text("random_forest", tuple(ESTIMATORS), "the estimator to train")
    scoring: str | None = optional(str, "", metrics.help, metrics.names)
    cv: int | None = optional(int, "[2, 100]", f"folds, a report each (default of linear, svm, knn: {FOLDS})")
    eval_every: int | None = optional(
        int, "[1, inf)", "report every so many rounds (default: a tenth of them)"
    )
    max_iter: int | None = optional(int, "[1, inf)", f"rounds: epochs or trees (default: {ROUNDS})")
    n_estimators: int | None = optional(int, "[1, inf)", f"rounds: trees (default: {ROUNDS})")
    loss: str | None = optional(str, "", "the loss function")
    penalty: str | None = optional(str, "", "on the weights", ("l2", "l1", "elasticnet"))
    alpha: float | None = optional(float, "[0, inf)", "strength of the penalty")
    l1_ratio: float | None = optional(float, "[0, 1]", "share of L1 in elasticnet")
    eta0: float | None = optional(float, "(0, inf)", "constant learning rate (default: a falling one)")
    average: bool | None = optional(bool, "", "average the weights over the steps")
    class_weight: str | None = optional(str, "", "give rare classes more weight", ("balanced",))
    hidden_layer_sizes: tuple[int, ...] | None = optional(tuple, "[1, inf)", "units of each hidden layer")
    activation: str | None = optional(str, "", "of hidden units", ("relu", "tanh", "logistic", "identity"))
    batch_size: int | None = optional(int, "[1, inf)", "rows of a step")
    learning_rate_init: float | None = optional(float, "(0, inf)", "of Adam")
    max_depth: int | None = optional(int, "[1, inf)", "of a tree")
    max_leaf_nodes: int | None = optional(int, "[2, inf)", "of a tree")
    min_samples_leaf: int | None = optional(int, "[1, inf)", "fewest rows of a leaf")
    min_samples_split: int | None = optional(int, "[2, inf)", "fewest rows of a node that is split")
    max_features: float | None = optional(float, "(0, 1]", "share of the columns for each split")
    learning_rate: float | None = optional(float, "(0, inf)", "factor of each tree's values")
    l2_regularization: float | None = optional(float, "[0, inf)", "on the leaves")
    subsample: float | None = optional(float, "(0, 1]", "share of the rows for each tree")
    C: float | None = optional(float, "(0, inf)", "the smaller, the stronger the penalty")
    kernel: str | None = optional(str, "", "of the distances", ("rbf", "linear", "poly", "sigmoid"))
    gamma: float | None = optional(float, "(0, inf)", "of rbf, poly and sigmoid")
    degree: int | None = optional(int, "[1, inf)", "of poly")
    n_neighbors: int | None = optional(int, "[1, inf)", "neighbors that vote")
    weights: str | None = optional(str, "", "of the votes", ("uniform", "distance"))
    p: float | None = optional(float, "[1, inf)", "of the Minkowski distance: 1 Manhattan, 2 Euclidean")

    @classmethod
    def report_plan(cls, params: Mapping[str, Any]) -> ReportPlan:
        length = ESTIMATORS[params.get("estimator", cls.estimator)].rounds
        if length is None or params.get("cv") is not None:
            return ReportPlan("cv", params.get("cv", FOLDS), 1)
        return ReportPlan(length, params.get(length, ROUNDS), params.get("eval_every"))

    @classmethod
    def goal(cls, params: Mapping[str, Any]) -> str:
        return "maximize"  # higher is better for all scores of scikit-learn

    @property
    def folds(self) -> int | None:
        """The number of folds; None if the estimator is evaluated after rounds instead."""
        return self.cv or (None if ESTIMATORS[self.estimator].rounds else FOLDS)

    @property
    def rounds(self) -> int:
        """The number of rounds, if the estimator has any."""
        name = ESTIMATORS[self.estimator].rounds
        return (name and getattr(self, name)) or ROUNDS


def train(trial: Trial) -> float:
    """Train a trial. Returns the score after the last round, or the mean over all folds."""
    config = Config.of(trial)
    table = config.table()
    scoring = config.metrics.of(table, config.scoring, "scoring")
    made = trial.checkpoint / f"next-{FILE}"
    rounds = Rounds(
        trial,
        seed=config.seed,
        length=config.folds or config.rounds,
        every=1 if config.folds else config.eval_every,
        save=lambda folder: os.replace(made, folder / FILE),
        higher_is_better=True,
    )
    if config.folds:
        _train_folds(config, table, scoring, rounds, made)
    else:
        _train_rounds(config, table, scoring, rounds, trial.checkpoint / FILE, made)
    return rounds.value


def _train_rounds(
    config: Config, table: Table, scoring: str, rounds: Rounds, model: Path, made: Path
) -> None:
    """Each part starts from the saved model, so that a paused trial continues as if it had not been."""
    pipeline = _pipeline(config, table)
    columns = pipeline["columns"].fit(table.x)
    x, held = columns.transform(table.x), columns.transform(table.validation_x)
    while rounds.goes_on:
        if rounds.done:
            pipeline = read(model)
        count = rounds.until_report
        _grow(config, table, pipeline["model"], x, rounds, count)
        write(pipeline, made)
        rounds.after(_score(config, scoring, pipeline["model"], held, table.validation_y), count)


def _grow(config: Config, table: Table, model: Any, x: Any, rounds: Rounds, count: int) -> None:
    """Train `count` more rounds."""
    estimator = ESTIMATORS[config.estimator]
    assert estimator.rounds is not None
    if not estimator.partial:
        model.set_params(**{estimator.rounds: rounds.done + count}, warm_start=True).fit(x, table.y)
        return
    rng = np.random.default_rng(rounds.seed)
    classes = {"classes": np.arange(len(table.classes))} if table.classes else {}
    y = table.y
    if estimator.scaled and not table.classes:
        if not rounds.done:
            _begin(model, x, y)
        y, model = model.transformer_.transform(y.reshape(-1, 1)).ravel(), model.regressor_
    for _ in range(count):
        order = rng.permutation(len(x))
        model.partial_fit(x[order], y[order], **classes)


def _begin(model: Any, x: Any, y: NDArray[Any]) -> None:
    """Fit only the scale of the target; the regressor stays untrained."""
    from sklearn.base import clone
    from sklearn.dummy import DummyRegressor

    learner = model.regressor
    model.set_params(regressor=DummyRegressor()).fit(x, y).set_params(regressor=learner)
    model.regressor_ = clone(learner)


def _train_folds(config: Config, table: Table, scoring: str, rounds: Rounds, made: Path) -> None:
    """Train a model for each fold; after the last fold, the saved model is trained on all rows."""
    import pandas as pd
    from sklearn.model_selection import KFold, StratifiedKFold

    assert config.folds is not None
    x = pd.concat([table.x, table.validation_x], ignore_index=True)
    y = np.concatenate([table.y, table.validation_y])
    kind = StratifiedKFold if table.classes else KFold
    splitter = kind(config.folds, shuffle=True, random_state=config.split_seed)
    try:
        folds = list(splitter.split(x, y))
    except ValueError as error:  # more folds than rows, or than rows of a class
        raise DataError(f"{config.data}: {error}") from error
    for number, (rows, held) in enumerate(folds):
        if number < rounds.done:
            continue
        pipeline = _pipeline(config, table).fit(x.iloc[rows], y[rows])
        score = _score(config, scoring, pipeline, x.iloc[held], y[held])
        if number == config.folds - 1:
            pipeline.fit(x, y)
        write(pipeline, made)
        rounds.after((score + number * (rounds.value if number else 0.0)) / (number + 1))


def _pipeline(config: Config, table: Table) -> Pipeline:
    """The unfitted transformer of the columns and estimator. Raises `ConfigError`."""
    from sklearn.pipeline import Pipeline

    return Pipeline([("columns", as_numbers(table)), ("model", _estimator(config, table))])


def _estimator(config: Config, table: Table) -> Any:
    estimator = ESTIMATORS[config.estimator]
    name = estimator.classifier if table.classes else estimator.regressor
    model = getattr(import_module(f"sklearn.{estimator.module}"), name)()
    known = model.get_params()
    given = {name: value for name in estimator.parameters if (value := getattr(config, name)) is not None}
    if unknown := [parameter for parameter in given if parameter not in known]:
        raise ConfigError([f"{parameter}: unknown to {name}, for this target" for parameter in unknown])
    if "eta0" in given:
        given["learning_rate"] = "constant"
    ours = {"random_state": config.seed % 2**32, "early_stopping": False}
    if estimator.rounds is not None:
        ours[estimator.rounds] = config.rounds
    if estimator.module in ("ensemble", "neighbors"):  # it has no effect in the others
        ours["n_jobs"] = threads()
    model.set_params(**given, **{name: value for name, value in ours.items() if name in known})
    if not estimator.scaled or table.classes:
        return model
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.preprocessing import StandardScaler

    return TransformedTargetRegressor(model, transformer=StandardScaler())


def _score(config: Config, scoring: str, model: Any, x: Any, y: NDArray[Any]) -> float:
    from sklearn.metrics import get_scorer

    try:
        return float(get_scorer(scoring)(model, x, y))
    except AttributeError as error:  # a classifier without probabilities
        raise ConfigError(
            [f"scoring: {scoring} does not work for this {config.estimator}: {error}"]
        ) from error


def export(checkpoint: Path, folder: Path, *, merge: bool) -> list[Path]:
    """Write the model, including the transformer of its columns, for `skops.io.load`."""
    model_round(checkpoint)
    shutil.copyfile(checkpoint / FILE, folder / FILE)
    return [folder / FILE]
