"""Run a search: from a space to the study that it leaves."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...objectives.info import ObjectiveInfo
from ...spaces import SpaceError, Spec, differences
from ...spaces.loader import Source
from ...storage import StorageError, database, locks, provenance, rows, studies
from ...storage.connection import WRITE_WAIT_SECONDS, patiently
from ...storage.wanted import is_servers_driver
from ...storage.workspace import Workspace
from ..backends import make_backend
from ..backends.resources import machine_price
from ..engine.driver import Driver
from ..engine.guardian import guarded
from ..engine.watcher import Watcher
from ..errors import SearchError, UsageError
from ..exchange.notices.notifier import notified
from ..exchange.notices.targets import targets_of
from ..exchange.trackers.study import StudyTracking
from ..formatting import counted
from ..preflight import checks
from ..preflight.commands import two_files
from ..preflight.memory import MemoryModel
from ..preflight.objective import described, load_space, own_code, texts_of
from ..preflight.requirements import check_extras
from ..results.next_steps import retry_steps
from ..results.note import write_note
from ..results.study import StudyResult, space_of, stored_spec
from ..trials.retries import failed_in_words, worth_retrying
from .control import want
from .signals import signals_ask

if TYPE_CHECKING:
    from ..backends.base import Backend


def run(
    *,
    workspace: Workspace,
    space: Source | Spec | None = None,
    watcher: Watcher,
    study: str | None = None,
    objective: Callable[[Any], float] | None = None,
    backend: str = "optuna",
    ray_address: str | None = None,
    began: float | None = None,
    notify: Sequence[str] = (),
    **changes: Any,
) -> StudyResult:
    """Search a space, or continue an earlier search of the same name; `watcher` is told what happens.

    Without a `space`, the `study` continues by the one that it holds. The other arguments are those of
    `hpsearch.search.run`.
    """
    began = time.monotonic() if began is None else began
    goes_on = space is None
    if space is None:
        if study is None:
            raise UsageError("name a space, or the study that is to continue")
        space = space_of(workspace, study)
    if isinstance(space, Mapping) and callable(space.get("objective")):
        objective = objective or space["objective"]
        space = {**space, "objective": _name_of(objective)}
    spec = load_space(space)
    if objective is not None:
        changes["objective"] = _name_of(objective)
    spec = spec.override(**changes) if changes else spec
    if objective is None:
        checks.check_objective(spec)
    check_extras(spec)
    targets = targets_of(notify)
    price = machine_price() if backend != "remote" and ray_address is None else None
    described_objective = described(spec, objective)
    worker_backend = make_backend(backend, spec, described_objective, ray_address)
    studies.quiet_optuna()
    opened = patiently(
        lambda: database.open_storage(workspace.url, create=True, wait=WRITE_WAIT_SECONDS), watcher.say
    )
    _refuse_steps(spec, rows.largest_step(opened.engine))
    name = spec.name
    claim = patiently(lambda: studies.claim_of(opened, name, workspace), watcher.say)
    kept = claim.kept
    if kept != name:
        watcher.say(f"the files of this study are in {claim.folder}")
    with _or_another_name(), claim, locks.driver_lock(workspace, kept), guarded(workspace, name, kept=kept):
        if not claim.take():
            raise StorageError(f"{claim.folder} was taken by another study; the same command takes another")
        attrs = patiently(lambda: studies.attrs_of(opened, name), watcher.say) or {}
        if backend == "optuna":
            worker_backend = _as_begun(spec, attrs, worker_backend, described_objective)
        about = _about(spec, backend, worker_backend, price)
        about |= {studies.FOLDER: kept, studies.ID: claim.study}
        memory = _memory(spec, worker_backend, attrs, watcher)
        live = patiently(lambda: studies.open_live(opened, name, goal=spec.goal, attrs=about), watcher.say)
        with closing(live):
            if studies.SPEC in attrs:  # it resumes
                _refuse_changes(spec, live.attrs[studies.SPEC])
                spec = _as_left(spec, live.attrs[studies.SPEC], changes) if goes_on else spec
            _refuse_other_texts(spec, live.attrs.get(studies.TEXTS, {}), about[studies.TEXTS])
            spec = spec.model_copy(update={"name": live.born})  # brackets go by it
            if memory is not None:
                spec = spec.limited(memory.problem)
            if not is_servers_driver():
                patiently(lambda: want(workspace, name, "run"), watcher.say)
            tracking = StudyTracking(watcher, spec, live.attrs, workspace.runs) if spec.report_to else None
            driver = Driver(
                spec,
                live,
                runs=workspace.runs,
                watcher=tracking or watcher,
                pruner=worker_backend.pruner,
                threads=worker_backend.threads,
                slots=worker_backend.slots,
                shutdown_seconds=worker_backend.leaving,
                begun=began,
                memory=memory,
            )
            before = sum(t.state.is_finished() for t in driver.trials)
            driver.study.set_user_attr(studies.SPEC, spec.to_json())  # with this run's budget and execution
            if spec.folder is not None and not ObjectiveInfo(spec.objective_words).is_built_in:
                driver.study.set_user_attr(studies.SPACE_FOLDER, spec.folder)
            _explain(driver, named=objective is None and backend != "remote")
            if (differs := _other_resources(spec, live.attrs, worker_backend)) is not None:
                driver.say(differs)
            if (failed := _failed_before(driver)) is not None:
                more = "; to try again, also while this search runs: hpsearch retry"
                driver.say(failed + more * worth_retrying(driver.trials))
            with notified(workspace, targets, lambda: live.name, watcher.say) as notifier:
                try:
                    interrupted = _drive(driver, worker_backend)
                    notifier.failure = driver.fatal
                finally:
                    if tracking is not None:
                        tracking.close(driver.trials)
    ran = sum(t.state.is_finished() for t in driver.trials) - before
    result = StudyResult(
        live.name, driver.study, spec, workspace, ran, driver.stop_reason, driver.stopped, interrupted
    )
    if driver.fatal:
        raise SearchError(driver.fatal, code="objective-fails", next_steps=retry_steps(result))
    return result


def _about(spec: Spec, name: str, backend: Backend, price: float | None) -> dict[str, Any]:
    return {
        studies.PROVENANCE: {
            "backend": name,
            "threads": backend.threads,
            "gpus": backend.gpus,
            "price_per_hour": price,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "git_commit": provenance.git_commit(Path.cwd()),
            "versions": provenance.versions(),
            "space": spec.fingerprint(),
        },
        studies.SPEC: spec.to_json(),
        studies.TEXTS: texts_of(spec),
    }


def _as_begun(spec: Spec, attrs: Mapping[str, Any], backend: Backend, objective: dict[str, Any]) -> Backend:
    """The backend whose workers have the cores of those with which the study began, on which values depend.

    Where so many workers do not fit, there are fewer. It stays as it is where not even one fits, or where the
    space says what each is to have.
    """
    begun, execution = attrs.get(studies.PROVENANCE, {}), spec.execution
    threads, gpus = begun.get("threads"), begun.get("gpus")
    fixed: dict[str, Any] = {}
    if execution.gpus_per_trial is None and gpus == 0 and backend.gpus:
        fixed["gpus_per_trial"] = 0.0
    if execution.cpus_per_trial is None and threads is not None and (fixed or threads != backend.threads):
        fixed["cpus_per_trial"] = float(threads * execution.processes_per_trial)
    for fewer in ({}, {"workers": "auto"}) if fixed else ():
        same = execution.model_copy(update=fixed | fewer)
        with suppress(UsageError):
            return make_backend("optuna", spec.model_copy(update={"execution": same}), objective, None)
    return backend


def _memory(spec: Spec, backend: Backend, attrs: Mapping[str, Any], watcher: Watcher) -> MemoryModel | None:
    """What is known of the trials' memory; measured where that matters, and checked."""
    memory = MemoryModel.of(spec, backend.room, attrs.get(studies.MEMORY))
    if memory is None:
        return None
    failed = memory.measure(backend.threads, watcher.say)
    memory.check(begins=studies.SPEC not in attrs)
    for told in (failed, memory.exclusion()):
        if told is not None:
            watcher.say(told)
    return memory


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


