"""Tables to learn from: a file with a row for each example, or one of those that scikit-learn carries.

| column | what it becomes |
|---|---|
| numbers, truth values | as they are |
| dates (of Parquet) | seconds |
| text | categories |
| the target of a classification | its class, from 0, in the order of the values |

Missing values stay missing. The rows to validate on are the same for every trial of a search: those of
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
FEW = 20  # values of a column of whole numbers that are taken for classes
SEPARATORS = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True, kw_only=True)
class TableParameters(Parameters):
    """What every objective on tables knows."""

    files: ClassVar[tuple[str, ...]] = ("data", "validation_file")
    bundled: ClassVar[tuple[str, ...]] = BUNDLED

    data: str = text("breast_cancer", (), f"a .csv, .tsv or .parquet file, or one of {', '.join(BUNDLED)}")
    target: str | None = optional(str, "", "the column to predict (default: the last one)")
    task: str = text("auto", TASKS, f"auto: classes where the target is text or at most {FEW} whole numbers")
    validation_file: str | None = optional(str, "", "rows to validate on, with the same columns")
    validation_split: float = real(0.2, "(0, 1)", "share to validate on, where there is no validation_file")
    split_seed: int = whole(0, "[0, 4294967295]", "of that share: the same for all trials")
    seed: int = whole(0, "[0, 9223372036854775807]", "of what the training draws")

    @classmethod
    def _contradictions(cls, values: Any) -> list[str]:
        if values["validation_file"] is not None and values["data"] in BUNDLED:
            return [f"validation_file: found one, but data {values['data']!r} is no file"]
        return []

    def table(self) -> Table:
        """The rows that these parameters name. Raises `DataError`."""
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
    """What a library can measure, by its own names; of each target's kind the first is the default."""

    two: tuple[str, ...]  # classes
    more: tuple[str, ...]
    numbers: tuple[str, ...]
    higher: tuple[str, ...] = ()  # the better

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(dict.fromkeys((*self.two, *self.more, *self.numbers)))

    @property
    def help(self) -> str:
        """A line of help for the parameter that names one."""
        defaults = dict.fromkeys((self.two[0], self.more[0], self.numbers[0]))
        return f"what is reported: {', '.join(self.names)} (default by the target: {', '.join(defaults)})"

    def of(self, table: Table, wanted: str | None, parameter: str) -> str:
        """The one that is wanted, or the default. Raises `ConfigError` where the target does not allow it."""
        known: tuple[str, ...] = table.one_of(self.two, self.more, self.numbers)
        if wanted is not None and wanted not in known:
            target = table.one_of("has two classes", f"has {len(table.classes)} classes", "is a number")
            raise ConfigError([f"{parameter}: found {wanted!r}, but the target {target}: {', '.join(known)}"])
        return wanted or known[0]

    def goal(self, wanted: object) -> str | None:
        """Whether to minimize or maximize one; None of no metric, or of a default that the table tells."""
        asked = (wanted,) if wanted is not None else (self.two[0], self.more[0], self.numbers[0])
        goals = {"maximize" if name in self.higher else "minimize" for name in asked if name in self.names}
        return goals.pop() if len(goals) == 1 else None


@dataclass(frozen=True)
class Table:
    """Rows to learn from, and rows to validate on: numbers and categories [rows, columns], and targets."""

    x: pd.DataFrame
    y: NDArray[Any]
    validation_x: pd.DataFrame
    validation_y: NDArray[Any]
    classes: tuple[str, ...]  # none for a regression

    @property
    def categorical(self) -> list[str]:
        """The columns with categories."""
        return [str(name) for name in self.x.columns if self.x[name].dtype == "category"]

    def one_of(self, two: Any, more: Any, number: Any) -> Any:
        """What fits the target: two classes, more of them, or a number."""
        if not self.classes:
            return number
        return two if len(self.classes) == 2 else more


def _stamp(file: str | None) -> tuple[int, int] | None:
    """The file as it stands on the disk; None where there is none."""
    try:
        found = os.stat(file or "")
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


