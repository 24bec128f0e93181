"""Tables to learn from: a file with a row for each example, or one of the data sets of scikit-learn.

| column | becomes |
|---|---|
| numbers, booleans | numbers |
| dates (in Parquet) | seconds |
| text | categories |
| the target of a classification | the number of its class, from 0, in the order of the values |

Missing values stay missing. The validation rows are the same for every trial of a search: those of
`validation_file`, or a share of each class drawn by `split_seed`.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...trainer.config.rules import Parameters, did_you_mean, optional, real, text, whole
from ...trainer.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd

BUNDLED = ("iris", "wine", "breast_cancer", "digits", "diabetes")  # of scikit-learn
TASKS = ("auto", "classification", "regression")
MAX_NUMERIC_CLASSES = 20  # a target with at most so many different whole numbers has classes
SEPARATORS = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True, kw_only=True)
class TableParameters(Parameters):
    """The common parameters of all objectives on tables."""

    files: ClassVar[tuple[str, ...]] = ("data", "validation_file")
    bundled_data: ClassVar[tuple[str, ...]] = BUNDLED

    data: str = text("breast_cancer", (), f"a .csv, .tsv or .parquet file, or one of {', '.join(BUNDLED)}")
    target: str | None = optional(str, "", "the column to predict (default: the last one)")
    task: str = text(
        "auto", TASKS, f"auto: classes if the target is text or at most {MAX_NUMERIC_CLASSES} whole numbers"
    )
    validation_file: str | None = optional(str, "", "rows to validate on, with the same columns")
    validation_split: float = real(0.2, "(0, 1)", "share to validate on, if there is no validation_file")
    split_seed: int = whole(0, "[0, 4294967295]", "of the choice of validation rows: the same for all trials")
    seed: int = whole(0, "[0, 9223372036854775807]", "of the training")

    @classmethod
    def _contradictions(cls, values: Any) -> list[str]:
        if values["validation_file"] is not None and values["data"] in BUNDLED:
            return [f"validation_file: found one, but data {values['data']!r} is not a file"]
        return []

    def table(self) -> Table:
        """Load the table of these parameters. Raises `DataError`."""
        return _table(
            self.data,
            self.target,
            self.task,
            self.validation_file,
            self.validation_split,
            self.split_seed,
            tuple(_stamp(file) for file in (self.data, self.validation_file)),
        )


@dataclass(frozen=True)
class Metrics:
    """The metrics of a library, by its own names, for each kind of target; the first is the default."""

    two: tuple[str, ...]  # classes
    more: tuple[str, ...]
    numbers: tuple[str, ...]
    higher: tuple[str, ...] = ()  # those of which a higher value is better

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(dict.fromkeys((*self.two, *self.more, *self.numbers)))

    @property
    def help(self) -> str:
        """A line of help for the parameter that names one."""
        defaults = dict.fromkeys((self.two[0], self.more[0], self.numbers[0]))
        return f"the metric: {', '.join(self.names)} (default by the target: {', '.join(defaults)})"

    def of(self, table: Table, wanted: str | None, parameter: str) -> str:
        """The wanted metric, or the default. Raises `ConfigError` if it does not fit the target."""
        known: tuple[str, ...] = table.one_of(self.two, self.more, self.numbers)
        if wanted is not None and wanted not in known:
            target = table.one_of("has two classes", f"has {len(table.classes)} classes", "is a number")
            found = f"found {wanted!r}, but the target {target}"
            raise ConfigError([f"{parameter}: {found}; allowed: {', '.join(known)}"])
        return wanted or known[0]

    def goal(self, wanted: object) -> str | None:
        """Whether to minimize or maximize a metric; None if unknown, or if that depends on the table."""
        names = (wanted,) if wanted is not None else (self.two[0], self.more[0], self.numbers[0])
        goals = {"maximize" if name in self.higher else "minimize" for name in names if name in self.names}
        return goals.pop() if len(goals) == 1 else None


@dataclass(frozen=True)
class Table:
    """Training and validation rows: numbers and categories [rows, columns], and targets [rows]."""

    x: pd.DataFrame
    y: NDArray[Any]
    validation_x: pd.DataFrame
    validation_y: NDArray[Any]
    classes: tuple[str, ...]  # empty for a regression

    @property
    def categorical(self) -> list[str]:
        """The columns with categories."""
        return [str(name) for name in self.x.columns if self.x[name].dtype == "category"]

    def one_of(self, two: Any, more: Any, number: Any) -> Any:
        """The argument for the kind of target: two classes, more classes, or a number."""
        if not self.classes:
            return number
        return two if len(self.classes) == 2 else more


def _stamp(file: str | None) -> tuple[int, int] | None:
    """The state of the file on the disk; None if there is none."""
    try:
        status = os.stat(file or "")
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


@functools.lru_cache(maxsize=1)  # the trials of a worker use the same table
def _table(
    data: str,
    target: str | None,
    task: str,
    validation_file: str | None,
    share: float,
    seed: int,
    stamps: tuple[tuple[int, int] | None, ...],
) -> Table:
    import pandas as pd

    frame = _bundled(data) if data in BUNDLED else _read(data)
    name = _target_of(frame, target, data)
    held = None
    if validation_file is not None:
        held = _read(validation_file)
        if missing := [str(column) for column in frame.columns if column not in held.columns]:
            raise DataError(f"{validation_file}: has no columns {', '.join(missing)}, but {data} has them")
    first = len(frame)
    if held is not None:
        frame = pd.concat([frame, held[frame.columns]], ignore_index=True)
    _check_target(frame[name], first, data, validation_file)
    classes, y = _targets(frame[name], task, data)
    x = _features(frame.drop(columns=[name]), data)
    rows = np.arange(len(frame))
    validation = rows >= first if held is not None else _held_rows(y, share, seed, by_class=bool(classes))
    if classes:
        unknown = sorted(set(y[validation]) - set(y[~validation]))
        if unknown:
            new = classes[unknown[0]]
            raise DataError(f"{validation_file}: has rows of the class {new!r}, but {data} has none")
    if not validation.any() or validation.all():
        raise DataError(f"{data}: {len(frame)} rows are too few to train and to validate on")
    return Table(x[~validation], y[~validation], x[validation], y[validation], classes)


def _bundled(name: str) -> pd.DataFrame:
    import sklearn.datasets

    frame: pd.DataFrame = getattr(sklearn.datasets, f"load_{name}")(as_frame=True).frame
    return frame


def _read(file: str) -> pd.DataFrame:
    import pandas as pd

    path = Path(file).expanduser()
    known = [*SEPARATORS, ".parquet"]
    if path.suffix not in known:
        near = did_you_mean(file, BUNDLED)
        raise DataError(
            f"{file}: not a file of {', '.join(known)}, nor a data set of scikit-learn "
            f"({', '.join(BUNDLED)}){near}"
        )
    try:
        if path.suffix == ".parquet":
            frame = pd.read_parquet(path)
        else:
            frame = pd.read_csv(path, sep=SEPARATORS[path.suffix])
    except FileNotFoundError:
        raise DataError(f"{file}: there is no such file (in {Path.cwd()})") from None
    except ImportError:
        raise DataError(f"{file}: Parquet needs pyarrow: pip install pyarrow") from None
    except pd.errors.EmptyDataError:
        raise DataError(f"{file}: is empty") from None
    except (OSError, ValueError) as error:  # a ParserError names the line
        reason = str(error).strip().removeprefix("Error tokenizing data. C error: ")
        raise DataError(f"{file}: {reason}") from error
    if len(frame) == 0 or len(frame.columns) < 2:
        raise DataError(
            f"{file}: found {len(frame)} rows of {len(frame.columns)} columns; "
            "needs a header, rows after it, and a column besides the target"
        )
    return frame


def _target_of(frame: pd.DataFrame, target: str | None, data: str) -> str:
    names = [str(name) for name in frame.columns]
    if target is None:
        return names[-1]
    if target not in names:
        near = did_you_mean(target, names)
        raise ConfigError([f"target: {data} has no column {target!r}{near}; it has {', '.join(names)}"])
    return target


def _check_target(target: pd.Series[Any], first: int, data: str, validation_file: str | None) -> None:
    """Raise `DataError` if a row has no target, with its line; line 1 is the header."""
    if target.isna().any():
        row = int(np.flatnonzero(target.isna())[0])
        file, line = (data, row + 2) if row < first else (validation_file, row - first + 2)
        more = int(target.isna().sum()) - 1
        others = f", nor in {more} more rows" if more else ""
        raise DataError(f"{file}:{line}: the target {target.name!r} has no value here{others}")


def _targets(target: pd.Series[Any], task: str, data: str) -> tuple[tuple[str, ...], NDArray[Any]]:
    """The names of the classes (empty for a regression), and a number for each row."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    numeric = is_numeric_dtype(target) and not is_bool_dtype(target)
    if task == "auto":
        whole_numbers = numeric and bool((target % 1 == 0).all())
        few = not numeric or (whole_numbers and target.nunique() <= MAX_NUMERIC_CLASSES)
        task = "classification" if few else "regression"
    if task == "regression":
        if not numeric:
            raise ConfigError(
                [f"task: found regression, but the target {target.name!r} of {data} is not a number"]
            )
        values = target.to_numpy(np.float64)
        if not np.isfinite(values).all():
            raise DataError(f"{data}: the target {target.name!r} has infinite values")
        return (), values
    names, codes = np.unique(target.to_numpy(), return_inverse=True)
    if len(names) < 2:
        raise DataError(f"{data}: the target {target.name!r} has only one value, {names.tolist()[0]!r}")
    return tuple(str(name) for name in names), codes.astype(np.int64)


