"""Submit a space: make its study without searching it, and let a service do that when its turn comes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...objectives.info import ObjectiveInfo
from ...spaces import Spec, differences
from ...spaces.loader import Source
from ...spaces.spec import CHANGEABLE
from ...storage import StorageError, rows, studies
from ...storage.claims import claim_new
from ...storage.connection import WRITE_WAIT_SECONDS
from ...storage.database import open_storage
from ...storage.wanted import Priority, Slots, Wanted, change_wanted
from ...storage.workspace import Workspace
from ..backends import check_backend
from ..errors import SearchError
from ..preflight import checks
from ..preflight.objective import load_space, texts_of
from ..preflight.requirements import check_extras
from ..results.study import stored_spec
from ..values import Value
from .steer import check_slots, set_sections

KEPT = ("name", "budget", "confirm")  # sections of a space that may differ when it is submitted again


class SpaceDiffers(SearchError):
    """A study of that name has another space."""

    code = "space-differs"

    def __init__(self, name: str, difference: list[str]) -> None:
        lines = "\n".join(f"  {line}" for line in difference)
        super().__init__(
            f'there is a study "{name}" with another space:\n{lines}\n'
            "Its trials would not compare. Delete it, or submit this space under another name"
        )
        self.difference = difference


@dataclass(frozen=True)
class Submitted(Value):
    """A study that was submitted."""

    study: str
    made: bool  # False: it was there already, with the same space
    wanted: str  # run, pause or stop
    priority: str


def submit(
    *,
    workspace: Workspace,
    space: Source | Spec,
    backend: str = "optuna",
    priority: Priority = "normal",
    slots: Slots | None = None,
    by: str | None = None,
    hold: bool = False,
    preemptible: bool = True,
    ray_address: str | None = None,
    cwd: Path | None = None,
    bundle: str | None = None,
    server: str | None = None,
    **changes: Any,
) -> Submitted:
    """Queue the search of a space. Submitted again, the same space is the same study.

    A study that was searched without a service is queued, too. Nothing runs here: a service (`hpsearch
    serve`) starts the search in the folder `cwd`, which has the user's code where that came as a `bundle`.
    With `hold` it waits to be resumed. `changes` are those of `hpsearch.search.run`. Raises `SpaceDiffers`
    where the study of that name has another space.
    """
    spec = load_space(space)
    spec = spec.override(**changes) if changes else spec
    check_backend(backend, spec)
    check_slots(slots)
    if spec.objective != "remote":
        checks.check_objective(spec)
    check_extras(spec)
    studies.quiet_optuna()
    opened = open_storage(workspace.url, create=True, wait=WRITE_WAIT_SECONDS)
    last = spec.early_stopping.max
    if last is not None and last > (most := rows.largest_step(opened.engine)):
        raise SearchError(f"this database holds steps up to {most:,}, and a trial has {last:,}")
    now = time.time()
    wanted = Wanted(
        since=now,
        desired="pause" if hold else "run",
        priority=priority,
        by=by,
        changed=now,
        backend=backend,
        ray_address=ray_address,
        slots=slots,
        cwd=str((cwd or Path.cwd()).absolute()),
        bundle=bundle,
        server=server,
        preemptible=preemptible,
    )
    stored = studies.attrs_of(opened, spec.name)
    made = (stored is None or studies.SPEC not in stored) and _make(opened, workspace, spec)
    if not made:
        _compare(workspace, spec, studies.attrs_of(opened, spec.name) or {}, by)
    now_wanted = change_wanted(opened, spec.name, lambda there: there or wanted)
    assert now_wanted is not None
    return Submitted(spec.name, made, now_wanted.desired, now_wanted.priority)


def _make(opened: Any, workspace: Workspace, spec: Spec) -> bool:
    """Make the study, with a folder for its files; False where another submission has just made it.

    Raises `StorageError` where that cannot be.
    """
    with claim_new(workspace, spec.name) as claim:
        attrs: dict[str, Any] = {
            studies.SPEC: spec.to_json(),
            studies.TEXTS: texts_of(spec),
            studies.FOLDER: claim.kept,
            studies.ID: claim.study,
        }
        if spec.folder is not None and not ObjectiveInfo(spec.objective_words).is_built_in:
            attrs[studies.SPACE_FOLDER] = spec.folder
        try:
            live = studies.open_live(opened, spec.name, goal=spec.goal, attrs=attrs)
        except StorageError:
            if studies.SPEC not in (studies.attrs_of(opened, spec.name) or {}):
                raise
            return False
        live.flush()
        live.close()
        return True


def _compare(workspace: Workspace, spec: Spec, stored: Mapping[str, Any], by: str | None) -> None:
    """Raise where the study has another space; take over another budget and confirmation."""
    before = stored_spec(spec.name, stored[studies.SPEC])
    if changed := differences(before.to_json(), spec.to_json()):
        raise SpaceDiffers(spec.name, changed)
    other = [
        f"{name}: {getattr(before, name)} -> {getattr(spec, name)}"
        for name in CHANGEABLE
        if name not in KEPT and getattr(before, name) != getattr(spec, name)
    ]
    if other:
        raise SpaceDiffers(spec.name, other)
    budget, confirm = spec.budget.model_dump(mode="json"), spec.confirm.model_dump(mode="json")
    set_sections(workspace, spec.name, by, budget=budget, confirm=confirm)
