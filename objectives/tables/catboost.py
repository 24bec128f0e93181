"""The objective `catboost`: trees boosted by CatBoost, and the value of its metric on the validation rows.

The parameters have the names of `catboost.CatBoostClassifier`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ...trainer.config.rules import real, text, whole
from ..base import Trial
from .boosting import BoostingParameters, boost, threads
from .rounds import model_round
from .table import Metrics

if TYPE_CHECKING:
    import pandas as pd

FILE = "model.cbm"


@dataclass(frozen=True, kw_only=True)
class Config(BoostingParameters):
    """The parameters of CatBoost that are usually tuned."""

    objective: ClassVar[str] = "catboost"
    length: ClassVar[str] = "iterations"
    metrics: ClassVar[Metrics] = Metrics(
        two=("Logloss", "AUC", "Accuracy", "F1"),
        more=("MultiClass", "Accuracy"),
        numbers=("RMSE", "MAE", "MAPE", "R2"),
        higher=("AUC", "Accuracy", "F1", "R2"),
    )

    iterations: int = whole(1000, "[1, inf)", "trees")
    learning_rate: float = real(0.03, "(0, 1]", "factor of each tree's values")
    depth: int = whole(6, "[1, 16]", "of a tree")
    l2_leaf_reg: float = real(3.0, "[0, inf)", "L2 on the leaves")
    random_strength: float = real(1.0, "[0, inf)", "noise on the scores of splits")
    bagging_temperature: float = real(1.0, "[0, inf)", "how far the weights of rows differ from tree to tree")
    rsm: float = real(1.0, "(0, 1]", "share of the columns for each split")
    min_data_in_leaf: int = whole(1, "[1, inf)", "fewest rows of a leaf; not for SymmetricTree")
    grow_policy: str = text(
        "SymmetricTree", ("SymmetricTree", "Depthwise", "Lossguide"), "the shape of trees"
    )
    border_count: int = whole(254, "[1, 65535]", "bins of a column")
    one_hot_max_size: int = whole(2, "[2, 255]", "categories of at most so many values are one-hot encoded")
    scale_pos_weight: float = real(1.0, "(0, inf)", "weight of the second of two classes")


def train(trial: Trial) -> float:
    """Train a trial. Returns the metric after the last tree or the best one (`early_stopping_rounds`)."""
    import catboost

    config = Config.of(trial)
    table = config.table()
    metric = config.metric(table)
    params = config.library_on(table) | {
        "loss_function": table.one_of("Logloss", "MultiClass", "RMSE"),
        "eval_metric": metric,
        "bootstrap_type": "Bayesian",
        "thread_count": threads(),
        "use_best_model": False,
        "allow_writing_files": False,
        "verbose": False,
    }
    rows, held = (
        catboost.Pool(_named(x, table.categorical), y, cat_features=table.categorical)
        for x, y in ((table.x, table.y), (table.validation_x, table.validation_y))
    )

    def part(model: Path | None, count: int, seed: int, to: Path) -> list[float]:
        before = None if model is None else catboost.CatBoost().load_model(str(model))
        made = catboost.CatBoost(params | {"iterations": count, "random_seed": seed})
        made.fit(rows, eval_set=held, init_model=before)
        made.save_model(str(to))
        values: list[float] = made.get_evals_result()["validation"][metric]
        return values

    return boost(trial, config, part, file=FILE, metric=metric)


def _named(frame: pd.DataFrame, categorical: list[str]) -> pd.DataFrame:
    """The frame with all categories as text, including gaps: CatBoost accepts nothing else."""
    named: dict[str, Any] = {name: frame[name].astype(object).fillna("").astype(str) for name in categorical}
    return frame.assign(**named)


def export(checkpoint: Path, folder: Path, *, merge: bool) -> list[Path]:
    """Write the model, for `catboost.CatBoost().load_model(...)`."""
    import catboost

    model = catboost.CatBoost().load_model(str(checkpoint / FILE))
    if (trees := model_round(checkpoint)) < model.tree_count_:
        model.shrink(ntree_end=trees)
    model.save_model(str(folder / FILE))
    return [folder / FILE]
