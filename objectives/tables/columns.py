"""Converts the columns of a table to numbers, and reads and writes fitted scikit-learn objects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...trainer.errors import CheckpointError
from .table import Table

if TYPE_CHECKING:
    from sklearn.compose import ColumnTransformer


def as_numbers(table: Table) -> ColumnTransformer:
    """An unfitted transformer: scales numbers, fills gaps with the median, one-hot encodes categories."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = [name for name in table.x.columns if name not in table.categorical]
    median = SimpleImputer(strategy="median", keep_empty_features=True)  # 0 for an empty column
    return ColumnTransformer(
        [
            ("numbers", make_pipeline(median, StandardScaler()), numbers),
            ("categories", OneHotEncoder(handle_unknown="ignore", sparse_output=False), table.categorical),
        ]
    )


def write(fitted: Any, file: Path) -> None:
    """Write a fitted scikit-learn object."""
    import skops.io

    skops.io.dump(fitted, file)


def read(file: Path) -> Any:
    """Read a fitted object. Raises `CheckpointError` if a type is not of scikit-learn or numpy."""
    import skops.io

    types = skops.io.get_untrusted_types(file=file)
    if others := [name for name in types if not name.startswith(("sklearn.", "numpy."))]:
        raise CheckpointError(f"{file}: has types other than those of scikit-learn: {', '.join(others)}")
    return skops.io.load(file, trusted=types)
