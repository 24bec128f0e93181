"""Where the values of a command come from: `report:` in a space."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from .document import Places
from .errors import Issue, hint, quoted
from .fields import Model, Text, refuse, show, text

SOURCES = ("stdout", "file", "tensorboard", "wandb", "trackio", "mlflow")
OPTIONS = {"file": ("value", "step"), "tensorboard": ("value",)}  # of sources that have any
PATHS = ("file", "tensorboard")  # sources that name a path
OWN_MACROS = ("seed", "checkpoint", "run")  # macros of a path, beside the parameters
EXAMPLES = {  # what each source takes
    "stdout": "{stdout: 'val_loss (?P<value>[0-9.eE+-]+)'}",
    "file": '{file: "out/log.jsonl"}',
    "tensorboard": '{tensorboard: "${run}/logs"}',
    **{source: f"{{{source}: val_loss}}" for source in ("wandb", "trackio", "mlflow")},
}
LONGEST_PATTERN = 1000
_ATOM = r"(?:\\.|\[\^?\]?[^\]]*\]|[^\\()\[\]+*?{}|^$])"
_REPEATED = rf"{_ATOM}(?:[+*?]|\{{\d*,\d*\}})\??"
# A group that consists of repetitions and is itself repeated, such as `(a+)+`: it may search for ever.
_ENDLESS = re.compile(rf"\((?:\?:|\?P<\w+>)?(?:{_REPEATED})+\)(?:[+*]|\{{\d+,\}})(?!\+)")
_GROUP = re.compile(r"\(\?P<(\w+)>")
_MACRO = re.compile(r"\$\{([^}]*)\}?")


def _pattern(value: Any) -> str:
    """A regular expression with a group `value`."""
    pattern = text(value)
    if len(pattern) > LONGEST_PATTERN:
        raise refuse(f"must be at most {LONGEST_PATTERN:,} characters, not {len(pattern):,}")
    try:
        groups = re.compile(pattern).groupindex
    except (re.error, OverflowError, RecursionError) as error:
        raise refuse(f"{show(pattern)} is not a regular expression: {error}") from None
    if "value" not in groups:
        named = f"; it has {quoted(groups)}" if groups else ""
        more = r'"val_loss (?P<value>[0-9.eE+-]+)"'
        raise refuse(f"needs a group named value for the metric, as in {more}{named}")
    if (endless := _ENDLESS.search(pattern)) is not None:
        told = f"repeats a repetition, {show(endless[0])}, which may search for ever; repeat it once"
        raise refuse(told)
    return pattern


def _path(value: Any) -> str:
    path = text(value)
    if "\0" in path:
        raise refuse("must be a path, without NUL")
    return path


Pattern = Annotated[
    str,
    PlainValidator(_pattern),
    WithJsonSchema(
        {"type": "string", "maxLength": LONGEST_PATTERN, "pattern": r"\(\?P<value>", "format": "regex"}
    ),
]
PathText = Annotated[str, PlainValidator(_path), WithJsonSchema({"type": "string", "minLength": 1})]


def _option() -> Any:
    return Field(default=None, exclude_if=lambda value: value is None)


def _given(names: Collection[str]) -> dict[str, Any]:
    """The schema of a mapping that has one of these keys."""
    return {"not": {"properties": {name: {"type": "null"} for name in names}}}


def _with_one_source(schema: dict[str, Any]) -> None:
    """Add to the schema of `Report` that it names one source, and that options stand beside theirs."""
    rules = [
        {
            "if": _given([source]),
            "then": {"properties": {s: {"type": "null"} for s in SOURCES if s != source}},
        }
        for source in SOURCES
    ]
    for option in ("value", "step"):
        owners = [source for source, options in OPTIONS.items() if option in options]
        rules.append({"if": _given([option]), "then": _given(owners)})
    schema["allOf"] = [_given(SOURCES), *rules]


class Report(Model):
    """Where the values of a command come from; one source."""

    model_config = ConfigDict(json_schema_extra=_with_one_source)

    stdout: Pattern | None = _option()
    """A regular expression over each line of output; its group `value` is the metric, `step` the step."""
    file: PathText | None = _option()
    """A file of JSON lines, CSV or JSON that grows while the program runs; ${run} is the trial's folder."""
    tensorboard: PathText | None = _option()
    """A folder of TensorBoard's event files."""
    wandb: Text | None = _option()
    """A name that the program logs to W&B, which runs offline."""
    trackio: Text | None = _option()
    """A name that the program logs to Trackio."""
    mlflow: Text | None = _option()
    """A name that the program logs to MLflow."""
    value: Text | None = _option()
    """The column or tag of the metric; by default its name."""
    step: Text | None = _option()
    """The column of the step; by default step, global_step, current_steps or epoch."""

    @model_validator(mode="after")
    def _check(self) -> Report:
        named = [source for source in SOURCES if getattr(self, source) is not None]
        if len(named) != 1:
            has = f"has {quoted(named)}" if named else "has none"
            raise refuse(f"needs one source, and {has}; allowed: {quoted(SOURCES)}")
        (source,) = named
        for option in ("value", "step"):
            if getattr(self, option) is not None and option not in OPTIONS.get(source, ()):
                owners = quoted([owner for owner, options in OPTIONS.items() if option in options])
                instead = {
                    "stdout": f'name a group of the pattern "{option}": (?P<{option}>...)',
                    "tensorboard": "the steps of an event file are its own",
                }.get(source, f"write {source}: NAME")
                raise refuse(f"is an option of {owners}, not of {source}: {instead}", option)
        return self

    @property
    def path(self) -> tuple[str, str] | None:
        """The source that names a path, and the path."""
        return next(((s, getattr(self, s)) for s in PATHS if getattr(self, s) is not None), None)


