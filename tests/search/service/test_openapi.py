"""The description of the routes is the one that is committed, and the routes keep to it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from httpx2 import InvalidURL
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core import NotSet
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from hpsearch.search.operations import Scope
from hpsearch.search.service.openapi import document, scopes_of_routes
from hpsearch.search.service.tokens import HAS

from ...support.serving import Callers, callers, searched

COMMITTED = Path(__file__).parents[3] / "docs" / "openapi.json"
EXAMPLES = int(os.environ.get("HPSEARCH_EXAMPLES", "1"))  # of each route and scope; .ci/extras asks for more
CHECKS = [content_type_conformance, response_schema_conformance, status_code_conformance]
SCOPES: tuple[Scope | None, ...] = (None, "read", "work", "write", "code", "admin")


def test_the_committed_description_is_of_these_routes() -> None:
    """Clients are generated from it: what it says only grows."""
    again = "write it anew, and see what changed: hpsearch schema --openapi --force -o docs/openapi.json"
    assert json.loads(COMMITTED.read_text()) == json.loads(json.dumps(document())), again


def test_every_route_has_a_name_of_its_own_and_says_its_scope() -> None:
    found = [
        (path, method, operation)
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    ]
    names = [operation["operationId"] for _, _, operation in found]
    assert len(set(names)) == len(names)
    open_ones = {path for path, _, operation in found if not operation["security"]}
    assert open_ones <= {
        "/healthz",
        "/readyz",
        "/",
        "/problems/{type}",
        "/client.py",
        "/static/{version}/{path}",
    }
    assert all(operation["summary"] for _, _, operation in found)


@schemathesis.serializer("application/zip")
def as_it_is(context: Any, value: Any) -> bytes:
    """Bundles are bytes, and what was generated for them is."""
    return value if isinstance(value, bytes) else json.dumps(value).encode()


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callers]:
    folder = tmp_path_factory.mktemp("described")
    with callers(searched(folder), folder / "home") as found:
        yield found


def test_generated_requests_get_an_answer_that_is_described(call: Callers, subtests: pytest.Subtests) -> None:
    schema = schemathesis.openapi.from_dict(document()).exclude(path="/v1/events")  # it has no end
    needed = {(route.path_format, method): scope for route, method, scope in scopes_of_routes()}
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        scope = needed.get((operation.path, operation.method.upper()))
        for mode in GenerationMode:
            with subtests.test(f"{operation.label}, {mode.value}"):
                _try(call, operation, mode, scope)


def _try(call: Callers, operation: Any, mode: GenerationMode, scope: Scope | None) -> None:
    """Send generated requests as each caller, and look at what comes back."""

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def tried(case: Any) -> None:
        for who in SCOPES:
            answer = _sent(call, case, who)
            assert answer.status_code < 500, answer.text
            allowed = scope is None or (who is not None and scope in HAS[who])
            if not allowed:
                assert answer.status_code in ((401, 400) if who is None else (403, 400)), answer.text
            case.validate_response(answer, checks=CHECKS)

    with suppress(Unsatisfiable):  # nothing can be wrong of a route without parameters
        tried()


def _sent(call: Callers, case: Any, who: Scope | None) -> Any:
    sent: dict[str, Any] = {"headers": {"Content-Type": case.media_type or "application/json"}}
    if not isinstance(case.body, NotSet):
        sent["content"] = case.body if isinstance(case.body, bytes) else json.dumps(case.body).encode()
    try:
        return call(case.method, case.formatted_path, who, params=case.query or None, **sent)
    except (InvalidURL, UnicodeEncodeError):
        reject()
