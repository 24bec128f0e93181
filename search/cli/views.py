"""Draws reports for a terminal: tables without frames, the important things first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..formatting import counted, duration, position
from ..trials.retries import MAX_NAMED_TRIALS
from .commands import command, of_step
from .console import GAP, PlainConsole, frameless
from .printing import about_password, brief, tell, text
from .progress import STYLES, sparkline

if TYPE_CHECKING:  # `list` needs nothing of what the other commands have to load
    from ..operations.show import TrialRows
    from ..operations.studies import ListedStudy
    from ..results.ranges import NarrowRanges
    from ..results.report import Spent, StudyReport, TrialReport
    from ..results.trials import Ending, TrialRow
    from ..results.why import TrialHistory
    from ..values import NextStep

PIPED_WIDTH = 100_000  # where no terminal sets one: nothing wraps, nothing is cut
BAR = 12  # characters of the longest importance
MOST_POINTS = 32  # of a curve in a table, on a terminal
CURVE = 40  # characters of a curve
_EIGHTHS = " ▏▎▍▌▋▊▉"


class Column(NamedTuple):
    """A column of a table that is cut to a terminal by whole columns."""

    title: str
    cells: list[str | Text]
    right: bool = False


def show(content: RenderableType) -> None:
    """Print to the terminal's width; to a pipe or a file as wide as it is."""
    console = PlainConsole()
    if console.is_terminal:
        # What is too wide and may not be broken continues in the next line.
        console.print(content, crop=False)
        return
    wide = PlainConsole(width=PIPED_WIDTH)
    with wide.capture() as captured:
        wide.print(content)
    tell("\n".join(line.rstrip() for line in captured.get().splitlines()))


def studies_table(studies: Iterable[ListedStudy]) -> Table:
    """The studies of a database."""
    table = frameless()
    for title in ("study", "metric", "best", "trials", ""):
        table.add_column(title, justify="right" if title in ("best", "trials") else "left", overflow="fold")
    for study in studies:
        if study.unreadable is not None:
            table.add_row(Text(study.name, style="bold"), "", "", "", Text("cannot be read", style="red"))
            continue
        of = f"/{study.budget}" if study.budget else ""
        states = _states(study.states)
        if study.confirming:
            states.append(f"  {study.confirming} of them confirm", style="dim")
        if study.searching:
            states.append("  paused" if study.paused else "  searching now", style="bold cyan")
        goal = "min" if study.direction == "minimize" else "max" if study.direction == "maximize" else ""
        metric = Text.assemble(study.metric, (f" {goal}", "dim"))
        table.add_row(
            Text(study.name, style="bold"), metric, number(study.best), f"{study.ended}{of}", states
        )
    return table


def study_screen(report: StudyReport, options: Sequence[str]) -> Group:
    """A whole study; `options` are those that its commands need to find it."""
    head = Text(report.name, style="bold")
    if report.searching is not None:
        doing = "paused" if report.paused else f"{report.phase} now"
        head.append(f"  {doing}, process {report.searching}", style="cyan")
    about = (
        f"{report.goal}s {report.metric} of {report.objective}: "
        f"sampler {report.sampler}, early stopping {report.early_stopping}"
    )
    parts: list[RenderableType] = [head, Text(about, style="dim"), "", _facts(report), "", _space(report)]
    if report.endings:
        parts += _section("ended early", _endings(report.endings))
    if report.untold:
        untold = (Text(f"{each.target}: {', '.join(each.kinds)}") for each in report.untold)
        parts += _section("not notified yet; the next run with the same --notify sends it", Group(*untold))
    parts += _section("next", _commands(report.next_steps, options))
    if (advice := about_password(options)) is not None:
        parts.append(Text(advice, style="dim"))
    return Group(*parts)


