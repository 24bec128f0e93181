"""The driver: owns one study, hands out its trials, records what they report, decides when they end.

A backend asks (`ask`), delivers (`report`, `complete`, `fail`, `suspend`) and obeys the answers. What an
answer rests on is in the database before it is given. The driver runs in one thread of one process and is
the study's only writer.
"""

from __future__ import annotations

import math
import shlex
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, TrialState

from ..objectives.guides import Ending
from ..spaces import Derived, Spec, nested
from ..storage import DatabaseUnavailable, StorageError
from ..storage.connection import patiently
from ..storage.files import (
    CONFIG,
    METRICS,
    artifact_attrs,
    drop_checkpoint,
    drop_seal,
    has_checkpoint,
    trial_folder,
)
from ..storage.live import Command, LiveStorage
from ..storage.states import AT_RUNG, AUDITED, CONFIRMS, CONFIRMS_SEED, at_rung, confirms
from ..storage.studies import ELAPSED, MEMORY, PAUSED, PROVENANCE, folder_in
from .advice import when_overfitted, with_advice
from .algorithms import GridSampler, derived_seed, labelled, sampler_of, suggest
from .auditing import Draw, mark
from .confirming import Wish, attrs_of, searched
from .errors import SearchError
from .explain import pruning_reason
from .export import document, render, write
from .pace import COST, Attempt, Pace
from .promoting import EVENTS, Promoting
from .scheduling import expected_cost
from .timing import Timing
from .trial import recorded

if TYPE_CHECKING:
    from .memory import Memory

ELAPSED_SECONDS = 5.0  # of a search that a killed driver may forget
STOP_SECONDS = 30.0  # that running trials have for one more report when the search is asked to stop
OWN_ATTRS = frozenset(
    {"baseline", "error", "reason", "retries", "traceback", AT_RUNG, AUDITED, EVENTS, CONFIRMS, CONFIRMS_SEED}
)  # no metric or parameter takes one
KILLED = "killed by hpsearch kill"
OF_A_FAILURE = ("error", "reason", "retries", "traceback")  # attributes that a new try begins without
ENDED_AT_ONCE = 8  # paused trials, between two looks at the workers
SAME_FAILURES = 3  # identical failures from the start on that end a search
CLOCK_SECONDS = 2.0  # that the machine's clock may be set back without a word

FailureKind = Literal["error", "memory", "lost", "timeout", "disk", "checkpoint"]


@dataclass(frozen=True)
class Assignment:
    """What a worker needs to run a trial."""

    number: int
    params: dict[str, Any]  # nested where names are dotted
    seed: int
    folder: Path
    reported: int  # the last step that the study has of it


@dataclass(frozen=True)
class Failure:
    """Why a trial's attempt ended without a value."""

    kind: FailureKind
    message: str  # "ValueError: no such file", "the worker was killed (SIGKILL)"
    traceback: str = ""  # its tail


@dataclass
class Running:
    """A trial in the hands of a worker."""

    trial: optuna.Trial
    config: dict[str, Any]
    reported: int = 0  # the last step in the study; what an attempt reports again up to here is known
    attempt: Attempt = field(default_factory=Attempt)
    attempts: int = 1
    metrics: dict[str, float] = field(default_factory=dict)
    started: float = field(default_factory=lambda: time.monotonic())

    @property
    def seconds(self) -> float:
        """Since it was asked."""
        return time.monotonic() - self.started


class _Unusable(Exception):
    """A trial that another program put up has parameters that the space has no place for."""

    def __init__(self, trial: optuna.Trial, what: str) -> None:
        super().__init__(what)
        self.trial = trial


class Watcher(Protocol):
    """Is told what happens; shows it to somebody."""

    def trial_ended(self, driver: Driver, trial: FrozenTrial) -> None: ...

    def tick(self, driver: Driver) -> None: ...

    def say(self, message: str) -> None: ...


