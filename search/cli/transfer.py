"""`hpsearch copy` and `hpsearch backup`: copy a study to another database, or a database to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from ..formatting import counted
from . import options, printing


def copy(
    study: options.Study,
    to: Annotated[
        str, typer.Option("--to", help="Database to copy to: a URL, or a SQLite file, created if missing.")
    ],
    to_runs: Annotated[
        Path | None,
        typer.Option(help="Folder for the files of the copy.", show_default="runs beside that database"),
    ] = None,
    storage: options.Storage = None,
    runs: options.Runs = None,
) -> None:
    """Copy a study to another database, with all its trials and files. The original stays.

    Every row of the copy is compared with the original.

    Example: hpsearch copy lora --to postgresql+psycopg://me@server/searches
    """
    if not to:
        raise UsageError("--to is empty; it takes a database URL or a SQLite file")
    from ...storage.passwords import hidden
    from ..operations import studies

    target = options.workspace(to, to_runs)
    copied = studies.copy(workspace=options.workspace(storage, runs), study=study, to=target)
    printing.say(
        f'copied the study "{study}" with {counted(copied.trials, "trials")} to {hidden(target.url)}: '
        f"{counted(copied.rows, 'rows')}, each compared with its original"
    )
    if copied.cut:
        printing.say("that database keeps whole seconds: the times of trials lost their fractions")
    if copied.folder is not None:
        printing.say(f"its files are in {copied.folder}")


def backup(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File to write.", show_default="the database's name and the time"
        ),
    ] = None,
    force: options.Force = False,
    storage: options.Storage = None,
) -> None:
    """Copy a SQLite database to one file, also while searches write to it.

    The files of trials are not included: they are plain files in the folder runs beside the database.

    Example: hpsearch backup -o backup.db
    """
    from ..operations import outputs, studies

    outputs.refuse_stdout(output, "a database")
    made = studies.backup(workspace=options.workspace(storage), output=output, force=force)
    held = counted(made.studies, "study" if made.studies == 1 else "studies")
    printing.say(
        f"wrote {made.file}: {held} with {counted(made.trials, 'trials')}, {made.bytes / 1e6:.1f} MB, checked"
    )