def _auto(value: Any) -> str:
    if value == "auto":
        return "auto"
    if isinstance(value, str) and value in SOURCES:
        raise refuse(f"{show(value)} says what to read but not where: write report: {EXAMPLES[value]}")
    meant = f"; {hint(value, ['auto', *SOURCES])}" if isinstance(value, str) else ""
    raise refuse(f"must be auto or a source such as {EXAMPLES['file']}, not {show(value)}{meant}")


Reporting = Annotated[
    Annotated[str, PlainValidator(_auto), WithJsonSchema({"const": "auto"}), Tag("auto")]
    | Annotated[Report, Tag("source")],
    Discriminator(lambda value: "source" if isinstance(value, dict | Report) else "auto"),
]


_REPORTING: TypeAdapter[Any] = TypeAdapter(Reporting)


def source_in(data: Mapping[str, Any]) -> dict[str, str]:
    """The source that a file without issues names, as plain JSON; empty for auto."""
    report = data.get("report", "auto")
    return {} if report == "auto" else Report.model_validate(report).model_dump()


def report_issues(data: Mapping[str, Any], places: Places) -> Iterator[Issue]:
    """What is wrong with `report:` in a configuration to train."""
    if "report" not in data:
        return
    report, objective = data["report"], data.get("objective")
    if not isinstance(objective, dict):
        yield places.issue("report", "is for a command, objective: {command: [...]}")
        return
    try:
        checked = _REPORTING.validate_python(report)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            problems = detail.get("ctx", {}).get("problems") or [("", str(detail["msg"]))]
            at = ".".join(["report", *(str(step) for step in detail["loc"][1:])])
            yield from (places.issue(f"{at}.{field}" if field else at, told) for field, told in problems)
        return
    parameters = data.get("parameters")
    known = _flat(parameters) if isinstance(parameters, dict) else []
    for field, message in macro_problems(checked, known, ()):
        yield places.issue(f"report.{field}", message)


def _flat(parameters: Mapping[str, Any], prefix: str = "") -> list[str]:
    names: list[str] = []
    for name, value in parameters.items():
        names += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [f"{prefix}{name}"]
    return names


def macro_problems(
    report: Any, known: Collection[str], conditional: Collection[str]
) -> Iterator[tuple[str, str]]:
    """What is wrong with the macros of a path: its field, and a message.

    `known` are the parameters that the program gets, `conditional` those that some trials lack.
    """
    if not isinstance(report, Report) or report.path is None:
        return
    source, path = report.path
    for macro in _MACRO.finditer(path):
        if macro[1] in conditional:
            yield source, f"has {show(macro[0])}, a parameter that some trials do not have"
        elif macro[1] not in (*known, *OWN_MACROS) or not macro[0].endswith("}"):
            allowed = ", ".join(f"${{{name}}}" for name in OWN_MACROS)
            meant = hint(macro[1], [*known, *OWN_MACROS]) if macro[1] else ""
            yield (
                source,
                f"has an unknown macro, {show(macro[0])}{f'; {meant}' if 'mean' in meant else ''}; "
                f"allowed: {allowed} and ${{PARAMETER}}",
            )


def same_for_all(report: Any, differing: Collection[str]) -> tuple[str, str] | None:
    """The source and the path that all trials share; None if each has its own.

    `differing` are the parameters whose values differ between trials.
    """
    if not isinstance(report, Report) or report.path is None:
        return None
    named = {macro[1] for macro in _MACRO.finditer(report.path[1])}
    return None if named & {"run", "checkpoint", "seed", *differing} else report.path
