"""The studies of a database: list, show, export and delete them."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import SearchError, UsageError
from ..operations import outputs
from ..streams import harmless
from ..values import State
from . import commands, options, places, printing

if TYPE_CHECKING:
    from ..operations.show import TrialRows
    from ..operations.studies import Deletion
    from ..results.ranges import NarrowRanges
    from ..results.report import StudyReport, TrialReport
    from ..results.trials import TrialRow
    from ..results.why import TrialHistory

FORMULAS = tuple("=+-@\t\r\n＝＋－＠")  # noqa: RUF001 - begin what a spreadsheet runs, some of it in Japanese


def list_studies(
    storage: options.Storage = None, runs: options.Runs = None, as_json: options.Json = False
) -> None:
    """List the studies of a database.

    Example: hpsearch list --storage hpsearch.db
    """
    from ..operations import studies

    at = places.place(storage, runs)
    listed = at(studies.list_studies)
    if as_json:
        printing.print_json(listed.to_json())
        return
    from .views import show as print_screen
    from .views import studies_table

    if not listed.studies:
        printing.say(f"no studies in {at.name}; a search makes one (hpsearch run SPACE)")
        return
    print_screen(studies_table(listed.studies))
    for study in listed.studies:
        if study.unreadable is not None:
            printing.say(study.unreadable)


def show(
    study: options.Study,
    trial: Annotated[
        int | None, typer.Option(min=0, help="Show this trial: parameters, reports, files.")
    ] = None,
    why: Annotated[
        int | None, typer.Option(min=0, help="Show why this trial was suggested, paused, promoted or ended.")
    ] = None,
    ranges: Annotated[
        bool,
        typer.Option("--ranges", "--edges", help="Show ranges that look too narrow, and suggest wider ones."),
    ] = False,
    storage: options.Storage = None,
    runs: options.Runs = None,
    as_json: options.Json = False,
) -> None:
    """Show what a study found, how sure that is, and why its trials ended; or one trial.

    Example: hpsearch show lora --why 12
    """
    if (trial is not None) + (why is not None) + ranges > 1:
        raise UsageError("one of --trial, --why and --ranges at a time")
    from ..operations import show as operations
    from . import views

    at, where = places.place(storage, runs), commands.finding(storage, runs)
    report: StudyReport | TrialReport | TrialHistory | NarrowRanges
    if why is not None:
        report = at(operations.why, study=study, trial=why)
        draw = partial(views.history_screen, report)
    elif ranges:
        report = at(operations.ranges, study=study)
        draw = partial(views.ranges_screen, report, where)
    elif trial is not None:
        report = at(operations.show_trial, study=study, trial=trial)
        draw = partial(views.trial_screen, report, views.MOST_POINTS if sys.stdout.isatty() else None)
    else:
        report = at(operations.show, study=study)
        draw = partial(views.study_screen, report, where)
    if as_json:
        printing.print_json(report.to_json())
    else:
        views.show(draw())


def trials(
    study: options.Study,
    state: Annotated[State | None, typer.Option(help="Only trials in this state.")] = None,
    sort: Annotated[
        Literal["number", "value"],
        typer.Option(help="Sort by number, or by value with the best complete trial first."),
    ] = "number",
    limit: Annotated[int | None, typer.Option(min=1, help="List at most this many.")] = None,
    storage: options.Storage = None,
    runs: options.Runs = None,
    as_json: options.Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with all columns.")] = False,
) -> None:
    """List the trials of a study: state, value, parameters, and why each ended.

    Example: hpsearch trials lora --sort value --limit 10
    """
    if as_json and as_csv:
        raise UsageError("--json or --csv, not both")
    from ..operations import show as operations

    listed = places.place(storage, runs)(
        operations.trials,
        study=study,
        state=state,
        best_first=sort == "value",
        limit=limit,
    )
    if as_json:
        printing.print_json(listed.to_json())
    elif as_csv:
        printing.print_document(csv_text(listed.rows, listed.parameters))
    elif not listed.rows:
        printing.say(f'the study "{study}" has no trial' + (f" in the state {state}" if state else " yet"))
    else:
        _print_trials(listed)


def best(
    study: options.Study,
    storage: options.Storage = None,
    runs: options.Runs = None,
    as_json: options.Json = False,
) -> None:
    """Print the value and the parameters of the best trial.

    Example: hpsearch best lora --json
    """
    from ..operations import show as operations

    winner = places.place(storage, runs)(operations.best, study=study)
    if as_json:
        printing.print_json(winner.to_json())
        return
    printing.tell(f"{winner.metric} {winner.value:.6g} by trial {winner.number}, {winner.comparison}")
    for line in winner.confirmation:
        printing.tell(line)
    for name, value in winner.params.items():
        printing.tell(f"  {name}: {printing.text(value)}")


def export(
    study: options.Study,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write.", show_default="standard output")
    ] = None,
    form: Annotated[
        Literal["yaml", "json", "flags", "command", "trl", "peft", "axolotl", "llamafactory"],
        typer.Option(
            "--format",
            help="For hpsearch train (yaml, json), a command's options (flags), the whole command line "
            "(command), or another framework.",
        ),
    ] = "yaml",
    trial: Annotated[
        int | None, typer.Option(min=0, help="Export this trial.", show_default="the best")
    ] = None,
    force: options.Force = False,
    storage: options.Storage = None,
    runs: options.Runs = None,
) -> None:
    """Write the configuration of a trial to a file, for `hpsearch train` or another framework.

    Example: hpsearch export lora -o best.yaml
    """
    from ..operations.export import export as take

    if (output := options.to_file(output)) is not None:
        outputs.check_output(output, force=force)
    taken = places.place(storage, runs)(take, study=study, trial=trial, form=form, file=output)
    if output is None:
        printing.print_document(taken.text)
    else:
        outputs.write_output(output, taken.text)
        value = "no value" if taken.value is None else f"{taken.metric} {taken.value:.6g}"
        printing.say(f"wrote {output}: trial {taken.trial} of {study}, {taken.state}, {value}")
    for what, why in taken.lost.items():
        printing.say(f"not in it: {what}: {why}")
    if taken.to_fill:
        printing.say(f"to fill in: {', '.join(taken.to_fill)}")


def delete(
    study: options.Study,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    keep_files: Annotated[
        bool, typer.Option("--keep-files", help="Keep checkpoints and reports on disk.")
    ] = False,
    storage: options.Storage = None,
    runs: options.Runs = None,
) -> None:
    """Delete a study, its trials and their files.

    Example: hpsearch delete lora --yes
    """
    if not yes and not _can_ask():
        raise UsageError("there is no terminal to ask at; --yes deletes without asking")
    from ..operations import studies

    erase = partial(places.place(storage, runs), studies.delete, study=study, keep_files=keep_files)
    if not yes:
        asked = erase(dry_run=True)
        if asked.files_stay is not None:
            printing.say(asked.files_stay)
        if not typer.confirm(harmless(f"Delete {_what(asked)}?"), err=True):
            printing.say("nothing was deleted")
            raise typer.Exit(1)
    deleted = erase()
    if yes and deleted.files_stay is not None:
        printing.say(deleted.files_stay)
    printing.say(f"deleted {_what(deleted)}")
    if deleted.left is not None:
        raise SearchError(deleted.left)


def _what(deletion: Deletion) -> str:
    what = f'the study "{deletion.study}" with its {deletion.trials} trials'
    return what if deletion.folder is None else f"{what} and {deletion.folder}"


def csv_text(rows: Sequence[TrialRow], parameters: Sequence[str]) -> str:
    """Trials as CSV: fixed columns, the parameters in the file's order, the metrics by name."""
    metrics = sorted({name for row in rows for name in row.metrics})
    fixed = ["number", "state", "value", "baseline", "confirms", "last_step", "seconds", "started", "ended"]
    fixed += ["reason"]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    titles = [*fixed, *(f"params_{n}" for n in parameters), *(f"metrics_{n}" for n in metrics)]
    writer.writerow(map(_safe, titles))
    for row in rows:
        cells: list[Any] = [getattr(row, name) for name in fixed]
        cells += [_cell(row.params, name) for name in parameters]
        cells += [_cell(row.metrics, name) for name in metrics]
        writer.writerow(map(_safe, cells))
    return stream.getvalue()


def _safe(cell: Any) -> Any:
    """The cell as neither a terminal obeys it nor a spreadsheet runs it: a formula after an apostrophe."""
    if isinstance(cell, str):
        cell = harmless(cell)
    if not (isinstance(cell, str) and cell.startswith(FORMULAS)):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def _cell(values: dict[str, Any], name: str) -> str:
    return printing.text(values[name]) if name in values else ""


def _print_trials(listed: TrialRows) -> None:
    from . import views
    from .console import PlainConsole

    width = PlainConsole().width if sys.stdout.isatty() else views.PIPED_WIDTH
    table, left_out = views.trials_table(listed, width)
    views.show(table)
    if left_out:
        lacking = f"{len(left_out)} of {len(listed.searched)} parameters"
        printing.say(f"no room here for {lacking}; --csv and --json have all")


def _can_ask() -> bool:
    return sys.stdin.isatty()
