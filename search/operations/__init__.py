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

Scope = Literal["read", "work", "write", "code", "admin"]


@dataclass(frozen=True)
class Operation:
    """One thing a user can do. Its module is loaded where it is used: most need Optuna, some torch."""

    name: str  # as the command line has it
    path: str  # of its module in this room and its function
    scope: Scope  # what it needs: to read, to work on trials, to change studies, to bring code, or all
    of_workspace: bool = True  # whether it needs a database
    command: bool = True  # whether it is a command; the service alone has others

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
        Operation("report", "report:report", "read"),
        Operation("ladder", "show:ladder", "read", command=False),
        Operation("improvements", "watch:improvements", "read", command=False),
        Operation("curves", "watch:curves", "read", command=False),
        Operation("files", "watch:files", "read", command=False),
        Operation("file", "watch:open_file", "read", command=False),
        Operation("log", "watch:log", "read", command=False),
        Operation("winner", "winner:winner", "read", command=False),
        Operation("winner --zip", "winner:winner_zip", "read", command=False),
        Operation("figure", "show:figure", "read", command=False),
        Operation("forecast", "forecast:forecast", "read", command=False),
        Operation("stop", "control:stop", "write"),
        Operation("pause", "control:pause", "write"),
        Operation("resume", "control:resume", "write"),
        Operation("kill", "control:kill", "write"),
        Operation("try", "control:try_config", "write"),
        Operation("submit", "submit:submit", "write"),
        Operation("steer", "steer:steer", "write"),
        Operation("queue", "queue:queue", "read"),
        Operation("queue --machine", "queue:machine", "read"),
        Operation("retry", "control:retry", "write"),
        Operation("delete", "studies:delete", "admin"),
        Operation("copy", "studies:copy", "admin"),
        Operation("backup", "studies:backup", "admin"),
        Operation("objectives", "spaces:objectives", "read", of_workspace=False),
        Operation("init", "spaces:init", "read", of_workspace=False),
        Operation("schema", "spaces:schema", "read", of_workspace=False),
        Operation("spaces", "spaces:list_spaces", "read", of_workspace=False, command=False),
        Operation("convert", "spaces:convert", "read", of_workspace=False, command=False),
        Operation("validate", "spaces:validate", "read", of_workspace=False),
        Operation("plan", "plan:plan", "write", of_workspace=False),
        Operation("lr-find", "plan:lr_find", "code", of_workspace=False),
        Operation("train", "train:train", "code", of_workspace=False),
        Operation("generate", "train:generate", "read"),
        Operation("doctor", "doctor:doctor", "read"),
        Operation("doctor --kill-test", "doctor:kill_test", "code", of_workspace=False),
        Operation("doctor --pack-test", "doctor:pack_test", "code", of_workspace=False),
    )
}