@functools.lru_cache(maxsize=1)  # the trials of a worker have the same
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
            raise DataError(f"{validation_file}: lacks the columns {', '.join(missing)} of {data}")
    first = len(frame)
    if held is not None:
        frame = pd.concat([frame, held[frame.columns]], ignore_index=True)
    _check_target(frame[name], first, data, validation_file)
    classes, y = _targets(frame[name], task, data)
    x = _features(frame.drop(columns=[name]), data)
    rows = np.arange(len(frame))
    validation = rows >= first if held is not None else _drawn(y, share, seed, by_class=bool(classes))
    if classes:
        unknown = sorted(set(y[validation]) - set(y[~validation]))
        if unknown:
            raise DataError(f"{validation_file}: {data} has no row of the class {classes[unknown[0]]!r}")
    if not validation.any() or validation.all():
        raise DataError(f"{data}: {len(frame)} rows are too few to learn from and to validate on")
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
            f"{file}: is no {', '.join(known)} file and none of {', '.join(BUNDLED)}, "
            f"which scikit-learn carries{near}"
        )
    try:
        if path.suffix == ".parquet":
            found = pd.read_parquet(path)
        else:
            found = pd.read_csv(path, sep=SEPARATORS[path.suffix])
    except FileNotFoundError:
        raise DataError(f"{file}: there is no such file (in {Path.cwd()})") from None
    except ImportError:
        raise DataError(f"{file}: Parquet needs pyarrow: pip install pyarrow") from None
    except pd.errors.EmptyDataError:
        raise DataError(f"{file}: is empty") from None
    except (OSError, ValueError) as error:  # a ParserError tells the line
        raise DataError(
            f"{file}: {str(error).strip().removeprefix('Error tokenizing data. C error: ')}"
        ) from error
    if len(found) == 0 or len(found.columns) < 2:
        raise DataError(
            f"{file}: found {len(found)} rows of {len(found.columns)} columns; "
            "needs a line of names, rows under it, and a column beside the target"
        )
    return found


def _target_of(frame: pd.DataFrame, target: str | None, data: str) -> str:
    names = [str(name) for name in frame.columns]
    if target is None:
        return names[-1]
    if target not in names:
        near = did_you_mean(target, names)
        raise ConfigError([f"target: {data} has no column {target!r}{near}; it has {', '.join(names)}"])
    return target


def _check_target(target: pd.Series[Any], first: int, data: str, validation_file: str | None) -> None:
    """Raise where a row has no target, with its place: line 1 has the names."""
    if target.isna().any():
        row = int(np.flatnonzero(target.isna())[0])
        file, line = (data, row + 2) if row < first else (validation_file, row - first + 2)
        more = int(target.isna().sum()) - 1
        others = f", and {more} more rows" if more else ""
        raise DataError(f"{file}:{line}: the target {target.name!r} has no value here{others}")


def _targets(target: pd.Series[Any], task: str, data: str) -> tuple[tuple[str, ...], NDArray[Any]]:
    """The names of the classes, none for a regression, and a number for each row."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    numeric = is_numeric_dtype(target) and not is_bool_dtype(target)
    if task == "auto":
        whole_numbers = numeric and bool((target % 1 == 0).all())
        few = not numeric or (whole_numbers and target.nunique() <= FEW)
        task = "classification" if few else "regression"
    if task == "regression":
        if not numeric:
            raise ConfigError(
                [f"task: found regression, but the target {target.name!r} of {data} is no number"]
            )
        values = target.to_numpy(np.float64)
        if not np.isfinite(values).all():
            raise DataError(f"{data}: the target {target.name!r} has infinite values")
        return (), values
    names, codes = np.unique(target.to_numpy(), return_inverse=True)
    if len(names) < 2:
        raise DataError(f"{data}: the target {target.name!r} has one value alone, {names.tolist()[0]!r}")
    return tuple(str(name) for name in names), codes.astype(np.int64)


def _features(frame: pd.DataFrame, data: str) -> pd.DataFrame:
    from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype

    found = frame.copy()
    found.columns = [str(name) for name in frame.columns]  # the libraries want text
    for name in found.columns:
        column = found[name]
        if is_bool_dtype(column):
            found[name] = column.astype("int8")
        elif is_numeric_dtype(column):
            if np.isinf(column.to_numpy(np.float64, na_value=np.nan)).any():
                raise DataError(f"{data}: the column {name!r} has infinite values; leave them empty")
        elif is_datetime64_any_dtype(column):
            found[name] = column.astype("int64") / 1e9
        else:
            try:
                found[name] = column.astype("category")
            except TypeError:  # lists and the like
                raise DataError(f"{data}: the column {name!r} has neither numbers nor text") from None
    return found


def _drawn(y: NDArray[Any], share: float, seed: int, *, by_class: bool) -> NDArray[np.bool_]:
    """Which rows to validate on: so large a share, of each class where there are classes."""
    rng = np.random.default_rng(seed)
    chosen = np.zeros(len(y), bool)
    for group in [np.flatnonzero(y == each) for each in np.unique(y)] if by_class else [np.arange(len(y))]:
        count = min(round(len(group) * share), len(group) - 1)
        chosen[rng.permutation(group)[:count]] = True
    return chosen
