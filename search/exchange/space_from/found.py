"""A search that a program's source describes, as a space can say it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....spaces.relations import NAME
from ...trials.yaml_text import one_line, text_of
from .syntax import file_of

When = dict[str, Any] | str | None
MAX_NOTES = 60  # comments about what cannot be read; a program may have thousands of such calls


@dataclass
class FoundParameter:
    """A parameter of the space, as the space file writes it."""

    name: str
    says: Any  # {min, max, ...}, a list of choices, or a constant
    line: int  # of the source
    when: When = None

    @property
    def text(self) -> str:
        """Its line in the space file."""
        says = self.says
        if self.when is not None:
            form = "choices" if isinstance(says, list) else "value"
            says = (says if isinstance(says, dict) else {form: says}) | {"when": self.when}
        elif not isinstance(says, int | float | str | list | dict) or says == "":
            says = {"value": says}
        return f"  {self.name}: {text_of(says)}"


@dataclass
class FoundSearch:
    """What a script says of its search, and what of that a space cannot say."""

    source: Path
    objective: str
    how: str  # the objective is used, in a sentence
    study: str
    metric: str = "value"
    goal: str = "minimize"
    parameters: list[FoundParameter] = field(default_factory=list)
    baseline: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=lambda: {"sampler": "tpe", "seed": 0})
    early_stopping: dict[str, Any] | None = None
    budget: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, node: Any, text: str) -> None:
        """Say something about a line of the source."""
        line = f"{file_of(node, self.source).name}, line {node.lineno}: {text}"
        if line not in self.notes:
            self.notes.append(line)

    def add(self, parameter: FoundParameter) -> None:
        """Add a parameter, if a space can name it and it is not there yet."""
        if not NAME.fullmatch(parameter.name):
            line = f"{self.source.name}, line {parameter.line}"
            self.notes.append(f"{line}: a space cannot name {parameter.name!r}")
            return
        self.parameters.append(parameter)

    def lines(self) -> Iterator[str]:
        """The lines of the space file."""
        name = one_line(self.source.name)
        yield f"# Read from {name}, which stays as it is: check it, then hpsearch run it."
        yield f"# {self.how}"
        for note in self.notes[:MAX_NOTES]:
            yield f"# {one_line(note)}"
        if len(self.notes) > MAX_NOTES:
            yield f"# and {len(self.notes) - MAX_NOTES} more such lines"
        yield "version: 1"
        yield f"name: {text_of(self.study)}"
        yield f"objective: {text_of(self.objective)}"
        yield f"metric: {text_of(self.metric)}"
        yield f"goal: {self.goal}"
        yield ""
        yield "parameters:"
        yield from (parameter.text for parameter in self.parameters)
        if self.baseline:
            yield ""
            yield "baseline:"
            yield from (f"  {key}: {text_of(value)}" for key, value in self.baseline.items())
        yield ""
        yield f"search: {text_of(self.search)}"
        if self.early_stopping is not None:
            yield f"early_stopping: {text_of(self.early_stopping)}"
        yield f"budget: {text_of(self.budget)}"
