"""`hpsearch plan`: predict the course of a search on this machine."""

from __future__ import annotations

import signal
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..formatting import counted
from . import options, places, printing

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from ..preflight.forecast import SearchForecast
    from ..preflight.memory import MemoryForecast


def plan(
    context: typer.Context,
    space: options.Space,
    trials: options.Trials = None,
    time: options.Time = None,
    samples: options.Samples = None,
    workers: options.Workers = None,
    cpus_per_trial: options.CpusPerTrial = None,
    gpus_per_trial: options.GpusPerTrial = None,
    processes_per_trial: options.Processes = None,
    strategy: options.Strategy = None,
    zero_stage: options.ZeroStage = None,
    confirm: options.Confirm = None,
    audit: options.Audit = None,
    measure: Annotated[str, typer.Option(help="Measure for at most this long: 60, 90s, 5m.")] = "60",
    as_json: options.Json = False,
) -> None:
    """Predict how a search will go: how many trials reach each rung, and when.

    It measures for up to a minute, with the baseline and quasi-random configurations. Nothing is kept.
    With --server it measures there, in a part of the machine that is free. Ctrl-C ends it.

    Example: hpsearch plan lora --time 30m
    """
    import time as clock

    from ..backends.resources import keep_to_slice
    from ..operations.plan import plan as predict

    seconds = options.seconds("--measure", measure, 1, 3600)
    spec = options.given_space(space, context.params)
    for number in (signal.SIGTERM, signal.SIGHUP):  # what is measured ends with the measurement
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup leaves it
            signal.signal(number, signal.default_int_handler)
    if (there := places.server()) is not None:
        with _progress(seconds):
            predicted = there.plan(space=spec, seconds=seconds, say=printing.say)
        _tell(predicted, as_json)
        return
    keep_to_slice()
    with _progress(seconds) as on_probe:
        predicted = predict(
            space=spec,
            seconds=seconds,
            startup=lambda: clock.monotonic() - options.process_began(),
            on_progress=on_probe,
            say=printing.say,
        )
    _tell(predicted, as_json)


def _tell(predicted: SearchForecast, as_json: bool) -> None:
    from .views import show

    if as_json:
        printing.print_json(predicted.to_json())
    else:
        show(plan_screen(predicted))


@contextmanager
def _progress(seconds: float) -> Iterator[Callable[[int], None]]:
    """What is measured, on a terminal's stderr."""
    from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

    from .console import PlainConsole

    console, doing = PlainConsole(stderr=True), f"measuring, for up to {seconds:.0f} s"
    columns = (SpinnerColumn(), "{task.description}", TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.redraws) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done: bar.update(task, description=f"{doing}: {done} configurations so far")


def plan_screen(predicted: SearchForecast) -> Group:
    """What a search will do: costs, rungs, the end, and what of it is not sensible."""
    from rich.console import Group, RenderableType
    from rich.padding import Padding
    from rich.text import Text

    from ..formatting import duration
    from .spaces import budget_line
    from .views import grid

    spec, measured, ahead = predicted.spec, predicted.measured, predicted.forecast
    head = Text.assemble((spec.name, "bold"), f"  {budget_line(spec)}")
    tried = f"{len(measured.known)} configurations trained for a moment, in {duration(measured.seconds)}"
    parts: list[RenderableType] = [head, Text(tried, style="dim"), "", grid(_costs(predicted))]
    parts += ["", _rungs(predicted), Text(f"if {predicted.assumed}", style="dim"), ""]
    search = f"{duration(ahead.search)}, {counted(ahead.trials, 'trials')}"
    search += "" if ahead.by == "trials" else f", ended by the budget of {ahead.by}"
    rows: list[tuple[str, Any]] = [("search", search)]
    if ahead.audited:
        those = f"{counted(ahead.audited, 'trials')} to the end that would have stopped"
        rows.append(("audit", f"{duration(ahead.auditing)}, {those}" if ahead.auditing else those))
    confirmation: str | Text = Text("none", style="yellow" if spec.confirm.top != 0 else "")
    if ahead.seeds:
        several = ahead.confirms // ahead.seeds
        those = f"{counted(several, 'configurations')} with {counted(ahead.seeds, 'new seeds')} each"
        confirmation = f"{duration(ahead.confirmation)}, {those}"
    end = Text.assemble(("after ", ""), (duration(ahead.end), "bold green"))
    earliest, latest = ahead.ends
    if latest > 1.1 * earliest:
        end.append(f"; by luck {duration(earliest)} to {duration(latest)}")
    parts.append(grid([*rows, ("confirmation", confirmation), ("the end", end)]))
    lines = [Text(f"- {remark}", style="yellow") for remark in predicted.remarks]
    parts.append("")
    if lines:
        parts += [Text("the budget", style="dim"), Padding(Group(*lines), (0, 0, 0, 2))]
    else:
        parts.append(Text("the budget is sensible", style="green"))
    return Group(*parts)


def _costs(predicted: SearchForecast) -> list[tuple[str, str | Text]]:
    from ..formatting import duration, gibibytes

    measured = predicted.measured
    wholes, mine = measured.all_training_seconds, measured.share
    training = duration(statistics.fmean(wholes))
    if max(wholes) > 1.1 * min(wholes):
        training += f", {duration(min(wholes))} to {duration(max(wholes))}"
    least, most = min(measured.lengths), max(measured.lengths)
    steps = counted(most, predicted.spec.resource)
    steps = steps if least == most else f"{least:,} to {steps}"
    units = f" for {steps}" if most else ""
    threads = counted(mine.threads, "threads")
    at_a_time = f"{counted(measured.slots, 'trials')} at a time"
    packed = f", {measured.pack} in each worker" if measured.pack > 1 else ""
    rows: list[tuple[str, Any]] = [
        ("a training", training + units),
        ("workers", f"{at_a_time}{packed}, {threads} each; ready after {duration(measured.startup)}"),
    ]
    if measured.memory is not None:
        whose = "a trial" if measured.pack == 1 else f"a worker with its {measured.pack} trials"
        rows.append(("memory", f"{gibibytes(measured.memory)} for {whose}, at its peak in this measurement"))
    if predicted.expected is not None:
        told = _expected(predicted.expected)
        if predicted.memory is not None and predicted.memory > predicted.expected.largest:
            told += "; a worker holds more that has trained several"
        rows.append(("", told))
    return rows


def _expected(memory: MemoryForecast) -> str:
    """What trials will take of memory, from the least to the largest, and how many fit."""
    from ..formatting import gibibytes

    told = f"{gibibytes(memory.least)} to {gibibytes(memory.largest)} are expected"
    if memory.baseline is not None:
        told += f", {gibibytes(memory.baseline)} of the baseline"
    if memory.limit is not None:
        fits = "all fit" if memory.fitting == 1 else f"{memory.fitting:.0%} of the space fits"
        told += f"; {fits} into {gibibytes(memory.limit)}"
    return told


def _rungs(predicted: SearchForecast) -> Table:
    from ..formatting import duration
    from .console import frameless

    table = frameless()
    for title in (predicted.spec.resource, "trials", "first after", "all after"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("")
    table.add_row("0", str(predicted.forecast.trials), "", "", "begin")
    measured = predicted.measured
    has_steps = any(measured.lengths)  # else it reports nothing
    for each in predicted.forecast.reached:
        times = ["" if at is None else duration(at) for at in (each.first, each.last)]
        last = "the end of a training" if each is predicted.forecast.reached[-1] else ""
        table.add_row(f"{each.step:,}" if has_steps else "", str(each.trials), *times, last)
    return table
