"""Who may call a route: what routes take as parameters.

Every route names first which scope its caller needs. `Study` is the name of the study in the path, which the
caller may see. All of these run on the server's loop, as a thread for each would cost more than they do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Path, Request
from fastapi.dependencies.models import Dependant
from pydantic import BaseModel, ConfigDict

from ...spaces.errors import hint
from ...storage.database import open_tables
from ...storage.studies import study_keys
from ..operations import Scope
from .problems import Problem, problem
from .service import Service
from .tokens import Caller


class Body(BaseModel):
    """A body of a request; a field that it does not have is refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


async def the_service(request: Request) -> Service:
    """The service that answers."""
    service: Service = request.app.state.service
    return service


def needs(scope: Scope) -> Callable[[Request], Coroutine[Any, Any, Caller]]:
    """A dependency that gives the caller, where they have a scope and may see the study in the path."""

    async def caller_with(request: Request) -> Caller:
        caller: Caller | None = request.state.caller
        if caller is None:
            raise problem("token-missing", "send the header Authorization: Bearer hps_...")
        if scope not in caller.scopes:
            has = ", ".join(sorted(caller.scopes))
            told = f'this needs the scope "{scope}"; the token has {has}'
            raise problem("scope-missing", told, needs=scope)
        _refuse_unknown_parameters(request)
        if (named := request.path_params.get("study")) is not None:
            service: Service = request.app.state.service
            request.state.study = await _study(service, caller, named)
        return caller

    caller_with.scope = scope  # type: ignore[attr-defined]
    return caller_with


async def the_study(
    request: Request,
    study: Annotated[str, Path(description="Its name; ~17 is the study whose id in the database is 17.")],
) -> str:
    """The name of the study in the path, once `needs` has looked at it."""
    name: str = request.state.study
    return name


async def _study(service: Service, caller: Caller, named: str) -> str:
    name = named
    if named.startswith("~") and named[1:].isdecimal() and len(named) < 19:
        keys = await asyncio.to_thread(study_keys, open_tables(service.workspace.url))
        name = next((each for each, key in keys.items() if key == int(named[1:])), named)
    if not caller.may_see(name):
        raise problem("no-such-study", "there is no such study among those of this token")
    return name


def _refuse_unknown_parameters(request: Request) -> None:
    """A misspelled parameter would be passed over in silence."""
    route = request.scope.get("route")
    if not request.query_params or (dependant := getattr(route, "dependant", None)) is None:
        return
    known = list(_parameters(dependant))
    unknown = [name for name in request.query_params if name not in known and name != "ticket"]
    if unknown:
        issues = [
            {"path": f"query.{name}", "message": f'unknown parameter "{name}"; {hint(name, known)}'}
            for name in dict.fromkeys(unknown)
        ]
        raise Problem(422, "request-invalid", None, issues[0]["message"], issues=issues)


def _parameters(dependant: Dependant) -> Iterator[str]:
    yield from (str(field.alias) for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _parameters(inner)


TheService = Annotated[Service, Depends(the_service)]
Study = Annotated[str, Depends(the_study)]
Reader = Annotated[Caller, Depends(needs("read"))]
Worker = Annotated[Caller, Depends(needs("work"))]
Writer = Annotated[Caller, Depends(needs("write"))]
Coder = Annotated[Caller, Depends(needs("code"))]
Admin = Annotated[Caller, Depends(needs("admin"))]


def next_page(**parameters: object) -> str:
    """The header Link to the next page, relative to the path that was asked for."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return f'<?{urlencode(given)}>; rel="next"'


def names(operation: str) -> dict[str, Any]:
    """How a route is named after its operation."""
    return {"operation_id": operation.replace(" --", "-").replace(" ", "-")}
