"""Turns the objective that a space names into a callable, here or in a worker process."""

from __future__ import annotations

import base64
import os
import pickle
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from .base import Objective, ObjectiveError
from .catalog import BUILT_IN, check_built_in, load
from .info import REMOTE, ObjectiveInfo


def describe(
    objective: str | list[str],
    function: Objective | None = None,
    parameters: Iterable[str] = (),
    folder: str | None = None,
    search: Mapping[str, Any] | None = None,
    report: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Describe an objective as plain JSON, for a worker to `resolve`.

    `objective` is a built-in name, the name of a function or the words of a command. A `function` that exists
    only in this process (in a notebook) is sent by value; a function of a module is sent by name, with this
    process's import path. `parameters` are those of the space; a trial may lack some of them. `folder` is
    that of the space file, in which the files of the objective are looked up. `search` is what a function
    written for Optuna or Ray Tune can ask of its study: its name, goal and space.
    `report` is the source of a command's values; by default they are found in its output.
    """
    if function is not None:
        import cloudpickle

        path = [os.path.abspath(folder) for folder in sys.path]
        try:
            pickled = cloudpickle.dumps(function)
        except Exception as error:  # a user's object may raise anything
            raise ObjectiveError(
                f"{getattr(function, '__name__', 'the objective')}() cannot be sent to the worker processes: "
                f"{error}; create locks, files and connections inside it, or import them from a module"
            ) from error
        return {"function": base64.b64encode(pickled).decode(), "path": path}
    place = {} if folder is None or folder == os.getcwd() else {"folder": folder}
    if isinstance(objective, list):
        known = {"parameters": [*parameters]} if parameters else {}
        return {"command": objective} | known | place | ({"report": dict(report)} if report else {})
    told = {"search": dict(search)} if search else {}
    return {"name": objective} | (place if ":" in objective else {}) | told


def reports_again(described: dict[str, Any]) -> bool:
    """Whether an objective that resumes from a checkpoint repeats the report of its step.

    hpsearch's trainer does, and scripts should: their reports are read while they continue, so it is unknown
    which checkpoint belongs to which report.
    """
    return "command" in described or ObjectiveInfo(described.get("name", "")).training is not None


def resolve(described: dict[str, Any], *, metric: str, processes: int = 1) -> Objective:
    """The callable of a description. Raises `ObjectiveError` if there is none.

    A command is started in `processes` processes for a trial; other objectives are called in each of them. A
    description with a pickled function comes from the user's own process, never from a study or a file.
    """
    if "function" in described:
        sys.path[:] = dict.fromkeys([*described["path"], *sys.path])
        function: Objective = pickle.loads(base64.b64decode(described["function"]))
        return function
    if "command" in described:
        from .user.command import CommandObjective

        more = {key: described[key] for key in ("parameters", "folder", "report") if key in described}
        return CommandObjective(described["command"], metric, processes, **more)
    name = described["name"]
    if name in BUILT_IN:
        return load(name)
    if name == REMOTE:
        raise ObjectiveError(
            "the objective is remote: its code is with the workers, and not here; name it instead, as in "
            '"file.py:function"'
        )
    match ObjectiveInfo(name).kind:
        case "optuna":
            from .user.optuna_function import load_optuna

            return load_optuna(name, described.get("search", {}), described.get("folder"))
        case "ray":
            from .user.ray_function import load_ray

            return load_ray(name, described.get("search", {}), metric, described.get("folder"))
    from .user.function import load_function

    return load_function(name, described.get("folder"))


def check_name(name: str, folder: str | None = None) -> None:
    """Raise `ObjectiveError` if there is no objective of this name, also not in `folder`.

    Imports no user code. Of `remote` nothing is known here.
    """
    if name == REMOTE:
        return
    if ":" in name:
        from .user.function import check_function

        check_function(name, folder)
    else:
        check_built_in(name)
