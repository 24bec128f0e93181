"""Everything a user can do, one function each. The command line, Python and the service are faces of it.

An operation takes keywords alone, plain values and a `Workspace`; it returns a frozen dataclass with
`to_json()` and prints nothing. A long one says how far it is by the functions it is given. Errors are
`SearchError`, `StorageError`, `SpaceError` or `ObjectiveError`, whose `code` programs can rely on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

Scope = Literal["read", "work", "code"]


@dataclass(frozen=True)
class Operation:
    """One thing a user can do. Its module is loaded where it is used: most need Optuna, some torch."""

    name: str  # as the command line has it
    path: str  # of its module in this room and its function
    scope: Scope  # what it needs: to read, to change studies and files, or to run an objective's code
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
        Operation("run", "run:run", "code"),
        Operation("list", "studies:list_studies", "read"),
        Operation("show", "show:show", "read"),
        Operation("show --trial", "show:show_trial", "read"),
        Operation("show --why", "show:why", "read"),
        Operation("show --ranges", "show:ranges", "read"),
        Operation("trials", "show:trials", "read"),
        Operation("best", "show:best", "read"),
        Operation("export", "export:export", "read"),
        Operation("stop", "control:stop", "work"),
        Operation("pause", "control:pause", "work"),
        Operation("resume", "control:resume", "work"),
        Operation("kill", "control:kill", "work"),
        Operation("retry", "control:retry", "work"),
        Operation("delete", "studies:delete", "work"),
        Operation("copy", "studies:copy", "work"),
        Operation("backup", "studies:backup", "work"),
        Operation("objectives", "spaces:objectives", "read", of_workspace=False),
        Operation("init", "spaces:init", "read", of_workspace=False),
        Operation("schema", "spaces:schema", "read", of_workspace=False),
        Operation("validate", "spaces:validate", "code", of_workspace=False),
        Operation("plan", "plan:plan", "code", of_workspace=False),
        Operation("lr-find", "plan:lr_find", "code", of_workspace=False),
        Operation("train", "train:train", "code", of_workspace=False),
        Operation("generate", "train:generate", "read"),
        Operation("doctor", "doctor:doctor", "read"),
        Operation("doctor --kill-test", "doctor:kill_test", "code", of_workspace=False),
        Operation("doctor --pack-test", "doctor:pack_test", "code", of_workspace=False),
    )
}
