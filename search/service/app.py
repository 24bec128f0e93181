"""The application: the routes, behind their guard."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any, get_args

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import Route

from ...objectives import ObjectiveError
from ...spaces import SpaceError
from ...spaces.errors import hint
from ...storage import StorageError
from ..errors import SearchError
from . import routes
from .freshness import Unchanged, unchanged
from .guard import Guard
from .openapi import TITLE, describe
from .problems import MEDIA_TYPE, Problem, problem, problem_of
from .routes.mcp import Endpoint
from .routes.optuna import Dashboard
from .service import Service
from .visits import PATH

ERRORS = (SearchError, StorageError, SpaceError, ObjectiveError, OSError, Problem, Exception)
BY_STATUS = {400: "malformed", 404: "not-found", 405: "method-not-allowed", 413: "too-large"}


def make_app(service: Service) -> FastAPI:
    """The application of a service. Its guard is a part of it."""
    tools, dashboard = Endpoint(), Dashboard()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        started = []
        try:
            for part in service.parts:
                part.start()
                started.append(part)
            yield
        finally:
            await tools.close()
            dashboard.close()
            for part in reversed(started):
                part.stop()

    app = FastAPI(
        title=TITLE,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # a route of ours gives it, to those with a token
        redirect_slashes=False,
        strict_content_type=True,
    )
    app.state.service = service
    app.openapi = cache(partial(describe, app))  # type: ignore[method-assign]
    for router in routes.ROUTERS:
        app.include_router(router)
    app.router.routes.append(Route("/mcp", tools, methods=["POST"]))
    app.router.routes += [Route(PATH, dashboard), Route(f"{PATH}/{{path:path}}", dashboard)]
    for error in ERRORS:
        app.add_exception_handler(error, _answer)
    app.add_exception_handler(Unchanged, unchanged)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_middleware(Guard, service=service)
    return app


def answer(request: Request, refusal: Problem) -> Response:
    """A problem as an answer."""
    base = request.app.state.service.settings.base_path
    body = refusal.body(getattr(request.state, "id", ""), base)
    return Response(body, refusal.status, refusal.headers, MEDIA_TYPE)


def _answer(request: Request, error: Exception) -> Response:
    service: Service = request.app.state.service
    refusal = problem_of(error, [service.workspace.url])
    caller = getattr(request.state, "caller", None)
    if refusal.type == "no-such-study" and caller is not None and caller.studies:
        refusal.detail = "there is no such study among those of this token"  # names of others are not told
    if refusal.status == 500:
        logging.getLogger("hpsearch.service").error("%s %r", request.state.id, error)
    return answer(request, refusal)


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    type = BY_STATUS.get(error.status_code, "malformed")
    detail = None
    if error.status_code == 404:
        detail = f"there is nothing at {request.url.path[:200]}"
    elif error.status_code == 400:  # what the parser of JSON raises besides its own errors
        detail = "the body cannot be read: it is not in UTF-8, or too deep"
    return answer(request, Problem(error.status_code, type, None, detail, headers=error.headers))


def _invalid(request: Request, error: Exception) -> Response:
    """Wrong parameters or a wrong body: every mistake with its place."""
    assert isinstance(error, RequestValidationError)
    issues = [_issue(request, each) for each in error.errors()]
    if any(each["type"] == "json_invalid" for each in error.errors()):
        return answer(request, problem("malformed", issues[0]["message"]))
    told = "; ".join(f"{each['path']}: {each['message']}" for each in issues)
    return answer(request, problem("request-invalid", told, issues=issues))


def _issue(request: Request, error: dict[str, Any]) -> dict[str, Any]:
    place, message = list(error["loc"]), str(error["msg"])
    if error["type"] == "json_invalid":
        message = f"this is no JSON: {error.get('ctx', {}).get('error', message)}"
    elif error["type"] == "extra_forbidden":
        known = list(_fields(request.scope.get("route"), place))
        message = f'unknown field "{place[-1]}"; {hint(str(place[-1]), known)}'
    elif error["type"] == "value_error":
        message = message.removeprefix("Value error, ")
    where = place if place[:1] != ["body"] or len(place) == 1 else place[1:]
    return {"path": ".".join(map(str, where)), "message": message}


def _fields(route: Any, place: list[Any]) -> Iterator[str]:
    """The fields that a body has where an unknown one was found."""
    if not isinstance(route, APIRoute) or route.body_field is None:
        return
    models = list(_models(route.body_field.field_info.annotation))
    for name in place[1:-1]:
        inner = [model.model_fields[name].annotation for model in models if name in model.model_fields]
        models = [model for annotation in inner for model in _models(annotation)] or models
    for model in models:
        yield from model.model_fields


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
