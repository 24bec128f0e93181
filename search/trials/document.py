"""A configuration to train: a file that `hpsearch export` writes, or one written by hand.

objective: lora                  # the default; or module:function, or {command: [...]}
preset: production               # values for parameters that the file leaves out, as in a space
report_to: [tensorboard]         # trackers to report to
metric: val_loss
report: {file: out/log.jsonl}    # where a command's values come from, as in a space
parameters: {learning_rate: 1e-3, max_samples: 1600}
seed: 0
provenance: {study: lora, trial: 12, value: 1.7021, ...}
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...objectives.guides import RATE_PARAMETERS, preset_values
from ...objectives.info import ObjectiveInfo
from ...spaces import Issue, SpaceError, nested
from ...spaces.document import Places, file_in_words, read, text_of
from ...spaces.errors import hint
from ...spaces.fields import show
from ...spaces.presets import from_preset, names_in
from ...spaces.reporting import report_issues, source_in
from ...spaces.settings import STRATEGIES, ZERO_STAGE, trackers
from ...spaces.stopping import LENGTHS, unit_of
from ..errors import UsageError
from .judging import Judge

DOCUMENT_KEYS = ("objective", "metric", "parameters", "seed", "provenance")
REPORT_KEY = "report"  # of a command only
EXTRA_KEYS = ("preset", "report_to")  # a preset's values become parameters, and trackers do not change a run
JUDGING = {"value": ("last", "best"), "nan": ("diverged", "ignore"), "goal": ("minimize", "maximize")}
KEYS = (*DOCUMENT_KEYS, *EXTRA_KEYS, *JUDGING, REPORT_KEY)
SPACE_ONLY_KEYS = ("version", "search", "budget", "early_stopping")


@dataclass(frozen=True)
class Document:
    """A configuration to train, and where it comes from."""

    file: str
    objective: str | list[str]  # a name, or the words of a command
    metric: str
    parameters: dict[str, Any]  # nested if names are dotted
    seed: int
    provenance: dict[str, Any]  # as `hpsearch export` writes it; empty for a file written by hand
    report_to: tuple[str, ...] = ()  # trackers
    judging: dict[str, str] = field(default_factory=dict)  # `value`, `nan` and `goal` as in a space, if given
    report: dict[str, str] = field(default_factory=dict)  # where the values of a command come from
    overridden: tuple[str, ...] = ()  # parameters that differ from the file
    places: Places = field(default_factory=lambda: Places(""), compare=False, repr=False)

    @property
    def unit(self) -> str:
        """The unit of a step, by the same rule as in a space."""
        return unit_of(self.parameters, None, built_in=ObjectiveInfo(self.objective).is_built_in)

    @property
    def length(self) -> int | None:
        """The length of the whole run in `unit`, if a parameter gives it."""
        name = next(name for name, unit in LENGTHS.items() if unit == self.unit)
        length = self.parameters.get(name)
        return length if isinstance(length, int) else None

    @property
    def expected(self) -> float | None:
        """The value that a repeated training must give; None if unknown."""
        value = self.provenance.get("value")
        return float(value) if isinstance(value, int | float) and not self.overridden else None

    @property
    def maximize(self) -> bool:
        """Whether its search maximized the metric."""
        return self.judging.get("goal", self.provenance.get("goal")) == "maximize"

    @property
    def judge(self) -> Judge:
        """How its value follows from its reports."""
        best, ignores = self.judging.get("value") == "best", self.judging.get("nan") == "ignore"
        return Judge(best=best, maximize=self.maximize, ignores=ignores)

    @property
    def best(self) -> tuple[int, dict[str, Any]] | None:
        """The number of the best trial of its search, and that trial's values of the searched parameters."""
        number, searched = self.provenance.get("best"), self._searched
        if not isinstance(number, int) or not searched:
            return None
        return number, {name: about["best"] for name, about in searched.items() if "best" in about}

    @property
    def searched(self) -> dict[str, tuple[float, float] | None]:
        """The parameters that its search varied, with the range of each numeric one."""
        ends = {name: (about.get("min"), about.get("max")) for name, about in self._searched.items()}
        return {
            name: (low, high) if isinstance(low, int | float) and isinstance(high, int | float) else None
            for name, (low, high) in ends.items()
        }

    @property
    def _searched(self) -> dict[str, dict[str, Any]]:
        searched = self.provenance.get("searched")
        items = searched.items() if isinstance(searched, dict) else ()
        return {str(name): about for name, about in items if isinstance(about, dict)}

    @property
    def processes(self) -> int:
        """How many processes train it together, as many as trained its trial."""
        count = self.provenance.get("processes_per_trial")
        return count if isinstance(count, int) and count >= 1 else 1

    @property
    def sharing(self) -> dict[str, Any]:
        """How the processes share it, as those of its trial did."""
        strategy, stage = (self.provenance.get(name) for name in ("strategy", "zero_stage"))
        if strategy not in STRATEGIES:
            return {}
        if strategy != "deepspeed":
            return {"strategy": strategy}
        return {"strategy": strategy, "zero_stage": stage if stage in (1, 2, 3) else ZERO_STAGE}

    @property
    def folder(self) -> str | None:
        """The folder in which the objective has its files, that of the space; else that of this file."""
        folder = self.provenance.get("space_folder")
        if isinstance(folder, str):
            return folder
        return os.path.abspath(os.path.dirname(self.file)) if os.path.isfile(self.file) else None

    @property
    def origin(self) -> str | None:
        """Its trial, in words."""
        study, trial = self.provenance.get("study"), self.provenance.get("trial")
        return None if study is None or trial is None else f'trial {trial} of "{study}"'

    def content(self) -> dict[str, Any]:
        """The content of this document's file. After an override it no longer promises the trial's value."""
        provenance = self.provenance
        if self.overridden:
            provenance = {key: each for key, each in provenance.items() if key != "value"}
            provenance["overridden"] = list(self.overridden)
        objective = self.objective if isinstance(self.objective, str) else {"command": self.objective}
        values = (objective, self.metric, self.parameters, self.seed, provenance)
        content = dict(zip(DOCUMENT_KEYS, values, strict=True))
        content |= self.judging | ({REPORT_KEY: self.report} if self.report else {})
        return content | ({"report_to": list(self.report_to)} if self.report_to else {})

    def issue(self, name: str, message: str) -> Issue:
        """An issue at a parameter, in the file or on the command line."""
        if name in self.overridden:
            return Issue(self.file, 0, 0, f"--set {name}", message)
        return self.places.issue(f"parameters.{name}", message)


