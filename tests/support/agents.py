"""An agent's client, and the script that it tunes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from mcp.client import Client

SCRIPT = """\
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--learning_rate", type=float, default=0.01)
parser.add_argument("--dropout", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()
for epoch in range(1, args.epochs + 1):
    loss = (args.learning_rate - 0.02) ** 2 + args.dropout / epoch
    print(f"epoch {epoch} val_loss {loss}", flush=True)
"""


PAGE = Path(__file__).parents[2] / "docs" / "agents.md"


def as_small_as_the_page_says(tool: str, text: str) -> str:
    """What a tool has said. Fails where it is longer than the page's table has it."""
    most = re.search(rf"^\| `{tool}` \|.*\| (\d+) \|$", PAGE.read_text(), re.MULTILINE)
    assert most is not None and len(text) <= int(most[1]), (tool, len(text), text)
    return text


class Agent:
    """Calls tools, and remembers the size of each answer."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.sizes: dict[str, int] = {}

    async def __call__(self, tool: str, **arguments: Any) -> str:
        """What a tool says."""
        text, refused = await self._said(tool, arguments)
        assert not refused, text
        self.sizes[tool] = max(len(text), self.sizes.get(tool, 0))
        return as_small_as_the_page_says(tool, text)

    async def refused(self, tool: str, **arguments: Any) -> str:
        """Why a tool refuses."""
        text, refused = await self._said(tool, arguments)
        assert refused, text
        return text

    async def _said(self, tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        done = await self.client.call_tool(tool, arguments)
        (content,) = done.content
        return content.text, bool(done.is_error)  # type: ignore[union-attr]

    async def until_over(self, study: str) -> str:
        """Wait, as it says, until the study is over."""
        said = ""
        for _ in range(20):
            best = re.search(r"best=([-0-9.e]+)\)", said)
            said = await self("wait", study=study, **({"best": float(best[1])} if best else {}))
            if f"next: wait(study={study}" not in said:
                return said
        raise AssertionError(said)


def drive(connect: Callable[[], Any], task: Callable[[Agent], Awaitable[None]]) -> Agent:
    """Do a task with a client of the SDK's own; the agent that did it."""

    async def run() -> Agent:
        async with Client(connect(), read_timeout_seconds=120) as client:
            agent = Agent(client)
            await task(agent)
            print("\n".join(f"{tool}: {size} characters" for tool, size in agent.sizes.items()))
            return agent

    return asyncio.run(run())


async def whole_task(agent: Agent) -> None:
    """From a script to the winner's configuration."""
    proposed = await agent("propose_space", script=SCRIPT)
    space = proposed.replace("{trials: 30}", "{trials: 4}").replace("# early_stopping", "early_stopping")
    assert '[python, train.py, "${args}"]' in space
    mistaken = await agent.refused("validate_space", space=space.replace("{min: 0.001", "{mim: 0.001"))
    line = next(at for at, text in enumerate(space.splitlines(), 1) if "learning_rate: {" in text)
    assert mistaken.startswith(f"<space>:{line}:19 parameters.learning_rate.mim: ") and '"min"?' in mistaken
    assert (await agent("validate_space", space=space)).startswith("valid: train: minimize val_loss of")
    told = await agent.refused("submit", space=space.replace("budget: {trials: 4}", ""))
    assert told.startswith("the space has no budget")
    planned = await agent("plan", space=space, seconds=20)
    assert planned.startswith("foreseen end of train: ") and planned.index("end") < planned.index(
        "next: submit"
    )
    done = await agent("submit", space=space)
    assert 'submitted: the study "train"' in done and "by its plan: foreseen end" in done
    assert "it was there already" in await agent("submit", space=space)
    said = await agent.until_over("train")
    assert "finished" in said and said.index("evidence: unconfirmed") < said.index("val_loss")
    won = await agent("winner", study="train")
    assert won.index("evidence: unconfirmed") < won.index("parameters: learning_rate=")
    exported = await agent("export", study="train", form="flags")
    assert "unconfirmed" in exported.splitlines()[0] and "--learning_rate" in exported
