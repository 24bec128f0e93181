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
from . import (
    agent_docs,
    control,
    doctor,
    generate,
    lr_find,
    mcp,
    objectives,
    places,
    plan,
    queue,
    spaces,
    studies,
    token,
    train,
    transfer,
)
from .hints import with_options
from .login import login
from .report import report
from .run import run
from .serve import serve
from .top import top
from .work import work

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
            with suppress(AttributeError):  # a group of errors has a message that stays
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
    context: typer.Context,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="HPSEARCH_SERVER",
            help="Do it at this server (hpsearch serve); local is your own on this machine.",
        ),
    ] = None,
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
    context.call_on_close(places.close)
    source = context.get_parameter_source("server")
    typed = source is not None and source.name == "COMMANDLINE"
    places.name(server, typed=typed, command=context.invoked_subcommand)


NAMES: dict[Any, str] = {studies.list_studies: "list", control.try_config: "try"}  # words of Python
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
    report,
    studies.delete,
    control.stop,
    control.pause,
    control.resume,
    control.kill,
    control.retry,
    control.try_config,
    train.train,
    train.dashboard,
    queue.submit,
    queue.steer,
    queue.queue,
    serve,
    login,
    top,
    work,
    transfer.copy,
    transfer.backup,
    doctor.doctor,
    generate.generate,
    lr_find.lr_find,
    plan.plan,
    mcp.mcp,
    agent_docs.agent_docs,
):
    app.command(NAMES.get(command))(command)
app.add_typer(token.app)


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
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except SystemExit as end:
        if _is_silent_interrupt(end):
            print("interrupted", file=sys.stderr)
        raise
    except Exception as error:
        code = exit_code(error)
        if code is None or os.environ.get("HPSEARCH_DEBUG"):
            raise
        print(harmless(without_passwords(_message(error), sys.argv[1:])), file=sys.stderr)
        sys.exit(code)
    finally:
        for stream in (sys.stdout, sys.stderr):
            let_rest_go(stream)


def _is_silent_interrupt(end: SystemExit) -> bool:
    """Whether Typer turns a Ctrl-C into an exit: a command that catches it has said so itself."""
    return end.__context__ is not None and isinstance(end.__context__.__cause__, KeyboardInterrupt)


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
