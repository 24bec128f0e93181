"""The subcommands of a Python script: options that belong to one of them make no space for the script."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from .syntax import constant, decorated, imports, keywords, name_of, nodes_of, root_of

MAKERS = {"add_subparsers", "add_typer"}  # of argparse and Typer


def subcommands_of(tree: ast.Module, commands: Sequence[ast.FunctionDef]) -> list[str] | None:
    """The names of its subcommands, as far as they can be read; None if it has none.

    `commands` are the functions that click or Typer make commands of.
    """
    calls = nodes_of(tree, ast.Call)
    groups = any(decorated(each, "group", "callback") for each in nodes_of(tree, ast.FunctionDef))
    imported = imports(tree)
    if (
        MAKERS.isdisjoint(map(name_of, calls))
        and len(commands) + groups <= 1
        and not any(_is_of_a_group(each, imported) for each in commands)
    ):
        return None
    names = [constant(call.args[0]) for call in calls if name_of(call) == "add_parser" and call.args]
    names += map(_name_of_command, commands)
    return [name for name in names if isinstance(name, str)]


def for_one(path: Path, subcommands: Sequence[str]) -> str:
    """What to write for a script with these subcommands."""
    named = f" ({', '.join(subcommands)})" if subcommands else ""
    one = next((name for name in subcommands if "train" in name), next(iter(subcommands), "SUBCOMMAND"))
    return (
        f"{path}: its options belong to subcommands{named}; write a space for one of them by hand, with "
        f'objective: {{command: [python, {path}, {one}, "${{args}}"]}} and a range for each of its options'
    )


def _is_of_a_group(function: ast.FunctionDef, imported: dict[str, list[str]]) -> bool:
    """Whether a function is a command of one of click's groups, which may be in another file."""
    roots = [root_of(call.func) for call in _commands(function)]
    packages = [[root, *imported.get(root, ())] for root in roots if root is not None]
    of_click = decorated(function, "option", "argument")
    return of_click and any(not any("click" in name for name in each) for each in packages)


def _name_of_command(function: ast.FunctionDef) -> object:
    for call in _commands(function):
        given = [*call.args[:1], keywords(call).get("name")]
        if (name := next(filter(None, map(constant, given)), None)) is not None:
            return name
    return function.name.replace("_", "-")


def _commands(function: ast.FunctionDef) -> list[ast.Call]:
    """The decorators `@cli.command(...)` of a function."""
    return [
        each for each in function.decorator_list if isinstance(each, ast.Call) and name_of(each) == "command"
    ]
