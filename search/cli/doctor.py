"""`hpsearch doctor`: check this machine, and show that kills and packs change no results."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from . import commands, options, printing

if TYPE_CHECKING:
    from rich.console import Console

    from ...spaces import Spec
    from ...storage.workspace import Workspace
    from ..preflight.kill_test import KillTestResult
    from ..preflight.machine import Check
    from ..preflight.pack_test import ComparedTrial, PackTestResult

WHO_TRAINS_TOGETHER = "docs/packs.md says which do"
STYLES = {"ok": "green", "warning": "yellow", "problem": "red"}


def doctor(
    space: Annotated[
        str | None,
        typer.Argument(
            help="A space file, or the name of one that ships.",
            show_default="lora_quick for --kill-test, lora for --pack-test",
        ),
    ] = None,
    kill_test: Annotated[
        bool, typer.Option("--kill-test", help="Kill a small search repeatedly, continue it, and compare.")
    ] = False,
    pack_test: Annotated[
        bool, typer.Option("--pack-test", help="Train trials alone and in packs, and compare.")
    ] = False,
    backend: Annotated[
        str, typer.Option(help="What runs the trials: optuna or ray. Ray is started for the check only.")
    ] = "optuna",
    trials: Annotated[
        int | None,
        typer.Option(min=1, help="Trials per search, or trials to pack.", show_default="6"),
    ] = None,
    kills: Annotated[
        int | None, typer.Option(min=1, help="How often to kill the search.", show_default="6")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Random seed of the moments of the kills, or of the trials to pack.",
            show_default="a random one",
        ),
    ] = None,
    storage: options.Storage = None,
    runs: options.Runs = None,
    as_json: options.Json = False,
) -> None:
    """Check this machine. With --kill-test or --pack-test, show that kills or packs change no results.

    Kill test: runs a small search twice undisturbed, then once killed at random moments and continued.
    Pack test: trains random configurations for a few steps, each alone, then in packs with one that diverges.
    Neither touches your studies.

    Example: hpsearch doctor --kill-test
    """
    given = options.given(trials=trials, kills=kills, seed=seed)
    if kill_test and pack_test:
        raise UsageError("--kill-test and --pack-test are two tests; give one of them")
    for option in given:
        if option == "kills" and not kill_test:
            raise UsageError("--kills goes with --kill-test")
        if not (kill_test or pack_test):
            raise UsageError(f"--{option} goes with --kill-test or --pack-test")
    if kill_test:
        _test(space, given | {"backend": backend}, as_json)
    elif pack_test:
        _test_packs(space, given, as_json)
    else:
        _look(space, backend, options.workspace(storage, runs), as_json)


def _look(space: str | None, backend: str, workspace: Workspace, as_json: bool) -> None:
    from ..operations.doctor import doctor
    from .console import PlainConsole

    console = PlainConsole()

    def on_progress(check: Check) -> None:
        if not as_json:
            _print(console, check)

    found = doctor(workspace=workspace, space=space, backend=backend, on_progress=on_progress)
    if as_json:
        printing.print_json(found.to_json())
    if found.status == "problem":
        raise typer.Exit(1)


def _print(console: Console, check: Check) -> None:
    from rich.text import Text

    line = Text.assemble((f"{check.status:<8}", STYLES[check.status]), f"{check.name:<10} {check.found}")
    console.print(line, soft_wrap=True)
    if check.advice:
        console.print(Text(f"{'':19}{check.advice}", style="dim"), soft_wrap=True)


def _test(space: str | None, given: dict[str, Any], as_json: bool) -> None:
    from ..operations.doctor import DEFAULT_KILLS, kill_test
    from .console import PlainConsole

    console = PlainConsole()
    aside = PlainConsole(stderr=True) if as_json else console
    kills, again = given.get("kills", DEFAULT_KILLS), ""

    def on_begin(spec: Spec, seed: int) -> None:
        nonlocal again
        trials, backend = spec.budget.trials, given["backend"]
        about = f"{trials} trials, one worker, {kills} kills, seed {seed}"
        aside.print(f'kill test of "{spec.name}" on {backend}: {about}', soft_wrap=True)
        words = commands.words_of(options.given(backend=backend, trials=trials, kills=kills, seed=seed))
        again = commands.command("doctor", *([space] if space else []), "--kill-test", *words)

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the searches end with the test
    with LiveWatch(aside) if aside.redraws else nullcontext(LineWatch(aside)) as watch:
        outcome = kill_test(space=space, **given, on_begin=on_begin, on_progress=watch)
    if as_json:
        printing.print_json(outcome.to_json() | {"again": again})
    else:
        conclude(console, outcome, again)
    if not outcome.passed:
        raise typer.Exit(1)


def _test_packs(space: str | None, given: dict[str, Any], as_json: bool) -> None:
    from ..operations.doctor import DEFAULT_TRIALS, pack_test
    from .console import PlainConsole

    console = PlainConsole()
    aside = PlainConsole(stderr=True) if as_json else console
    trials, again = given.get("trials", DEFAULT_TRIALS), ""

    def on_begin(spec: Spec, seed: int) -> None:
        nonlocal again
        told = (
            f'pack test of "{spec.name}": {trials} random configurations and one that diverges, seed {seed}'
        )
        aside.print(told, soft_wrap=True)
        words = commands.words_of(options.given(trials=trials, seed=seed))
        again = commands.command("doctor", *([space] if space else []), "--pack-test", *words)

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what trains ends with the test
    with LiveWatch(aside, "trials") if aside.redraws else nullcontext(LineWatch(aside)) as watch:
        outcome = pack_test(space=space, **given, on_begin=on_begin, on_progress=watch)
    if as_json:
        printing.print_json(outcome.to_json() | {"again": again})
    else:
        conclude_packs(console, outcome, again)
    if not outcome.passed:
        raise typer.Exit(1)


class LineWatch:
    """A line for each part of the test."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said = ""

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if what != self._said:
            self._said = what
            self._console.print(what, soft_wrap=True)


