"""The columns of a table as numbers alone, for models that take nothing else; files of what was fitted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...trainer.errors import CheckpointError
from .table import Table

if TYPE_CHECKING:
    from sklearn.compose import ColumnTransformer


def as_numbers(table: Table) -> ColumnTransformer:
    """Numbers scaled, their gaps filled with the median, a column for each category; to be fitted."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = [name for name in table.x.columns if name not in table.categorical]
    median = SimpleImputer(strategy="median", keep_empty_features=True)  # where all are gaps: 0
    return ColumnTransformer(
        [
            ("numbers", make_pipeline(median, StandardScaler()), numbers),
            ("categories", OneHotEncoder(handle_unknown="ignore", sparse_output=False), table.categorical),
        ]
    )


def write(fitted: Any, file: Path) -> None:
    """Write what scikit-learn has fitted."""
    import skops.io

    skops.io.dump(fitted, file)


def read(file: Path) -> Any:
    """What was written, of scikit-learn's and numpy's own types alone. Raises `CheckpointError`."""
    import skops.io

    types = skops.io.get_untrusted_types(file=file)
    if others := [name for name in types if not name.startswith(("sklearn.", "numpy."))]:
        raise CheckpointError(f"{file}: has types that no model of scikit-learn has: {', '.join(others)}")
    return skops.io.load(file, trusted=types)
