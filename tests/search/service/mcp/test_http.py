"""`/mcp` of a real server, by the SDK's own client; and the tools of an agent's own machine at that server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client

from hpsearch.search.service.home import Settings
from hpsearch.search.service.mcp.protocol import make_server
from hpsearch.search.service.mcp.tools import Tools
from hpsearch.search.service.place import There
from hpsearch.search.service.tokens import SCOPES
from hpsearch.storage.workspace import Workspace

from ....support.agents import SCRIPT, Agent, drive, whole_task
from ....support.online import Served, serving


@pytest.mark.slow
def test_a_whole_task_over_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has the script under one of its roots, and the token may bring code."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    workspace = Workspace.at(str(tmp_path / "studies.db"))
    with serving(workspace, tmp_path, Settings(roots=(tmp_path,))) as served:
        headers = {"Authorization": f"Bearer {served.token('code')}"}

        @asynccontextmanager
        async def connect() -> AsyncIterator[Any]:
            async with (
                httpx2.AsyncClient(headers=headers, timeout=120) as client,
                streamable_http_client(f"{served.url}/mcp", http_client=client) as streams,
            ):
                yield streams

        drive(connect, whole_task)
        from_elsewhere(served, tmp_path)


def from_elsewhere(served: Served, folder: Path) -> None:
    """What `hpsearch --server URL mcp` does: files are the agent's, and the code goes along."""
    (folder / "train.yaml").write_text(
        "version: 1\nname: sent\nobjective: {command: [python, train.py, '${args}']}\nmetric: val_loss\n"
        "parameters: {learning_rate: {min: 0.001, max: 0.1, log: true}}\nbudget: {trials: 2}\n"
    )

    async def task(agent: Agent) -> None:
        assert "[python, train.py" in await agent("propose_space", script="train.py")
        assert (await agent("validate_space", space="train.yaml")).startswith("valid: sent")
        assert 'study "sent"' in await agent("submit", space="train.yaml", hold=True)
        assert "sent | paused" in await agent("list_studies")
        rows = await agent("list_trials", study="train", sort="newest", limit=2, after=3)
        assert [row.split(" | ")[0] for row in rows.splitlines()[2:4]] == ["2", "1"]
        for tool in ("show_study", "wait", "winner", "export"):
            assert "unconfirmed" in await agent(tool, study="train")
        assert "story: " in await agent("show_trial", study="train", trial=0)
        assert "the same in all" in await agent("compare_trials", study="train", trials=[0, 1])
        assert "budget trials 3" in await agent("steer", study="sent", trials=3)
        assert "there is no study" in await agent.refused("winner", study="tain")

    with closing(served.client("code")) as client:
        tools = Tools(There(client), files=True)
        drive(lambda: make_server(lambda: tools, lambda: SCOPES), task)
