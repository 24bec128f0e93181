"""What to tell a search from another terminal: stop, pause, resume, kill and retry.

The search takes a command from its study within a second. Where none runs, a trial is killed or put up for
another try in the study itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SearchError, UsageError
from . import common

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from ...storage.live import LiveStorage
    from ...storage.studies import Found

Study = Annotated[str, typer.Argument(help="The name of a study.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    for function in (stop, pause, resume, kill, retry):
        app.command()(function)


def stop(study: Study, storage: common.Storage = None, runs: common.Runs = None) -> None:
    """End the search of a study tidily: its running trials are put back, to be resumed.

    Example: hpsearch stop lora
    """
    found = _open(study, storage, runs)
    if _told(found, "stop"):
        when = "at their next report, in 30 s at the latest"
        common.say(f"asked the search to stop; running trials are put back {when}")
    else:
        common.say(_nobody(found))


def pause(study: Study, storage: common.Storage = None, runs: common.Runs = None) -> None:
    """Let a search wait: its running trials are put back, their processes leave, and the machine is free.

    Example: hpsearch pause lora
    """
    found = _open(study, storage, runs)
    if not _told(found, "pause"):
        raise SearchError(_nobody(found))
    options = common.finding(storage, runs)
    common.say(f"asked the search to pause; to go on: {common.command('resume', study, *options)}")


def resume(study: Study, storage: common.Storage = None, runs: common.Runs = None) -> None:
    """Let a paused search go on.

    Example: hpsearch resume lora
    """
    found = _open(study, storage, runs)
    if not _told(found, "resume"):
        raise SearchError(f"{_nobody(found)}; hpsearch run goes on with a study")
    common.say("asked the search to go on")


def kill(
    study: Study,
    trial: Annotated[int, typer.Argument(min=0, help="The number of a trial that runs, or was put back.")],
    storage: common.Storage = None,
    runs: common.Runs = None,
) -> None:
    """End one trial of a study at once, as failed; the search goes on.

    Example: hpsearch kill lora 12
    """
    found = _open(study, storage, runs)
    victim = _trial(found, trial)
    state = victim.state.name.lower()
    if victim.datetime_start is None:
        raise SearchError(f"trial {trial} has not begun")
    if state not in ("running", "waiting"):
        raise SearchError(f"trial {trial} has ended already: it is {state}")
    if _told(found, "kill", trial):
        if (state := _state_after(found, trial)) != "fail":
            raise SearchError(f"trial {trial} was not killed: it is {state}")
    else:
        _alone(found, lambda live: _fail(live, trial))
    again = common.command("retry", study, str(trial), *common.finding(storage, runs))
    common.say(f"killed trial {trial}; to try it again: {again}")


def retry(
    study: Study,
    trial: Annotated[int | None, typer.Argument(min=0, help="The number of a failed trial.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="All failed trials.")] = False,
    storage: common.Storage = None,
    runs: common.Runs = None,
) -> None:
    """Try failed trials again: same number and parameters, from their last checkpoint.

    Example: hpsearch retry lora --failed
    """
    if (trial is None) != failed:
        raise UsageError("name one trial, or all of them with --failed")
    found = _open(study, storage, runs)
    if trial is None:
        numbers = [t.number for t in found.study.get_trials(deepcopy=False) if t.state.name == "FAIL"]
        if not numbers:
            raise SearchError(f'no trial of "{study}" has failed')
    else:
        state = _trial(found, trial).state.name.lower()
        if state != "fail":
            raise SearchError(f"trial {trial} is {state}; only failed trials are tried again")
        numbers = [trial]
    what = f"trial{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
    if _told(found, "retry", trial):
        common.say(f"{what}: the search tries again")
        return
    _alone(found, lambda live: _revive(live, numbers))
    common.say(f"{what}: the next search of this study tries again (hpsearch run)")


def _open(study: str, storage: str | None, runs: Path | None) -> Found:
    # Not by way of `api`: half of the time that a command has would go into loading that.
    from ...storage.studies import find_study

    return find_study(study, storage=storage, runs=runs)


def _trial(found: Found, number: int) -> FrozenTrial:
    from ...storage.studies import trial_of

    return trial_of(found.study, number)


def _told(found: Found, what: str, trial: int | None = None) -> bool:
    """Tell the search that runs the study; False where none does. Raises `SearchError` without an answer."""
    from ...storage.database import sqlite_file
    from ...storage.live import Command
    from ...storage.locks import driver_running
    from ...storage.studies import command

    here = driver_running(found.url, found.runs, found.folder)
    if here is None and sqlite_file(found.url) is not None:
        return False
    if command(found.study, Command(what, trial, here)):
        return True
    if here is None:  # of a server's study, the search could have been another machine's
        return False
    raise SearchError(f"process {here} searches the study but does not answer; the command stays for it")


def _state_after(found: Found, number: int) -> str:
    """What has become of a trial that a search was told to end; it may have ended by itself."""
    from ...storage.studies import ANSWER_SECONDS

    deadline = time.monotonic() + ANSWER_SECONDS
    while not _trial(found, number).state.is_finished() and time.monotonic() < deadline:
        time.sleep(0.1)
    return _trial(found, number).state.name.lower()


def _nobody(found: Found) -> str:
    return f'no search of "{found.study.study_name}" is running'


def _alone(found: Found, action: Callable[[LiveStorage], None]) -> None:
    """Change a study that nobody searches."""
    from ...storage.attributes import readable_rows
    from ...storage.damage import readable
    from ...storage.database import open_storage
    from ...storage.live import LiveStorage
    from ...storage.locks import driver_lock

    name = found.study.study_name
    with driver_lock(found.url, found.runs, found.folder):
        with readable(), readable_rows(f'the study "{name}"'):
            live = LiveStorage(open_storage(found.url), name)
        action(live)
        live.flush()
        live.close()


def _fail(live: LiveStorage, number: int) -> None:
    from optuna.trial import TrialState

    from ..engine.commands import KILLED

    key = live.trial_id(number)
    for name in ("error", "reason"):
        live.set_trial_user_attr(key, name, KILLED)
    live.set_trial_state_values(key, TrialState.FAIL)


def _revive(live: LiveStorage, numbers: list[int]) -> None:
    from ..engine.commands import OF_A_FAILURE

    for number in numbers:
        live.revive(number, OF_A_FAILURE)
