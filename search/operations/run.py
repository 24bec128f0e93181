"""Search from Python: `run` a space, `open_study` what was searched."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import optuna
from optuna.trial import FrozenTrial

from ...objectives.resolve import describe
from ...spaces import SpaceError, Spec, differences
from ...storage import StorageError, database, files, provenance, rows, studies
from ...storage.connection import BUSY_SECONDS, patiently
from ..backends import make_backend
from ..engine.confirmation import best_of, outcome, overlooked
from ..engine.driver import Driver, Watcher
from ..engine.guardian import guarded
from ..errors import SearchError, UsageError
from ..exchange.trackers.study import Tracking
from ..preflight import checks
from ..preflight.memory import Memory
from ..preflight.requirements import check_extras
from ..results.audit import Audited
from ..results.commands import command, finding
from ..results.confirmation import Confirmed
from ..results.note import write_note
from ..sampling.optuna_samplers import make_pruner
from ..scheduling import audit
from ..trials.configuration import config_of, has_config
from ..trials.retries import failed_in_words, worth_retrying

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

    from ..backends.base import Backend


@dataclass(frozen=True)
class Best:
    """The best complete trial."""

    number: int
    value: float
    params: dict[str, Any]  # searched, constant and derived values by name
    folder: Path  # its checkpoint, reports and configuration
    confirmed: Confirmed | None = None  # what training it again told


@dataclass(frozen=True)
class StudyResult:
    """A study as it stands."""

    name: str
    study: optuna.Study
    spec: Spec
    storage: str = field(repr=False)  # the database's URL, which may hold a password
    runs: Path  # where the studies of this database keep their files
    ran: int = 0  # trials that ended in the search that returned this; 0 where it was only opened
    stop_reason: str | None = None  # why that search ended before its trials were all asked, if it did
    stopped: bool = False  # by somebody, before its budget was spent: the same search again goes on
    interrupted: bool = False  # by a signal

    @property
    def best(self) -> Best:
        """The winner. Raises `SearchError` while no trial is complete."""
        trial = self.best_trial
        if trial is None:
            raise SearchError(f'no trial of "{self.name}" has run to its end yet, so there is no winner')
        assert trial.value is not None
        folder = files.trial_folder(self.runs, self.folder_name, trial.number)
        return Best(trial.number, trial.value, config_of(self.spec, trial), folder, self.confirmed)

    @property
    def folder_name(self) -> str:
        """The name of the study's folder under `runs`."""
        return studies.folder_in(self.study.user_attrs, self.spec.name)

    @property
    def best_trial(self) -> FrozenTrial | None:
        """The winner as Optuna's trial; None while no trial is complete."""
        confirmed = self.confirmed
        if confirmed is not None and has_config(self.spec, self._trials[confirmed.winner]):
            return self._trials[confirmed.winner]
        return next(iter(best_of(self.spec, self._trials, 1)), None)

    @property
    def confirmed(self) -> Confirmed | None:
        """What training the best again told; None where that was not done, or not to an end."""
        return outcome(self.spec, self._trials)

    @property
    def overlooked(self) -> FrozenTrial | None:
        """The best of the search, where others were trained again: it came later, or its trainings failed."""
        return overlooked(self.spec, self._trials)

    @property
    def audited(self) -> Audited | None:
        """What came of the trials that were to stop and went on; None where there was none."""
        return audit.outcome(self.spec, self._trials)

    @property
    def baseline(self) -> FrozenTrial | None:
        """The baseline's trial; None where the space has none, or it has not begun."""
        return next((t for t in self._trials if "baseline" in t.user_attrs), None)

    @property
    def trials(self) -> pandas.DataFrame:
        """One row per trial: number, state, value, times, and parameters and attributes under prefixes."""
        return self.study.trials_dataframe(
            (
                "number",
                "value",
                "state",
                "datetime_start",
                "datetime_complete",
                "duration",
                "params",
                "user_attrs",
            )
        )

    @cached_property
    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        """Optuna's plotly figures by name; call one to draw it."""
        from optuna import visualization as plots

        value = self.spec.metric
        return {
            "history": lambda: plots.plot_optimization_history(self.study, target_name=value),
            "curves": lambda: plots.plot_intermediate_values(self.study),
            "importance": lambda: plots.plot_param_importances(self.study, target_name=value),
            "parallel": lambda: plots.plot_parallel_coordinate(self.study, target_name=value),
            "slice": lambda: plots.plot_slice(self.study, target_name=value),
            "contour": lambda: plots.plot_contour(self.study, target_name=value),
            "edf": lambda: plots.plot_edf(self.study, target_name=value),
            "timeline": lambda: plots.plot_timeline(self.study),
        }

    @property
    def provenance(self) -> dict[str, Any]:
        """Versions, commit, backend and start of the study."""
        found: dict[str, Any] = self.study.user_attrs.get(studies.PROVENANCE, {})
        return found

    @property
    def _trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)


