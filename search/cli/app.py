"""Declares the commands and turns errors into messages and exit codes.

Exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ...storage import StorageError, UrlError
from ...storage.passwords import without_passwords
from ..errors import SearchError, UsageError, why
from ..streams import harmless, let_rest_go, make_readable, never_refusing, open_closed
from . import control, doctor, generate, lr_find, objectives, plan, spaces, studies, train, transfer
from .hints import with_options
from .run import run

_FAILURES = (SearchError, StorageError, OSError)  # the last is the system's: a full disk, no descriptor left


class _Commands(TyperGroup):
    """Quotes words of a command that are wrong as all else is shown, which Typer does by itself."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        with _clean_errors():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with _clean_errors():
            return super().invoke(ctx)


@contextmanager
def _clean_errors() -> Iterator[None]:
    """Leave no password in the message of wrong use, and nothing that moves a terminal."""
    try:
        yield
    except Exception as error:  # Typer has a click of its own, and keeps it private
        if isinstance(message := getattr(error, "message", None), str):
            error.message = harmless(without_passwords(message, sys.argv[1:]))  # type: ignore[attr-defined]
        raise


app = typer.Typer(
    cls=_Commands,
    name="hpsearch",
    help="Find the best training configuration of a model: search a space, export the winner, train it.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="hpsearch run lora && hpsearch export lora -o best.yaml && hpsearch train best.yaml",
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"hpsearch {metadata.version('hpsearch')}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    if debug:
        os.environ["HPSEARCH_DEBUG"] = "1"
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise SearchError("this folder has been deleted; go to another one, and try again") from error


for command in (
    run,
    spaces.validate,
    spaces.schema,
    objectives.objectives,
    objectives.init,
    studies.list_studies,
    studies.show,
    studies.trials,
    studies.best,
    studies.export,
    studies.delete,
    control.stop,
    control.pause,
    control.resume,
    control.kill,
    control.retry,
    train.train,
    train.dashboard,
    transfer.copy,
    transfer.backup,
    doctor.doctor,
    generate.generate,
    lr_find.lr_find,
    plan.plan,
):
    app.command("list" if command is studies.list_studies else None)(command)


def main() -> None:
    """Run the command line. Typer itself ends wrong use with 2 and Ctrl-C with 130."""
    open_closed()
    _name_files_in_utf8()
    for stream in (sys.stdout, sys.stderr):
        never_refusing(stream)
    make_readable(os.environ)  # for what Typer shows
    try:
        try:
            app()
        finally:
            with suppress(BrokenPipeError):  # a reader that has left wants no more
                if not sys.stdout.closed:
                    sys.stdout.flush()
    except KeyboardInterrupt:  # before typer listens: it builds the commands first
        sys.exit(130)
    except Exception as error:
        code = exit_code(error)
        if code is None or os.environ.get("HPSEARCH_DEBUG"):
            raise
        print(harmless(without_passwords(_message(error), sys.argv[1:])), file=sys.stderr)
        sys.exit(code)
    finally:
        for stream in (sys.stdout, sys.stderr):
            let_rest_go(stream)


def _name_files_in_utf8() -> None:
    """Start again in Python's UTF-8 mode where it would name files in other letters, as in a Latin-1 locale.

    It could name no folder after a study in Japanese. What a terminal shows keeps its letters.
    """
    if sys.getfilesystemencoding() != "utf-8" and "utf8" not in sys._xoptions:
        os.environ.setdefault("PYTHONIOENCODING", sys.stdout.encoding)
        os.environ["PYTHONUTF8"] = "1"  # for workers too
        os.execv(sys.executable, sys.orig_argv)


def exit_code(error: Exception) -> int | None:
    """2 for wrong use, 1 for a failure that has a message; None for a bug of ours."""
    if isinstance(error, (UsageError, UrlError)):
        return 2
    if isinstance(error, _FAILURES):
        return 1
    from ...objectives import ObjectiveError
    from ...spaces import SpaceError

    return 2 if isinstance(error, (SpaceError, ObjectiveError)) else None


def _message(error: Exception) -> str:
    """An error that has a message, as it is shown."""
    if isinstance(error, OSError):
        return f"hpsearch: {why(error)}"
    if isinstance(error, _FAILURES):  # before others are loaded: there may be no descriptor left
        return f"hpsearch: {with_options(error)}"
    from ...spaces import SpaceError

    # An issue begins with its file and line, for editors to jump to.
    return str(error) if isinstance(error, SpaceError) else f"hpsearch: {with_options(error)}"
