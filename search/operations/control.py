"""Steer a search from outside: stop, pause, resume, kill, retry, and try a configuration.

The search takes a command from its study within a second. Where no search runs, a trial is killed or
requeued in the study itself. What somebody asks for here also changes what is wanted of a study that a
service has, which would undo it otherwise. `by` is who asks, where that is not this machine's user.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from ...spaces import Choice, Range, Spec
from ...storage import StorageError
from ...storage.attributes import readable_rows
from ...storage.commands import ANSWER_SECONDS, StudyCommand, is_there, send, withdraw
from ...storage.damage import readable
from ...storage.database import open_storage, open_tables
from ...storage.live import LiveStorage
from ...storage.locks import driver_lock, driver_running
from ...storage.studies import PHASE, SPEC, Phase, StoredStudy, find_study, trial_of
from ...storage.trial_attrs import ASKED, FIXED_PARAMS, search_trials
from ...storage.wanted import Desired, Wanted, change_wanted
from ...storage.workspace import Workspace
from ..engine.commands import FAILURE_ATTRS, asked_by, enqueue, killed, room_for
from ..errors import SearchError, UsageError
from ..results.study import space_of, stored_spec
from ..sampling.distributions import enqueued_labels
from ..values import Value


@dataclass(frozen=True)
class Steered(Value):
    """What came of a command."""

    study: str
    searching: bool  # whether a search took it; else the study itself was changed, where that was possible
    trials: tuple[int, ...] = ()  # that it was about; none where it was about the whole search
    wanted: str | None = None  # of a study that a service has: run, pause or stop
    over: bool = False  # whether the search has nothing left to do


@dataclass(frozen=True)
class Tried(Value):
    """A configuration that waits to be tried."""

    study: str
    trial: int
    params: dict[str, Any]  # that were given, as the database has them; the sampler proposes the others
    searching: bool  # whether a search has taken it; else the next one does
    made: bool  # False: the same request had enqueued it before
    budget: int | None = None  # the trials that the budget has now; None: it had room for this one

    @property
    def on_budget(self) -> str:
        """What it has done to the budget, to go on with in a sentence."""
        return (
            "" if self.budget is None else f"; the budget is {self.budget} trials now, one more than before"
        )


def stop(*, workspace: Workspace, study: str, by: str | None = None) -> Steered:
    """End the search of a study tidily: its running trials are requeued, to be resumed."""
    return _steered(workspace, study, "stop", "stop", by)


def pause(*, workspace: Workspace, study: str, by: str | None = None) -> Steered:
    """Let a search wait: its running trials are requeued, their processes end, and the machine is free.

    Raises `SearchError` where no search of the study runs, unless a service has the study.
    """
    return _steered(workspace, study, "pause", "pause", by)


def resume(*, workspace: Workspace, study: str, by: str | None = None) -> Steered:
    """Let a paused search continue.

    Raises `SearchError` where no search of the study runs, unless a service has the study.
    """
    return _steered(workspace, study, "resume", "run", by)


def kill(*, workspace: Workspace, study: str, trial: int, by: str | None = None) -> Steered:
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

    def end_it(live: LiveStorage) -> None:
        key, end = live.trial_id(trial), killed(by)
        if not live.get_trial(key).state.is_finished():
            live.set_trial_user_attr(key, "error", end.reason)
            end.note(live, key)
            live.set_trial_state_values(key, TrialState.FAIL)

    searching = obeyed(stored, StudyCommand("kill", trial, by=by), end_it)
    state = _end_of(stored, trial).state.name.lower()
    if state != "fail":
        raise SearchError(f"trial {trial} was not killed: it is {state}", code="trial-state")
    return Steered(study, searching, (trial,))


def retry(*, workspace: Workspace, study: str, trial: int | None = None, by: str | None = None) -> Steered:
    """Try a failed trial again, or all of them: same number and parameters, from the last checkpoint.

    A service that has the study starts its search again, where the search had failed by such trials.
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

    def requeue(live: LiveStorage) -> None:
        for number in failed:
            if live.trials[number].state == TrialState.FAIL:
                live.revive(number, FAILURE_ATTRS)
        live.set_study_user_attr(live.get_study_id_from_name(live.born), PHASE, Phase.SEARCHING)

    searching = obeyed(stored, StudyCommand("retry", trial, by=by), requeue)
    database, now = open_tables(workspace.url), time.time()
    wanted = change_wanted(database, study, lambda wanted: wanted and wanted.forgiven(now))
    return Steered(study, searching, failed, wanted=None if wanted is None else wanted.desired)


