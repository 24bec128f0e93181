"""`hpsearch validate` and `hpsearch schema`: a space file as it is understood, and its language."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..formatting import counted
from . import common

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from ...spaces import Issue, Parameter, SpaceError, Spec
    from ..scheduling.plan import Plan

SAMPLES = 5


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(validate)
    app.command()(schema)


def validate(
    file: Annotated[str, typer.Argument(help="A space file, or the name of one that ships.")],
    imports: Annotated[
        bool, typer.Option("--import", help="Import the objective too: this runs its module.")
    ] = False,
    as_json: common.Json = False,
) -> None:
    """Check a space file and show how it is understood. Trains nothing; imports nothing without --import.

    Exit code 2 where it has errors, each a line "file:line:column path: message" on standard error.

    Example: hpsearch validate spaces/lora.yaml
    """
    from ...spaces import SpaceError
    from ..preflight import checks as plan
    from ..preflight.objective import import_objective, load_space
    from ..preflight.requirements import check_extras

    try:
        spec = load_space(file)
        plan.check_objective(spec)
        check_extras(spec)
        samples = sample(spec)
        if imports:
            with redirect_stdout(sys.stderr):  # what the module prints is no part of our answer
                import_objective(spec)
    except SpaceError as error:
        _refuse(error, as_json)
        raise typer.Exit(2) from None
    if as_json:
        common.print_json(content(spec, file, samples) | {"imported": imports})
    else:
        show(spec, samples)
        if imports:
            common.tell(f"\n{_imported(spec)}")


def schema(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write it to this file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Print the JSON Schema of space files, by which editors complete and check them.

    Example: hpsearch schema -o space.schema.json
    """
    from ...objectives.guides import PRESETS
    from ...spaces import json_schema

    if output is not None:
        common.check_output(output, force=force)
    text = json.dumps(json_schema(PRESETS), indent=2)
    if output is None:
        common.print_document(text + "\n")
        return
    common.write_file(output, text + "\n")
    common.tell(f"wrote {output}; the first line of a space file names it:")
    common.tell(f"# yaml-language-server: $schema={output}")


def sample(spec: Spec) -> list[dict[str, Any]]:
    """Some random configurations of the space, the same ones every time."""
    rng = random.Random(spec.search.seed)
    return [spec.space.sample(rng) for _ in range(SAMPLES)]


def all_warnings(spec: Spec) -> list[Issue]:
    """What is allowed and probably not meant, in the order of the file."""
    from ...spaces import warnings
    from ..preflight import checks as plan

    found = [*warnings(spec), *plan.warnings(spec)]
    return sorted(found, key=lambda issue: (issue.line, issue.column))


def content(spec: Spec, file: str, samples: list[dict[str, Any]]) -> dict[str, Any]:
    """A space as understood, as plain data."""
    from dataclasses import asdict

    from ...spaces import describe
    from ..scheduling.plan import plan_of

    return {
        "file": file,
        "valid": True,
        "spec": spec.to_json(),
        "preset": spec.preset,
        "from_preset": spec.from_preset,
        "parameters": {
            name: {"values": describe(parameter), "kind": kind(parameter)}
            for name, parameter in spec.parameters.items()
        },
        "feasible_share": spec.space.feasible_share(),
        "samples": samples,
        "baseline": spec.space.baseline(),
        "plan": asdict(plan_of(spec)) | {"resource": spec.resource},
        "warnings": [issue._asdict() for issue in all_warnings(spec)],
    }


