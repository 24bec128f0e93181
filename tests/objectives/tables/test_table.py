from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.objectives.tables import table as tables
from hpsearch.objectives.tables.table import BUNDLED, Table, TableParameters
from hpsearch.trainer.errors import ConfigError, DataError


class Config(TableParameters):
    objective: ClassVar[str] = "table"


def table(**params: Any) -> Table:
    return Config.from_params(params).table()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pets.csv"
    rows = [
        f"{n},{'cat' if n % 3 else 'dog'},{n % 2 == 0},{'' if n == 4 else n / 2},{n % 4}" for n in range(60)
    ]
    path.write_text("\n".join(["number,animal,even,half,kind", *rows]) + "\n")
    return path


@pytest.mark.parametrize("name", BUNDLED)
def test_data_sets_of_scikit_learn_need_no_file(name: str) -> None:
    found = table(data=name)
    total = len(found.x) + len(found.validation_x)
    assert len(found.validation_x) == pytest.approx(0.2 * total, abs=10)
    assert bool(found.classes) == (name != "diabetes")
    assert len(found.x) == len(found.y) and len(found.validation_x) == len(found.validation_y)


def test_columns_become_numbers_and_categories(file: Path) -> None:
    found = table(data=str(file))
    assert found.categorical == ["animal"] and found.classes == ("0", "1", "2", "3")
    assert set(found.x["even"]) == {0, 1} and found.x["even"].dtype == np.int8
    assert int(pd.concat([found.x, found.validation_x])["half"].isna().sum()) == 1
    by_name = table(data=str(file), target="animal")
    assert by_name.classes == ("cat", "dog") and "animal" not in by_name.x


def test_the_task_follows_the_target_or_is_given(file: Path) -> None:
    assert table(data=str(file), target="number").classes == ()  # 60 whole numbers
    assert table(data=str(file), target="kind", task="regression").y.dtype == np.float64


def test_parquet_and_tabs_say_the_same(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.read_csv(file)
    frame.to_csv(tmp_path / "pets.tsv", sep="\t", index=False)
    frame.to_parquet(tmp_path / "pets.parquet")
    wanted = table(data=str(file))
    for name in ("pets.tsv", "pets.parquet"):
        found = table(data=str(tmp_path / name))
        pd.testing.assert_frame_equal(found.x, wanted.x, check_categorical=False)
        assert (found.validation_y == wanted.validation_y).all()


@given(
    rows=st.integers(8, 80),
    classes=st.integers(2, 4),
    share=st.floats(0.05, 0.9),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_split_is_a_share_of_each_class_without_overlap(
    rows: int, classes: int, share: float, seed: int
) -> None:
    y = np.arange(rows) % classes
    chosen = tables._held_rows(y, share, seed, by_class=True)
    assert (chosen == tables._held_rows(y, share, seed, by_class=True)).all()
    for each in range(classes):
        of_it = chosen[y == each]
        assert 0 <= of_it.sum() < len(of_it)
        assert abs(of_it.sum() - share * len(of_it)) <= 1


def test_the_trials_seed_does_not_move_the_split(file: Path) -> None:
    one, other = table(data=str(file), seed=1), table(data=str(file), seed=2)
    assert one.validation_x.index.equals(other.validation_x.index)
    moved = table(data=str(file), split_seed=1)
    assert not moved.validation_x.index.equals(one.validation_x.index)


def test_a_validation_file_is_what_is_validated_on(file: Path, tmp_path: Path) -> None:
    held = tmp_path / "held.csv"
    held.write_text("kind,half,even,animal,number\n1,2.5,True,parrot,5\n")
    found = table(data=str(file), validation_file=str(held))
    assert len(found.x) == 60 and list(found.validation_x["number"]) == [5]
    assert found.validation_x["animal"].iloc[0] == "parrot"  # a category of one table


def test_an_edited_file_is_read_again(file: Path) -> None:
    assert len(table(data=str(file)).x) == 48
    file.write_text(file.read_text() + "61,cat,True,3,1\n" * 20)
    assert len(table(data=str(file)).x) == 64


@pytest.mark.parametrize(
    ("content", "params", "message"),
    [
        (None, {}, "there is no such file"),
        ("", {}, "is empty"),
        ("a,b\n", {}, "found 0 rows of 2 columns"),
        ("a\n1\n2\n", {}, "found 2 rows of 1 columns"),
        ("a,b\n1,2\n3,4,5\n", {}, "Expected 2 fields in line 3, saw 3"),
        ("a,b\n1,2\n3,\n", {}, r"t\.csv:3: the target 'b' has no value here"),
        ("a,b\n1,x\n3,x\n", {}, "has only one value, 'x'"),
        ("a,b\n1,5.0\n3,5.0\n", {}, "has only one value, 5.0"),
        ("a,b\n1,x\n3,y\n", {}, "2 rows are too few"),
        ("a,b\ninf,x\n3,y\n", {}, "the column 'a' has infinite values"),
        ("a,b\n1,x\n3,y\n", {"task": "regression"}, "found regression, but the target 'b'"),
        ("length,width\n1,2\n3,4\n", {"target": "widht"}, "no column 'widht', did you mean \"width\""),
        ("a,b\n\x00\xff,1\n", {}, "t.csv"),
    ],
)
def test_unusable_data_is_refused(
    content: str | None, params: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    with pytest.raises((DataError, ConfigError), match=message):
        table(data=str(path), **params)


def test_a_misspelt_name_is_no_file() -> None:
    with pytest.raises(DataError, match='did you mean "breast_cancer"'):
        table(data="breast_cancr")
    with pytest.raises(ConfigError, match="is not a file"):
        table(data="iris", validation_file="x.csv")


def test_a_class_only_in_the_validation_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,x\n2,y\n")
    (tmp_path / "v.csv").write_text("a,b\n1,z\n")
    with pytest.raises(DataError, match=r"has rows of the class 'z', but .* has none"):
        table(data=str(tmp_path / "a.csv"), validation_file=str(tmp_path / "v.csv"))
    (tmp_path / "v.csv").write_text("a,c\n1,z\n")
    with pytest.raises(DataError, match="has no columns b"):
        table(data=str(tmp_path / "a.csv"), validation_file=str(tmp_path / "v.csv"))
