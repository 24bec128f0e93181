"""What holds for every objective of another library: reports, resuming, exports that the library reads."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, log_loss, r2_score

from hpsearch.objectives import catalog
from hpsearch.objectives.base import ObjectiveError, TrialStopped
from hpsearch.objectives.info import ObjectiveInfo
from hpsearch.objectives.tables.table import Table

from ..hand_trial import HandTrial

Params = dict[str, Any]
# Each with what makes a training draw at random, so that a resumed one could differ.
ROUNDS: dict[str, tuple[str, Params]] = {
    "xgboost": ("xgboost", {"n_estimators": 20, "subsample": 0.6, "colsample_bytree": 0.5}),
    "lightgbm": ("lightgbm", {"n_estimators": 20, "subsample": 0.6, "subsample_freq": 1, "extra_trees": True}),
    "catboost": ("catboost", {"iterations": 20, "depth": 4, "rsm": 0.5, "learning_rate": 0.3}),
    "keras": ("keras", {"epochs": 20, "batch_size": 128, "dropout": 0.3, "batch_normalization": True, "learning_rate": 0.03}),
    "sgd": ("sklearn", {"estimator": "sgd", "max_iter": 20}),
    "mlp": ("sklearn", {"estimator": "mlp", "max_iter": 20, "hidden_layer_sizes": [8, 8]}),
    "random_forest": ("sklearn", {"estimator": "random_forest", "n_estimators": 20}),
    "extra_trees": ("sklearn", {"estimator": "extra_trees", "n_estimators": 20}),
    "gradient_boosting": ("sklearn", {"estimator": "gradient_boosting", "n_estimators": 20, "subsample": 0.5}),
    "hist_gradient_boosting": ("sklearn", {"estimator": "hist_gradient_boosting", "max_iter": 20, "max_features": 0.3}),
}  # fmt: skip
FOLDS: dict[str, tuple[str, Params]] = {
    "linear": ("sklearn", {"estimator": "linear"}),
    "svm": ("sklearn", {"estimator": "svm"}),
    "knn": ("sklearn", {"estimator": "knn"}),
    "forest_in_folds": ("sklearn", {"estimator": "random_forest", "n_estimators": 5, "cv": 5}),
}
# What a library has for early stopping, and for the root of the mean squared error.
STOPPING: dict[str, Params] = {
    "xgboost": {"n_estimators": 60, "learning_rate": 0.6, "early_stopping_rounds": 2},
    "lightgbm": {"n_estimators": 60, "learning_rate": 0.6, "early_stopping_rounds": 2},
    "catboost": {"iterations": 60, "learning_rate": 0.6, "early_stopping_rounds": 2},
    "keras": {"epochs": 60, "patience": 2},
}
SQUARES: dict[str, Params] = {
    "xgboost": {"eval_metric": "rmse"},
    "lightgbm": {"eval_metric": "rmse"},
    "catboost": {"eval_metric": "RMSE"},
    "keras": {"monitor": "val_root_mean_squared_error"},
}
# Those whose library is an extra that not every run of CI installs. A process has Keras on one backend.
ON_TENSORFLOW = os.environ.get("KERAS_BACKEND") == "tensorflow"
EXTRAS = ("catboost", "keras") if ON_TENSORFLOW else ("catboost",)
DATA = ("breast_cancer", "iris", "diabetes")  # two classes, three, a number


def marked(*names: str) -> list[Any]:
    """The names, those of extras marked."""
    return [pytest.param(name, marks=pytest.mark.extras if name in EXTRAS else ()) for name in names]


@pytest.fixture(params=marked(*ROUNDS))
def rounds(request: pytest.FixtureRequest) -> tuple[str, Params]:
    name, params = ROUNDS[request.param]
    skip_without(name)
    return name, params


def skip_without(name: str) -> None:
    """Skip a test whose objective lacks its library here."""
    if missing := catalog.BUILT_IN[name].missing:  # nothing is imported: Keras has a backend from then on
        pytest.skip(f"{', '.join(missing)} is not installed")


def ended(objective: Callable[[Any], float], trial: HandTrial) -> float | None:
    try:
        return objective(trial)
    except TrialStopped:
        return None


def short(params: Params) -> Params:
    """Parameters of `ROUNDS` with eight rounds and four reports: each report writes and reads the model."""
    return {name: 8 if value == 20 else value for name, value in params.items()} | {"eval_every": 2}


def test_a_resumed_trial_equals_an_uninterrupted_one(rounds: tuple[str, Params], tmp_path: Path) -> None:
    name, params = rounds[0], short(rounds[1])
    objective = catalog.load(name)
    whole, first = HandTrial(params, tmp_path / "whole"), HandTrial(params, tmp_path / "run", stop_at=4)
    value = ended(objective, whole)
    assert ended(objective, first) is None
    second = HandTrial(params, tmp_path / "run")
    assert ended(objective, second) == value
    assert first.reports + second.reports == whole.reports


@pytest.mark.parametrize("kind", FOLDS)
@pytest.mark.parametrize("data", ["iris", "diabetes"])
def test_each_fold_is_a_report_of_the_mean_so_far(kind: str, data: str, tmp_path: Path) -> None:
    name, params = FOLDS[kind]
    objective = catalog.load(name)
    whole = HandTrial(params | {"data": data}, tmp_path / "whole")
    value = ended(objective, whole)
    assert [step for step, _ in whole.reports] == [1, 2, 3, 4, 5] and value == whole.reports[-1][1]
    first = HandTrial(params | {"data": data}, tmp_path / "run", stop_at=3)
    ended(objective, first)
    second = HandTrial(params | {"data": data}, tmp_path / "run")
    assert ended(objective, second) == value
    assert first.reports + second.reports == whole.reports


def test_the_seed_is_the_trials_unless_a_parameter_fixes_one(
    rounds: tuple[str, Params], tmp_path: Path
) -> None:
    name, params = rounds[0], short(rounds[1])
    objective = catalog.load(name)
    data = {"data": "diabetes"}
    reports = []
    for number, (seed, fixed) in enumerate([(7, {}), (8, {}), (8, {"seed": 7})]):
        trial = HandTrial(params | data | fixed, tmp_path / f"{number}", seed=seed)
        objective(trial)
        reports.append(trial.reports)
    assert reports[0] == reports[2] != reports[1]


def predicted(name: str, file: Path, table: Table) -> np.ndarray[Any, Any]:
    """What a model that was exported says of the validation rows: read by its own library, without us."""
    if name == "xgboost":
        import xgboost

        return xgboost.Booster(model_file=file).predict(
            xgboost.DMatrix(table.validation_x, enable_categorical=True)
        )
    if name == "lightgbm":
        import lightgbm

        return np.asarray(lightgbm.Booster(model_file=file).predict(table.validation_x))
    if name == "catboost":
        import catboost

        kind = "Probability" if table.classes else "RawFormulaVal"
        model = catboost.CatBoost().load_model(str(file))
        return np.asarray(model.predict(table.validation_x, prediction_type=kind))
    if name == "keras":
        return said_by_keras(file, table.validation_x)
    return np.asarray(fitted(file).predict(table.validation_x))


def said_by_keras(file: Path, rows: pd.DataFrame) -> np.ndarray[Any, Any]:
    import keras

    numbers = fitted(file.with_name("columns.skops")).transform(rows)
    return np.asarray(keras.models.load_model(file).predict(numbers, verbose=0)).squeeze()


def fitted(file: Path) -> Any:
    """What scikit-learn has learned, as a user reads it."""
    import skops.io

    return skops.io.load(file, trusted=skops.io.get_untrusted_types(file=file))


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("patience", [False, True])
def test_it_reports_ten_times_and_the_exported_model_has_the_reported_value(
    rounds: tuple[str, Params], data: str, patience: bool, tmp_path: Path
) -> None:
    name, params = rounds
    if name == "sklearn" and patience:
        pytest.skip("scikit-learn has no early stopping here")
    params = params | (STOPPING[name] if patience else {})
    params |= SQUARES.get(name, {}) if data == "diabetes" else {}
    trial = HandTrial(params | {"data": data}, tmp_path / "run")
    value = catalog.load(name)(trial)
    if patience:
        assert trial.reports[-1][0] < 60 and value <= min(value for _, value in trial.reports)
    else:
        assert [step for step, _ in trial.reports] == list(range(2, 21, 2))
        assert value == trial.reports[-1][1] and type(value) is float
        assert len({value for _, value in trial.reports}) > 1  # it learns
    file, *_ = catalog.export(name, tmp_path / "run", tmp_path, merge=False)
    config: Any = ObjectiveInfo(name).parameters
    table: Table = config.from_params({"data": data}).table()
    found, y = predicted(name, file, table), table.validation_y
    if name == "sklearn":
        expected = (accuracy_score if table.classes else r2_score)(y, found)
    else:
        expected = log_loss(y, found) if table.classes else float(np.sqrt(np.mean((y - found) ** 2)))
    assert value == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", marked("xgboost", "lightgbm", "catboost", "keras"))
def test_categories_and_gaps_are_the_librarys_own_business(name: str, tmp_path: Path) -> None:
    skip_without(name)
    rng = np.random.default_rng(0)
    lines = [
        f"{'' if rng.random() < 0.1 else round(rng.random(), 3)},{rng.choice(['red', 'blue', 'green'])},"
        for _ in range(300)
    ]
    path = tmp_path / "colours.csv"
    path.write_text("\n".join(["x,colour,nothing,y", *(f"{line},{int('red' in line)}" for line in lines)]))
    mine = {"learning_rate": 0.03} if name == "keras" else {}
    for objective, more in ((name, mine), ("sklearn", {"estimator": "linear"})):
        trial = HandTrial({"data": str(path)} | more, tmp_path / objective)
        value = catalog.load(objective)(trial)
        assert value == 1.0 if objective == "sklearn" else value < 0.05  # the colour tells it
    if name == "keras":  # the rows as a user has them
        file, *_ = catalog.export(name, tmp_path / name, tmp_path, merge=False)
        rows = pd.read_csv(path)
        assert ((said_by_keras(file, rows) > 0.5) == rows["y"]).all()


@pytest.mark.parametrize("estimator", ["sgd", "mlp", "svm"])
def test_a_target_of_any_unit_is_learned_and_predicted(estimator: str, tmp_path: Path) -> None:
    """Its steps and penalties would be as good as nothing beside a target of hundreds of thousands."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    y = 300_000 + 50_000 * (x @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=300))
    path = tmp_path / "houses.csv"
    np.savetxt(path, np.column_stack([x, y]), delimiter=",", header="a,b,c,price", comments="")
    params, objective = {"data": str(path), "estimator": estimator}, catalog.load("sklearn")
    value = objective(HandTrial(params, tmp_path / "whole"))
    assert (
        ended(objective, HandTrial(params, tmp_path / "run", stop_at=3 if estimator == "svm" else 30)) is None
    )
    assert objective(HandTrial(params, tmp_path / "run")) == value > 0.9
    file, *_ = catalog.export("sklearn", tmp_path / "run", tmp_path, merge=False)
    config: Any = ObjectiveInfo("sklearn").parameters
    table: Table = config.from_params({"data": str(path)}).table()
    assert r2_score(table.validation_y, predicted("sklearn", file, table)) > 0.9


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("xgboost", {"eval_metric": "auc", "data": "diabetes"}, "eval_metric: found 'auc', but the target is a number"),
        ("xgboost", {"scale_pos_weight": 2.0, "data": "iris"}, "only for a target with two classes"),
        ("xgboost", {"max_depht": 2}, 'did you mean "max_depth"'),
        ("lightgbm", {"num_leaves": 1}, r"num_leaves: found 1, needs a whole number in \[2, 131072\]"),
        ("lightgbm", {"eval_metric": "logloss"}, "found 'logloss', allowed: binary_logloss"),
        ("sklearn", {"estimator": "sgd", "scoring": "neg_log_loss"}, "neg_log_loss does not work for this sgd"),
        ("sklearn", {"class_weight": "balanced", "data": "diabetes"}, "unknown to RandomForestRegressor"),
        ("sklearn", {"estimator": "knn", "cv": 100, "data": "iris"}, "n_splits=100"),
        ("keras", {"monitor": "val_auc", "data": "iris"}, "monitor: found 'val_auc', but the target has 3 classes"),
        ("keras", {"optimizer": "adamv"}, "optimizer: found 'adamv', allowed: adam"),
        ("keras", {"class_weight": "balanced", "data": "diabetes"}, "class_weight: only for a target with classes"),
        ("keras", {"backend": "torch" if ON_TENSORFLOW else "tensorflow"}, "backend: (found '.*', but this process already uses Keras on|tensorflow is not installed: pip install 'hpsearch)"),
        ("sklearn", {"hidden_layer_sizes": [8, 0], "estimator": "mlp"}, "needs a list of whole numbers"),
    ],
)  # fmt: skip
def test_invalid_parameters_are_refused(name: str, params: Params, message: str, tmp_path: Path) -> None:
    skip_without(name)
    trial = HandTrial(params, tmp_path / "run")
    with pytest.raises(ObjectiveError, match=message):
        catalog.load(name)(trial)
    assert not trial.reports


