"""The queue of a service: submit studies to it, steer them, and see when they begin and end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from ..errors import SearchError, UsageError
from ..service.place import Here, There
from . import commands, options, places, printing

if TYPE_CHECKING:
    from ...storage.wanted import Slots
    from ...storage.workspace import Workspace
    from ..queue.view import MachineView, Moment, Queue, QueuedStudy, Serving

T = TypeVar("T")
Priority = Annotated[
    Literal["high", "normal", "low"] | None,
    typer.Option(help="high goes before normal, normal before low.", show_default="normal"),
]
Asked = Annotated[
    str | None,
    typer.Option(
        "--slots",
        metavar="AMOUNT",
        help="What of the machine it takes: cpus=4,gpus=1,memory=8GiB; lane for an even part.",
        show_default="lane",
    ),
]
Preemptible = Annotated[
    bool | None,
    typer.Option(
        "--preemptible/--no-preemptible",
        help="Whether it makes room for a study of higher priority.",
        show_default="preemptible",
    ),
]


def submit(
    context: typer.Context,
    space: Annotated[
        str, typer.Argument(help="A space file, the name of one that ships, or - for standard input.")
    ],
    name: Annotated[str | None, typer.Option(help="Name of the study. Default: the one in the file.")] = None,
    backend: Annotated[str, typer.Option(help="What runs the trials.")] = "optuna",
    priority: Priority = None,
    slots: Asked = None,
    hold: Annotated[bool, typer.Option("--hold", help="Let it wait until it is resumed.")] = False,
    preemptible: Preemptible = None,
    trials: options.Trials = None,
    time: options.Time = None,
    samples: options.Samples = None,
    ray_address: Annotated[str | None, typer.Option(help="The Ray cluster to run on: host:port.")] = None,
    storage: options.Storage = None,
    runs: options.Runs = None,
    as_json: options.Json = False,
) -> None:
    """Queue the search of a space; the service of this database (hpsearch serve) runs it in its turn.

    Example: hpsearch submit spaces/lora.yaml --priority high --time 1h
    """
    from ..operations.submit import submit as queue_it

    done = places.place(storage, runs)(
        queue_it,
        space=options.given_space(space, context.params),
        backend=backend,
        priority=priority or "normal",
        slots=None if slots in (None, "lane") else slots_of(str(slots)),
        hold=hold,
        preemptible=preemptible is not False,
        ray_address=ray_address,
        cwd=Path.cwd(),
    )
    if as_json:
        printing.print_json(done.to_json())
        return
    where = commands.finding(storage, runs)
    what = "is queued" if done.made else "was there already, with this space"
    printing.say(f'the study "{done.study}" {what}: {commands.command("queue", *where)}')
    if done.wanted != "run":
        printing.say(f"it waits: {commands.command('resume', done.study, *where)}")


def steer(
    study: options.Study,
    desired: Annotated[
        Literal["run", "pause", "stop"] | None, typer.Option("--to", help="What it is to do.")
    ] = None,
    priority: Priority = None,
    slots: Asked = None,
    preemptible: Preemptible = None,
    trials: options.Trials = None,
    time: options.Time = None,
    samples: options.Samples = None,
    target: Annotated[float | None, typer.Option(help="Stop when a trial reaches this value.")] = None,
    confirm: options.Confirm = None,
    name: Annotated[str | None, typer.Option(help="Its new name.")] = None,
    storage: options.Storage = None,
    runs: options.Runs = None,
    as_json: options.Json = False,
) -> None:
    """Change a study's priority, slots, budget or name, or whether its best trials are confirmed.

    Also while it runs, and once it is over: then it goes on.

    Example: hpsearch steer lora --priority high --trials 80
    """
    from ..operations.steer import steer as change

    budget = options.given(trials=trials, time=time, samples=samples, target=target)
    done = places.place(storage, runs)(
        change,
        study=study,
        desired=desired,
        priority=priority,
        slots=None if slots in (None, "lane") else slots_of(str(slots)),
        lane=slots == "lane",
        preemptible=preemptible,
        budget=budget or None,
        confirm=None if confirm is None else {"top": options.confirmed_trials(confirm)},
        name=name,
    )
    if as_json:
        printing.print_json(done.to_json())
        return
    limits = ", ".join(f"{limit} {printing.text(value)}" for limit, value in done.budget.items())
    queued = f"{done.wanted}, priority {done.priority}; " if done.wanted else ""
    printing.say(f"{done.study}: {queued}budget {limits}")
    if done.searching:
        printing.say("its search takes this over within a second")


def queue(
    machine: Annotated[
        bool, typer.Option("--machine", help="Show the cores and GPUs, and which study has which.")
    ] = False,
    lanes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Show it as if so many studies shared the machine evenly.", show_default="as it is"
        ),
    ] = None,
    storage: options.Storage = None,
    runs: options.Runs = None,
    as_json: options.Json = False,
) -> None:
    """Show what runs and what waits: since when, for what, and when each begins and ends.

    Example: hpsearch queue
    """
    from ..operations import queue as operations

    at = queue_of(storage, runs, lanes)
    if machine:
        shown = at(operations.machine)
        if as_json:
            printing.print_json(shown.to_json())
        else:
            _print_machine(shown)
        return
    found = at(operations.queue)
    if as_json:
        printing.print_json(found.to_json())
    elif not found.studies:
        printing.say("nothing is queued, and nothing runs; hpsearch submit queues a space")
    else:
        _print_queue(found)


def slots_of(text: str) -> Slots:
    """Slots as they are typed: `cpus=4,gpus=1,memory=8GiB`. Raises `UsageError`."""
    from ...spaces.settings import memory
    from ...storage.wanted import Slots

    known = ("cpus", "gpus", "memory")
    amounts: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, separator, value = word.partition("=")
        if name not in known or not separator:
            raise UsageError(f'"{word}" is no amount; write some of cpus=4,gpus=1,memory=8GiB, or lane')
        try:
            amounts[name] = memory(value) if name == "memory" else int(value)
        except ValueError:
            raise UsageError(f'"{word}": {value!r} is no amount of {name}') from None
    return Slots(**amounts)


def queue_of(
    storage: str | None, runs: Path | None, lanes: int | None = None
) -> Callable[[Callable[..., T]], T]:
    """Who tells the queue of these studies: a server that was named, or the user's own; else this process.

    With `lanes` this process does, as if so many studies shared the machine.
    """
    at = places.place(storage, runs)
    if not isinstance(at, Here) or at.workspace is None:
        return at
    workspace = at.workspace

    def ask(operation: Callable[..., T]) -> T:
        from ..service.known import own_of

        if lanes is None and (own := own_of(workspace)) is not None:
            try:
                from ..service.client.server import Server

                with Server(own.url, own.token, uds=own.uds) as server:
                    return There(server)(operation)
            except SearchError as error:
                if error.code not in ("server-unavailable", "extra"):
                    raise
                printing.say(f"{error}; this is the queue without what the server alone knows")
        return at(operation, serving=_serving(workspace, lanes))

    return ask


def _serving(workspace: Workspace, lanes: int | None) -> Serving:
    """What this user's server would go by."""
    from ..queue.slots import Machine
    from ..queue.view import Serving
    from ..service.home import Home, Settings

    home = Home.known()
    settings = Settings() if home is None else home.settings()
    machine = Machine.here(lanes or settings.lanes, settings.settle, settings.ray_studies)
    if home is None:
        return Serving(machine)
    server = None if workspace.file is not None else home.server  # which has all studies of a file
    return Serving(machine, server, home.is_drained)


