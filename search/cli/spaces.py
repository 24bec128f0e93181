"""`hpsearch validate` and `hpsearch schema`: check a space file, and describe its format."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..formatting import counted
from ..operations import outputs
from . import options, places, printing

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from ...spaces import Spec
    from ..operations.spaces import ValidSpace
    from .console import PlainConsole


def validate(
    file: options.Space,
    imports: Annotated[
        bool, typer.Option("--import", help="Also import the objective, which runs its module.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Check a space file, and show how hpsearch reads it. Nothing is trained, nor imported without --import.

    Errors go to standard error as "file:line:column path: message", and the exit code is 2.

    Example: hpsearch validate spaces/lora.yaml
    """
    from ...spaces import SpaceError
    from ..operations import spaces

    try:
        valid = places.anywhere()(spaces.validate, space=file, imports=imports)
    except SpaceError as error:
        printing.say(str(error))
        if as_json:
            issues = [issue._asdict() for issue in error.issues]
            printing.print_json({"valid": False, "errors": issues})
        raise typer.Exit(2) from None
    if as_json:
        printing.print_json(valid.to_json())
    else:
        show(valid)
        if imports:
            command = not isinstance(valid.spec.objective, str)
            nothing = "the objective is a command: there is nothing to import"
            printing.tell(f"\n{nothing}" if command else f'\nthe objective "{valid.spec.objective}" loads')


def schema(
    context: typer.Context,
    file: Annotated[Path | None, typer.Option("-o", help="Write the schema to this file.")] = None,
    force: options.Force = False,
    openapi: Annotated[
        bool, typer.Option("--openapi", help="Describe the routes of hpsearch serve instead.")
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help='Describe what a command prints with --json: "show --why".'),
    ] = None,
) -> None:
    """Print the JSON Schema of space files, with which editors complete and check them.

    With --output it is that of what a command prints with --json.

    Example: hpsearch schema -o space.schema.json
    """
    from ..errors import UsageError
    from ..operations import spaces
    from .output_schemas import schema_of_output

    if openapi and output is not None:
        raise UsageError("--openapi or --output, not both")
    if (file := options.to_file(file)) is not None:
        outputs.check_output(file, force=force)
    if output is not None:
        root: Any = context.find_root().command
        found = schema_of_output(output, root.commands)
    else:
        found = _routes() if openapi else places.anywhere()(spaces.schema).to_json()
    text = json.dumps(found, indent=2)
    if file is None:
        printing.print_document(text + "\n")
        return
    outputs.write_output(file, text + "\n")
    if openapi:
        printing.tell(f"wrote {file}")
        return
    printing.tell(f"wrote {file}; the first line of a space file names it:")
    printing.tell(f"# yaml-language-server: $schema={file}")


def _routes() -> dict[str, Any]:
    with options.needs_extra():
        from ..service.openapi import document
    return document()


def show(valid: ValidSpace) -> None:
    """Print a space as understood."""
    from rich.text import Text

    from ...objectives.info import ObjectiveInfo
    from ..operations.spaces import SAMPLES
    from .console import PlainConsole

    console, spec = PlainConsole(), valid.spec
    objective = ObjectiveInfo(spec.objective_words).name
    the = "the best " if spec.value == "best" else ""
    head = Text.assemble((spec.name, "bold"), f": {spec.goal} {the}{spec.metric} of {objective}")
    if spec.preset:
        head.append(f", preset {', '.join(spec.preset)}")
    console.say(head)
    _title(console, "parameters")
    console.print(_parameters(spec))
    if spec.constraints:
        _title(console, "constraints")
        _lines(console, spec.constraints)
        _lines(console, [f"leave {spec.space.feasible_share():.0%} of all configurations"])
    baseline = spec.space.baseline()
    _title(console, f"{'' if baseline is None else 'the baseline and '}{SAMPLES} random configurations")
    console.print(_configurations(spec, baseline, valid.samples, console.width))
    if baseline is None:
        _lines(console, ["no baseline: the winner will have nothing to be compared with"])
    _title(console, "early stopping")
    _lines(console, stopping_lines(spec))
    _title(console, "budget")
    _lines(console, [budget_line(spec)])
    if valid.warnings:
        _title(console, "warnings")
        for issue in valid.warnings:
            console.say(str(issue), "yellow")


