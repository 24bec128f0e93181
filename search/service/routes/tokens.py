"""Tokens, which only who has the scope `admin` gives out, and links that work once."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import Field

from ....spaces.times import seconds
from ...errors import UsageError
from ...operations import Scope
from ..access import Admin, Body, Reader, TheService, names
from ..problems import problem
from ..tickets import Ticket
from ..tokens import NewToken, Token

router = APIRouter(prefix="/v1", tags=["tokens"])


class TokenBody(Body):
    """A token to be created."""

    name: Annotated[str, Field(min_length=1, max_length=64, description="What it is listed as.")]
    scope: Scope = "read"
    studies: Annotated[list[str], Field(max_length=100)] = Field(
        [], description="Patterns of the studies it is for; none: all. A token for work needs some."
    )
    expires: str | None = Field(None, description="A time, such as 12h or 30d; null: never.")


class TicketBody(Body):
    """A path to be read once, without a token."""

    path: Annotated[str, Field(pattern=r"^/v1(/[!-~]*)?$", max_length=2000)]


@router.get("/tokens", **names("token list"))
def list_tokens(caller: Admin, service: TheService) -> Annotated[Any, list[Token]]:
    """The tokens that open this server, without their texts."""
    return service.tokens.list().to_json()


@router.post("/tokens", status_code=201, **names("token create"))
def create(
    caller: Admin, service: TheService, body: TokenBody, response: Response
) -> Annotated[Any, NewToken]:
    """Create a token. Its text is in this answer and nowhere else."""
    try:
        time = None if body.expires is None else seconds(body.expires)
    except ValueError as error:
        raise UsageError(f"expires {error}") from error
    made = service.tokens.create(body.name, body.scope, studies=body.studies, seconds=time)
    response.headers["Location"] = f"tokens/{made.id}"
    return made.to_json()


@router.delete("/tokens/{id}", **names("token revoke"))
def revoke(caller: Admin, service: TheService, id: str) -> Annotated[Any, Token]:
    """Take a token away, at once; 404 where there is none of this id."""
    return service.tokens.revoke(id).to_json()


@router.post("/tickets", status_code=201, **names("ticket"))
def ticket(caller: Reader, service: TheService, body: TicketBody) -> Annotated[Any, Ticket]:
    """A link that works for 60 s and one GET, for a browser's downloads."""
    if "ticket=" in body.path or "#" in body.path:
        raise problem("request-invalid", "a path has neither a ticket nor a fragment")
    return service.tickets.give(body.path, caller).to_json()
