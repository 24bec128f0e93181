"""What can be said of an objective before it runs. Loads no framework."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..trainer.errors import ConfigError, DataError, TrainerError
from .catalog import BUILT_IN, module_of
from .user.function import library_of

if TYPE_CHECKING:
    from ..trainer.config.models import TrainConfig
    from ..trainer.config.rules import Parameters
    from ..trainer.config.training import TrainingConfig

Problem = tuple[str, str]  # the name of a parameter, and a message
Kind = Literal["built_in", "command", "function", "optuna", "ray", "remote"]
REMOTE = "remote"  # the objective of a space whose workers bring the code


class ObjectiveInfo:
    """A built-in objective, a user's function, or a command.

    Of a user's objective hpsearch knows no parameter and no problem.
    """

    def __init__(self, objective: str | Sequence[str]) -> None:
        """`objective`: a name, "file.py:function", "optuna:file.py:function" or the words of a command."""
        self.command = [] if isinstance(objective, str) else [*objective]
        self.name = objective if isinstance(objective, str) else " ".join(objective)

    @property
    def kind(self) -> Kind:
        """Its kind. A function of the user is written for hpsearch ("function"), for Optuna or for Ray Tune.

        One that is "remote" is known to the workers alone. A name that is none is built in: `check_name`
        says what is wrong with it.
        """
        if self.command:
            return "command"
        if self.name == REMOTE:
            return "remote"
        return library_of(self.name) or ("function" if ":" in self.name else "built_in")

    @property
    def is_built_in(self) -> bool:
        """Whether it is one of hpsearch's own, which can be loaded without running a user's code."""
        return self.kind == "built_in" and self.name in BUILT_IN

    @cached_property
    def parameters(self) -> type[Parameters]:
        """The class of its parameters; a class without any for a user's objective."""
        from ..trainer.config.rules import Parameters

        return module_of(self.name).Config if self.is_built_in else Parameters

    @property
    def training(self) -> type[TrainingConfig] | None:
        """The class of its parameters if it uses hpsearch's training loop, whatever the model."""
        from ..trainer.config.training import TrainingConfig

        return self.parameters if issubclass(self.parameters, TrainingConfig) else None

    @property
    def trainer(self) -> type[TrainConfig] | None:
        """The class of its parameters if it trains hpsearch's own model."""
        from ..trainer.config.models import TrainConfig

        return self.parameters if issubclass(self.parameters, TrainConfig) else None

    @property
    def can_share(self) -> bool:
        """Whether several processes can train one trial; always true for a user's objective."""
        return not self.is_built_in or self.training is not None

    @property
    def can_pack(self) -> bool:
        """Whether several trials can train at once in a process, on a common frozen base."""
        return self.name == "lora" and self.is_built_in

    @property
    def known_parameters(self) -> frozenset[str] | None:
        """The names of its parameters; None for a user's objective."""
        from ..trainer.config.rules import known_parameters

        return known_parameters(self.parameters) if self.is_built_in else None

    def with_defaults(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters, completed with defaults."""
        from ..trainer.config.rules import defaults_of

        return defaults_of(self.parameters) | dict(params)

    def parameter_problems(self, params: Mapping[str, Any]) -> list[Problem]:
        """The problems of a configuration.

        A message about several parameters comes with the first that is given.
        """
        if not self.is_built_in:
            return []
        try:
            values = self.parameters.from_params(params)
        except ConfigError as error:
            return [_problem(problem, params) for problem in error.problems]
        of_files = getattr(module_of(self.name), "problems_of_files", None)  # some objectives have it
        return [_problem(problem, params) for problem in (of_files(values) if of_files else [])]

    def sharing_problems(self, params: Mapping[str, Any], strategy: str) -> list[Problem]:
        """Why several processes cannot share a trial with this configuration."""
        if self.training is None:
            return []
        try:
            values = self.training.from_params(params)
        except ConfigError:
            return []  # `parameter_problems` reports it
        return [_problem(problem, params) for problem in values.sharing_problems(strategy)]

    def metric_problem(self, metric: str) -> str | None:
        """Why its value cannot have this name; None if it can."""
        from ..trainer.config.training import REPORT_METRICS

        if self.training is None or metric not in REPORT_METRICS:
            return None
        return f"is {metric}, but the value that {self.name} reports is val_loss; write val_loss"

    def idle_rank(self, params: Mapping[str, Any]) -> tuple[int, int] | None:
        """The rank of adapters and the highest useful one, if the rank exceeds it; else None."""
        from ..trainer.config.models import LoraConfig
        from ..trainer.guides.footprint import shape_of

        if self.parameters is not LoraConfig:
            return None
        try:
            config = LoraConfig.from_params(params)
            highest = shape_of(config).width
        except (TrainerError, OSError):
            return None  # `parameter_problems` and `missing_file` report it
        if config.finetuning_type != "lora" or config.lora_r <= highest:
            return None
        return config.lora_r, highest

    def is_bundled(self, name: str, value: object) -> bool:
        """Whether the value of a parameter names data that needs no file."""
        return name in self.parameters.files and value in self.parameters.bundled_data

    def missing_file(self, name: str, value: object) -> str | None:
        """The message if a parameter names a file that does not exist; else None."""
        config = self.parameters
        if not isinstance(value, str) or name not in (*config.files, *config.models):
            return None
        if self.is_bundled(name, value):
            return None
        if os.path.exists(os.path.expanduser(value)):  # false for an unknown user's home or a name too long
            return None
        without = ", ".join(config.bundled_data) if name in config.files else f"the {name} that ships"
        return f'there is no file "{value}" in {Path.cwd()}; available without a file: {without}'

    def identifying(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that identify a run; the others may change when it is resumed."""
        return {name: value for name, value in params.items() if name not in self.parameters.not_identifying}

    def fingerprints(self, values: Mapping[str, Sequence[Any]]) -> dict[str, str]:
        """The SHA-256 of each file that a search with these values trains on, by its path.

        Empty for a user's objective, whose files are unknown. Missing files are left out; the trials report
        them.
        """
        from ..trainer.data.texts import fingerprint

        config, hashes = self.parameters, {}
        for file in (value for name in config.files for value in values.get(name, ())):
            if isinstance(file, str) and file not in config.bundled_data:
                with suppress(DataError):
                    hashes[file] = fingerprint(Path(file))
        return hashes

    def interval(self, parameter: str) -> str | None:
        """The interval of a numeric parameter, such as `[0, 1)`; None if unknown.

        The trainer's parameters have Hugging Face's names, so their intervals also hold for a user's
        objective.
        """
        from ..trainer.config.rules import rules

        short = parameter.rpartition(".")[2]
        for info, name in [(self, parameter)] if self.is_built_in else [(each, short) for each in trainers()]:
            rule = rules(info.parameters).get(name)
            if rule is not None and rule.kind in (int, float):
                return rule.interval
        return None

    def idle_parameters(self, params: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
        """The parameters that have no effect, each with the condition that it needs.

        The condition comes in words, to be read after "unless", and as a `when` of a space file.
        """
        from ..trainer.config.rules import idle_parameters

        idle = idle_parameters(self.parameters, params)
        return {name: (need.text, need.when) for name, need in idle.items()}

    def footprint(self, params: Mapping[str, Any], *, cuda: bool = False) -> int | None:
        """The peak memory in bytes of a run of hpsearch's own model, counted from its parameters.

        `cuda` says that the device `auto` is a CUDA device. None for other objectives, invalid
        configurations, and bases that cannot be read.
        """
        from ..trainer.guides.footprint import peak_bytes

        if self.trainer is None:
            return None
        try:
            return peak_bytes(self.trainer, params, cuda=cuda)
        except (TrainerError, OSError):
            return None


def trainers() -> list[ObjectiveInfo]:
    """The objectives that train hpsearch's own model."""
    return [info for info in map(ObjectiveInfo, BUILT_IN) if info.trainer is not None]


def _problem(problem: str, params: Mapping[str, Any]) -> Problem:
    names, _, message = problem.partition(": ")
    several = names.split(", ")
    first = next((name for name in several if name in params), several[0])
    return first, message if len(several) == 1 else problem