def show(spec: Spec, samples: list[dict[str, Any]]) -> None:
    """Print a space as understood."""
    from rich.text import Text

    from .console import PlainConsole

    console = PlainConsole()
    objective = spec.objective if isinstance(spec.objective, str) else " ".join(spec.objective.command)
    head = Text.assemble((spec.name, "bold"), f": {spec.goal} {spec.metric} of {objective}")
    if spec.preset:
        head.append(f", preset {', '.join(spec.preset)}")
    console.print(head, soft_wrap=True)
    _title(console, "parameters")
    console.print(_parameters(spec))
    if spec.constraints:
        _title(console, "constraints")
        _lines(console, spec.constraints)
        _lines(console, [f"leave {spec.space.feasible_share():.0%} of all configurations"])
    baseline = spec.space.baseline()
    _title(console, f"{'' if baseline is None else 'the baseline and '}{SAMPLES} random configurations")
    console.print(_configurations(spec, baseline, samples, console.width))
    if baseline is None:
        _lines(console, ["no baseline: the winner will have nothing to be compared with"])
    _title(console, "early stopping")
    _lines(console, stopping_lines(spec))
    _title(console, "budget")
    _lines(console, [budget_line(spec)])
    found = all_warnings(spec)
    if found:
        _title(console, "warnings")
        for issue in found:
            console.print(Text(str(issue), style="yellow"), soft_wrap=True)


def kind(parameter: Parameter) -> str:
    """What a parameter is, in a few words: searched, fixed or derived, and whether always and for all."""
    from ...spaces import Constant, Derived

    word = "searched"
    if isinstance(parameter, Constant):
        word = "fixed"
    elif isinstance(parameter, Derived):
        word = "derived"
    word = word if parameter.when is None else f"{word}, conditional"
    return word if parameter.passed else f"{word}, not passed"


def stopping_lines(spec: Spec) -> list[str]:
    """The plan of the early stopping: brackets, rungs, and what they come to."""
    from ...spaces.stopping import Rungs
    from ..scheduling.plan import plan_of

    stopping, plan = spec.early_stopping, plan_of(spec)
    if not isinstance(stopping, Rungs):
        none = "none: every trial runs to its end"
        return [none if stopping.method == "none" else f"{stopping.method}: no rungs to plan with"]
    lines = [
        f"{stopping.method}: 1 in {stopping.eta} trials goes on at each rung, to {stopping.max:,} at most"
    ]
    for number, bracket in enumerate(plan.brackets):
        rungs = f"rungs at {counted(bracket.rungs, spec.resource, ' ')}"
        rungs = rungs if bracket.rungs else "no rungs, every trial runs to its end"
        lines.append(f"bracket {number}: {bracket.share:4.0%} of trials, {rungs}")
    return lines + _outcome(plan, spec)


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


def _outcome(plan: Plan, spec: Spec) -> list[str]:
    if plan.complete is None or plan.saving is None:
        return []
    few = max(1, round(plan.complete))
    return [
        f"so of {plan.trials} trials about {few} run{'s' if few == 1 else ''} to the end, "
        f"saving about {plan.saving:.0%} of the {spec.resource}; more do as the sampler learns"
    ]


def _imported(spec: Spec) -> str:
    if not isinstance(spec.objective, str):
        return "the objective is a command: there is nothing to import"
    return f'the objective "{spec.objective}" loads'


def _refuse(error: SpaceError, as_json: bool) -> None:
    common.say(str(error))
    if as_json:
        common.print_json({"valid": False, "errors": [issue._asdict() for issue in error.issues]})


def _title(console: Console, text: str) -> None:
    console.print(f"\n{text}", style="dim")


def _lines(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(f"  {line}", soft_wrap=True)


def _parameters(spec: Spec) -> RenderableType:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from ...spaces import describe

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
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
        values = (common.brief(config[name]) if name in config else "-" for name in names)
        cells.append([label, *values])
    if PlainConsole(width=10_000).measure(_grid(cells)).maximum + 2 > width:
        cells = [list(column) for column in zip(*cells, strict=True)]
    return Padding(_grid(cells), (0, 0, 0, 2), expand=False)


def _grid(cells: list[list[str]]) -> Table:
    """A table whose first row and column are its heads."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for index, head in enumerate(cells[0]):
        table.add_column(Text(head), overflow="fold", justify="right" if index else "left")
    for row in cells[1:]:
        table.add_row(*map(Text, row))
    return table
