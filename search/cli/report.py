"""`hpsearch report`: what studies found, in one file to send."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..errors import SearchError, UsageError
from ..operations import outputs
from . import options, places, printing

Form = Literal["html", "md", "pdf"]
FORMS: dict[str, Form] = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md", ".pdf": "pdf"}


def report(
    study: Annotated[list[str], typer.Argument(help="Name of a study; of several, a comparison.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File to write.", show_default="report.html; md: standard output"
        ),
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            help="One file that opens offline (html), a text for a pull request (md), or paper (pdf).",
            show_default="as the file is named, else html",
        ),
    ] = None,
    force: options.Force = False,
    storage: options.Storage = None,
    runs: options.Runs = None,
) -> None:
    """Write a report on a study, to send: the winner, how sure that is, and how it was found.

    Example: hpsearch report lora -o report.html
    """
    from ..operations.report import report as write

    if form is None:
        form = "html" if output is None else FORMS.get(output.suffix.lower(), "html")
    if form == "pdf":
        outputs.refuse_stdout(output, "a PDF")
    elif (output := options.to_file(output)) is None and form == "html":
        output = Path("report.html")
    if form == "pdf" and output is None:
        output = Path("report.pdf")
    if output is not None:
        _check(output, form, force=force)
    written = places.place(storage, runs)(write, study=study, form="md" if form == "md" else "html")
    if output is None:
        printing.print_document(written.text)
        return
    if form == "pdf":
        from ..page.pdf import PrintError, print_pdf

        try:
            content: str | bytes = print_pdf(written.text)
        except PrintError as error:
            raise SearchError(str(error), code="no-browser") from error
    else:
        content = written.text
    outputs.write_output(output, content)
    size = output.stat().st_size
    printing.say(f"wrote {output}: {', '.join(written.studies)}, {size / 1000:,.0f} kB")


def _check(output: Path, form: Form, *, force: bool) -> None:
    """Refuse an output that would be written over, or could not be written, before the work."""
    if form == "pdf":
        if not force:
            outputs.check_free(output)
    else:
        outputs.check_output(output, force=force)
    if not output.absolute().parent.is_dir():
        raise UsageError(f"cannot write {output}: there is no folder {output.parent}")
