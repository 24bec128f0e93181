"""A server as Python has it: a method for each operation, with its arguments, results and errors."""

from __future__ import annotations

import inspect
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import SearchError, UsageError
from ...formatting import counted
from ...values import Value, plain
from .. import known
from .calls import text_of_space
from .connection import Connection
from .events import GIVE_UP_SECONDS, Event, events
from .results import STUDY, TRIAL, Results

if TYPE_CHECKING:
    from ....spaces import Spec
    from ....spaces.loader import Source
    from ....storage.wanted import Desired, Priority, Slots
    from ...engine.watcher import Watcher
    from ...operations.control import Steered, Tried
    from ...operations.spaces import ConvertedSpace, NewSpace, Objectives, Schema, ValidSpace
    from ...operations.steer import Steering
    from ...operations.studies import Deletion, Studies
    from ...operations.submit import Submitted
    from ...preflight.forecast import SearchForecast
    from ...queue.view import MachineView, Queue
    from .following import FollowedSearch

ZIP = "application/zip"
MOST_NAMED = 5  # files in a message
PLAN = "/v1/plans/{plan}"
PLAN_WAIT = 30.0  # seconds that one call waits for a plan


@dataclass(frozen=True)
class SentBundle(Value):
    """Code that a server has."""

    sha256: str
    new: bool  # whether it was sent just now
    files: tuple[str, ...]
    left_out: tuple[str, ...]  # files beside them that git does not track

    def in_words(self, folder: Path) -> str:
        """What was sent of a folder, and what was not."""
        done = "sent" if self.new else "the server has"
        told = f"{done} {counted(len(self.files), 'files')} of {folder}"
        if not self.left_out:
            return told
        names = ", ".join(self.left_out[:MOST_NAMED])
        more = f" and {len(self.left_out) - MOST_NAMED} more" if len(self.left_out) > MOST_NAMED else ""
        return f"{told}; not {names}{more}, which git does not track"


