"""Every route, for every scope: who gets in, and what is answered."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest

from hpsearch.search.operations import show, spaces, studies
from hpsearch.search.service import routes
from hpsearch.search.service.problems import KINDS, MEDIA_TYPE
from hpsearch.search.service.tickets import SECONDS
from hpsearch.spaces import shipped_text
from hpsearch.spaces.document import read
from hpsearch.storage.studies import LEASES_LOST

from ...support.remote import wait_for
from ...support.serving import Callers, callers, searched

SWEEP = "program: train.py\nmethod: random\nmetric: {name: loss, goal: minimize}\nparameters:\n  lr: {min: 0.1, max: 1.0}\n"
SCRIPT = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float, default=0.1)\np.parse_args()\n"
VALID = {
    "text": "version: 1\nname: s\nobjective: lora\nmetric: val_loss\nparameters: {learning_rate: {min: 1.0e-4, max: 1.0e-2, log: true}, max_samples: 64}\nbudget: {trials: 4}\n"
}

LEASE = f"/v1/leases/{'0' * 16}-0-{'a' * 22}"  # of no study
ASK = {"worker": "w", "request": "1"}
# Of a request by nobody, and by who has each scope; the table of `research`, written out.
#                                                     nobody read work write code admin
TABLE: dict[tuple[str, str], tuple[Any, tuple[int, int, int, int, int, int]]] = {
    ("GET", "/healthz"):                               (None, (204, 204, 204, 204, 204, 204)),
    ("GET", "/readyz"):                                (None, (204, 204, 204, 204, 204, 204)),
    ("GET", "/"):                                      (None, (200, 200, 200, 200, 200, 200)),
    ("GET", "/static/0/page.css"):                     (None, (404, 404, 404, 404, 404, 404)),
    ("GET", "/problems/too-many"):                     (None, (200, 200, 200, 200, 200, 200)),
    ("GET", "/problems/none"):                         (None, (404, 404, 404, 404, 404, 404)),
    ("GET", "/metrics"):                               (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/openapi.json"):                          (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1"):                                    (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/spaces"):                             (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/spaces/schema"):                      (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/spaces/text?space=lora"):             (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/spaces/text?space=lorra"):            (None, (401, 404, 403, 404, 404, 404)),
    ("GET", "/v1/objectives"):                         (None, (401, 200, 403, 200, 200, 200)),
    ("POST", "/v1/spaces/validate"):                   (VALID, (401, 200, 403, 200, 200, 200)),
    ("POST", "/v1/spaces/convert"):                    ({"text": SWEEP}, (401, 200, 403, 200, 200, 200)),
    ("POST", "/v1/spaces/propose"):                    ({"text": SCRIPT}, (401, 200, 403, 200, 200, 200)),
    ("POST", "/v1/plans"):                             ({"space": "version: 1"}, (401, 403, 403, 422, 422, 422)),
    ("GET", "/v1/plans/0000"):                         (None, (401, 404, 403, 404, 404, 404)),
    ("DELETE", "/v1/plans/0000"):                      (None, (401, 403, 403, 404, 404, 404)),
    ("GET", "/v1/studies"):                            (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/studies/curve"):                      (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/studies/kurve"):                      (None, (401, 404, 403, 404, 404, 404)),
    ("DELETE", "/v1/studies/curve?dry_run=true"):      (None, (401, 403, 403, 403, 403, 200)),
    ("GET", "/v1/studies/curve/space"):                (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/studies/curve/report"):               (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/studies/curve/best"):                 (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/studies/curve/export"):               (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/studies/curve/ranges"):               (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/studies/curve/trials/1/story"):       (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/studies/curve/trials/9/story"):       (None, (401, 404, 403, 404, 404, 404)),
    ("GET", "/v1/studies/curve/trials"):               (None, (401, 200, 403, 200, 200, 200)),
    ("POST", "/v1/studies/curve/trials"):               ({"params": {"y": 1}}, (401, 403, 403, 422, 422, 422)),
    ("GET", "/v1/studies/curve/trials/1"):             (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/studies/curve/trials/9"):             (None, (401, 404, 403, 404, 404, 404)),
    ("GET", "/v1/studies/curve/trials/x"):             (None, (401, 422, 403, 422, 422, 422)),
    ("GET", "/v1/studies/curve/ladder"):               (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/studies/curve/improvements"):         (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/report?study=curve"):                 (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/report?study=kurve"):                 (None, (401, 404, 403, 404, 404, 404)),
    ("GET", "/v1/report"):                             (None, (401, 422, 403, 422, 422, 422)),
    ("GET", "/v1/studies/curve/curves"):               (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/studies/curve/trials/1/files"):       (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/studies/curve/trials/1/files/config.json"):(None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/studies/curve/trials/1/files/nothing"):(None, (401, 404, 403, 404, 404, 404)),
    ("GET", "/v1/studies/curve/trials/9/log"):         (None, (401, 404, 403, 404, 404, 404)),
    ("GET", "/v1/studies/curve/log"):                  (None, (401, 404, 403, 404, 404, 404)),
    ("GET", "/v1/studies/curve/winner"):               (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/studies/curve/winner.zip"):           (None, (401, 409, 403, 409, 409, 409)),
    ("GET", "/v1/studies/curve/winner.zip?unconfirmed=yes"):(None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/studies/curve/winner/recipe?format=json"):(None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/studies/curve/figures/nothing"):      (None, (401, 404, 403, 404, 404, 404)),
    ("GET", "/v1/studies/curve/forecast"):             (None, (401, 200, 403, 200, 200, 200)),
    ("POST", "/v1/studies/curve/stop"):                (None, (401, 403, 403, 200, 200, 200)),
    ("POST", "/v1/studies/curve/pause"):               (None, (401, 403, 403, 409, 409, 409)),
    ("POST", "/v1/studies/curve/resume"):              (None, (401, 403, 403, 409, 409, 409)),
    ("POST", "/v1/studies/curve/trials/1/kill"):       (None, (401, 403, 403, 409, 409, 409)),
    ("POST", "/v1/studies/curve/trials/1/retry"):      (None, (401, 403, 403, 409, 409, 409)),
    ("PUT", "/v1/studies/new"):                        ({"space": "version: 1"}, (401, 403, 403, 422, 422, 422)),
    ("PATCH", "/v1/studies/curve"):                    ({}, (401, 403, 403, 200, 200, 200)),
    ("PATCH", "/v1/studies/kurve"):                    ({}, (401, 403, 403, 404, 404, 404)),
    ("GET", "/v1/queue"):                              (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/v1/machine"):                            (None, (401, 200, 403, 200, 200, 200)),
    ("POST", "/v1/drain"):                             ({"on": False}, (401, 403, 403, 403, 403, 200)),
    ("HEAD", f"/v1/bundles/{'0' * 64}"):               (None, (401, 403, 403, 403, 404, 404)),
    ("PUT", f"/v1/bundles/{'0' * 64}"):                ({}, (401, 403, 403, 403, 422, 422)),
    ("GET", "/client.py"):                             (None, (200, 200, 200, 200, 200, 200)),
    ("GET", "/v1/studies/curve/work"):                 (None, (401, 403, 410, 410, 410, 410)),
    ("POST", "/v1/studies/curve/ask"):                 (ASK, (401, 403, 410, 410, 410, 410)),
    ("POST", f"{LEASE}/report"):                       ({"step": 1, "value": 0.5}, (401, 403, 404, 404, 404, 404)),
    ("POST", f"{LEASE}/beat"):                         ({}, (401, 403, 404, 404, 404, 404)),
    ("POST", f"{LEASE}/complete"):                     ({"value": "nan"}, (401, 403, 404, 404, 404, 404)),
    ("POST", f"{LEASE}/fail"):                         ({"message": "no"}, (401, 403, 404, 404, 404, 404)),
    ("POST", f"{LEASE}/release"):                      ({}, (401, 403, 404, 404, 404, 404)),
    ("PUT", f"{LEASE}/checkpoint"):                    ({}, (401, 403, 415, 415, 415, 415)),
    ("GET", f"{LEASE}/checkpoint"):                    (None, (401, 403, 404, 404, 404, 404)),
    ("GET", "/v1/tokens"):                             (None, (401, 403, 403, 403, 403, 200)),
    ("POST", "/v1/tokens"):                            ({"name": "more"}, (401, 403, 403, 403, 403, 201)),
    ("DELETE", "/v1/tokens/00000000"):                 (None, (401, 403, 403, 403, 403, 404)),
    ("POST", "/v1/webhooks/test"):                     (None, (401, 403, 403, 403, 403, 200)),
    ("POST", "/v1/tickets"):                           ({"path": "/v1"}, (401, 201, 403, 201, 201, 201)),
    ("GET", "/optuna"):                                (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/optuna/dashboard/studies/1"):            (None, (401, 200, 403, 200, 200, 200)),
    ("GET", "/optuna/api/studies"):                    (None, (401, 200, 403, 200, 200, 200)),
    ("HEAD", "/optuna/api/studies"):                   (None, (401, 200, 403, 200, 200, 200)),
    ("POST", "/optuna/api/studies"):                   ({}, (401, 405, 403, 405, 405, 405)),
    ("DELETE", "/optuna/api/studies/1"):               (None, (401, 405, 403, 405, 405, 405)),
    ("POST", "/v1/visits"):                            ({"study": "curve"}, (401, 201, 403, 201, 201, 201)),
    ("GET", "/v1/nothing"):                            (None, (401, 404, 404, 404, 404, 404)),
    ("POST", "/v1/studies"):                           (None, (401, 405, 405, 405, 405, 405)),
    ("HEAD", "/v1/studies"):                           (None, (401, 405, 405, 405, 405, 405)),
    ("DELETE", "/v1"):                                 (None, (401, 405, 405, 405, 405, 405)),
}  # fmt: skip
LATER = {
    ("POST", "/v1/studies/{study}/retry"),  # changes what the others look at: below
    ("GET", "/v1/events"),  # has no end
    ("GET", "/static/{version}/{path:path}"),
    ("GET", "/v1/studies/{study}/trials/{trial}/files/{path:path}"),
}


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callers]:
    folder = tmp_path_factory.mktemp("served")
    with callers(searched(folder), folder / "home") as found:
        wait_for(lambda: found("GET", "/readyz", None).status_code == 204)  # it has looked at its queue
        yield found


def test_each_route_answers_each_scope_as_the_table_says(call: Callers, subtests: pytest.Subtests) -> None:
    scopes = (None, "read", "work", "write", "code", "admin")
    for (method, path), (body, statuses) in TABLE.items():
        with subtests.test(f"{method} {path}"):
            answers = [call(method, path, scope, json=body) for scope in scopes]  # type: ignore[arg-type]
            assert tuple(answer.status_code for answer in answers) == statuses
            for answer in answers:
                assert "Traceback" not in answer.text
                assert {"nosniff"} == set(answer.headers.get_list("x-content-type-options"))
                if answer.status_code >= 400 and method != "HEAD":
                    assert answer.headers["content-type"] == MEDIA_TYPE
                    document = answer.json()
                    assert KINDS[document["type"].removeprefix("/problems/")].status == document["status"]
                    assert document["instance"] == answer.headers["x-request-id"]


def test_every_route_is_in_the_table(call: Callers) -> None:
    there = {
        (method, route.path_format)  # type: ignore[attr-defined]
        for router in routes.ROUTERS
        for route in router.routes
        for method in route.methods  # type: ignore[attr-defined]
    }
    asked = {
        (method, path)
        for method, path in there
        if any(
            method == verb and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), place.partition("?")[0])
            for verb, place in TABLE
        )
    }
    assert there - asked - LATER == set()


def test_answers_are_what_commands_print(call: Callers) -> None:
    where: Any = {"workspace": call.service.workspace}
    answers = {
        "/v1/studies": studies.list_studies(**where),
        "/v1/studies/curve/report": show.show(**where, study="curve"),
        "/v1/studies/curve/best": show.best(**where, study="curve"),
        "/v1/studies/~1/ranges": show.ranges(**where, study="curve"),
        "/v1/studies/curve/trials/2/story": show.why(**where, study="curve", trial=2),
        "/v1/spaces": spaces.list_spaces(),
        "/v1/objectives?name=lora": spaces.objectives(name="lora"),
    }
    for path, value in answers.items():
        assert call("GET", path, "read").json() == json.loads(json.dumps(value.to_json())), path
    shown = call("GET", "/v1/studies/curve").json()
    assert shown.pop("queue") is None, "no service has it"
    assert shown == call("GET", "/v1/studies/curve/report").json()
    assert "name: curve" in call("GET", "/v1/studies/curve/space").text
    assert call("GET", "/v1/studies/curve/space?format=json").json()["name"] == "curve"
    brief = call("GET", "/v1/studies/curve/space?defaults=false").text
    assert "x: {min: 0.0, max: 1.0}\n" in brief and "step" not in brief
    for name in ("exp #1_2", "[x", "@home", "2"):  # which YAML would read as something else
        copy = call("GET", "/v1/studies/curve/space?defaults=false", params={"name": name}).text
        assert read(copy, "copy.yaml")[0]["name"] == name
    assert (
        call("GET", "/v1/studies/curve/space?wider=true").text == call("GET", "/v1/studies/curve/space").text
    )
    assert call("GET", "/v1/spaces/text?space=lora").text == shipped_text("lora")
    foreign = call("POST", "/v1/spaces/validate", json={"text": SWEEP})
    assert (foreign.status_code, foreign.json()["tool"]) == (422, "W&B")


def test_a_study_shows_where_it_is_in_the_queue_and_what_has_changed(call: Callers) -> None:
    body = {"space": VALID["text"], "hold": True}
    assert call("PUT", "/v1/studies/held", json=body).status_code == 201

    def still() -> Any:
        """The study, once its queue has looked at it."""
        shown = call("GET", "/v1/studies/held")
        tag = {"If-None-Match": shown.headers["etag"]}
        return shown if call("GET", "/v1/studies/held", headers=tag).status_code == 304 else None

    shown = wait_for(still)
    queued, tag = shown.json()["queue"], shown.headers["etag"]
    assert (queued["state"]["state"], queued["place"], queued["priority"]) == ("paused", None, "normal")
    waited = call("GET", "/v1/studies/held?wait=0.05", headers={"If-None-Match": tag})
    assert waited.status_code == 304
    for status in (200, 412):
        change: Any = {"json": {"priority": "high"}, "headers": {"If-Match": tag}}
        assert call("PATCH", "/v1/studies/held", **change).status_code == status
    again = call("GET", "/v1/studies/held?wait=20", headers={"If-None-Match": tag})
    assert again.json()["queue"]["priority"] == "high" and again.headers["etag"] != tag
    assert call("DELETE", "/v1/studies/held").status_code == 200


def test_a_space_is_refused_with_each_issue_at_its_line(call: Callers) -> None:
    text = VALID["text"].replace("min:", "mim:").replace("budget: {trials", "budget: {trails")
    document = call("POST", "/v1/spaces/validate", "read", json={"text": text}).json()
    assert document["type"] == "/problems/space-invalid"
    assert document["title"] == f"The space has {len(document['issues'])} issues"
    assert {(issue["line"], issue["path"]) for issue in document["issues"]} >= {(6, "budget.trails")}
    assert 'did you mean "trials"' in document["detail"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"txt": "a"}, 'unknown field "txt"; did you mean "text"?'),
        ({}, "give either text or space"),
        ({"text": 1}, "string"),
        ({"text": "a", "space": {}}, "give either text or space"),
        ([], "valid dictionary"),
    ],
)
def test_a_wrong_body_is_refused_with_what_was_meant(call: Callers, body: Any, said: str) -> None:
    answer = call("POST", "/v1/spaces/validate", json=body)
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/request-invalid")
    assert said in answer.json()["issues"][0]["message"]


def test_what_is_no_json_is_malformed(call: Callers, subtests: pytest.Subtests) -> None:
    for content in (b"{", b"\xff", b'{"text": NaN}', b"[" * 100_000):
        with subtests.test(repr(content[:10])):
            headers = {"Content-Type": "application/json"}
            answer = call("POST", "/v1/spaces/validate", content=content, headers=headers)
            assert answer.status_code in (400, 422) and answer.json()["detail"]
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = call("POST", "/v1/spaces/validate", content=b"{}", headers={"Content-Type": kind})
        assert answer.status_code == 422, "a form of another website sends these"


def test_an_unknown_parameter_is_not_passed_over(call: Callers) -> None:
    document = call("GET", "/v1/studies?limt=2").json()
    assert document["status"] == 422 and 'did you mean "limit"?' in document["detail"]


def test_pages_follow_each_other(call: Callers) -> None:
    assert "link" not in call("GET", "/v1/studies?limit=1").headers
    assert call("GET", "/v1/studies?limit=1&after=curve").json() == []
    assert call("GET", "/v1/studies?limit=0").status_code == 422
    assert call("GET", "/v1/studies?after=gone").status_code == 422
    for name in ("b", "a", "c"):
        optuna.create_study(study_name=name, storage=call.service.workspace.url)
    seen, path = [], "/v1/studies?limit=1"
    while path:
        answer = call("GET", path)
        seen += [study["name"] for study in answer.json()]
        link = re.match(r"<(.*)>", answer.headers.get("link", ""))
        path = f"/v1/studies{link[1]}" if link else ""
    assert seen == ["curve", "b", "a", "c"]
    for name in ("b", "a", "c"):
        assert call("DELETE", f"/v1/studies/{name}").json()["study"] == name


def test_studies_are_listed_by_state(call: Callers) -> None:
    listed = {
        state: call("GET", f"/v1/studies?state={state}").json() for state in ("queued", "finished", "stopped")
    }
    assert [each["name"] for rows in listed.values() for each in rows] == ["curve"]
    assert call("GET", "/v1/studies?state=done").status_code == 422


def test_metrics_tell_of_the_studies_that_the_caller_sees(call: Callers) -> None:
    call("GET", "/v1", "read")
    study = optuna.load_study(study_name="curve", storage=call.service.workspace.url)
    study.set_user_attr(LEASES_LOST, 2)
    told = call("GET", "/metrics", "read").text
    assert re.search(r'^hpsearch_trials_total\{state="complete",study="curve"\} 3\.0$', told, re.M)
    reports = sum(len(trial.intermediate_values) for trial in study.get_trials(deepcopy=False))
    assert re.search(rf'^hpsearch_reports_total\{{study="curve"\}} {reports}\.0$', told, re.M) and reports
    assert re.search(r'^hpsearch_leases_lost_total\{study="curve"\} 2\.0$', told, re.M)
    assert re.search(r'^hpsearch_best\{study="curve"\} ', told, re.M)
    assert re.search(r'^hpsearch_queue_length\{priority="high"\} 0\.0$', told, re.M)
    assert re.search(r'^hpsearch_slots\{kind="cores",used="no"\} [1-9]', told, re.M)
    assert re.search(r'^hpsearch_http_requests_total\{method="GET",status="200"\} ', told, re.M)
    token = call.service.tokens.create("other", "read", studies=["other*"]).token
    assert "curve" not in call("GET", "/metrics", token=token).text


def test_a_bound_token_sees_its_studies_alone(call: Callers) -> None:
    token = call.service.tokens.create("bound", "write", studies=["other*"]).token
    assert call("GET", "/v1/studies", token=token).json() == []
    for path in ("/v1/studies/curve", "/v1/studies/~1", "/v1/studies/others"):
        answer = call("GET", path, token=token)
        assert answer.status_code == 404
        assert "curve" not in answer.json()["detail"], "no name of another study is told"
    assert call("POST", "/v1/studies/curve/stop", token=token).status_code == 404
    assert 'did you mean "curve"' in call("GET", "/v1/studies/curv", "read").json()["detail"]


def test_a_token_is_created_used_and_revoked(call: Callers) -> None:
    body = {"name": "anna", "scope": "read", "expires": "1d"}
    made = call("POST", "/v1/tokens", json=body).json()
    assert call("GET", "/v1", token=made["token"]).json()["caller"] == "anna"
    assert "token" not in {key for each in call("GET", "/v1/tokens").json() for key in each}
    assert call("DELETE", f"/v1/tokens/{made['id']}").status_code == 200
    assert call("GET", "/v1", token=made["token"]).status_code == 401
    for wrong in ({"expires": "soon"}, {"scope": "reed"}, {"scope": "work"}, {"name": "a\nb"}):
        assert call("POST", "/v1/tokens", json={"name": "x"} | wrong).status_code == 422, wrong


def test_a_ticket_opens_one_path_once(call: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    def ticket(path: str) -> str:
        link: str = call("POST", "/v1/tickets", "read", json={"path": path}).json()["link"]
        return link

    link = ticket("/v1/studies/curve/space?format=json")
    assert call("GET", link, None).json()["name"] == "curve"
    assert call("GET", link, None).status_code == 401
    other = ticket("/v1/studies")
    assert call("GET", other.replace("/v1/studies", "/v1/tokens"), None).status_code == 401
    assert call("GET", other, None).status_code == 401, "it was used up by the attempt"
    admins = call("POST", "/v1/tickets", "admin", json={"path": "/v1/tokens"}).json()["link"]
    assert call("GET", admins, None).status_code == 403, "a link reads, whoever gave it out"
    assert call("POST", ticket("/v1/tickets"), None, json={"path": "/v1"}).status_code == 401
    late = ticket("/v1")
    now = __import__("time").monotonic()
    monkeypatch.setattr("hpsearch.search.service.tickets.time.monotonic", lambda: now + SECONDS + 1)
    assert call("GET", late, None).status_code == 401


def test_killed_again_and_tried_again(call: Callers) -> None:
    again = call("POST", "/v1/studies/curve/retry", "write")
    assert (again.status_code, again.json()["trials"]) == (200, [2])
    assert call("POST", "/v1/studies/curve/retry", "write").status_code == 409
    for _ in range(2):
        killed = call("POST", "/v1/studies/curve/trials/2/kill", "write")
        assert (killed.status_code, killed.json()["trials"]) == (200, [2])


def test_a_configuration_is_tried_once_for_each_key(call: Callers) -> None:
    def tried(key: str, **body: Any) -> Any:
        headers = {"Idempotency-Key": key}
        return call("POST", "/v1/studies/curve/trials", "write", json=body, headers=headers)

    first = tried("a", params={"x": 0.5})
    assert (first.status_code, first.json()["trial"], first.headers["location"]) == (201, 4, "trials/4")
    again = tried("a", params={"x": 0.5})
    assert (again.status_code, again.json()["trial"], again.json()["made"]) == (200, 4, False)
    assert tried("a", params={"x": 0.25}).json()["code"] == "request-differs"
    copied = tried("b", **{"from": 1}).json()
    assert copied["trial"] == 5
    assert copied["params"] == call("GET", "/v1/studies/curve/trials/1").json()["params"]
    wrong = tried("c", params={"x": 7.0}).json()
    assert (wrong["code"], "x: 7 is outside" in wrong["detail"]) == ("trial-params", True)
    rows = call("GET", "/v1/studies/curve/trials?state=waiting").json()
    assert {4, 5} <= {row["number"] for row in rows}


def test_another_tool_file_is_converted_and_reads_no_other_file(call: Callers, tmp_path: Path) -> None:
    made = call("POST", "/v1/spaces/convert", "read", json={"text": SWEEP}).json()
    assert (made["tool"], "lr:" in made["text"]) == ("W&B", True)
    (tmp_path / "secret.json").write_text('{"lr": {"_type": "uniform", "_value": [0, 0.123]}}')
    nni = f"searchSpaceFile: {tmp_path}/secret.json\ntrialCommand: python train.py\ntuner: {{name: Random}}\n"
    refused = call("POST", "/v1/spaces/convert", "read", json={"text": nni})
    assert refused.status_code == 422 and "0.123" not in refused.text
    for wrong in ({"text": "a: 1"}, {"text": SWEEP, "dialect": "NNI"}, {"text": SWEEP, "dialect": "wandb"}):
        assert call("POST", "/v1/spaces/convert", "read", json=wrong).status_code == 422


def test_a_space_is_proposed_from_a_script_and_reads_no_other_file(call: Callers, tmp_path: Path) -> None:
    def asked(**body: Any) -> Any:
        return call("POST", "/v1/spaces/propose", "read", json=body)

    made = asked(text=SCRIPT, file="code/fit.py").json()
    assert (made["file"], '[python, code/fit.py, "${args}"]' in made["text"]) == ("fit_space.yaml", True)
    assert "/alone/" not in made["text"]
    (tmp_path / "secret.yaml").write_text("lr: 0.123\n")
    hydra = f"import hydra\n@hydra.main(config_path='{tmp_path}', config_name='secret')\ndef main(cfg): ...\n"
    for wrong in (
        hydra,
        f"from omegaconf import OmegaConf\nOmegaConf.load('{tmp_path}/secret.yaml')\n",
        "x = (",
    ):
        refused = asked(text=wrong)
        assert refused.status_code == 422 and "0.123" not in refused.text
        assert refused.json()["detail"].startswith("train.py")
    for name in ("/etc/passwd", "sweep.yaml", "a b.py"):
        assert asked(text=SCRIPT, file=name).status_code == 422
