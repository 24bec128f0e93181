"""The built-in objectives, and what they need.

Each is a module of this package with `Config` (its parameters), `train(trial) -> float` and `export`. Only
the functions here that train or export load a framework.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from .base import Objective, ObjectiveError, Trial
from .errors import trainer_errors

if TYPE_CHECKING:
    from ..trainer.config.rules import Parameters


class ObjectiveModule(Protocol):
    """The contents of an objective's module."""

    __doc__: str | None  # begins "The objective `NAME`: ", and then says what it trains
    Config: type[Parameters]

    def train(self, trial: Trial, /) -> float:
        """Train one trial. Returns the final value of the study's metric."""
        ...

    def export(self, checkpoint: Path, folder: Path, *, merge: bool) -> list[Path]:
        """Write the results of a finished run. Returns the files.

        `merge` also writes a whole model if the result is an adapter.
        """
        ...


@dataclass(frozen=True)
class Requirements:
    """The packages that an objective needs, and the extra of hpsearch that installs them."""

    packages: tuple[str, ...]
    extra: str | None = None
    later: tuple[str, ...] = ()  # packages that only a trial may import, because its parameters say how

    @property
    def missing(self) -> tuple[str, ...]:
        """The packages that are not installed here."""
        return tuple(package for package in self.packages if find_spec(package) is None)

    @property
    def problem(self) -> str | None:
        """The missing packages and how to install them, to be read after a name; None if none is missing."""
        if not self.missing:
            return None
        return f"needs {', '.join(self.missing)}, not installed here: pip install 'hpsearch[{self.extra}]'"


BUILT_IN: Mapping[str, Requirements] = {
    "lora": Requirements(("torch",)),
    "pretrain": Requirements(("torch",)),
    "sklearn": Requirements(("sklearn", "skops"), "sklearn"),
    "xgboost": Requirements(("xgboost", "sklearn"), "xgboost"),
    "lightgbm": Requirements(("lightgbm", "sklearn"), "lightgbm"),
    "catboost": Requirements(("catboost", "sklearn"), "catboost"),
    "keras": Requirements(("keras", "torch", "sklearn", "skops"), "keras", later=("keras",)),
    "hf_lora": Requirements(("transformers", "peft"), "hf"),
}
_MODULES = {
    **{name: f"gpt.{name}" for name in ("lora", "pretrain")},
    **{name: f"tables.{name}" for name in ("sklearn", "xgboost", "lightgbm", "catboost", "keras")},
}  # modules that are not named like their objective


def load(name: str) -> Objective:
    """Load a built-in objective and what it imports. Raises `ObjectiveError` if a package is missing."""
    check_built_in(name)
    for package in BUILT_IN[name].packages:
        if package not in BUILT_IN[name].later:
            import_module(package)  # so that the first trial need not wait for it
    train = module_of(name).train

    def objective(trial: Trial, /) -> float:
        with trainer_errors():
            return train(trial)

    return objective


def export(objective: str | list[str], checkpoint: Path, folder: Path, *, merge: bool) -> list[Path]:
    """Write the results of a finished run of a built-in objective. Returns the files.

    `merge` also writes a whole model if the result is an adapter. Other objectives write their own results,
    so there are no files for them. Raises `ObjectiveError` if there is no valid checkpoint.
    """
    if not isinstance(objective, str) or objective not in BUILT_IN:
        return []
    with trainer_errors():
        return module_of(objective).export(checkpoint, folder, merge=merge)


@dataclass(frozen=True)
class ParameterDescription:
    """A parameter for people to read."""

    name: str
    default: Any
    allowed: str
    help: str


@dataclass(frozen=True)
class ObjectiveDescription:
    """An objective for people to read."""

    name: str
    summary: str
    missing: str | None  # what has to be installed first
    parameters: tuple[ParameterDescription, ...]

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        return asdict(self)


def describe_objective(name: str) -> ObjectiveDescription:
    """Describe a built-in objective. Raises `ObjectiveError` if there is none of this name."""
    from ..trainer.config import rules

    _check_name(name)
    module = module_of(name)
    summary = (module.__doc__ or "").splitlines()[0].partition(": ")[2]
    defaults = rules.defaults_of(module.Config)
    parameters = (
        ParameterDescription(parameter, defaults[parameter], rule.allowed, rule.help)
        for parameter, rule in rules.rules(module.Config).items()
    )
    return ObjectiveDescription(name, summary, BUILT_IN[name].problem, tuple(parameters))


def check_built_in(name: str) -> None:
    """Raise `ObjectiveError` if there is no built-in objective of this name, or a package is missing."""
    _check_name(name)
    if (problem := BUILT_IN[name].problem) is not None:
        raise ObjectiveError(f'the objective "{name}" {problem}')


def _check_name(name: str) -> None:
    """Raise `ObjectiveError` if there is no built-in objective of this name."""
    if name not in BUILT_IN:
        near = difflib.get_close_matches(name, BUILT_IN, 1)
        hint = f'did you mean "{near[0]}"? ' if near else ""
        raise ObjectiveError(
            f'there is no objective "{name}"; {hint}built in: {", ".join(BUILT_IN)}; '
            'your own: "module:function", "path/to/file.py:function", one of Optuna or Ray Tune '
            '("optuna:file.py:function", "ray:file.py:function"), or {command: [...]}; "remote" leaves '
            "it to the workers of the backend remote"
        )


def module_of(name: str) -> ObjectiveModule:
    """The module of a built-in objective."""
    return cast(ObjectiveModule, import_module(f".{_MODULES.get(name, name)}", __package__))