def load_document(path: str | Path) -> Document:
    """Read a configuration to train; `-` is standard input.

    Raises `SpaceError` with every issue and its place.
    """
    try:
        text = text_of(Path(path))
    except (OSError, UnicodeDecodeError) as error:
        missing = isinstance(error, FileNotFoundError)
        told = "no such file; hpsearch export STUDY -o FILE writes one" if missing else f"not text: {error}"
        raise SpaceError([Issue(file_in_words(path), 0, 0, "", told)]) from None
    data, places, faults = read(text, file_in_words(path))
    if issues := [*faults, *_shape(data, places)]:
        raise SpaceError(issues)
    objective = data.get("objective", "lora")
    given, issues = from_preset({**data, "objective": objective}, places, preset_values)
    if issues:
        raise SpaceError(issues)
    words = objective if isinstance(objective, str) else objective["command"]
    return Document(
        file=file_in_words(path),
        objective=words,
        metric=data.get("metric", "val_loss" if ObjectiveInfo(words).training else "value"),
        parameters=nested(copy.deepcopy(data["parameters"] | given)),
        seed=data.get("seed", 0),
        provenance=data.get("provenance") or {},
        report_to=tuple(trackers(data.get("report_to", []))),
        judging={key: data[key] for key in JUDGING if key in data},
        report=source_in(data),
        places=places,
    )


def _shape(data: Any, places: Places) -> Iterator[Issue]:
    """What is wrong with the shape of a configuration to train."""
    if not isinstance(data, dict):
        yield places.issue("", "must be a mapping with parameters: and, if it is not lora, objective:")
        return
    if any(key in data for key in SPACE_ONLY_KEYS):
        told = "this is a space to search (hpsearch run); hpsearch train takes what hpsearch export writes"
        yield places.issue("", told)
        return
    for key in data:
        if key not in KEYS:
            yield places.issue(key, f"unknown key, {hint(key, KEYS)}", key=True)
    if data.get("preset") is not None and names_in(data["preset"]) is None:
        yield places.issue("preset", "must be a preset's name or a list of them")
    if not isinstance(data.get("parameters"), dict) or not data["parameters"]:
        yield places.issue("parameters", "must be a mapping such as {learning_rate: 1e-3, max_samples: 1600}")
    objective = data.get("objective", "lora")
    words = objective.get("command") if isinstance(objective, dict) else [objective]
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
        yield places.issue("objective", "must be a name, module:function or {command: [...]}")
    yield from report_issues(data, places)
    if not isinstance(data.get("metric", ""), str):
        yield places.issue("metric", "must be a name")
    for key, allowed in JUDGING.items():
        if key in data and data[key] not in allowed:
            yield places.issue(key, f"must be {' or '.join(allowed)}, not {show(data[key])}")
    if not _is_seed(data.get("seed", 0)):
        yield places.issue("seed", "must be a whole number, 0 or more")
    try:
        trackers(data.get("report_to", []))
    except ValueError as error:
        yield places.issue("report_to", str(error))
    if not isinstance(data.get("provenance") or {}, dict):
        yield places.issue("provenance", "must be a mapping like the one that hpsearch export writes")


