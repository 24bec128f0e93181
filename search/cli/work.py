"""`hpsearch work`: train trials of a search elsewhere."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from . import options
from .console import PlainConsole


def work(
    url: Annotated[
        str, typer.Argument(help="The server, http://HOST:PORT; or unix:SOCKET of a search on this machine.")
    ],
    study: options.Study,
    command: Annotated[
        list[str] | None, typer.Argument(help="After --: a command that trains a trial, as in a space.")
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(help="What trains a trial here: FILE.py:FUNCTION, or the name of a built-in objective."),
    ] = None,
    workers: options.Workers = None,
    cpus_per_trial: options.CpusPerTrial = None,
    gpus_per_trial: options.GpusPerTrial = None,
    lease: Annotated[
        str, typer.Option(help="How long a trial may be silent before another worker gets it: 15s to 10m.")
    ] = "60s",
    token: Annotated[
        str | None,
        typer.Option(
            help="A token of the server.",
            envvar="HPSEARCH_TOKEN",
            show_default="of hpsearch login, or of this user's own server",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Train trials of a search elsewhere, until it is over. Ctrl-C gives them back.

    Example: hpsearch work http://lab:8765 mine --objective mine.py:train --workers 2
    """
    import json as library

    from ..backends.remote.requests import LONGEST_LEASE, SHORTEST_LEASE
    from ..service.worker.agent import work as train

    if objective is not None and command:
        raise typer.BadParameter("give --objective or a command, not both", param_hint="'--objective'")
    seconds = options.seconds("--lease", lease, SHORTEST_LEASE, LONGEST_LEASE)
    console = PlainConsole(stderr=json)
    with stopped_by_signals() as stop:
        done = train(
            url=url,
            study=study,
            objective=objective or command or None,
            workers=None if workers is None else options.number_or_word(workers),
            cpus_per_trial=cpus_per_trial,
            gpus_per_trial=gpus_per_trial,
            lease=seconds,
            token=token,
            say=console.say,
            stop=stop,
        )
    trials = f"{done.trials} {'trial' if done.trials == 1 else 'trials'}, {done.completed} of them to the end"
    if json:
        print(library.dumps(done.to_json(), indent=2))
    elif done.over is None:
        console.say(f"stopped; trained {trials}. What was running is given back")
    else:
        console.say(f"the study has nothing left to train: {done.over}. Trained {trials}")
    if stop.is_set():
        raise typer.Exit(130)


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; the second of them ends the command at once."""
    stop = threading.Event()

    def handle(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
