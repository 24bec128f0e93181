"""Nothing is looked through while it is loaded, and code of a user decides for itself."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from hpsearch.search.garbage import none_while_loading


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_nothing_is_looked_for_while_modules_are_loaded() -> None:
    before = gc.get_threshold()
    with none_while_loading():
        assert gc.get_threshold()[0] == 0
    assert gc.get_threshold() == before and gc.get_freeze_count()


def test_a_failure_leaves_it_as_it_was() -> None:
    before = gc.get_threshold()
    with pytest.raises(ImportError), none_while_loading():
        raise ImportError
    assert gc.get_threshold() == before


def test_what_code_of_a_user_chooses_stays() -> None:
    with none_while_loading():
        gc.set_threshold(500, 5, 5)
    assert gc.get_threshold() == (500, 5, 5)
