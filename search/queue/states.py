"""The state of a study, derived anew at each look from what is wanted of it and from which process has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...storage.wanted import Wanted, moment
from ..values import Value
from .observe import Observed

State = Literal[
    "queued",
    "starting",
    "running",
    "pausing",
    "paused",
    "preempted",
    "stopping",
    "stopped",
    "finished",
    "failed",
    "elsewhere",
]
WAITING: tuple[State, ...] = ("queued", "preempted")


@dataclass(frozen=True)
class StudyState(Value):
    """The state of a study, why it is in it, and since when."""

    state: State
    reason: str
    since: str | None = None  # in ISO 8601


def state_of(
    study: Observed,
    *,
    starting: bool = False,
    server: str | None = None,
    lacks: str | None = None,
    waits_for: str | None = None,
) -> StudyState:
    """The state of a study.

    `starting`: whether a driver of it was started and has not locked it yet. `server`: the service that asks;
    without one, each service's studies are queued. `lacks`: why that cannot take it over from one that is
    gone. `waits_for`: why a queued study does not run.
    """
    wanted = study.wanted
    if study.driver is not None:
        return _with_driver(study)
    changed = None if wanted is None or not wanted.changed else moment(wanted.changed)
    is_wanted = wanted is None or wanted.desired == "run"
    if starting and is_wanted and not study.is_over:  # else it has just unlocked the study, and ends
        return StudyState("starting", "its driver starts", _start(wanted))
    if study.elsewhere:
        return StudyState("elsewhere", "another machine searches it")
    if study.is_over:
        ended = None if study.ended is None else moment(study.ended)
        return StudyState("finished", "nothing is left to do", ended)
    if wanted is None:
        return StudyState("stopped", "no search of it runs; hpsearch run continues it")
    if not is_wanted:
        by = f" by {wanted.by}" if wanted.by else ""
        what: State = "paused" if wanted.desired == "pause" else "stopped"
        return StudyState(what, f"{what}{by}; resume queues it again", changed)
    if wanted.failure is not None:
        return StudyState("failed", f"{wanted.failure}; resume tries again", _start(wanted))
    if server is not None and wanted.server not in (None, server):
        has = "another server has it"
        return StudyState("elsewhere", has if lacks is None else f"{has}, which is gone, and {lacks}")
    if wanted.preempted is not None:
        reason = f"stopped in favour of {wanted.preempted.by}; {waits_for or 'queued at its old place'}"
        return StudyState("preempted", reason, moment(wanted.preempted.left or wanted.preempted.at))
    since = wanted.since if wanted.queued is None else wanted.queued
    return StudyState("queued", waits_for or "it is the next to start", moment(since))


def _with_driver(study: Observed) -> StudyState:
    driver, wanted = study.driver, study.wanted
    assert driver is not None
    since, by = moment(driver.since), f" by {wanted.by}" if wanted is not None and wanted.by else ""
    if study.paused:
        return StudyState("paused", f"paused{by}; its running trials were put back", since)
    if not driver.served:
        return StudyState("elsewhere", f"process {driver.pid} searches it, which no service started", since)
    if wanted is not None and wanted.desired == "pause":
        return StudyState("pausing", f"paused{by}: its trials are put back at their next reports", since)
    if wanted is not None and wanted.desired == "stop":
        return StudyState("stopping", f"stopped{by}: its trials are put back at their next reports", since)
    if wanted is not None and wanted.preempted is not None and wanted.preempted.left is None:
        told = f"it makes room for {wanted.preempted.by}: its trials are put back at their next reports"
        return StudyState("stopping", told, since)
    if study.waits_for_worker:
        return StudyState("running", f"it waits for a worker: hpsearch work URL {study.name}", since)
    return StudyState("running", f"process {driver.pid} searches it", since)


def _start(wanted: Wanted | None) -> str | None:
    return None if wanted is None or wanted.started is None else moment(wanted.started)
