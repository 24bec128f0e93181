"""Steer a search from outside: stop, pause, resume, kill and retry.

The search takes a command from its study within a second. Where no search runs, a trial is killed or
requeued in the study itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from optuna.trial import FrozenTrial, TrialState

from ...storage.attributes import readable_rows
from ...storage.damage import readable
from ...storage.database import open_storage
from ...storage.live import LiveStorage, StudyCommand
from ...storage.locks import driver_lock, driver_running
from ...storage.studies import ANSWER_SECONDS, StoredStudy, command, find_study, trial_of
from ...storage.workspace import Workspace
from ..engine.commands import FAILURE_ATTRS, KILLED
from ..errors import SearchError
from ..values import Value


@dataclass(frozen=True)
class Steered(Value):
    """What came of a command."""

    study: str
    searching: bool  # whether a search took it; else the study itself was changed, where that was possible
    trials: tuple[int, ...] = ()  # that it was about; none where it was about the whole search


def stop(*, workspace: Workspace, study: str) -> Steered:
    """End the search of a study tidily: its running trials are requeued, to be resumed."""
    return Steered(study, _sent(find_study(workspace, study), "stop"))


def pause(*, workspace: Workspace, study: str) -> Steered:
    """Let a search wait: its running trials are requeued, their processes end, and the machine is free.

    Raises `SearchError` where no search of the study runs.
    """
    return _sent_to_search(workspace, study, "pause")


def resume(*, workspace: Workspace, study: str) -> Steered:
    """Let a paused search continue. Raises `SearchError` where no search of the study runs."""
    return _sent_to_search(workspace, study, "resume")


def kill(*, workspace: Workspace, study: str, trial: int) -> Steered:
    """End one trial at once, as failed; the search continues.

    Raises `SearchError` where the trial has not begun, has ended, or ends otherwise meanwhile.
    """
    stored = find_study(workspace, study)
    victim = trial_of(stored.study, trial)
    if victim.datetime_start is None:
        raise SearchError(f"trial {trial} has not begun", code="trial-state")
    if victim.state not in (TrialState.RUNNING, TrialState.WAITING):
        state = victim.state.name.lower()
        raise SearchError(f"trial {trial} has ended already: it is {state}", code="trial-state")
    searching = _sent(stored, "kill", trial)
    if searching:
        state = _end_of(stored, trial).state.name.lower()
        if state != "fail":
            raise SearchError(f"trial {trial} was not killed: it is {state}", code="trial-state")
    else:
        with _held(stored) as live:
            key = live.trial_id(trial)
            live.set_trial_user_attr(key, "error", KILLED.reason)
            KILLED.note(live, key)
            live.set_trial_state_values(key, TrialState.FAIL)
    return Steered(study, searching, (trial,))


def retry(*, workspace: Workspace, study: str, trial: int | None = None) -> Steered:
    """Try a failed trial again, or all of them: same number and parameters, from the last checkpoint.

    Raises `SearchError` where the trial has not failed, or none has.
    """
    stored = find_study(workspace, study)
    if trial is None:
        trials = stored.study.get_trials(deepcopy=False)
        failed = tuple(each.number for each in trials if each.state == TrialState.FAIL)
        if not failed:
            raise SearchError(f'no trial of "{study}" has failed', code="trial-state")
    else:
        state = trial_of(stored.study, trial).state
        if state != TrialState.FAIL:
            told = f"trial {trial} is {state.name.lower()}; only failed trials are tried again"
            raise SearchError(told, code="trial-state")
        failed = (trial,)
    searching = _sent(stored, "retry", trial)
    if not searching:
        with _held(stored) as live:
            for number in failed:
                live.revive(number, FAILURE_ATTRS)
    return Steered(study, searching, failed)


def _sent_to_search(workspace: Workspace, study: str, what: str) -> Steered:
    if not _sent(find_study(workspace, study), what):
        otherwise = "; hpsearch run continues the study" * (what == "resume")
        raise SearchError(f'no search of "{study}" is running{otherwise}', code="not-searching")
    return Steered(study, searching=True)


def _sent(stored: StoredStudy, what: str, trial: int | None = None) -> bool:
    """Send a command to the search of a study; False where none runs.

    Raises `SearchError` where the search does not answer.
    """
    here = driver_running(stored.workspace, stored.folder)
    if here is None and stored.workspace.file is not None:
        return False
    if command(stored.study, StudyCommand(what, trial, here)):
        return True
    if here is None:  # of a server's study, the search could have been another machine's
        return False
    raise SearchError(
        f"process {here} searches the study but does not answer; the command stays for it", code="no-answer"
    )


def _end_of(stored: StoredStudy, number: int) -> FrozenTrial:
    """A trial that a search was told to end, once it has ended; it may have ended by itself."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while not (trial := trial_of(stored.study, number)).state.is_finished() and time.monotonic() < deadline:
        time.sleep(0.1)
    return trial


@contextmanager
def _held(stored: StoredStudy) -> Iterator[LiveStorage]:
    """A study without a search, to be changed."""
    name = stored.study.study_name
    with driver_lock(stored.workspace, stored.folder):
        with readable(), readable_rows(f'the study "{name}"'):
            live = LiveStorage(open_storage(stored.workspace.url), name)
        yield live
        live.flush()
        live.close()
