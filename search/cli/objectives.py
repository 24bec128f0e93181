"""`hpsearch objectives` and `hpsearch init`: what hpsearch can train as it is, and a space to start from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..operations import outputs
from . import commands, options, places, printing

if TYPE_CHECKING:
    from ...objectives.catalog import ObjectiveDescription


def objectives(
    name: Annotated[
        str | None, typer.Argument(help="Show the parameters of this one.", show_default=False)
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List the built-in objectives, or the parameters of one with their defaults.

    Example: hpsearch objectives xgboost
    """
    from ..operations import spaces

    described = places.anywhere()(spaces.objectives, name=name)
    if as_json:
        printing.print_json(described.to_json())
    elif name is not None:
        _show_one(described.objectives[0])
    else:
        _show_all(described.objectives)


def init(
    objective: Annotated[
        str | None,
        typer.Argument(help="A built-in objective (see hpsearch objectives).", show_default=False),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Propose a space from a script (its options, or its search by Optuna or Ray Tune), from the "
            "numbers of a YAML or JSON file, or from another tool's sweep.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="For hf_lora: a model's folder, or its id in the hub's cache. Its config.json says the task "
            "and a first learning rate.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write.", show_default="OBJECTIVE.yaml, FROM_space.yaml"),
    ] = None,
    force: options.Force = False,
) -> None:
    """Write a commented space file to start from, for a built-in objective, a model or your own script.

    Example: hpsearch init --from train.py -o mine.yaml
    """
    from ..errors import UsageError
    from ..operations import spaces

    made = spaces.init(objective=objective, source=source, model=model)
    if output is not None and options.to_file(output) is None:
        printing.print_document(made.text)
        return
    path = output or made.file
    if source is not None and path.exists() and path.samefile(source):
        raise UsageError(f"{path} is what the space is proposed from; another name with -o")
    outputs.check_output(path, force=force)
    outputs.write_output(path, made.text)
    printing.tell(f"wrote {path}; " + "".join(f"to fill in: {names}; " for names in made.to_fill) + "next:")
    for words in ("validate", "plan", "run"):
        printing.tell(f"  {commands.command(words, str(path))}")


def _show_all(objectives: Sequence[ObjectiveDescription]) -> None:
    from rich.text import Text

    from .console import PlainConsole
    from .views import grid

    rows = []
    for each in objectives:
        line = Text(each.summary)
        if each.missing:
            line.append(f"\n{each.missing}", "yellow")
        rows.append((each.name, line))
    console = PlainConsole()
    console.print(grid(rows))
    console.say("your own: module:function, path/to/file.py:function or {command: [...]}", "dim")
    console.say("of Optuna or Ray Tune, unchanged: optuna:file.py:function, ray:file.py:function", "dim")


def _show_one(objective: ObjectiveDescription) -> None:
    from rich.text import Text

    from .console import PlainConsole, frameless

    console = PlainConsole()
    console.say(Text.assemble((objective.name, "bold"), f": {objective.summary}"))
    if objective.missing:
        console.say(objective.missing, "yellow")
    table = frameless()
    table.add_column("parameter", no_wrap=True)
    table.add_column("default")
    table.add_column("allowed")
    table.add_column("", style="dim", ratio=1)
    for each in objective.parameters:
        table.add_row(each.name, printing.text(each.default), each.allowed, each.help)
    console.print(table)
