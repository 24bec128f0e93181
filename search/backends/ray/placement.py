"""Places on a node that are given up before they are there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.air.execution.resources.placement_group import PlacementGroupResourceManager
from ray.util import placement_group_table
from ray.util.placement_group import PlacementGroup

from .cluster import replaced

SETTLE_SECONDS = 5.0  # for Ray to reserve a place, or to find that it has none
LOOK_SECONDS = 0.01  # Ray tells when a place is there, but not when it finds that it has none
UNSETTLED = {"QUEUED", "SCHEDULING_STARTED", "FAILED_TO_COMMIT_RESOURCES"}  # who waits for room is settled


@contextmanager
def places_are_kept() -> Iterator[None]:
    """Give no place up while Ray is about to reserve it.

    Ray 2.60 may lose its cores for good then (one in some thousand times): no trial that asks for them starts
    any more, also in the next search on that cluster. Tune gives places up where a search ends, or a trial
    finds an actor, before the one that starts for it.
    """
    original = PlacementGroupResourceManager.cancel_resource_request

    def cancel(self: Any, resource_request: Any) -> None:
        for group in self._request_to_staged_pgs[resource_request]:
            _settle(group)
        original(self, resource_request)

    with replaced(PlacementGroupResourceManager, "cancel_resource_request", cancel):
        yield


def _settle(group: PlacementGroup) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS
    while placement_group_table(group)["stats"]["scheduling_state"] in UNSETTLED:
        if time.monotonic() > deadline:
            return
        time.sleep(LOOK_SECONDS)
