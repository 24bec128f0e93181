"""The objectives that hpsearch brings: what each can be told, and what is known of it before it runs.

A module of this package each, with `Config` (its parameters), `train(trial) -> float` and `export`. Nothing
that is asked here loads a framework, but for what trains or exports.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from .base import Objective, ObjectiveError, Trial
from .errors import trainer_errors

if TYPE_CHECKING:
    from ..trainer.config.models import TrainConfig
    from ..trainer.config.rules import Parameters
    from ..trainer.config.training import TrainingConfig


class ObjectiveModule(Protocol):
    """What the module of an objective has."""

    __doc__: str | None
    Config: type[Parameters]

    def train(self, trial: Trial, /) -> float:
        """Train one trial; the final value of the study's metric."""
        ...

    def export(self, checkpoint: Path, folder: Path, *, merge: bool) -> list[Path]:
        """Write what a finished run leaves to its user; the files.

        `merge` asks for a whole model beside an adapter.
        """
        ...


@dataclass(frozen=True)
class Needs:
    """What something imports, and the extra of hpsearch that installs it."""

    packages: tuple[str, ...]
    extra: str | None = None
    later: tuple[str, ...] = ()  # those that are imported by its trials, whose parameters say how

    @property
    def missing(self) -> tuple[str, ...]:
        """The packages that are not installed here."""
        return tuple(package for package in self.packages if find_spec(package) is None)

    @property
    def told(self) -> str | None:
        """What is missing and what installs it, to be read after a name; None where nothing is."""
        if not self.missing:
            return None
        return (
            f"needs what is not installed ({', '.join(self.missing)}): pip install 'hpsearch[{self.extra}]'"
        )


BUILT_IN: Mapping[str, Needs] = {
    "lora": Needs(("torch",)),
    "pretrain": Needs(("torch",)),
    "sklearn": Needs(("sklearn", "skops"), "sklearn"),
    "xgboost": Needs(("xgboost", "sklearn"), "xgboost"),
    "lightgbm": Needs(("lightgbm", "sklearn"), "lightgbm"),
    "catboost": Needs(("catboost", "sklearn"), "catboost"),
    "keras": Needs(("keras", "torch", "sklearn", "skops"), "keras", later=("keras",)),
    "hf_lora": Needs(("transformers", "peft"), "hf"),
}
_MODULES = {
    **{name: f"gpt.{name}" for name in ("lora", "pretrain")},
    **{name: f"tables.{name}" for name in ("sklearn", "xgboost", "lightgbm", "catboost", "keras")},
}  # where it is not the name


def is_built_in(objective: str | Sequence[str]) -> bool:
    """Whether hpsearch brings this objective: to load it runs nobody else's code."""
    return isinstance(objective, str) and objective in BUILT_IN


def load(name: str) -> Objective:
    """A built-in objective with all that it imports. Raises `ObjectiveError` where a package is missing."""
    for package in _present(name):
        if package not in BUILT_IN[name].later:
            import_module(package)  # now, while the first trial is not here yet
    train = _module(name).train

    def objective(trial: Trial, /) -> float:
        with trainer_errors():
            return train(trial)

    return objective


def export(objective: str | list[str], checkpoint: Path, folder: Path, *, merge: bool) -> list[Path]:
    """Write what a finished run of a built-in objective leaves to its user; returns the files.

    `merge` asks for a whole model beside an adapter. Others leave what they wrote themselves: no files.
    Raises `ObjectiveError` where the checkpoint is none.
    """
    if not isinstance(objective, str) or not is_built_in(objective):
        return []
    with trainer_errors():
        return _module(objective).export(checkpoint, folder, merge=merge)


@dataclass(frozen=True)
class DescribedParameter:
    """What a parameter may be, in words."""

    name: str
    default: Any
    allowed: str
    help: str


@dataclass(frozen=True)
class Described:
    """What an objective is, in words."""

    name: str
    summary: str
    missing: str | None  # what is to be installed first
    parameters: tuple[DescribedParameter, ...]

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        return asdict(self)


def described(name: str) -> Described:
    """A built-in objective in words. Raises `ObjectiveError` where there is none of this name."""
    from ..trainer.config.rules import defaults_of, rules

    _known(name)
    module = _module(name)
    summary = (module.__doc__ or "").splitlines()[0].partition(": ")[2]
    defaults = defaults_of(module.Config)
    parameters = (
        DescribedParameter(parameter, defaults[parameter], rule.allowed, rule.help)
        for parameter, rule in rules(module.Config).items()
    )
    return Described(name, summary, _missing(name), tuple(parameters))


