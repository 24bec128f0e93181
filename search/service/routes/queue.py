"""The queue: submit a study, change what is wanted of it, and see what runs, what waits and who has what."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Response
from pydantic import Field

from ....storage.attributes import MOST_COUNT
from ....storage.wanted import Priority, Slots
from ...operations.steer import Steering, steer
from ...operations.submit import SpaceDiffers, Submitted, submit
from ...queue.states import StudyState
from ...queue.view import MachineView, Queue
from ...values import Value
from .. import submission
from ..access import Admin, Body, Reader, Study, TheService, Writer, names
from ..freshness import is_of
from ..problems import problem
from ..service import Service
from ..submission import CodeBody
from ..tokens import Caller

router = APIRouter(prefix="/v1", tags=["queue"])
Amount = Annotated[int, Field(ge=1, le=MOST_COUNT)]


class SlotsBody(Body):
    """How much of the machine a study asks for; what is left out suits the rest."""

    cpus: Amount | None = None
    gpus: Annotated[int, Field(ge=0, le=2**20)] | None = None
    memory: Amount | None = Field(None, description="Bytes.")

    @property
    def slots(self) -> Slots:
        """As operations take them."""
        return Slots(self.cpus, self.gpus, self.memory)


class StudyBody(CodeBody):
    """A space to be searched, and how."""

    space: str | dict[str, Any] = Field(description="The text of a space file, or what one holds.")
    backend: Literal["optuna", "ray", "remote"] = "optuna"
    priority: Priority = "normal"
    slots: SlotsBody | None = None
    hold: bool = Field(False, description="Let it wait until it is resumed.")
    preemptible: bool = True
    ray_address: str | None = None


class ChangeBody(Body):
    """A merge patch: what is left out stays. Slots of null are a lane of the machine."""

    desired: Literal["run", "pause", "stop"] | None = None
    priority: Priority | None = None
    slots: SlotsBody | None = None
    preemptible: bool | None = None
    budget: dict[str, Any] | None = Field(None, description="The limits that change; null takes one away.")
    confirm: dict[str, Any] | None = Field(
        None, description="How many of the best train again (top), and how often (seeds)."
    )
    name: str | None = None


class DrainBody(Body):
    """Whether the server is drained."""

    on: bool


@dataclass(frozen=True)
class Drained(Value):
    """Whether the server starts nothing."""

    draining: bool


@router.put("/studies/{study}", status_code=201, responses={200: {}}, **names("submit"))
def put_study(
    caller: Writer, study: Study, service: TheService, body: StudyBody, response: Response
) -> Annotated[Any, Submitted]:
    """Submit a space under this name: 201, or 200 where it is there already; 409 where another is."""
    spec = submission.read(body.space).override(name=study)
    spec, code = submission.accepted(spec, body, service, caller)
    try:
        done = submit(
            workspace=service.workspace,
            space=spec,
            backend=body.backend,
            priority=body.priority,
            slots=None if body.slots is None else body.slots.slots,
            by=caller.name,
            hold=body.hold,
            preemptible=body.preemptible,
            ray_address=body.ray_address,
            cwd=code.folder or service.workspace.runs.parent,
            bundle=code.bundle,
            server=service.queue.server,
        )
    except SpaceDiffers as error:
        raise problem("space-differs", str(error), difference=error.difference) from error
    response.status_code = 201 if done.made else 200
    service.queue.poke()
    return done.to_json()


@router.patch("/studies/{study}", responses={202: {}}, **names("steer"))
def patch_study(
    caller: Writer,
    study: Study,
    service: TheService,
    body: ChangeBody,
    response: Response,
    if_match: Annotated[str | None, Header()] = None,
) -> Annotated[Any, Steering]:
    """Change what is wanted of a study; 202 while its search has still to obey."""
    _check_unchanged(service, study, if_match)
    if body.name is not None and not caller.may_see(body.name):
        raise problem(
            "scope-missing", "the token has other studies than those of the new name", needs="admin"
        )
    done = steer(
        workspace=service.workspace,
        study=study,
        desired=body.desired,
        priority=body.priority,
        slots=None if body.slots is None else body.slots.slots,
        lane="slots" in body.model_fields_set and body.slots is None,
        preemptible=body.preemptible,
        budget=body.budget,
        confirm=body.confirm,
        name=body.name,
        by=caller.name,
    )
    response.status_code = 202 if done.searching and (body.desired or body.budget or body.confirm) else 200
    service.queue.poke()
    return done.to_json()


@router.get("/queue", **names("queue"))
def get_queue(caller: Reader, service: TheService) -> Annotated[Any, Queue]:
    """The studies in order: place, why each waits, when it begins and ends, what would be preempted."""
    return seen(service.queue.view(), caller).to_json()


@router.get("/machine", **names("queue --machine"))
def get_machine(caller: Reader, service: TheService) -> Annotated[Any, MachineView]:
    """The cores, GPUs and memory, and which study has which."""
    return seen(service.queue.view(), caller).machine.to_json()


@router.post("/drain", **names("drain"))
def drain(caller: Admin, service: TheService, body: DrainBody) -> Annotated[Any, Drained]:
    """Put back everything that runs, and start nothing, as before a reboot; or go on."""
    service.drain(body.on)
    return Drained(body.on).to_json()


def seen(queue: Queue, caller: Caller) -> Queue:
    """The part of a queue that a caller may see: names of other studies are not told."""
    if not caller.studies:
        return queue
    studies = tuple(
        replace(
            study,
            state=StudyState(study.state.state, study.state.state, study.state.since),
            would_stop=tuple(filter(caller.may_see, study.would_stop)),
        )
        for study in queue.studies
        if caller.may_see(study.study)
    )
    has = {name: place for name, place in queue.machine.has.items() if caller.may_see(name)}
    return Queue(studies, replace(queue.machine, has=has))


def _check_unchanged(service: Service, study: str, tag: str | None) -> None:
    """Raise `Problem` where a study has changed since the answer with this ETag."""
    if tag is None or tag == "*":
        return
    if not is_of(tag, service.watch.tag(study)):
        raise problem("changed-meanwhile")
