"""A server that writes, and whose answer is lost: what was written is not written twice."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import optuna
import pytest

from hpsearch.storage import DatabaseUnavailable
from hpsearch.storage.database import open_storage
from hpsearch.storage.studies import SPEC, open_live

pytestmark = pytest.mark.postgres


class Wire:
    """Passes everything on between a driver and its server, but not the answer to a COMMIT once it is cut."""

    def __init__(self, port: int) -> None:
        self.cut = False
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        lost = threading.Event()
        with client, socket.create_connection(("127.0.0.1", self._port)) as server:
            back = threading.Thread(target=self._pass, args=(server, client, lost), daemon=True)
            back.start()
            with suppress(OSError):
                while data := client.recv(1 << 16):
                    if self.cut and b"COMMIT" in data:
                        self.cut = False
                        lost.set()
                    server.sendall(data)
                    if lost.is_set():
                        break
            with suppress(OSError):
                server.shutdown(socket.SHUT_WR)
            back.join()  # the server has ended the session, and its lock, before the driver notices

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket, lost: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                with suppress(OSError):
                    if not lost.is_set():
                        target.sendall(data)


@pytest.fixture
def wire(postgres: Any) -> Iterator[Wire]:
    made = Wire(postgres.port)
    yield made
    made.close()


def test_what_a_server_wrote_without_saying_so_is_not_written_again(postgres: Any, wire: Wire) -> None:
    url = postgres.database()
    database = open_storage(url.replace(f":{postgres.port}/", f":{wire.port}/"), create=True)
    live = open_live(database, "study", goal="minimize", attrs={SPEC: {"metric": "loss"}})
    study = optuna.load_study(study_name="study", storage=live)
    for change in ("new", "report", "attribute", "end"):
        if change == "new":
            trial = study.ask()
            trial.suggest_float("x", 0, 1)
        elif change == "report":
            trial.report(0.5, step=1)
        elif change == "attribute":
            trial.set_user_attr("note", "a")
            study.set_user_attr("elapsed", 1.5)
        else:
            study.tell(trial, 0.25)
        wire.cut = True
        with pytest.raises(DatabaseUnavailable):
            live.flush()
        assert not wire.cut
        live.flush()
    live.close()
    stored = open_storage(url)
    (found,) = optuna.load_study(study_name="study", storage=stored).get_trials()
    assert (found.state.name, found.value, found.intermediate_values) == ("COMPLETE", 0.25, {1: 0.5})
    assert found.user_attrs == {"note": "a"} and list(found.params) == ["x"]
    database.engine.dispose()
    stored.engine.dispose()