def can_share(objective: str | Sequence[str]) -> bool:
    """Whether several processes may train a trial together; of an objective of the user's, it says itself."""
    return not is_built_in(objective) or training_config(objective) is not None


class PackedObjective(Protocol):
    """Runs several trials at once, in one process."""

    @property
    def busy(self) -> bool: ...

    def join(self, trial: Trial) -> None: ...

    def leave(self, trial: Trial) -> None: ...

    def advance(self) -> list[tuple[Trial, float | BaseException]]: ...


def can_pack(objective: str | list[str]) -> bool:
    """Whether trials of an objective train several at once in one process: those of frozen bases do."""
    return objective == "lora"


def packed(name: str, within: Callable[[Trial], AbstractContextManager[None]]) -> PackedObjective:
    """What runs several trials of a built-in objective at once; `within` as `built_in.Packed` has it."""
    from .runs import Packed

    config = trainer_config(name)
    assert config is not None
    return Packed(config, within)


def check_built_in(name: str) -> None:
    """Raise `ObjectiveError` where there is no built-in objective of this name, or a package is missing."""
    _known(name)
    _present(name)


def _known(name: str) -> None:
    """Raise `ObjectiveError` where there is no built-in objective of this name."""
    if name not in BUILT_IN:
        near = difflib.get_close_matches(name, BUILT_IN, 1)
        hint = f'did you mean "{near[0]}"? ' if near else ""
        raise ObjectiveError(
            f'there is no objective "{name}"; {hint}built in: {", ".join(BUILT_IN)}; '
            'your own: "module:function", "path/to/file.py:function" or {command: [...]}'
        )


def config_class(objective: str | Sequence[str]) -> type[Parameters] | None:
    """What a built-in objective can be told; None for others."""
    if not isinstance(objective, str) or not is_built_in(objective):
        return None
    return _module(objective).Config


def training_config(objective: str | Sequence[str]) -> type[TrainingConfig] | None:
    """The same of an objective that trains by hpsearch's own loop, whatever the model; None for others."""
    from ..trainer.config.training import TrainingConfig

    found = config_class(objective)
    return found if found is not None and issubclass(found, TrainingConfig) else None


def trainer_config(objective: str | Sequence[str]) -> type[TrainConfig] | None:
    """The same of an objective that trains hpsearch's own model; None for others."""
    from ..trainer.config.models import TrainConfig

    found = config_class(objective)
    return found if found is not None and issubclass(found, TrainConfig) else None


def trainers() -> list[str]:
    """The objectives that train hpsearch's own model."""
    return [name for name in BUILT_IN if trainer_config(name) is not None]


def known_parameters(objective: str | Sequence[str]) -> frozenset[str] | None:
    """The parameters that a built-in objective takes; None for others."""
    from ..trainer.config.rules import known_parameters

    config = config_class(objective)
    return None if config is None else known_parameters(config)