def trial_screen(report: TrialReport, most: int | None) -> Group:
    """One trial. Its curve is thinned to about `most` points, where that is not None."""
    from ..results.why import tried

    row = report.row
    head = Text.assemble(
        (f"{report.study} trial {row.number}", "bold"), "  ", (row.state, STYLES.get(row.state, ""))
    )
    if row.value is not None:
        head.append(f"  {report.metric} {number(row.value)}")
    if row.last_step is not None:
        head.append(f"  at {position(row.last_step, report.resource)}", style="dim")
    if row.seconds is not None:
        head.append(f"  {duration(row.seconds)}", style="dim")
    if report.used is not None and (used := _used(report)):
        head.append(f"  {used}", style="dim")
    if marked := _marked(row):
        head.append(f"  {marked}", style="cyan")
    parts: list[RenderableType] = [head]
    if row.reason and row.why:  # of a complete one the advice below says it
        parts.append(Text(row.reason))
    if report.retries:
        parts.append(Text(tried(report.retries, report.error, row.reason), style="dim"))
    parts += ["", _params(report)]
    if report.curve:
        parts += ["", *_curve(report, most)]
    if row.metrics:
        parts += ["", grid([(name, number(value)) for name, value in row.metrics.items()], "metrics")]
    if report.attributes:
        rows = [(name, text(value)) for name, value in report.attributes.items()]
        parts += ["", grid(rows, "attributes")]
    if report.advice:
        parts += _section("advice", Group(*map(Text, report.advice)))
    folder = Text(str(report.folder), overflow="fold")
    parts += _section("files", Group(folder, Text("  ".join(report.files))))
    if report.traceback:
        parts += _section("traceback", Text(report.traceback))
    return Group(*parts)


def _used(report: TrialReport) -> str:
    """The GPUs and the energy of a trial."""
    hours, energy = report.row.gpu_hours, report.row.watt_hours
    parts = [f"{duration(3600 * hours)} of GPUs"] if hours else []
    parts += [f"{energy:.3g} Wh ({' and '.join(report.measured)})"] if energy is not None else []
    return "  ".join(parts)


def _section(title: str, content: RenderableType) -> list[RenderableType]:
    """A part of a screen with a title, after an empty line."""
    return ["", Text(title, style="dim"), Padding(content, (0, 0, 0, 2))]


def history_screen(history: TrialHistory) -> Group:
    """Why a trial is what it is, in the order of its life."""
    head = Text.assemble(
        (f"{history.study} trial {history.number}", "bold"),
        "  ",
        (history.state, STYLES.get(history.state, "")),
    )
    parts = [
        ("suggested", [history.suggested]),
        ("then", history.events),
        ("by now", history.by_now),
        ("attempts", history.attempts),
        ("waits", history.waits),
        ("end", [history.end] if history.end else []),
    ]
    rows = [(title, "\n".join(lines)) for title, lines in parts if lines]
    return Group(head, "", grid(rows))


def ranges_screen(edges: NarrowRanges, options: Sequence[str]) -> Group:
    """The parameters whose best values press against an end, and wider ones to try."""
    from ..results.ranges import FEWEST

    where = "complete trials" if edges.step is None else f"trials at {position(edges.step, edges.resource)}"
    compared = f"{edges.compared} {where}"
    if edges.compared < FEWEST:
        return Group(Text(f"{FEWEST} trials have to compare; so far there are {compared}"))
    if not edges.found:
        return Group(Text(f"the best of {compared} press against no end that could be further out"))
    table = Table.grid(padding=(0, GAP, 0, 0))
    for edge in edges.found:
        said = f"{edge.at} of the best {edge.best}" if edge.at else "the best trial"
        said += " and the best trial" if edge.at and edge.winner else ""
        said += f" at the {edge.end} end"
        table.add_row(Text(edge.name, style="bold"), said, Text(edge.values, style="dim"))
    head = Text(f"the best of {compared} press against an end:", style="dim")
    parts: list[RenderableType] = [head, Padding(table, (0, 0, 0, 2))]
    parts += ["", Text("wider, for the space file:", style="dim")]
    # A terminal may break these lines: broken here, they could not be pasted.
    parts += [Text(f"  {edge.line}", no_wrap=True, overflow="ignore") for edge in edges.found]
    parts += ["", Text("a study keeps its ranges; wider ones are another's:", style="dim")]
    wider = command("run", "SPACE", "--name", f"{edges.study}_wider", *options)
    return Group(*parts, Text(f"  {wider}"))


def _marked(row: TrialRow) -> str:
    """What is special about a trial."""
    return f"confirms {row.confirms}" if row.confirms is not None else "the baseline" if row.baseline else ""


