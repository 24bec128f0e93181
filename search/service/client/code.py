"""What of a space lies on this machine, and has to go along to a server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from ....objectives.info import ObjectiveInfo
from ....spaces import Choice, Constant, Spec

REMOTE = "remote"  # the objective of a space whose workers bring the code
MACRO = re.compile(r"\$\{config:([^}|]+)")


class Code(NamedTuple):
    """A folder of a user's own code, and the files of it that a space names."""

    folder: Path
    needed: tuple[str, ...]


def code_of(spec: Spec, cwd: Path) -> Code | None:
    """The code that a space needs of this machine; None where the server has all of it.

    A function in a file, a command and what it names lie in the folder of the space; a module is found in the
    current folder, and so is a text that a built-in objective trains on.
    """
    info = ObjectiveInfo(spec.objective_words)
    beside = Path(spec.folder) if spec.folder is not None else cwd
    if info.name == REMOTE:
        return None
    if info.kind == "built_in":
        files = tuple(name for name in _files(spec, info) if _is_in(cwd, name))
        return Code(cwd, files) if files else None
    if info.command:
        words = [*info.command, *(name for word in info.command for name in MACRO.findall(word))]
        return Code(beside, tuple(word for word in words if _is_in(beside, word)))
    library, _, rest = info.name.partition(":")
    place = rest if library in ("optuna", "ray") and ":" in rest else info.name
    source = place.rpartition(":")[0]
    if source.endswith(".py"):
        return Code(beside, (source,) if _is_in(beside, source) else ())
    return Code(cwd, ())


def _files(spec: Spec, info: ObjectiveInfo) -> list[str]:
    """The files that a space's built-in objective may read, as far as they are fixed."""
    if not info.is_built_in:
        return []
    names = (*info.parameters.files, *info.parameters.models)
    found: list[Any] = []
    for name in names:
        parameter = spec.parameters.get(name)
        if isinstance(parameter, Constant):
            found.append(parameter.value)
        elif isinstance(parameter, Choice):
            found += parameter.choices
    bundled = (value for value in found if isinstance(value, str))
    return [value for value in bundled if not any(info.is_bundled(name, value) for name in names)]


def _is_in(folder: Path, name: str) -> bool:
    """Whether a name is a file below a folder, by a relative path."""
    try:
        return not Path(name).is_absolute() and ".." not in Path(name).parts and (folder / name).is_file()
    except (OSError, ValueError):
        return False
