"""The studies of a database: list, look into, export and delete them."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import SearchError, UsageError
from ..streams import harmless
from . import common

if TYPE_CHECKING:
    from ...storage.studies import StudySummary
    from ..results.trials import TrialRow

Study = Annotated[str, typer.Argument(help="The name of a study.")]
State = Literal["complete", "pruned", "fail", "running", "paused", "waiting"]
FORMULAS = tuple("=+-@\t\r\n＝＋－＠")  # noqa: RUF001 - begin what a spreadsheet runs, some of it in Japanese


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("list")(list_studies)
    for function in (show, trials, best, export, delete):
        app.command()(function)


def list_studies(
    storage: common.Storage = None, runs: common.Runs = None, as_json: common.Json = False
) -> None:
    """List the studies of a database.

    Example: hpsearch list --storage hpsearch.db
    """
    from ...storage import database, files, locks, studies
    from ...storage.passwords import hidden

    url = database.resolve_url(storage)
    summaries = studies.summaries(database.open_storage(url))
    found = [_with_winner(study, storage, runs) if study.confirming else study for study in summaries]
    folder = files.runs_folder(url, runs)
    searching = {s.name: locks.driver_running(url, folder, s.folder) if s.folder else None for s in found}
    if as_json:
        common.print_json([asdict(study) | {"searching": searching[study.name]} for study in found])
        return
    from .screens import show as print_screen
    from .screens import studies_table

    if not found:
        common.say(f"no studies in {hidden(url)}; a search makes one (hpsearch run SPACE)")
        return
    print_screen(studies_table(found, searching))
    for study in found:
        if study.unreadable is not None:
            common.say(study.unreadable)


def _with_winner(study: StudySummary, storage: str | None, runs: Path | None) -> StudySummary:
    """With the value of the winner, which was confirmed, rather than with the luckiest."""
    from ...storage import DatabaseUnavailable, StorageError
    from ..results.study import open_study

    try:
        winner = open_study(study.name, storage=storage, runs=runs).best_trial
    except DatabaseUnavailable:
        raise
    except StorageError as error:
        return replace(study, unreadable=str(error))
    return study if winner is None else replace(study, best=winner.value)


def show(
    study: Study,
    trial: Annotated[int | None, typer.Option(min=0, help="What this trial was and did.")] = None,
    why: Annotated[
        int | None, typer.Option(min=0, help="Why this trial was suggested, paused, taken up or ended.")
    ] = None,
    edges: Annotated[
        bool, typer.Option("--edges", help="Where the best values press against an end, and wider ranges.")
    ] = False,
    storage: common.Storage = None,
    runs: common.Runs = None,
    as_json: common.Json = False,
) -> None:
    """Explain a study, or one trial: what was found, what it rests on, why trials ended.

    Example: hpsearch show lora --why 12
    """
    if (trial is not None) + (why is not None) + edges > 1:
        raise UsageError("one of --trial, --why and --edges at a time")
    from ..results.ranges import edges_of
    from ..results.report import study_report, trial_report
    from ..results.study import open_study
    from ..results.why import story_of
    from . import screens

    result = open_study(study, storage=storage, runs=runs)
    if why is not None:
        story = story_of(result, why)
        common.print_json(asdict(story)) if as_json else screens.show(screens.story_screen(story))
        return
    if edges:
        found = edges_of(result)
        options = common.finding(storage, runs)
        common.print_json(asdict(found)) if as_json else screens.show(screens.edges_screen(found, options))
        return
    if trial is not None:
        about = trial_report(result, trial)
        if as_json:
            content = asdict(about)
            common.print_json({"study": content.pop("study")} | content.pop("row") | content)
        else:
            screens.show(screens.trial_screen(about, screens.MOST_POINTS if _on_terminal() else None))
        return
    report = study_report(result)
    if as_json:
        common.print_json(asdict(report))
    else:
        screens.show(screens.study_screen(report, common.finding(storage, runs)))


def trials(
    study: Study,
    state: Annotated[State | None, typer.Option(help="Only the trials in this state.")] = None,
    sort: Annotated[
        Literal["number", "value"], typer.Option(help="By number, or the best complete trial first.")
    ] = "number",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many.")] = None,
    storage: common.Storage = None,
    runs: common.Runs = None,
    as_json: common.Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with every column.")] = False,
) -> None:
    """List the trials of a study: state, value, parameters and why they ended.

    Example: hpsearch trials lora --sort value --limit 10
    """
    if as_json and as_csv:
        raise UsageError("--json or --csv, not both")
    from ..results.study import open_study
    from ..results.trials import trial_rows

    result = open_study(study, storage=storage, runs=runs)
    rows = trial_rows(result, state=state, best_first=sort == "value")[:limit]
    if as_json:
        common.print_json([asdict(row) for row in rows])
    elif as_csv:
        common.print_document(csv_text(rows, list(result.spec.parameters)))
    elif not rows:
        common.say(f'the study "{study}" has no trial' + (f" in the state {state}" if state else " yet"))
    else:
        _print_trials(rows, result.spec)


def best(
    study: Study, storage: common.Storage = None, runs: common.Runs = None, as_json: common.Json = False
) -> None:
    """Print the best trial: its value and its parameters.

    Example: hpsearch best lora --json
    """
    from ..results.sentences import against, confirmation
    from ..results.study import open_study

    result = open_study(study, storage=storage, runs=runs)
    winner, trial = result.best, result.best_trial
    assert trial is not None
    if as_json:
        common.print_json({"study": study, "metric": result.spec.metric} | asdict(winner))
        return
    compared = against(result.baseline, trial, result.spec.goal, winner.confirmed)
    common.tell(f"{result.spec.metric} {winner.value:.6g} by trial {winner.number}, {compared}")
    for line in confirmation(result):
        common.tell(line)
    for name, value in winner.params.items():
        common.tell(f"  {name}: {common.text(value)}")


def export(
    study: Study,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write.", show_default="standard output")
    ] = None,
    form: Annotated[
        Literal["yaml", "json", "flags", "trl", "peft", "axolotl", "llamafactory"],
        typer.Option("--format", help="For hpsearch train, the shell, or a framework that fine-tunes."),
    ] = "yaml",
    trial: Annotated[int | None, typer.Option(min=0, help="This trial.", show_default="the best")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    storage: common.Storage = None,
    runs: common.Runs = None,
) -> None:
    """Write a trial's configuration, and where it comes from, for `hpsearch train` or another framework.

    Example: hpsearch export lora -o best.yaml
    """
    from ...storage.files import trial_folder
    from ...storage.studies import trial_of
    from ..exchange.recipes import for_framework
    from ..results.study import open_study
    from ..trials.export import beyond, document, render

    if output is not None:
        common.check_output(output, force=force)
    result = open_study(study, storage=storage, runs=runs)
    chosen = trial_of(result.study, result.best.number if trial is None else trial)
    if not chosen.params and result.spec.space.searched:
        raise SearchError(f"trial {chosen.number} has no parameters yet: it is {chosen.state.name.lower()}")
    folder = trial_folder(result.runs, result.folder_name, chosen.number)
    content = document(result.spec, chosen, result.provenance, result.best_trial, folder)
    to_fill: tuple[str, ...] = ()
    if form == "yaml" or form == "json" or form == "flags":
        text, lost = render(content, form), beyond(content, form, folder)
    else:
        written = for_framework(form, content, output, folder)
        text, lost, to_fill = written.text, written.lost, written.to_fill
    if output is None:
        common.print_document(text)
    else:
        common.write_file(output, text)
        value = f"{result.spec.metric} {chosen.value:.6g}" if chosen.value is not None else "no value"
        common.say(f"wrote {output}: trial {chosen.number} of {study}, {chosen.state.name.lower()}, {value}")
    for what, why in lost.items():
        common.say(f"not in it: {what}: {why}")
    if to_fill:
        common.say(f"to fill in: {', '.join(to_fill)}")


def delete(
    study: Study,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    keep_files: Annotated[
        bool, typer.Option("--keep-files", help="Leave checkpoints and reports on disk.")
    ] = False,
    storage: common.Storage = None,
    runs: common.Runs = None,
) -> None:
    """Delete a study with its trials and their files.

    Example: hpsearch delete lora --yes
    """
    if not yes and not _can_ask():
        raise UsageError("there is no terminal to ask at; --yes deletes without asking")
    from ...storage import DatabaseUnavailable, StorageError, claims, database, files, locks, studies

    url = database.resolve_url(storage)
    opened, folder = database.open_storage(url), files.runs_folder(url, runs)
    count = studies.count_trials(opened, study)
    try:
        claim = studies.claim_on(opened, study, folder, database.sqlite_file(url))
    except DatabaseUnavailable:
        raise
    except StorageError as error:  # a damaged one can be deleted, too
        keep_files = True
        common.say(f"{error}; its files stay")
        claim = claims.Claim(folder, study, "", None)
    kept, place = claim.kept, claim.folder
    what = f'the study "{study}" with its {count} trials'
    if others := studies.sharing_folder(opened, study):
        keep_files = True
        common.say(f"its files stay in {place}: they are those of {', '.join(others)} too")
    elif not keep_files and not claim.is_ours():
        keep_files = True
        common.say(f"{place} stays: it is another study's")
    files_too = place.is_dir() and not keep_files
    with locks.driver_lock(url, folder, kept):
        pass  # refused before it asks; not held while it waits for the answer
    if not yes and not typer.confirm(harmless(f"Delete {what}{f' and {place}' * files_too}?"), err=True):
        common.say("nothing was deleted")
        raise typer.Exit(1)
    with locks.driver_lock(url, folder, kept):
        studies.delete_study(opened, study, claim if files_too else None)
    left = files.why_left(place) if files_too else None
    common.say(f"deleted {what}{f' and {place}' * (files_too and left is None)}")
    if left is not None:
        raise SearchError(f"{place} is left: {left}")


def csv_text(rows: list[TrialRow], parameters: list[str]) -> str:
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
    return common.text(values[name]) if name in values else ""


def _print_trials(rows: list[TrialRow], spec: Any) -> None:
    from . import screens
    from .console import PlainConsole

    width = PlainConsole().width if _on_terminal() else screens.PIPED_WIDTH
    names = list(spec.space.searched)
    table, left_out = screens.trials_table(rows, spec.metric, spec.resource, names, width)
    screens.show(table)
    if left_out:
        common.say(f"no room here for {len(left_out)} of {len(names)} parameters; --csv and --json have all")


def _on_terminal() -> bool:
    return sys.stdout.isatty()


def _can_ask() -> bool:
    return sys.stdin.isatty()
