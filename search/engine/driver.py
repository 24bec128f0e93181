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
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import optuna
from optuna.pruners import BasePruner

from ...spaces import Spec
from ...spaces.settings import Budget, Confirm
from ...storage.files import has_checkpoint
from ...storage.live import LiveStorage
from ...storage.studies import MEMORY, PHASE, Phase, phase_of
from ...storage.trial_attrs import audited_at, is_baseline
from ..formatting import position
from ..sampling.factory import make_sampler
from ..scheduling.audit import mark_audited
from ..scheduling.decision import Decision, Pause, Requeue, Situation, decide
from ..scheduling.judged import should_prune
from ..scheduling.promotion import RungEntry
from ..scheduling.rungs import promotes
from ..scheduling.standings import pruning_stop
from ..scheduling.study_promotion import StudyPromotion
from ..trials.judging import Judge, how_without_value
from ..trials.stops import Stop, diverged
from .attempts import FailedAttempts
from .budget import BudgetTracker, spent_on
from .clock import SearchClock
from .commands import CommandInbox
from .confirmation import ConfirmationPlan
from .costs import TrialCosts
from .deadline import SHUTDOWN_SECONDS, Deadline
from .lifecycle import TrialLifecycle
from .queue import Candidate, TrialQueue
from .running import Assignment, Failure, RunningTrial
from .state import SearchState
from .watcher import MemoryLimit, Watcher

MAX_ENDED_PER_TICK = 32  # paused trials: workers must not wait