@pytest.mark.parametrize(("start", "unit"), [(1e9, 1.0), (0.0, 1e-30), (0.0, 1e25)])
@pytest.mark.parametrize("name", marked("keras"))
def test_targets_too_close_together_for_a_network_are_refused(
    name: str, start: float, unit: float, tmp_path: Path
) -> None:
    """Whatever it predicts, its error would be 0, or infinite."""
    x = np.random.default_rng(0).normal(size=60)
    path = tmp_path / "rows.csv"
    np.savetxt(
        path, np.column_stack([x, start + unit * x]), delimiter=",", header="x,y", comments="", fmt="%.17g"
    )
    trial = HandTrial({"data": str(path), "epochs": 1}, tmp_path / "run")
    with pytest.raises(ObjectiveError, match=r"rows.csv: the numbers to predict are too close together"):
        catalog.load(name)(trial)
    assert not trial.reports


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "sgd", "momentum": 0.9, "learning_rate_schedule": "cosine", "class_weight": "balanced"},
        {"optimizer": "adamw", "weight_decay": 0.01, "clipnorm": 1.0, "l1": 1e-4, "l2": 1e-3, "patience": 3},
    ],
)
@pytest.mark.parametrize("name", marked("keras"))
def test_the_optimizer_state_is_resumed(name: str, options: Params, tmp_path: Path) -> None:
    skip_without(name)
    objective, params = catalog.load(name), {"epochs": 4, "eval_every": 2, "batch_size": 128}
    plain, whole = HandTrial(params, tmp_path / "plain"), HandTrial(params | options, tmp_path / "whole")
    value = objective(whole)
    assert objective(plain) != value, "the options do something"
    assert ended(objective, HandTrial(params | options, tmp_path / "run", stop_at=2)) is None
    assert objective(HandTrial(params | options, tmp_path / "run")) == value


