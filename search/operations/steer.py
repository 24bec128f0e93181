"""Steer a study that a service has: run, pause or stop it; change its priority, slots, budget and name."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy

from ...spaces import Spec
from ...storage import StorageError, studies
from ...storage.attributes import MOST_COUNT
from ...storage.commands import StudyCommand, send
from ...storage.damage import readable
from ...storage.database import open_storage
from ...storage.live import LiveStorage
from ...storage.locks import driver_running
from ...storage.rows import STUDIES
from ...storage.studies import find_study
from ...storage.wanted import Desired, Priority, Slots, Wanted, change_wanted
from ...storage.workspace import Workspace
from ..errors import SearchError, UsageError
from ..results.study import backend_of, space_of, stored_spec
from ..values import Value
from .control import obeyed

COMMAND_OF: dict[Desired, str] = {"run": "resume", "pause": "pause", "stop": "stop"}


@dataclass(frozen=True)
class Steering(Value):
    """What is wanted of a study after a change."""

    study: str
    wanted: str
    priority: str
    slots: Slots | None
    preemptible: bool
    budget: Mapping[str, Any]
    confirm: Mapping[str, Any]  # how many of the best train again, and how often, where the study says so
    searching: bool  # whether a search has still to obey


def steer(
    *,
    workspace: Workspace,
    study: str,
    desired: Desired | None = None,
    priority: Priority | None = None,
    slots: Slots | None = None,
    lane: bool = False,
    preemptible: bool | None = None,
    budget: Mapping[str, Any] | None = None,
    confirm: Mapping[str, Any] | None = None,
    name: str | None = None,
    by: str | None = None,
) -> Steering:
    """Change what is wanted of a study; what is None stays as it is.

    `slots` replace those that it asked for, and with `lane` it takes a lane again; a search that runs keeps
    what it has. `budget` names the limits that change: None takes one away; `confirm` alike what is trained
    again with new seeds (`top`, `seeds`). A study that no service has is queued where it is to run.
    Raises `SearchError` where there is nothing to pause or to stop.
    """
    stored = find_study(workspace, study)
    check_slots(slots)
    changes: dict[str, Any] = {} if priority is None else {"priority": priority}
    changes |= {} if slots is None and not lane else {"slots": slots}
    changes |= {} if preemptible is None else {"preemptible": preemptible}
    if name is not None and name != study:
        space_of(workspace, study).override(name=name)  # a name that a space can have
        _check_free(workspace, name)
    if budget is not None or confirm is not None:
        set_sections(workspace, study, by, budget=budget, confirm=confirm)
    now = time.time()

    def changed(wanted: Wanted | None) -> Wanted | None:
        if wanted is None and (changes or desired == "run"):  # from now on a service has it
            wanted = _taken_over(workspace, study, desired or "run", by, now)
        if wanted is None:
            return None
        return replace(wanted if desired is None else wanted.to(desired, by, now), **changes)

    wanted = change_wanted(open_storage(workspace.url), study, changed)
    running = driver_running(workspace, stored.folder)
    if desired is not None and wanted is None and running is None:
        raise SearchError(f'no search of "{study}" is running, and no service has it', code="not-searching")
    if desired is not None and running is not None:
        send(stored.study, StudyCommand(COMMAND_OF[desired], driver=running, by=by))
    if name is not None and name != study:
        rename(workspace, study, name)
    spec = space_of(workspace, name or study)
    return Steering(
        study=name or study,
        wanted="" if wanted is None else wanted.desired,
        priority="" if wanted is None else wanted.priority,
        slots=None if wanted is None else wanted.slots,
        preemptible=wanted is None or wanted.preemptible,
        budget={limit: value for limit, value in spec.budget if value is not None},
        confirm={field: value for field, value in spec.confirm if value is not None},
        searching=running is not None,
    )


def _taken_over(workspace: Workspace, study: str, desired: Desired, by: str | None, now: float) -> Wanted:
    """What is wanted of a study that was searched without a service so far."""
    folder = space_of(workspace, study).folder or str(workspace.runs.parent)
    backend = backend_of(workspace, study)
    return Wanted(since=now, desired=desired, by=by, changed=now, backend=backend, cwd=folder)


def check_slots(slots: Slots | None) -> None:
    """Raise `UsageError` for an amount that nothing has."""
    for what, least in (("cpus", 1), ("gpus", 0), ("memory", 1)) if slots is not None else ():
        amount = getattr(slots, what)
        if amount is not None and not least <= amount <= MOST_COUNT:
            raise UsageError(f"slots.{what} must be from {least} to {MOST_COUNT:,}, not {amount}")


def set_sections(
    workspace: Workspace,
    study: str,
    by: str | None = None,
    *,
    budget: Mapping[str, Any] | None = None,
    confirm: Mapping[str, Any] | None = None,
) -> Spec:
    """Change the budget and the confirmation of a study, also while it is searched; None stays as it is.

    Fields that are not named stay as they are by then, so that of changes at the same time all are made. A
    study that was over has something to do again. Raises `SpaceError` for values that are none.
    """
    stored = find_study(workspace, study)
    spec = stored_spec(study, stored.study.user_attrs[studies.SPEC])
    given = {"budget": budget or {}, "confirm": confirm or {}}
    changed = spec.override(**given)
    if (changed.budget, changed.confirm) == (spec.budget, spec.confirm):
        return changed
    fields: dict[str, Any] = {
        section: {name: value for name, value in getattr(changed, section) if name in named}
        for section, named in given.items()
    }

    def write(live: LiveStorage) -> None:
        key = live.get_study_id_from_name(live.born)
        left = stored_spec(study, live.get_study_user_attrs(key)[studies.SPEC])
        live.set_study_user_attr(key, studies.SPEC, left.override(**fields).to_json())
        live.set_study_user_attr(key, studies.PHASE, studies.Phase.SEARCHING)

    obeyed(stored, StudyCommand("budget", by=by, **fields), write)
    return changed


def rename(workspace: Workspace, study: str, name: str) -> None:
    """Give a study another name; a search of it goes on. Its files stay where they are.

    Raises `StorageError` where another study has that name.
    """
    _check_free(workspace, name)
    table, database = STUDIES, open_storage(workspace.url)
    change = table.update().where(table.c.study_name == study).values(study_name=name)
    try:
        with readable(), database.engine.begin() as connection:
            if not connection.execute(change).rowcount:
                raise StorageError(f'there is no study "{study}" any more', code="study-missing")
    except sqlalchemy.exc.IntegrityError as error:
        raise _taken(name) from error


def _check_free(workspace: Workspace, name: str) -> None:
    """Raise where a study has this name."""
    if name in studies.study_keys(open_storage(workspace.url)):
        raise _taken(name)


def _taken(name: str) -> StorageError:
    return StorageError(f'there is a study "{name}" already; choose another name', code="name-taken")
