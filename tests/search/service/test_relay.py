"""The way from workers to their search: many at once, in one server and one search of this process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search.backends.remote.backend import RemoteBackend
from hpsearch.search.service.hpsearch_client import Refused, Server
from hpsearch.spaces import Spec
from hpsearch.storage.claims import ID
from hpsearch.storage.workspace import Workspace

from ...support.driving import DrivenStudy
from ...support.online import serving

WORKERS = 64  # more than the server has threads
SECONDS = 20.0  # after which a call has failed


def test_workers_that_wait_for_a_trial_hold_up_nobody(
    study: DrivenStudy, make_spec: Callable[..., Spec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPSEARCH_HOME", str(tmp_path / "home"))
    spec = make_spec(objective="remote", budget={"trials": 1})
    driver = study.driver(spec)
    driver.study.set_user_attr(ID, "5" * 32)
    workspace = Workspace.at(str(study.file), study.runs)
    with ThreadPoolExecutor(WORKERS + 1) as threads, serving(workspace, tmp_path) as served:
        search = threads.submit(RemoteBackend(spec, {}).run, driver)
        try:
            client = Server(served.url, served.token(), timeout=SECONDS)

            def ask(worker: int) -> Any:
                wanted = {"worker": f"w{worker}", "request": "1", "wait": SECONDS}
                try:
                    return client.call("POST", "/v1/studies/study/ask", wanted, wait=SECONDS)
                finally:
                    client.close()  # its thread's connection

            lease = f"/v1/leases/{ask(0)['lease']}"
            others = [threads.submit(ask, number) for number in range(1, WORKERS)]
            for step in (1, 2, 3):
                assert client.call("POST", f"{lease}/report", {"step": step, "value": 0.5})["go_on"]
                (row,) = client.call("GET", "/v1/studies/study/trials")["value"]
                assert row["last_step"] == step
            assert not any(each.done() for each in others)
            client.call("POST", f"{lease}/complete", {"value": 0.5})
            over = [each.exception(timeout=SECONDS) for each in others]
            assert {each.type for each in over if isinstance(each, Refused)} == {"study-over"}
            assert all(isinstance(each, Refused) for each in over)
            client.close()
        finally:
            driver.request_stop("the test is over")
            search.result(timeout=60)
            driver.close()
