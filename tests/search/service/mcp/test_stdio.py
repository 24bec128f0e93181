"""`hpsearch mcp`: a process that an agent starts, and its search, which goes on without a server."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client

from ....support.agents import SCRIPT, drive, whole_task


@pytest.mark.slow
def test_a_whole_task_over_stdio(tmp_path: Path) -> None:
    """The client would not understand a line that is no message: nothing else is printed there."""
    (tmp_path / "train.py").write_text(SCRIPT)
    command = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "hpsearch.search.cli", "mcp"],
        env=os.environ | {"HPSEARCH_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
    )
    drive(lambda: stdio_client(command), whole_task)