@contextmanager
def _or_another_name() -> Iterator[None]:
    """Say what else helps a new search where another one has the study."""
    try:
        yield
    except StorageError as error:
        if error.code != "study-busy":
            raise
        raise StorageError(f"{error}; or search under another name", code="name-taken") from error


def _as_left(spec: Spec, stored: dict[str, Any], changes: Mapping[str, Any]) -> Spec:
    """The spec with the budget and confirmation that were stored until the study was this search's alone."""
    sections = {"budget", "confirm"}
    left = stored_spec(spec.name, stored)
    left = left.override(**{name: changes[name] for name in sections & changes.keys()})
    return spec.model_copy(update={name: getattr(left, name) for name in sections})


def _refuse_changes(spec: Spec, stored: dict[str, Any]) -> None:
    before = stored_spec(spec.name, stored).to_json()  # with the defaults of fields that it does not know
    if changed := differences(before, spec.to_json()):
        lines = "\n".join(f"  {line}" for line in changed)
        raise SearchError(
            f'the space of the study "{spec.name}" has changed since it began:\n{lines}\n'
            f"Its trials would not compare. Delete the study (hpsearch delete {spec.name}), or search the "
            "new space under another name",
            code="name-taken",
        )


def _refuse_other_texts(spec: Spec, stored: Mapping[str, str], now: Mapping[str, str]) -> None:
    if changed := [path for path, digest in stored.items() if now.get(path, digest) != digest]:
        raise SearchError(
            f'{", ".join(changed)}: changed since the study "{spec.name}" began. Its trials would not '
            "compare. Put the old text back, or search the new one under another name",
            code="name-taken",
        )


