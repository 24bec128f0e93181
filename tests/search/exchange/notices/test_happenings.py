"""What is news of a study, by what its target knows already."""

from __future__ import annotations

from dataclasses import replace

from hpsearch.search.exchange.notices.happenings import Kind, Seen, first_sight, news
from hpsearch.search.queue.foreseen import Rest
from hpsearch.storage.told import Told

HOUR = 3600.0


def test_each_thing_is_told_once() -> None:
    told, course = Told(), list[tuple[Seen, list[Kind]]]()
    course = [
        (Seen(True), []),
        (Seen(True, better=True), ["better"]),
        (Seen(True, better=True), []),
        (Seen(True, better=True, free=0.04), ["disk_low"]),
        (Seen(True, better=True, free=0.06), []),
        (Seen(True, better=True, free=0.04), []),
        (Seen(False, failure="it broke"), ["failed"]),
        (Seen(False, failure="it broke"), []),
        (Seen(False), []),
        (Seen(True, free=0.5), []),  # it searches again
        (Seen(False, failure="it broke"), ["failed"]),
        (Seen(True), []),
        (Seen(False, over=100.0), ["finished"]),
        (Seen(False, over=100.0), []),
        (Seen(True), []),  # with a larger budget
        (Seen(False, over=180.0, free=0.01), ["finished", "disk_low"]),
    ]
    for seen, expected in course:
        told, kinds = news(told, seen, 0.0)
        assert kinds == expected


def test_a_new_target_hears_of_nothing_that_was_before() -> None:
    told = first_sight(Seen(True, over=50.0, failure="it broke", better=True, free=0.01))
    assert told == Told(over=50.0, failure="it broke", better=True)
    assert news(told, Seen(True, free=0.01), 0.0)[1] == ["disk_low"]


def test_a_foreseen_end_has_moved_where_it_is_far_and_was_not_possible() -> None:
    def seen(hours: float, low: float = 0.9, high: float = 1.1) -> Seen:
        return Seen(True, rest=Rest(hours * HOUR, low * hours * HOUR, high * hours * HOUR))

    told, kinds = news(Told(), seen(10), 0.0)
    assert kinds == [] and told.end == (0.0, 10 * HOUR)
    assert news(told, seen(8), HOUR)[1] == []  # an hour earlier, of ten
    assert news(told, seen(5), HOUR) == (replace(told, end=(HOUR, 6 * HOUR)), ["end_moved"])
    assert news(told, seen(13), HOUR)[1] == ["end_moved"]
    assert news(told, seen(13, low=0.5), HOUR)[1] == []  # the old end is as likely
    short = replace(told, end=(0.0, 60.0))
    assert news(short, seen(0.05), 0.0)[1] == []  # two minutes later
    paused, kinds = news(told, Seen(False), HOUR)
    assert paused.end is None and kinds == []