class Server(Results):
    """A server of hpsearch.

    Its methods are the operations, with the same arguments, results and errors. Those that take a study are
    methods of `study(name)` too.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        uds: str | None = None,
        transport: Any = None,
    ) -> None:
        """The server at `url`; without one, that of $HPSEARCH_SERVER, else your own on this machine.

        `token` is by default the one of $HPSEARCH_TOKEN, of `hpsearch login`, or of your own server. `uds` is
        a Unix socket that it listens on. Nothing is sent before a method is called.
        """
        named = url or os.environ.get("HPSEARCH_SERVER") or known.LOCAL
        find = None
        if uds is None and transport is None:
            find = partial(known.find, named, token)
            place = find()
        else:
            place = known.Place(named, token, uds)
        super().__init__(Connection(place.url, place.token, uds=place.uds, transport=transport, find=find))

    def about(self) -> dict[str, Any]:
        """Its version, its features and limits, and who the token says you are."""
        return self._as(dict[str, Any], self._get("/v1"))

    def study(self, name: str) -> Study:
        """A study by its name. Asks the server nothing yet."""
        return Study(self, name)

    def submit(
        self,
        *,
        space: Source | Spec,
        backend: str = "optuna",
        priority: Priority = "normal",
        slots: Slots | None = None,
        hold: bool = False,
        preemptible: bool = True,
        ray_address: str | None = None,
        cwd: Path | None = None,
        bundle: str | None = None,
        say: Callable[[str], None] = lambda message: None,
        **changes: Any,
    ) -> Submitted:
        """Queue the search of a space. Submitted again, the same space is the same study.

        Code of one's own is sent along: that in the folder of the space, or in `cwd`; or it is the `bundle`
        that `send_bundle` sent. `say` is told what was sent. `changes` go over the space's fields.
        """
        from ...operations.submit import Submitted
        from ...preflight.objective import load_space

        spec = load_space(space)
        spec = spec.override(**changes) if changes else spec
        if bundle is None:
            bundle = self._send_code(spec, cwd or Path.cwd(), say)
        body = {
            "space": spec.to_json(),
            "backend": backend,
            "priority": priority,
            "slots": None if slots is None else plain(slots),
            "hold": hold,
            "preemptible": preemptible,
            "ray_address": ray_address,
            "bundle": bundle,
        }
        body = {name: value for name, value in body.items() if value is not None}
        return self._as(Submitted, self._call("PUT", STUDY, body=body, study=spec.name))

    def plan(
        self,
        *,
        space: Source | Spec,
        seconds: float | str = 60.0,
        cwd: Path | None = None,
        bundle: str | None = None,
        say: Callable[[str], None] = lambda message: None,
    ) -> SearchForecast:
        """Predict a search at the server: it measures for up to `seconds`, in a part of it that is free.

        Code goes along as in `submit`. Ctrl-C ends it there too. Raises `SearchError` where nothing is free,
        or the plan fails.
        """
        from ....spaces.times import seconds as time_in_seconds
        from ...preflight.forecast import SearchForecast
        from ...preflight.objective import load_space
        from ..planning import Plan

        spec = load_space(space)
        try:
            seconds = time_in_seconds(seconds)
        except ValueError as error:
            raise UsageError(f"seconds {error}") from None
        if bundle is None:
            bundle = self._send_code(spec, cwd or Path.cwd(), say)
        body = {"space": spec.to_json(), "seconds": float(seconds)}
        body |= {} if bundle is None else {"bundle": bundle}
        key = {"Idempotency-Key": uuid.uuid4().hex}
        made = self._as(Plan, self._call("POST", "/v1/plans", body=body, headers=key))
        try:
            while made.state == "measuring":
                answer = self._get(PLAN, query={"wait": PLAN_WAIT}, wait=PLAN_WAIT, plan=made.id)
                made = self._as(Plan, answer)
        except KeyboardInterrupt:  # nobody waits for it any more
            try:
                self._call("DELETE", PLAN, plan=made.id)
            except SearchError as error:
                say(f"the plan is measured to its end: {error}")
            raise
        if made.forecast is None:
            raise SearchError(f"the plan at {self.url} failed: {made.failure}", code="plan-failed")
        return self._as(SearchForecast, made.forecast)

    def steer(
        self,
        *,
        study: str,
        desired: Desired | None = None,
        priority: Priority | None = None,
        slots: Slots | None = None,
        lane: bool = False,
        preemptible: bool | None = None,
        budget: Mapping[str, Any] | None = None,
        confirm: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> Steering:
        """Change what is wanted of a study; what is None stays as it is."""
        from ...operations.steer import Steering

        given = {
            "desired": desired,
            "priority": priority,
            "slots": None if slots is None else plain(slots),
            "preemptible": preemptible,
            "budget": None if budget is None else dict(budget),
            "confirm": None if confirm is None else dict(confirm),
            "name": name,
        }
        body = {field: value for field, value in given.items() if value is not None}
        body |= {"slots": None} if lane else {}
        return self._as(Steering, self._call("PATCH", STUDY, body=body, study=study))

    def queue(self) -> Queue:
        """The studies in the order of the queue, and what is foreseen."""
        from ...queue.view import Queue

        return self._as(Queue, self._get("/v1/queue"))

    def machine(self) -> MachineView:
        """The server's cores, GPUs and memory, and which study has which."""
        from ...queue.view import MachineView

        return self._as(MachineView, self._get("/v1/machine"))

    def list_studies(self) -> Studies:
        """List the studies that the token may see."""
        from ...operations.studies import Studies

        return self._as(Studies, list(self._rows("/v1/studies")))

    def stop(self, *, study: str) -> Steered:
        """End the search of a study tidily: its running trials are requeued, to be resumed."""
        return self._steered("stop", study)

    def pause(self, *, study: str) -> Steered:
        """Let a search wait: its running trials are requeued, and the machine is free for others."""
        return self._steered("pause", study)

    def resume(self, *, study: str) -> Steered:
        """Let a paused or stopped search continue."""
        return self._steered("resume", study)

    def kill(self, *, study: str, trial: int) -> Steered:
        """End one trial at once, as failed; the search continues."""
        return self._steered("kill", study, trial)

    def retry(self, *, study: str, trial: int | None = None) -> Steered:
        """Try a failed trial again, or all of them: same number and parameters, from the last checkpoint."""
        return self._steered("retry", study, trial)

    def try_config(
        self, *, study: str, params: Mapping[str, Any], trial: int | None = None, request: str | None = None
    ) -> Tried:
        """Enqueue a configuration: it trains before what the sampler proposes."""
        from ...operations.control import Tried

        body = {"params": dict(params)} | ({} if trial is None else {"from": trial})
        key = {"Idempotency-Key": request or uuid.uuid4().hex}
        return self._as(Tried, self._call("POST", f"{STUDY}/trials", body=body, headers=key, study=study))

    def delete(self, *, study: str, keep_files: bool = False, dry_run: bool = False) -> Deletion:
        """Delete a study with its trials and their files; a `dry_run` only says what would go."""
        from ...operations.studies import Deletion

        query = {"files": not keep_files, "dry_run": dry_run or None}
        return self._as(Deletion, self._call("DELETE", STUDY, query=query, study=study))

    def objectives(self, *, name: str | None = None) -> Objectives:
        """The objectives that the server brings, or one of them, with their parameters."""
        from ...operations.spaces import Objectives

        return self._as(Objectives, self._get("/v1/objectives", query={"name": name}))

    def schema(self) -> Schema:
        """The JSON Schema of space files, as the server understands them."""
        from ...operations.spaces import Schema

        return self._as(Schema, self._get("/v1/spaces/schema"))

    def convert(self, *, text: str, tool: str | None = None) -> ConvertedSpace:
        """Turn the text of another tool's file into the text of a space."""
        from ...operations.spaces import ConvertedSpace

        body = {"text": text, "dialect": tool or "auto"}
        return self._as(ConvertedSpace, self._call("POST", "/v1/spaces/convert", body=body))

    def init(
        self,
        *,
        objective: str | None = None,
        source: Path | None = None,
        text: str | None = None,
        model: str | None = None,
    ) -> NewSpace:
        """A commented space to be changed. A script, with what lies beside it, and a model are read here."""
        from ...operations import spaces

        if source is None or text is None or model is not None:
            return spaces.init(objective=objective, source=source, text=text, model=model)
        body = {"text": text, "file": str(source)}
        return self._as(spaces.NewSpace, self._call("POST", "/v1/spaces/propose", body=body))

    def validate(self, *, space: Source | Spec, imports: bool = False) -> ValidSpace:
        """Check a space, and say how the server understands it. Code of one's own is sent along."""
        from ...operations.spaces import ValidSpace, name_in_messages

        if imports:
            raise UsageError("a server imports no objective to check a space", code="here-only")
        body, file, spec = text_of_space(space)
        if spec is not None and (bundle := self._send_code(spec, Path.cwd())) is not None:
            body["bundle"] = bundle
        found = self._as(ValidSpace, self._call("POST", "/v1/spaces/validate", body=body, file=file))
        return replace(found, file=name_in_messages(space))

    def events(
        self, *, studies: Sequence[str] = (), kinds: Sequence[str] = (), give_up: float = GIVE_UP_SECONDS
    ) -> Iterator[Event]:
        """What changes, as it changes: each event has the whole row that has. See `Event`.

        Where the connection breaks it is made anew, up to `give_up` seconds long.
        """
        query = {"study": list(studies) or None, "kinds": ",".join(kinds) or None}
        return events(self.connection, query, give_up=give_up)

    def _send_code(
        self, spec: Spec, cwd: Path, say: Callable[[str], None] = lambda message: None
    ) -> str | None:
        """Send what a space needs of this machine; its SHA-256, None where it needs nothing."""
        from .code import code_of

        if (code := code_of(spec, cwd)) is None:
            return None
        sent = self.send_bundle(folder=code.folder, needed=code.needed)
        say(sent.in_words(code.folder))
        return sent.sha256

    def send_bundle(self, *, folder: str | Path, needed: Sequence[str | Path] = ()) -> SentBundle:
        """Send the code in a folder, unless the server has it: what git tracks there, and what is needed."""
        from ..bundles.packing import pack

        bundle = pack(folder, needed)
        place = f"/v1/bundles/{bundle.sha256}"
        _, answer = self.connection.call("HEAD", place)
        if new := answer.status_code == 404:
            self.connection.call("PUT", place, content=bundle.content, headers={"Content-Type": ZIP})
        return SentBundle(bundle.sha256, new, bundle.files, bundle.left_out)

    def _steered(self, what: str, study: str, trial: int | None = None) -> Steered:
        from ...operations.control import Steered

        if trial is None:
            return self._as(Steered, self._call("POST", f"{STUDY}/{what}", study=study))
        return self._as(Steered, self._call("POST", f"{TRIAL}/{what}", study=study, trial=trial))


