"""Control a search from another terminal: stop, pause, resume, kill and retry."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import UsageError
from . import commands, options, printing


def stop(study: options.Study, storage: options.Storage = None, runs: options.Runs = None) -> None:
    """Stop a search. Its running trials are requeued; `hpsearch run` continues it.

    Example: hpsearch stop lora
    """
    from ..operations import control

    done = control.stop(workspace=options.workspace(storage, runs), study=study)
    if done.searching:
        when = "at their next report, in 30 s at the latest"
        printing.say(f"asked the search to stop; running trials are requeued {when}")
    else:
        printing.say(f'no search of "{study}" is running')


def pause(study: options.Study, storage: options.Storage = None, runs: options.Runs = None) -> None:
    """Pause a search: its running trials are requeued, and their processes free the machine.

    Example: hpsearch pause lora
    """
    from ..operations import control

    control.pause(workspace=options.workspace(storage, runs), study=study)
    where = commands.finding(storage, runs)
    printing.say(f"asked the search to pause; to resume it: {commands.command('resume', study, *where)}")


def resume(study: options.Study, storage: options.Storage = None, runs: options.Runs = None) -> None:
    """Resume a paused search.

    Example: hpsearch resume lora
    """
    from ..operations import control

    control.resume(workspace=options.workspace(storage, runs), study=study)
    printing.say("asked the search to resume")


def kill(
    study: options.Study,
    trial: Annotated[int, typer.Argument(min=0, help="Number of a running or requeued trial.")],
    storage: options.Storage = None,
    runs: options.Runs = None,
) -> None:
    """End one trial at once, as failed. The search continues.

    Example: hpsearch kill lora 12
    """
    from ..operations import control

    control.kill(workspace=options.workspace(storage, runs), study=study, trial=trial)
    again = commands.command("retry", study, str(trial), *commands.finding(storage, runs))
    printing.say(f"killed trial {trial}; to try it again: {again}")


def retry(
    study: options.Study,
    trial: Annotated[int | None, typer.Argument(min=0, help="Number of a failed trial.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Retry all failed trials.")] = False,
    storage: options.Storage = None,
    runs: options.Runs = None,
) -> None:
    """Retry failed trials from their last checkpoint, with the same number and parameters.

    Example: hpsearch retry lora --failed
    """
    if (trial is None) != failed:
        raise UsageError("name one trial, or all of them with --failed")
    from ..operations import control

    done = control.retry(workspace=options.workspace(storage, runs), study=study, trial=trial)
    what = f"trial{'s' if len(done.trials) > 1 else ''} {', '.join(map(str, done.trials))}"
    if done.searching:
        printing.say(f"{what}: the search tries again")
    else:
        printing.say(f"{what}: the next search of this study tries again (hpsearch run)")
