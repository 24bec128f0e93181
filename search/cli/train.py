"""`hpsearch train` and `hpsearch dashboard`: train the winner, watch a search."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..formatting import counted, duration, position
from ..operations import outputs
from . import commands, options, printing

if TYPE_CHECKING:
    from ..training.run import Summary
    from ..trials.document import Document
    from ..trials.reports import Report

# What a report's line shows of the built-in objectives' metrics, and how.
SHOWN = {
    "train_loss": "train {:.4f}",
    "perplexity": "ppl {:.2f}",
    "learning_rate": "lr {:.1e}",
    "tokens_per_second": "{:,.0f} tok/s",
}
HIDDEN = ("grad_norm", "host_memory_mb", "device_memory_mb")


def train(
    file: Annotated[
        str, typer.Argument(help="Configuration file, from hpsearch export or by hand, or - for stdin.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of the run.", show_default="trained/STUDY-TRIAL or FILE"),
    ] = None,
    max_samples: Annotated[int | None, typer.Option(help="Train for this many samples.")] = None,
    preset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Length and batches of a scenario (quick, standard, production, memory, time), or a size to "
            "pretrain (small, 0.5 million weights; on a GPU medium, 19 million, or large, 85 million). "
            "The file's learning rate and schedule stay. May be repeated.",
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change a parameter, or the seed. May be repeated."),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            help="Processes that train it together.", min=1, show_default="as many as its trial had"
        ),
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Write the whole model, not only the adapter.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Start over, replacing an earlier run.")] = False,
    report_to: options.ReportTo = None,
    as_json: options.Json = False,
) -> None:
    """Train one configuration to its end. Run it again to continue after an interruption.

    Example: hpsearch train best.yaml --max-samples 20000 --merge
    """
    from ..operations.train import train as run

    outputs.refuse_stdout(output, "the folder of a run")
    progress = Progress(to_stderr=as_json)
    try:
        summary = run(
            file=file,
            output=output,
            presets=preset or (),
            assignments=changes or (),
            changes=options.given(max_samples=max_samples),
            processes=processes,
            report_to=options.names(report_to),
            merge=merge,
            force=force,
            on_begin=progress.begin,
            on_report=progress.report,
            say=progress.say,
        )
    except KeyboardInterrupt:
        again = (word for word in sys.argv[1:] if word != "--force")  # which would start over
        progress.say(f"interrupted{progress.at()}; continue with: {commands.command(*again)}")
        raise typer.Exit(130) from None
    if as_json:
        printing.print_json(summary.to_json())
    else:
        _conclude(progress.document, summary)


def dashboard(
    port: Annotated[int, typer.Option(help="Port; 0 takes any free one.", min=0, max=65535)] = 8080,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    write: Annotated[
        bool, typer.Option("--write", help="Allow changes: notes, new studies, deletion.")
    ] = False,
    storage: options.Storage = None,
    runs: options.Runs = None,
) -> None:
    """Serve optuna-dashboard on this machine, read-only, with the files of trials as artifacts.

    Example: hpsearch dashboard --port 8081
    """
    from ..service.dashboard import serve

    workspace = options.workspace(storage, runs)
    serve(workspace, host=host, port=port, write=write, announce=printing.tell)


class Progress:
    """A line at the beginning and for each report."""

    document: Document  # once it has begun

    def __init__(self, *, to_stderr: bool) -> None:
        self.say = printing.say if to_stderr else printing.tell
        self._last: Report | None = None

    def begin(self, document: Document, folder: Path, resumed_at: int | None) -> None:
        self.document = document
        verb = "training" if resumed_at is None else f"continuing at {position(resumed_at, document.unit)}:"
        self.say(f"{verb} {_what(document)} in {folder}")

    def report(self, report: Report) -> None:
        self._last = report
        self.say(report_line(report, self.document))

    def at(self) -> str:
        """Where the run stands, to be read after a verb."""
        return "" if self._last is None else f" at {position(self._last.step, self.document.unit)}"


def report_line(report: Report, document: Document) -> str:
    """`  800/2,400  val_loss 1.8421  train 1.7930  ppl 6.31  lr 5.2e-04  9,120 tok/s`."""
    step = f"{report.step:,}"
    if document.length is not None:
        length = f"{document.length:,}"
        step = f"{step:>{len(length)}}/{length}"
    parts = [step, f"{document.metric} {report.value:.4f}"]
    for name, value in report.metrics.items():
        if name not in HIDDEN:
            parts.append(SHOWN.get(name, name + " {:.4g}").format(value))
    return "  ".join(parts)


def _what(document: Document) -> str:
    """`lora for 1,600 samples (trial 12 of "lora", with learning_rate changed)`."""
    name = document.objective if isinstance(document.objective, str) else shlex.join(document.objective)
    words = name if document.length is None else f"{name} for {counted(document.length, document.unit)}"
    about = [document.origin] if document.origin else []
    if document.overridden:
        about.append(f"with {', '.join(document.overridden)} changed")
    return f"{words} ({', '.join(about)})" if about else words


def _conclude(document: Document, summary: Summary) -> None:
    """The value, whether it is the trial's, and the files."""
    printing.tell(f"{summary.metric} {summary.value:.6g} in {duration(summary.seconds)}")
    if summary.reproduced:
        printing.tell(f"the same value as {document.origin}, bit for bit")
    elif summary.reproduced is False:
        if summary.drift:
            why = f"other versions ({', '.join(summary.drift)})"
        else:
            why = (
                "the file was edited, the objective changed or draws unseeded numbers, "
                "or it ran on another device"
            )
        printing.tell(f"{document.origin} had {summary.expected!r}, this is {summary.value!r}: {why}")
    for line in summary.advice:
        printing.tell(f"advice: {line}")
    printing.tell(f"in {summary.folder}:")
    for name in summary.files:
        printing.tell(f"  {name}")
