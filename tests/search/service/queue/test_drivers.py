"""What a driver is told of its machine, and what it has said last, as the queue tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpsearch.search.backends.resources import machine_price
from hpsearch.search.errors import UsageError
from hpsearch.search.queue.slots import Machine, Slice
from hpsearch.search.service.home import Settings
from hpsearch.search.service.queue.drivers import environment, last_words


def test_last_words_are_of_the_last_start_and_read_as_one_line(tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    assert last_words(log) == ("", False)
    log.write_text("--- started\nhpsearch: old\n--- started\ntrial 0 fail\n")
    assert last_words(log) == ("trial 0 fail", False)
    with log.open("a") as stream:
        stream.write("hpsearch: all failed: it is on fire\nto try again: hpsearch retry s --failed\n")
    assert last_words(log) == ("all failed: it is on fire; to try again: hpsearch retry s --failed", True)


def test_a_driver_is_told_what_its_machine_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("price_per_hour: 2.5\n")
    machine = Machine((0,), price_per_hour=Settings.read(file).price_per_hour)
    for name, value in environment({}, Slice((0,), (), 1), machine).items():
        monkeypatch.setenv(name, value)
    assert machine_price() == 2.5
    monkeypatch.setenv("HPSEARCH_PRICE_PER_HOUR", "2,50")
    with pytest.raises(
        UsageError, match=r"HPSEARCH_PRICE_PER_HOUR needs an amount of money such as 2.5, above 0 and"
    ):
        machine_price()
    file.write_text("price_per_hour: 0\n")
    with pytest.raises(
        UsageError, match="price_per_hour needs an amount above 0, and at most 1,000,000,000, not 0"
    ):
        Settings.read(file)