def with_defaults(objective: str | Sequence[str], params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with those that a built-in objective takes where they are left out."""
    from ..trainer.config.rules import defaults_of

    config = config_class(objective)
    return dict(params) if config is None else defaults_of(config) | dict(params)


def parameter_problems(objective: str, params: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a built-in objective would refuse: a parameter's name and a message for each.

    A message about several parameters stands under the first that is given. Empty for other objectives.
    """
    from ..trainer.errors import ConfigError

    config = config_class(objective)
    if config is None:
        return []
    try:
        found = config.from_params(params)
    except ConfigError as error:
        return [_problem(problem, params) for problem in error.problems]
    of_files = getattr(_module(objective), "problems_of_files", None)  # of some alone
    return [_problem(problem, params) for problem in (of_files(found) if of_files else [])]


def metric_problem(objective: str | Sequence[str], metric: str) -> str | None:
    """What speaks against that name for the value of a built-in objective."""
    from ..trainer.config.training import BESIDE

    if training_config(objective) is None or metric not in BESIDE:
        return None
    return f"is {metric}, but what {objective} reports is val_loss; write that, other numbers stand beside it"


def sharing_problems(
    objective: str | Sequence[str], params: Mapping[str, Any], strategy: str
) -> list[tuple[str, str]]:
    """What speaks against several processes for a trial of a built-in objective, as `parameter_problems`."""
    from ..trainer.errors import ConfigError

    config = training_config(objective)
    if config is None:
        return []
    try:
        found = config.from_params(params)
    except ConfigError:
        return []  # `parameter_problems` says so
    return [_problem(problem, params) for problem in found.undivided(strategy)]


def idle_rank(objective: str, params: Mapping[str, Any]) -> tuple[int, int] | None:
    """A rank of adapters that is higher than they can use, and the highest that they can; else None."""
    from ..trainer.config.models import LoraConfig
    from ..trainer.errors import TrainerError
    from ..trainer.guides.footprint import highest_rank

    if config_class(objective) is not LoraConfig:
        return None
    try:
        config = LoraConfig.from_params(params)
        highest = highest_rank(config)
    except (TrainerError, OSError):
        return None  # `parameter_problems` and `missing_file` say so
    if config.finetuning_type != "lora" or config.lora_r <= highest:
        return None
    return config.lora_r, highest


def is_bundled(objective: str | Sequence[str], name: str, value: object) -> bool:
    """Whether a parameter of a built-in objective names data that needs no file."""
    config = config_class(objective)
    return config is not None and name in config.files and value in config.bundled


def missing_file(objective: str, name: str, value: object) -> str | None:
    """What to say where a parameter of a built-in objective names a file that is nowhere; None elsewhere."""
    config = config_class(objective)
    if config is None or not isinstance(value, str) or name not in (*config.files, *config.models):
        return None
    if is_bundled(objective, name, value):
        return None
    if os.path.exists(os.path.expanduser(value)):  # of ~nobody, and of a name too long, it says no
        return None
    without = config.bundled if name in config.files else (f"a {name} that ships",)
    return f'there is no file "{value}" in {Path.cwd()}; there is {", ".join(without)} without one'


def identifying(objective: str | list[str], params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that make a run this run; the others may be changed while it goes on."""
    config = config_class(objective)
    outside = () if config is None else config.outside
    return {name: value for name, value in params.items() if name not in outside}


def fingerprints(objective: str | list[str], values: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    """The SHA-256 of each file that a search of these values trains on, by its path.

    Empty for an objective of the user's, whose files nobody knows; without those that are not there, which
    the trials themselves will say.
    """
    from ..trainer.data.texts import fingerprint
    from ..trainer.errors import DataError

    config = config_class(objective)
    if config is None:
        return {}
    found = {}
    for file in (value for name in config.files for value in values.get(name, ())):
        if isinstance(file, str) and file not in config.bundled:
            with suppress(DataError):
                found[file] = fingerprint(Path(file))
    return found


def interval_of(objective: str | list[str], parameter: str) -> str | None:
    """What a number may be, such as `[0, 1)`; None where nobody says so.

    The names of hpsearch's trainer are those of Hugging Face, and mean the same in a user's training.
    """
    from ..trainer.config.rules import rules

    built_in = config_class(objective)
    configs = [built_in] if built_in is not None else [cast(Any, config_class(name)) for name in trainers()]
    for config in configs:
        rule = rules(config).get(parameter if built_in else parameter.rpartition(".")[2])
        if rule is not None and rule.kind in (int, float):
            return rule.interval
    return None


def idle_parameters(objective: str, params: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """What a built-in objective would not use, and what of the others each needs.

    The need comes in words, to be read after "unless", and as a space file's `when` has it.
    """
    from ..trainer.config.rules import idle_parameters

    config = config_class(objective)
    if config is None:
        return {}
    return {name: (need.text, need.when) for name, need in idle_parameters(config, params).items()}


def footprint(objective: str | list[str], params: Mapping[str, Any], *, cuda: bool = False) -> int | None:
    """The bytes that a run of hpsearch's trainer holds at its fullest, counted from its parameters.

    `cuda`: where the device `auto` is such a one. None where nobody can tell: for another objective, a
    configuration that will be refused, a base that cannot be read.
    """
    from ..trainer.errors import TrainerError
    from ..trainer.guides.footprint import counted

    config = trainer_config(objective)
    if config is None:
        return None
    try:
        return counted(config, params, cuda=cuda)
    except (TrainerError, OSError):
        return None


def _module(name: str) -> ObjectiveModule:
    return cast(ObjectiveModule, import_module(f".{_MODULES.get(name, name)}", __package__))


def _present(name: str) -> tuple[str, ...]:
    """The packages of an objective. Raises `ObjectiveError` where one is missing, with what installs it."""
    if (told := _missing(name)) is not None:
        raise ObjectiveError(f'the objective "{name}" {told}')
    return BUILT_IN[name].packages


def _missing(name: str) -> str | None:
    """What an objective lacks here, and what installs it; None where it lacks nothing."""
    return BUILT_IN[name].told


def _problem(problem: str, params: Mapping[str, Any]) -> tuple[str, str]:
    names, _, message = problem.partition(": ")
    several = names.split(", ")
    first = next((name for name in several if name in params), several[0])
    return first, message if len(several) == 1 else problem
