"""Looks at the studies of a workspace: what is wanted of each, how far it is, which process searches it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psutil
import sqlalchemy
from optuna.storages import RDBStorage
from optuna.storages._rdb.models import TrialIntermediateValueModel
from optuna.trial import TrialState

from ...storage import StorageError
from ...storage.attributes import UNREADABLE
from ...storage.connection import locked_studies
from ...storage.damage import readable
from ...storage.database import Tables
from ...storage.locks import driver_running
from ...storage.rows import STUDIES, STUDY_USER, TRIALS, has_attr
from ...storage.studies import ELAPSED, FOLDER, PAUSED, PHASE, PROVENANCE, SPEC, Phase, check_study, folder_in
from ...storage.trial_attrs import AT_RUNG
from ...storage.wanted import DRIVER_VARIABLE, WANTED, Wanted, wanted_of
from ...storage.workspace import Workspace
from .foreseen import Progress
from .slots import Machine, Slice

_ATTRS = (SPEC, PROVENANCE, ELAPSED, PHASE, PAUSED, FOLDER, WANTED)
_REPORTS = TrialIntermediateValueModel.__table__


@dataclass(frozen=True)
class DriverProcess:
    """A process on this machine that searches a study."""

    pid: int
    since: float  # seconds since 1970
    served: bool = False  # whether a service started it
    slice: Slice | None = None  # that it was started in; None: it was given none
    cores: tuple[int, ...] = ()  # that it may use

    @classmethod
    def of(cls, pid: int) -> DriverProcess:
        """The process of this number. Raises `psutil.Error` where there is none."""
        process = psutil.Process(pid)
        variables: dict[str, str] = {}
        cores: list[int] = []
        with suppress(psutil.Error, OSError):  # another user's
            variables = process.environ()
        with suppress(psutil.Error, OSError, AttributeError):
            cores = process.cpu_affinity()
        served = DRIVER_VARIABLE in variables
        place = Slice.in_variables(variables) if served else None
        return cls(pid, process.create_time(), served, place, tuple(cores))


@dataclass(frozen=True)
class Observed:
    """A study at one moment."""

    name: str
    key: int  # Optuna's study_id
    wanted: Wanted | None
    spec: Mapping[str, Any]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    folder: str = ""  # under runs
    phase: Phase = Phase.SEARCHING
    paused: bool = False
    progress: Progress = field(default_factory=Progress)
    running: int = 0  # trials that a worker has
    waiting: int = 0
    driver: DriverProcess | None = None
    elsewhere: bool = False  # whether another machine searches it
    began: float | None = None  # when its first trial began; None: unknown, or nobody has looked
    ended: float | None = None  # when its last trial had ended

    @property
    def between_reports(self) -> float:
        """About how many seconds a trial trains between two reports; 0 where that is unknown."""
        done = self.progress.trained
        return self.progress.elapsed * max(1, self.running) / done if done else 0.0

    @property
    def has_begun(self) -> bool:
        """Whether it has trials."""
        return self.progress.reached + self.running + self.waiting > 0

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self.phase == Phase.OVER

    @property
    def waits_for_worker(self) -> bool:
        """Whether workers elsewhere are to train its trials, and none has one now."""
        backend = self.provenance.get("backend") if self.wanted is None else self.wanted.backend
        waits = self.driver is not None and not (self.running or self.paused or self.is_over)
        return waits and backend == "remote"

    def occupied(self, machine: Machine) -> Slice | None:
        """What its driver takes of the machine; None where none runs here."""
        driver = self.driver
        if driver is None:
            return None
        if driver.slice is not None:
            return driver.slice
        if self.paused:
            return Slice()
        execution = self.spec.get("execution") or {}
        cores = tuple(core for core in machine.cpus if core in driver.cores) or machine.cpus
        workers, each = execution.get("workers"), execution.get("cpus_per_trial")
        if isinstance(workers, int) and each is not None:
            cores = cores[-max(1, round(workers * each)) :]
        gpus = machine.gpus if execution.get("gpus_per_trial") != 0 else ()
        return Slice(cores, gpus, int(machine.memory * len(cores) / max(1, len(machine.cpus))))


def observe(
    workspace: Workspace, database: RDBStorage | Tables, *, names: Collection[str] | None = None
) -> list[Observed]:
    """The studies that services have or that are searched now, in the order they were made; or those named.

    Studies that cannot be read are left out. Raises `DatabaseUnavailable`.
    """
    engine = database.engine
    stored = sqlalchemy.select(
        STUDIES.c.study_id, STUDIES.c.study_name, STUDY_USER.c.key, STUDY_USER.c.value_json
    )
    stored = stored.join(STUDY_USER).where(STUDY_USER.c.key.in_(_ATTRS)).order_by(STUDIES.c.study_id)
    if names is not None:
        stored = stored.where(STUDIES.c.study_name.in_(names))
    texts: dict[tuple[int, str], dict[str, str]] = defaultdict(dict)
    with readable():
        with engine.connect() as connection:
            for key, name, attr, text in connection.execute(stored):
                texts[key, name][attr] = text
        locked = locked_studies(engine)
    found = []
    for (key, name), attrs in texts.items():
        with suppress(StorageError, *UNREADABLE):
            seen = _seen(
                workspace, key, name, {attr: json.loads(text) for attr, text in attrs.items()}, locked
            )
            if names is not None or seen.wanted is not None or seen.driver is not None or seen.elsewhere:
                found.append(seen)
    return list(
        map(partial(_counted, _counts(database, [each.key for each in found if not each.is_over])), found)
    )


def with_times(database: RDBStorage | Tables, studies: Sequence[Observed]) -> list[Observed]:
    """The same studies, with when their first trials began and their last ones ended."""
    start, complete = TRIALS.c.datetime_start, TRIALS.c.datetime_complete
    func, of = sqlalchemy.func, TRIALS.c.study_id.in_([each.key for each in studies])
    times = sqlalchemy.select(TRIALS.c.study_id, func.min(start), func.max(complete)).where(of)
    with readable(), database.engine.connect() as connection:
        rows = connection.execute(times.group_by(TRIALS.c.study_id)).all()
    found = {key: (_seconds(first), _seconds(last)) for key, first, last in rows}
    known = ((study, *found.get(study.key, (None, None))) for study in studies)
    return [replace(study, began=began, ended=ended) for study, began, ended in known]


def _seconds(stored: datetime | None) -> float | None:
    return None if stored is None else stored.replace(tzinfo=UTC).timestamp()


def _seen(
    workspace: Workspace, key: int, name: str, attrs: Mapping[str, Any], locked: Collection[int]
) -> Observed:
    check_study(name, attrs)
    folder, driver = folder_in(attrs, name), None
    if SPEC not in attrs:
        raise ValueError("another program's")
    pid = driver_running(workspace, folder)
    if pid is not None:
        with suppress(psutil.Error):  # it has just ended
            driver = DriverProcess.of(pid)
    return Observed(
        name=name,
        key=key,
        wanted=wanted_of(key, attrs),
        spec=attrs[SPEC],
        provenance=attrs.get(PROVENANCE) or {},
        folder=folder,
        phase=Phase(attrs.get(PHASE, Phase.SEARCHING)),
        paused=bool(attrs.get(PAUSED)),
        progress=Progress(float(attrs.get(ELAPSED, 0.0))),
        driver=driver,
        elsewhere=driver is None and key in locked,
    )


@dataclass
class _Counts:
    """How many trials a study has."""

    states: dict[str, int] = field(default_factory=dict)
    trained: int = 0  # units
    begun: int = 0  # that have reported


def _counts(database: RDBStorage | Tables, keys: Iterable[int]) -> dict[int, _Counts]:
    keys = list(keys)
    found: dict[int, _Counts] = defaultdict(_Counts)
    select, func = sqlalchemy.select, sqlalchemy.func
    state = sqlalchemy.type_coerce(TRIALS.c.state, sqlalchemy.String)
    of = TRIALS.c.study_id.in_(keys)
    with_worker = sqlalchemy.or_(TRIALS.c.state != TrialState.RUNNING, ~has_attr(AT_RUNG))
    states = select(TRIALS.c.study_id, state, func.count()).where(of, with_worker)
    states = states.group_by(TRIALS.c.study_id, state)
    last = select(func.max(_REPORTS.c.step)).where(_REPORTS.c.trial_id == TRIALS.c.trial_id)  # by its index
    reached = select(TRIALS.c.study_id, last.scalar_subquery().label("last")).where(of).subquery().c
    trained = select(reached.study_id, func.sum(reached.last), func.count(reached.last))
    trained = trained.group_by(reached.study_id)
    with readable(), database.engine.connect() as connection:
        for key, name, count in connection.execute(states):
            found[key].states[str(name).lower()] = count
        for key, units, begun in connection.execute(trained):
            found[key].trained, found[key].begun = int(units or 0), begun
    return found


def _counted(counts: Mapping[int, _Counts], seen: Observed) -> Observed:
    count = counts.get(seen.key, _Counts())
    states = count.states
    ended = sum(states.get(name, 0) for name in ("complete", "pruned", "fail"))
    running = states.get("running", 0)
    progress = Progress(seen.progress.elapsed, ended, count.trained, count.begun, running)
    return replace(seen, progress=progress, running=running, waiting=states.get("waiting", 0))