class Study:
    """A study at a server: the server's methods that take a study, without naming it.

    study = Server().study("lora")
    study.pause()
    study.best().value
    """

    def __init__(self, server: Server, name: str) -> None:
        self.server, self.name = server, name

    def __repr__(self) -> str:
        return f"Study({self.name!r} at {self.server.url})"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = None if name.startswith("_") else getattr(type(self.server), name, None)
        if method is None or "study" not in inspect.signature(method).parameters:
            raise AttributeError(f"a study has no {name!r}")
        return partial(method, self.server, study=self.name)

    def __dir__(self) -> list[str]:
        of_server = (name for name in dir(type(self.server)) if not name.startswith("_"))
        return [*super().__dir__(), *(name for name in of_server if hasattr(self, name))]

    def trials(self, *, worker: str | None = None, **arguments: Any) -> Any:
        """The trials of the study; with the name of a worker, one trial after another for it to train.

        Those are lent: see `search/service/hpsearch_client.py`. The study's backend is `remote`.
        """
        if worker is None:
            return self.server.trials(study=self.name, **arguments)
        from ..hpsearch_client import Study as Lender

        token = self.server.connection.token
        return Lender(self.server.url, self.name, token=token, worker=worker, **arguments).trials()

    def events(self, **arguments: Any) -> Iterator[Event]:
        """What changes in the study, as it changes."""
        return self.server.events(studies=[self.name], **arguments)

    def watch(self, every: float = 1.0) -> None:
        """Show it in a notebook's cell as it goes on, until nobody searches it."""
        from ...results.notebook import watch

        watch(lambda: self.server.show(study=self.name), every)

    def _repr_html_(self) -> str:
        from ...results.notebook import study_html

        return study_html(self.server.show(study=self.name))

    def follow(self, watcher: Watcher) -> FollowedSearch:
        """Follow its search until nothing goes on in it by itself; `watcher` is told what happens."""
        from .following import follow

        return follow(self.server, self.name, watcher)
