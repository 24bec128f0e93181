"""A space's objective: its file, the texts that it trains on, and whose code it runs."""

from __future__ import annotations

import shlex
import traceback
from pathlib import Path
from typing import Any

import psutil

from ...objectives.base import Objective, ObjectiveError
from ...objectives.guides import preset_values
from ...objectives.info import ObjectiveInfo
from ...objectives.resolve import describe, resolve
from ...spaces import Choice, Constant, Range, SpaceError, Spec, load
from ...spaces.loader import Options, Source
from ...spaces.parameters import describe_condition


def load_space(source: Source | Spec, options: Options | None = None) -> Spec:
    """Load a space file, a space that ships or a dict, with the values of its preset. Raises `SpaceError`.

    A loaded one stays as it is.
    """
    return source if isinstance(source, Spec) else load(source, preset_values, options)


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
        from ...objectives.user.places import program_words

        placed = {} if spec.folder is None else program_words(info.command, spec.folder)
        words = [placed.get(place, word) for place, word in enumerate(info.command)]
        return f"each trial runs {shlex.join(words)} in {folder}, as {user}"
    if info.is_built_in or info.kind == "remote":
        return None
    from ...objectives.user.function import MAIN, find_source

    function, source = info.name.rpartition(":")[2], find_source(info.name, spec.folder)
    if function == MAIN:
        return f"each worker runs {source} up to its search, and each trial what it searches, as {user}"
    return f"each trial runs {function}() of {source}, as {user}"


def described(spec: Spec, function: Objective | None = None) -> dict[str, Any]:
    """The objective of a search as plain JSON, for its workers: see `resolve.describe`."""
    search: dict[str, Any] = {}
    if function is None and (kind := ObjectiveInfo(spec.objective_words).kind) in ("optuna", "ray"):
        search = {"study": spec.name, "goal": spec.goal}
        if kind == "optuna":
            search["space"] = {name: _plain(parameter) for name, parameter in spec.parameters.items()}
        elif spec.early_stopping.max is not None:
            search["last"] = spec.early_stopping.max
    return describe(spec.objective_words, function, spec.passed, spec.folder, search, spec.report_source)


def _plain(parameter: Any) -> dict[str, Any]:
    """A parameter as an objective compares it with what it asks for."""
    says: dict[str, Any] = {}
    if isinstance(parameter, Range):
        says = {name: getattr(parameter, name) for name in ("min", "max", "log", "step", "factor")}
    elif isinstance(parameter, Choice):
        says = {"choices": parameter.choices}
    return says | {"when": describe_condition(parameter)}


def import_objective(spec: Spec) -> None:
    """Import the objective as a worker would; this runs the user's code.

    Raises `SpaceError` where that fails.
    """
    if not isinstance(spec.objective, str) or ObjectiveInfo(spec.objective).kind == "remote":
        return
    try:
        resolve(described(spec), metric=spec.metric)
    except ObjectiveError as error:
        raise SpaceError([spec.issue("objective", str(error))]) from error
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{last.filename}:{last.lineno}"
        if isinstance(error, SyntaxError):
            place = f"{error.filename}:{error.lineno}"
        message = f"cannot be imported: {type(error).__name__}: {error} ({place})"
        raise SpaceError([spec.issue("objective", message)]) from error