def trials_table(trials: TrialRows, width: int) -> tuple[Table, list[str]]:
    """A line per trial, and the names of the parameters that `width` leaves no room for."""
    rows = trials.rows
    columns = [
        Column("trial", [f"{row.number}" for row in rows], right=True),
        Column("state", [Text(row.state, style=STYLES.get(row.state, "")) for row in rows]),
        Column(trials.metric, [number(row.value) for row in rows], right=True),
        Column(trials.resource, [f"{row.trained or ''}" for row in rows], right=True),
        Column("seconds", ["" if row.seconds is None else f"{row.seconds:.4g}" for row in rows], right=True),
    ]
    params = [
        Column(name, [brief(row.params[name]) if name in row.params else "" for row in rows])
        for name in trials.searched
    ]
    why = Column("ended early", [row.why or _marked(row) for row in rows])
    room = width + GAP - sum(map(_width, [*columns, why]))  # no gap after the last
    shown = []
    for column in params:
        room -= _width(column)
        if room >= 0 or width == PIPED_WIDTH:
            shown.append(column)
    table = frameless()
    for column in (*columns, *shown, why):
        table.add_column(column.title, justify="right" if column.right else "left", no_wrap=True)
    for cells in zip(*(column.cells for column in (*columns, *shown, why)), strict=True):
        table.add_row(*cells)
    return table, [column.title for column in params if column not in shown]


def number(value: float | None) -> str:
    """A value of the metric, to six digits."""
    return "" if value is None else f"{value:.6g}"


def _facts(report: StudyReport) -> Table:
    """The best and the budget, a line each."""
    rows: list[tuple[str, str | Text]] = []
    if report.best is None:
        rows.append(("best", Text("no trial has run to its end yet", style="yellow")))
    else:
        best = Text.assemble((number(report.best.value), "bold green"), f" by trial {report.best.number}")
        rows.append(("best", best.append(f", {report.comparison}" if report.comparison else "")))
        rows += [("", Text(line)) for line in report.confirmation]
    trials = Text(f"{_of(report.trials, '{:.0f}'.format)}").append("  ").append_text(_states(report.states))
    if report.confirming:
        trials.append(f"; {report.confirming} of them confirm the best")
    consumed = _of(report.consumed, "{:,.0f}".format)
    saved = report.without_stopping
    if saved and saved > report.consumed.used:
        consumed += f"; without early stopping {saved:,}"
    rows += [("audit" if index == 0 else "", line) for index, line in enumerate(report.audit)]
    rows += [("trials", trials), ("time", _of(report.seconds, duration)), (report.resource, consumed)]
    if (room := report.made_room) is not None:
        last = f", the last for {room.last_for}" if room.last_for and room.times > 1 else ""
        last = f" for {room.last_for}" if room.last_for and room.times == 1 else last
        told = f"{counted(room.times, 'times')}{last}; {room.lost_seconds:g} s lost, no number changed"
        rows.append(("made room", Text(told)))
    if report.cost is not None:
        rows += [("" if index else "cost", line) for index, line in enumerate(report.cost.in_words)]
    return grid(rows)


def _space(report: StudyReport) -> Group:
    """The parameters with the best value and the importance of each."""
    table = frameless()
    table.add_column("parameter", no_wrap=True)
    table.add_column("values", overflow="fold", style="dim")
    best = report.best.params if report.best is not None else {}
    if best:
        long = any(len(brief(value)) > BAR for value in best.values())  # a number is never broken
        table.add_column("best", overflow="fold", no_wrap=not long)
    if any(parameter.importance is not None for parameter in report.parameters):
        table.add_column("importance", no_wrap=True)
    for parameter in report.parameters:
        cells = [parameter.name, parameter.values]
        if best:
            cells.append(brief(best[parameter.name]) if parameter.name in best else "")
        importance = parameter.importance
        if importance is not None:
            cells.append(f"{bar(importance.middle, BAR):<{BAR}} {importance.middle:.2f}")
            if importance.low is not None:
                cells[-1] += f" ({importance.low:.2f} to {importance.high:.2f})"
        table.add_row(*cells)
    notes = [f"constraint: {constraint}" for constraint in report.constraints]
    pressed = ", ".join(parameter.name for parameter in report.parameters if parameter.edge)
    notes += [f"at the end of its range: {pressed}; --ranges shows wider ones"] if pressed else []
    notes += [report.importance] if report.importance else []
    return Group(table, *([""] if notes else []), *(Text(note, style="dim") for note in notes))


def bar(share: float, width: int) -> str:
    """A share of 0 to 1 as a bar, to an eighth of a character."""
    whole, eighths = divmod(round(share * width * 8), 8)
    return ("█" * whole + _EIGHTHS[eighths]).rstrip()