class Driver:
    """One search over one study."""

    def __init__(
        self,
        spec: Spec,
        storage: LiveStorage,
        *,
        runs: Path,
        watcher: Watcher,
        pruner: BasePruner,
        slots: int = 1,
        begun: float | None = None,
        memory: Memory | None = None,
    ) -> None:
        """`slots`: trials at a time, as far as that is known. `begun`: since when the time of the search
        counts, by the monotonic clock; by default since now.
        """
        self.spec = spec
        self.runs = runs
        self._storage = storage
        self._watcher = watcher
        self._memory = memory
        self._sampler = sampler_of(spec)
        self.study = optuna.load_study(
            study_name=spec.name, storage=storage, sampler=self._sampler, pruner=pruner
        )
        self.folder_name = folder_in(self.study.user_attrs, spec.name)  # under `runs`
        self.running: dict[int, Running] = {}
        self._promoting = Promoting.of(spec, storage)
        self._audit = Draw.of(spec)
        self._pace = Pace(spec.early_stopping.max, self.trials, slots)
        self._timing = Timing(spec, self._pace)
        self._consumed = sum(t.last_step or 0 for t in self.trials)  # counted on: every report asks for it
        self._begun = time.monotonic() if begun is None else begun
        self._elapsed_before = float(self.study.user_attrs.get(ELAPSED, 0.0))
        self._stop: str | None = None  # why no more trials are asked
        self._confirms: Wish | None = None  # who is confirmed, once that has begun
        self._paused_since: float | None = None
        self._suspending_since: float | None = None  # running trials are put back at their next report
        self._dropped: list[int] = []  # trials that ended while their workers do not know
        self._clock = _wall_ahead()
        self.fatal: str | None = None  # why the search failed
        self.study.set_user_attr(PAUSED, False)
        if memory is not None and memory.line is not None:
            self.study.set_user_attr(MEMORY, memory.to_json())
        self._put_back()
        self._enqueue_baseline()
        self._check_ends()
        self._flush()

    # What there is to know

    @property
    def trials(self) -> list[FrozenTrial]:
        """All trials of the study, in order of number; not to be changed."""
        return self.study.get_trials(deepcopy=False)

    @property
    def finished(self) -> int:
        """How many trials of the search have ended."""
        return sum(t.state.is_finished() for t in searched(self.trials))

    @property
    def elapsed(self) -> float:
        """Seconds searched so far, over all resumes; pauses do not count."""
        return self._elapsed_before + (self._paused_since or time.monotonic()) - self._begun

    @property
    def consumed(self) -> int:
        """Resource spent so far: the last steps of all trials, summed."""
        return self._consumed

    @property
    def stop_reason(self) -> str | None:
        """Why no more trials are asked; None while they are."""
        return self._stop

    @property
    def stopped(self) -> bool:
        """Whether somebody stopped the search, to go on with it later."""
        return self._suspending_since is not None and not self.paused

    @property
    def paused(self) -> bool:
        """Whether the search waits to be resumed: no trial is asked, and none runs for long."""
        return self._paused_since is not None

    @property
    def overdue(self) -> bool:
        """Whether trials that were to be put back have had their time to report."""
        return self.stopped and self._put_back_late()

    @property
    def best(self) -> FrozenTrial | None:
        """The best complete trial of the search."""
        complete = [t for t in searched(self.trials) if t.state == TrialState.COMPLETE]
        return min(complete, key=lambda t: self._loss(t.value), default=None)

    # What a backend does

    def ask(self) -> Assignment | None:
        """The next trial to run; None when there is none now. None with nothing running means the end."""
        if self._memory is not None and (told := self._memory.learn(self.trials)) is not None:
            self.say(told)
        while not self.paused and not self.stopped:
            left = self._left()
            waiting = self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
            waiting = [trial for trial in waiting if self._goes_on(trial, left)]
            promoted = self._promoted(left)
            all_asked = self._all_asked()
            begins = self._timing.begins(None, 0) <= left and not all_asked
            if not waiting and promoted is None and not begins:
                if any(CONFIRMS not in each.trial.user_attrs for each in self.running.values()):
                    return None
                if self._stop is None and not all_asked:
                    self.stop(self._timing.spent(self._wish()))
                if not (self._audit_paused() or self._confirm()):
                    return None
                continue
            if waiting and confirms(waiting[0]) is not None and self._comes_late(waiting[0]):
                self._end_unheard(waiting[0].number)
                continue
            begun = waiting and waiting[0].datetime_start is not None  # the baseline waits without
            try:
                if begun:
                    running = self._take_up(waiting[0])
                elif promoted is not None and not has_checkpoint(self._folder(promoted)):
                    self._end_paused(promoted, "paused, and its checkpoint is gone")
                    continue
                elif promoted is not None:
                    running = self._take_up(self.trials[promoted], promoted=True)
                else:
                    running = self._begin()
            except _Unusable as error:
                self._fail_unusable(error)
                continue
            self.running[running.trial.number] = running
            self._pace.slots = max(self._pace.slots, len(self.running))
            self._flush()
            return self._assignment(running)
        return None

    def report(
        self,
        number: int,
        value: float,
        step: int,
        metrics: Mapping[str, float],
        seconds: float | None = None,
    ) -> str | None:
        """Record a report. Returns None to go on, or why the trial ends here; it has then ended.

        `seconds`: since the objective was called, by the worker's clock; else since the trial was asked.
        """
        running = self.running[number]
        running.metrics.update(metrics)
        if not math.isfinite(value):
            what = f"diverged: {self.spec.metric} was {value} at {step} {self.spec.resource}"
            return self._end_unusable(running, "diverged", what)
        if step <= running.reported:
            return None  # an attempt that started again; the study has this report
        running.trial.report(value, step)
        self._consumed += step - running.reported
        running.reported = step
        running.attempt.report(step, running.seconds if seconds is None else seconds)
        self._learn(running)
        pauses = self._promoting is not None and self._promoting.pauses(self.trials[number])
        reason = self._ending(running, step)
        if reason is not None:
            self._end(running, TrialState.PRUNED, reason=reason)
            return reason
        if pauses and (told := self._pause_trial(running)) is not None:
            return told
        if self._suspending_since is not None:
            self.suspend(number)
            return "the search is paused" if self.paused else "the search is stopping"
        self._flush()
        return None

    def complete(self, number: int, value: float, seconds: float | None = None) -> None:
        """The objective returned `value`, so many seconds after it was called."""
        running = self.running[number]
        if not math.isfinite(value):
            self._end_unusable(running, "diverged", f"diverged: the objective returned {value}")
            return
        running.attempt.ended = running.seconds if seconds is None else seconds
        self._learn(running, running.reported)
        told = when_overfitted(self.spec, running.config, self._folder(number), self.best)
        self._end(running, TrialState.COMPLETE, value=value, reason=told)
        self._check_ends()

    def fail(self, number: int, failure: Failure) -> None:
        """An attempt ended without a value: run out of memory, or to be tried again, or failed."""
        running = self.running[number]
        asks_on = self._stop is None or self.stopped  # now, or when it is resumed
        if failure.kind == "disk":
            self.suspend(number)
            self.fatal = (
                f"trial {number} cannot write: {failure.message}; make room, and the same command goes on"
            )
            self.request_stop(self.fatal)
        elif failure.kind == "checkpoint":  # a kill in the middle of writing leaves one such
            self.say(f"trial {number} cannot go on from its checkpoint ({failure.message}); it starts over")
            drop_checkpoint(self._folder(number))
            self.suspend(number)
        elif failure.kind == "memory":
            self._end_unusable(running, "out_of_memory", f"out of memory: {failure.message}")
        elif running.attempts <= self.spec.execution.retries and asks_on:
            running.trial.set_user_attr("retries", running.attempts)
            running.trial.set_user_attr("error", failure.message)
            self.suspend(number)
        else:
            if failure.traceback:
                running.trial.set_user_attr("traceback", failure.traceback)
            running.trial.set_user_attr("error", failure.message)
            self._end(running, TrialState.FAIL, reason=failure.message)
            self._check_same_failures()

    def finish(self) -> None:
        """End what waits, where the search is over."""
        if not (self.stopped or self.paused or self.fatal):
            self._end_all_paused()

    def _end_all_paused(self, most: int | None = None) -> None:
        """End those that wait at rungs, or so many of them."""
        self._end_waiting([trial.number for trial in self.trials if at_rung(trial)][:most])

    def suspend(self, number: int) -> None:
        """Put a trial back: it waits, with its reports and checkpoint, for this or a later search."""
        self._keep_cost(self.running.pop(number))
        self._storage.suspend(number)
        self._flush()

    def tick(self) -> None:
        """Look at the clock and at what other processes ask for; to be called about once a second."""
        self._check_ends()
        self._end_late()
        if self._confirms is not None:  # meanwhile: their end is of no use to anybody who trains
            self._end_all_paused(ENDED_AT_ONCE)
        self._check_clock()
        if self.elapsed - self.study.user_attrs.get(ELAPSED, 0.0) >= ELAPSED_SECONDS:
            self.study.set_user_attr(ELAPSED, round(self.elapsed, 1))
        self._flush()
        self._look_around()
        if self.paused and self._put_back_late():
            for number in list(self.running):
                self._dropped.append(number)
                self.suspend(number)
        self._watcher.tick(self)

    def take_dropped(self) -> list[int]:
        """Trials whose workers are to be killed: they have ended here, and their workers do not know."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def say(self, message: str) -> None:
        """Tell whoever watches the search."""
        self._watcher.say(message)

    def stop(self, reason: str) -> None:
        """Ask no more trials; running ones go on to their next report and end there."""
        self._stop = self._stop or reason

    def request_stop(self, reason: str) -> None:
        """Ask no more trials and put running ones back at their next report, to be resumed later."""
        self._end_pause()
        self.stop(reason)
        self._suspending_since = self._suspending_since or time.monotonic()

    def pause(self) -> None:
        """Ask no more trials and put running ones back at their next report, until `resume`."""
        if self._stop is None and not self.paused:
            self._paused_since = self._suspending_since = time.monotonic()
            self.study.set_user_attr(PAUSED, True)
            self.say(f"paused; to go on: hpsearch resume {shlex.quote(self._storage.name)}")

    def resume(self) -> None:
        """Go on after a pause."""
        if self.paused:
            self._end_pause()
            self.study.set_user_attr(PAUSED, False)
            self.say("resumed")

    def _end_pause(self) -> None:
        if self._paused_since is not None:
            self._begun += time.monotonic() - self._paused_since
            self._paused_since = self._suspending_since = None

    def kill(self, number: int, reason: str) -> None:
        """End a trial that runs or was put back, as failed."""
        trial = self.trials[number] if number < len(self.trials) else None
        if number in self.running:
            self._dropped.append(number)
            running = self.running[number]
        elif trial is not None and (at_rung(trial) or _was_put_back(trial)):
            running = self.running[number] = self._take_up(trial)
        else:
            self.say(f"trial {number} does not run, so it cannot be killed")
            return
        running.trial.set_user_attr("error", reason)
        self._end(running, TrialState.FAIL, reason=reason)

    def retry(self, number: int | None) -> None:
        """Let a failed trial wait to be tried again from its checkpoint; without a number all of them."""
        failed = [t.number for t in self.trials if t.state == TrialState.FAIL]
        for each in failed if number is None else [number]:
            if each not in failed:
                self.say(f"trial {each} has not failed, so it is not tried again")
                continue
            self._storage.revive(each, OF_A_FAILURE)
            self.say(f"trial {each} is tried again")
        self._flush()

    def close(self, *, hurried: bool = False) -> None:
        """Put back what is still running and write what is still unwritten.

        A `hurried` end does not wait for a database that cannot be written now.
        """
        self.running.clear()
        self._put_back()
        self.study.set_user_attr(ELAPSED, round(self.elapsed, 1))
        self.study.set_user_attr(PAUSED, False)
        try:
            if not hurried:
                self._flush()
                return
            self._storage.flush()
        except DatabaseUnavailable as error:
            self.say(f"left without writing ({error}); the same command goes on from the last checkpoints")
        finally:
            self._storage.close()

    # What happens around the search

    def _look_around(self) -> None:
        """See what other processes ask, and what they did to the study."""
        try:
            commands, ended = self._storage.take_commands(), self._storage.ended_elsewhere()
        except DatabaseUnavailable as error:
            self.say(f"the database does not answer ({error}); going on")
            return
        for command in commands:
            self._obey(command)
        for trial in ended:
            self._accept(trial)
        for news in self._storage.take_news():
            self.say(news)

    def _obey(self, command: Command) -> None:
        match command:
            case Command("stop"):
                self.request_stop("asked by hpsearch stop")
            case Command("pause"):
                self.pause()
            case Command("resume"):
                self.resume()
            case Command("kill", int(number)):
                self.kill(number, KILLED)
            case Command("retry", number):
                self.retry(number)
            case _:
                self.say(f"another process asks for something unknown: {command.do}")

    def _accept(self, trial: FrozenTrial) -> None:
        """Another program, such as the dashboard, ended a trial: so be it."""
        state = trial.state
        self.say(f"trial {trial.number} was ended as {state.name.lower()} by another program")
        if trial.number in self.running:
            self._dropped.append(trial.number)
        running = self.running.get(trial.number) or self._take_up(self.trials[trial.number])
        self.running[trial.number] = running
        self._end(running, state, value=trial.value, reason="ended by another program")

    def _check_clock(self) -> None:
        """Say when the machine's clock was set back; the search itself counts by one that never is."""
        ahead = _wall_ahead()
        if ahead < self._clock - CLOCK_SECONDS:
            self.say(
                f"the clock was set back by {self._clock - ahead:.0f} s; times in the study are as it shows"
            )
        self._clock = ahead

    def _put_back_late(self) -> bool:
        since = self._suspending_since
        return since is not None and time.monotonic() - since > STOP_SECONDS

    # Beginning a trial

    def _put_back(self) -> None:
        """Let what runs in the study, while no worker of ours runs it, wait to be taken up again."""
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if not at_rung(trial):
                self._storage.suspend(trial.number)

    def _enqueue_baseline(self) -> None:
        baseline = self.spec.space.baseline()
        if baseline is not None and not self.trials:
            labels = labelled(self.spec.space, self.spec.parameters, baseline)
            self.study.enqueue_trial(labels, user_attrs={"baseline": True})

    def _begin(self) -> Running:
        return self._configured(self.study.ask())

    def _take_up(self, waiting: FrozenTrial, *, promoted: bool = False) -> Running:
        """Go on with a trial of an earlier search or attempt, in place: same number, parameters, reports."""
        if self._promoting is not None and at_rung(waiting):
            self._promoting.leave(waiting, promoted=promoted)
        self._storage.set_trial_state_values(waiting._trial_id, TrialState.RUNNING)
        return self._gone_on(self._configured(optuna.Trial(self.study, waiting._trial_id)), waiting)

    def _gone_on(self, running: Running, waiting: FrozenTrial) -> Running:
        """With what earlier attempts came to."""
        running.reported = waiting.last_step or 0
        running.attempt.begun_at = running.reported if has_checkpoint(self._folder(waiting.number)) else 0
        running.attempts = 1 + int(waiting.user_attrs.get("retries", 0))
        folder = self._folder(waiting.number)
        for report in recorded(folder / METRICS):
            if report.step <= running.reported:
                running.metrics.update(report.metrics)
        return running

    def _configured(self, trial: optuna.Trial) -> Running:
        """The trial with its whole configuration, as far as it has none yet, in the study and its folder."""
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always", UserWarning)
                config = self.spec.space.resolve(lambda name, parameter: suggest(trial, name, parameter))
        except ValueError as error:  # another program put it up, with a value that is none
            raise _Unusable(trial, str(error)) from error
        except SearchError as error:  # nothing satisfies the constraints
            trial.set_user_attr("reason", str(error))
            self.study.tell(trial, state=TrialState.FAIL)
            raise
        for warning in warned:
            self.say(f"trial {trial.number}: {warning.message}")
        for name, value in config.items():
            if isinstance(self.spec.parameters[name], Derived) and name not in OWN_ATTRS:
                trial.set_user_attr(name, value)
        number = trial.number
        provenance = self.study.user_attrs.get(PROVENANCE, {})
        content = document(self.spec, self.trials[number], provenance)
        path = self._folder(number) / CONFIG
        try:
            write(path, render(content, "json"))
        except OSError as error:
            raise SearchError(f"cannot write {path}: {error.strerror}; the same command goes on") from error
        return Running(trial, config)

    def _fail_unusable(self, error: _Unusable) -> None:
        running = self.running[error.trial.number] = Running(error.trial, {})
        running.trial.set_user_attr("error", str(error))
        self._end(running, TrialState.FAIL, reason=f"cannot begin: {error}")

    def _assignment(self, running: Running) -> Assignment:
        number = running.trial.number
        confirming = running.trial.user_attrs.get(CONFIRMS_SEED)  # the same for all that are compared
        what = ("trial", number) if confirming is None else ("confirm", confirming)
        return Assignment(
            number=number,
            params=nested(running.config),
            seed=derived_seed(self.spec.search.seed, *what),
            folder=self._folder(number),
            reported=running.reported,
        )

    def _all_asked(self) -> bool:
        budget = self.spec.budget
        if budget.trials is not None and len(searched(self.trials)) >= budget.trials:
            return True
        return isinstance(self._sampler, GridSampler) and self._sampler.next(self.study) is None

    def _folder(self, number: int) -> Path:
        return trial_folder(self.runs, self.folder_name, number)

    # Pausing a trial

    def _pause_trial(self, running: Running) -> str | None:
        """Let a trial wait at its rung, with its checkpoint, and end those that wait in vain.

        None where it goes on.
        """
        assert self._promoting is not None
        number = running.trial.number
        if not has_checkpoint(self._folder(number)):
            reason = self._promoting.why_not(number) + "; it left no checkpoint to go on from"
            self._promoting.leave(self.trials[number])
            if self._audits(number, reason):
                return None
            self._end(running, TrialState.PRUNED, reason=reason)
            return reason
        told = self._promoting.pause(self.trials[number])
        self._keep_cost(self.running.pop(number))
        self._flush()
        self._end_waiting([each for each in self._promoting.hopeless() if each not in self._audit])
        return told

    def _end_paused(self, number: int, reason: str) -> None:
        """End a trial that waits at a rung."""
        self._end(self._leaving(number), TrialState.PRUNED, reason=reason)

    def _end_waiting(self, numbers: Sequence[int]) -> None:
        """End trials that wait at a rung in vain, in one transaction."""
        ended = []
        for number in numbers:
            assert self._promoting is not None
            reason = self._promoting.why_not(number)
            ended.append(self._told(self._leaving(number), TrialState.PRUNED, None, reason))
        if ended:
            self._flush()
        for trial in ended:
            self._after_end(trial)

    def _leaving(self, number: int) -> Running:
        """A trial that waits at a rung, and is to end; none of what may be hundreds is configured again."""
        assert self._promoting is not None
        trial = self.trials[number]
        self._promoting.leave(trial)
        running = Running(optuna.Trial(self.study, trial._trial_id), dict.fromkeys(self.spec.parameters))
        self.running[number] = self._gone_on(running, trial)
        return running

    # Letting trials go on that were to stop

    def _audits(self, number: int, reason: str) -> bool:
        """Whether a trial that is to stop for a reason is in the audit, and so goes on."""
        if number in self._audit:
            mark(self._storage, self.trials[number], reason)
        return number in self._audit

    def _promoted(self, left: float) -> int | None:
        """The trial that waits at a rung and goes on now; trials have so many seconds left.

        By the rules few come to their end, and of a short search none. At last those go on too that are
        better than all that did: the winner is to be one of the best.
        """
        if self._promoting is None or self._stop is not None:
            return None
        found, unbeaten = self._promoting.next(), self._promoting.unbeaten()
        if unbeaten is not None and unbeaten != found and self._is_last_chance(unbeaten, found, left):
            found = unbeaten
        return found if found is not None and self._rest(found) <= left else None

    def _is_last_chance(self, number: int, other: int | None, left: float) -> bool:
        """Whether a trial that waits will not come to its end if another, or a new one, goes first."""
        if other is None and self._all_asked():
            return not self.running
        step, last = self.trials[number].last_step or 0, self.spec.early_stopping.max or 0
        if self._timing.is_last_chance(number, step, other, self._step_of(other), left):
            return True
        if self.spec.budget.samples is None:
            return False
        units = self.spec.budget.samples - sum(self._kept_for()) - self.consumed
        slots = self._pace.slots  # which all spend them meanwhile
        return units - self._timing.units_of(self._step_of(other)) * slots < (last - step) * slots

    def _step_of(self, number: int | None) -> int:
        return 0 if number is None else self.trials[number].last_step or 0

    def _audit_paused(self) -> bool:
        """Let go on who still waits at a rung and is drawn, where the search is over; whether anybody is."""
        left = self._time_left()
        drawn = [t for t in self.trials if self._audit.waits(t) and self._rest(t.number) <= left]
        for trial in drawn:
            assert self._promoting is not None
            reason = self._promoting.why_not(trial.number)
            self._promoting.leave(trial)
            self._audits(trial.number, reason)
            self._storage.suspend(trial.number)
        if drawn:
            self.say(f"the search is over; {len(drawn)} of its paused trials go on, for the audit")
        return bool(drawn)

    # Ending a trial

    def _ending(self, running: Running, step: int) -> str | None:
        """Why a trial ends at this report, if it does."""
        attrs = self.trials[running.trial.number].user_attrs
        if CONFIRMS in attrs or AUDITED in attrs:
            return None
        baseline = "baseline" in attrs
        last = self.spec.early_stopping.max
        if last is not None and step >= last:
            return None  # its cost is spent
        prunes = running.trial.should_prune()  # of the baseline too: others are compared with it
        if baseline and self.best is None:
            return None  # a study with a budget ends with a winner
        self._check_ends()
        if self._stop is not None and not self.stopped:
            return self._stop
        if baseline or not prunes:
            return None
        reason = pruning_reason(self.study, self.spec, running.trial.number, step)
        return None if self._audits(running.trial.number, reason) else reason

    def _end_unusable(self, running: Running, constraint: Ending, reason: str) -> str:
        """End a trial whose configuration cannot be trained; samplers learn to keep away from it.

        Optuna ranks infeasible trials last. Its dashboard reads only the older list of constraints.
        """
        folder = self._folder(running.trial.number)
        reason = with_advice(reason, self.spec, running.config, folder, constraint, self.best)
        running.trial.set_constraint(constraint, 1.0)
        self._storage.set_trial_system_attr(running.trial._trial_id, "constraints", [1.0])
        self._end(running, TrialState.PRUNED, reason=reason)
        return reason

    def _end(
        self,
        running: Running,
        state: TrialState,
        *,
        value: float | None = None,
        reason: str | None = None,
    ) -> None:
        ended = self._told(running, state, value, reason)
        self._flush()
        self._after_end(ended)

    def _told(
        self, running: Running, state: TrialState, value: float | None, reason: str | None
    ) -> FrozenTrial:
        """The trial, ended in memory."""
        trial = running.trial
        if reason is not None:
            trial.set_user_attr("reason", reason)
        for name, metric in running.metrics.items():
            taken = name in OWN_ATTRS or name in running.config
            trial.set_user_attr(f"last_{name}" if taken else name, metric)
        for key, meta in artifact_attrs(self.runs, self.folder_name, trial.number).items():
            self._storage.set_trial_system_attr(trial._trial_id, key, meta)
        self._keep_cost(self.running.pop(trial.number))
        ended = self.study.tell(trial, value, state=state)
        self.study.set_user_attr(ELAPSED, round(self.elapsed, 1))
        return ended

    def _after_end(self, ended: FrozenTrial) -> None:
        """What follows an end that is in the database."""
        self._keep_best_checkpoints(ended)
        self._watcher.trial_ended(self, ended)

    def _keep_best_checkpoints(self, ended: FrozenTrial) -> None:
        """Delete the checkpoint of the trial that this end put out of the best few, if any.

        A failed one keeps its checkpoint: it may be tried again.
        """
        if ended.state != TrialState.FAIL:
            drop_seal(self._folder(ended.number))
        if ended.state == TrialState.PRUNED:
            drop_checkpoint(self._folder(ended.number))
            return
        complete = sorted(
            (t for t in searched(self.trials) if t.state == TrialState.COMPLETE),
            key=lambda t: self._loss(t.value),
        )
        keep = self.spec.execution.keep
        kept = {t.number for t in complete[:keep]}
        out = [t.number for t in complete[keep : keep + 1]]
        if ended.number not in kept:
            out = [] if ended.state == TrialState.FAIL else [ended.number]
        for number in out:
            drop_checkpoint(self._folder(number))

    # Ending the search

    def _confirm(self) -> bool:
        """Put up the next trainings that confirm the best, the search being over; whether there are any."""
        self._confirms = self._confirms or self._wish()  # who is compared is not changed under way
        in_time = self._stop is not None and self.spec.budget.time is not None and self._at_target() is None
        found, said = self._timing.next_round(
            self._confirms, self.trials, self.elapsed, self._rests(), more=in_time
        )
        for trial, seed in found:
            self.study.enqueue_trial(trial.params, user_attrs=attrs_of(trial, seed))
        if said and (found or not self.running):
            self.say(said)
        return bool(found)

    def _wish(self) -> Wish:
        """Who is to be confirmed, as far as the budget allows."""
        if self._confirms is not None:
            return self._confirms
        limits = [self._expected_cost]
        if self.spec.budget.time is not None:
            limits.append(self._pace.trainings_in(self.spec.budget.time))
        if self._at_target() is not None:  # a search that ends early has cost no more than it did
            limits.append(float(self.finished))
        known = [limit for limit in limits if limit is not None]
        return Wish.of(self.spec, min(known, default=float(self.finished)))

    @cached_property
    def _expected_cost(self) -> float | None:
        return expected_cost(self.spec)  # which counts a grid, and every report asks for it

    def _at_target(self) -> FrozenTrial | None:
        """The best trial, where it is as good as the budget's target."""
        target, best = self.spec.budget.target, self.best
        if target is None or best is None or self._loss(best.value) > self._loss(target):
            return None
        return best

    def _check_ends(self) -> None:
        budget = self.spec.budget
        if budget.time is not None and self._stop is None and self._left() <= self._until_reports():
            self.stop(self._timing.spent(self._wish()))
        if budget.samples is not None and not self._is_confirming():
            confirming, auditing = self._kept_for()
            whats = [*["the confirmation"] * bool(confirming), *["the audit"] * bool(auditing)]
            kept = f", but for {' and '.join(whats)}" if whats else ""
            if self.consumed + confirming + auditing >= budget.samples:
                self.stop(f"the budget of {budget.samples:,} {self.spec.resource} is spent{kept}")
        if (best := self._at_target()) is not None:
            self.stop(f"trial {best.number} reached the target {budget.target:g}")

    def _kept_for(self) -> tuple[int, int]:
        """The resource that is kept back for the confirmation and for the audit."""
        last = self.spec.early_stopping.max or 0
        return self._wish().trainings(self.spec) * last, self._audit.rest(self.trials, last)

    # The time

    def _left(self) -> float:
        """Seconds that trials of the search may still take; what confirms the winner is kept back."""
        return self._time_left() if self._stop is None else -math.inf

    def _time_left(self) -> float:
        """The same, whether the search asks for more or not."""
        if self.spec.budget.time is None:
            return math.inf
        return self._timing.left(self._wish(), self.trials, self.elapsed, self._rests())

    def _goes_on(self, waiting: FrozenTrial, left: float) -> bool:
        """Whether a trial that waits may go on, where those of the search have so many seconds left."""
        if AUDITED in waiting.user_attrs:
            left = self._time_left()
        return CONFIRMS in waiting.user_attrs or self._rest(waiting.number) <= left

    def _rest(self, number: int) -> float:
        """Seconds until a trial that goes on from where it is brings anything."""
        return self._timing.begins(number, self._step_of(number))

    def _rests(self) -> list[float]:
        """Of the trainings that confirm and run."""
        confirming = (each for each in self.running.values() if CONFIRMS in each.trial.user_attrs)
        return [
            max(0.0, self._pace.seconds_of(each.trial.user_attrs[CONFIRMS]) - each.seconds)
            for each in confirming
        ]

    def _until_reports(self) -> float:
        """Seconds until all that run have reported once more, as far as that is known."""
        found = (each.attempt.every for each in self.running.values())
        return self._timing.patience(max((every for every in found if every is not None), default=0.0))

    def _comes_late(self, trial: FrozenTrial) -> bool:
        """Whether there is no time left for a training that confirms."""
        number = confirms(trial)
        return number is not None and self._timing.is_late(self.elapsed + self._pace.seconds_of(number))

    def _end_late(self) -> None:
        """End what runs and would keep the search from ending on time."""
        if self.spec.budget.time is None or self._stop is None or self.stopped:
            return
        late = self._timing.is_late(self.elapsed)
        over = late or self._timing.is_over(self._wish(), self.trials, self.elapsed, self._rests())
        for number, running in list(self.running.items()):
            attrs = running.trial.user_attrs
            if late if CONFIRMS in attrs else over and not ("baseline" in attrs and self.best is None):
                self._dropped.append(number)
                self._end_unheard(number)

    def _end_unheard(self, number: int) -> None:
        """End a trial for which there is no time left, though it has not reported."""
        if number not in self.running:
            self.running[number] = self._take_up(self.trials[number])
        self._end(self.running[number], TrialState.PRUNED, reason="the time is over")

    def _learn(self, running: Running, units: int | None = None) -> None:
        """Remember what a training costs; one that confirms says it of the configuration's trial too."""
        cost = running.attempt.cost
        if cost is not None:
            numbers = {running.trial.number, running.trial.user_attrs.get(CONFIRMS, running.trial.number)}
            for number in numbers:
                self._pace.learn(number, cost, units)

    def _keep_cost(self, running: Running) -> None:
        """Note in the study what a trial costs, for the searches that go on with it."""
        cost = running.attempt.cost
        if cost is not None:
            self._storage.set_trial_system_attr(running.trial._trial_id, COST, cost.to_json())

    def _is_confirming(self) -> bool:
        """Whether the best train again, or wait to."""
        return any(confirms(trial) is not None for trial in self.trials if not trial.state.is_finished())

    def _check_same_failures(self) -> None:
        ended = [t for t in self.trials if t.state.is_finished()]
        errors = {t.user_attrs.get("error") if t.state == TrialState.FAIL else None for t in ended}
        if len(ended) >= SAME_FAILURES and len(errors) == 1 and None not in errors:
            self.fatal = f"the first {len(ended)} trials all failed alike: {errors.pop()}"
            self.request_stop(self.fatal)

    def _flush(self) -> None:
        """Write to the database; wait for it, and say so, while it cannot be written."""
        try:
            patiently(self._storage.flush, self._say_that_it_waits)
        except StorageError as error:
            raise SearchError(str(error)) from error

    def _say_that_it_waits(self, message: str) -> None:
        leave = "; another signal leaves without it, and trials go on from their checkpoints"
        self.say(message + (leave if self.stopped else ""))

    def _loss(self, value: float | None) -> float:
        assert value is not None
        return value if self.spec.goal == "minimize" else -value


def _was_put_back(trial: FrozenTrial) -> bool:
    """Whether a trial has begun and waits to be taken up again."""
    return trial.state == TrialState.WAITING and trial.datetime_start is not None


def _wall_ahead() -> float:
    """Seconds by which the clock on the wall is ahead of the one that only goes on."""
    return time.time() - time.monotonic()
