"""Remote workers for a search of this process, and links between them that lose, double and reorder."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hpsearch.search.service.worker.agent import Worked, work
from hpsearch.search.service.worker.link import Answer, Link, SocketLink
from hpsearch.spaces import Spec

STARTS_SECONDS = 60.0


def home() -> Path:
    """Where this process's searches listen."""
    return Path(os.environ["HPSEARCH_HOME"])


def sockets() -> list[Path]:
    return sorted(home().glob("work-*.sock"))


class Workers:
    """Workers in threads of this process, whose trials run in processes of their own."""

    def __init__(self, spec: Spec, **options: Any) -> None:
        self.stop = threading.Event()
        self.said: list[str] = []
        self.done: Worked | None = None
        self.error: BaseException | None = None
        self._spec = spec
        self._options = options
        self._thread = threading.Thread(target=self._work)

    def start(self) -> Workers:
        self._thread.start()
        return self

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _work(self) -> None:
        words = self._spec.objective_words
        options: dict[str, Any] = {"objective": words} | self._options
        wrap = options.pop("wrap", lambda link: link)
        try:
            while not (found := sockets()):
                if self.stop.wait(0.02):
                    return  # the search was refused, or had nothing to do
            options.setdefault("link", wrap(SocketLink(found[0], timeout=10.0)))
            self.done = work(url="", study=self._spec.name, say=self.said.append, stop=self.stop, **options)
        except BaseException as error:
            self.error = error


@contextmanager
def workers_for(spec: Spec, **options: Any) -> Iterator[Workers]:
    """Workers for a search that begins now; they leave with it."""
    workers = Workers(spec, **options).start()
    try:
        yield workers
    finally:
        workers.join(0.0 if not sockets() else 1.0)
        workers.stop.set()
        workers.join(STARTS_SECONDS)


class LossyLink:
    """A link on which requests and answers are lost, requests arrive twice, or late once more."""

    def __init__(self, link: Link, seed: int, loss: float = 0.2) -> None:
        self._link = link
        self._random = random.Random(seed)
        self._loss = loss
        self._lock = threading.Lock()
        self._late: list[Callable[[], Any]] = []
        self.lost = 0

    def about(self) -> Answer:
        return self._link.about()

    def ask(self, body: Answer) -> Answer:
        answer: Answer = self._lossy(lambda: self._link.ask(body))
        return answer

    def call(self, lease: str, verb: str, body: Answer) -> Answer:
        answer: Answer = self._lossy(lambda: self._link.call(lease, verb, body))
        return answer

    def send_checkpoint(self, lease: str, folder: Path) -> None:
        self._lossy(lambda: self._link.send_checkpoint(lease, folder))

    def fetch_checkpoint(self, lease: str, folder: Path) -> None:
        self._link.fetch_checkpoint(lease, folder)

    def close(self) -> None:
        self._link.close()

    def _lossy(self, call: Callable[[], Any]) -> Any:
        with self._lock:
            fate, late = self._random.random(), self._late.pop() if self._late else None
        if late is not None:
            with_errors_ignored(late)  # something that was said long ago arrives again
        if fate < self._loss / 2:
            self.lost += 1
            raise ConnectionError("the request was lost")
        answer = call()
        if fate < self._loss:
            self.lost += 1
            raise ConnectionError("the answer was lost")
        if fate < self._loss * 1.5:
            with_errors_ignored(call)
        elif fate < self._loss * 2:
            with self._lock:
                self._late.append(call)
        return answer


def with_errors_ignored(call: Callable[[], Any]) -> None:
    try:
        call()
    except Exception:  # nobody waits for this answer
        return


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
    return found
