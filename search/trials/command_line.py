"""Writes the command line that trains a trial of a command again, to be pasted in a shell."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from ...objectives.base import ObjectiveError
from ...objectives.user.config_file import copies
from ...objectives.user.macros import expand, flat
from ...objectives.user.places import source_of
from ...objectives.user.shell import names_in
from ...storage.files import CHECKPOINT, file_name
from ..errors import UsageError

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
TRAINED = Path("trained")  # as `hpsearch train` names its folders


def command_line(content: dict[str, Any]) -> str:
    """The command line of a document; torchrun starts the processes of a trial that had several.

    It writes to a folder of its own, `trained/STUDY-TRIAL-command`, in which this leaves the copies of its
    configuration files. Raises `UsageError` if the objective is not a command, or a file of it is gone.
    """
    objective, provenance, seed = content["objective"], content["provenance"], content["seed"]
    if isinstance(objective, str):
        message = f"the objective {objective} is not a command, so it has no command line"
        raise UsageError(f"{message}; export its configuration, and hpsearch train it", code="format")
    command: list[str] = objective["command"]
    run = TRAINED.absolute() / file_name(f"{provenance['study']}-{provenance['trial']}-command")
    own = {"seed": seed, "checkpoint": str(run / CHECKPOINT), "resume_from": "", "run": str(run)}
    files = copies(command)
    if files:
        run.mkdir(parents=True, exist_ok=True)
    try:
        words = expand(command, flat(content["parameters"]), own, provenance.get("space_folder"))
    except ObjectiveError as error:
        raise UsageError(f"{error}; the trial's own copy is in {provenance.get('folder')}") from error
    if (processes := provenance.get("processes_per_trial", 1)) > 1:
        words = [*TORCHRUN, f"--nproc-per-node={processes}", "--no-python", *words]
    variables = _variables(command, own, provenance)
    given = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    line = " ".join([*given, shlex.join(words)])
    needs_folder = str(run) in line
    made = f"mkdir -p {shlex.quote(own['checkpoint'])} && " if needs_folder else ""
    return f"{made}{line}\n"


def _variables(command: list[str], own: dict[str, Any], provenance: dict[str, Any]) -> dict[str, str]:
    """The environment variables that the command may depend on."""
    variables = {}
    if isinstance(threads := provenance.get("threads"), int):
        variables["OMP_NUM_THREADS"] = str(threads)  # other numbers of threads add up sums in another order
    named = {name for word in command for name in names_in(word)}
    source = source_of(command, provenance.get("space_folder"))
    text = None if source is None else _text(source)
    for name in ("seed", "checkpoint", "run"):
        variable = f"HPSEARCH_{name.upper()}"
        reads = re.search(rf"{variable}\b", text + " ".join(command)) if text is not None else name == "seed"
        if reads and name not in named:
            variables[variable] = str(own[name])
    return variables


def _text(source: Path) -> str:
    try:
        return source.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return os.fspath(source)
