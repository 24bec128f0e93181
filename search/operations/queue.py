"""The queue of a workspace: what runs, what waits and why, when it begins and ends, and who has what."""

from __future__ import annotations

import time

from ...storage.database import open_tables
from ...storage.workspace import Workspace
from ..queue.observe import observe, with_times
from ..queue.slots import Machine
from ..queue.view import MachineView, Queue, Serving, Situation, view


def queue(*, workspace: Workspace, serving: Serving | None = None) -> Queue:
    """List the studies that services have, or that are searched now, in the order of the queue.

    It is as a service of this machine would see it: one that goes by `serving`, or else by nothing special.
    """
    serving = serving or Serving(Machine.here())
    database = open_tables(workspace.url)
    studies = with_times(database, observe(workspace, database))
    now = time.time()
    return view(Situation(studies, serving.machine, now, serving.server, draining=serving.draining))


def machine(*, workspace: Workspace, serving: Serving | None = None) -> MachineView:
    """Show the cores, GPUs and memory of this machine, and which study has which."""
    return queue(workspace=workspace, serving=serving).machine
