"""The life cycle of a study's trials: how each begins, pauses, is requeued, resumes and ends.

Others decide which trial and why. This module carries it out on the trial, its folder and its checkpoint.
When a call returns, the database says that a trial waits or has ended; `flush` writes that one has begun.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from ...spaces import Derived, Spec, nested
from ...storage import DatabaseUnavailable, StorageError
from ...storage.connection import patiently
from ...storage.files import (
    CONFIG,
    METRICS,
    artifact_attrs,
    drop_checkpoint,
    drop_checkpoints,
    drop_seal,
    has_checkpoint,
    make_folder,
    remove_folder,
    trial_folder,
    write,
)
from ...storage.live import LiveStorage
from ...storage.studies import PROVENANCE, SPEC, folder_in
from ...storage.trial_attrs import (
    CONFIRMS,
    FIXED_PARAMS,
    THREADS,
    TOOK,
    TRAINED,
    at_rung,
    is_baseline,
    threads_of,
    trained_to,
)
from ..errors import SearchError
from ..sampling.distributions import enqueued_labels, in_words, labelled, suggest
from ..scheduling.audit import AuditSample
from ..scheduling.judged import judged_study
from ..scheduling.study_promotion import StudyPromotion
from ..trials.advice import when_worse, with_advice
from ..trials.export import document, render, seed_of
from ..trials.records import usage_of
from ..trials.reports import read_reports
from ..trials.stops import Stop, failed
from ..trials.usage import Usage
from .accounts import UsageAccounts
from .clock import SearchClock
from .confirmation_size import ConfirmationSize
from .costs import COST_ATTR
from .running import RESERVED_ATTRS, Assignment, RunningTrial
from .tally import Tally


class InvalidTrial(Exception):
    """A trial that another program enqueued has parameters that do not fit the space."""

    def __init__(self, running: RunningTrial, what: str) -> None:
        super().__init__(what)
        self.running = running


class TrialLifecycle:
    """The trials of one study."""

    def __init__(
        self,
        spec: Spec,
        study: optuna.Study,
        storage: LiveStorage,
        *,
        runs: Path,
        threads: int | None,
        clock: SearchClock,
        promotion: StudyPromotion | None,
        say: Callable[[str], None],
        on_end: Callable[[FrozenTrial], None],
    ) -> None:
        """`threads`: of each worker; None: those that the study was begun with. `say`: tells the user
        something. `on_end`: called for each trial that has ended."""
        self.spec = spec
        self.study = study
        self.judged = judged_study(study, spec)
        self.storage = storage
        self._runs = runs
        self._threads = threads
        self._folder_name = folder_in(study.user_attrs, spec.name)  # under `runs`
        self.clock = clock
        self.promotion = promotion
        self.say = say
        self._on_end = on_end
        self.tally = Tally(spec, storage)
        self.running: dict[int, RunningTrial] = {}
        self.accounts = UsageAccounts(storage, clock.now)
        self.cancelled: list[int] = []  # trials that have ended while their workers still run them

    def replan(self, spec: Spec) -> StudyPromotion | None:
        """Continue with another budget, on which promotions depend; these."""
        self.spec = spec
        self.judged = judged_study(self.study, spec)
        self.tally.audit_sample = AuditSample.of(spec)
        if self.promotion is not None:
            self.promotion = StudyPromotion(spec, self.storage)
        self.study.set_user_attr(SPEC, spec.to_json())
        return self.promotion

    @property
    def trials(self) -> Sequence[FrozenTrial]:
        """All trials of the study as they are now, by number; read-only."""
        return self.storage.trials

    @property
    def best(self) -> FrozenTrial | None:
        """The best complete trial of the search."""
        return next(iter(self.tally.best(1)), None)

    def folder(self, number: int) -> Path:
        """The folder of a trial's files."""
        return trial_folder(self._runs, self._folder_name, number)

    def step_of(self, number: int | None) -> int:
        """The last step of a trial; 0 for a new one."""
        return 0 if number is None else self.trials[number].last_step or 0

    def flush(self) -> None:
        """Write to the database; wait for it, and tell the user, while it cannot be written.

        A trial fails if the database refuses any of its data.
        """
        try:
            patiently(self.storage.flush, self._say_that_it_waits)
        except StorageError as error:
            raise SearchError(str(error)) from error
        for number, refusal in self.storage.take_refused().items():
            running = self.detach_from_worker(number)
            running.metrics.clear()  # one of them may be the cause
            self.fail(running, f"the database refuses what it reported: {refusal}")

    def _say_that_it_waits(self, message: str) -> None:
        leave = "; another signal leaves without waiting, and trials resume from their checkpoints"
        self.say(message + (leave if self.clock.stopped else ""))

    def close(self, *, hurried: bool) -> None:
        """Requeue what still runs, and write what is not written yet.

        A `hurried` end does not wait for a database that cannot be written now.
        """
        self.requeue_all()
        self.clock.close()
        try:
            if not hurried:
                self.flush()
                return
            self.storage.flush()
        except DatabaseUnavailable as error:
            self.say(f"left without writing ({error}); the same command resumes from the last checkpoints")
        finally:
            self.storage.close()

    # Beginning

    def enqueue_baseline(self) -> None:
        """Enqueue the space's baseline, if it has one, in a study of which no trial has begun.

        It is the first trial, but for those that somebody has asked for before.
        """
        baseline = self.spec.space.baseline()
        begun = any(trial.datetime_start is not None or is_baseline(trial) for trial in self.trials)
        if baseline is not None and not begun:
            labels = labelled(self.spec.space, self.spec.parameters, baseline)
            self.study.enqueue_trial(labels, user_attrs={"baseline": True})

    def begin(self, enqueued: FrozenTrial | None = None) -> RunningTrial:
        """Begin a new trial, or an enqueued one. Raises `InvalidTrial`."""
        # `Study.ask` would take the first waiting trial, even one that must not resume now.
        self.study._thread_local.cached_all_trials = None
        if enqueued is None:
            trial_id = self.storage.create_new_trial(self.study._study_id)
        else:
            trial_id = enqueued._trial_id
            self.storage.set_trial_state_values(trial_id, TrialState.RUNNING)
        folder = self.folder(self.storage.get_trial_number_from_id(trial_id))
        if folder.exists():  # of a trial that the database has lost: restored from a backup, or not written
            remove_folder(folder)
        return self._configured(trial_id)

    def resume(self, waiting: FrozenTrial, *, promoted: bool = False) -> RunningTrial:
        """Resume a trial of an earlier search or attempt, with its number, parameters and reports."""
        if self.promotion is not None and at_rung(waiting):
            (self.promotion.promote if promoted else self.promotion.leave)(waiting)
        self.storage.set_trial_state_values(waiting._trial_id, TrialState.RUNNING)
        return self._restore_progress(self._configured(waiting._trial_id), waiting)

    def assignment(self, running: RunningTrial) -> Assignment:
        """What the worker of a trial needs, which has it now."""
        running.is_assigned = True
        return Assignment(
            number=running.number,
            params=nested(self.spec.space.passed(running.config)),
            seed=seed_of(self.spec, self.trials[running.number]),
            folder=self.folder(running.number),
            reported=running.reported,
        )

    def _configured(self, trial_id: int) -> RunningTrial:
        """Complete the configuration of a trial, and write it to the study and to the trial's folder."""
        space = self.spec.space
        try:
            given = self._checked_labels(trial_id)
            trial = optuna.Trial(self.study, trial_id)
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always", UserWarning)
                config = space.resolve(lambda name, parameter: suggest(trial, name, parameter))
            if misfits := list(space.misfits(config, given, "trial") if given else ()):
                raise ValueError(in_words(misfits))
        except ValueError as error:  # another program enqueued it, with values that do not fit the space
            trial = optuna.Trial(self.study, trial_id)
            raise InvalidTrial(self._register(trial, {}), str(error)) from error
        except SearchError:  # no configuration satisfies the constraints: it waits for other constraints
            self.storage.requeue(self.storage.get_trial(trial_id).number)
            raise
        for warning in warned:
            self.say(f"trial {trial.number}: {warning.message}")
        for name, value in config.items():
            if isinstance(self.spec.parameters[name], Derived) and name not in RESERVED_ATTRS:
                trial.set_user_attr(name, value)
        provenance = self.study.user_attrs.get(PROVENANCE, {})
        folder, stored = self.folder(trial.number), self.trials[trial.number]
        if self._threads not in (None, threads_of(stored, provenance)):
            self.storage.set_trial_system_attr(trial_id, THREADS, self._threads)
        content = document(self.spec, stored, provenance, folder=folder, config=config)
        path = folder / CONFIG
        try:
            make_folder(folder)
            write(path, render(content, "json"))
        except OSError as error:
            told = f"cannot write {path}: {error.strerror}; the same command resumes the search"
            raise SearchError(told) from error
        return self._register(trial, config)

    def _checked_labels(self, trial_id: int) -> dict[str, Any]:
        """The labels of a trial that another program enqueued; `ValueError` if they do not fit the space."""
        trial = self.storage.get_trial(trial_id)
        fixed = trial.system_attrs.get(FIXED_PARAMS, {})
        if CONFIRMS in trial.user_attrs or trial.last_step is not None:
            return {}  # our own trial, or checked before
        labels = enqueued_labels(self.spec, {**trial.params, **fixed})
        spelled = {name: labels[name] for name in fixed}
        if str(spelled) != str(fixed):  # 5.0 for the space's 5, a list for Optuna's text
            self.storage.set_trial_system_attr(trial_id, FIXED_PARAMS, spelled)
        return labels

    def _restore_progress(self, running: RunningTrial, waiting: FrozenTrial) -> RunningTrial:
        """Restore the progress of earlier attempts."""
        folder = self.folder(waiting.number)
        running.reported = waiting.last_step or 0
        running.trained = trained_to(waiting)
        running.attempt.begun_at = running.reported if has_checkpoint(folder) else 0
        running.attempts = 1 + int(waiting.user_attrs.get("retries", 0))
        for report in read_reports(folder / METRICS, repair=True):
            if report.step <= running.reported:
                running.metrics.update(report.metrics)
        return running

    def _register(self, trial: optuna.Trial, config: dict[str, Any]) -> RunningTrial:
        running = RunningTrial(trial, config, now=self.clock.now)
        running.used_before = usage_of(self.trials[trial.number]) or Usage()
        self.running[trial.number] = running
        self.clock.counts = True
        return running

    # Waiting

    def requeue(self, number: int) -> None:
        """Requeue a running trial, with its reports and checkpoint, for this or a later search."""
        self._unregister(self.running[number])
        if self.clock.requeues and self.clock.asked_by is not None:
            event = {"kind": "requeued", "reason": f"asked by {self.clock.asked_by}"}
            self.storage.add_event(self.trials[number], event)
        self.storage.requeue(number)
        self.flush()

    def revive(self, numbers: Iterable[int], without: Collection[str]) -> None:
        """Requeue failed trials, without these attributes."""
        for number in numbers:
            self.storage.revive(number, without)
        if self.promotion is not None:
            self.promotion.read()  # they return to their rungs, and take slots again

    def requeue_all(self) -> None:
        """Requeue the trials that run in the study, while no worker runs any."""
        for running in list(self.running.values()):
            self._unregister(running)
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if not at_rung(trial):
                self.storage.requeue(trial.number)

    def pause(self, running: RunningTrial) -> str:
        """Pause a trial at its rung, with its checkpoint. Returns its standing there, as a sentence."""
        assert self.promotion is not None
        event = self.promotion.pause(self.trials[running.number])
        self._unregister(running)
        self.flush()
        return event

    def _unregister(self, running: RunningTrial) -> None:
        """A trial does not run any more. Its cost is stored in the study, for later resumes."""
        del self.running[running.number]
        cost = running.attempt.cost
        if cost is not None:
            self.storage.set_trial_system_attr(running.trial._trial_id, COST_ATTR, cost.to_json())
        took = running.seconds if running.attempt.seconds is None else running.attempt.seconds
        took += self.trials[running.number].system_attrs.get(TOOK, 0.0)
        self.storage.set_trial_system_attr(running.trial._trial_id, TOOK, round(took, 3))
        self.accounts.note(running)
        if running.trained > (self.trials[running.number].last_step or 0):
            self.storage.set_trial_system_attr(running.trial._trial_id, TRAINED, running.trained)

    # Ending

    def complete(self, running: RunningTrial, value: float) -> None:
        """End a trial with its value."""
        advice = when_worse(self.spec, running.config, self.folder(running.number), self.best)
        if advice is not None:
            running.trial.set_user_attr("reason", advice)
        self._write_ended([self._ended(running, TrialState.COMPLETE, value)])

    def stop(self, running: RunningTrial, stop: Stop) -> str:
        """End a trial early. Returns why, in a sentence.

        One whose configuration cannot be trained becomes infeasible, so that samplers avoid it. Optuna ranks
        infeasible trials last; its dashboard reads only the older `constraints` attribute.
        """
        if (constraint := stop.untrainable) is not None:
            folder = self.folder(running.number)
            reason = with_advice(stop.reason, self.spec, running.config, folder, constraint, self.best)
            stop = replace(stop, reason=reason)
            running.trial.set_constraint(constraint, 1.0)
            self.storage.set_trial_system_attr(running.trial._trial_id, "constraints", [1.0])
        self._write_ended([self._stopped(running, TrialState.PRUNED, stop)])
        return stop.reason

    def end_out_of_time(self, number: int) -> None:
        """End a trial for which there is no time left, without a report of its own."""
        self.stop(self.detach_from_worker(number), Stop("over", "the time of the search is over"))

    def stop_paused(self, numbers: Iterable[int], stop: Stop | None = None) -> None:
        """End paused trials in one transaction; by default because they cannot be promoted."""
        ended = []
        for number in numbers:
            assert self.promotion is not None
            trial = self.trials[number]
            why = stop or self.promotion.stop_of_paused(trial)
            self.promotion.leave(trial)
            # There may be hundreds, so their configurations are not resolved again.
            running = self._register(
                optuna.Trial(self.study, trial._trial_id), dict.fromkeys(self.spec.parameters)
            )
            self._restore_progress(running, trial)
            ended.append(self._stopped(running, TrialState.PRUNED, why))
        self._write_ended(ended)

    def stop_all_paused(self, most: int | None = None) -> None:
        """End all paused trials, or at most `most` of them."""
        self.stop_paused([trial.number for trial in self.tally.open if at_rung(trial)][:most])

    def fail(self, running: RunningTrial, error: str, stop: Stop | None = None) -> None:
        """End a trial with an error, which is also the reason unless `stop` gives another."""
        running.trial.set_user_attr("error", error)
        self._write_ended([self._stopped(running, TrialState.FAIL, stop or failed(error))])

    def adopt_foreign_end(self, foreign: FrozenTrial) -> None:
        """End a trial here as another program has ended it in the database."""
        running, stop = self.detach_from_worker(foreign.number), Stop("foreign", "ended by another program")
        self._write_ended([self._stopped(running, foreign.state, stop, foreign.value)])

    def detach_from_worker(self, number: int) -> RunningTrial:
        """Take a trial that is to end from its worker, which is to be killed, or from the waiting ones."""
        if number not in self.running:
            return self.resume(self.trials[number])
        self.cancelled.append(number)
        return self.running[number]

    def _stopped(
        self, running: RunningTrial, state: TrialState, stop: Stop, value: float | None = None
    ) -> FrozenTrial:
        """End a trial in memory that does not run to its end."""
        stop.note(self.storage, running.trial._trial_id)
        return self._ended(running, state, value)

    def _ended(self, running: RunningTrial, state: TrialState, value: float | None = None) -> FrozenTrial:
        """End a trial in memory."""
        trial = running.trial
        for name, metric in running.metrics.items():
            taken = name in RESERVED_ATTRS or name in running.config
            trial.set_user_attr(f"last_{name}" if taken else name, metric)
        for key, meta in artifact_attrs(self._runs, self._folder_name, trial.number).items():
            self.storage.set_trial_system_attr(trial._trial_id, key, meta)
        self._unregister(running)
        return self.judged.tell(trial, value, state=state)

    def _write_ended(self, ended: Sequence[FrozenTrial]) -> None:
        """Write trials that have ended, then update rungs and checkpoints."""
        if not ended:
            return
        self.clock.note()
        self.flush()
        # A failed trial keeps its checkpoint for a retry.
        drop_checkpoints(self.folder(t.number) for t in ended if t.state == TrialState.PRUNED)
        for trial in ended:
            if self.trials[trial.number].state != trial.state:
                continue  # the database has refused its end, so it has failed instead
            if self.promotion is not None:
                self.promotion.ended(trial)
            if trial.state == TrialState.COMPLETE:
                self._keep_best_checkpoints(trial)
            self._on_end(trial)

    def _keep_best_checkpoints(self, ended: FrozenTrial) -> None:
        """Delete the checkpoint, if any, that is no longer among those to keep."""
        drop_seal(self.folder(ended.number))
        before = self._checkpoints_to_keep(but=ended.number) | {ended.number}
        for number in before - self._checkpoints_to_keep():
            drop_checkpoint(self.folder(number))

    def _checkpoints_to_keep(self, but: int | None = None) -> set[int]:
        """The trials whose checkpoints are kept: the best ones, and those that may be confirmed.

        `but`: a trial to leave out.
        """
        keep, confirms = self.spec.execution.keep, ConfirmationSize.asked(self.spec).top
        best = self.tally.best(keep, but=but)
        if keep and confirms:
            best += self.tally.best(confirms, baseline=False, but=but)
        return {trial.number for trial in best}
