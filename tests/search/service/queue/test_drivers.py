"""What a driver has said last, as the queue tells it."""

from __future__ import annotations

from pathlib import Path

from hpsearch.search.service.queue.drivers import last_words


def test_last_words_are_of_the_last_start_and_read_as_one_line(tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    assert last_words(log) == ("", False)
    log.write_text("--- started\nhpsearch: old\n--- started\ntrial 0 fail\n")
    assert last_words(log) == ("trial 0 fail", False)
    with log.open("a") as stream:
        stream.write("hpsearch: all failed: it is on fire\nto try again: hpsearch retry s --failed\n")
    assert last_words(log) == ("all failed: it is on fire; to try again: hpsearch retry s --failed", True)
