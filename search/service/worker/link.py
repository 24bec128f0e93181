"""The way from workers to their search: by HTTP to a server, or by the search's own socket here."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from ...backends.remote.address import connect
from ...backends.remote.archive import files_of, pack, unpack
from ...errors import UsageError
from .. import known
from ..hpsearch_client import Refused, Server

Answer = dict[str, Any]
SOCKET = "unix:"
STATUS = {  # of refusals of a search, for those that the server's status would tell
    "lease-over": 410,
    "study-over": 410,
    "wrong-state": 409,
    "no-such-lease": 404,
    "malformed": 400,
}


class Link(Protocol):
    """What workers say to their search. Each call raises `Refused`, or `OSError` where nobody answers."""

    def about(self) -> Answer:
        """The study: its name, and its space."""
        ...

    def ask(self, body: Answer) -> Answer:
        """A trial with its lease; `over` where there is none any more, else nothing of both."""
        ...

    def call(self, lease: str, verb: str, body: Answer) -> Answer:
        """Say something of a trial."""
        ...

    def send_checkpoint(self, lease: str, folder: Path) -> None:
        """Send a checkpoint, which counts from the next report on."""
        ...

    def fetch_checkpoint(self, lease: str, folder: Path) -> None:
        """Write the trial's checkpoint into a folder that does not exist yet."""
        ...

    def close(self) -> None:
        """End the connection of this thread."""
        ...


def link_to(url: str, study: str, token: str | None) -> Link:
    """The link to the search of a study, with the token given, or the one that this user has for the server.

    Raises `UsageError` for what is no address, or without a token.
    """
    if url.startswith(SOCKET):
        return SocketLink(Path(url.removeprefix(SOCKET)))
    place = known.find(url, token)
    if place.uds is not None:
        told = f"your server listens at {place.uds} alone, where workers do not reach it"
        raise UsageError(f"{told}; a search says its own address, unix:...", code="server-url")
    return HttpLink(Server(place.url, place.token), study)


class HttpLink:
    """The link by a server."""

    def __init__(self, server: Server, study: str) -> None:
        self._server = server
        self._study = f"/v1/studies/{quote(study, safe='')}"

    def about(self) -> Answer:
        return self._server.call("GET", f"{self._study}/work")

    def ask(self, body: Answer) -> Answer:
        try:
            return self._server.call("POST", f"{self._study}/ask", body, wait=body.get("wait", 0.0))
        except Refused as refusal:
            if refusal.type != "study-over":
                raise
            return {"over": str(refusal.body.get("reason", refusal))}

    def call(self, lease: str, verb: str, body: Answer) -> Answer:
        return self._server.call("POST", f"/v1/leases/{lease}/{verb}", body)

    def send_checkpoint(self, lease: str, folder: Path) -> None:
        with tempfile.TemporaryFile() as packed:
            pack(folder, packed)
            self._server.send(f"/v1/leases/{lease}/checkpoint", packed)

    def fetch_checkpoint(self, lease: str, folder: Path) -> None:
        with tempfile.TemporaryFile() as packed:
            if self._server.fetch(f"/v1/leases/{lease}/checkpoint", packed):
                unpack(packed, folder)

    def close(self) -> None:
        self._server.close()


class SocketLink:
    """The link by the search's own socket; its files are on this machine."""

    def __init__(self, path: Path, timeout: float = 30.0) -> None:
        self._path = path
        self._timeout = timeout
        self._mine = threading.local()

    def about(self) -> Answer:
        return self._exchange({"do": "about"})

    def ask(self, body: Answer) -> Answer:
        try:
            return self._exchange({"do": "ask", **body}, body.get("wait", 0.0))
        except FileNotFoundError:  # the search has left, and taken its socket with it
            return {"over": "the search has ended, or waits for the command that resumes it"}

    def call(self, lease: str, verb: str, body: Answer) -> Answer:
        return self._exchange({"do": verb, "lease": lease, **body})

    def send_checkpoint(self, lease: str, folder: Path) -> None:
        place = Path(self._exchange({"do": "place", "lease": lease})["folder"])
        try:
            _copy(folder, place)
            self._exchange({"do": "uploaded", "lease": lease, "folder": str(place)})
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise

    def fetch_checkpoint(self, lease: str, folder: Path) -> None:
        there = self._exchange({"do": "checkpoint", "lease": lease})["folder"]
        if there is not None:
            _copy(Path(there), folder)

    def close(self) -> None:
        end = getattr(self._mine, "end", None)
        self._mine.end = None
        if end is not None:
            end.close()

    def _exchange(self, request: Answer, wait: float = 0.0) -> Answer:
        if getattr(self._mine, "end", None) is not None:
            with suppress(ConnectionError):  # of a search that has ended; there may be another
                return self._once(request, wait)
        return self._once(request, wait)

    def _once(self, request: Answer, wait: float) -> Answer:
        try:
            if getattr(self._mine, "end", None) is None:
                self._mine.end = connect(self._path, self._timeout)
            end: socket.socket = self._mine.end
            end.settimeout(self._timeout + wait)
            end.sendall(json.dumps(request).encode() + b"\n")
            line = b""
            while not line.endswith(b"\n"):
                if not (piece := end.recv(1 << 18)):
                    raise ConnectionError("the search has ended the connection")
                line += piece
        except BaseException:
            self.close()
            raise
        answer: Answer = json.loads(line)
        if (kind := answer.get("refused")) is not None:
            body = answer | {"detail": answer["message"], "type": kind}
            raise Refused(STATUS.get(kind, 422), body)
        found: Answer = answer["answer"]
        return found


def _copy(source: Path, target: Path) -> None:
    """Copy the files of a checkpoint that are complete."""
    target.mkdir(parents=True, exist_ok=True)
    for path in files_of(source):
        to = target / path.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, to, follow_symlinks=False)


def worker_name() -> str:
    """How the study knows the workers of this process: by their machine and its number."""
    return f"{socket.gethostname()[:100] or 'worker'}-{os.getpid()}"
