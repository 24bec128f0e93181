"""Space files: what can be searched, a space to start from, and how one is understood."""

from __future__ import annotations

import random
import sys
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...objectives import catalog
from ...objectives.catalog import ObjectiveDescription, describe_objective
from ...objectives.guides import PRESETS
from ...spaces import (
    Constant,
    Derived,
    Issue,
    Parameter,
    Spec,
    describe,
    json_schema,
    shipped_text,
    warnings,
)
from ..errors import UsageError
from ..preflight import checks
from ..preflight.objective import import_objective, load_space
from ..scheduling.rungs import plan_of
from ..values import Value, plain

SAMPLES = 5  # random configurations that show what a space holds


@dataclass(frozen=True)
class ValidSpace(Value):
    """A space without errors, as it is understood."""

    file: str
    spec: Spec
    samples: list[dict[str, Any]]  # random configurations, the same ones every time
    warnings: list[Issue]  # what is allowed and probably not meant, in the order of the file
    imported: bool  # whether the objective was imported too

    def to_json(self) -> dict[str, Any]:
        spec = self.spec
        content = {
            "file": self.file,
            "valid": True,
            "spec": spec.to_json(),
            "preset": spec.preset,
            "from_preset": spec.from_preset,
            "parameters": {
                name: {"values": describe(parameter), "kind": kind(parameter)}
                for name, parameter in spec.parameters.items()
            },
            "feasible_share": spec.space.feasible_share(),
            "samples": self.samples,
            "baseline": spec.space.baseline(),
            "plan": asdict(plan_of(spec)) | {"resource": spec.resource},
            "warnings": [issue._asdict() for issue in self.warnings],
            "imported": self.imported,
        }
        return plain(content)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class NewSpace(Value):
    """The text of a space file to start from."""

    file: Path  # a name that suits it
    text: str
    to_fill: tuple[str, ...]  # parameters whose values its user fills in


@dataclass(frozen=True)
class Schema(Value):
    """The JSON Schema of space files."""

    schema: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return self.schema


@dataclass(frozen=True)
class Objectives(Value):
    """Objectives in words."""

    objectives: tuple[ObjectiveDescription, ...]

    def to_json(self) -> Any:
        return plain([each.to_json() for each in self.objectives])


def objectives(*, name: str | None = None) -> Objectives:
    """The objectives that hpsearch brings, or one of them, with their parameters, defaults and limits."""
    return Objectives(
        tuple(describe_objective(each) for each in ([name] if name is not None else catalog.BUILT_IN))
    )


def init(*, objective: str | None = None, source: Path | None = None) -> NewSpace:
    """A commented space to be changed: of an objective, or proposed from a script or a configuration file.

    Raises `UsageError` unless one of the two is given, and `ObjectiveError` for an unknown objective.
    """
    from ..exchange.space_from import TO_FILL_IN, proposal

    if source is not None and objective is None:
        text, file = proposal(source), Path(f"{source.stem}_space.yaml")
    elif objective is not None and source is None:
        describe_objective(objective)  # refuses an unknown one
        text, file = shipped_text(objective), Path(f"{objective}.yaml")
    else:
        raise UsageError(
            "name an objective (hpsearch objectives lists them), or a file to propose the space from",
            code="init-source",
        )
    to_fill = (line.removeprefix(TO_FILL_IN) for line in text.splitlines() if line.startswith(TO_FILL_IN))
    return NewSpace(file, text, tuple(to_fill))


def schema() -> Schema:
    """The JSON Schema of space files, by which editors complete and check them."""
    return Schema(json_schema(PRESETS))


def validate(*, space: str | Path, imports: bool = False) -> ValidSpace:
    """Check a space file and say how it is understood. Trains nothing.

    With `imports` the objective's module is imported too, which runs it. Raises `SpaceError` with every
    mistake in the file.
    """
    spec = checks.checked(load_space(space))
    rng = random.Random(spec.search.seed)
    samples = [spec.space.sample(rng) for _ in range(SAMPLES)]
    if imports:
        with redirect_stdout(sys.stderr):  # what the module prints is not part of the answer
            import_objective(spec)
    found = sorted([*warnings(spec), *checks.warnings(spec)], key=lambda issue: (issue.line, issue.column))
    return ValidSpace(str(space), spec, samples, found, imports)


def kind(parameter: Parameter) -> str:
    """What a parameter is, in a few words: searched, fixed or derived, and whether always and for all."""
    word = "searched"
    if isinstance(parameter, Constant):
        word = "fixed"
    elif isinstance(parameter, Derived):
        word = "derived"
    word = word if parameter.when is None else f"{word}, conditional"
    return word if parameter.passed else f"{word}, not passed"
