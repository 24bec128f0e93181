"""Keeps Ray from losing resources where Tune cancels a place that is about to be reserved."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.air.execution.resources.placement_group import PlacementGroupResourceManager
from ray.util import placement_group_table
from ray.util.placement_group import PlacementGroup

from .cluster import replaced

RESERVE_SECONDS = 5.0  # for Ray to reserve a place, or to find that there is none
POLL_SECONDS = 0.01  # Ray announces that a place is reserved, but not that there is none
UNSETTLED = {"QUEUED", "SCHEDULING_STARTED", "FAILED_TO_COMMIT_RESOURCES"}  # not while waiting for room


@contextmanager
def pending_places_kept() -> Iterator[None]:
    """Cancel no place while Ray is about to reserve it.

    Ray 2.60 may then lose its cores for good (once in about a thousand times): no trial that needs them
    starts any more, even in the next search on that cluster. Tune cancels places where a search ends, and
    where a trial finds an actor before its own has started.
    """
    original = PlacementGroupResourceManager.cancel_resource_request

    def cancel(self: Any, resource_request: Any) -> None:
        for group in self._request_to_staged_pgs[resource_request]:
            _settle(group)
        original(self, resource_request)

    with replaced(PlacementGroupResourceManager, "cancel_resource_request", cancel):
        yield


def _settle(group: PlacementGroup) -> None:
    deadline = time.monotonic() + RESERVE_SECONDS
    while placement_group_table(group)["stats"]["scheduling_state"] in UNSETTLED:
        if time.monotonic() > deadline:
            return
        time.sleep(POLL_SECONDS)
