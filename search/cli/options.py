"""What commands take: the options they share, and what these mean."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import psutil
import typer

if TYPE_CHECKING:
    from ...spaces import Spec
    from ...storage.workspace import Workspace

Space = Annotated[
    str, typer.Argument(help="A space file, the name of one that ships, or - for standard input.")
]
Study = Annotated[str, typer.Argument(help="Name of a study.")]
Storage = Annotated[
    str | None,
    typer.Option(
        help="The database: a SQLite file, or a URL.", envvar="HPSEARCH_STORAGE", show_default="hpsearch.db"
    ),
]
Runs = Annotated[
    Path | None,
    typer.Option(help="Folder for checkpoints and reports.", show_default="runs beside the database"),
]
ReportTo = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Also log to this tracker: tensorboard, wandb, mlflow; or none. May be repeated.",
    ),
]
Notify = Annotated[
    list[str] | None,
    typer.Option(
        metavar="URL",
        envvar="HPSEARCH_NOTIFY",
        help="Tell this webhook, chat or mail address when the search ends or fails. May be repeated.",
    ),
]
Trials = Annotated[int | None, typer.Option(help="Total number of trials of the study.")]
Time = Annotated[str | None, typer.Option(help="Total time of the search: 90s, 30m, 1h30m.")]
Samples = Annotated[
    int | None, typer.Option(help="Total samples (or steps, or epochs), summed over all trials.")
]
Workers = Annotated[str | None, typer.Option(help="Trials that run at a time: a number, or auto.")]
CpusPerTrial = Annotated[float | None, typer.Option(help="CPU cores per trial: 0.5, 4.")]
GpusPerTrial = Annotated[float | None, typer.Option(help="GPUs per trial: 0.25, 1.")]
Processes = Annotated[
    int | None, typer.Option(help="Processes that train one trial together, as with torchrun.")
]
Strategy = Annotated[
    str | None,
    typer.Option(help="How these processes share a model (lora, pretrain, hf_lora): ddp, fsdp, deepspeed."),
]
ZeroStage = Annotated[int | None, typer.Option(help="ZeRO stage of deepspeed: 1, 2 or 3.")]
Confirm = Annotated[
    bool | None,
    typer.Option(
        "--confirm/--no-confirm",
        help="Train the best trials again with new seeds.",
        show_default="as the space says, else if the budget has room",
    ),
]
Audit = Annotated[
    bool | None,
    typer.Option(
        "--audit/--no-audit",
        help="Run a few stopped trials to the end, to see what early stopping loses.",
        show_default="as the space says, else if it can tell enough",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def to_file(output: Path | None) -> Path | None:
    """The file that an output goes to; None for standard output, which is `-` too."""
    return None if output is None or str(output) == "-" else output


def confirmed_trials(asked: bool, top: int | None = None) -> int:
    """How many trials `--confirm` confirms in a space that says `top`."""
    from ..engine.confirmation_size import CONFIRMATION_SIZES

    return (top or CONFIRMATION_SIZES[0][0]) if asked else 0


def names(given: list[str] | None) -> list[str] | str | None:
    """Names of an option that may be repeated, or hold several with commas between them."""
    if given is None:
        return None
    found = [name.strip() for words in given for name in words.split(",")]
    return found[0] if len(found) == 1 else found


def number_or_word(value: str) -> int | str:
    """`4` as a number, `auto` as it is."""
    return int(value) if re.fullmatch("-?[0-9]+", value) else value


def seconds(option: str, time: str, least: float, most: float) -> float:
    """The seconds of an option that takes a time between two others; ends the command where it is none."""
    from ...spaces.times import seconds as read

    try:
        if not least <= (read_time := read(time)) <= most:
            raise ValueError(f"must be {least:g} to {most:g} seconds, not {read_time:g}")
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=f"'{option}'") from None
    return read_time


def given_space(space: str | Spec, params: Mapping[str, Any]) -> Spec:
    """A space, with those of a command's options over it that were given and are named after its fields.

    That of a study is given as it is stored.

    Raises `SpaceError` with every issue, at its option or in the file.
    """
    from ...spaces.samplers import Sampler
    from ...spaces.settings import Budget, Execution
    from ..preflight.objective import load_space
    from ..scheduling.audit import AUDIT_SHARE

    readers: dict[str, Callable[[Any], Any]] = {
        "workers": number_or_word,
        "report_to": names,
        "confirm": lambda asked: lambda top: confirmed_trials(asked, top),
        "audit": lambda asked: lambda share: (share or AUDIT_SHARE) if asked else 0.0,
    }
    paths = {"name": "name", "report_to": "report_to", "audit": "audit", "confirm": "confirm.top"}
    for section, model in (("budget", Budget), ("execution", Execution), ("search", Sampler)):
        paths |= {name: f"{section}.{name}" for name in model.model_fields}
    values = {
        paths[name]: (f"--{name.replace('_', '-')}", readers[name](value) if name in readers else value)
        for name, value in given(**params).items()
        if name in paths
    }
    if isinstance(space, str):
        return load_space(space, values)
    return load_space(space.to_json(), values).in_folder(space.folder) if values else space


def process_began() -> float:
    """When this process began, by the monotonic clock: what Python took to start is part of a command."""
    began: float = psutil.Process().create_time()
    if sys.platform == "linux":  # it counts from the boot, whose own time it knows in whole seconds
        began -= psutil.boot_time()
        return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - began)
    return time.monotonic() - (time.time() - began)


def workspace(storage: str | None, runs: Path | None = None) -> Workspace:
    """The workspace that the options name."""
    from ...storage.workspace import Workspace

    return Workspace.at(storage, runs)


@contextmanager
def needs_extra(extra: str = "serve") -> Iterator[None]:
    """Say what to install where a library of an extra is missing. Raises `SearchError`."""
    try:
        yield
    except ModuleNotFoundError as error:
        from ..errors import SearchError

        told = f"this needs {error.name}, which is not installed: pip install 'hpsearch[{extra}]'"
        raise SearchError(told, code="extra") from error
