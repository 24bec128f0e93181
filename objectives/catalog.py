"""The built-in objectives: their parameters, and what can be said about them before they run.

Each is a module of this package with `Config` (its parameters), `train(trial) -> float` and `export`. Only
the functions here that train or export load a framework.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from ..trainer.errors import ConfigError, DataError, TrainerError
from .base import Objective, ObjectiveError, Trial
from .errors import trainer_errors

if TYPE_CHECKING:
    from ..trainer.config.models import TrainConfig
    from ..trainer.config.rules import Parameters
    from ..trainer.config.training import TrainingConfig
    from .runs import PackedTrials, Within


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


def is_built_in(objective: str | Sequence[str]) -> bool:
    """Whether the objective is one of hpsearch's own, which can be loaded without running a user's code."""
    return isinstance(objective, str) and objective in BUILT_IN


def load(name: str) -> Objective:
    """Load a built-in objective and what it imports. Raises `ObjectiveError` if a package is missing."""
    check_built_in(name)
    for package in BUILT_IN[name].packages:
        if package not in BUILT_IN[name].later:
            import_module(package)  # so that the first trial need not wait for it
    train = _module(name).train

    def objective(trial: Trial, /) -> float:
        with trainer_errors():
            return train(trial)

    return objective


def export(objective: str | list[str], checkpoint: Path, folder: Path, *, merge: bool) -> list[Path]:
    """Write the results of a finished run of a built-in objective. Returns the files.

    `merge` also writes a whole model if the result is an adapter. Other objectives write their own results,
    so there are no files for them. Raises `ObjectiveError` if there is no valid checkpoint.
    """
    if not isinstance(objective, str) or not is_built_in(objective):
        return []
    with trainer_errors():
        return _module(objective).export(checkpoint, folder, merge=merge)


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
    module = _module(name)
    summary = (module.__doc__ or "").splitlines()[0].partition(": ")[2]
    defaults = rules.defaults_of(module.Config)
    parameters = (
        ParameterDescription(parameter, defaults[parameter], rule.allowed, rule.help)
        for parameter, rule in rules.rules(module.Config).items()
    )
    return ObjectiveDescription(name, summary, BUILT_IN[name].problem, tuple(parameters))


def can_share(objective: str | Sequence[str]) -> bool:
    """Whether several processes can train one trial; always true for a user's objective."""
    return not is_built_in(objective) or training_config(objective) is not None


def can_pack(objective: str | list[str]) -> bool:
    """Whether several trials of an objective can train at once in a process, on a common frozen base."""
    return objective == "lora"


def packed(name: str, within: Within) -> PackedTrials:
    """Runs several trials of a built-in objective at once; `within` as in `runs.PackedTrials`."""
    from .runs import PackedTrials

    config = trainer_config(name)
    assert config is not None
    return PackedTrials(config, within)


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
            'your own: "module:function", "path/to/file.py:function" or {command: [...]}'
        )


def config_class(objective: str | Sequence[str]) -> type[Parameters] | None:
    """The class of a built-in objective's parameters; None for other objectives."""
    if not isinstance(objective, str) or not is_built_in(objective):
        return None
    return _module(objective).Config


def _parameters(objective: str | Sequence[str]) -> type[Parameters]:
    """The class of its parameters; for objectives that are not built in, a class without parameters."""
    from ..trainer.config.rules import Parameters

    return config_class(objective) or Parameters


def training_config(objective: str | Sequence[str]) -> type[TrainingConfig] | None:
    """The same for an objective that uses hpsearch's training loop, whatever the model; None for others."""
    from ..trainer.config.training import TrainingConfig

    config = config_class(objective)
    return config if config is not None and issubclass(config, TrainingConfig) else None


def trainer_config(objective: str | Sequence[str]) -> type[TrainConfig] | None:
    """The same for an objective that trains hpsearch's own model; None for others."""
    from ..trainer.config.models import TrainConfig

    config = config_class(objective)
    return config if config is not None and issubclass(config, TrainConfig) else None


def trainers() -> list[str]:
    """The objectives that train hpsearch's own model."""
    return [name for name in BUILT_IN if trainer_config(name) is not None]


def known_parameters(objective: str | Sequence[str]) -> frozenset[str] | None:
    """The names of a built-in objective's parameters; None for other objectives."""
    from ..trainer.config import rules

    config = config_class(objective)
    return None if config is None else rules.known_parameters(config)


