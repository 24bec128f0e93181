"""What routes answer with, and commands print, as JSON Schema: derived from what operations return.

A route names its answer by its annotation, `Annotated[Any, Winner]`: the framework then sends what it is
given, and this module describes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from ..values import Value

REFERENCE = "#/components/schemas/{model}"


def answer_of(endpoint: Callable[..., Any]) -> Any:
    """What a route answers with; None where it says nothing of it."""
    answer = get_type_hints(endpoint, include_extras=True).get("return")
    return next(iter(getattr(answer, "__metadata__", ())), None)


def shape_of(answer: Any) -> Any:
    """What an answer is as plain data."""
    return answer.shape() if isinstance(answer, type) and issubclass(answer, Value) else answer


def schema_of(answer: Any) -> dict[str, Any]:
    """The JSON Schema of an answer, with all that it refers to."""
    return TypeAdapter(shape_of(answer)).json_schema(mode="serialization", schema_generator=_AsPlain)


def schemas(answers: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schemas of answers by their keys, and of what these refer to."""
    asked = [(key, "serialization", TypeAdapter(shape_of(answer))) for key, answer in answers.items()]
    found, all_of_them = TypeAdapter.json_schemas(
        asked,  # type: ignore[arg-type]
        schema_generator=_AsPlain,
        ref_template=REFERENCE,
    )
    return {key: schema for (key, _), schema in found.items()}, dict(all_of_them.get("$defs", {}))


class _AsPlain(GenerateJsonSchema):
    """Describes values as `values.plain` writes them, without titles that only repeat names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def float_schema(self, schema: core_schema.FloatSchema) -> dict[str, Any]:
        """A number; null is one that is not finite."""
        return self.get_union_of_schemas([super().float_schema(schema), {"type": "null"}])
