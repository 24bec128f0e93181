"""Whether what a command prints with --json is as its schema says."""

from __future__ import annotations

from typing import Any

import jsonschema

from hpsearch.search.cli.output_schemas import schema_of_output


def check_output(command: str, content: Any) -> None:
    """Raise `jsonschema.ValidationError` where a content has another form; fields beside it are none."""
    schema = schema_of_output(command)
    for each in (schema, *schema.get("$defs", {}).values()):
        if each.get("type") == "object" and "properties" in each:
            each.setdefault("additionalProperties", False)
    jsonschema.Draft202012Validator(schema).validate(content)