def try_config(
    *,
    workspace: Workspace,
    study: str,
    params: Mapping[str, Any],
    trial: int | None = None,
    request: str | None = None,
    by: str | None = None,
) -> Tried:
    """Enqueue a configuration: it trains before what the sampler proposes.

    It is one of the budget's trials; where all of these are there already, the budget gets one more. `params`
    are values of searched parameters; with `trial` its values fill in, else the sampler's do. The same
    `request` again is the same trial. Raises `UsageError` for values that do not fit the space.
    """
    stored = find_study(workspace, study)
    spec = space_of(workspace, study)
    try:
        before = None if trial is None else trial_of(stored.study, trial).params
        given = params if before is None else _still_called_for(spec, before, params)
        labels = enqueued_labels(spec, given)
    except ValueError as error:
        raise UsageError(str(error), code="trial-params") from error
    call = uuid.uuid4().hex
    asked = StudyCommand("try", by=by, params=labels, request=request or call, call=call)

    def add(live: LiveStorage) -> None:
        if asked_by(live.trials, asked) is None:
            enqueue(optuna.load_study(study_name=live.born, storage=live), asked)
            key = live.get_study_id_from_name(live.born)
            left = stored_spec(study, live.get_study_user_attrs(key)[SPEC])
            budget = room_for(len(search_trials(live.trials)), left.budget)
            live.set_study_user_attr(key, SPEC, left.model_copy(update={"budget": budget}).to_json())
            live.set_study_user_attr(key, PHASE, Phase.SEARCHING)

    there = asked_by(stored.study.get_trials(deepcopy=False), asked)
    made, searching = there is None, driver_running(workspace, stored.folder) is not None
    if there is None:
        searching = obeyed(stored, asked, add)
        there = asked_by(stored.study.get_trials(deepcopy=False), asked)
    if there is None:
        told = "the search took the configuration, and has not enqueued it yet; its trials will show it"
        raise SearchError(told, code="no-answer")
    if there.system_attrs[FIXED_PARAMS] != labels:
        told = f"this request made trial {there.number}, with other values: another trial is another request"
        raise UsageError(told, code="request-differs")
    made = made and there.system_attrs[ASKED].get("call", call) == call
    trials = space_of(workspace, study).budget.trials
    more = made and trials is not None and trials > (spec.budget.trials or trials)
    return Tried(study, there.number, labels, searching, made, trials if more else None)


def _still_called_for(spec: Spec, before: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a trial with others over them, but for those whose conditions these end."""
    values = {**before, **params}

    def suggest(name: str, parameter: Range | Choice) -> Any:
        if isinstance(parameter, Range):
            return values.get(name, parameter.min)
        label = values.get(name, parameter.labels()[0])
        return parameter.value_of(label) if label in parameter.labels() else label

    config, _ = spec.space.proposed(suggest)
    return {name: value for name, value in values.items() if name in params or name in config}


def _steered(workspace: Workspace, study: str, what: str, desired: Desired, by: str | None) -> Steered:
    """Change what is wanted of a study, where a service has it, and tell its search, where one runs."""
    stored = find_study(workspace, study)
    wanted = want(workspace, study, desired, by)
    searching = sent(stored, StudyCommand(what, by=by))
    if not searching and wanted is None and what != "stop":
        otherwise = "; hpsearch run continues the study" * (what == "resume")
        raise SearchError(f'no search of "{study}" is running{otherwise}', code="not-searching")
    over = not searching and stored.study.user_attrs.get(PHASE) == Phase.OVER
    return Steered(study, searching, wanted=None if wanted is None else wanted.desired, over=over)


def want(workspace: Workspace, study: str, desired: Desired, by: str | None = None) -> Wanted | None:
    """Change what is wanted of a study, where a service has it; what is wanted of it now."""
    now = time.time()
    return change_wanted(
        open_tables(workspace.url), study, lambda wanted: wanted and wanted.to(desired, by, now)
    )


def sent(stored: StoredStudy, asked: StudyCommand) -> bool:
    """Send a command to the search of a study; False where none runs, or it has ended without taking it.

    Raises `SearchError` where the search does not answer.
    """
    here = driver_running(stored.workspace, stored.folder)
    if here is None and stored.workspace.file is not None:
        return False
    key = send(stored.study, replace(asked, driver=here))
    deadline = time.monotonic() + ANSWER_SECONDS
    while is_there(stored.study, key):
        # Of a server's study, the search could be another machine's; such a command waits for nobody.
        late, now = time.monotonic() > deadline, driver_running(stored.workspace, stored.folder)
        if late if here is None else now != here:
            return not withdraw(open_tables(stored.workspace.url), key)
        if late:
            told = f"process {here} searches the study but does not answer; the command stays for it"
            raise SearchError(told, code="no-answer")
        time.sleep(0.1)
    return True


def _end_of(stored: StoredStudy, number: int) -> FrozenTrial:
    """A trial that a search was told to end, once it has ended; it may have ended by itself."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while not (trial := trial_of(stored.study, number)).state.is_finished() and time.monotonic() < deadline:
        time.sleep(0.1)
    return trial


def obeyed(stored: StoredStudy, asked: StudyCommand, change: Callable[[LiveStorage], None]) -> bool:
    """Send a command to the search of a study, or change the study where none runs; whether a search took it.

    A search that begins meanwhile is told, and of one that ends the study is changed. Raises `SearchError`
    where the search does not answer, and `StorageError` where another process keeps the study.
    """
    deadline = time.monotonic() + ANSWER_SECONDS
    while not sent(stored, asked):
        try:
            with held(stored) as live:
                change(live)
            return False
        except StorageError as error:
            if error.code != "study-busy" or time.monotonic() > deadline:
                raise
        time.sleep(0.1)
    return True


@contextmanager
def held(stored: StoredStudy) -> Iterator[LiveStorage]:
    """A study without a search, to be changed."""
    name = stored.study.study_name
    with driver_lock(stored.workspace, stored.folder):
        with readable(), readable_rows(f'the study "{name}"'):
            live = LiveStorage(open_storage(stored.workspace.url), name)
        yield live
        live.flush()
        live.close()
