"""`hpsearch doctor`: check this machine, and show that kills and packs change no results."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ..errors import UsageError
from . import commands, options, printing

if TYPE_CHECKING:
    from ...spaces import Spec
    from ...storage.workspace import Workspace
    from ..preflight.kill_test import KillTestResult
    from ..preflight.machine import Check
    from ..preflight.pack_test import ComparedTrial, PackTestResult
    from .console import PlainConsole

Outcome = TypeVar("Outcome", "KillTestResult", "PackTestResult")

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
    from ..operations import doctor

    if kill_test:
        given = {"backend": backend, "trials": doctor.DEFAULT_TRIALS, "kills": doctor.DEFAULT_KILLS} | given
        _test(doctor.kill_test, conclude, "--kill-test", space, given, as_json)
    elif pack_test:
        given = {"trials": doctor.DEFAULT_TRIALS} | given
        _test(doctor.pack_test, conclude_packs, "--pack-test", space, given, as_json)
    else:
        _look(space, backend, options.workspace(storage, runs), as_json)


def _look(space: str | None, backend: str, workspace: Workspace, as_json: bool) -> None:
    from rich.text import Text

    from ..operations.doctor import doctor
    from .console import PlainConsole

    console = PlainConsole(quiet=as_json)

    def on_progress(check: Check) -> None:
        status = f"{check.status:<8}", STYLES[check.status]
        console.say(Text.assemble(status, f"{check.name:<10} {check.found}"))
        if check.advice:
            console.say(f"{'':19}{check.advice}", "dim")

    report = doctor(workspace=workspace, space=space, backend=backend, on_progress=on_progress)
    if as_json:
        printing.print_json(report.to_json())
    if report.status == "problem":
        raise typer.Exit(1)


def _test(
    test: Callable[..., Outcome],
    draw: Callable[[PlainConsole, Outcome, str], None],
    option: str,
    space: str | None,
    given: dict[str, Any],
    as_json: bool,
) -> None:
    """Run one of the two tests; print its outcome and the command that repeats it."""
    from .console import PlainConsole

    console, packs, again = PlainConsole(), option == "--pack-test", ""
    aside = PlainConsole(stderr=True) if as_json else console

    def on_begin(spec: Spec, seed: int) -> None:
        nonlocal again
        if packs:
            what = f"{given['trials']} random configurations and one that diverges"
            aside.say(f'pack test of "{spec.name}": {what}, seed {seed}')
        else:
            what = f"{spec.budget.trials} trials, one worker, {given['kills']} kills"
            aside.say(f'kill test of "{spec.name}" on {given["backend"]}: {what}, seed {seed}')
        trials = given["trials"] if packs else spec.budget.trials
        words = commands.words_of(given | {"trials": trials, "seed": seed})
        again = commands.command("doctor", *([space] if space else []), option, *words)

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what trains ends with the test
    with _progress(aside, "trials" if packs else "trials and reports") as on_progress:
        outcome = test(space=space, **given, on_begin=on_begin, on_progress=on_progress)
    if as_json:
        printing.print_json(outcome.to_json() | {"again": again})
    else:
        draw(console, outcome, again)
    if not outcome.passed:
        raise typer.Exit(1)


@contextmanager
def _progress(console: PlainConsole, counted: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """A bar that redraws itself, or a line for each part of a test."""
    if console.redraws:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

        columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), counted, TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("starting", total=None)
            yield lambda part, done, total: bar.update(task, description=part, completed=done, total=total)
        return
    said = ""

    def line(part: str, done: int, total: int | None) -> None:
        nonlocal said
        if part != said:
            console.say(part)
        said = part

    yield line


def conclude(console: PlainConsole, outcome: KillTestResult, again: str) -> None:
    """The kills, the verdict, and the command that repeats them."""
    from rich.text import Text

    from .console import frameless

    if outcome.kills:
        table = frameless()
        for title in ("kill", "when", "after", "trials", "reports", "continued"):
            table.add_column(
                title, no_wrap=True, justify="left" if title in ("when", "continued") else "right"
            )
        for number, kill in enumerate(outcome.kills, start=1):
            then = f"with {'some' if kill.left else 'none'} of it left"
            cells = (f"{kill.seconds:.2f} s", str(kill.trials), str(kill.reports))
            table.add_row(str(number), kill.moment, *cells, "at once" if kill.at_once else then)
        console.print(table)
    for number, kill in enumerate(outcome.kills, start=1):
        for each in kill.left:
            console.say(f"left behind after kill {number}: {each}", "red")
    for each in outcome.left:
        console.say(f"left behind at the end: {each}", "red")
    console.say(Text.assemble(*_verdict(outcome)))
    if outcome.not_compared:
        names = ", ".join(outcome.not_compared)
        console.say(f"not compared, for no two runs have the same: {names}")
    if outcome.passed:
        console.say(f"the same kills again: {again}")
    else:
        console.say(f"all of it is kept in {outcome.folder}")
        console.say(f"to repeat: {again}")


def _verdict(outcome: KillTestResult) -> tuple[tuple[str, str], str]:
    same = f"{outcome.trials} trials and {outcome.reports} reports"
    if outcome.verdict == "exact":
        kills = f"{len(outcome.kills)} kill{'s' * (len(outcome.kills) != 1)}"
        best = f", winner trial {outcome.winner['trial']}" if outcome.winner else ""
        said = f": {same}{best}; bit for bit the same with {kills} and without"
        return ("exact", "bold green" if outcome.passed else "bold yellow"), said
    if outcome.verdict == "not exact":
        return ("not exact", "bold red"), f": {outcome.difference}"
    said = (
        ": two undisturbed searches differ, so kills cannot be judged. The objective does not follow from "
        "its parameters and trial.seed alone, or runs on a device that does not repeat its bits.\n"
        f"first difference: {outcome.difference}"
    )
    return ("not deterministic", "bold yellow"), said


def conclude_packs(console: PlainConsole, outcome: PackTestResult, again: str) -> None:
    """What each trial was alone and together, the verdict, and how to have it again."""
    from rich.text import Text

    from .console import frameless

    table = frameless()
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
    console.say(Text.assemble(*_packed_verdict(outcome)))
    if any(each.sensitivity is not None for each in outcome.trials):
        console.print(
            "allowed is ten times what a start 1e-7 away changes in the trial alone, where that is more than "
            "rounding: a learning rate that is too hot makes something big of it",
            soft_wrap=True,
        )
    console.say(f"the same trials again: {again}")


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
    if outcome.passed:
        word, extent = "same", "what they are alone up to rounding"
        if outcome.identical:
            word, extent = "exact", "bit for bit what they are alone"
        others = "the one that diverges disturbs no other"
        return (word, "bold green"), f": {count}; together {extent}, and {others}"
    if failed := [str(number) for number, each in enumerate(outcome.trials) if not each.passed]:
        said = f": trial {', '.join(failed)}; leave execution.pack at 1, and report it"
        return ("not the same", "bold red"), said
    why = "the trial that was to diverge did not"
    if not any(each.others for each in outcome.trials):
        why = f"no two of these trials train together ({WHO_TRAINS_TOGETHER})"
    return ("not shown", "bold yellow"), f": {why}"
