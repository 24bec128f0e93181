"""The watcher: what changes in a database is told once to everybody, and waits are short."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import optuna
import pytest

pytest.importorskip("fastapi")

from hpsearch.search.service import watching
from hpsearch.search.service.events import Wish
from hpsearch.search.service.watching import Watch
from hpsearch.storage.changes import ChangeDetector
from hpsearch.storage.database import open_tables
from hpsearch.storage.workspace import Workspace

from ...support.driving import DrivenStudy, asked
from ...support.requests import Queries, events_of
from ...support.spaces import small


@pytest.fixture
def workspace(study: DrivenStudy) -> Workspace:
    return Workspace.at(str(study.file))


def test_a_look_finds_what_changed_and_costs_one_statement_where_nothing_has(
    study: DrivenStudy, workspace: Workspace
) -> None:
    driver = study.driver(small())
    given = asked(driver)
    tables = open_tables(workspace.url)
    detector = ChangeDetector(tables.engine)
    assert not detector.look()
    with Queries() as queries:
        assert not detector.look()
    assert queries.count == 1
    driver.report(given.number, 0.5, 1, {})
    with Queries() as queries:
        changes = detector.look()
    assert queries.count <= 8
    assert changes.studies == {"study"} and not changes.states
    assert list(changes.reports.values()) == [[(1, 0.5)]]
    driver.complete(given.number, 0.4)
    changes = detector.look()
    assert changes.states == {"study"} and len(changes.trials["study"]) == 1
    optuna.create_study(study_name="other", storage=study.url)
    assert detector.look().new == {"other"}
    optuna.delete_study(study_name="other", storage=study.url)
    assert detector.look().gone == {"other"}
    study.command(do="pause")
    assert not detector.look()  # commands are between a client and the driver
    driver.close()
    detector.close()


def told(stream: Any) -> Any:
    """The events of what a stream has sent in parts."""
    return list(events_of(iter(b"".join(stream).decode().split("\n"))))


async def read(watch: Watch, last: str | None, until: str, wish: Any = None) -> tuple[list[Any], str | None]:
    """The events of a stream until one of a kind, and the last id."""
    parts: list[bytes] = []
    async for part in watch.stream(wish or Wish(lambda study: True), last, beat=0.2):
        parts.append(part)
        events = told(parts)
        if any(event.kind == until for event in events):
            break
    events = told(parts)
    return events, next((event.id for event in reversed(events) if event.id), last)


def test_a_stream_ends_with_its_token_also_while_much_happens(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "VALID_SECONDS", 0.1)

    async def watched() -> int:
        watch, until = Watch(workspace), time.monotonic() + 0.3
        watch.start()
        parts = watch.stream(Wish(lambda study: True), None, lambda: time.monotonic() < until, beat=30.0)
        told = 0
        try:
            async for _ in parts:
                told += 1
                watch.publish("queue", {"study": "s"}, "s")
                assert told < 100_000, "it goes on"
        finally:
            watch.stop()
        return told

    assert asyncio.run(asyncio.wait_for(watched(), 20.0)) > 2


def test_a_stream_tells_rows_goes_on_after_a_break_and_ends_with_the_server(
    study: DrivenStudy, workspace: Workspace
) -> None:
    driver = study.driver(small())
    given = asked(driver)

    async def watched() -> None:
        watch = Watch(workspace)
        watch.start()
        try:
            _, last = await read(watch, None, "hello")
            driver.report(given.number, 0.9, 1, {})
            driver.report(given.number, 0.5, 2, {"speed": 3.0})
            events, last = await read(watch, last, "trial")
            seen = [event.data for event in events if event.kind == "trial"]
            assert seen[-1]["trial"]["last_step"] == 2 and seen[-1]["study"] == "study"
            points = [point for data in seen for point in data["reports"]]
            # What happens while nobody is connected is told to who comes back.
            driver.complete(given.number, 0.4)
            await asyncio.to_thread(watch.look)
            events, last = await read(watch, last, "best")
            kinds = [event.kind for event in events]
            assert "reset" not in kinds and kinds.index("trial") < kinds.index("study")
            best = events[-1].data
            assert best["value"] == 0.4 and best["trial"]["number"] == given.number
            points += [point for e in events if e.kind == "trial" for point in e.data["reports"]]
            assert points == [[1, 0.9], [2, 0.5]]
            reset = (await read(watch, "another-3", "reset"))[0][-1]
            assert reset.data == {"why": watching.UNKNOWN}
            leaving = asyncio.ensure_future(read(watch, last, "bye"))
            await asyncio.sleep(0)
            watch.leave()
            assert (await asyncio.wait_for(leaving, 5))[0][-1].kind == "bye"
        finally:
            watch.stop()

    asyncio.run(watched())
    driver.close()


def test_a_wait_ends_with_a_change_of_its_study_alone(study: DrivenStudy, workspace: Workspace) -> None:
    driver = study.driver(small())
    given = asked(driver)
    optuna.create_study(study_name="other", storage=study.url)

    async def waited() -> None:
        watch = Watch(workspace)
        watch.start()
        try:
            tag, other = watch.tag("study"), watch.tag("other")
            assert await watch.changed(lambda: watch.tag("study"), tag, 0.15) == tag
            began = time.monotonic()
            waits = asyncio.ensure_future(watch.changed(lambda: watch.tag("study"), tag, 20))
            await asyncio.sleep(0.05)
            await asyncio.to_thread(driver.report, given.number, 0.5, 1, {})
            assert await waits != tag and time.monotonic() - began < 10
            assert watch.tag("other") == other and watch.tag() != watch.tag("other")
        finally:
            watch.stop()

    asyncio.run(waited())
    driver.close()


def test_while_nobody_watches_changes_are_counted_but_not_read(
    study: DrivenStudy, workspace: Workspace
) -> None:
    watch = Watch(workspace)
    driver = study.driver(small())
    before = watch.tag("study")
    for _ in range(3):
        driver.complete(asked(driver).number, 0.5)
    with Queries() as queries:
        after = watch.tag("study")
    assert before != after and queries.count <= 9
    assert watch.ring.since(0) is None  # who comes now begins anew
    driver.close()
    watch.stop()