def test_a_model_of_foreign_types_is_not_read(tmp_path: Path) -> None:
    import skops.io

    from hpsearch.objectives.tables.columns import read
    from hpsearch.trainer.errors import CheckpointError

    skops.io.dump(HandTrial({}, tmp_path / "any"), tmp_path / "model.skops")
    with pytest.raises(CheckpointError, match="HandTrial"):
        read(tmp_path / "model.skops")


@pytest.mark.parametrize(("name", "theirs"), [("xgboost", "XGBClassifier"), ("lightgbm", "LGBMClassifier")])
def test_defaults_are_those_of_the_library(name: str, theirs: str, tmp_path: Path) -> None:
    """A space trains what the library itself would: with and without our defaults it is the same."""
    config: Any = ObjectiveInfo(name).parameters
    defaults = getattr(import_module(name), theirs)().get_params()
    told = {
        parameter: value
        for parameter, value in config().library.items()
        if defaults.get(parameter) is not None
    }
    assert told == {parameter: defaults[parameter] for parameter in told}
    trial = HandTrial({}, tmp_path / "run")
    value = catalog.load(name)(trial)
    table: Table = config.from_params({}).table()
    model = getattr(import_module(name), theirs)(**({"verbosity": -1} if name == "lightgbm" else {}))
    model.fit(table.x, table.y)
    assert value == pytest.approx(
        log_loss(table.validation_y, model.predict_proba(table.validation_x)), rel=1e-3
    )
