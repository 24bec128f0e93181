"""Translates pydantic's errors into the words of the space language, with the place in the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from .dialects import SYNONYMS, foreign_key
from .document import Places, join
from .errors import Issue, hint, meant, quoted
from .fields import Model, show
from .parameters import PARAMETERS
from .ranges import Prior
from .reporting import Report
from .samplers import SAMPLERS
from .settings import Budget, Command, Confirm, Execution
from .stopping import METHODS

UNIONS = {"search": ("sampler", SAMPLERS, "tpe"), "early_stopping": ("method", METHODS, "hyperband")}
ALIASES = {  # other libraries' names for methods
    "successive_halving": "asha",
    "successivehalving": "asha",
    "sha": "asha",
    "ashascheduler": "asha",
    "asynchyperband": "hyperband",
    "async_hyperband": "hyperband",
    "medianstopping": "median",
    "median_stopping_rule": "median",
    "fifo": "none",
}
_CHANGES = "changes parameters in the middle of a trial, but here a trial keeps one set of them; "
_CHANGES += "use hyperband, or search the schedule itself: lr_scheduler, warmup_ratio"
BAYESIAN = ("bayes", "bayesian", "bayesopt", "bayes_opt", "bayesian_optimization", "bo")
POPULATIONS = dict.fromkeys(("pbt", "pb2", "pbt_replay", "population_based_training"), _CHANGES)
SECTIONS: dict[str, type[Model]] = {
    "budget": Budget,
    "confirm": Confirm,
    "execution": Execution,
    "objective": Command,
    "report": Report,
}
EXAMPLES = {"budget": "{trials: 50}", "confirm": "{top: 3}", "execution": "{workers: 2}"}
KIND_KEYS = {"choice": "choices", "derived": "expr", "constant": "value"}  # a parameter's kind and its key
TYPE_NAMES = {
    "string": "a text",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "a mapping",
    "model": "a mapping",
    "model_attributes": "a mapping",
}
LIMIT_WORDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("above", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("below", "lt"),
}
TAGGED = ("parameters", "search", "early_stopping", "objective", "report")  # sections with union tags
Location = tuple[str | int, ...]


def translate(error: ValidationError, root: type[Model], places: Places) -> list[Issue]:
    """At least one issue for each error, except for missing keys that an unknown key beside them explains."""
    details = error.errors(include_url=False)
    missing = {detail["loc"] for detail in details if detail["type"] == "missing"}
    explained: set[Location] = set()
    for detail in details:
        if detail["type"] == "extra_forbidden":
            *around, key = detail["loc"]
            allowed = _allowed(around, root)
            if not around and key in SYNONYMS:
                explained.add((SYNONYMS[str(key)].partition(":")[0],))
            elif foreign_key(str(key), allowed):
                explained |= {location for location in missing if location[:-1] == tuple(around)}
            else:
                explained.add((*around, meant(str(key), allowed) or ""))
    for location in missing:  # a range without both bounds is reported once, at min
        if location[0] == "parameters" and location[-1] == "max" and (*location[:-1], "min") in missing:
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
    if location == ("metric",) and kind != "missing" and isinstance(value := detail["input"], dict):
        yield places.issue(path, f"must be a text, not {show(value)}; here write {_metric(value)}")
    elif kind == "refused":
        for field, message in detail["ctx"]["problems"]:
            steps = [int(step) if step.isdigit() else step for step in field.split(".") if step]
            yield places.issue(_path((*location, *steps), places), message)
    elif kind == "extra_forbidden":
        yield places.issue(path, _unknown(location, root, detail["input"]), key=True)
    elif kind in ("union_tag_not_found", "union_tag_invalid"):
        yield _union_issue(kind, path, detail["input"], places)
    elif location[:1] == ("parameters",) and location[-1] == "min" and (*location[:-1], "max") in missing:
        message = "needs min and max, or a list of choices, or value, or expr"
        yield places.issue(_path(location[:-1], places), message)
    elif len(location) == 1 and location[0] in EXAMPLES and kind.startswith("model"):
        example = EXAMPLES[str(location[0])]
        yield places.issue(path, f"must be a mapping such as {example}, not {show(detail['input'])}")
    else:
        yield places.issue(path, _message(kind, detail))


def _unknown(location: Location, root: type[Model], value: Any) -> str:
    *around, key = location
    allowed = _allowed(around, root)
    known = foreign_key(str(key), allowed, value)
    if known is None and len(around) == 3 and any(key in model.file_keys() for model in PARAMETERS.values()):
        known = f'cannot be combined with "{KIND_KEYS[str(around[2])]}"'
    if len(around) == 2 and around[0] in UNIONS and meant(str(key), allowed) is None:
        models = UNIONS[str(around[0])][1]
        owners = [name for name, model in models.items() if key in model.model_fields]
        known = f'is not an option of "{around[1]}", but of {quoted(owners)}' if owners else known
    if known is None and not around and key in SYNONYMS:
        known = f"unknown key; here write {SYNONYMS[str(key)]}"
    return known or f"unknown key, {hint(str(key), allowed)}"


def _metric(value: dict[str, Any]) -> str:
    """What to write for a metric that holds its goal beside its name, as in other tools."""
    name, goal = value.get("name"), value.get("goal")
    named = f"metric: {name if isinstance(name, str) else 'NAME'}"
    return f"{named} and goal: {goal}" if goal in ("minimize", "maximize") else named


def _union_issue(kind: str, path: str, value: Any, places: Places) -> Issue:
    """The issue of a section without a sampler or method, or with an unknown one."""
    key, known, example = UNIONS[path]
    if not isinstance(value, dict):
        return places.issue(path, f"must be a mapping such as {{{key}: {example}}}, not {show(value)}")
    if kind == "union_tag_invalid":
        name = str(value[key]).lower()
        name = name if name in known else name.removesuffix("sampler")
        message = f"there is no {show(value[key])}; {hint(ALIASES.get(name, name), known)}"
        if key == "sampler" and name in BAYESIAN:
            message = f'there is no {show(value[key])}, did you mean "tpe" or "gp"?'
        if name in POPULATIONS:
            message = f"{show(value[key])} {POPULATIONS[name]}"
        return places.issue(join(path, key), message)
    for other in value:
        if meant(other, [key]):
            return places.issue(join(path, other), f'unknown key, did you mean "{key}"?', key=True)
    return places.issue(path, f"needs a {key}: one of {quoted(known)}")


def _message(kind: str, detail: Any) -> str:
    context, value = detail.get("ctx", {}), detail["input"]
    if kind == "value_error":
        return str(context["error"])
    if kind == "missing":
        return "is missing"
    if kind == "literal_error":
        expected = context["expected"].replace("'", '"')
        return f"must be {expected}, not {show(value)}"
    if kind == "too_short":
        return f"must hold at least {context['min_length']}"
    if kind == "too_long":
        return f"must hold at most {context['max_length']}"
    if kind in LIMIT_WORDS:
        word, key = LIMIT_WORDS[kind]
        limit = context[key]
        written = f"{limit:,}" if isinstance(limit, int) and limit >= 10_000 else f"{limit:g}"
        return f"must be {word} {written}, not {show(value)}"
    wanted = TYPE_NAMES.get(kind.removesuffix("_type"))
    if wanted is not None:
        return f"must be {wanted}, not {show(value)}"
    return str(detail["msg"])


def _allowed(around: Sequence[str | int], root: type[Model]) -> list[str]:
    """The keys allowed in the mapping at a location."""
    match list(around):
        case ["parameters", _, str(tag)]:
            model: type[Model] = PARAMETERS[tag]
        case ["parameters", *_, "prior"]:
            model = Prior
        case ["search", str(tag)]:
            model = SAMPLERS[tag]
        case ["early_stopping", str(tag)]:
            model = METHODS[tag]
        case [str(section)] | [str(section), "command" | "source"]:
            model = SECTIONS[section]
        case _:
            model = root
    return model.file_keys()


def _path(location: Location, places: Places) -> str:
    """The path of a location in the file, without union tags and the keys that a shorthand leaves out."""
    steps = list(location)
    tag = 2 if steps[:1] == ["parameters"] else 1
    if steps and steps[0] in TAGGED and len(steps) > tag:
        del steps[tag]
    path = ""
    for step in steps:
        further = join(path, step)
        if step not in ("choices", "value") or further in places.values:
            path = further
    return path
