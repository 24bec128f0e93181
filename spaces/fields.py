"""The base of every part of a spec, and the field types they share."""

from __future__ import annotations

import ast
import inspect
import json
import math
import re
import reprlib
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from .document import INTEGER_BOUND, with_whole_characters
from .errors import shortened, visible
from .expressions import Expression, ExpressionError

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue


class Model(BaseModel):
    """Checked on construction and frozen; a field's docstring is its help in an editor."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        serialize_by_alias=True,
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Add the help as `use_attribute_docstrings` does, which reads sources whenever a program starts."""
        made = handler(core_schema)
        described = handler.resolve_ref_schema(made)
        for name, text in _help_of(cls).items():
            described["properties"][cls.model_fields[name].alias or name]["description"] = text
        return made

    @classmethod
    def file_keys(cls) -> list[str]:
        """The names of the fields in a file."""
        return [field.alias or name for name, field in cls.model_fields.items()]


def _help_of(model: type[Model]) -> dict[str, str]:
    """The texts below the fields of a model and of those that it extends, by the fields' names."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__[: model.__mro__.index(Model)]):
        [definition] = ast.parse(inspect.getsource(each)).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in pairwise(definition.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    found[name] = inspect.cleandoc(text)
    return found


def refuse(message: str, path: str = "") -> PydanticCustomError:
    """The error of a validator, at a field of the value or at all of it."""
    return _refused([(path, message)])


def is_stored(field: str, info: ValidationInfo) -> bool:
    """Whether this field of the spec was checked before, maybe by an older version that allowed more."""
    return field in (info.context or {}).get("stored", ())


def raise_all(problems: Iterable[tuple[str, str]]) -> None:
    """Raise the problems of a check, each a path and a message, if there are any."""
    if listed := list(problems):
        raise _refused(listed)


def _refused(problems: list[tuple[str, str]]) -> PydanticCustomError:
    return PydanticCustomError("refused", "{summary}", {"summary": problems[0][1], "problems": problems})


def show(value: Any) -> str:
    """A value as written in a file, shortened where it is long; what a terminal would obey is escaped."""
    if isinstance(value, str):
        return shortened(visible(f'"{value}"'), 60)
    try:
        text = json.dumps(value, ensure_ascii=False, default=reprlib.repr)
    except (TypeError, ValueError, RecursionError):  # what no JSON holds
        text = f"a value of the type {type(value).__name__}"
    return shortened(visible(text), 60)


def number(value: Any) -> int | float:
    """The value where it is a finite number of at most 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        quotes = isinstance(value, str) and re.fullmatch(r"[-+0-9._]+(e[-+]?[0-9]+)?", value)
        more = "; write it without quotes and without _" if quotes else ""
        raise refuse(f"must be a number, not {show(value)}{more}")
    if abs(value) >= INTEGER_BOUND if isinstance(value, int) else not math.isfinite(value):
        raise refuse("must be a finite number of at most 64 bits")
    return value


def plain(value: Any) -> Any:
    """The value where it can be written as JSON: scalars, and lists and mappings of them."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    if isinstance(value, str):
        return with_whole_characters(value)
    if isinstance(value, bool | None):
        return value
    raise refuse(f"must be text, number, true, false, null or a list of these, not {show(value)}")


def expression(value: Any) -> str:
    """The text where it is a valid expression."""
    if not isinstance(value, str):
        raise refuse(f'must be an expression in quotes, such as "2 * lora_r", not {show(value)}')
    try:
        Expression.parse(value)
    except ExpressionError as error:
        where = f" (at character {error.column})" if error.column else ""
        raise refuse(f"`{value:.80}` {error.message}{where}") from None
    return value


def text(value: Any) -> str:
    """The value where it is a text that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise refuse(f"must be a text, not {show(value)}")
    return with_whole_characters(value)


def named(key: str, default: str | None = None) -> Discriminator:
    """Distinguishes the members of a union by the text under one key."""

    def tag(value: Any) -> str | None:
        name = value.get(key, default) if isinstance(value, dict) else getattr(value, key, None)
        return name if isinstance(name, str) else None if name is None else show(name)

    return Discriminator(tag)


def members(union: Any) -> dict[str, type[Model]]:
    """The models of a tagged union, by tag."""
    return {get_args(member)[1].tag: get_args(member)[0] for member in get_args(get_args(union)[0])}


Number = Annotated[int | float, PlainValidator(number), WithJsonSchema({"type": "number"})]
Text = Annotated[str, PlainValidator(text), WithJsonSchema({"type": "string", "minLength": 1})]
Plain = Annotated[Any, PlainValidator(plain), WithJsonSchema({})]
Formula = Annotated[str, PlainValidator(expression), WithJsonSchema({"type": "string", "minLength": 1})]
MOST_COUNT = 2**53 - 1  # that every reader of JSON keeps exactly; `storage/attributes.py` takes as much
Positive = Annotated[int, Field(ge=1, le=MOST_COUNT)]
NotNegative = Annotated[int, Field(ge=0, le=MOST_COUNT)]
Proportion = Annotated[float, Field(ge=0, le=1)]


TO_FILL = "FILL_IN"  # in a proposed space, the value of a parameter that only the user knows
