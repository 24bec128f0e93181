"""The objective contract: what every function that trains one trial receives and gives back.

An objective is any callable `objective(trial) -> float`. It reads `trial.params`, tells its progress with
`trial.report(value, step=...)`, and returns the final value of the study's metric. It needs no import of
Optuna or Ray, and runs unchanged on every backend.
"""

from __future__ import annotations

import base64
import difflib
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..trainer.config import TrainConfig


class ObjectiveError(Exception):
    """An objective cannot be found, loaded or called; the message says what to change."""


class TrialStopped(BaseException):
    """Raised by `report` when the search has ended this trial.

    It is no `Exception`, so that an objective's own `except Exception` does not swallow it.
    Let it pass; `finally` and `with` blocks run as usual.
    """


class Trial(Protocol):
    """One configuration to train.

    | attribute | what it is |
    |---|---|
    | `number` | the trial's number in its study, from 0 |
    | `params` | the configuration: searched, constant and derived values by name |
    | `seed` | an integer of this trial's own, the same when it is run again |
    | `checkpoint` | a folder of this trial's own; what is in it at a report survives the process |
    | `resume_from` | the same folder, as it was at the last report of an earlier attempt; None without one |
    """

    @property
    def number(self) -> int: ...

    @property
    def params(self) -> dict[str, Any]: ...

    @property
    def seed(self) -> int: ...

    @property
    def checkpoint(self) -> Path: ...

    @property
    def resume_from(self) -> Path | None: ...

    def report(self, value: float, *, step: int, **metrics: float) -> None:
        """Record `value` of the study's metric at `step` (a positive integer in the study's resource unit).

        Steps rise from report to report. `metrics` are further numbers to keep beside the value.
        Raises `TrialStopped` when the search ends this trial here; the report itself is recorded.
        Raises `ValueError` where the value is no number or the step does not rise.
        """
        ...


class Objective(Protocol):
    """Trains one trial and returns the final value of the study's metric."""

    def __call__(self, trial: Trial, /) -> float: ...


_BUILT_IN = ("lora", "pretrain")  # a module of this package each, with a function of its name


def describe(objective: str | list[str], function: Objective | None = None) -> dict[str, Any]:
    """An objective as plain JSON, for a worker to `resolve`.

    `objective` is a built-in name, "module:function", "file.py:function" or a command's words. A `function`
    that only this process has (a notebook's) travels by value; one of a module by its name, with the path
    that this process finds the module by.
    """
    if function is not None:
        import cloudpickle

        path = [os.path.abspath(folder) for folder in sys.path]
        return {"function": base64.b64encode(cloudpickle.dumps(function)).decode(), "path": path}
    return {"command": objective} if isinstance(objective, list) else {"name": objective}


def reports_again(described: dict[str, Any]) -> bool:
    """Whether an objective that goes on from a checkpoint reports that step again.

    Built-in ones do, and scripts are to: their reports are read while they go on, so that nobody can tell
    which checkpoint belongs to which.
    """
    return "command" in described or is_built_in(described)


def is_built_in(described: dict[str, Any]) -> bool:
    """Whether hpsearch brings this objective: to load it runs nobody else's code."""
    return described.get("name") in _BUILT_IN


def resolve(described: dict[str, Any], *, metric: str) -> Objective:
    """The callable behind a description. Raises `ObjectiveError` where there is none.

    A description with a function's pickle comes from this user's own process, never from a study or a file.
    """
    if "function" in described:
        sys.path[:] = dict.fromkeys([*described["path"], *sys.path])
        function: Objective = pickle.loads(base64.b64decode(described["function"]))
        return function
    if "command" in described:
        from .command import CommandObjective

        return CommandObjective(described["command"], metric)
    name = described["name"]
    if name in _BUILT_IN:
        return _built_in(name)
    from .python import load_function

    return load_function(name)


def _built_in(name: str) -> Objective:
    train: Objective = getattr(import_module(f".{name}", __package__), name)

    def objective(trial: Trial, /) -> float:
        with trainer_errors():
            return train(trial)

    return objective


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


def packed(
    described: dict[str, Any], within: Callable[[Trial], AbstractContextManager[None]]
) -> PackedObjective:
    """What runs several trials of a built-in objective at once; `within` as `built_in.Packed` has it."""
    from .built_in import Packed

    return Packed(config_class(described["name"]), within)


@contextmanager
def trainer_errors() -> Iterator[None]:
    """Raise what the trainer says of a configuration or a file as the objective's own error."""
    from ..trainer.errors import TrainerError

    try:
        yield
    except TrainerError as error:  # its message says what to change
        raise ObjectiveError(str(error)) from error


def export(objective: str | list[str], checkpoint: Path, folder: Path, *, merge: bool) -> list[Path]:
    """Write what a finished run of a built-in objective leaves to its user; returns the files.

    `merge` asks for a whole model beside an adapter. Others leave what they wrote themselves: no files.
    Raises `ObjectiveError` where the checkpoint is none.
    """
    if objective not in _BUILT_IN:
        return []
    module = import_module(f".{objective}", __package__)
    with trainer_errors():
        files: list[Path] = module.export(checkpoint, folder, merge=merge)
    return files