def _is_seed(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """Parse `["learning_rate=1e-3"]` to `{"learning_rate": 0.001}`; values are read as in a space file."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name:
            message = f'"{assignment}" is not an assignment; write NAME=VALUE, such as learning_rate=1e-3'
            raise UsageError(message, code="assignment")
        value, _, faults = read(text, f"--set {name}") if text.strip() else (None, None, [])
        if faults:
            raise SpaceError(faults)
        values[name] = value
    return values


def idle_changes(document: Document) -> dict[str, str]:
    """The parameters of the command line that have no effect beside the others, and what each needs."""
    idle = ObjectiveInfo(document.objective).idle_parameters(document.parameters)
    return {name: need for name, (need, _) in idle.items() if name in document.overridden}


def override(document: Document, values: Mapping[str, Any]) -> Document:
    """The document with some parameters, given by dotted names, or the `seed` changed.

    With hpsearch's trainer, `max_samples` replaces a length in another unit. Raises `SpaceError` for a name
    that a user's function or command has no parameter of; it would be ignored silently.
    """
    changed = replace(document, parameters=copy.deepcopy(document.parameters))
    info = ObjectiveInfo(document.objective)
    other = {"max_steps", "num_train_epochs"} & changed.parameters.keys()
    if info.training and "max_samples" in values and other:
        for name in {*other, "eval_every"} - values.keys():  # `eval_every` counts in the same unit
            changed.parameters.pop(name, None)
    issues = []
    for name, value in values.items():
        if name == "seed" and "seed" not in changed.parameters:
            if not _is_seed(value):
                issues.append(Issue(document.file, 0, 0, "--set seed", "must be a whole number, 0 or more"))
            changed = replace(changed, seed=value)
            continue
        inside, last = _place_of(changed.parameters, name)
        if not info.is_built_in and last not in inside:
            message = f"the file has no such parameter, {hint(name, document.parameters)}"
            issues.append(Issue(document.file, 0, 0, f"--set {name}", message))
        inside[last] = value
    if issues:
        raise SpaceError(issues)
    same = changed.parameters == document.parameters and changed.seed == document.seed
    return document if same else replace(changed, overridden=(*document.overridden, *values))


def with_presets(document: Document, names: Sequence[str], assignments: Mapping[str, Any]) -> dict[str, Any]:
    """The presets' values, overridden by the assignments. Raises `UsageError`.

    Presets from the command line override the file, except for how it learns: its learning rate, schedule and
    warm-up are the result of its search.
    """
    given = {*assignments, *(name for name in document.parameters if name in RATE_PARAMETERS)}
    try:
        return {**preset_values(document.objective, names, given), **assignments}
    except ValueError as error:
        raise UsageError(str(error), code="preset") from None


def with_trackers(document: Document, names: list[str] | str | None) -> Document:
    """The document with the trackers of the command line, or its own if that names none.

    Raises `UsageError` for an unknown tracker.
    """
    if names is None:
        return document
    try:
        return replace(document, report_to=tuple(trackers(names)))
    except ValueError as error:
        raise UsageError(str(error), code="tracker") from None


def _place_of(parameters: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """The mapping that holds a dotted name, and the name's key in it."""
    *outer, last = name.split(".")
    inside = parameters
    for part in outer:
        inside = inside.setdefault(part, {})
        if not isinstance(inside, dict):
            message = f'{name}: "{part}" is a value; it has no parameters inside'
            raise UsageError(message, code="assignment")
    return inside, last


def in_processes(document: Document, processes: int) -> Document:
    """The document for another number of processes. Sums then round differently, so no value is promised.

    Raises `UsageError` if the objective trains in one process only.
    """
    if processes == document.processes:
        return document
    if processes > 1 and not ObjectiveInfo(document.objective).can_share:
        message = f'the objective "{document.objective}" trains in one process'
        raise UsageError(message, code="one-process")
    kept = {name: each for name, each in document.provenance.items() if name != "value"}
    return replace(document, provenance=kept | {"processes_per_trial": processes})
