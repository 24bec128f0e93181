"""A space's objective: its file, the texts that it trains on, and whose code it runs."""

from __future__ import annotations

import shlex
import traceback
from pathlib import Path
from typing import Any

import psutil

from ...objectives.base import ObjectiveError
from ...objectives.guides import preset_values
from ...objectives.info import ObjectiveInfo
from ...objectives.resolve import describe, resolve
from ...spaces import Choice, Constant, SpaceError, Spec, load
from ...spaces.loader import Options


def load_space(source: str | Path, options: Options | None = None) -> Spec:
    """Load a space file, or a space that ships, with the values of its preset. Raises `SpaceError`."""
    return load(source, preset_values, options)


def texts_of(spec: Spec) -> dict[str, str]:
    """The SHA-256 of each text that trials train on, by path, as far as the texts are known."""
    values: dict[str, list[Any]] = {}
    for name, parameter in spec.passed.items():
        if isinstance(parameter, Constant):
            values[name] = [parameter.value]
        elif isinstance(parameter, Choice):
            values[name] = parameter.choices
    return ObjectiveInfo(spec.objective_words).fingerprints(values)


def own_code(spec: Spec) -> str | None:
    """A sentence about the user's own code that a search runs, where and as which user; None without any."""
    folder, user = Path.cwd(), psutil.Process().username()
    info = ObjectiveInfo(spec.objective_words)
    if info.command:
        return f"each trial runs {shlex.join(info.command)} in {folder}, as {user}"
    if info.is_built_in:
        return None
    from ...objectives.user.function import find_source

    function = info.name.rpartition(":")[2]
    return f"each trial runs {function}() of {find_source(info.name)}, as {user}"


def import_objective(spec: Spec) -> None:
    """Import the objective as a worker would; this runs the user's code.

    Raises `SpaceError` where that fails.
    """
    if not isinstance(spec.objective, str):
        return
    try:
        resolve(describe(spec.objective), metric=spec.metric)
    except ObjectiveError as error:
        raise SpaceError([spec.issue("objective", str(error))]) from error
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{last.filename}:{last.lineno}"
        if isinstance(error, SyntaxError):
            place = f"{error.filename}:{error.lineno}"
        message = f"cannot be imported: {type(error).__name__}: {error} ({place})"
        raise SpaceError([spec.issue("objective", message)]) from error