def with_defaults(objective: str | Sequence[str], params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters, completed with the defaults of a built-in objective."""
    from ..trainer.config import rules

    return rules.defaults_of(_parameters(objective)) | dict(params)


def parameter_problems(objective: str, params: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The problems of a configuration of a built-in objective: for each a parameter's name and a message.

    A message about several parameters comes with the first that is given. Empty for other objectives.
    """
    config = config_class(objective)
    if config is None:
        return []
    try:
        values = config.from_params(params)
    except ConfigError as error:
        return [_problem(problem, params) for problem in error.problems]
    problems_of_files = getattr(_module(objective), "problems_of_files", None)  # some objectives have it
    return [_problem(problem, params) for problem in (problems_of_files(values) if problems_of_files else [])]


def metric_problem(objective: str | Sequence[str], metric: str) -> str | None:
    """Why the value of a built-in objective cannot have this name; None if it can."""
    from ..trainer.config.training import REPORT_METRICS

    if training_config(objective) is None or metric not in REPORT_METRICS:
        return None
    return f"is {metric}, but the value that {objective} reports is val_loss; write val_loss"


def sharing_problems(
    objective: str | Sequence[str], params: Mapping[str, Any], strategy: str
) -> list[tuple[str, str]]:
    """Why several processes cannot share a trial of a built-in objective, like `parameter_problems`."""
    config = training_config(objective)
    if config is None:
        return []
    try:
        values = config.from_params(params)
    except ConfigError:
        return []  # `parameter_problems` reports it
    return [_problem(problem, params) for problem in values.sharing_problems(strategy)]


def idle_rank(objective: str, params: Mapping[str, Any]) -> tuple[int, int] | None:
    """The rank of adapters and the highest useful one, if the rank exceeds it; else None."""
    from ..trainer.config.models import LoraConfig
    from ..trainer.guides.footprint import shape_of

    if config_class(objective) is not LoraConfig:
        return None
    try:
        config = LoraConfig.from_params(params)
        highest = shape_of(config).width
    except (TrainerError, OSError):
        return None  # `parameter_problems` and `missing_file` report it
    if config.finetuning_type != "lora" or config.lora_r <= highest:
        return None
    return config.lora_r, highest


def is_bundled(objective: str | Sequence[str], name: str, value: object) -> bool:
    """Whether the value of a built-in objective's parameter names data that needs no file."""
    config = _parameters(objective)
    return name in config.files and value in config.bundled_data


def missing_file(objective: str, name: str, value: object) -> str | None:
    """The message if a parameter of a built-in objective names a file that does not exist; else None."""
    config = _parameters(objective)
    if not isinstance(value, str) or name not in (*config.files, *config.models):
        return None
    if is_bundled(objective, name, value):
        return None
    if os.path.exists(os.path.expanduser(value)):  # false for an unknown user's home or a name too long
        return None
    without = ", ".join(config.bundled_data) if name in config.files else f"the {name} that ships"
    return f'there is no file "{value}" in {Path.cwd()}; available without a file: {without}'


def identifying(objective: str | list[str], params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that identify a run; the others may change when it is resumed."""
    ignored = _parameters(objective).not_identifying
    return {name: value for name, value in params.items() if name not in ignored}


def fingerprints(objective: str | list[str], values: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    """The SHA-256 of each file that a search with these values trains on, by its path.

    Empty for a user's objective, whose files are unknown. Missing files are left out; the trials report them.
    """
    from ..trainer.data.texts import fingerprint

    config, hashes = _parameters(objective), {}
    for file in (value for name in config.files for value in values.get(name, ())):
        if isinstance(file, str) and file not in config.bundled_data:
            with suppress(DataError):
                hashes[file] = fingerprint(Path(file))
    return hashes


def interval_of(objective: str | list[str], parameter: str) -> str | None:
    """The interval of a numeric parameter, such as `[0, 1)`; None if unknown.

    The trainer's parameters have Hugging Face's names, so their intervals also hold for a user's objective.
    """
    from ..trainer.config import rules

    built_in = is_built_in(objective)
    for name in [objective] if built_in else trainers():
        rule = rules.rules(_parameters(name)).get(parameter if built_in else parameter.rpartition(".")[2])
        if rule is not None and rule.kind in (int, float):
            return rule.interval
    return None


def idle_parameters(objective: str, params: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The parameters that have no effect in a built-in objective, each with the condition that it needs.

    The condition comes in words, to be read after "unless", and as a `when` of a space file.
    """
    from ..trainer.config import rules

    idle = rules.idle_parameters(_parameters(objective), params)
    return {name: (need.text, need.when) for name, need in idle.items()}


def footprint(objective: str | list[str], params: Mapping[str, Any], *, cuda: bool = False) -> int | None:
    """The peak memory in bytes of a run of hpsearch's own model, counted from its parameters.

    `cuda` says that the device `auto` is a CUDA device. None for other objectives, invalid configurations,
    and bases that cannot be read.
    """
    from ..trainer.guides.footprint import peak_bytes

    config = trainer_config(objective)
    if config is None:
        return None
    try:
        return peak_bytes(config, params, cuda=cuda)
    except (TrainerError, OSError):
        return None


def _module(name: str) -> ObjectiveModule:
    return cast(ObjectiveModule, import_module(f".{_MODULES.get(name, name)}", __package__))


def _problem(problem: str, params: Mapping[str, Any]) -> tuple[str, str]:
    names, _, message = problem.partition(": ")
    several = names.split(", ")
    first = next((name for name in several if name in params), several[0])
    return first, message if len(several) == 1 else problem
