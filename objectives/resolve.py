"""From what a space names as its objective to the callable behind it, here or in a worker process."""

from __future__ import annotations

import base64
import os
import pickle
import sys
from collections.abc import Iterable
from typing import Any

from .base import Objective, ObjectiveError
from .catalog import check_built_in, is_built_in, load, training_config


def describe(
    objective: str | list[str], function: Objective | None = None, parameters: Iterable[str] = ()
) -> dict[str, Any]:
    """An objective as plain JSON, for a worker to `resolve`.

    `objective` is a built-in name, "module:function", "file.py:function" or a command's words. A `function`
    that only this process has (a notebook's) travels by value; one of a module by its name, with the path
    that this process finds the module by. `parameters` are the space's, of which a trial may lack some.
    """
    if function is not None:
        import cloudpickle

        path = [os.path.abspath(folder) for folder in sys.path]
        try:
            pickled = cloudpickle.dumps(function)
        except Exception as error:  # whatever some object of the user's raises
            raise ObjectiveError(
                f"{getattr(function, '__name__', 'the objective')}() cannot be sent to the worker processes: "
                f"{error}; a lock, a file or a connection it makes itself, or imports from a module"
            ) from error
        return {"function": base64.b64encode(pickled).decode(), "path": path}
    if isinstance(objective, list):
        return {"command": objective} | ({"parameters": [*parameters]} if parameters else {})
    return {"name": objective}


def reports_again(described: dict[str, Any]) -> bool:
    """Whether an objective that goes on from a checkpoint reports that step again.

    hpsearch's trainer does, and scripts are to: their reports are read while they go on, so that nobody can
    tell which checkpoint belongs to which.
    """
    return "command" in described or training_config(described.get("name", "")) is not None


def resolve(described: dict[str, Any], *, metric: str, processes: int = 1) -> Objective:
    """The callable behind a description. Raises `ObjectiveError` where there is none.

    `processes` are those that a command is started in for a trial; of all else one is called in each of them.
    A description with a function's pickle comes from this user's own process, never from a study or a file.
    """
    if "function" in described:
        sys.path[:] = dict.fromkeys([*described["path"], *sys.path])
        function: Objective = pickle.loads(base64.b64decode(described["function"]))
        return function
    if "command" in described:
        from .user.command import CommandObjective

        return CommandObjective(described["command"], metric, processes, described.get("parameters", ()))
    name = described["name"]
    if is_built_in(name):
        return load(name)
    from .user.function import load_function

    return load_function(name)


def check_name(name: str) -> None:
    """Raise `ObjectiveError` where no objective can have this name; nothing of it is imported."""
    if ":" in name:
        from .user.function import find_source

        find_source(name)
    else:
        check_built_in(name)
