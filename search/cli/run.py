"""`hpsearch run`: search a space."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from ..service.place import There
from . import commands, options, places, printing, submitted
from .commands import again, of_step, steps_as_commands

if TYPE_CHECKING:
    from ..results.study import StudyResult
    from .console import PlainConsole


def run(
    context: typer.Context,
    space: Annotated[
        str | None,
        typer.Argument(
            help="A space file, the name of one that ships (lora, pretrain), or - for stdin.",
            show_default=False,
        ),
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="Continue this study by the space that it holds, without a file.")
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            help="What runs the trials: optuna, ray or remote.", show_default="optuna, or the study's own"
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the study. Default: the one in the file.")] = None,
    trials: options.Trials = None,
    time: options.Time = None,
    samples: options.Samples = None,
    target: Annotated[float | None, typer.Option(help="Stop when a trial reaches this value.")] = None,
    workers: options.Workers = None,
    cpus_per_trial: options.CpusPerTrial = None,
    gpus_per_trial: options.GpusPerTrial = None,
    processes_per_trial: options.Processes = None,
    strategy: options.Strategy = None,
    zero_stage: options.ZeroStage = None,
    max_memory: Annotated[str | None, typer.Option(help="Memory limit per trial: 4GiB, 500MiB.")] = None,
    price_per_hour: Annotated[
        float | None, typer.Option(help="What an hour of a GPU costs, or of this machine without GPUs.")
    ] = None,
    ray_address: Annotated[
        str | None, typer.Option(help="The Ray cluster to run on: host:port, or auto on one of its nodes.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed of the search.")] = None,
    confirm: options.Confirm = None,
    audit: options.Audit = None,
    report_to: options.ReportTo = None,
    notify: options.Notify = None,
    storage: options.Storage = None,
    runs: options.Runs = None,
    plain: Annotated[bool, typer.Option("--plain", help="Print lines instead of the live table.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="At a server: submit the search, and do not follow it.")
    ] = False,
) -> None:
    """Search a space for the best configuration. Run it again to continue.

    Example: hpsearch run spaces/lora.yaml --backend optuna --trials 40
    """
    from ..backends.resources import keep_to_slice
    from ..operations.run import run as search
    from ..results.study import backend_of, space_of
    from .progress import LineProgress, LiveProgress, SteadyConsole

    at, where = places.place(storage, runs), commands.finding(storage, runs)
    if (space is None) == (study is None):
        raise UsageError("name a space, or with --study a study that continues by its own; not both")
    if study is not None and name is not None:
        raise UsageError("--study names the study; --name is for a space")
    if isinstance(at, There):
        if commands.names_target(sys.argv[1:]):
            raise UsageError("who a server notifies stands in its serve.yaml (notify:), not in a request")
        submitted.run_there(
            at.server,
            spec=None if space is None else options.given_space(space, context.params),
            study=study,
            backend=backend or "optuna",
            ray_address=ray_address,
            detach=detach,
            plain=plain,
        )
        return
    if detach:
        raise UsageError("only a server goes on without this command: name one with --server")
    workspace = options.workspace(storage, runs)
    keep_to_slice()
    if study is not None:
        spec = options.given_space(space_of(workspace, study), context.params)
    else:
        spec = options.given_space(str(space), context.params)
    console = SteadyConsole()
    live = console.redraws and not plain
    watching = LiveProgress(console) if live else nullcontext(LineProgress(console))
    with steps_as_commands(where), watching as watcher:
        result = search(
            workspace=workspace,
            space=spec,
            watcher=watcher,
            backend=backend or ("optuna" if study is None else backend_of(workspace, study)),
            ray_address=ray_address,
            began=options.process_began(),
            notify=notify or (),
        )
    _conclude(console, result, where)
    if result.interrupted:
        raise typer.Exit(130)
    if result.best_trial is None and not result.stopped:
        raise typer.Exit(1)


def _conclude(console: PlainConsole, result: StudyResult, where: Sequence[str]) -> None:
    """The winner, what it beat, and the next commands, which find the study by these options."""
    from rich.text import Text

    from ...storage.wanted import is_servers_driver
    from ..results.next_steps import confirmation_changes, retry_steps, steps_after
    from ..results.sentences import against, audit_of, confirmation
    from ..trials.retries import failed_in_words
    from .progress import STYLES

    if not result.ran and not result.stopped:
        console.say(_finished(result))
    elif result.stop_reason is not None:
        console.say(f"stopped: {result.stop_reason}")
    best = result.winner
    if best is None:
        console.say(f'no trial of "{result.name}" ran to its end, so there is no winner')
    else:
        assert best.value is not None
        value = (f"{best.value:.6g}", "bold green")
        console.say(Text.assemble(f"best {result.spec.metric} ", value, f" by trial {best.number}"))
        for name, chosen in result.best.params.items():
            console.say(f"  {name}: {printing.text(chosen)}")
        confirmed = confirmation(result)
        for line in (*confirmed, against(result.records.baseline, best, result.confirmed)):
            console.say(line)
        if not confirmed and (changes := confirmation_changes(result)) is not None:
            console.say(f"to confirm it: {again(changes)}")
    for line in audit_of(result):
        console.say(f"audit: {line}")
    if (failed := failed_in_words(result.all_trials)) is not None:
        console.say(failed, STYLES["fail"])
    if is_servers_driver():
        return  # whoever follows it at the server has other commands
    if result.stopped:
        renamed = result.name != result.spec.name and not _names_study()  # by somebody, meanwhile
        typed = [*sys.argv[1:], *(["--name", result.name] if renamed else [])]
        console.say(f"continue with: {commands.command(*typed)}")
        for step in retry_steps(result):
            console.say(f"to {step.why}: {of_step(step, where)}")
    else:
        console.say("next:")
        for step in steps_after(result):
            console.say(f"  {of_step(step, where)}")
    if (about := printing.about_password(sys.argv[1:])) is not None:
        console.say(about)


def _names_study() -> bool:
    """Whether the command as it was typed names its study."""
    return any(word.split("=")[0] in ("--name", "--study") for word in sys.argv)


def _finished(result: StudyResult) -> str:
    """That there was nothing left to do, and how to extend the search all the same."""
    from ..results.next_steps import exhausted, extension
    from ..results.sentences import finished

    more = {} if result.stop_reason is None and exhausted(result) else extension(result)
    return f"{finished(result)}. To extend it: {again(more)}" if more else finished(result)
