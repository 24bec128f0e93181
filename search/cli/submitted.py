"""`hpsearch --server URL run`: submit a space, and follow its search from here."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import typer

from ..errors import SearchError
from . import printing
from .commands import command, of_step

if TYPE_CHECKING:
    from ...spaces import Spec
    from ..results.report import StudyReport
    from ..service.client.server import Server
    from .console import PlainConsole


def run_there(
    server: Server,
    *,
    spec: Spec | None,
    study: str | None,
    backend: str,
    ray_address: str | None,
    detach: bool,
    plain: bool,
) -> None:
    """Submit a space, or resume a study, and follow it. Ctrl-C leaves the search alone."""
    if spec is not None:
        done = server.submit(space=spec, backend=backend, ray_address=ray_address, say=printing.say)
        name = done.study
        what = "submitted" if done.made else "it is there already:"
        printing.say(f'{what} the study "{name}" at {server.url}')
        wanted = done.wanted
    else:
        assert study is not None
        name, wanted = study, "stop"
    if wanted != "run":
        server.resume(study=name)
    if detach:
        printing.say(_how_to_return(name))
        return
    try:
        report = _follow(server, name, plain)
    except KeyboardInterrupt:
        printing.say(f"detached; the search goes on at {server.url}\n{_how_to_return(name)}")
        raise typer.Exit(130) from None
    _conclude(report)


def _how_to_return(study: str) -> str:
    back = command("run", "--study", study)
    return f"to return: {back}; to stop it: {command('stop', study)}"


def _follow(server: Server, study: str, plain: bool) -> StudyReport:
    """Show a search until nothing goes on in it by itself; what it says then."""
    from ..service.client.following import follow
    from .progress import LineProgress, LiveProgress, SteadyConsole

    console = SteadyConsole()
    live = console.redraws and not plain
    with LiveProgress(console) if live else nullcontext(LineProgress(console)) as watcher:
        search = follow(server, study, watcher)
    if search.state == "failed":
        raise SearchError(f'the search of "{search.name}" failed: {search.reason}', code="search-failed")
    report = search.report or server.show(study=search.name)
    if search.state != "finished":
        printing.say(f"{search.state}: {search.reason}; to resume it: {command('resume', search.name)}")
    return report


def _conclude(report: StudyReport) -> None:
    """The winner, what it beat, and the next commands."""
    from .console import PlainConsole

    console = PlainConsole()
    best = report.best
    if best is None or best.value is None:
        console.say(f'no trial of "{report.name}" ran to its end, so there is no winner')
        if report.phase == "over":
            raise typer.Exit(1)
        return
    _winner(console, report)
    steps = [step for step in report.next_steps if step.operation != "dashboard"]
    if steps:
        console.say("next:")
        for step in steps:
            console.say(f"  {of_step(step, ())}")


def _winner(console: PlainConsole, report: StudyReport) -> None:
    from rich.text import Text

    best = report.best
    assert best is not None and best.value is not None
    value = (f"{best.value:.6g}", "bold green")
    console.say(Text.assemble(f"best {report.metric} ", value, f" by trial {best.number}"))
    for name, chosen in best.params.items():
        console.say(f"  {name}: {printing.text(chosen)}")
    for line in (*report.confirmation, *([report.comparison] if report.comparison else [])):
        console.say(line)
    for line in report.audit:
        console.say(f"audit: {line}")
