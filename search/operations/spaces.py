"""Space files: what can be searched, a space to start from, and how one is understood."""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self

from ...objectives import catalog
from ...objectives.catalog import ObjectiveDescription, describe_objective
from ...objectives.guides import PRESETS
from ...objectives.info import ObjectiveInfo
from ...spaces import (
    Constant,
    Derived,
    Issue,
    Parameter,
    SpaceError,
    Spec,
    describe,
    json_schema,
    shipped,
    shipped_text,
    warnings,
)
from ...spaces.dialects import CONVERTED, tools_of
from ...spaces.document import file_in_words, read, text_of
from ...spaces.errors import hint
from ...spaces.loader import Source, Text
from ..errors import UsageError
from ..preflight import checks
from ..preflight.objective import import_objective, load_space
from ..scheduling.rungs import plan_of
from ..values import Value, merged, plain

CONVERTED_FILE = "converted.yaml"  # what a text to convert is called in messages
MOST_FILES, DEEPEST = 1000, 4  # in a list of space files, and in its folders
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*\.py")  # which needs no quotes in a space or a command
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

    @classmethod
    def from_json(cls, data: Any) -> Self:
        spec = Spec.from_json(data["spec"]).of_preset(data["preset"], data["from_preset"])
        found = [Issue(**issue) for issue in data["warnings"]]
        return cls(data["file"], spec, data["samples"], found, data["imported"])

    @classmethod
    def shape(cls) -> Any:
        parameter = merged("UnderstoodParameter", also={"values": str, "kind": str})
        also = {
            "valid": Literal[True],
            "spec": dict[str, Any],
            "preset": str | list[str] | None,
            "from_preset": list[str],
            "parameters": dict[str, parameter],  # type: ignore[valid-type]
            "feasible_share": float,
            "baseline": dict[str, Any] | None,
            "plan": dict[str, Any],
        }
        return merged(cls.__name__, cls, also=also)


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

    @classmethod
    def from_json(cls, data: Any) -> Self:
        return super().from_json({"schema": data})

    @classmethod
    def shape(cls) -> Any:
        return dict[str, Any]


@dataclass(frozen=True)
class Objectives(Value):
    """Objectives in words."""

    objectives: tuple[ObjectiveDescription, ...]

    def to_json(self) -> Any:
        return plain([each.to_json() for each in self.objectives])

    @classmethod
    def from_json(cls, data: Any) -> Self:
        return super().from_json({"objectives": data})

    @classmethod
    def shape(cls) -> Any:
        return list[ObjectiveDescription]


def objectives(*, name: str | None = None) -> Objectives:
    """The objectives that hpsearch brings, or one of them, with their parameters, defaults and limits."""
    return Objectives(
        tuple(describe_objective(each) for each in ([name] if name is not None else catalog.BUILT_IN))
    )


def init(
    *,
    objective: str | None = None,
    source: Path | None = None,
    text: str | None = None,
    model: str | None = None,
) -> NewSpace:
    """A commented space to be changed: of an objective, from a script or a configuration file, or converted.

    With `text` that is the script, `source` is its name alone, and no file is read. With `model`, a folder
    or an id in the hub's cache, the objective's space is made out to it. Raises `UsageError` unless an
    objective or a source is given, or for a model where the objective takes none, and `ObjectiveError` for
    an unknown objective or model.
    """
    from ..exchange.convert import conversion
    from ..exchange.space_from import proposal

    if source is not None and objective is None and model is None:
        made = conversion(source) or proposal(source) if text is None else _proposed(text, source)
        file = Path(f"{source.stem}_space.yaml")
    elif objective is not None and source is None:
        describe_objective(objective)  # refuses an unknown one
        made = shipped_text(objective) if model is None else _of_model(objective, model)
        file = Path(f"{objective}.yaml")
    elif model is not None:
        raise UsageError(
            "a model is for the space of an objective: name hf_lora, and no file", code="init-model"
        )
    else:
        raise UsageError(
            "name an objective (hpsearch objectives lists them), or a file to propose the space from",
            code="init-source",
        )
    return NewSpace(file, made, _to_fill(made))


def _of_model(objective: str, model: str) -> str:
    """The space of an objective for a model."""
    from ..exchange.space_from.of_model import space_of_model

    if "model" not in (ObjectiveInfo(objective).known_parameters or ()):
        raise UsageError(
            f"the space of {objective} has no parameter model; that of hf_lora has one", code="init-model"
        )
    return space_of_model(model)


def _proposed(text: str, named: Path) -> str:
    """The space that is proposed from the text of a script. Reads no other file."""
    from ..exchange.space_from import proposal

    if not PLAIN_NAME.fullmatch(str(named)):
        raise UsageError(f'"{named}" is no name of a script; write one such as train.py')
    with _file_of(named, text) as file:
        return proposal(file, alone=True).replace(str(file), str(named))


def _to_fill(text: str) -> tuple[str, ...]:
    """What its user fills in of a text that was proposed or converted."""
    from ..exchange.space_from import TO_FILL_IN

    return tuple(line.removeprefix(TO_FILL_IN) for line in text.splitlines() if line.startswith(TO_FILL_IN))


@contextmanager
def _file_of(named: Path, text: str) -> Iterator[Path]:
    """A file that holds a text, with nothing beside it. Errors call it as it is named."""
    with TemporaryDirectory(prefix="hpsearch-") as folder:
        inner = Path(folder) / "alone"  # conversions look for programs beside a file, and above it
        inner.mkdir()
        file = inner / named.name
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        try:
            yield file
        except SpaceError as error:
            raise SpaceError(issue._replace(file=str(named)) for issue in error.issues) from None
        except UsageError as error:
            raise UsageError(str(error).replace(str(file), str(named)), code=error.code) from None


