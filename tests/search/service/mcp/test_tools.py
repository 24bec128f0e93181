"""The tools: what an agent is told, what it may do, and how large the answers are."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search.errors import SearchError
from hpsearch.search.operations import OPERATIONS, run
from hpsearch.search.service.mcp.protocol import make_server
from hpsearch.search.service.mcp.tools import TOOLS, Tools
from hpsearch.search.service.place import Here
from hpsearch.search.service.tokens import SCOPES
from hpsearch.storage.workspace import Workspace

from ....support.agents import PAGE, SCRIPT, Agent, as_small_as_the_page_says, drive
from ....support.in_process import InProcessBackend
from ....support.serving import CURVE, Callers, callers, searched
from ....support.watchers import Recorder


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "hpsearch.search.operations.run.make_backend", lambda name, *of: InProcessBackend(*of[:2])
    )
    return Workspace.at(str(tmp_path / "studies.db"))


def served(workspace: Workspace) -> Any:
    tools = Tools(Here(workspace), files=True)
    return make_server(lambda: tools, lambda: SCOPES)


def test_an_agent_finds_and_steers_all_that_it_needs(workspace: Workspace, tmp_path: Path) -> None:
    """The whole of it but the plan, which starts workers: `test_stdio` and `test_http` have that."""
    (tmp_path / "train.py").write_text(SCRIPT)

    async def task(agent: Agent) -> None:
        assert "no database" in await agent("list_studies")
        space = (await agent("propose_space", script="train.py")).replace(
            "{trials: 30}", "{trials: 30, time: 1h}"
        )
        (tmp_path / "train.yaml").write_text(space)
        valid = await agent("validate_space", space="train.yaml")
        assert "next: plan" in valid
        done = await agent("submit", space="train.yaml", trials=6, name="tuned", priority="high")
        assert 'study "tuned"' in done and "budget: trials 6, time 1 h" in done and "not planned" in done
        assert "next: wait(study=tuned" in await agent("wait", study="tuned", seconds=0)
        await asyncio.to_thread(run.run, workspace=workspace, study="tuned", watcher=Recorder())
        said = await agent.until_over("tuned")
        assert said.index("evidence: confirmed") < said.index("val_loss (minimize) 0.0136885, 95% [")
        assert "trials ended: 6 of 6" in said and "trainings that confirm" in said and "next: winner" in said
        shown = await agent("show_study", study="tuned")
        assert shown.index("evidence: ") < shown.index("parameter | searched") < shown.index("next: export")
        rows = (await agent("list_trials", study="tuned", limit=3)).splitlines()
        assert rows[1] == "number | state | value | last_step | why | learning_rate | dropout"
        assert (
            rows[2].startswith("1 | complete | 0.0136885 | 3 | - | 0.012441 | 0.0408941")
            and "after=" in rows[-1]
        )
        few = await agent("list_trials", study="tuned", sort="newest", columns=["number", "epochs"])
        assert few.splitlines()[1:3] == ["number | epochs", "17 | 3"]
        assert "curve by" in await agent("show_trial", study="tuned", trial=1)
        compared = await agent("compare_trials", study="tuned", trials=[0, 1])
        assert (
            compared.index("evidence") < compared.index("val_loss |")
            and "the same in all: epochs=3" in compared
        )
        assert "is over" in await agent("plan", study="tuned")
        assert "gain over the baseline (trial 0): 0.0197" in await agent("winner", study="tuned")
        for form, holds in (
            ("yaml", "learning_rate: 0.0124"),
            ("command", "train.py --learning_rate=0.0124"),
        ):
            assert holds in await agent("export", study="tuned", form=form)
        more = await agent("steer", study="tuned", trials=8)
        assert "budget trials 8, time 3600" in more and "queued" in more
        tried = await agent("try_config", study="tuned", params={"learning_rate": 0.02, "dropout": 0.0})
        assert tried.startswith("trial 18 waits")
        assert "paused" in await agent("steer", study="tuned", to="pause")
        assert "tuned | paused | val_loss | 0.0136885 | 6 | 8" in await agent("list_studies")
        sweep = "program: a.py\nmethod: random\nmetric: {name: loss}\nparameters: {x: {values: [1, 2]}}\n"
        assert "x: [1, 2]" in await agent("convert_space", file=sweep)
        for tool, wrong, message in (
            ("show_study", {"study": "tuend"}, 'did you mean "tuned"?'),
            ("wait", {"study": "tuend"}, 'did you mean "tuned"?'),
            ("kill_trial", {"study": "tuned", "trial": 0}, "trial 0 has ended already: it is complete"),
            ("retry_trial", {"study": "tuned"}, "has failed"),
            ("try_config", {"study": "tuned", "params": {"dropout": 7}}, "dropout"),
            ("list_trials", {"study": "tuned", "columns": ["lr"]}, "a trial has no lr; it has number, state"),
            ("list_trials", {"study": "tuned", "limit": 51}, "limit: "),
            ("list_trials", {"stdy": "tuned"}, 'unknown argument; did you mean "study"?'),
            ("list_trails", {}, 'did you mean "list_trials"?'),
            ("plan", {}, "give either a space or a study"),
            ("validate_space", {"space": "none.yaml"}, "none.yaml"),
            ("validate_space", {"space": "-"}, "give the text itself"),
            ("propose_space", {"script": "print(1)\n"}, "train.py: found no options"),
            ("convert_space", {"file": "a: 1"}, "this is not one of"),
        ):
            told = await agent.refused(tool, **wrong)
            assert message in told and "Traceback" not in told and "pydantic" not in told, told

    agent = drive(lambda: served(workspace), task)
    assert set(TOOLS) - set(agent.sizes) == {"kill_trial", "retry_trial"}, "those are measured over HTTP"


def test_an_agent_makes_sure_of_a_winner_that_is_not(workspace: Workspace, tmp_path: Path) -> None:
    """A finished search was not asked to confirm: `winner` gives the call that does it, and it is done."""
    (tmp_path / "curve.py").write_text(CURVE)
    space = (
        "version: 1\nname: curve\nobjective: curve.py:curve\nmetric: loss\nparameters: {x: {min: 0.0, max: 1.0}}\n"
        "search: {sampler: random}\nbudget: {trials: 4}\nexecution: {workers: 1, retries: 0}\n"
    )

    async def search() -> None:
        await asyncio.to_thread(run.run, workspace=workspace, study="curve", watcher=Recorder())

    async def task(agent: Agent) -> None:
        await agent("submit", space=space)
        await search()
        said = await agent("winner", study="curve")
        step = "next: steer(study=curve, to=run, confirm=3): confirm the winner"
        assert said.startswith("evidence: unconfirmed") and step in said
        assert "confirm top 3" in await agent("steer", study="curve", to="run", confirm=3)
        assert "next: wait" in await agent("try_config", study="curve", params={"x": 0.29})
        assert "tried again: 2" in await agent("retry_trial", study="curve", trial=2)
        await search()
        sure = await agent("winner", study="curve")
        assert sure.startswith("evidence: ") and "unconfirmed" not in sure and "new seeds" in sure
        assert "budget trials 7" in await agent("steer", study="curve", trials=7)
        await search()
        assert "trials ended: 7 of 7" in await agent("wait", study="curve")

    drive(lambda: served(workspace), task)


def test_a_refusal_is_small_whatever_was_sent(workspace: Workspace) -> None:
    text = "x" * 100_000
    space = "version: 1\n" + "".join(f"unknown_{number}: 1\n" for number in range(500))

    async def task(agent: Agent) -> None:
        said = [
            await agent.refused("propose_space", script=text),
            await agent.refused("convert_space", file=text),
            await agent.refused("show_study", study=text),
            await agent.refused("show_trial", study=text, trial=0),
            await agent.refused("steer", study=text, trials=10**17),
            await agent.refused("list_studies", **{text: 1}),
            await agent.refused("list_studies", **{f"key_{number}": 1 for number in range(100)}),
            await agent.refused("validate_space", space=text),
            await agent.refused(text),
        ]
        assert max(map(len, said)) < 1500, [each[:300] for each in said]
        assert "\nand 90 more" in said[6]
        told = await agent.refused("validate_space", space=space)
        assert len(told.splitlines()) == 12 and len(told) < 4000
        assert told.endswith(" more\nmend these, then call validate_space again")

    drive(lambda: served(workspace), task)


def test_a_number_that_no_study_can_hold_is_refused_and_the_study_stays(workspace: Workspace) -> None:
    async def task(agent: Agent) -> None:
        await agent("submit", space="lora_quick", name="s", trials=6, hold=True)
        for limits in ({"trials": 10**17}, {"samples": 10**30}, {"trials": 2**53}):
            for tool, what in (("steer", {"study": "s"}), ("submit", {"space": "lora_quick", "name": "t"})):
                told = await agent.refused(tool, **what, **limits)
                assert "must be at most 9,007,199,254,740,991" in told
        assert "trials 0 of 6" in await agent("show_study", study="s")
        for tool in ("show_trial", "kill_trial", "retry_trial"):
            assert "the study has no trial" in await agent.refused(tool, study="s", trial=10**30)

    drive(lambda: served(workspace), task)


def test_the_page_lists_the_tools_as_they_are() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| ([^|]+) \| ([^|]+) \| \d+ \|$", PAGE.read_text(), re.MULTILINE
    )
    assert rows == [(k.name, k.scope, k.hints, k.description.split("\n")[0]) for k in TOOLS.values()]


def test_no_tool_deletes_and_each_has_the_scope_of_what_it_does() -> None:
    scopes = {each.path.partition(":")[2]: each.scope for each in OPERATIONS.values()}
    assert all(kind.scope in ("read", "write") for kind in TOOLS.values())
    assert {kind.name for kind in TOOLS.values() if kind.destroys} == {"kill_trial"}
    changing = {name for name, kind in TOOLS.items() if not kind.reads}
    assert changing == {"plan", "submit", "steer", "kill_trial", "retry_trial", "try_config"}
    assert {TOOLS[name].scope for name in changing} == {"write"} == {scopes["submit"], scopes["plan"]}
    assert not any("delete" in name or "token" in name for name in TOOLS)


def test_resources_and_the_prompt(workspace: Workspace) -> None:
    async def task(agent: Agent) -> None:
        client = agent.client
        listed = await client.list_tools()
        hints = {tool.name: tool.annotations for tool in listed.tools}
        told = sum(len(tool.model_dump_json(by_alias=True, exclude_none=True)) for tool in listed.tools)
        assert told <= int(re.search(r"takes ([\d,]+) characters\.", PAGE.read_text())[1].replace(",", ""))  # type: ignore[index]
        assert hints["show_study"].read_only_hint and not hints["submit"].read_only_hint  # type: ignore[union-attr]
        assert "Plan it first" in next(
            tool.description or "" for tool in listed.tools if tool.name == "submit"
        )
        schema = (await client.read_resource("hpsearch://schema")).contents[0].text  # type: ignore[union-attr]
        assert json.loads(schema)["properties"]["parameters"]
        page = (await client.read_resource("hpsearch://docs/spaces")).contents[0].text  # type: ignore[union-attr]
        assert page.startswith("# Spaces")
        with pytest.raises(Exception, match="no database"):
            await client.read_resource("hpsearch://studies/none/report")
        with pytest.raises(Exception, match="there is no hpsearch://x"):
            await client.read_resource("hpsearch://x")
        said = await client.get_prompt("tune_this_script", {"script": "fit.py"})
        assert "fit.py" in said.messages[0].content.text  # type: ignore[union-attr]

    drive(lambda: served(workspace), task)


def test_a_wait_ends_where_the_server_does(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    tools = Tools(Here(workspace), files=True, leaving=lambda: True)
    tools.submit(tools.propose_space("train.py"), trials=2)
    with pytest.raises(SearchError, match="the search goes on: call wait again"):
        asyncio.run(tools.wait("train"))


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callers]:
    folder = tmp_path_factory.mktemp("served")
    with callers(searched(folder), folder / "home") as found:
        yield found


def asked(call: Callers, method: str, scope: Any = "admin", token: str | None = None, **params: Any) -> Any:
    """The answer to a request of the protocol, as clients of 2025 send it."""
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return call("POST", "/mcp", scope, token, json=message, headers=headers)


def test_a_token_sees_the_tools_of_its_scope(call: Callers) -> None:
    def names(scope: str) -> set[str]:
        return {tool["name"] for tool in asked(call, "tools/list", scope).json()["result"]["tools"]}

    reading = {name for name, kind in TOOLS.items() if kind.scope == "read"}
    assert (names("read"), names("work"), names("write")) == (reading, set(), set(TOOLS))
    assert asked(call, "tools/list", None).status_code == 401
    assert call("GET", "/mcp").status_code == 405
    assert call("POST", "/mcp", headers={"Origin": "https://evil.example"}, json={}).status_code == 403


def test_a_tool_does_what_the_routes_allow_its_token(call: Callers) -> None:
    def told(tool: str, scope: Any = "write", token: str | None = None, **arguments: Any) -> str:
        result = asked(call, "tools/call", scope, token, name=tool, arguments=arguments).json()["result"]
        said = str(result["content"][0]["text"])
        return f"! {said}" if result.get("isError") else as_small_as_the_page_says(tool, said)

    assert told("winner", "read", study="curve").startswith("evidence: unconfirmed")
    assert told("steer", "read", study="curve", to="stop") == '! steer needs a token with the scope "write"'
    mine = "version: 1\nname: mine\nobjective: mine.py:f\nmetric: x\nparameters: {x: [1, 2]}\nbudget: {trials: 2}\n"
    assert 'needs a token with the scope "code"' in told("submit", space=mine)
    assert "is relative, and no bundle" in told("submit", "code", space=mine)
    assert "does not see files of your machine" in told("validate_space", space="/etc/passwd")
    assert "does not see files of your machine" in told("propose_space", script="/etc/passwd")
    bound = call.service.tokens.create("bound", "read", studies=("other*",)).token
    assert told("list_studies", None, bound).startswith("studies: 0")
    assert told("show_study", None, bound, study="curve").startswith("! there is no such study")
    assert (
        told("wait", None, bound, study="curve", seconds=0) == '! there is no study "curve"; there are: none'
    )
    asked_for = told("steer", study="curve", confirm=2, trials=5)
    assert "budget trials 5; confirm top 2" in asked_for
    assert told("retry_trial", study="curve") == "tried again: 2; next: wait(study=curve)"
    assert told("kill_trial", study="curve", trial=2).startswith("trial 2 of curve was killed")
    report = asked(call, "resources/read", None, bound, uri="hpsearch://studies/curve/report").json()
    assert "there is no such study" in report["error"]["message"]


def test_many_agents_wait_at_the_same_time(call: Callers) -> None:
    """Tools call routes of the same process: neither may take the threads of the other."""

    async def ask() -> list[int]:
        several = (
            asyncio.to_thread(asked, call, "tools/call", name="winner", arguments={"study": "curve"})
            for _ in range(48)
        )
        return [answer.status_code for answer in await asyncio.gather(*several)]

    assert asyncio.run(ask()) == [200] * 48


def test_without_its_library_the_server_says_so(call: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    with callers(call.service.workspace, call.service.home.folder) as other:
        monkeypatch.setitem(sys.modules, "hpsearch.search.service.mcp.http", None)  # as if it had failed
        answer = asked(other, "tools/list")
    assert (answer.status_code, "pip install 'hpsearch[mcp]'" in answer.json()["detail"]) == (501, True)
