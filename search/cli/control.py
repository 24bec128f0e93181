"""Control a search from another terminal: stop, pause, resume, kill, retry, and try a configuration."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import UsageError
from ..service.place import Here, Place
from . import commands, options, places, printing


def stop(study: options.Study, storage: options.Storage = None, runs: options.Runs = None) -> None:
    """Stop a search. Its running trials are requeued; `hpsearch run` continues it.

    Example: hpsearch stop lora
    """
    from ..operations import control

    done = places.place(storage, runs)(control.stop, study=study)
    if done.searching:
        when = "at their next report, in 30 s at the latest"
        printing.say(f"asked the search to stop; running trials are requeued {when}")
    elif done.wanted is not None:
        printing.say(f'no search of "{study}" is running, and no service starts one until it is resumed')
    else:
        printing.say(f'no search of "{study}" is running')


def pause(study: options.Study, storage: options.Storage = None, runs: options.Runs = None) -> None:
    """Pause a search: its running trials are requeued, and their processes free the machine.

    Example: hpsearch pause lora
    """
    from ..operations import control

    done = places.place(storage, runs)(control.pause, study=study)
    if done.over:
        printing.say(f'nothing is left to do in "{study}", so there is nothing to pause')
        return
    where = commands.finding(storage, runs)
    asked = "asked the search to pause" if done.searching else "it waits, and its place in the queue stays"
    printing.say(f"{asked}; to resume it: {commands.command('resume', study, *where)}")


def resume(study: options.Study, storage: options.Storage = None, runs: options.Runs = None) -> None:
    """Resume a paused search.

    Example: hpsearch resume lora
    """
    from ..operations import control

    at = places.place(storage, runs)
    done = at(control.resume, study=study)
    if done.over:
        printing.say(f'nothing is left to do in "{study}"; a larger budget, or a trial to try, gives it more')
    elif done.searching:
        printing.say("asked the search to resume")
    elif _is_drained(at):
        printing.say("it is queued again; its service (hpsearch serve) is drained, and starts nothing")
    else:
        printing.say("it is queued again; its service (hpsearch serve) starts it when there is room")


def _is_drained(at: Place) -> bool:
    """Whether the service of these studies starts nothing: that of a server, or of this user's home."""
    from ..operations import queue
    from ..service.home import Home

    if isinstance(at, Here):
        home = Home.known()
        return home is not None and home.is_drained
    return at(queue.machine).draining


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

    places.place(storage, runs)(control.kill, study=study, trial=trial)
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

    done = places.place(storage, runs)(control.retry, study=study, trial=trial)
    what = f"trial{'s' if len(done.trials) > 1 else ''} {', '.join(map(str, done.trials))}"
    if done.searching:
        printing.say(f"{what}: the search tries again")
    elif done.wanted == "run":
        printing.say(f"{what}: its service (hpsearch serve) tries again when there is room")
    else:
        on = commands.command("run", "--study", study, *commands.finding(storage, runs))
        printing.say(f"{what}: the next search of this study tries again: {on}")


def try_config(
    study: options.Study,
    params: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE...", help="Values of searched parameters.")
    ] = None,
    trial: Annotated[
        int | None, typer.Option("--from", min=0, help="A trial whose values fill in; else the sampler's do.")
    ] = None,
    storage: options.Storage = None,
    runs: options.Runs = None,
    as_json: options.Json = False,
) -> None:
    """Try a configuration of your own: it trains before what the sampler proposes.

    Example: hpsearch try lora learning_rate=3e-4 --from 12
    """
    from ..operations import control
    from ..trials.document import parse_assignments

    values = parse_assignments(params or [])
    done = places.place(storage, runs)(control.try_config, study=study, params=values, trial=trial)
    if as_json:
        printing.print_json(done.to_json())
        return
    if done.searching:
        printing.say(f"trial {done.trial} trains as soon as a worker is free{done.on_budget}")
    else:
        where = commands.finding(storage, runs)
        on = commands.command("run", "--study", study, *where)
        printing.say(f"trial {done.trial} waits for the next search of this study{done.on_budget}: {on}")