def schema() -> Schema:
    """The JSON Schema of space files, by which editors complete and check them."""
    return Schema(json_schema(PRESETS))


def validate(*, space: Source | Spec, imports: bool = False) -> ValidSpace:
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
    return ValidSpace(name_in_messages(space), spec, samples, found, imports)


def name_in_messages(space: Source | Spec) -> str:
    """The name that a space has in messages."""
    if isinstance(space, Spec):
        return "<spec>"
    if isinstance(space, Text):
        return space.file
    return file_in_words(space) if isinstance(space, str | Path) else "<dict>"


def kind(parameter: Parameter) -> str:
    """What a parameter is, in a few words: searched, fixed or derived, and whether always and for all."""
    word = "searched"
    if isinstance(parameter, Constant):
        word = "fixed"
    elif isinstance(parameter, Derived):
        word = "derived"
    word = word if parameter.when is None else f"{word}, conditional"
    return word if parameter.passed else f"{word}, not passed"


@dataclass(frozen=True)
class ListedSpace(Value):
    """A space that can be searched."""

    name: str  # of the study that it makes
    objective: str
    file: Path | None  # None where it ships: its name is enough


@dataclass(frozen=True)
class ListedSpaces(Value):
    """Spaces, those that ship first."""

    spaces: tuple[ListedSpace, ...]

    def to_json(self) -> Any:
        return [space.to_json() for space in self.spaces]

    @classmethod
    def shape(cls) -> Any:
        return list[ListedSpace]


@dataclass(frozen=True)
class ConvertedSpace(Value):
    """Another tool's file as the text of a space; comments in it say what differs."""

    tool: str
    text: str
    to_fill: tuple[str, ...]  # what its user fills in


def list_spaces(*, folders: Sequence[Path] = ()) -> ListedSpaces:
    """List the spaces that ship, and the space files in these folders and below, as they are on disk."""
    found = [_listed(shipped_text(name), name, None) for name in shipped()]
    for folder in folders:
        found += [_listed(None, path.stem, path) for path in _yaml_files(folder)]
    return ListedSpaces(tuple(each for each in found if each is not None))


def listed_text(*, space: str, folders: Sequence[Path] = ()) -> str:
    """The text of a space of that list, by the name of one that ships or by its file.

    Raises `UsageError` for any other.
    """
    if space in shipped():
        return shipped_text(space)
    files = {str(path): path for folder in folders for path in _yaml_files(folder)}
    if space not in files or _listed(None, "", files[space]) is None:
        raise UsageError(
            f'"{space}" is none of the spaces; {hint(space, [*shipped(), *files])}', code="not-found"
        )
    return text_of(files[space])


def tool_of(text: str) -> str | None:
    """Whose file a text is; None for none that can be converted."""
    data, _, _ = read(text, CONVERTED_FILE)
    return next(iter(tools_of(data)), None)


def convert(*, text: str, tool: str | None = None) -> ConvertedSpace:
    """Turn the text of another tool's file into the text of a space. Reads no other file.

    Raises `UsageError` where the text is no such file, or is not one of `tool`, and `SpaceError` with
    everything in it that a space cannot say.
    """
    from ..exchange.convert import conversion

    data, places, faults = read(text, CONVERTED_FILE)
    if faults:
        raise SpaceError(faults)
    found = tools_of(data)
    if tool is not None and tool not in CONVERTED:
        raise UsageError(f'"{tool}" is no tool whose files are converted; {hint(tool, CONVERTED)}')
    if not found or (tool is not None and tool not in found):
        known = ", ".join(CONVERTED.values())
        raise UsageError(f"this is not {CONVERTED[tool] if tool else f'one of: {known}'}")
    if "searchSpaceFile" in data:
        told = "is another file, which did not come along; write its content under searchSpace"
        raise SpaceError([places.issue("searchSpaceFile", told, key=True)])
    with _file_of(Path(CONVERTED_FILE), text) as file:
        made = conversion(file)
    assert made is not None
    return ConvertedSpace(next(iter(found)) if tool is None else tool, made, _to_fill(made))


def _listed(text: str | None, name: str, file: Path | None) -> ListedSpace | None:
    """A space in a list; None for what is no space file."""
    try:
        text = text_of(file) if text is None and file is not None else text
        data, _, faults = read(text or "", name)
    except (OSError, ValueError):
        return None
    if faults or not isinstance(data, dict) or not {"name", "objective", "parameters"} <= data.keys():
        return None
    objective = data["objective"]
    if isinstance(objective, dict):
        objective = " ".join(map(str, objective.get("command") or []))
    return ListedSpace(str(data["name"]), str(objective), file)


def _yaml_files(folder: Path) -> list[Path]:
    """The YAML files in a folder and below, without following links out of it; no more than a list holds."""
    found: list[Path] = []
    seen = 0
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if len(Path(place).relative_to(folder).parts) >= DEEPEST:
            folders.clear()
        seen += len(names)
        found += [Path(place, name) for name in sorted(names) if name.endswith((".yaml", ".yml"))]
        if len(found) >= MOST_FILES or seen >= 100 * MOST_FILES:
            break
    return [path for path in found[:MOST_FILES] if path.is_file() and not path.is_symlink()]
