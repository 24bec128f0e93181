"""`/mcp` of a real server, by the SDK's own client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client

from hpsearch.search.service.home import Settings
from hpsearch.storage.workspace import Workspace

from ....support.agents import SCRIPT, drive, whole_task
from ....support.online import serving


@pytest.mark.slow
def test_a_whole_task_over_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has the script under one of its roots, and the token may bring code."""
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    workspace = Workspace.at(str(tmp_path / "studies.db"))
    with serving(workspace, tmp_path, Settings(roots=(tmp_path,))) as served:
        headers = {"Authorization": f"Bearer {served.token('code')}"}

        def connect() -> Any:
            return streamable_http_client(
                f"{served.url}/mcp", http_client=httpx2.AsyncClient(headers=headers, timeout=120)
            )

        drive(connect, whole_task)
