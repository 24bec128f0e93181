"""Tools of ours that load torch and run in their own process: they read one line of JSON, and print JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from subprocess import PIPE, Popen
from typing import Any

from ..errors import SearchError


def start_tool(module: str, environment: Mapping[str, str] | None = None) -> Popen[str]:
    """Start a module of hpsearch; by default in the environment of this process."""
    command = [sys.executable, "-P", "-m", f"hpsearch.{module}"]
    return Popen(command, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)


def answer_of(tool: Popen[str], question: Any = None, seconds: float | None = None) -> Any:
    """What a tool prints. Raises `SearchError` where it fails, `TimeoutExpired` where it takes longer."""
    with tool:
        try:
            output, errors = tool.communicate(json.dumps(question), seconds)
        except BaseException:
            tool.kill()
            raise
    check_tool(tool, errors)
    return json.loads(output)


def check_tool(tool: Popen[str], errors: str) -> None:
    """Raise `SearchError` with the last line of what a tool printed as `errors`, if it failed."""
    if tool.returncode:
        raise SearchError((errors.strip().splitlines() or [f"exit code {tool.returncode}"])[-1])
