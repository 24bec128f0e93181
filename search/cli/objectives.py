"""`hpsearch objectives` and `hpsearch init`: what can be searched as it is, and a space to start from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import common

if TYPE_CHECKING:
    from ...objectives.catalog import Described


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(objectives)
    app.command()(init)


def objectives(
    name: Annotated[
        str | None, typer.Argument(help="One of them, to see its parameters.", show_default=False)
    ] = None,
    as_json: common.Json = False,
) -> None:
    """List the objectives that hpsearch brings, or the parameters of one with their defaults.

    Example: hpsearch objectives xgboost
    """
    from ...objectives.catalog import BUILT_IN, described

    found = [described(each) for each in ([name] if name is not None else BUILT_IN)]
    if as_json:
        common.print_json([each.to_json() for each in found])
    elif name is not None:
        _show_one(found[0])
    else:
        _show_all(found)


def init(
    objective: Annotated[
        str | None,
        typer.Argument(help="An objective that hpsearch brings: hpsearch objectives.", show_default=False),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Propose it from a script's options or a YAML or JSON file's numbers."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file.", show_default="OBJECTIVE.yaml, FROM_space.yaml"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write a commented space to be changed and searched: of an objective, or proposed from your own script.

    Example: hpsearch init --from train.py -o mine.yaml
    """
    from ...objectives.catalog import described
    from ...spaces import shipped_text
    from ..errors import UsageError
    from ..exchange.space_from import TO_FILL_IN, proposal

    if (objective is None) == (source is None):
        raise UsageError("name an objective (hpsearch objectives lists them), or a file with --from")
    if source is not None:
        text, path = proposal(source), output or Path(f"{source.stem}_space.yaml")
    else:
        assert objective is not None
        described(objective)  # refuses what there is not
        text, path = shipped_text(objective), output or Path(f"{objective}.yaml")
    if source is not None and path.exists() and path.samefile(source):
        raise UsageError(f"{path} is what the space is proposed from; another name with -o")
    common.check_output(path, force=force)
    common.write_file(path, text)
    missing = [line.removeprefix(TO_FILL_IN) for line in text.splitlines() if line.startswith(TO_FILL_IN)]
    common.tell(f"wrote {path}; " + "".join(f"to fill in: {names}; " for names in missing) + "next:")
    for words in ("validate", "plan", "run"):
        common.tell(f"  {common.command(words, str(path))}")


def _show_all(found: list[Described]) -> None:
    from rich.text import Text

    from .console import PlainConsole
    from .screens import grid

    rows = []
    for each in found:
        line = Text(each.summary)
        if each.missing:
            line.append(f"\n{each.missing}", "yellow")
        rows.append((each.name, line))
    console = PlainConsole()
    console.print(grid(rows))
    console.print(
        Text("your own: module:function, path/to/file.py:function or {command: [...]}", "dim"), soft_wrap=True
    )


def _show_one(found: Described) -> None:
    from rich.table import Table
    from rich.text import Text

    from .console import PlainConsole

    console = PlainConsole()
    console.print(Text.assemble((found.name, "bold"), f": {found.summary}"), soft_wrap=True)
    if found.missing:
        console.print(Text(found.missing, "yellow"), soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("parameter", no_wrap=True)
    table.add_column("default")
    table.add_column("allowed")
    table.add_column("", style="dim", ratio=1)
    for each in found.parameters:
        table.add_row(each.name, common.text(each.default), each.allowed, each.help)
    console.print(table)