def _features(frame: pd.DataFrame, data: str) -> pd.DataFrame:
    from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype

    features = frame.copy()
    features.columns = [str(name) for name in frame.columns]  # the libraries require text
    for name in features.columns:
        column = features[name]
        if is_bool_dtype(column):
            features[name] = column.astype("int8")
        elif is_numeric_dtype(column):
            if np.isinf(column.to_numpy(np.float64, na_value=np.nan)).any():
                raise DataError(f"{data}: the column {name!r} has infinite values; leave them empty")
        elif is_datetime64_any_dtype(column):
            features[name] = column.astype("int64") / 1e9
        else:
            try:
                features[name] = column.astype("category")
            except TypeError:  # lists, for example
                raise DataError(f"{data}: the column {name!r} has neither numbers nor text") from None
    return features


def _held_rows(y: NDArray[Any], share: float, seed: int, *, by_class: bool) -> NDArray[np.bool_]:
    """Choose validation rows: a share of the rows, or of each class."""
    rng = np.random.default_rng(seed)
    chosen = np.zeros(len(y), bool)
    for group in [np.flatnonzero(y == each) for each in np.unique(y)] if by_class else [np.arange(len(y))]:
        count = min(round(len(group) * share), len(group) - 1)
        chosen[rng.permutation(group)[:count]] = True
    return chosen
