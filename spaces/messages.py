"""What pydantic found, in the words of the space language and with the place in the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from .dialects import foreign_key
from .document import Places, join
from .errors import Issue, hint, meant, quoted
from .model import Model, show
from .parameters import PARAMETERS
from .ranges import Prior
from .samplers import SAMPLERS
from .settings import Budget, Command, Execution
from .stopping import METHODS

LATER = {   # keys of the design that this version does not run
    "confirm": "this version does not run confirmations; remove it",
    "execution.pack": "this version does not pack trials; remove it",
}
SECTIONS: dict[str, type[Model]] = {"budget": Budget, "execution": Execution, "objective": Command}
KINDS = {
    "string": "a text", "int": "an integer", "float": "a number", "bool": "true or false", "list": "a list",
    "dict": "a mapping", "model": "a mapping", "model_attributes": "a mapping",
}
LIMITS = {
    "greater_than_equal": ("at least", "ge"), "greater_than": ("above", "gt"),
    "less_than_equal": ("at most", "le"), "less_than": ("below", "lt"),
}
Location = tuple[str | int, ...]


def translate(error: ValidationError, root: type[Model], places: Places) -> list[Issue]:
    """One issue or more for each error; no key is missing where an unknown key beside it explains it."""
    details = error.errors(include_url=False)
    missing = {detail["loc"] for detail in details if detail["type"] == "missing"}
    explained: set[Location] = set()
    for detail in details:
        if detail["type"] == "extra_forbidden":
            *around, key = detail["loc"]
            allowed = _allowed(around, root)
            if foreign_key(str(key), allowed):
                explained |= {location for location in missing if location[:-1] == tuple(around)}
            else:
                explained.add((*around, meant(str(key), allowed) or ""))
    for location in missing:    # a range that lacks both bounds is said once, at min
        if location[-1] == "max" and (*location[:-1], "min") in missing:
            explained.add(location)
    return [
        issue
        for detail in details
        if detail["type"] != "missing" or detail["loc"] not in explained
        for issue in _issues(detail, root, places, missing)
    ]


def _issues(detail: Any, root: type[Model], places: Places, missing: set[Location]) -> Iterator[Issue]:
    kind, location = detail["type"], detail["loc"]
    path = _path(location, places)
    if kind == "refused":
        for field, message in detail["ctx"]["problems"]:
            yield places.issue(_path((*location, field), places) if field else path, message)
    elif kind == "extra_forbidden":
        yield places.issue(path, _unknown(location, root, path), key=True)
    elif kind == "missing" and location[-1] == "min" and (*location[:-1], "max") in missing:
        message = "needs min and max, or a list of choices, or value, or expr"
        yield places.issue(_path(location[:-1], places), message)
    else:
        yield places.issue(path, _message(kind, location, detail))


def _unknown(location: Location, root: type[Model], path: str) -> str:
    *around, key = location
    allowed = _allowed(around, root)
    return LATER.get(path) or foreign_key(str(key), allowed) or f"unknown key, {hint(str(key), allowed)}"


def _message(kind: str, location: Location, detail: Any) -> str:
    context, value = detail.get("ctx", {}), detail["input"]
    if kind == "missing":
        return f'missing; "{location[-1]}" is required'
    if kind == "union_tag_not_found":
        if isinstance(value, dict):
            return f'needs a method: one of {quoted(METHODS)}'
        key, example = ("sampler", "tpe") if location[-1] == "search" else ("method", "hyperband")
        return f"must be a mapping such as {{{key}: {example}}}, not {show(value)}"
    if kind == "union_tag_invalid":
        known = SAMPLERS if location[-1] == "search" else METHODS
        return f'there is no "{context["tag"]}"; {hint(context["tag"], known)}'
    if kind == "literal_error":
        return f"must be {context['expected']}, not {show(value)}"
    if kind in LIMITS:
        word, key = LIMITS[kind]
        return f"must be {word} {context[key]:g}, not {show(value)}"
    wanted = KINDS.get(kind.removesuffix("_type"))
    if wanted is not None:
        return f"must be {wanted}, not {show(value)}"
    return str(detail["msg"])


def _allowed(around: Sequence[str | int], root: type[Model]) -> list[str]:
    """The keys of the mapping at a location."""
    match list(around):
        case ["parameters", _, str(tag)]:
            model: type[Model] = PARAMETERS[tag]
        case ["parameters", *_, "prior"]:
            model = Prior
        case ["search", str(tag)]:
            model = SAMPLERS[tag]
        case ["early_stopping", str(tag)]:
            model = METHODS[tag]
        case [str(section)] | [str(section), "command"]:
            model = SECTIONS[section]
        case _:
            model = root
    return list(model.model_fields)


def _path(location: Location, places: Places) -> str:
    """The path of a location in the file: without union tags and the keys that a shorthand leaves out."""
    steps = list(location)
    tag = 2 if steps[:1] == ["parameters"] else 1
    if steps and steps[0] in ("parameters", "search", "early_stopping", "objective") and len(steps) > tag:
        del steps[tag]
    path = ""
    for step in steps:
        further = join(path, step)
        if step not in ("choices", "value") or further in places.values:
            path = further
    return path
