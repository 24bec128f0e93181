"""Routes to watch by: pages, curves, files, logs, the winner, a forecast."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from hpsearch.search.service.service import Service
from hpsearch.storage.inside import DRIVER_LOG
from hpsearch.storage.workspace import Workspace

from ...support.driving import CONFIRM, DrivenStudy, asked, save_checkpoint
from ...support.online import listening
from ...support.requests import client_of, events_of, httpx, make_service
from ...support.spaces import small

STUDY = "/v1/studies/study"
SECRET = "secret"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One with a study of six trials, of which the best was not confirmed."""
    folder = tmp_path_factory.mktemp("watched")
    driven = DrivenStudy(folder)
    driver = driven.driver(small(budget={"trials": 6}, baseline={"x": 0.5}))
    for number in range(5):
        given = asked(driver)
        save_checkpoint(given)
        for step in range(1, 41):
            driver.report(given.number, 1 + number / 10 + abs(step - 20) / 100, step, {"speed": step})
        driver.complete(given.number, 1 + number / 10)
    given = asked(driver)
    driver.report(given.number, 5.0, 1, {})
    (folder / SECRET).write_text(SECRET)
    inside = given.folder
    inside.mkdir(exist_ok=True)
    (inside / "output.log").write_bytes("one\ntwo\nä".encode())
    (inside / "link").symlink_to(folder / SECRET)
    (inside / "up").symlink_to(folder)
    os.mkfifo(inside / "pipe")
    (inside / "nested").mkdir()
    (inside / "nested" / "a b;ü.txt").write_text("nested")
    (inside / "<script>.html").write_text("<script>alert(1)</script>")
    (driven.runs / "study" / DRIVER_LOG).write_text("the driver says\n")
    yield make_service(Workspace.at(str(driven.file)), folder)
    driver.close()
    driven.close()


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[Any]:
    with client_of(service, "read") as client:
        yield client


def test_pages_follow_each_other_in_every_order_and_tell_the_fields_asked_for(client: Any) -> None:
    for sort, numbers in {"number": range(6), "newest": range(5, -1, -1), "value": range(6)}.items():
        found, place = [], f"{STUDY}/trials?sort={sort}&limit=4&fields=number,state"
        while place:
            answer = client.get(place)
            found += answer.json()
            link = answer.headers.get("link", "")
            place = f"{STUDY}/trials{link[1 : link.index('>')]}" if link else ""
        assert [row["number"] for row in found] == list(numbers)
        assert set(found[0]) == {"number", "state"}
    assert [row["number"] for row in client.get(f"{STUDY}/trials?state=running").json()] == [5]
    wrong = client.get(f"{STUDY}/trials?fields=numbr")
    assert wrong.status_code == 422 and 'did you mean "number"' in wrong.json()["detail"]


def test_curves_are_thinned_and_continue_where_they_ended(client: Any) -> None:
    found = client.get(f"{STUDY}/curves?points=8&trials=1,5").json()
    assert found["trial"] == [1, 5] and len(found["step"][0]) <= 8
    steps, values = found["step"][0], found["value"][0]
    assert steps[0] == 1 and steps[-1] == 40 and min(values) == 1.1 and max(values) == 1.3
    assert client.get(f"{STUDY}/curves?since={found['last']}").json()["trial"] == []
    assert client.get(f"{STUDY}/curves?since={found['last'] - 1}").json()["trial"] == [5]
    page = client.get(f"{STUDY}/curves?limit=2&after=1").json()
    assert page["trial"] == [2, 3] and page["more"]
    assert client.get(f"{STUDY}/curves?trials=1,x").status_code == 422


@pytest.mark.parametrize(
    "path",
    [
        *("link", "up/secret", "up", "pipe", "nested", "nested/", "", "nope"),
        *("..%2f..%2f..%2fsecret", "%2e%2e/%2e%2e/secret", "....//secret", "nested/../link", "a%00b"),
        *("//etc/passwd", "%2fetc%2fpasswd", "nested\\..\\link", "x" * 3000, "%ff", "%ed%a0%80"),
    ],
)
def test_no_name_of_a_file_leads_elsewhere(client: Any, path: str) -> None:
    answer = client.get(f"{STUDY}/trials/5/files/{path}")
    assert answer.status_code in (400, 404), answer.text
    assert SECRET not in answer.text.replace(path, "") and "Traceback" not in answer.text


def test_files_are_listed_and_sent_as_attachments_whole_or_in_part(client: Any) -> None:
    names = [each["path"] for each in client.get(f"{STUDY}/trials/5/files").json()["files"]]
    assert {"<script>.html", "nested/a b;ü.txt", "output.log"} <= set(names)
    assert not {"link", "pipe", "up"} & set(names)
    answer = client.get(f"{STUDY}/trials/5/files/<script>.html")
    assert answer.headers["content-disposition"].startswith("attachment") and "<" not in str(answer.headers)
    assert answer.headers["x-content-type-options"] == "nosniff" and "sandbox" in str(answer.headers)
    place = f"{STUDY}/trials/5/files/nested/a b;ü.txt"
    for header, status, text in [
        (None, 200, "nested"),
        ("bytes=1-2", 206, "es"),
        ("bytes=-2", 206, "ed"),
        ("bytes=4-", 206, "ed"),
        ("bytes=0-99", 206, "nested"),
        ("bytes=1-2,3-4", 200, "nested"),
        ("bytes=-", 200, "nested"),
        ("lines=1-2", 200, "nested"),
    ]:
        answer = client.get(place, headers={"Range": header} if header else {})
        assert (answer.status_code, answer.text) == (status, text), header
    for header in ("bytes=6-", "bytes=5-2", "bytes=-0"):
        answer = client.get(place, headers={"Range": header})
        assert answer.status_code == 416 and answer.headers["content-range"] == "bytes */6"


