"""A test for those who are notified: only the server's owner names them, in serve.yaml."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter

from ...exchange.notices.trying import Tries, try_each
from ..access import Admin, TheService, names

router = APIRouter(prefix="/v1", tags=["notices"])


@router.post("/webhooks/test", **names("webhooks test"))
def test(caller: Admin, service: TheService) -> Annotated[Any, Tries]:
    """Send a test to everybody whom serve.yaml names under `notify`, and tell who did not take it."""
    return try_each(service.targets, service.page_of()).to_json()
