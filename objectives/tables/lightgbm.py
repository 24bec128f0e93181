"""The objective `lightgbm`: trees boosted by LightGBM, and the value of its metric on the validation rows.

The parameters have the names of `lightgbm.LGBMClassifier`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ...trainer.config.rules import Need, real, switch, whole
from ..base import Trial
from .boosting import BoostingParameters, boost, threads
from .rounds import model_round
from .table import Metrics

FILE = "model.txt"


@dataclass(frozen=True, kw_only=True)
class Config(BoostingParameters):
    """The parameters of LightGBM that are usually tuned."""

    objective: ClassVar[str] = "lightgbm"
    length: ClassVar[str] = "n_estimators"
    needs: ClassVar[Mapping[str, Need]] = {
        "subsample": Need(
            "subsample_freq is above 0", "subsample_freq > 0", lambda given: given["subsample_freq"] > 0
        )
    }
    metrics: ClassVar[Metrics] = Metrics(
        two=("binary_logloss", "binary_error", "auc", "average_precision"),
        more=("multi_logloss", "multi_error", "auc_mu"),
        numbers=("l2", "rmse", "l1", "mape"),
        higher=("auc", "average_precision", "auc_mu"),
    )

    n_estimators: int = whole(100, "[1, inf)", "trees; with more than two classes, trees of each class")
    learning_rate: float = real(0.1, "(0, inf)", "factor of each tree's values")
    num_leaves: int = whole(31, "[2, 131072]", "of a tree")
    max_depth: int = whole(-1, "[-1, inf)", "of a tree; -1: no limit")
    min_child_samples: int = whole(20, "[0, inf)", "fewest rows of a leaf")
    min_child_weight: float = real(1e-3, "[0, inf)", "least sum of second derivatives in a leaf")
    min_split_gain: float = real(0.0, "[0, inf)", "least gain of a split")
    subsample: float = real(1.0, "(0, 1]", "share of the rows, drawn again every subsample_freq trees")
    subsample_freq: int = whole(0, "[0, inf)", "0: all rows for all trees")
    colsample_bytree: float = real(1.0, "(0, 1]", "share of the columns for each tree")
    reg_alpha: float = real(0.0, "[0, inf)", "L1 on the leaves")
    reg_lambda: float = real(0.0, "[0, inf)", "L2 on the leaves")
    path_smooth: float = real(0.0, "[0, inf)", "shrinks small leaves towards their parent")
    extra_trees: bool = switch("try one random threshold of each column")
    cat_smooth: float = real(10.0, "[0, inf)", "shrinks rare categories towards the mean")
    scale_pos_weight: float = real(1.0, "(0, inf)", "weight of the second of two classes")
    max_bin: int = whole(255, "[2, inf)", "bins of a column")


def train(trial: Trial) -> float:
    """Train a trial. Returns the metric after the last tree or the best one (`early_stopping_rounds`)."""
    import lightgbm

    config = Config.of(trial)
    table = config.table()
    metric = config.metric(table)
    params = config.library_on(table) | {
        "objective": table.one_of("binary", "multiclass", "regression"),
        "metric": metric,
        "num_threads": threads(),
        "deterministic": True,
        "force_row_wise": True,  # else LightGBM chooses by speed, and results differ from run to run
        "verbosity": -1,
    }
    if len(table.classes) > 2:
        params["num_class"] = len(table.classes)
    rows = lightgbm.Dataset(table.x, table.y, params=params, free_raw_data=False)
    held = rows.create_valid(table.validation_x, table.validation_y)

    booster: lightgbm.Booster | None = None  # that of the previous part, so that its file need not be read

    def part(model: Path | None, count: int, seed: int, to: Path) -> list[float]:
        nonlocal booster
        values: dict[str, dict[str, list[float]]] = {}
        booster = lightgbm.train(
            params | {"seed": seed},
            rows,
            count,
            valid_sets=[held],
            valid_names=["validation"],
            init_model=booster or model,
            keep_training_booster=True,  # else LightGBM serializes it once more
            callbacks=[lightgbm.record_evaluation(values)],
        )
        booster.save_model(to)
        return values["validation"][metric]

    return boost(trial, config, part, file=FILE, metric=metric)


def export(checkpoint: Path, folder: Path, *, merge: bool) -> list[Path]:
    """Write the model, for `lightgbm.Booster(model_file=...)`."""
    import lightgbm

    booster = lightgbm.Booster(model_file=checkpoint / FILE)
    booster.save_model(folder / FILE, num_iteration=model_round(checkpoint))
    return [folder / FILE]
