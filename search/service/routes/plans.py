"""Plans: measure a little, and foresee a search."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response
from pydantic import Field

from .. import submission
from ..access import Reader, TheService, Writer, names
from ..planning import Plan
from ..problems import problem
from ..service import Service
from ..submission import CodeBody
from ..tokens import Caller
from ..watching import LONGEST_WAIT

router = APIRouter(prefix="/v1/plans", tags=["spaces"])


class PlanBody(CodeBody):
    """A space whose search is to be foreseen."""

    space: str | dict[str, Any] = Field(description="The text of a space file, or what one holds.")
    seconds: float = Field(60.0, ge=1, le=3600, description="To measure at most.")


@router.post("", status_code=202, responses={200: {}}, **names("plan"))
def make_plan(
    caller: Writer,
    service: TheService,
    body: PlanBody,
    response: Response,
    idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
) -> Annotated[Any, Plan]:
    """Measure for a while in a part of the machine that is free; 409 where none is. `Location` has it."""
    spec = submission.read(body.space)
    if not caller.may_see(spec.name):
        raise problem("scope-missing", "the token has other studies than this one", needs="admin")
    spec, code = submission.accepted(spec, body, service, caller)
    key = None if idempotency_key is None else f"{caller.name} {idempotency_key}"
    plan, made = service.plans.make(spec, body.seconds, folder=code.folder, key=key)
    response.status_code = 202 if made else 200
    response.headers["Location"] = f"plans/{plan.id}"
    return plan.to_json()


@router.get("/{plan}", **names("plan --result"))
async def get_plan(
    caller: Reader,
    service: TheService,
    plan: Annotated[str, Path(description="Its id.")],
    wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for its end.")] = 0,
) -> Annotated[Any, Plan]:
    """A plan, and its forecast once it is done. It is forgotten when the server ends."""
    found = _plan(service, caller, plan)
    if wait > 0 and found.state == "measuring":
        await service.watch.changed(lambda: _plan(service, caller, plan).state, found.state, wait)
    return _plan(service, caller, plan).to_json()


@router.delete("/{plan}", **names("plan --end"))
def end_plan(
    caller: Writer, service: TheService, plan: Annotated[str, Path(description="Its id.")]
) -> Annotated[Any, Plan]:
    """End a plan that is measured; one that has ended stays as it is."""
    _plan(service, caller, plan)
    service.plans.end(f"ended by {caller.name}", plan)
    return _plan(service, caller, plan).to_json()


def _plan(service: Service, caller: Caller, id: str) -> Plan:
    plan = service.plans.get(id)
    if plan is None or not caller.may_see(plan.study):
        raise problem("no-such-plan", "there is no such plan; a server that ends forgets its plans")
    return plan
