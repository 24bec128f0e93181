"""A courier takes what a trial says to its search, in order, and brings back the answers.

It repeats what did not arrive. While the search is away the trial trains on, and its reports wait here; the
search is away for good after five leases.
"""

from __future__ import annotations

import math
import queue
import random
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....storage.files import CHECKPOINT, OUTPUT, SEALED, has_checkpoint
from ..hpsearch_client import GIVES_UP_AFTER, LONGEST_PAUSE, SHORTEST_PAUSE, Refused
from .link import Answer, Link

UPLOAD_SHARE = 0.1  # of a trial's time at most goes into checkpoints between rungs
LONGEST_OUTPUT = 1 << 16  # bytes that a trial printed, in one report
BEATS = 3.0  # a lease, at least


@dataclass(frozen=True)
class Outcome:
    """What a courier has learned of a trial."""

    courier: Courier
    kind: str  # ready, goes_on, stops, away, says; ended: nothing more comes
    step: int | None = None  # of the report that it answers
    because: str = ""
    reason: str = ""


@dataclass
class Courier:
    """Carries the messages of one trial, in a thread of its own."""

    link: Link
    given: Answer  # of the search: the trial and its lease
    folder: Path  # of the trial, here
    seals: bool  # whether the worker keeps a copy of the checkpoint as of each report
    rungs: frozenset[int]  # steps after which another machine may train on
    tell: Callable[[Outcome], None]  # called from the thread
    away: bool = False  # the search does not answer; the trial trains on meanwhile
    over: bool = False  # the trial does not go on; what it says now is for nobody
    study_over: str | None = None  # why there is nothing left to ask for, if so
    failed: str | None = None  # why it gave up
    ready: bool = False  # whether its checkpoint is here
    begun: bool = False  # whether a process may have it
    _ended: threading.Event = field(default_factory=threading.Event)
    _beyond: bool = False  # whether it trained on past its end, while the search was away
    _outgoing: queue.Queue[tuple[str, Answer, bool] | None] = field(default_factory=queue.Queue)
    _heard: float = 0.0
    _printed: int = 0  # bytes of the output that were sent
    _sent: tuple[Any, ...] = ()  # what the checkpoint looked like that was sent last
    _may_send: float = 0.0  # when the next checkpoint between rungs may be sent

    def start(self) -> None:
        """Begin to carry."""
        self._heard = time.monotonic()
        threading.Thread(target=self._carry, daemon=True).start()
        threading.Thread(target=self._live, daemon=True).start()

    @property
    def number(self) -> int:
        """The trial's number."""
        return int(self.given["trial"])

    def send(self, verb: str, body: Answer, *, waits: bool = True) -> None:
        """Take a message: a `report`, or an end. `waits`: the trial does so until it is answered."""
        self._outgoing.put((verb, body, waits))

    def leave(self) -> None:
        """Nothing more comes: the trial has left its worker."""
        self._outgoing.put(None)

    # In the thread

    def _carry(self) -> None:
        try:
            self._fetch()
            while (taken := self._outgoing.get()) is not None:
                verb, body, waits = taken
                if self.over:
                    self._beyond = True
                else:
                    self._deliver(verb, body, waits)
                if verb != "report":
                    break
            else:
                self._send_last()
        except Refused as refusal:
            self._stops(str(refusal.body.get("reason", refusal)), "lost")
        except Exception as error:  # whatever it is, this trial cannot be carried on
            self.failed = self.failed or str(error) or type(error).__name__
        finally:
            self.over = True
            self._ended.set()
            with suppress(OSError):
                self.link.close()
            self.tell(Outcome(self, "ended", reason=self.failed or ""))

    def _live(self) -> None:
        """Say that the worker lives, where messages do not; in a thread of its own."""
        lease = float(self.given["until"])
        while not self._ended.wait(lease / BEATS / 2):
            if self.over or time.monotonic() - self._heard < lease / BEATS:
                continue
            try:
                answer = self.link.call(self.given["lease"], "beat", {})
            except (OSError, Refused) as error:
                if isinstance(error, Refused) and not error.passes and not self._ended.is_set():
                    self._stops(str(error.body.get("reason", error)), "lost")
                continue
            self._heard = time.monotonic()
            if not self._ended.is_set():
                self._heed(answer, None)
        with suppress(OSError):
            self.link.close()

    def _fetch(self) -> None:
        """Get the checkpoint from which the trial resumes; then it may begin."""
        if self.given["checkpoint"]:

            def fetch() -> None:
                shutil.rmtree(self.folder / CHECKPOINT, ignore_errors=True)
                self.link.fetch_checkpoint(self.given["lease"], self.folder / CHECKPOINT)

            self._patiently(fetch)
            if self.seals and (self.folder / CHECKPOINT).exists():  # the worker takes this one for its own
                shutil.copytree(self.folder / CHECKPOINT, self.folder / SEALED)
                self._sent = _looks(self.folder / SEALED)
        self.ready = True
        self.tell(Outcome(self, "ready"))

    def _deliver(self, verb: str, body: Answer, waits: bool) -> None:
        """Say something until it has arrived. A trial whose lease is over stops."""
        step = body.get("step")
        try:
            if waits:
                self._send_checkpoint(final=verb != "report", rung=step in self.rungs)
            said = body | {"output": self._output()} if verb != "release" else body
            answer = self._patiently(lambda: self.link.call(self.given["lease"], verb, said))
        except Refused as refusal:
            self._stops(str(refusal.body.get("reason", refusal)), "lost", step)
            return
        if self._outgoing.empty():
            self.away = False
        self._heed(answer, step if verb == "report" else None)
        if verb == "report" and not self.over:
            self.tell(Outcome(self, "goes_on", step))

    def _patiently(self, call: Callable[[], Any]) -> Any:
        """Repeat a call while the search is away, with growing, random pauses; for five leases at most."""
        pause = SHORTEST_PAUSE
        while True:
            try:
                result = call()
            except Refused as refusal:
                if not refusal.passes:
                    raise
                why, least = str(refusal), refusal.retry_after or 0.0
            except OSError as error:
                why, least = str(error) or type(error).__name__, 0.0
            else:
                self._heard = time.monotonic()
                return result
            if not self.away:
                self.away = True
                self.tell(Outcome(self, "away", reason=why))
            silent, most = time.monotonic() - self._heard, GIVES_UP_AFTER * float(self.given["until"])
            if silent > most:
                self.failed = f"the search did not answer for {most:.0f} s ({why})"
                raise Refused(410, {"type": "away", "detail": self.failed})
            pause = min(LONGEST_PAUSE, 2 * pause)
            time.sleep(max(least, pause) * random.uniform(0.5, 1.0))

    def _heed(self, answer: Answer, step: int | None) -> None:
        if "over" in answer:
            self.study_over = str(answer["over"])
        if not answer.get("go_on", True):
            self._stops(str(answer.get("reason", "")), str(answer.get("because", "stopped")), step)

    def _stops(self, reason: str, because: str, step: int | None = None) -> None:
        self.over = True
        self.given["because"] = because
        self.tell(Outcome(self, "stops", step, because, reason))

    def _send_last(self) -> None:
        """Send the checkpoint of a trial that waits, so that another machine goes on where this one stood."""
        if self.given.get("because") in ("paused", "stopped") and not (self.failed or self._beyond):
            with suppress(Refused):  # another has it already
                self._send_checkpoint(final=True)

    def _send_checkpoint(self, *, final: bool = False, rung: bool = False) -> None:
        """Send the checkpoint if it has changed: at rungs and at the end always, else now and then.

        During a report its trial waits, so that nothing changes. Later, the copy of the last report counts.
        """
        sealed = self.folder / SEALED
        source = sealed if final and self.seals and sealed.exists() else self.folder / CHECKPOINT
        due = final or rung or time.monotonic() >= self._may_send
        if not due or self._may_send == math.inf or not has_checkpoint(source.parent):
            return
        if (looks := _looks(source)) == self._sent:
            return
        began = time.monotonic()
        try:
            self.link.send_checkpoint(self.given["lease"], source)
        except OSError:
            return  # the message that follows is repeated, and the trial may be judged without
        except Refused as refusal:
            if refusal.type in ("lease-over", "no-such-lease"):
                raise
            if not refusal.passes:  # it is too large, or there is no room: the next ones will be, too
                self._may_send = math.inf
                self.tell(Outcome(self, "says", reason=f"its checkpoint cannot be sent: {refusal}"))
            return
        self._sent = looks
        self._may_send = time.monotonic() + (time.monotonic() - began) / UPLOAD_SHARE

    def _output(self) -> str:
        """What the trial has printed since the last message, or the end of that."""
        try:
            with (self.folder / OUTPUT).open("rb") as stream:
                size = stream.seek(0, 2)
                begin = min(self._printed, size)
                cut = size - begin > LONGEST_OUTPUT
                stream.seek(size - LONGEST_OUTPUT if cut else begin)
                content = stream.read(LONGEST_OUTPUT)
        except OSError:
            return ""
        self._printed = size
        return ("[...]\n" if cut else "") + content.decode("utf-8", "replace")


def _looks(folder: Path) -> tuple[Any, ...]:
    """What tells one checkpoint from another without reading it."""
    found = []
    for path in sorted(folder.rglob("*")):
        with suppress(OSError):
            stat = path.stat()
            found.append((str(path.relative_to(folder)), stat.st_size, stat.st_mtime_ns))
    return tuple(found)