def run(
    space: str | Path | Spec,
    *,
    objective: Callable[[Any], float] | None = None,
    backend: str = "optuna",
    storage: str | None = None,
    runs: str | Path | None = None,
    watcher: Watcher | None = None,
    ray_address: str | None = None,
    began: float | None = None,
    **changes: Any,
) -> StudyResult:
    """Search a space, or go on where an earlier search of the same name stopped.

    `space` is a file, the name of one that ships, or a loaded `Spec`. `objective` replaces the file's by a
    function of this process. `changes` go over the file's fields, as in `budget={"trials": 80}`,
    `execution={"workers": 4}` or `name="mine"`. Reports progress by lines, or to a `watcher`.

    `ray_address` is that of a Ray cluster: "auto" on one of its nodes, or "host:port". Without one, the Ray
    backend runs in the Ray that this process is connected to, or else starts its own.

    `began`: since when, by the monotonic clock, the time of the search counts; by default since this call.

    Raises `SpaceError`, `ObjectiveError`, `StorageError` or `SearchError` with what to do about it.
    """
    began = time.monotonic() if began is None else began
    spec = space if isinstance(space, Spec) else checks.load_space(space)
    if objective is not None:
        changes["objective"] = _name_of(objective)
    spec = spec.override(**changes) if changes else spec
    if objective is None:
        checks.check_objective(spec)
    check_extras(spec)
    if watcher is None:
        from ..cli.progress import LineProgress

        watcher = LineProgress()
    url = database.resolve_url(storage)
    folder = files.runs_folder(url, runs)
    options = {"address": ray_address} if ray_address is not None else {}
    described = describe(spec.objective_words, objective, spec.passed)
    worker_backend = make_backend(backend, spec, described, **options)
    studies.quiet_optuna()
    opened = patiently(lambda: database.open_storage(url, create=True, wait=BUSY_SECONDS), watcher.say)
    _refuse_steps(spec, rows.largest_step(opened.engine))
    name = spec.name
    file = database.sqlite_file(url)
    claim = patiently(lambda: studies.claim_of(opened, name, folder, file), watcher.say)
    kept = claim.kept
    if kept != name:
        watcher.say(f"the files of this study are in {claim.folder}")
    with claim, files.driver_lock(url, folder, kept), guarded(url, folder, name, kept=kept):
        if not claim.take():
            raise StorageError(f"{claim.folder} was taken by another study; the same command takes another")
        about = _about(spec, backend, worker_backend.threads)
        about |= {studies.FOLDER: kept, studies.ID: claim.study}
        attrs = patiently(lambda: studies.attrs_of(opened, name), watcher.say)
        memory = _memory(spec, worker_backend, attrs or {}, watcher)
        live = patiently(lambda: studies.open_live(opened, name, goal=spec.goal, attrs=about), watcher.say)
        with closing(live):
            spec = spec.override(name=live.born)  # brackets go by it
            _refuse_changes(spec, live.attrs[studies.SPEC])
            _refuse_other_texts(spec, live.attrs.get(studies.TEXTS, {}), about[studies.TEXTS])
            if memory is not None:
                spec = spec.limited(memory.problem)
            tracking = Tracking(watcher, spec, live.attrs, folder) if spec.report_to else None
            driver = Driver(
                spec,
                live,
                runs=folder,
                watcher=tracking or watcher,
                pruner=worker_backend.pruner,
                slots=worker_backend.slots,
                leaving=worker_backend.leaving,
                begun=began,
                memory=memory,
            )
            before = sum(t.state.is_finished() for t in driver.trials)
            driver.study.set_user_attr(studies.SPEC, spec.to_json())  # with this run's budget and execution
            _explain(driver, named=objective is None)
            again = command("retry", live.name, "--failed", *finding(storage, runs))
            if (failed := _failed_before(driver)) is not None:
                more = f"; to try again, also while this search runs: {again}"
                driver.say(failed + more * worth_retrying(driver.trials))
            try:
                interrupted = _drive(driver, worker_backend)
            finally:
                if tracking is not None:
                    tracking.close(driver.trials)
    if driver.fatal:
        more = f"\nmend it, and try again: {again}"
        raise SearchError(driver.fatal + more * worth_retrying(driver.trials))
    ran = sum(t.state.is_finished() for t in driver.trials) - before
    return StudyResult(
        live.name, driver.study, spec, url, folder, ran, driver.stop_reason, driver.stopped, interrupted
    )


def open_study(name: str, *, storage: str | None = None, runs: str | Path | None = None) -> StudyResult:
    """A study that was searched before. Raises `StorageError` where there is none of that name."""
    found = studies.find_study(name, storage=storage, runs=runs)
    study = found.study
    spec = _stored_spec(name, study.user_attrs[studies.SPEC])
    study.pruner = make_pruner(spec)  # Optuna stores none, and only this one knows the brackets
    study.study_name = spec.name  # the one it was born with, by which the pruner gives out brackets
    return StudyResult(name, study, spec, found.url, found.runs)