def test_logs_are_text_with_ranges(client: Any) -> None:
    answer = client.get(f"{STUDY}/trials/5/log", headers={"Range": "bytes=4-"})
    assert (answer.status_code, answer.text) == (206, "two\nä")
    assert client.get(f"{STUDY}/log").text == "the driver says\n"
    nothing = client.get(f"{STUDY}/trials/0/log", headers={"Range": "bytes=-100"})
    assert (nothing.status_code, nothing.text) == (200, ""), "it has printed nothing"
    assert client.get(f"{STUDY}/trials/77/log").json()["type"] == "/problems/no-such-trial"


def test_a_winner_that_is_not_confirmed_has_to_be_asked_for(client: Any, service: Service) -> None:
    found = client.get(f"{STUDY}/winner").json()
    assert (found["status"], found["trial"], found["searched"]) == ("unconfirmed", 0, 1.0)
    refused = client.get(f"{STUDY}/winner.zip")
    assert refused.status_code == 409 and refused.json()["type"] == "/problems/not-confirmed"
    answer = client.get(f"{STUDY}/winner.zip?unconfirmed=yes")
    assert answer.headers["x-winner-status"] == "unconfirmed"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert {"winner.json", "config.yaml", "versions.txt", "space.json"} <= set(archive.namelist())
        assert "checkpoint/weights" in archive.namelist()
        assert all(not name.startswith(("/", "..")) for name in archive.namelist())
    again = client.get(f"{STUDY}/winner.zip?unconfirmed=yes", headers={"Range": "bytes=10-"})
    assert again.content == answer.content[10:]
    assert [each.name for each in service.home.folder.glob("tmp*")] == []


def test_the_pace_of_a_study_tells_how_it_goes_on_and_what_more_would_take(client: Any) -> None:
    now = client.get(f"{STUDY}/forecast").json()
    more = client.get(f"{STUDY}/forecast?trials=%2B94&slots=2").json()
    assert (now["trials"], more["trials"], more["slots"]) == (6, 100, 2)
    assert now["left"] <= more["left"] and more["left_low"] <= more["left"] <= more["left_high"]
    ages = client.get(f"{STUDY}/forecast?trials=9999999999999").json()
    assert ages["ends"] is None and ages["left"] > now["left"]
    for query, said in {
        "trials=x": "write a total",
        "samples=%2B5": "no budget of samples",
        "time=-1s": "",
    }.items():
        wrong = client.get(f"{STUDY}/forecast?{query}")
        assert wrong.status_code == 422 and said in wrong.json()["detail"]


def test_an_answer_that_the_client_has_is_not_sent_again(client: Any) -> None:
    for place in ("/trials", "/curves", "/winner", "/trials/5", "/forecast"):
        tag = client.get(f"{STUDY}{place}").headers["etag"]
        for given in (tag, f'"x", {tag}', "*", tag.removeprefix("W/")):
            answer = client.get(f"{STUDY}{place}", headers={"If-None-Match": given})
            assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
        assert client.get(f"{STUDY}{place}", headers={"If-None-Match": '"x"'}).status_code == 200
    answer = client.get(f"{STUDY}/trials?wait=0.05", headers={"If-None-Match": tag})
    assert answer.status_code == 304
    assert client.get(f"{STUDY}/trials?wait=3600").status_code == 422


def test_what_a_token_may_not_see_is_not_there(service: Service) -> None:
    with client_of(service, "read", studies=("mine*",)) as other:
        for place in ("/trials", "/curves", "/trials/5", "/trials/5/files", "/log", "/winner", "/forecast"):
            assert other.get(f"{STUDY}{place}").status_code == 404


def test_streams_arrive_and_a_log_is_followed_to_its_end(service: Service) -> None:
    token = service.tokens.create("tester", "read").token
    from hpsearch.search.service.app import make_app

    headers = {"Authorization": f"Bearer {token}"}
    with (
        listening(make_app(service)) as url,
        httpx.Client(base_url=url, headers=headers, timeout=10) as client,
    ):
        with client.stream("GET", "/v1/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert next(events_of(stream.iter_lines())).kind == "hello"
        place = f"{STUDY}/log?follow=true"
        with client.stream("GET", place, headers={"Last-Event-ID": "4"}) as stream:
            lines = list(stream.iter_lines())
        first, last = events_of(iter(lines))
        assert (first.data["text"], first.id, last.kind) == ("driver says\n", "16", "end")
        assert client.get("/v1/events?kinds=trail").json()["detail"].endswith('did you mean "trial"?')
        service.leave()
        with client.stream("GET", "/v1/events") as stream:
            assert list(events_of(stream.iter_lines()))[-1].kind == "bye"
        service.watch.leaving = False


def test_a_confirmed_winner_has_an_interval(tmp_path: Path) -> None:
    driven = DrivenStudy(tmp_path)
    driver = driven.driver(small(**CONFIRM))
    while (given := driver.ask()) is not None:
        value = 1.0 + given.params["x"]
        driver.report(given.number, value, 9, {})
        driver.complete(given.number, value)
    driver.close()
    from hpsearch.search.operations.winner import winner

    found = winner(workspace=Workspace.at(str(driven.file)), study="study")
    assert found.status in ("confirmed", "baseline", "tie") and found.value is not None and found.seeds == 2
    assert found.value.low <= found.value.value <= found.value.high
    driven.close()
