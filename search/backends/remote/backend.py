"""The remote backend: trials run wherever workers are; each asks for one when it has room.

The driver decides everything, as for workers of its own. Here is only the desk to which workers come, and
the socket that leads to it: for workers on this machine, and for `hpsearch serve`, which passes on what
others say by HTTP.
"""

from __future__ import annotations

import difflib
import shlex
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ....objectives.info import ObjectiveInfo
from ....spaces import Spec
from ....storage.claims import ID
from ...engine.deadline import SHUTDOWN_SECONDS
from ...engine.driver import Driver
from ...errors import UsageError
from ...scheduling.pruners import make_pruner
from ..resources import Room, threads_on
from ..worker.channel import Message
from ..worker.process import TICK_SECONDS
from .address import socket_path
from .desk import Answer, Desk
from .ledger import Refusal
from .listener import Listener
from .requests import Ask, Complete, Fail, Report, Uploaded

Reply = Callable[[Answer], None]


class RemoteBackend:
    """Lends trials to the workers that come, until the search is over."""

    leaving = SHUTDOWN_SECONDS
    gpus: float | None = None  # those of the workers, of which nothing is known
    room: Room | None = None

    def __init__(self, spec: Spec, objective: Message, clock: Callable[[], float] = time.monotonic) -> None:
        if "function" in objective:
            raise UsageError(
                "a function of this process cannot run on workers elsewhere: name its file in the space, "
                'objective: "file.py:function", or objective: remote, and give it to hpsearch work',
                code="remote-function",
            )
        self.pruner = make_pruner(spec)
        execution = spec.execution
        self.threads = threads_on((execution.cpus_per_trial or 1.0) / execution.processes_per_trial)
        self.slots = 1 if execution.workers == "auto" else int(execution.workers)
        self._spec = spec
        self._clock = clock

    def run(self, driver: Driver) -> None:
        desk = Desk(driver, self._clock)
        if desk.is_over:
            return
        window = Window(self._about(driver), desk)
        listener = Listener(socket_path(driver.study.user_attrs[ID]), window.take, window.leave)
        try:
            driver.say(self._invitation(driver, listener.path))
            ticked = time.monotonic()
            while not (desk.is_over or driver.grace_is_over or (driver.stopped and not driver.running)):
                listener.serve(TICK_SECONDS)
                desk.serve()
                if time.monotonic() - ticked >= TICK_SECONDS:
                    ticked = time.monotonic()
                    driver.tick()
                    desk.tick()
        finally:
            desk.close()
            listener.close()

    def _about(self, driver: Driver) -> Answer:
        """What a worker has to know of the study."""
        return {"study": _name(driver), "space": self._spec.to_json(), "version": version("hpsearch")}

    def _invitation(self, driver: Driver, path: Path) -> str:
        built_in = ObjectiveInfo(self._spec.objective_words).is_built_in
        code = [] if built_in else ["--objective", "FILE.py:FUNCTION"]
        work = ["hpsearch", "work", f"unix:{path}", _name(driver), *code]
        elsewhere = "from other machines: hpsearch serve here, and hpsearch work with its URL there"
        return f"waiting for workers; on this machine: {shlex.join(work)}; {elsewhere}"


class Window:
    """Turns requests in JSON into calls of the desk, and what it says into answers in JSON."""

    def __init__(self, about: Answer, desk: Desk) -> None:
        self._about = about
        self._desk = desk
        self._waiting: dict[Reply, Reply] = {}  # of workers that wait for a trial

    def take(self, request: Any, reply: Reply) -> None:
        """Answer a request: `{"answer": ...}`, or `{"refused": kind, "message": ..., ...}`."""
        try:
            answer = self._answer(request, reply)
        except Refusal as refusal:
            reply({"refused": refusal.kind, "message": str(refusal), **refusal.more})
        except ValidationError as error:
            issues = [_issue(dict(each)) for each in error.errors()]
            reply({"refused": "invalid", "message": "; ".join(issues), "issues": issues})
        else:
            if answer is not None:
                reply({"answer": answer})

    def leave(self, reply: Reply) -> None:
        """The connection has ended whose request `reply` would answer."""
        if (waiting := self._waiting.pop(reply, None)) is not None:
            self._desk.leave(waiting)

    def _answer(self, request: Any, reply: Reply) -> Answer | None:
        """The answer of the desk; None where it comes later."""
        if not isinstance(request, dict) or not isinstance(do := request.pop("do", None), str):
            raise Refusal("malformed", "a request is an object of JSON in a line, with what to `do`")
        if do == "about":
            return self._about
        if do == "ask":
            self._ask(Ask.model_validate(request), reply)
            return None
        if do not in REQUESTS:
            near = difflib.get_close_matches(do, ["about", "ask", *REQUESTS], 1)
            hint = f', did you mean "{near[0]}"?' if near else ""
            raise Refusal("malformed", f'there is no request "{do:.40}"{hint}')
        lease = request.pop("lease", None)
        if not isinstance(lease, str):
            raise Refusal("malformed", f"{do} needs the text of a lease")
        return REQUESTS[do](self._desk, lease, request)

    def _ask(self, ask: Ask, reply: Reply) -> None:
        def given(answer: Answer) -> None:
            self._waiting.pop(reply, None)
            reply({"answer": answer})

        self._waiting[reply] = given
        self._desk.ask(ask, given)


def _uploaded(desk: Desk, lease: str, request: dict[str, Any]) -> Answer:
    return desk.uploaded(lease, Path(Uploaded.model_validate(request).folder))


REQUESTS: dict[str, Callable[[Desk, str, dict[str, Any]], Answer]] = {  # with a lease
    "report": lambda desk, lease, request: desk.report(lease, Report.model_validate(request)),
    "complete": lambda desk, lease, request: desk.complete(lease, Complete.model_validate(request)),
    "fail": lambda desk, lease, request: desk.fail(lease, Fail.model_validate(request)),
    "beat": lambda desk, lease, request: desk.beat(lease),
    "release": lambda desk, lease, request: desk.release(lease),
    "place": lambda desk, lease, request: desk.place(lease),
    "uploaded": _uploaded,
    "checkpoint": lambda desk, lease, request: desk.checkpoint(lease),
}


def _issue(error: dict[str, Any]) -> str:
    """What pydantic found wrong with a request, in words."""
    where = ".".join(map(str, error["loc"]))
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        message = "is no field of this request"
    return f"{where}: {message}" if where else message


def _name(driver: Driver) -> str:
    """The study's name, which may have changed since it began."""
    return str(getattr(driver.study._storage, "name", driver.spec.name))