def _about(spec: Spec, backend: str, threads: int) -> dict[str, Any]:
    return {
        studies.PROVENANCE: {
            "backend": backend,
            "threads": threads,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "git_commit": provenance.git_commit(Path.cwd()),
            "versions": provenance.versions(),
            "space": spec.fingerprint(),
        },
        studies.SPEC: spec.to_json(),
        studies.TEXTS: checks.texts_of(spec),
    }


def _memory(spec: Spec, backend: Backend, attrs: Mapping[str, Any], watcher: Watcher) -> Memory | None:
    """What is known of the trials' memory; measured where that matters, and checked."""
    memory = Memory.of(spec, backend.room, attrs.get(studies.MEMORY))
    if memory is None:
        return None
    failed = memory.measure(backend.threads, watcher.say)
    memory.check(begins=studies.SPEC not in attrs)
    for told in (failed, memory.told()):
        if told is not None:
            watcher.say(told)
    return memory


def _stored_spec(name: str, stored: dict[str, Any]) -> Spec:
    """The space that a study holds. Raises `StorageError` where it is none."""
    try:
        return Spec.from_json(stored)
    except SpaceError as error:
        raise StorageError(f'the study "{name}" holds a space that is none: {error.issues[0]}') from error


def _refuse_steps(spec: Spec, largest: int) -> None:
    last = spec.early_stopping.max
    if last is not None and last > largest:
        told = f"is {last:,}, and this database holds steps up to {largest:,}; count in a larger unit"
        raise SpaceError([spec.issue("early_stopping.max", f"{told}, or search in SQLite")])


def _name_of(objective: Callable[[Any], float]) -> str:
    """What a function, a partial of one or an object that can be called is named after in its study.

    Raises `UsageError` for what cannot be called.
    """
    if not callable(objective):
        raise UsageError(f"the objective is {objective!r}; it must be a function that takes a trial")
    named: Any = objective.func if isinstance(objective, functools.partial) else objective
    named = named if hasattr(named, "__qualname__") else type(named)
    return f"{named.__module__}:{named.__qualname__}".replace(".<locals>", "")


def _refuse_changes(spec: Spec, stored: dict[str, Any]) -> None:
    before = _stored_spec(spec.name, stored).to_json()  # with the defaults of fields that it does not know
    changed = differences(before, spec.to_json())
    if changed:
        lines = "\n".join(f"  {line}" for line in changed)
        raise SearchError(
            f'the space of the study "{spec.name}" has changed since it began:\n{lines}\n'
            f"Its trials would not compare. Search the new space under another --name, or delete the study "
            f"(hpsearch delete {spec.name})."
        )


def _refuse_other_texts(spec: Spec, stored: Mapping[str, str], now: Mapping[str, str]) -> None:
    changed = [path for path, digest in stored.items() if now.get(path, digest) != digest]
    if changed:
        raise SearchError(
            f'{", ".join(changed)}: changed since the study "{spec.name}" began. Its trials would not '
            "compare. Search the new text under another --name, or put the old one back"
        )


def _explain(driver: Driver, *, named: bool) -> None:
    """Say what the study is, in its note, and which code of the user's it runs, where that is `named`."""
    write_note(driver.study, driver.spec)
    begins = not any(trial.datetime_start for trial in driver.trials)
    if named and begins and (code := checks.own_code(driver.spec)):
        driver.say(code)


def _failed_before(driver: Driver) -> str | None:
    """Which trials of a study failed that a search goes on with; None where it has nothing left to do."""
    trials = driver.spec.budget.trials
    over = driver.stop_reason is not None or (trials is not None and driver.finished >= trials)
    return None if over else failed_in_words(driver.trials)


def _drive(driver: Driver, backend: Any) -> bool:
    """Run the backend to the end; whether a signal cut it short."""
    hurried = False
    with _signals(driver) as caught:
        try:
            backend.run(driver)
            driver.finish()
        except KeyboardInterrupt:
            hurried = bool(caught)
            if not caught:  # none of ours: a notebook's, or a debugger's
                caught.append("interrupted")
                driver.request_stop("interrupted")
        finally:
            driver.close(hurried=hurried)
    return bool(caught)


@contextmanager
def _signals(driver: Driver) -> Iterator[list[str]]:
    """The first SIGINT or SIGTERM asks the search to stop tidily; the second stops it now.

    So does SIGHUP, which comes when the terminal goes; but a search that talks to no terminal goes on.
    """
    caught: list[str] = []
    terminals = [fd for fd in (1, 2) if os.isatty(fd)]

    def handle(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _silence(terminals)
            if not terminals:
                return
        if caught:
            raise KeyboardInterrupt
        caught.append(signal.Signals(number).name)
        driver.request_stop(f"interrupted by {caught[0]}")

    if threading.current_thread() is not threading.main_thread():
        yield caught  # only the main thread may take signals
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup leaves it
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _silence(descriptors: list[int]) -> None:
    """Let what is written there go nowhere: the terminal is gone, and to write to it is an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
