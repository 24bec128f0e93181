"""The life of a study's trials: how each begins, waits, is taken up again and ends.

Whoever decides these things says which and why; here is what then becomes of a trial, its folder and its
checkpoint. That a trial waits or has ended is in the database when the call returns; that one has begun is
written by `flush`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from ...objectives.guides import RunEnd
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
from ...storage.states import (
    AT_RUNG,
    AUDITED,
    CONFIRMS,
    CONFIRMS_SEED,
    EVENTS,
    TOOK,
    TRAINED,
    at_rung,
    trained_to,
)
from ...storage.studies import PROVENANCE, folder_in
from ..errors import SearchError
from ..sampling.distributions import enqueued_labels, in_words, labelled, suggest
from ..scheduling.standings import FIXED_PARAMS
from ..scheduling.study_promotion import StudyPromotion
from ..trials.advice import when_worse, with_advice
from ..trials.export import document, render, seed_of
from ..trials.reports import repaired_reports
from .clock import SearchClock
from .confirmation import confirmation_candidates, outstanding_confirmations
from .confirmation_size import ConfirmationSize
from .costs import COST_ATTR
from .running import Assignment, RunningTrial
from .tally import Tally

RESERVED_ATTRS = frozenset(
    {"baseline", "error", "reason", "retries", "traceback", AT_RUNG, AUDITED, EVENTS, CONFIRMS, CONFIRMS_SEED}
)  # no metric or parameter takes one


class InvalidTrial(Exception):
    """A trial that another program put up has parameters that the space has no place for."""

    def __init__(self, running: RunningTrial, what: str) -> None:
        super().__init__(what)
        self.running = running


class TrialLifecycle:
    """The trials of one study, those that run above all."""

    def __init__(
        self,
        spec: Spec,
        study: optuna.Study,
        storage: LiveStorage,
        *,
        runs: Path,
        clock: SearchClock,
        promotion: StudyPromotion | None,
        say: Callable[[str], None],
        on_end: Callable[[FrozenTrial], None],
    ) -> None:
        """`say` tells whoever watches, `on_end` that a trial has ended."""
        self._spec = spec
        self._study = study
        self._storage = storage
        self._runs = runs
        self._folder_name = folder_in(study.user_attrs, spec.name)  # under `runs`
        self._clock = clock
        self._promotion = promotion
        self._say = say
        self._on_end = on_end
        self._candidates: tuple[int, dict[ConfirmationSize, list[FrozenTrial]]] | None = (
            None  # as of so many changes
        )
        self.tally = Tally(spec, storage)
        self.running: dict[int, RunningTrial] = {}
        self.cancelled: list[int] = []  # trials that ended while their workers do not know

    @property
    def trials(self) -> Sequence[FrozenTrial]:
        """All of the study as they are now, in order of number; not to be changed."""
        return self._storage.trials

    @property
    def best(self) -> FrozenTrial | None:
        """The best complete trial of the search."""
        return next(iter(self.tally.best(1)), None)

    def confirmation_candidates(self, size: ConfirmationSize) -> list[FrozenTrial]:
        """Who is to be confirmed: looked for once, where a report asks several times."""
        changes = self._storage.changes
        if self._candidates is None or self._candidates[0] != changes:
            self._candidates = changes, {}
        known = self._candidates[1]
        if size not in known:
            known[size] = confirmation_candidates(self._spec, size, self.tally.confirmation_pool(size.top))
        return known[size]

    def outstanding_confirmations(self, size: ConfirmationSize) -> list[tuple[FrozenTrial, int]]:
        """What is still to be put up to confirm the best: a trial and the number of the seed."""
        return outstanding_confirmations(self.confirmation_candidates(size), size, self.tally.confirming)

    def folder(self, number: int) -> Path:
        """Where a trial has its files."""
        return trial_folder(self._runs, self._folder_name, number)

    def step_of(self, number: int | None) -> int:
        """The last step of a trial; 0 of one that has not begun."""
        return 0 if number is None else self.trials[number].last_step or 0

    def flush(self) -> None:
        """Write to the database; wait for it, and say so, while it cannot be written.

        A trial of which it refuses something fails.
        """
        try:
            patiently(self._storage.flush, self._say_that_it_waits)
        except StorageError as error:
            raise SearchError(str(error)) from error
        for number, told in self._storage.take_refused().items():
            running = self.detach_from_worker(number)
            running.metrics.clear()  # which may be what it was
            self.fail(running, f"the database does not take what it told: {told}")

    def _say_that_it_waits(self, message: str) -> None:
        leave = "; another signal leaves without it, and trials go on from their checkpoints"
        self._say(message + (leave if self._clock.stopped else ""))

    def close(self, *, hurried: bool) -> None:
        """Put back what is still running and write what is still unwritten.

        A `hurried` end does not wait for a database that cannot be written now.
        """
        self.requeue_all()
        self._clock.close()
        try:
            if not hurried:
                self.flush()
                return
            self._storage.flush()
        except DatabaseUnavailable as error:
            self._say(f"left without writing ({error}); the same command goes on from the last checkpoints")
        finally:
            self._storage.close()

    # Beginning

    def enqueue_baseline(self) -> None:
        """Let a new study begin with the space's baseline, if it has one."""
        baseline = self._spec.space.baseline()
        if baseline is not None and not self.trials:
            labels = labelled(self._spec.space, self._spec.parameters, baseline)
            self._study.enqueue_trial(labels, user_attrs={"baseline": True})

    def begin(self, enqueued: FrozenTrial | None = None) -> RunningTrial:
        """A new trial, or one that was put up and has not begun. Raises `InvalidTrial`."""
        # As `Study.ask` does it, which would take whoever waits first, one that is not to go on as well.
        self._study._thread_local.cached_all_trials = None
        if enqueued is None:
            trial_id = self._storage.create_new_trial(self._study._study_id)
        else:
            trial_id = enqueued._trial_id
            self._storage.set_trial_state_values(trial_id, TrialState.RUNNING)
        folder = self.folder(self._storage.get_trial_number_from_id(trial_id))
        if folder.exists():  # of one that the database lost: it was put back from a backup, or not written
            remove_folder(folder)
        return self._configured(trial_id)

    def resume(self, waiting: FrozenTrial, *, promoted: bool = False) -> RunningTrial:
        """Go on with a trial of an earlier search or attempt, in place: same number, parameters, reports."""
        if self._promotion is not None and at_rung(waiting):
            self._promotion.leave_rung(waiting, promoted=promoted)
        self._storage.set_trial_state_values(waiting._trial_id, TrialState.RUNNING)
        return self._restore_progress(self._configured(waiting._trial_id), waiting)

    def assignment(self, running: RunningTrial) -> Assignment:
        """What the worker of a trial is to be told."""
        return Assignment(
            number=running.number,
            params=nested(self._spec.space.passed(running.config)),
            seed=seed_of(self._spec, self.trials[running.number]),
            folder=self.folder(running.number),
            reported=running.reported,
        )

    def _configured(self, trial_id: int) -> RunningTrial:
        """The trial with its whole configuration, as far as it has none yet, in the study and its folder."""
        space = self._spec.space
        try:
            given = self._checked_labels(trial_id)
            trial = optuna.Trial(self._study, trial_id)
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always", UserWarning)
                config = space.resolve(lambda name, parameter: suggest(trial, name, parameter))
            if misfits := list(space.misfits(config, given, "trial") if given else ()):
                raise ValueError(in_words(misfits))
        except ValueError as error:  # another program put it up, with what is none of the space
            trial = optuna.Trial(self._study, trial_id)
            raise InvalidTrial(self._register(RunningTrial(trial, {})), str(error)) from error
        except SearchError:  # nothing satisfies the constraints: it waits for other ones
            self._storage.suspend(self._storage.get_trial(trial_id).number)
            raise
        for warning in warned:
            self._say(f"trial {trial.number}: {warning.message}")
        for name, value in config.items():
            if isinstance(self._spec.parameters[name], Derived) and name not in RESERVED_ATTRS:
                trial.set_user_attr(name, value)
        provenance = self._study.user_attrs.get(PROVENANCE, {})
        folder = self.folder(trial.number)
        content = document(self._spec, self.trials[trial.number], provenance, folder=folder)
        path = folder / CONFIG
        try:
            make_folder(folder)
            write(path, render(content, "json"))
        except OSError as error:
            raise SearchError(f"cannot write {path}: {error.strerror}; the same command goes on") from error
        return self._register(RunningTrial(trial, config))

    def _checked_labels(self, trial_id: int) -> dict[str, Any]:
        """What another program put a trial up with; raises `ValueError` where that is none of the space."""
        trial = self._storage.get_trial(trial_id)
        fixed = trial.system_attrs.get(FIXED_PARAMS, {})
        if CONFIRMS in trial.user_attrs or trial.last_step is not None:
            return {}  # ours, or let begin before
        labels = enqueued_labels(self._spec, {**trial.params, **fixed})
        spelled = {name: labels[name] for name in fixed}
        if str(spelled) != str(fixed):  # 5.0 where the space has 5, a list where Optuna has a text
            self._storage.set_trial_system_attr(trial_id, FIXED_PARAMS, spelled)
        return labels

    def _restore_progress(self, running: RunningTrial, waiting: FrozenTrial) -> RunningTrial:
        """With what earlier attempts came to."""
        folder = self.folder(waiting.number)
        running.reported = waiting.last_step or 0
        running.trained = trained_to(waiting)
        running.attempt.begun_at = running.reported if has_checkpoint(folder) else 0
        running.attempts = 1 + int(waiting.user_attrs.get("retries", 0))
        for report in repaired_reports(folder / METRICS):
            if report.step <= running.reported:
                running.metrics.update(report.metrics)
        return running

    def _register(self, running: RunningTrial) -> RunningTrial:
        self.running[running.number] = running
        self._clock.counts = True
        return running

    # Waiting

    def requeue(self, number: int) -> None:
        """Let a trial wait, with its reports and checkpoint, for this or a later search."""
        self._unregister(self.running[number])
        self._storage.suspend(number)
        self.flush()

    def revive(self, numbers: Iterable[int], without: Collection[str]) -> None:
        """Let failed trials wait to be tried again, without these attributes."""
        for number in numbers:
            self._storage.revive(number, without)
        if self._promotion is not None:
            self._promotion.read()  # at a rung they go on, and take places of those that may

    def requeue_all(self) -> None:
        """Let what runs in the study, while no worker of ours runs it, wait to be taken up again."""
        self.running.clear()
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if not at_rung(trial):
                self._storage.suspend(trial.number)

    @property
    def paused(self) -> int:
        """How many trials wait at rungs."""
        return 0 if self._promotion is None else self._promotion.paused

    def pause(self, running: RunningTrial) -> str:
        """Let a trial wait at its rung, with its checkpoint; how it stands there."""
        assert self._promotion is not None
        told = self._promotion.pause(self.trials[running.number])
        self._unregister(running)
        self.flush()
        return told

    def _unregister(self, running: RunningTrial) -> None:
        """A trial runs no more. What it costs is noted in the study, for the searches that go on with it."""
        del self.running[running.number]
        cost = running.attempt.cost
        if cost is not None:
            self._storage.set_trial_system_attr(running.trial._trial_id, COST_ATTR, cost.to_json())
        took = running.seconds if running.attempt.seconds is None else running.attempt.seconds
        took += self.trials[running.number].system_attrs.get(TOOK, 0.0)
        self._storage.set_trial_system_attr(running.trial._trial_id, TOOK, round(took, 3))
        if running.trained > running.reported:
            self._storage.set_trial_system_attr(running.trial._trial_id, TRAINED, running.trained)

    # Ending

    def complete(self, running: RunningTrial, value: float) -> None:
        """End a trial with its value."""
        told = when_worse(self._spec, running.config, self.folder(running.number), self.best)
        self._write_ended([self._ended(running, TrialState.COMPLETE, told, value)])

    def prune(self, running: RunningTrial, reason: str) -> None:
        """End a trial for a reason of the search's."""
        self._write_ended([self._ended(running, TrialState.PRUNED, reason)])

    def prune_unusable(self, running: RunningTrial, constraint: RunEnd, reason: str) -> str:
        """End a trial whose configuration cannot be trained; samplers learn to keep away from it.

        Optuna ranks infeasible trials last. Its dashboard reads only the older list of constraints.
        """
        folder = self.folder(running.number)
        reason = with_advice(reason, self._spec, running.config, folder, constraint, self.best)
        running.trial.set_constraint(constraint, 1.0)
        self._storage.set_trial_system_attr(running.trial._trial_id, "constraints", [1.0])
        self.prune(running, reason)
        return reason

    def end_out_of_time(self, number: int) -> None:
        """End a trial for which there is no time left, though it has not reported."""
        self.prune(self.detach_from_worker(number), "the time is over")

    def prune_waiting(self, numbers: Iterable[int], reason: str | None = None) -> None:
        """End trials that wait at a rung, in one transaction; by default because they wait in vain."""
        ended = []
        for number in numbers:
            assert self._promotion is not None
            why, trial = reason or self._promotion.why_not_promoted(number), self.trials[number]
            self._promotion.leave_rung(trial)
            # None of what may be hundreds is configured again.
            running = RunningTrial(
                optuna.Trial(self._study, trial._trial_id), dict.fromkeys(self._spec.parameters)
            )
            running = self._restore_progress(self._register(running), trial)
            ended.append(self._ended(running, TrialState.PRUNED, why))
        self._write_ended(ended)

    def prune_all_waiting(self, most: int | None = None) -> None:
        """End those that wait at rungs, or so many of them."""
        self.prune_waiting([trial.number for trial in self.tally.open if at_rung(trial)][:most])

    def fail(self, running: RunningTrial, error: str, reason: str | None = None) -> None:
        """End a trial for an error; the reason is that, where no other is given."""
        running.trial.set_user_attr("error", error)
        self._write_ended([self._ended(running, TrialState.FAIL, reason or error)])

    def adopt_foreign_end(self, foreign: FrozenTrial) -> None:
        """End a trial as another program did."""
        running = self.detach_from_worker(foreign.number)
        ended = self._ended(running, foreign.state, "ended by another program", foreign.value)
        self._write_ended([ended])

    def detach_from_worker(self, number: int) -> RunningTrial:
        """A trial that is to end without a word of its own, from its worker or from among those that wait."""
        if number not in self.running:
            return self.resume(self.trials[number])
        self.cancelled.append(number)
        return self.running[number]

    def _ended(
        self, running: RunningTrial, state: TrialState, reason: str | None, value: float | None = None
    ) -> FrozenTrial:
        """The trial, ended in memory."""
        trial = running.trial
        if reason is not None:
            trial.set_user_attr("reason", reason)
        for name, metric in running.metrics.items():
            taken = name in RESERVED_ATTRS or name in running.config
            trial.set_user_attr(f"last_{name}" if taken else name, metric)
        for key, meta in artifact_attrs(self._runs, self._folder_name, trial.number).items():
            self._storage.set_trial_system_attr(trial._trial_id, key, meta)
        self._unregister(running)
        return self._study.tell(trial, value, state=state)

    def _write_ended(self, ended: Sequence[FrozenTrial]) -> None:
        """Write trials that have ended, and do what follows."""
        if not ended:
            return
        self._clock.note()
        self.flush()
        # A failed one keeps its checkpoint: it may be tried again.
        drop_checkpoints(self.folder(t.number) for t in ended if t.state == TrialState.PRUNED)
        for trial in ended:
            if self.trials[trial.number].state != trial.state:
                continue  # the database has refused its end, and it has failed meanwhile
            if self._promotion is not None:
                self._promotion.ended(trial)
            if trial.state == TrialState.COMPLETE:
                self._keep_best_checkpoints(trial)
            self._on_end(trial)

    def _keep_best_checkpoints(self, ended: FrozenTrial) -> None:
        """Delete the checkpoint of the trial that this end put out of those that are kept, if any."""
        drop_seal(self.folder(ended.number))
        for number in (
            self._checkpoints_to_keep(but=ended.number) | {ended.number}
        ) - self._checkpoints_to_keep():
            drop_checkpoint(self.folder(number))

    def _checkpoints_to_keep(self, but: int | None = None) -> set[int]:
        """The trials whose checkpoints are kept: the best few, and who may be confirmed the winner.

        As if there were not the trial `but`, where that is asked.
        """
        keep, confirms = self._spec.execution.keep, ConfirmationSize.asked(self._spec).top
        best = self.tally.best(keep, but=but)
        if keep and confirms:
            best += self.tally.best(confirms, baseline=False, but=but)
        return {trial.number for trial in best}
