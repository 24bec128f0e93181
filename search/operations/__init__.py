"""Everything a user can do, one function each. The command line, Python and the service are faces of it.

An operation takes keywords alone, plain values and a `Workspace`; it returns a frozen dataclass with
`to_json()` and prints nothing. A long one says how far it is by the functions it is given. Errors are
`SearchError`, `StorageError`, `SpaceError` or `ObjectiveError`, whose `code` programs can rely on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Operation:
    """One thing a user can do. Its module is loaded where it is used: most need Optuna, some torch."""

    name: str  # as the command line has it
    path: str  # of its module in this room and its function
    of_workspace: bool = True  # whether it needs a database

    @property
    def function(self) -> Callable[..., Any]:
        """The function itself."""
        module, _, name = self.path.partition(":")
        function: Callable[..., Any] = getattr(import_module(f".{module}", __package__), name)
        return function


OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation("run", "run:run"),
        Operation("list", "studies:list_studies"),
        Operation("show", "show:show"),
        Operation("show --trial", "show:show_trial"),
        Operation("show --why", "show:why"),
        Operation("show --ranges", "show:ranges"),
        Operation("trials", "show:trials"),
        Operation("best", "show:best"),
        Operation("export", "export:export"),
        Operation("stop", "control:stop"),
        Operation("pause", "control:pause"),
        Operation("resume", "control:resume"),
        Operation("kill", "control:kill"),
        Operation("retry", "control:retry"),
        Operation("delete", "studies:delete"),
        Operation("copy", "studies:copy"),
        Operation("backup", "studies:backup"),
        Operation("objectives", "spaces:objectives", of_workspace=False),
        Operation("init", "spaces:init", of_workspace=False),
        Operation("schema", "spaces:schema", of_workspace=False),
        Operation("validate", "spaces:validate", of_workspace=False),
        Operation("plan", "plan:plan", of_workspace=False),
        Operation("lr-find", "plan:lr_find", of_workspace=False),
        Operation("train", "train:train", of_workspace=False),
        Operation("generate", "train:generate"),
        Operation("doctor", "doctor:doctor"),
        Operation("doctor --kill-test", "doctor:kill_test", of_workspace=False),
        Operation("doctor --pack-test", "doctor:pack_test", of_workspace=False),
    )
}