def stopping_lines(spec: Spec) -> list[str]:
    """The plan of the early stopping: brackets, rungs, and what they come to."""
    from ...spaces.stopping import Rungs
    from ..scheduling.rungs import plan_of

    stopping, plan = spec.early_stopping, plan_of(spec)
    if not isinstance(stopping, Rungs):
        none = "none: every trial runs to its end"
        return [none if stopping.method == "none" else f"{stopping.method}: no rungs to plan with"]
    lines = [
        f"{stopping.method}: 1 in {stopping.eta} trials continues at each rung, to {stopping.max:,} at most"
    ]
    for number, bracket in enumerate(plan.brackets):
        rungs = f"rungs at {counted(bracket.rungs, spec.resource, ' ')}"
        rungs = rungs if bracket.rungs else "no rungs, every trial runs to its end"
        lines.append(f"bracket {number}: {bracket.share:4.0%} of trials, {rungs}")
    if plan.complete is not None and plan.saving is not None:
        few = max(1, round(plan.complete))
        lines.append(
            f"so of {plan.trials} trials about {few} run{'s' if few == 1 else ''} to the end, "
            f"saving about {plan.saving:.0%} of the {spec.resource}; more do as the sampler learns"
        )
    return lines


def budget_line(spec: Spec) -> str:
    """When the search ends, in a sentence."""
    from ..formatting import duration

    budget, parts = spec.budget, []
    if budget.trials is not None:
        parts.append(f"{counted(budget.trials, 'trials')}")
    if budget.time is not None:
        parts.append(duration(budget.time))
    if budget.samples is not None:
        parts.append(f"{counted(budget.samples, spec.resource)} in all")
    if budget.target is not None:
        parts.append(f"{spec.metric} of {budget.target:g}")
    return " or ".join(parts) + (", whichever comes first" if len(parts) > 1 else "")


def _title(console: PlainConsole, text: str) -> None:
    console.print(f"\n{text}", style="dim")


def _lines(console: PlainConsole, lines: Iterable[str]) -> None:
    for line in lines:
        console.say(f"  {line}")


def _parameters(spec: Spec) -> RenderableType:
    from rich.padding import Padding
    from rich.text import Text

    from ...spaces import describe
    from ..operations.spaces import kind
    from .console import frameless

    table = frameless(show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    table.add_column(style="dim", no_wrap=True)
    for name, parameter in spec.parameters.items():
        by = " by preset" if name in spec.from_preset else ""
        table.add_row(Text(name), Text(describe(parameter)), kind(parameter) + by)
    return Padding(table, (0, 0, 0, 2), expand=False)


def _configurations(
    spec: Spec, baseline: dict[str, Any] | None, samples: list[dict[str, Any]], width: int
) -> RenderableType:
    """A row for each configuration; a column where rows are too wide for the terminal."""
    from rich.padding import Padding

    from ...spaces import Constant
    from .console import PlainConsole

    named = {} if baseline is None else {"baseline": baseline}
    named |= {str(number): config for number, config in enumerate(samples, start=1)}
    fixed = {n for n, p in spec.parameters.items() if isinstance(p, Constant) and p.when is None}
    names = [name for name in spec.parameters if name not in fixed]
    cells = [["", *names]]
    for label, config in named.items():
        values = (printing.brief(config[name]) if name in config else "-" for name in names)
        cells.append([label, *values])
    if PlainConsole(width=10_000).measure(_grid(cells)).maximum + 2 > width:
        cells = [list(column) for column in zip(*cells, strict=True)]
    return Padding(_grid(cells), (0, 0, 0, 2), expand=False)


def _grid(cells: list[list[str]]) -> Table:
    """A table whose first row and column are its heads."""
    from rich.text import Text

    from .console import frameless

    table = frameless()
    for index, head in enumerate(cells[0]):
        table.add_column(Text(head), overflow="fold", justify="right" if index else "left")
    for row in cells[1:]:
        table.add_row(*map(Text, row))
    return table
