"""The spec: a whole space file as one checked, frozen value."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    PlainValidator,
    PrivateAttr,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from .dialects import bare, foreign
from .document import Places, join
from .errors import Issue, SpaceError
from .fields import Formula, Model, Proportion, Text, is_stored, plain, refuse, show
from .messages import UNIONS, translate
from .parameters import Derived, Parameter, largest
from .presets import PresetNames, Presets, from_preset
from .relations import Known, Problem, kinds, relations
from .reporting import Report, Reporting, macro_problems
from .samplers import TPE, Grid, Search
from .settings import Budget, Confirm, Execution, Objective, Trackers
from .space import Limit, Space
from .stopping import NoStopping, Rungs, Stopping, Unit, unit_of

MOST_ISSUES = 100  # of one kind; each costs a search for what was meant
MOST_EXPRESSION_TEXT = 20_000  # characters of all expressions, which are evaluated for every configuration
LEAST_AUDIT = 1e-6
# Fields of later versions: a study that an older version began has none, and its fingerprint stays the same.
YOUNGER = ("value", "nan", "execution.fresh_process")
# Sections that may differ between two runs of one study.
CHANGEABLE = ("name", "budget", "confirm", "audit", "execution", "report_to")


NUMBERED = re.compile(r"~\d+")  # what a server calls a study by its number in the database
PARAMETER: TypeAdapter[Any] = TypeAdapter(Parameter)
FORMULA: TypeAdapter[Any] = TypeAdapter(Formula)


def _name(value: Any, info: ValidationInfo) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > 200:
        raise refuse(f"must be a text of 1 to 200 characters, not {show(value)}")
    if any(not letter.isprintable() or letter in "/\\" for letter in value):
        raise refuse(f"{show(value)} has a slash, a line break or another character no name may have")
    if value.startswith("-"):
        raise refuse(f"{show(value)} begins with a dash, so commands would take it for an option")
    if NUMBERED.fullmatch(value) and not is_stored("name", info):
        raise refuse(f"{show(value)} means the study of that number to a server; write {value[1:]} without ~")
    return value


def _baseline(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise refuse(f"must be a mapping such as {{learning_rate: 1e-3}}, not {show(value)}")
    return {name: plain(given) for name, given in value.items()}


Name = Annotated[
    str,
    PlainValidator(_name),
    WithJsonSchema(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": 200,
            "pattern": r"^(?!~[0-9]+$)[^-/\\\n\r\t][^/\\\n\r\t]*$",
        }
    ),
]
Values = Annotated[dict[str, Any], PlainValidator(_baseline), WithJsonSchema({"type": "object"})]


class Spec(Model):
    """A checked space file, made by `load`, `loads` or `Spec.from_json`."""

    version: Literal[1]
    """The version of the space language."""
    name: Name
    """The study's name."""
    objective: Objective
    """A built-in name, "file.py:function", "optuna:file.py:function", {command: [...]}, or remote."""
    metric: Text
    """The name of the value that the objective reports."""
    goal: Literal["minimize", "maximize"] = "minimize"
    """Whether less or more of the metric is better."""
    value: Literal["last", "best"] = "last"
    """A trial's value: its last one, or the best one that it has reported."""
    nan: Literal["diverged", "ignore"] = "diverged"
    """A report that is not finite: the trial has diverged, or the report is left out."""
    report: Reporting = Field(default="auto", exclude_if=lambda value: value == "auto")
    """Where the values of a command come from; auto finds them in its output."""
    preset: PresetNames | None = Field(default=None, exclude=True)
    """Values for parameters left out: quick, standard, production, memory or time; small, medium or large."""
    parameters: dict[str, Parameter] = Field(min_length=1, max_length=500)
    """What is searched: {min, max}, a list of choices, a constant, or {expr: ...}."""
    constraints: list[Formula] = Field(default=[], max_length=1000)
    """Expressions that every configuration must make true."""
    baseline: Values | None = None
    """The values of the first trial; a parameter left out takes its prior or its middle."""
    search: Search = TPE()
    """The sampler and its options."""
    early_stopping: Stopping = NoStopping(method="none")
    """When a trial stops before its end."""
    budget: Budget = Budget(trials=50)
    """When the search ends."""
    confirm: Confirm = Confirm()
    """How the winner is confirmed."""
    audit: Proportion | None = None
    """Share of the cost for running stopped trials to their end, to count the good ones lost. 0: none."""
    execution: Execution = Execution()
    """Workers, retries and what stays on disk."""
    report_to: Trackers = Field(default=[])
    """Trackers that get a copy of every trial: tensorboard, wandb, mlflow."""

    _places: Places = PrivateAttr(default_factory=lambda: Places("<space>"))
    _from_preset: tuple[str, ...] = PrivateAttr(default=())
    _folder: str | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _check(self) -> Spec:
        conditions = [p.when for p in self.parameters.values() if isinstance(p.when, str)]
        derived = [p.expr for p in self.parameters.values() if isinstance(p, Derived)]
        texts = {"constraints": sum(map(len, self.constraints))}
        texts["parameters"] = sum(map(len, (*conditions, *derived)))
        if (total := sum(texts.values())) > MOST_EXPRESSION_TEXT:
            message = f"the expressions of a space have at most {MOST_EXPRESSION_TEXT:,} characters in total"
            raise refuse(f"{message}, not {total:,}", max(texts, key=lambda section: texts[section]))
        if self.metric == "step":
            raise refuse('must not be "step", the key of a report\'s step', "metric")
        if self._is_built_in and self.value != "last":
            more = f"{show(self.objective)} returns the value of the model that it keeps"
            raise refuse(f"{self.value} is for your own functions and commands; {more}", "value")
        if self._is_built_in and self.nan != "diverged":
            more = f"training of {show(self.objective)} that is not finite cannot recover"
            raise refuse(f"{self.nan} is for your own functions and commands; {more}", "nan")
        named = isinstance(self.objective, str) and self.objective != "remote"  # whose code may be a command
        if "report" in self.model_fields_set and named:
            how = "calls trial.report(value, step=...)" if ":" in self.objective else "reports by itself"
            raise refuse(
                f'is for a command, objective: {{command: [...]}}; "{self.objective}" {how}', "report"
            )
        conditional = [name for name, parameter in self.passed.items() if parameter.when is not None]
        for field, message in macro_problems(self.report, self.passed, conditional):
            raise refuse(message, f"report.source.{field}")
        if self.audit and self.audit < LEAST_AUDIT:
            raise refuse(f"must be at least {LEAST_AUDIT:g}, or 0 for none", "audit")
        if self.audit and not isinstance(self.early_stopping, Rungs):
            method = self.early_stopping.method
            message = f"needs rungs, but early_stopping.method is {method}: use hyperband or asha"
            raise refuse(message, "audit")
        return self

    @cached_property
    def space(self) -> Space:
        """The configurations of these parameters."""
        return Space(self.parameters, self.constraints, self.baseline, self.issue)

    @property
    def passed(self) -> dict[str, Parameter]:
        """The parameters that the objective gets: all but helpers, which have `pass: false`."""
        return {name: parameter for name, parameter in self.parameters.items() if parameter.passed}

    @property
    def objective_words(self) -> str | list[str]:
        """The objective's name, or the words of its command."""
        return self.objective if isinstance(self.objective, str) else self.objective.command

    @property
    def report_source(self) -> dict[str, str]:
        """The source of a command's values, as plain JSON; empty where it is found in the output."""
        return self.report.model_dump() if isinstance(self.report, Report) else {}

    def loss(self, value: float) -> float:
        """The loss of a value of the metric, so that lower is better; also the value of a loss."""
        return value if self.goal == "minimize" else -value

    @property
    def _is_built_in(self) -> bool:
        """Whether the objective is neither a function nor a command, nor unknown here."""
        return isinstance(self.objective, str) and ":" not in self.objective and self.objective != "remote"

    @property
    def resource(self) -> Unit:
        """What a step of a trial counts."""
        last = self.early_stopping.max
        lengths = {name: largest(parameter) for name, parameter in self.passed.items()}
        return self.early_stopping.resource or unit_of(lengths, last, built_in=self._is_built_in)

    @property
    def from_preset(self) -> tuple[str, ...]:
        """The parameters whose values come from the preset, where this spec was read from a file."""
        return self._from_preset

    @property
    def folder(self) -> str | None:
        """The folder of its file, relative to which it names files; None: the current folder."""
        return self._folder

    def of_preset(self, preset: PresetNames | None, parameters: Iterable[str]) -> Spec:
        """The same spec, known to have the values of these parameters from a preset."""
        made = self.model_copy(update={"preset": preset})
        made._from_preset = tuple(parameters)
        return made

    def in_folder(self, folder: str | Path | None) -> Spec:
        """The same spec, whose files are in this folder. It is no part of what is stored or compared."""
        moved = self.model_copy()
        moved._folder = None if folder is None else os.path.abspath(folder)
        return moved

    def issue(self, path: str, message: str) -> Issue:
        """An issue at a path of this spec, with its place in the file."""
        return self._places.issue(path, message)

    def to_json(self) -> dict[str, Any]:
        """The spec as plain JSON, with every default written out and a preset replaced by its values.

        Defaults of `YOUNGER` fields are left out.
        """
        data = self.model_dump(mode="json")
        for path in YOUNGER:
            model: Any = self
            *sections, name = path.split(".")
            inside = data
            for section in sections:
                model, inside = getattr(model, section), inside[section]
            if getattr(model, name) == type(model).model_fields[name].default:
                del inside[name]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Spec:
        """The spec from what `to_json` returned; raises `SpaceError`."""
        return cls.check(dict(data), Places("<json>"), stored=cls.model_fields)

    @classmethod
    def check(
        cls, data: Any, places: Places, presets: Presets | None = None, *, stored: Collection[str] = ()
    ) -> Spec:
        """The spec from plain data; raises `SpaceError` with every issue, each with its place.

        `stored`: fields that were checked before, maybe by an older version.
        """
        if issues := bare(data, places):
            raise SpaceError(issues)
        given, issues = from_preset(data, places, presets)
        if given:  # as constants, which the file's own parameters override
            constants = {name: {"value": value} for name, value in given.items()}
            data = data | {"parameters": data["parameters"] | constants}
        issues += foreign(data, places)
        try:
            spec = cls.model_validate(data, context={"stored": stored})
        except ValidationError as error:
            related = () if issues else relations(*_readable(data))  # not for another tool's file
            issues += translate(error, cls, places)
            raise SpaceError([*issues, *_issues(places, related)]) from None
        spec._places, spec._from_preset = places, tuple(given)
        if not issues:
            issues += _issues(places, relations(spec.parameters, spec.constraints, spec.baseline))
            alike = getattr(spec.early_stopping, "alike", ())
            issues += _issues(places, kinds(alike, spec.parameters))
        if not issues:  # only a consistent space can be tried
            unlisted = spec.space.unlisted() if isinstance(spec.search, Grid) else ()
            issues += _issues(places, (*unlisted, *spec.space.problems()))
        if issues:
            raise SpaceError(issues)
        return spec

    def override(self, **changes: Any) -> Spec:
        """The spec with some fields changed; raises `SpaceError`.

        A mapping changes the keys it names and leaves the others, as in `budget={"trials": 80}`; None removes
        a key. A new sampler or method keeps the options that it shares with the old one.
        """
        data = self.to_json()
        for section, change in changes.items():
            old = data.get(section)
            if not isinstance(change, Mapping) or not isinstance(old, dict) or section == "objective":
                data[section] = change
                continue
            key, union, _ = UNIONS.get(section, ("", {}, ""))
            member = union.get(str(change.get(key)))
            if member is not None:
                old = {name: value for name, value in old.items() if name in member.model_fields}
            gone = {name for name, value in change.items() if value is None}
            data[section] = {name: value for name, value in {**old, **change}.items() if name not in gone}
        spec = self.check(data, Places("<override>"), stored=type(self).model_fields.keys() - changes.keys())
        spec._places, spec._folder = self._places, self._folder
        return spec

    def limited(self, limit: Limit) -> Spec:
        """The same spec, whose space leaves out what `limit` refuses; no file states that."""
        space = Space(self.parameters, self.constraints, self.baseline, self.issue, limit)
        return self.model_copy(update={"space": space})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self.to_json() == other.to_json()  # from whatever file

    def fingerprint(self) -> str:
        """A short hash of everything that defines the search, which is all but `CHANGEABLE`."""
        text = json.dumps(_defining(self.to_json()), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Differences in what defines the search between two `to_json`, as `parameters.lora_r.max: 32 -> 64`."""
    before, after = _defining(old), _defining(new)
    return [
        f"{path}: {before.get(path, 'none')} -> {after.get(path, 'none')}"
        for path in dict.fromkeys([*before, *after])
        if before.get(path) != after.get(path)
    ]


def _issues(places: Places, problems: Iterable[Problem]) -> list[Issue]:
    return [places.issue(*problem) for problem in islice(problems, MOST_ISSUES)]


def _readable(data: Any) -> tuple[Known, list[str | None], dict[str, Any]]:
    """The parts of a faulty file that are valid on their own, so that their relations can be checked too."""
    data = data if isinstance(data, dict) else {}
    parameters, constraints, baseline = (data.get(key) for key in ("parameters", "constraints", "baseline"))
    known = parameters.items() if isinstance(parameters, dict) else ()
    formulas = constraints if isinstance(constraints, list) else ()
    return (
        {name: _valid(PARAMETER, value) for name, value in known},
        [_valid(FORMULA, text) for text in formulas],
        baseline if isinstance(baseline, dict) else {},
    )


def _valid(kind: TypeAdapter[Any], value: Any) -> Any:
    try:
        return kind.validate_python(value)
    except ValidationError:
        return None


def _defining(data: Mapping[str, Any]) -> dict[str, str]:
    """The values that define a search, by path, as JSON texts; values that are not given are left out."""
    return {
        path: json.dumps(value, sort_keys=True, ensure_ascii=False)
        for path, value in _leaves({key: value for key, value in data.items() if key not in CHANGEABLE}, "")
        if value is not None or path.startswith("baseline.") or path.endswith(".value")
    }


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inside in value.items():
            yield from _leaves(inside, join(path, key))
    else:
        yield path, value
