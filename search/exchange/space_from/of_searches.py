"""A space for a script that searches by itself, with Optuna or Ray Tune; it then runs unchanged in ours."""

from __future__ import annotations

import ast
from pathlib import Path

from ....spaces import SpaceError, loads
from ...errors import UsageError
from .optuna_study import is_of_optuna, read_optuna
from .ray_tuner import is_of_ray, read_ray
from .scripts import tree_of
from .syntax import name_of, nodes_of, with_local_imports


def proposal_of_search(source: Path) -> str | None:
    """The text of a space file for a script that searches with Optuna or Ray Tune; None for any other script.

    Raises `UsageError` where it cannot be read.
    """
    tree = tree_of(source)
    if not is_of_optuna(tree) and any(name_of(call) == "optimize" for call in nodes_of(tree, ast.Call)):
        tree = with_local_imports(tree, source, tree_of)
    try:
        if is_of_optuna(tree):
            found = read_optuna(source, tree)
        elif is_of_ray(tree):
            found = read_ray(source, tree)
        else:
            return None
    except RecursionError as error:
        raise UsageError(f"{source}: not Python that can be read: it is nested too deeply") from error
    notes = "; ".join(found.notes[:5])
    if not found.parameters:
        raise UsageError(f"{source}: found no parameter that a space can hold; {notes or 'it has none'}")
    text = "\n".join(found.lines()) + "\n"
    try:
        loads(text, str(source))
    except SpaceError as error:
        problems = "; ".join(f"{issue.path}: {issue.message}" for issue in error.issues[:5])
        told = f"{source}: what it searches does not form a space: {problems}"
        raise UsageError(f"{told}; {notes}" if notes else told) from error
    return text
