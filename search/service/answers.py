"""What routes answer with, as JSON Schema: derived from the frozen dataclasses that operations return.

A route names its answer by its annotation, `Annotated[Any, Winner]`: the framework then sends what it is
given, and this module describes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema
from typing_extensions import TypedDict

REFERENCE = "#/components/schemas/{model}"


def merged(name: str, *kinds: type, without: tuple[str, ...] = (), partial: bool = False) -> Any:
    """The answer that has the fields of several dataclasses; `partial`: or only some of them."""
    hints = {field: hint for kind in kinds for field, hint in get_type_hints(kind).items()}
    fields = {field: hint for field, hint in hints.items() if field not in without and field != "computed"}
    return TypedDict(name, fields, total=not partial)  # type: ignore[operator]


def answer_of(endpoint: Callable[..., Any]) -> Any:
    """What a route answers with; None where it says nothing of it."""
    answer = get_type_hints(endpoint, include_extras=True).get("return")
    return next(iter(getattr(answer, "__metadata__", ())), None)


def schemas(answers: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schemas of answers by their keys, and of what these refer to."""
    asked = [(key, "serialization", TypeAdapter(answer)) for key, answer in answers.items()]
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