class Driver(SearchState):
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
        self.running, self.folder = self._lifecycle.running, self._lifecycle.folder
        self._costs = TrialCosts(spec.early_stopping.max, self.trials, slots)
        self._shutdown_seconds = shutdown_seconds
        self._plan()
        self._inbox = CommandInbox(self, self._lifecycle)
        self._failures = FailedAttempts(self, self._lifecycle)
        self._judge = Judge.of(spec)
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

    def _plan(self) -> None:
        """Share out the budget of the spec among the trials, from what the study holds."""
        confirmation = ConfirmationPlan(self.spec, self._lifecycle.tally)
        self._deadline = Deadline(self._lifecycle, self._costs, confirmation, self._shutdown_seconds)
        self._budget = BudgetTracker(self._lifecycle, self._costs, confirmation, self._deadline)
        self._queue = TrialQueue(self._lifecycle, self._deadline, self._budget)

    @property
    def may_retry(self) -> bool:
        """Whether a trial that fails now is retried, now or after a resume."""
        return self.stop_reason is None or self.stopped

    # For the backend

    def ask(self) -> Assignment | None:
        """The next trial to run; None if there is none now. None while nothing runs means the end."""
        self._learn_memory()
        while (chosen := self.peek()) is not None:
            if (assignment := self._begin(chosen)) is not None:
                return assignment
        return None

    def peek(self) -> Candidate | None:
        """What `ask` would begin now, for a backend that asks only when a worker comes."""
        while not self.paused and not self.stopped:
            chosen = self._queue.next(self._seconds_left())
            if chosen is None:
                if not self._continues():
                    return None
            elif not self._queue.ends_instead(chosen):
                return chosen
        return None

    def take_up(self, number: int) -> Assignment | None:
        """Resume a requeued trial, for the worker that has it still; None if it cannot resume now."""
        waiting = None if self.paused or self.stopped else self._queue.requeued(number, self._seconds_left())
        return None if waiting is None else self._begin(waiting)

    def _begin(self, chosen: Candidate) -> Assignment | None:
        if (running := self._queue.begin(chosen)) is not None:
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
        if self._judge.ends(value):
            return self._lifecycle.stop(running, diverged(self._at(step, value)))
        if step > self._storage.largest_step:
            most = f"this database holds steps up to {self._storage.largest_step:,}"
            error = f"it reported step {step:,}, and {most}; report in a larger unit, or search in SQLite"
            self._lifecycle.fail(running, error)
            return error
        counts = math.isfinite(value)
        if not counts and not running.has_left_out:
            running.has_left_out = True
            self.remark(number, "not finite", f"{self._at(step, value)}, which is left out")
        if step == 0 and counts and 0 not in self.trials[number].intermediate_values:
            running.trial.report(value, 0)  # before any training: no decision depends on it
        if step <= running.reported:
            return None  # the study has this report from an earlier attempt
        if counts:
            running.trial.report(value, step)
        running.reported = step
        if (reached := max(step, trained)) > running.trained:
            self._budget.consumed += reached - running.trained
            running.trained = reached
            running.attempt.report(reached, running.seconds if seconds is None else seconds)
        self._deadline.learn(running)
        rung = self._rung_entry(running) if counts else None
        return self._apply(running, decide(self._situation(running, rung, counts)), rung)

    def _at(self, step: int, value: float) -> str:
        return f"{self.spec.metric} was {value} at {position(step, self.spec.resource)}"

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

    def _situation(self, running: RunningTrial, rung: RungEntry | None, counts: bool) -> Situation:
        """What the decision about a trial depends on, as of its report; one that `counts` may stop it."""
        trial, step, last = self.trials[running.number], running.reported, self.spec.early_stopping.max
        over = stop = requeues = None
        waits = rung is not None and not rung.goes_first
        is_at_end = last is not None and step >= last  # its cost is spent
        if running.confirms is None and audited_at(trial) is None and not is_at_end:
            # Also for the baseline: this notes its rung for the others.
            prunes = counts and should_prune(self._lifecycle.judged, running.trial)
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
            self._lifecycle.accounts.audit(self.trials[number], running)
        if isinstance(decision, Requeue):
            self.requeue(number)
            return decision.reason
        self._lifecycle.flush()
        return None

    def complete(self, number: int, value: float, seconds: float | None = None) -> None:
        """The objective returned `value`, `seconds` after it was called."""
        running = self.running[number]
        returned, value = value, self._judge.at_end(self.trials[number].intermediate_values, value)
        if not math.isfinite(value):
            how = how_without_value(self.spec.metric, returned, self._judge)
            self._lifecycle.stop(running, diverged(how))
            return
        running.attempt.ended = running.seconds if seconds is None else seconds
        self._deadline.learn(running, running.trained)
        self._lifecycle.complete(running, value)
        if not running.reported:
            self._budget.consumed += spent_on(self.spec, self.trials[number])
        self._check_ends()

    def fail(self, number: int, failure: Failure) -> None:
        """An attempt ended without a value: the trial is pruned, requeued for a retry, or failed."""
        self._failures.handle(number, failure)

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
        self._lifecycle.accounts.tick(self.running.values())
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

    def request_stop(self, reason: str, by: str | None = None) -> None:
        """Ask no more trials, and requeue running ones at their next report, to be resumed later."""
        self.stop(reason)
        self._clock.stop(by)

    def pause(self, by: str | None = None) -> None:
        """Ask no more trials, and requeue running ones at their next report, until `resume`."""
        if self.stop_reason is None and not self.paused:
            self._clock.pause(by)
            self.say(f"paused{f' by {by}' if by else ''}; hpsearch resume continues the search")

    def resume(self, by: str | None = None) -> None:
        """Continue after a pause."""
        if self.paused:
            self._clock.resume()
            self.say(f"resumed{f' by {by}' if by else ''}")

    def continue_with(self, budget: Budget, confirm: Confirm) -> None:
        """Continue with another budget or confirmation, as a search does that resumes with them."""
        consumed = self._budget.consumed
        self.spec = self.spec.model_copy(update={"budget": budget, "confirm": confirm})
        self._promotion = self._lifecycle.replan(self.spec)
        self._plan()
        self._budget.consumed = consumed
        if not self.stopped:
            self.stop_reason = None
        self._check_ends()

    def _seconds_left(self) -> float:
        """Seconds left for trials of the search; -inf once no more are asked."""
        return self._budget.time_left() if self.stop_reason is None else -math.inf

    # Whether the search is over

    def _check_ends(self) -> None:
        if self.stop_reason is None and (reason := self._budget.end_reason()) is not None:
            self.stop(reason)