class LiveWatch:
    """A bar that redraws itself."""

    def __init__(self, console: Console, counted: str = "trials and reports") -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(counted),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bars.add_task("starting", total=None)

    def __call__(self, what: str, done: int, total: int | None) -> None:
        self._bars.update(self._task, description=what, completed=done, total=total)

    def __enter__(self) -> LiveWatch:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()


def conclude(console: Console, outcome: KillTestResult, again: str) -> None:
    """The kills, the verdict, and how to have them again."""
    from rich.table import Table
    from rich.text import Text

    if outcome.kills:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for title in ("kill", "when", "after", "trials", "reports", "continued"):
            table.add_column(
                title, no_wrap=True, justify="left" if title in ("when", "continued") else "right"
            )
        for number, kill in enumerate(outcome.kills, start=1):
            then = (
                "at once"
                if kill.at_once
                else "with none of it left"
                if not kill.left
                else "with some of it left"
            )
            cells = (f"{kill.seconds:.2f} s", str(kill.trials), str(kill.reports), then)
            table.add_row(str(number), kill.moment, *cells)
        console.print(table)
    for number, kill in enumerate(outcome.kills, start=1):
        for each in kill.left:
            console.print(Text(f"left behind after kill {number}: {each}", style="red"), soft_wrap=True)
    for each in outcome.left:
        console.print(Text(f"left behind at the end: {each}", style="red"), soft_wrap=True)
    console.print(_verdict(outcome), soft_wrap=True)
    if outcome.not_compared:
        names = ", ".join(outcome.not_compared)
        console.print(f"not compared, for no two runs have the same: {names}", soft_wrap=True)
    if outcome.passed:
        console.print(f"the same kills again: {again}", soft_wrap=True)
    else:
        console.print(f"all of it is kept in {outcome.folder}", soft_wrap=True)
        console.print(f"to repeat: {again}", soft_wrap=True)


def _verdict(outcome: KillTestResult) -> Any:
    from rich.text import Text

    same = f"{outcome.trials} trials and {outcome.reports} reports"
    if outcome.verdict == "exact":
        kills = f"{len(outcome.kills)} kill{'s' * (len(outcome.kills) != 1)}"
        best = f", winner trial {outcome.winner['trial']}" if outcome.winner else ""
        said = f": {same}{best}; bit for bit the same with {kills} and without"
        return Text.assemble(("exact", "bold green" if outcome.passed else "bold yellow"), said)
    if outcome.verdict == "not exact":
        return Text.assemble(("not exact", "bold red"), f": {outcome.difference}")
    why = "two undisturbed searches differ, so kills cannot be judged. The objective does not follow from its"
    return Text.assemble(
        ("not deterministic", "bold yellow"),
        f": {why} parameters and trial.seed alone, or runs on a device that does not repeat its bits.\n"
        f"first difference: {outcome.difference}",
    )


def conclude_packs(console: Console, outcome: PackTestResult, again: str) -> None:
    """What each trial was alone and together, the verdict, and how to have it again."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("trial", "together with", "last loss", "reports", "adapter"):
        table.add_column(title, no_wrap=True, justify="right")
    table.add_column("", no_wrap=True)
    for number, each in enumerate(outcome.trials):
        gap = each.difference
        table.add_row(
            str(number),
            f"{each.others} other{'s' * (each.others != 1)}",
            "diverged" if each.value is None else f"{each.value:.6f}",
            *([f"{gap['reports']:.2g}", f"{gap['adapter']:.2g}"] if gap else ["", ""]),
            _packed_note(each),
            style=None if each.passed else "red",
        )
    console.print(table)
    console.print(Text.assemble(*_packed_verdict(outcome)), soft_wrap=True)
    if any(each.sensitivity is not None for each in outcome.trials):
        console.print(
            "allowed is ten times what a start 1e-7 away changes in the trial alone, where that is more than "
            "rounding: a learning rate that is too hot makes something big of it",
            soft_wrap=True,
        )
    console.print(f"the same trials again: {again}", soft_wrap=True)


def _packed_note(each: ComparedTrial) -> str:
    if each.identical:
        return "same bits"
    if each.difference is None:
        return "they end differently"
    return f"{each.allowed['reports']:.1g}, {each.allowed['adapter']:.1g} allowed"


def _packed_verdict(outcome: PackTestResult) -> tuple[tuple[str, str], str]:
    count = f"{len(outcome.trials)} trials on {outcome.threads} thread{'s' * (outcome.threads != 1)}"
    if apart := sum(not each.others for each in outcome.trials):
        count += f", {apart} of which met no other ({WHO_TRAINS_TOGETHER})"
    others = "the one that diverges disturbs no other"
    if outcome.passed and outcome.identical:
        return ("exact", "bold green"), f": {count}; together bit for bit what they are alone, and {others}"
    if outcome.passed:
        return ("same", "bold green"), f": {count}; together what they are alone up to rounding, and {others}"
    failed = [str(number) for number, each in enumerate(outcome.trials) if not each.passed]
    if failed:
        return (
            "not the same",
            "bold red",
        ), f": trial {', '.join(failed)}; leave execution.pack at 1, and report it"
    if not any(each.others for each in outcome.trials):
        return (
            "not shown",
            "bold yellow",
        ), f": no two of these trials train together ({WHO_TRAINS_TOGETHER})"
    return ("not shown", "bold yellow"), ": the trial that was to diverge did not"
