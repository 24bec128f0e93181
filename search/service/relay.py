"""Passes what remote workers say by HTTP to the search of their study, over its Unix socket, and back.

Nothing is remembered that matters: a lease names its study, and the study's id names the socket.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...storage.claims import ID
from ...storage.database import open_storage, open_tables
from ...storage.studies import PHASE, PROVENANCE, Phase, attrs_of, study_keys
from ...storage.workspace import Workspace
from ..backends.remote.address import connect, short_id, socket_path, study_in
from ..backends.remote.archive import ArchiveError, NoRoom, TooLarge, pack, unpack
from ..errors import SearchError
from .home import Home
from .problems import Problem, problem

Answer = dict[str, Any]
ANSWER_SECONDS = 30.0  # for a search to answer: its database may be busy
CONNECT_SECONDS = 5.0
ABSENT_SECONDS = 0.3  # between two looks for a search that has not begun
IDLE_SECONDS = 60.0  # after which a connection is not used again
BEAT_SECONDS = 5.0  # between two signs of life while a checkpoint is on its way
LONGEST_ANSWER = 8 << 20  # bytes
MOST_IDLE = 128  # connections that are kept for each search
_TYPES = {"invalid": "request-invalid"}  # of problems, for refusals that are not named alike


@dataclass
class Connection:
    """A connection to a search."""

    study: str  # the study's name
    about: Answer
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    used: float = field(default_factory=time.monotonic)

    async def say(self, request: Answer, wait: float = 0.0) -> Answer:
        """Make a request. Raises `OSError` where the search has left, `TimeoutError` without an answer."""
        self.writer.write(json.dumps(request).encode() + b"\n")
        async with asyncio.timeout(ANSWER_SECONDS + wait):
            await self.writer.drain()
            line = await self.reader.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the search has ended the connection")
        answer: Answer = json.loads(line)
        return answer


class Relay:
    """The way from remote workers to searches on this machine."""

    def __init__(self, workspace: Workspace, home: Home) -> None:
        self._workspace = workspace
        self._home = home.folder
        self._idle: dict[str, list[Connection]] = {}  # by the beginnings of the studies' ids
        self._ids: dict[str, tuple[str, float]] = {}  # of studies by name, and when they were read

    def start(self) -> None:
        """Nothing is needed before the first call."""

    def ready(self) -> bool:
        """Always: whether a search answers is not its concern."""
        return True

    def leave(self) -> None:
        """Nothing ends by it: who waits for a trial is answered soon."""

    def stop(self) -> None:
        """End the connections. Searches go on."""
        for connection in [each for kept in self._idle.values() for each in kept]:
            connection.writer.close()
        self._idle.clear()

    async def to_study(self, name: str, request: Answer, wait: float = 0.0) -> Answer:
        """Ask the search of a study. Raises `Problem`."""
        for fresh in (False, True):
            study = await self._id_of(name, fresh=fresh)
            try:
                async with self._connection(study) as connection:
                    if connection.study != name and not fresh:
                        raise ConnectionError("another study has this id")  # or this one was renamed
                    return _checked(await connection.say(request, wait))
            except TimeoutError:
                raise problem("no-answer", f'the search of "{name}" does not answer now') from None
            except OSError:
                continue
        raise await asyncio.to_thread(self._absent, name)

    async def ask(self, name: str, request: Answer, wait: float) -> Answer:
        """Ask the search of a study for a trial; one that is about to begin has as long. Raises `Problem`."""
        until = time.monotonic() + wait
        while True:
            left = max(0.0, until - time.monotonic())
            try:
                return await self.to_study(name, {"do": "ask", **request, "wait": left}, left)
            except Problem as refusal:
                if refusal.type != "no-answer" or until - time.monotonic() <= ABSENT_SECONDS:
                    raise
            await asyncio.sleep(ABSENT_SECONDS)

    async def about(self, name: str) -> Answer:
        """What workers have to know of a study. Raises `Problem`."""
        return await self.to_study(name, {"do": "about"})

    async def to_lease(self, lease: str, request: Answer, may_see: Callable[[str], bool]) -> Answer:
        """Say something of a lease to its search, as somebody who may see some studies. Raises `Problem`."""
        study = study_in(lease)
        if study is None:
            raise problem("no-such-lease", "there is no such lease; ask gives one")
        for _ in range(2):  # a connection that was kept may be that of a search which has ended
            try:
                async with self._connection(study) as connection:
                    if not may_see(connection.study):
                        raise problem("no-such-lease", "there is no such lease among this token's studies")
                    return _checked(await connection.say(request | {"lease": lease}))
            except TimeoutError:
                raise problem("no-answer", "the search does not answer now; repeat the request") from None
            except OSError:
                continue
        raise await asyncio.to_thread(self._gone, study, may_see)

    async def receive(
        self, lease: str, pieces: AsyncIterator[bytes], may_see: Callable[[str], bool]
    ) -> Answer:
        """Take a checkpoint as a zip, in pieces. Raises `Problem`."""

        def say(do: str, **more: Any) -> Awaitable[Answer]:
            return self.to_lease(lease, {"do": do, **more}, may_see)

        place = Path((await say("place"))["folder"])
        packed = place.with_name(f"{place.name}.zip")
        try:
            async with _beating(lambda: say("beat")):
                with packed.open("xb") as written:
                    async for piece in pieces:
                        await asyncio.to_thread(written.write, piece)
                with packed.open("rb") as file:
                    await asyncio.to_thread(unpack, file, place)
            return await say("uploaded", folder=str(place))
        except TooLarge as error:
            raise problem("too-large", f"the checkpoint cannot be taken: {error}") from error
        except NoRoom as error:
            raise problem("disk-full", f"the checkpoint cannot be taken: {error}") from error
        except ArchiveError as error:
            raise problem("request-invalid", f"the checkpoint cannot be taken: {error}") from error
        finally:
            packed.unlink(missing_ok=True)

    async def give(self, lease: str, to: Path, may_see: Callable[[str], bool]) -> bool:
        """Write the checkpoint of a lease's trial into a file, as a zip; False where it has none."""

        def say(do: str) -> Awaitable[Answer]:
            return self.to_lease(lease, {"do": do}, may_see)

        folder = (await say("checkpoint"))["folder"]
        if folder is None:
            return False

        def write() -> None:
            with to.open("wb") as file:
                pack(Path(folder), file)

        async with _beating(lambda: say("beat")):
            await asyncio.to_thread(write)
        return True

    # Connections

    @asynccontextmanager
    async def _connection(self, study: str) -> AsyncIterator[Connection]:
        """A connection to a search, which others may use afterwards, unless something went wrong on it."""
        kept = self._idle.setdefault(study, [])
        connection = None
        while kept and connection is None:
            connection = kept.pop()
            if time.monotonic() - connection.used > IDLE_SECONDS or connection.reader.at_eof():
                connection.writer.close()
                connection = None
        if connection is None:
            connection = await self._opened(study)
        try:
            yield connection
        except Problem:
            pass_on = True
            raise
        except BaseException:
            pass_on = False
            raise
        else:
            pass_on = True
        finally:
            connection.used = time.monotonic()
            if pass_on and len(kept) < MOST_IDLE and self._idle.get(study) is kept:
                kept.append(connection)
            else:
                connection.writer.close()

    async def _opened(self, study: str) -> Connection:
        try:
            end = connect(socket_path(study, self._home), CONNECT_SECONDS)
        except SearchError as error:
            raise problem("failed", str(error)) from error
        end.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=end, limit=LONGEST_ANSWER)
        connection = Connection("", {}, reader, writer)
        try:
            connection.about = _checked(await connection.say({"do": "about"}))
        except BaseException:
            writer.close()
            raise
        connection.study = str(connection.about["study"])
        return connection

    # Studies

    async def _id_of(self, name: str, *, fresh: bool) -> str:
        known = self._ids.get(name)
        if known is not None and not fresh and time.monotonic() - known[1] < IDLE_SECONDS:
            return known[0]
        attrs = await asyncio.to_thread(self._attrs, name)
        if ID not in attrs:
            raise problem("no-answer", f'the study "{name}" is not searched now; its workers may ask again')
        study = short_id(attrs[ID])
        self._ids[name] = study, time.monotonic()
        return study

    def _attrs(self, name: str) -> dict[str, Any]:
        attrs = attrs_of(open_storage(self._workspace.url), name)
        if attrs is None:
            raise problem("no-such-study", f'there is no study "{name}"')
        return attrs

    def _absent(self, name: str) -> Problem:
        """Why no search answers for a study."""
        attrs = self._attrs(name)
        backend = attrs.get(PROVENANCE, {}).get("backend", "remote")
        if attrs.get(PHASE) == Phase.OVER:
            return problem("study-over", f'the study "{name}" has nothing left to train', reason="it is over")
        if backend != "remote":
            told = f'the study "{name}" is searched by the backend {backend}: it takes no remote workers'
            return problem("wrong-state", told, state=backend)
        return problem("no-answer", f'the study "{name}" is not searched now; its workers may ask again')

    def _gone(self, study: str, may_see: Callable[[str], bool]) -> Problem:
        """What has become of the study of a lease whose search does not answer."""
        database = open_storage(self._workspace.url)
        for name in study_keys(open_tables(self._workspace.url)):
            if not may_see(name):
                continue
            attrs = attrs_of(database, name) or {}
            if short_id(str(attrs.get(ID, ""))) == study:
                if attrs.get(PHASE) == Phase.OVER:
                    reason = f'the study "{name}" is over'
                    return problem("lease-over", reason, state="over", reason=reason)
                return problem("no-answer", f'the study "{name}" is not searched now; repeat the request')
        return problem("no-such-lease", "there is no such lease among this server's studies")


@asynccontextmanager
async def _beating(beat: Callable[[], Awaitable[Answer]]) -> AsyncIterator[None]:
    """Keep a lease alive meanwhile."""

    async def run() -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            with suppress(Problem):  # what comes afterwards will tell
                await beat()

    beating = asyncio.create_task(run())
    try:
        yield
    finally:
        beating.cancel()


def _checked(answer: Answer) -> Answer:
    """The answer of a search; raises `Problem` for a refusal."""
    kind = answer.get("refused")
    if kind is None:
        found: Answer = answer["answer"]
        return found
    more = {key: value for key, value in answer.items() if key not in ("refused", "message")}
    if "issues" in more:
        more["issues"] = [{"path": "", "message": each} for each in more["issues"]]
    raise problem(_TYPES.get(str(kind), str(kind)), answer["message"], **more)


def client_source() -> str:
    """The client for machines without hpsearch: one file of the standard library."""
    return Path(__file__).with_name("hpsearch_client.py").read_text(encoding="utf-8")
