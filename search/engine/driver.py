"""The driver: owns one study, hands out its trials, records their reports, and decides when they end.

A backend asks for trials (`ask`), delivers (`report`, `complete`, `fail`, `requeue`) and obeys the answers.
Every decision is in the database before it is answered. The driver runs in one thread of one process and is
the study's only writer.

This module decides what a report leads to. `queue` chooses the trial that trains next, `lifecycle` carries
out what happens to it, `deadline` and `budget` know how much time and budget is left, `commands` obeys other
processes.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial

from ...spaces import Spec
from ...storage.files import OUTPUT, drop_checkpoint, has_checkpoint
from ...storage.live import LiveStorage
from ...storage.studies import MEMORY, PHASE, Phase, phase_of
from ...storage.trial_attrs import audited_at, has_reported, is_baseline
from ..formatting import counted
from ..sampling.factory import make_sampler
from ..scheduling.audit import mark_audited
from ..scheduling.decision import Decision, Pause, Requeue, Situation, decide
from ..scheduling.promotion import RungEntry
from ..scheduling.rungs import promotes
from ..scheduling.standings import pruning_stop
from ..scheduling.study_promotion import StudyPromotion
from ..trials.events import event_in_words
from ..trials.retries import failed_alike, has_failed_with
from ..trials.stops import Stop, diverged, failed, out_of_memory
from .budget import BudgetTracker, spent_on
from .clock import SearchClock
from .commands import CommandInbox
from .confirmation import ConfirmationPlan
from .costs import TrialCosts
from .deadline import SHUTDOWN_SECONDS, Deadline
from .lifecycle import TrialLifecycle
from .queue import TrialQueue
from .running import Assignment, Failure, RunningTrial
from .watcher import MemoryLimit, Watcher

MAX_ENDED_PER_TICK = 32  # paused trials: workers must not wait
FATAL_SAME_FAILURES = 3  # a search ends if so many trials fail alike from its start


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
        threads: int | None = None,
        slots: int = 1,
        shutdown_seconds: float = SHUTDOWN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        begun: float | None = None,
        memory: MemoryLimit | None = None,
    ) -> None:
        """`threads`: of each worker; by default those that the study was begun with. `slots`: trials at a
        time, as far as known. `shutdown_seconds`: what the backend needs after its last training. `begun`:
        the time of the `clock` from which the search's time counts; by default now.
        """
        self.spec = spec
        self._storage = storage
        self._watcher = watcher
        self._memory = memory
        self.study = optuna.load_study(
            study_name=spec.name, storage=storage, sampler=make_sampler(spec), pruner=pruner
        )
        self._clock = SearchClock(self.study, begun, clock)
        self._promotion = StudyPromotion(spec, storage) if promotes(spec) else None
        self._lifecycle = TrialLifecycle(
            spec,
            self.study,
            storage,
            runs=runs,
            threads=threads,
            clock=self._clock,
            promotion=self._promotion,
            say=self.say,
            on_end=lambda trial: watcher.trial_ended(self, trial),
        )
        self.running = self._lifecycle.running
        self._costs = TrialCosts(spec.early_stopping.max, self.trials, slots)
        confirmation = ConfirmationPlan(spec, self._lifecycle.tally)
        self._deadline = Deadline(self._lifecycle, self._costs, confirmation, shutdown_seconds)
        self._budget = BudgetTracker(self._lifecycle, self._costs, confirmation, self._deadline)
        self._inbox = CommandInbox(self, self._lifecycle)
        self._queue = TrialQueue(self._lifecycle, self._deadline, self._budget)
        self._remarked: set[str] = set()  # kinds of remarks that the user has seen
        self._learned = 0  # changes of the storage whose memory use is learned
        self.phase = phase_of(storage.attrs)
        self.stop_reason: str | None = None  # why no more trials are asked
        self.fatal: str | None = None  # why the search failed
        if memory is not None and memory.line is not None:
            self.study.set_user_attr(MEMORY, memory.to_json())
        self._lifecycle.requeue_all()
        self._lifecycle.enqueue_baseline()
        self._check_ends()
        self._lifecycle.flush()

    # State

    @property
    def trials(self) -> Sequence[FrozenTrial]:
        """All trials of the study as they are now, by number; read-only."""
        return self._lifecycle.trials

    @property
    def best(self) -> FrozenTrial | None:
        """The best complete trial of the search."""
        return self._lifecycle.best

    @property
    def finished(self) -> int:
        """How many trials of the search have ended."""
        return self._lifecycle.tally.ended

    @property
    def states(self) -> Counter[str]:
        """How many trials of the study are in each state, `paused` among them."""
        return self._lifecycle.tally.states

    @property
    def baseline(self) -> FrozenTrial | None:
        """The baseline trial; None if there is none."""
        return next(iter(self._lifecycle.tally.baselines), None)

    @property
    def elapsed(self) -> float:
        """Seconds searched so far, over all resumes, without pauses."""
        return self._clock.elapsed

    @property
    def consumed(self) -> int:
        """Resource spent so far: the last steps of all trials, summed."""
        return self._budget.consumed

    @property
    def stopped(self) -> bool:
        """Whether the search was stopped, to be resumed later."""
        return self._clock.stopped

    @property
    def paused(self) -> bool:
        """Whether the search is paused: no trial is asked, and running ones are requeued."""
        return self._clock.paused

    @property
    def grace_is_over(self) -> bool:
        """Whether the trials to be requeued have had their time to report."""
        return self.stopped and self._clock.is_overdue

    # For the backend

    def ask(self) -> Assignment | None:
        """The next trial to run; None if there is none now. None while nothing runs means the end."""
        self._learn_memory()
        while not self.paused and not self.stopped:
            chosen = self._queue.next(self._seconds_left())
            if chosen is None:
                if not self._continues():
                    return None
            elif (running := self._queue.begin(chosen)) is not None:
                self._enter(chosen.phase)
                self._costs.slots = max(self._costs.slots, len(self.running))
                self._lifecycle.flush()
                if running.number in self.running:  # the database has accepted it
                    return self._lifecycle.assignment(running)
        return None

    def _continues(self) -> bool:
        """Whether the search has something to do now, although none of its trials can begin."""
        searches = [each for each in self.running.values() if each.confirms is None]
        if searches and self.stop_reason is None:
            return False
        if self.stop_reason is None and not self._queue.all_asked():
            self.stop(self._budget.time_spent_reason())
        if self._queue.resume_audit():  # running trials of the search end at their next reports
            return True
        if searches:
            return False
        confirms = self._queue.confirm(ended_early=self.stop_reason is not None)
        self._enter(Phase.CONFIRMING if confirms or self.running else Phase.OVER)
        return confirms

    def _enter(self, phase: Phase) -> None:
        if phase != self.phase:
            self.phase = phase
            self.study.set_user_attr(PHASE, phase)

    def _learn_memory(self) -> None:
        if self._memory is not None:
            changed, self._learned = self._storage.changed_since(self._learned), self._storage.changes
            if (message := self._memory.learn(changed)) is not None:
                self.say(message)

    def report(
        self,
        number: int,
        value: float,
        step: int,
        metrics: Mapping[str, float],
        *,
        seconds: float | None = None,
        trained: int = 0,
    ) -> str | None:
        """Record a report. Returns None if the trial continues, or why it has ended or paused.

        `seconds`: since the objective was called, by the worker's clock; by default since the trial was
        asked. `trained`: the step that the training has reached, if reports come late.
        """
        running = self.running[number]
        running.metrics.update(metrics)
        if not math.isfinite(value):
            at = counted(step, self.spec.resource)
            return self._lifecycle.stop(running, diverged(f"{self.spec.metric} was {value} at {at}"))
        if step > self._storage.largest_step:
            most = f"this database holds steps up to {self._storage.largest_step:,}"
            error = f"it reported step {step:,}, and {most}; report in a larger unit, or search in SQLite"
            self._lifecycle.fail(running, error)
            return error
        if step == 0 and 0 not in self.trials[number].intermediate_values:
            running.trial.report(value, 0)  # before any training: no decision depends on it
        if step <= running.reported:
            return None  # the study has this report from an earlier attempt
        running.trial.report(value, step)
        running.reported = step
        if (reached := max(step, trained)) > running.trained:
            self._budget.consumed += reached - running.trained
            running.trained = reached
            running.attempt.report(reached, running.seconds if seconds is None else seconds)
        self._deadline.learn(running)
        rung = self._rung_entry(running)
        return self._apply(running, decide(self._situation(running, rung)), rung)

    def _rung_entry(self, running: RunningTrial) -> RungEntry | None:
        """The entry of a trial at the rung that its report has brought it to, if any.

        To resume later costs the start-up again. So a trial that leads goes first if it would be too late.
        """
        if self._promotion is None:
            return None
        number = running.number
        can_wait = has_checkpoint(self._lifecycle.folder(number))
        rung = self._promotion.enter(self.trials[number], can_wait=can_wait)
        if rung is None or not rung.leads:
            return rung
        is_last = self._deadline.is_last_chance(number, rung.first, self._seconds_left())
        return replace(rung, goes_first=is_last)

    def _situation(self, running: RunningTrial, rung: RungEntry | None) -> Situation:
        """What the decision about a trial depends on, as of its report."""
        trial, step, last = self.trials[running.number], running.reported, self.spec.early_stopping.max
        over = stop = requeues = None
        waits = rung is not None and not rung.goes_first
        is_at_end = last is not None and step >= last  # its cost is spent
        if running.confirms is None and audited_at(trial) is None and not is_at_end:
            prunes = running.trial.should_prune()  # also for the baseline: this notes its rung for the others
            self._check_ends()
            if not is_baseline(trial):  # a search ends with a winner, and a baseline to compare it with
                if self.stop_reason is not None and not self.stopped:
                    over = Stop("over", self.stop_reason)
                elif prunes:
                    stop = pruning_stop(self.study, self.spec, trial.number, step)
                elif waits and rung and self._promotion and not rung.can_wait:
                    stop = self._promotion.stop_without_checkpoint(trial)
        if self._clock.requeues and step != last:  # requeued at its end, it would have nothing to train
            requeues = "the search is paused" if self.paused else "the search is stopping"
        in_audit = stop is not None and trial.number in self._budget.audit
        return Situation(over, stop, in_audit, waits and stop is None, requeues)

    def _apply(self, running: RunningTrial, decision: Decision, rung: RungEntry | None) -> str | None:
        """Carry out a decision. Returns why the trial does not continue; None if it does."""
        number, promotion = running.number, self._promotion
        if isinstance(decision, Stop):
            return self._lifecycle.stop(running, decision)
        if isinstance(decision, Pause):
            assert promotion is not None
            event, audit = self._lifecycle.pause(running), self._budget.audit
            self._lifecycle.stop_paused(n for n in promotion.rule.cannot_be_promoted() if n not in audit)
            return event
        if rung is not None and promotion is not None:
            (promotion.promote if decision.audited is None else promotion.leave)(self.trials[number])
        if decision.audited is not None:
            mark_audited(self._storage, self.trials[number], decision.audited.reason)
        if isinstance(decision, Requeue):
            self.requeue(number)
            return decision.reason
        self._lifecycle.flush()
        return None

    def complete(self, number: int, value: float, seconds: float | None = None) -> None:
        """The objective returned `value`, `seconds` after it was called."""
        running = self.running[number]
        if not math.isfinite(value):
            self._lifecycle.stop(running, diverged(f"the objective returned {value}"))
            return
        running.attempt.ended = running.seconds if seconds is None else seconds
        self._deadline.learn(running, running.trained)
        self._lifecycle.complete(running, value)
        if not running.reported:
            self._budget.consumed += spent_on(self.spec, self.trials[number])
        self._check_ends()

    def fail(self, number: int, failure: Failure) -> None:
        """An attempt ended without a value: the trial is pruned, requeued for a retry, or failed."""
        running, folder = self.running[number], self._lifecycle.folder(number)
        may_retry = self.stop_reason is None or self.stopped  # now, or after a resume
        if failure.kind == "disk":
            self.requeue(number)
            why = f"trial {number} cannot write: {failure.message}"
            self.fatal = f"{why}; make room, and the same command resumes the search"
            self.request_stop(self.fatal)
        elif failure.kind == "checkpoint" and not has_failed_with(failure.message, self.trials):
            event = {"kind": "started_over", "error": failure.message}
            self.say(f"trial {number} {event_in_words(event, self.spec.resource)}")
            self._storage.add_event(self.trials[number], event)
            drop_checkpoint(folder)
            self.requeue(number)
        elif failure.kind == "silent" and not any(map(has_reported, self.trials)):
            self._lifecycle.fail(running, failure.message, failed(failure.whole_reason(folder / OUTPUT)))
            self.fatal = f"trial {number}: {self.trials[number].user_attrs['reason']}"
            self.request_stop(self.fatal)
        elif failure.kind == "memory":
            self._lifecycle.stop(running, out_of_memory(failure.message))
        elif running.attempts <= self.spec.execution.retries and may_retry:
            running.trial.set_user_attr("retries", running.attempts)
            running.trial.set_user_attr("error", failure.message)
            self.requeue(number)
        else:
            if failure.traceback:
                running.trial.set_user_attr("traceback", failure.traceback)
            self._lifecycle.fail(running, failure.message, failed(failure.whole_reason(folder / OUTPUT)))
            self._check_same_failures()

    def remark(self, number: int, kind: str, text: str) -> None:
        """Store a remark about a trial. The user sees only the first of each kind."""
        self._storage.add_event(self.trials[number], {"kind": "remark", "text": text})
        if kind not in self._remarked:
            self._remarked.add(kind)
            self.say(f"trial {number}: {text}")

    def requeue(self, number: int) -> None:
        """Requeue a trial: it waits, with its reports and checkpoint, for this or a later search."""
        self._lifecycle.requeue(number)

    def set_busy_slots(self, trials: int) -> None:
        """So many trials train now; from a backend that starts its workers late, as they are needed."""
        self._costs.set_busy_slots(trials)

    def tick(self) -> None:
        """Check the clock and the commands of other processes; called about once a second."""
        self._check_ends()
        if self.stop_reason is not None and not self.stopped:
            for number in self._budget.overdue_trials():
                self._lifecycle.end_out_of_time(number)
        if self._budget.confirmation_is_settled:  # confirmation runs do not depend on paused trials
            self._lifecycle.stop_all_paused(MAX_ENDED_PER_TICK)
        if (message := self._clock.tick()) is not None:
            self.say(message)
        self._lifecycle.flush()
        self._inbox.look()
        if self.paused and self._clock.is_overdue:
            for number in list(self.running):
                self._lifecycle.detach_from_worker(number)
                self.requeue(number)
        self._watcher.tick(self)

    def pop_cancelled(self) -> list[int]:
        """Trials that have ended here while their workers still run them; these are to be killed."""
        cancelled, self._lifecycle.cancelled = self._lifecycle.cancelled, []
        return cancelled

    def finish(self) -> None:
        """End the waiting trials, if the search is over."""
        if not (self.stopped or self.paused or self.fatal):
            self._enter(Phase.OVER)
            self._lifecycle.stop_all_paused()
            for trial in self._lifecycle.tally.waiting:
                if audited_at(trial) is not None:
                    self._lifecycle.end_out_of_time(trial.number)
                elif "error" in trial.user_attrs:  # the search was over before its retry
                    running = self._lifecycle.detach_from_worker(trial.number)
                    self._lifecycle.fail(running, trial.user_attrs["error"])

    def close(self, *, hurried: bool = False) -> None:
        """End the search here; see `TrialLifecycle.close`."""
        self._lifecycle.close(hurried=hurried)

    # Controls

    def say(self, message: str) -> None:
        """Tell the user."""
        self._watcher.say(message)

    def stop(self, reason: str) -> None:
        """Ask no more trials; running ones end at their next report."""
        self.stop_reason = self.stop_reason or reason

    def request_stop(self, reason: str) -> None:
        """Ask no more trials, and requeue running ones at their next report, to be resumed later."""
        self.stop(reason)
        self._clock.stop()

    def pause(self) -> None:
        """Ask no more trials, and requeue running ones at their next report, until `resume`."""
        if self.stop_reason is None and not self.paused:
            self._clock.pause()
            self.say("paused; hpsearch resume continues the search")

    def resume(self) -> None:
        """Continue after a pause."""
        if self.paused:
            self._clock.resume()
            self.say("resumed")

    def _seconds_left(self) -> float:
        """Seconds left for trials of the search; -inf once no more are asked."""
        return self._budget.time_left() if self.stop_reason is None else -math.inf

    # Whether the search is over

    def _check_ends(self) -> None:
        if self.stop_reason is None and (reason := self._budget.end_reason()) is not None:
            self.stop(reason)

    def _check_same_failures(self) -> None:
        states = self._lifecycle.tally.states
        if states["fail"] < FATAL_SAME_FAILURES or states["complete"] or states["pruned"]:
            return
        if (last := failed_alike(self.trials)) is not None:
            reason = last.user_attrs["reason"]
            self.fatal = f"the first {states['fail']} trials all failed the same way: {reason}"
            self.request_stop(self.fatal)
