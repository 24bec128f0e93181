"""What commands take: the options they share, and what these mean."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import psutil
import typer

if TYPE_CHECKING:
    from ...spaces import Spec
    from ...storage.workspace import Workspace

Space = Annotated[str, typer.Argument(help="A space file, or the name of one that ships.")]
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
Trials = Annotated[int | None, typer.Option(help="Total number of trials of the study.")]
Time = Annotated[str | None, typer.Option(help="Total time of the search: 90s, 30m, 2h.")]
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


def names(given: list[str] | None) -> list[str] | str | None:
    """Names of an option that may be repeated, or hold several with commas between them."""
    if given is None:
        return None
    found = [name.strip() for words in given for name in words.split(",")]
    return found[0] if len(found) == 1 else found


def number_or_word(value: str) -> int | str:
    """`4` as a number, `auto` as it is."""
    return int(value) if re.fullmatch("-?[0-9]+", value) else value


def seconds(time: str) -> float | str:
    """`90` as a number of seconds, as in a space file; `90s` as it is."""
    return float(time) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", time) else time


def given_space(space: str, params: Mapping[str, Any]) -> Spec:
    """A space, with those of a command's options over it that were given and are named after its fields.

    Raises `SpaceError` with every issue, at its option or in the file.
    """
    from ...spaces.samplers import Sampler
    from ...spaces.settings import Budget, Execution
    from ..engine.confirmation_size import CONFIRMATION_SIZES
    from ..preflight.objective import load_space
    from ..scheduling.audit import AUDIT_SHARE

    readers: dict[str, Callable[[Any], Any]] = {
        "time": seconds,
        "workers": number_or_word,
        "report_to": names,
        "confirm": lambda asked: lambda top: (top or CONFIRMATION_SIZES[0][0]) if asked else 0,
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
    return load_space(space, values)


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
