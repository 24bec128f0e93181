"""Converts the files of other tools into spaces: what a line has no exact counterpart for is said beside it.

    text = convert(Path("sweep.yaml"))

What a space cannot say is refused, with its line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ....objectives.user.macros import TRIAL_MACROS, unknown_macro
from ....spaces import SpaceError, loads
from ....spaces.dialects import AXOLOTL, CONVERTED, DETERMINED, HYDRA, KATIB, NNI, RAY, WANDB, tools_of
from ....spaces.document import Places, YamlNode, compose, read, scalar, text_of
from ....spaces.document import join as join_path
from ....spaces.errors import Issue
from ....spaces.fields import show
from ...errors import UsageError
from . import axolotl, determined, hydra, katib, nni, ray, wandb
from .source import Source
from .space import Converted

__all__ = ["conversion"]

CONVERSIONS: dict[str, Callable[[Source, dict[str, Any]], Converted]] = {
    WANDB: wandb.convert,
    NNI: nni.convert,
    KATIB: katib.convert,
    DETERMINED: determined.convert,
    HYDRA: hydra.convert,
    AXOLOTL: axolotl.convert,
    RAY: ray.convert,
}
# Plain scalars that PyYAML and Go's YAML read as truth values, octal or sexagesimal numbers, or dates.
OTHERWISE = re.compile(
    r"(?i:yes|no|on|off)|[-+]?0[0-7_]+|[-+]?0b[01_]+|[-+]?[1-9][0-9]*(_[0-9]+)+(\.[0-9_]*)?"
    r"|[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?"
)


def conversion(source: Path) -> str | None:
    """The text of a space file for another tool's file; None where it is no such file.

    Raises `SpaceError` with everything in it that a space cannot say, and `UsageError` where it may be of
    several tools.
    """
    if source.suffix.lower() not in (".yaml", ".yml", ".json"):
        return None
    try:
        text = text_of(source)
        data, places, faults = read(text, str(source))
    except (OSError, UnicodeDecodeError):
        return None  # reported by what reads it next
    tools = tools_of(data)
    if not tools:
        return None
    if len(tools) > 1:
        known = ", or ".join(f"{CONVERTED[tool]} by {keys}" for tool, keys in tools.items())
        raise UsageError(f"{source} may be {known}: leave out the keys of all but one")
    (tool,) = tools
    faults += _other_readings(text, places, tool)
    if faults:
        raise SpaceError(faults)
    made = _made(Source(source, tool, places), data)
    converted = made.text()
    try:
        loads(converted, str(source))
    except SpaceError as error:
        raise SpaceError(_at_its_origin(issue, made) for issue in error.issues) from None
    return converted


def _made(source: Source, data: Any) -> Converted:
    try:
        made = CONVERSIONS[source.tool](source, data)
    except SpaceError as error:  # what it cannot do without
        source.issues += error.issues
    else:
        with source.part():
            _check_macros(made)
    if source.issues:
        raise SpaceError(dict.fromkeys(source.issues))
    return made


def _at_its_origin(issue: Issue, made: Converted) -> Issue:
    """An issue of the converted space, at the line of the other tool's file that it comes from."""
    inner = issue.path.removeprefix("parameters.")
    parameters = [each.path for each in made.parameters if f"{inner}.".startswith(f"{each.name}.")]
    settings = [each.path for each in made.settings if issue.path.startswith(each.key)]
    others = {"metric": made.metric_path, "objective": made.command_path}
    path = next(iter(parameters or settings), others.get(issue.path.partition(".")[0], ""))
    words = f"here {issue.path}: {issue.message}" if issue.path else issue.message
    return made.source.places.issue(path, words)


def _check_macros(made: Converted) -> None:
    """Refuse what the other tool, or a shell, would fill in. Of no use where parameters are missing."""
    if made.source.issues:
        return
    known = [*TRIAL_MACROS, *(each.name for each in made.parameters if not each.is_helper)]
    for word in made.words():
        if unknown_macro(word, known) is not None:
            message = (
                f"{show(word)} has a ${{...}} that is no parameter; write its value, or $NAME for a shell"
            )
            made.source.issues.append(made.source.places.issue(made.command_path, message))


def _other_readings(text: str, places: Places, tool: str) -> list[Issue]:
    """Plain texts that the tool, whose YAML is of version 1.1, reads as something else."""
    if places.file.endswith(".json"):
        return []
    issues: list[Issue] = []

    def visit(node: YamlNode, path: str) -> None:
        if isinstance(node.content, str):
            if (
                node.plain
                and OTHERWISE.fullmatch(node.content)
                and isinstance(scalar(node.content), str | int)
            ):
                message = f"{show(node.content)} is read as something else by {tool}: write true, false or a"
                issues.append(places.issue(path, f"{message} decimal number, or quote the text"))
        elif node.kind is list:
            for index, item in enumerate(node.content):
                visit(item, join_path(path, index))  # type: ignore[arg-type]
        else:
            for key, value in node.content:  # type: ignore[misc]
                if isinstance(key.content, str):
                    visit(value, join_path(path, key.content))

    if (root := compose(text, places.file)) is not None:
        visit(root, "")
    return issues