def check_name(name: str) -> None:
    """Raise `ObjectiveError` where no objective can have this name; nothing is imported."""
    if ":" in name:
        from .python import find_source

        find_source(name)
    elif name not in _BUILT_IN:
        near = difflib.get_close_matches(name, _BUILT_IN, 1)
        hint = f'did you mean "{near[0]}"? ' if near else ""
        raise ObjectiveError(
            f'there is no objective "{name}"; {hint}built in: {", ".join(_BUILT_IN)}; '
            'your own: "module:function", "path/to/file.py:function" or {command: [...]}'
        )


def known_parameters(name: str) -> frozenset[str] | None:
    """The parameters that a built-in objective takes; None for others. Loads no torch."""
    if name not in _BUILT_IN:
        return None
    from ..trainer.config import known_parameters

    return known_parameters(config_class(name))


def parameter_problems(name: str, params: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a built-in objective would refuse: a parameter's name and a message for each. Loads no torch.

    A message about several parameters stands under the first that is given. Empty for other objectives.
    """
    if name not in _BUILT_IN:
        return []
    from ..trainer.errors import ConfigError

    try:
        config_class(name).from_params(params)
    except ConfigError as error:
        return [_problem(problem, params) for problem in error.problems]
    return []


def identifying(objective: str | list[str], params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that make a run this run; the others may be changed while it goes on."""
    if objective not in _BUILT_IN:
        return dict(params)
    from ..trainer.config import OUTSIDE

    return {name: value for name, value in params.items() if name not in OUTSIDE}


def fingerprints(objective: str | list[str], values: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    """The SHA-256 of each text that a search of these values trains on, by its path. Loads no torch.

    Empty for an objective of the user's, whose texts nobody knows; without those that are not there, which
    the trials themselves will say.
    """
    if objective not in _BUILT_IN:
        return {}
    from ..trainer.config import NAMED_CORPORA
    from ..trainer.errors import DataError
    from ..trainer.texts import fingerprint

    found = {}
    for text in (v for name in ("train_file", "validation_file") for v in values.get(name, ())):
        if isinstance(text, str) and text not in NAMED_CORPORA:
            with suppress(DataError):
                found[text] = fingerprint(Path(text))
    return found


def interval_of(objective: str | list[str], parameter: str) -> str | None:
    """What a number may be, such as `[0, 1)`; None where nobody says so. Loads no torch.

    The names of the built-in objectives are those of Hugging Face, and mean the same in a user's training.
    """
    from ..trainer.config import rules

    built_in = isinstance(objective, str) and objective in _BUILT_IN
    for name in [objective] if built_in else _BUILT_IN:
        assert isinstance(name, str)
        rule = rules(config_class(name)).get(parameter if built_in else parameter.rpartition(".")[2])
        if rule is not None and rule.kind in (int, float):
            return rule.interval
    return None


def idle_parameters(name: str, params: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """What a built-in objective would not use, and what of the others each needs. Loads no torch.

    The need comes in words, to be read after "unless", and as a space file's `when` has it.
    """
    if name not in _BUILT_IN:
        return {}
    from ..trainer.config import idle_parameters

    found = idle_parameters(config_class(name), params)
    return {parameter: (need.text, need.when) for parameter, need in found.items()}


def footprint(objective: str | list[str], params: Mapping[str, Any], *, cuda: bool = False) -> int | None:
    """The bytes that a run of a built-in objective holds at its fullest, counted from its parameters.

    `cuda`: where the device `auto` is such a one. None where nobody can tell: for an objective of the
    user's, a configuration that will be refused, a base that cannot be read. Loads no torch.
    """
    if objective not in _BUILT_IN:
        return None
    assert isinstance(objective, str)
    from ..trainer.errors import ConfigError
    from ..trainer.footprint import counted

    try:
        return counted(config_class(objective), params, cuda=cuda)
    except (ConfigError, OSError, ValueError, LookupError):
        return None


def _problem(problem: str, params: Mapping[str, Any]) -> tuple[str, str]:
    names, _, message = problem.partition(": ")
    several = names.split(", ")
    first = next((name for name in several if name in params), several[0])
    return first, message if len(several) == 1 else problem


def config_class(name: str) -> type[TrainConfig]:
    """What a built-in objective can be told. Loads no torch."""
    from ..trainer import config

    return {"lora": config.LoraConfig, "pretrain": config.PretrainConfig}[name]


def report(value: float, *, step: int, **metrics: float) -> None:
    """Tell the search how a script is doing: a line of JSON on its standard output.

    For scripts that run as `objective: {command: [...]}`. `value` is the study's metric. The search ends the
    script with SIGTERM, then SIGKILL, when its trial is over.
    """
    line = json.dumps({"step": step, "value": float(value), **{k: float(v) for k, v in metrics.items()}})
    print(f"\n{line}", flush=True)  # on a line of its own, whatever was printed before
