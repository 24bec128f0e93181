"""What commands print with `--json`, as JSON Schema, by the operations that they call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_type_hints

from ...spaces import Issue
from ...spaces.errors import hint
from ..errors import UsageError
from ..operations import OPERATIONS
from ..values import merged

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def with_json(commands: Mapping[str, Any]) -> list[str]:
    """Those of the commands that print JSON, with the option that chooses what."""
    printing = {name for name, each in commands.items() if any("--json" in one.opts for one in each.params)}
    of_operations = [each.name for each in OPERATIONS.values() if each.name.partition(" ")[0] in printing]
    return [name for name in of_operations if OPERATIONS[name].command] + list(_of_server())


def schema_of_output(command: str, commands: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of what a command prints with --json. Raises `UsageError` for one that prints none."""
    from ..service.answers import schema_of

    if command not in (known := with_json(commands)):
        told = f'"{command}" is no command that prints JSON; {hint(command, known)} (-o names a file)'
        raise UsageError(told)
    return schema_of(_answer(command)) | {"$schema": DRAFT, "title": f"hpsearch {command} --json"}


def _answer(command: str) -> Any:
    if command in (others := _of_server()):
        return others[command]
    answer = get_type_hints(OPERATIONS[command].function)["return"]
    if command == "validate":  # what it prints of a space that is not valid
        issue = merged("IssueOfSpace", Issue)
        return answer.shape() | merged("InvalidSpace", also={"valid": Literal[False], "errors": list[issue]})  # type: ignore[valid-type]
    if command in ("doctor --kill-test", "doctor --pack-test"):  # the command adds how to repeat it
        shape = answer.shape()
        return merged(shape.__name__, shape, also={"again": str})
    return answer


def _of_server() -> dict[str, Any]:
    """Those that are no operations: of tokens, and of workers."""
    from ..service.tokens import NewToken, Token, TokenList
    from ..service.worker.agent import Worked

    return {"token create": NewToken, "token list": TokenList, "token revoke": Token, "work": Worked}