def _explain(driver: Driver, *, named: bool) -> None:
    """Say what the study is, in its note, and which code of the user's it runs, where that is `named`."""
    write_note(driver.study, driver.spec)
    for told in two_files(driver.spec) if named else ():
        driver.say(told.message)
    begins = not any(trial.datetime_start for trial in driver.trials)
    if named and begins and (code := own_code(driver.spec)):
        driver.say(code)


def _other_resources(spec: Spec, attrs: Mapping[str, Any], backend: Backend) -> str | None:
    """What differs from the workers with which the study began, if values depend on it; else None."""
    begun = attrs.get(studies.PROVENANCE, {})
    threads, gpus, parts = begun.get("threads"), begun.get("gpus"), []
    if threads not in (None, backend.threads):
        cpus, then = threads * spec.execution.processes_per_trial, counted(threads, "threads")
        parts.append(f"each worker computed with {then}, not {backend.threads} (--cpus-per-trial {cpus})")
    if None not in (gpus, backend.gpus) and bool(gpus) != bool(backend.gpus):
        there, here = ("a GPU" if count else "the CPU" for count in (gpus, backend.gpus))
        parts.append(f"trials trained on {there}, not on {here}")
    if not parts:
        return None
    return f"when the study began, {' and '.join(parts)}: values may differ in their last digits"


def _failed_before(driver: Driver) -> str | None:
    """Which trials failed in a study that a search continues; None where it has nothing left to do."""
    trials = driver.spec.budget.trials
    over = driver.stop_reason is not None or (trials is not None and driver.finished >= trials)
    return None if over else failed_in_words(driver.trials)


def _drive(driver: Driver, backend: Any) -> bool:
    """Run the backend to the end; whether a signal cut it short."""
    hurried = False
    with signals_ask(driver) as caught:
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
