"""The description of all routes: OpenAPI, with the scope that each needs and the problems it may answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from ..operations import Scope
from . import routes
from .answers import answer_of, schemas
from .problems import MEDIA_TYPE

TITLE = "hpsearch"
VERSION = "1"  # of the routes, which only grow; hpsearch's own is at /v1
PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "instance"],
    "properties": {
        "type": {"type": "string", "description": "A path on the server that explains it."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string", "description": "The request, as the server's log has it."},
        "code": {"type": "string", "description": "The kind of error, which stays the same."},
        "needs": {"type": "string", "description": "The scope that is missing."},
        "issues": {"type": "array", "items": {"$ref": "#/components/schemas/Issue"}},
        "next_steps": {"type": "array", "items": {"type": "object"}},
    },
}
ISSUE = {
    "type": "object",
    "required": ["path", "message"],
    "properties": {
        "file": {"type": "string"},
        "line": {"type": "integer", "description": "From 1; not there without a place."},
        "column": {"type": "integer"},
        "path": {"type": "string"},
        "message": {"type": "string"},
    },
}


def document() -> dict[str, Any]:
    """The description of the service."""
    app = FastAPI(title=TITLE, openapi_url=None)
    for router in routes.ROUTERS:
        app.include_router(router)
    return describe(app)


def describe(app: FastAPI) -> dict[str, Any]:
    """The description of an application's routes."""
    found = get_openapi(
        title=TITLE,
        version=VERSION,
        description="Searches submitted, queued, watched and steered from anywhere.",
        routes=app.routes,
    )
    found["paths"] = dict(sorted(found["paths"].items()))  # whatever the order in which routes are tried
    scopes = {(route.path_format, method): scope for route, method, scope in scopes_of_routes()}
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            scope = scopes.get((path, method.upper()))
            operation["security"] = [] if scope is None else [{"bearer": []}]
            if scope is not None:
                operation["x-scope"] = scope
            operation["responses"].pop("422", None)
            content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
            operation["responses"]["default"] = {"description": "A problem.", "content": content}
    parts = found.setdefault("components", {})
    known = parts.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        known.pop(unused, None)
    known |= _answers(found["paths"]) | {"Problem": PROBLEM, "Issue": ISSUE}
    parts["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "hps_..."}}
    return found


def _answers(paths: dict[str, Any]) -> dict[str, Any]:
    """Describe what routes answer with; the schemas to which that refers."""
    routes_by_name = {route.operation_id: route for route in _api_routes()}
    operations = [each for methods in paths.values() for each in methods.values()]
    answers = {
        each["operationId"]: answer_of(routes_by_name[each["operationId"]].endpoint) for each in operations
    }
    made, referred = schemas({name: answer for name, answer in answers.items() if answer is not None})
    for operation in operations:
        if (schema := made.get(operation["operationId"])) is not None:
            for status in operation["responses"].keys() & {"200", "201", "202"}:
                operation["responses"][status]["content"] = {"application/json": {"schema": schema}}
    return referred


def _api_routes() -> Iterator[APIRoute]:
    for router in routes.ROUTERS:
        yield from (route for route in router.routes if isinstance(route, APIRoute))


def scopes_of_routes() -> Iterator[tuple[APIRoute, str, Scope]]:
    """The routes that need a scope, by method."""
    for route in _api_routes():
        for inner in route.dependant.dependencies:
            if (scope := getattr(inner.call, "scope", None)) is not None:
                for method in route.methods or ():
                    yield route, method, scope
