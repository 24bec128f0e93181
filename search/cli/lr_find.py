"""`hpsearch lr-find`: find the range of learning rates worth searching."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SearchError
from ..operations import outputs
from . import options, printing

if TYPE_CHECKING:
    from ...objectives.range_test import Point
    from ..preflight.lr_range import LrRangeResult
    from .console import PlainConsole
HEIGHT = 14  # lines of the curve
WIDEST = 120  # characters of it


def lr_find(
    space: options.Space,
    low: Annotated[float, typer.Option("--min", help="Learning rate to start at.")] = 1e-6,
    high: Annotated[float, typer.Option("--max", help="Learning rate to end at.")] = 1.0,
    steps: Annotated[int, typer.Option(min=20, max=2000, help="Optimizer steps in between.")] = 100,
    html: Annotated[Path | None, typer.Option(help="Also draw the curve in this HTML file.")] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the range into the space file. Nothing else in it changes.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Find the learning rates worth searching, with a short training whose rate rises until it diverges.

    All other parameters have the values of the baseline, or else the middle of their range.
    The range runs from a tenth of the rate where the loss falls fastest to where the fall is nearly over.

    Example: hpsearch lr-find lora --html curve.html
    """
    from ..operations.plan import lr_find as test
    from ..preflight.lr_range import page

    outputs.refuse_stdout(html, "the page beside the table")
    if html is not None and not html.parent.is_dir():
        raise SearchError(f"cannot write {html}: there is no folder {html.parent}")
    if html is not None:
        outputs.check_output(html, force=True)  # a page that is drawn again
    with _progress(steps) as on_point:
        result = test(space=space, low=low, high=high, steps=steps, write=write, on_progress=on_point)
    if html is not None and result.test.points:
        outputs.write_output(html, page(result))
    if as_json:
        printing.print_json(result.to_json())
    else:
        _show(result, space, html, write)
    if result.range is None:
        raise SearchError(_no_fall(result, low, high))


@contextmanager
def _progress(steps: int) -> Iterator[Callable[[Point], None]]:
    """A bar on a terminal's stderr, while the test runs."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    from .console import PlainConsole

    console = PlainConsole(stderr=True)
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.redraws) as bar:
        task = bar.add_task("starting", total=steps)

        def on_point(point: Point) -> None:
            said = f"learning rate {point.learning_rate:.1e}  loss {point.smoothed:.3f}"
            bar.update(task, completed=point.step + 1, description=said)

        yield on_point


def _show(result: LrRangeResult, space: str, html: Path | None, write: bool) -> None:
    from rich.text import Text

    from ...spaces import log_range
    from .console import PlainConsole

    console = PlainConsole()
    fixed = "  ".join(f"{name} {printing.brief(value)}" for name, value in result.parameters.items())
    console.print(Text.assemble((result.space, "bold"), ": training loss by learning rate, at"))
    console.print(Text(fixed, style="dim"))
    if len(result.test.points) > 1:
        _curve(console, result)
    proposal = result.test.proposal
    if result.range is None or proposal is None:
        return
    for name, rate, why in (
        ("steepest", proposal.steepest, "where the loss falls fastest"),
        ("valley", proposal.valley, "two thirds into its longest fall"),
        ("minimum / 10", proposal.minimum_tenth, "a tenth of the rate at the lowest loss"),
    ):
        console.say(Text.assemble(f"{name:<14}{rate:<9.1e}", (why, "dim")))
    low, high = result.range
    console.say(Text.assemble(("range         ", "bold green"), f"{low:g} to {high:g}"))
    if result.widened_for:
        trials = " and the ".join(result.widened_for)
        printing.say(f"wider than the test says, to hold the learning rate of the {trials}")
    last = result.test.points[-1]
    if not result.test.diverged and proposal.high == last.learning_rate:
        printing.say(f"the loss still falls at {last.learning_rate:g}: a higher --max may find more")
    if html is not None:
        printing.tell(f"wrote {html}")
    line = f"learning_rate: {log_range(low, high)}"
    printing.tell(f"wrote {line} into {space}" if write else f"for the space file: {line}")


def _curve(console: PlainConsole, result: LrRangeResult) -> None:
    from ..preflight.lr_range import top_of
    from .chart import log_chart

    points, top = result.test.points, top_of(result)
    lines = log_chart(
        [point.learning_rate for point in points],
        [point.smoothed for point in points],
        top=top,
        width=min(console.width, WIDEST),
        height=HEIGHT,
        marked=result.range,
        label="range",
    )
    console.say("\n".join(["", *lines, ""]))
    if (highest := max(point.smoothed for point in points)) > top:
        said = f"it rises on to {highest:.3g}"
        said += f", and the test ended at {points[-1].learning_rate:.1e}" if result.test.diverged else ""
        console.print(said + "\n", style="dim")


def _no_fall(result: LrRangeResult, low: float, high: float) -> str:
    if len(result.test.points) < 3:
        return f"the loss was no finite number after {len(result.test.points)} steps; try a lower --min"
    return (
        f"the loss did not fall between {low:g} and {result.test.points[-1].learning_rate:.1e}, "
        "so there is no range to propose; try more --steps, or another --min and --max"
    )
