"""The queue of a workspace: what runs, what waits and why, when it begins and ends, and who has what."""

from __future__ import annotations

import time

from ...storage.database import open_tables
from ...storage.workspace import Workspace
from ..queue.observe import observe, with_times
from ..queue.slots import Machine
from ..queue.view import MachineView, Queue, Situation, view


def queue(*, workspace: Workspace, lanes: int = 1, settle: float | None = None) -> Queue:
    """List the studies that services have, or that are searched now, in the order of the queue.

    It is as a service with so many `lanes` on this machine sees it, whether one runs or not. `settle` is for
    how many seconds a study runs there at least before it makes room for another.
    """
    return view(situation_of(workspace, lanes, settle))


def machine(*, workspace: Workspace, lanes: int = 1) -> MachineView:
    """Show the cores, GPUs and memory of this machine, and which study has which."""
    return view(situation_of(workspace, lanes)).machine


def situation_of(workspace: Workspace, lanes: int, settle: float | None = None) -> Situation:
    """The studies of a workspace as they are now."""
    database = open_tables(workspace.url)
    studies = with_times(database, observe(workspace, database))
    return Situation(studies, Machine.here(lanes, settle), time.time())
