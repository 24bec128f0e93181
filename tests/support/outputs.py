"""Whether what a command prints with --json is as its schema says."""

from __future__ import annotations

from typing import Any

import jsonschema
import typer

from hpsearch.search.cli.app import app
from hpsearch.search.cli.output_schemas import schema_of_output

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def check_output(command: str, content: Any) -> None:
    """Raise `jsonschema.ValidationError` where a content has another form; fields beside it are none."""
    schema = schema_of_output(command, COMMANDS)
    for each in (schema, *schema.get("$defs", {}).values()):
        if each.get("type") == "object" and "properties" in each:
            each.setdefault("additionalProperties", False)
    jsonschema.Draft202012Validator(schema).validate(content)
