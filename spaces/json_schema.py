"""The space language as JSON Schema, so that an editor completes keys and marks errors.

Generated from the models. Pydantic would write "any of these", for which an editor blames the whole mapping.
Here `if` on the key that distinguishes the members selects the intended one, so the error is marked at the
field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from .relations import NAME
from .spec import Spec

SCALAR = {"type": ["number", "string", "boolean"]}
CHOICES = {"type": "array", "minItems": 1}


def json_schema(presets: Sequence[str] = ()) -> dict[str, Any]:
    """The schema of a space file (JSON Schema 2020-12); it completes the names in `presets`."""
    schema = Spec.model_json_schema(schema_generator=_Generator)
    schema["$schema"] = _Generator.schema_dialect
    schema["title"] = "hpsearch space, version 1"
    schema["properties"]["parameters"].update(propertyNames={"pattern": f"^{NAME.pattern}$"})
    if presets:
        one = {"enum": [*presets, None]}
        schema["properties"]["preset"].update(
            {"if": {"type": "array"}, "then": {"items": {"enum": [*presets]}}, "else": one}
        )
    linear = {"properties": {"step": {"type": "null"}, "factor": {"type": "null"}}}
    schema["$defs"]["Range"].update(_when("log", {"const": True}, linear))
    return schema


class _Generator(GenerateJsonSchema):
    """Pydantic's generator with `if` in place of `oneOf` and `anyOf`."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        result = super().default_schema(schema)
        if result.get("default", ...) is None:  # an editor should not write "not given" as a default
            del result["default"]
        return result

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        if "type" not in inner:
            return {"if": {"not": {"type": "null"}}, "then": inner}
        types = inner["type"] if isinstance(inner["type"], list) else [inner["type"]]
        nullable = {**inner, "type": [*types, "null"]}
        if "enum" in inner:
            nullable["enum"] = [*inner["enum"], None]
        return nullable

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        members = {str(tag): self.generate_inner(member) for tag, member in schema["choices"].items()}
        if "range" in members:
            return _parameter(members)
        if "command" in members:
            return {"if": {"type": "object"}, "then": members["command"], "else": members["text"]}
        if "source" in members:
            return {"if": {"type": "object"}, "then": members["source"], "else": members["auto"]}
        return _named("sampler" if "tpe" in members else "method", members)


def _parameter(members: dict[str, JsonSchemaValue]) -> JsonSchemaValue:
    """A parameter: a list, a scalar, or a mapping whose kind its keys show."""
    mapping = members["range"]
    for key, tag in (("value", "constant"), ("expr", "derived"), ("choices", "choice")):
        mapping = {"if": {"required": [key]}, "then": members[tag], "else": mapping}
    shorthand = {"if": {"type": "array"}, "then": CHOICES, "else": SCALAR}
    return {"if": {"type": "object"}, "then": mapping, "else": shorthand}


def _named(key: str, members: dict[str, JsonSchemaValue]) -> JsonSchemaValue:
    """A mapping whose kind stands under one of its keys; without the key a sampler is tpe."""
    schema: JsonSchemaValue = {"type": "object", "properties": {key: {"enum": list(members)}}}
    if key == "sampler":
        schema |= {"if": {"not": {"required": [key]}}, "then": members["tpe"]}
    else:
        schema |= {"required": [key]}
    return schema | {"allOf": [_when(key, {"const": tag}, member) for tag, member in members.items()]}


def _when(key: str, value: JsonSchemaValue, then: JsonSchemaValue) -> JsonSchemaValue:
    return {"if": {"type": "object", "required": [key], "properties": {key: value}}, "then": then}