def _print_queue(found: Queue) -> None:
    from rich.text import Text

    from . import views
    from .console import frameless
    from .progress import STYLES

    table = frameless()
    for title in ("", "study", "state", "priority", "begins", "ends", ""):
        table.add_column(title, justify="right" if not title else "left", overflow="fold")
    for study in found.studies:
        state = study.state.state
        table.add_row(
            "" if study.place is None else str(study.place),
            Text(study.study, style="bold"),
            Text(state, style=STYLES.get(state, "")),
            study.priority or "-",
            "" if study.has is not None else clock(study.begins),
            clock(study.ends),
            Text(_about(study), style="dim"),
        )
    views.show(table)


def _about(study: QueuedStudy) -> str:
    from ..formatting import counted

    times = counted(study.preemptions, "times")
    cost = (
        f"; preempted {times}, {study.lost_seconds:g} s lost, no number changed" if study.lost_seconds else ""
    )
    return study.state.reason + cost


def clock(moment: Moment | None) -> str:
    """A moment on this machine's clock, with its interval where it is foreseen."""
    if moment is None:
        return "unknown"
    now = datetime.now().astimezone()
    times = [
        datetime.fromisoformat(at).astimezone() for at in (moment.expected, moment.earliest, moment.latest)
    ]
    days = max(abs((at.date() - now.date()).days) for at in times)
    form = "%H:%M" if days == 0 else "%a %H:%M" if days < 7 else "%Y-%m-%d %H:%M"
    expected, low, high = (f"{at:{form}}" for at in times)
    return expected if low == high else f"{expected} ({low} to {high})"


def _print_machine(shown: MachineView) -> None:
    from ..formatting import gibibytes
    from . import views
    from .console import frameless

    table = frameless()
    for title in ("study", "cores", "GPUs", "memory"):
        table.add_column(title, overflow="fold")
    for name, has in (*shown.has.items(), ("free", shown.free)):
        cores = ",".join(map(str, has.cpus)) or "-"
        table.add_row(name, cores, ",".join(has.gpus) or "-", gibibytes(has.memory))
    views.show(table)
