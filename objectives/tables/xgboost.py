"""The objective `xgboost`: trees boosted by XGBoost, and the value of its metric on the validation rows.

The parameters have the names of `xgboost.XGBClassifier`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ...trainer.config.rules import real, text, whole
from ..base import Trial
from .boosting import BoostingParameters, boost, threads
from .rounds import model_round
from .table import Metrics

FILE = "model.ubj"


@dataclass(frozen=True, kw_only=True)
class Config(BoostingParameters):
    """The parameters of XGBoost that are usually tuned."""

    objective: ClassVar[str] = "xgboost"
    length: ClassVar[str] = "n_estimators"
    metrics: ClassVar[Metrics] = Metrics(
        two=("logloss", "error", "auc", "aucpr"),
        more=("mlogloss", "merror", "auc", "aucpr"),
        numbers=("rmse", "mae", "rmsle", "mape"),
        higher=("auc", "aucpr"),
    )

    n_estimators: int = whole(100, "[1, inf)", "trees; with more than two classes, trees of each class")
    learning_rate: float = real(0.3, "(0, inf)", "factor of each tree's values")
    max_depth: int = whole(6, "[0, inf)", "of a tree; 0: no limit")
    max_leaves: int = whole(0, "[0, inf)", "of a tree; 0: no limit")
    grow_policy: str = text("depthwise", ("depthwise", "lossguide"), "which leaf is split next")
    min_child_weight: float = real(1.0, "[0, inf)", "least sum of second derivatives in a leaf")
    gamma: float = real(0.0, "[0, inf)", "least gain of a split")
    max_delta_step: float = real(0.0, "[0, inf)", "largest value of a leaf; 0: no limit")
    subsample: float = real(1.0, "(0, 1]", "share of the rows for each tree")
    colsample_bytree: float = real(1.0, "(0, 1]", "share of the columns for each tree")
    colsample_bylevel: float = real(1.0, "(0, 1]", "share of those for each level")
    colsample_bynode: float = real(1.0, "(0, 1]", "share of those for each split")
    reg_alpha: float = real(0.0, "[0, inf)", "L1 on the leaves")
    reg_lambda: float = real(1.0, "[0, inf)", "L2 on the leaves")
    scale_pos_weight: float = real(1.0, "(0, inf)", "weight of the second of two classes")
    max_bin: int = whole(256, "[2, inf)", "bins of a column")


def train(trial: Trial) -> float:
    """Train a trial. Returns the metric after the last tree or the best one (`early_stopping_rounds`)."""
    import xgboost

    config = Config.of(trial)
    table = config.table()
    metric = config.metric(table)
    params = config.library_on(table) | {
        "objective": table.one_of("binary:logistic", "multi:softprob", "reg:squarederror"),
        "eval_metric": metric,
        "nthread": threads(),
    }
    if len(table.classes) > 2:
        params["num_class"] = len(table.classes)
    rows, held = (
        xgboost.DMatrix(x, y, enable_categorical=True, nthread=threads())
        for x, y in ((table.x, table.y), (table.validation_x, table.validation_y))
    )

    def part(model: Path | None, count: int, seed: int, to: Path) -> list[float]:
        values: dict[str, dict[str, list[float]]] = {}
        booster = xgboost.train(
            params | {"seed": seed},
            rows,
            count,
            evals=[(held, "validation")],
            evals_result=values,
            xgb_model=model,
            verbose_eval=False,
        )
        booster.save_model(to)
        return values["validation"][metric]

    return boost(trial, config, part, file=FILE, metric=metric)


def export(checkpoint: Path, folder: Path, *, merge: bool) -> list[Path]:
    """Write the model, for `xgboost.Booster(model_file=...)`."""
    import xgboost

    booster = xgboost.Booster(model_file=checkpoint / FILE)
    booster[: model_round(checkpoint)].save_model(folder / FILE)
    return [folder / FILE]