def _endings(endings: Iterable[Ending]) -> Table:
    table = Table.grid(padding=(0, GAP, 0, 0))
    for ending in endings:
        listed = ", ".join(map(str, ending.trials[:MAX_NAMED_TRIALS]))
        more = len(ending.trials) - MAX_NAMED_TRIALS
        trials = f"{'trial' if len(ending.trials) == 1 else 'trials'} {listed}"
        trials += f" and {more} more" if more > 0 else ""
        if ending.state == "fail":
            rest = ending.example.removeprefix(ending.why).lstrip(":; ")
            trials += f": {rest}" * bool(rest)
        count = Text(str(len(ending.trials)), style=STYLES[ending.state], justify="right")
        table.add_row(count, Text(ending.why), Text(trials, style="dim", overflow="fold"))
    return table


def _params(report: TrialReport) -> Table:
    if not report.row.params:
        waits = report.row.state in ("waiting", "running")
        why = "none yet: it waits for its turn" if waits else "not the space's: another program wrote it"
        return grid([("parameters", why)])
    table = frameless()
    for title in ("parameter", "value", ""):
        table.add_column(title, overflow="fold", style="" if title else "dim")
    for name, value in report.row.params.items():
        kind = report.kinds[name]
        table.add_row(Text(name), Text(text(value)), Text("" if kind == "searched" else kind))
    return table


def _curve(report: TrialReport, most: int | None) -> list[RenderableType]:
    """The curve as bars and as a table, with the trial's rank at each rung it reached."""
    values = [value for _, value in report.curve]
    reached = {rung.step: rung for rung in report.rungs}
    shown = report.curve if most is None else thinned(report.curve, most, keep=reached)
    line = sparkline([value for _, value in thinned(report.curve, CURVE, keep=())])
    head = Text.assemble(
        (report.metric, "dim"), f"  {line}  ", f"{number(values[0])} to {number(values[-1])}"
    )
    parts: list[RenderableType] = [head]
    if report.bracket is not None:
        compared = counted(report.bracket_rungs, report.resource) if report.bracket_rungs else ""
        said = f"compared at {compared}" if compared else "never compared, so never pruned"
        if report.row.baseline:
            said = "the baseline is never pruned"
        parts.append(Text(f"bracket {report.bracket}: {said}", style="dim"))
    table = frameless()
    table.add_column(report.resource, justify="right")
    table.add_column(report.metric, justify="right")
    table.add_column("rank by now" if reached else "")
    for step, value in shown:
        rung = reached.get(step)
        table.add_row(f"{step:,}", number(value), f"{rung.rank} of {rung.reached}" if rung else "")
    parts += ["", table]
    if len(shown) < len(report.curve):
        parts.append(Text(f"{len(shown)} of {len(report.curve)} reports; --json has all", style="dim"))
    return [*parts, *(Text(event, style="dim") for event in report.events)]


def thinned(
    curve: Sequence[tuple[int, float]], most: int, keep: Iterable[int]
) -> Sequence[tuple[int, float]]:
    """About `most` points of a curve, evenly spaced, with its ends and the steps of `keep`."""
    if len(curve) <= most:
        return curve
    wanted = {round(i * (len(curve) - 1) / (most - 1)) for i in range(most)}
    kept = set(keep)
    return [point for index, point in enumerate(curve) if index in wanted or point[0] in kept]


def _states(states: Mapping[str, int]) -> Text:
    """`18 complete, 12 pruned`, each in its colour."""
    return Text(", ").join(
        Text(f"{states[state]} {state}", style=style) for state, style in STYLES.items() if states.get(state)
    )


def _of(spent: Spent, form: Any) -> str:
    return form(spent.used) if spent.total is None else f"{form(spent.used)} of {form(spent.total)}"


def grid(rows: Iterable[tuple[str, str | Text]], title: str | None = None) -> Table:
    """Names with a value each; a title names the names."""
    table = frameless(show_header=title is not None)
    table.add_column(title or "", style="" if title else "dim", no_wrap=True)
    table.add_column("", overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return table


def _commands(steps: Iterable[NextStep], options: Sequence[str]) -> Table:
    table = Table.grid(padding=(0, GAP, 0, 0))
    for step in steps:
        table.add_row(Text(of_step(step, options), overflow="fold"), Text(step.why, style="dim"))
    return table


def _width(column: Column) -> int:
    return max(len(column.title), *map(len, column.cells), 0) + GAP
