"""The tools, resources and prompts by the Model Context Protocol, as the official SDK speaks it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from importlib import metadata
from importlib.resources import files
from typing import Any
from urllib.parse import unquote

from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)
from pydantic import BaseModel, ValidationError

from ....objectives import ObjectiveError
from ....spaces import SpaceError
from ....spaces.errors import hint, shortened
from ....storage import StorageError
from ....storage.passwords import without_passwords
from ...errors import SearchError, why
from ...operations import show, spaces
from . import words
from .kinds import ToolKind
from .threads import in_thread
from .tools import TOOLS, Tools

ERRORS = (SearchError, StorageError, SpaceError, ObjectiveError, OSError)  # which have a message of ours
SCHEMA, DOCS = "hpsearch://schema", "hpsearch://docs/spaces"
REPORT, REPORT_END = "hpsearch://studies/", "/report"
INSTRUCTIONS = """\
hpsearch searches the hyperparameters of training scripts. In this order: propose_space from the script (or
write a space: hpsearch://docs/spaces), validate_space until it is valid, plan (always before submit),
submit, wait (again while it says so), winner, export. Answers end with the next step. Say how sure a result
is (confirmed with its interval, a tie, unconfirmed) before its value: the best of many trainings flatters."""
PROMPT = """\
Find better hyperparameters for the training script {script} with hpsearch, within a budget of {budget}.

1. Read the script. Call propose_space, and change the ranges where you know better; keep the present values
   as baseline, so that the gain can be told. Search the few parameters that matter most.
2. validate_space until nothing is left to mend. The script must report its metric: say what to change in it.
3. plan with the budget. Where the plan calls something not sensible, change the budget or the space, and plan
   again. Tell me when it ends before you submit.
4. submit, then wait again and again; tell me what changed, not each trial.
5. winner: tell me first whether it is confirmed, a tie or unconfirmed, then its value with the interval, and
   the gain over the baseline. Where it is unconfirmed, make sure of it by the call that winner ends with.
   Then export its configuration, and say how to train with it."""


def make_server(tools: Callable[[], Tools], scopes: Callable[[], Collection[str]]) -> Server[Any]:
    """A server whose tools work as `tools` says, for who has `scopes`: both are asked at each request."""
    handlers = _Handlers(tools, scopes)
    return Server(
        "hpsearch",
        version=metadata.version("hpsearch"),
        title="hpsearch",
        instructions=INSTRUCTIONS,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
    )


class _Handlers:
    """Answers requests of the protocol."""

    def __init__(self, tools: Callable[[], Tools], scopes: Callable[[], Collection[str]]) -> None:
        self._tools, self._scopes = tools, scopes

    async def list_tools(
        self, context: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        """The tools that the caller may use."""
        return ListToolsResult(tools=[_described(kind) for kind in TOOLS.values() if self._may(kind)])

    async def call_tool(
        self, context: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult:
        """What a tool says; a mistake as a message that a model can mend it by."""
        allowed = [name for name, kind in TOOLS.items() if self._may(kind)]
        if params.name not in TOOLS:
            named = shortened(params.name, words.LONGEST_LINE // 10)
            return _refused(f"there is no tool {named!r}; {hint(named, allowed)}")
        kind = TOOLS[params.name]
        if not self._may(kind):
            return _refused(f'{kind.name} needs a token with the scope "{kind.scope}"')
        try:
            arguments = kind.arguments.model_validate(_unpacked(kind, params.arguments or {}))
        except ValidationError as error:
            return _refused(_mistakes(kind, error))
        tools = self._tools()
        method = getattr(tools, kind.name)
        given = {name: getattr(arguments, name) for name in kind.arguments.model_fields}
        try:
            if inspect.iscoroutinefunction(method):
                text = await method(**given)
            else:
                text = await in_thread(method, **given)
        except ERRORS as error:
            return _refused(_message(error, tools.place.name))
        return CallToolResult(content=[TextContent(text=text)])

    async def list_resources(
        self, context: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        """What can be read as it is."""
        return ListResourcesResult(
            resources=[
                Resource(
                    uri=SCHEMA,
                    name="schema",
                    description="The JSON Schema of space files.",
                    mime_type="application/schema+json",
                ),
                Resource(
                    uri=DOCS,
                    name="spaces",
                    description="How a space file is written.",
                    mime_type="text/markdown",
                ),
            ]
        )

    async def list_templates(
        self, context: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        """What can be read of a study."""
        report = ResourceTemplate(
            uri_template=f"{REPORT}{{name}}{REPORT_END}",
            name="report",
            description="All that a study says, as `hpsearch show --json` prints it.",
            mime_type="application/json",
        )
        return ListResourceTemplatesResult(resource_templates=[report])

    async def read_resource(
        self, context: ServerRequestContext[Any], params: ReadResourceRequestParams
    ) -> ReadResourceResult:
        """A resource as text."""
        uri, kind = str(params.uri), "application/json"
        tools = self._tools()
        if "read" not in self._scopes():
            raise MCPError(code=INVALID_PARAMS, message='this needs a token with the scope "read"')
        try:
            if uri == SCHEMA:
                content = json.dumps((await in_thread(tools.place, spaces.schema)).to_json())
            elif uri == DOCS:
                content, kind = _page("spaces.md"), "text/markdown"
            elif uri.startswith(REPORT) and uri.endswith(REPORT_END):
                name = unquote(uri.removeprefix(REPORT).removesuffix(REPORT_END))
                content = json.dumps((await in_thread(tools.place, show.show, study=name)).to_json())
            else:
                known = f"{SCHEMA}, {DOCS}, {REPORT}NAME{REPORT_END}"
                raise MCPError(code=INVALID_PARAMS, message=f"there is no {uri[:200]}; there are {known}")
        except ERRORS as error:
            raise MCPError(code=INVALID_PARAMS, message=_message(error, tools.place.name)) from error
        return ReadResourceResult(contents=[TextResourceContents(uri=uri, text=content, mime_type=kind)])

    async def list_prompts(
        self, context: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListPromptsResult:
        """The one prompt."""
        return ListPromptsResult(
            prompts=[
                Prompt(
                    name="tune_this_script",
                    title="Tune this script",
                    description="Search the hyperparameters of a training script, and take the winner.",
                    arguments=[
                        PromptArgument(name="script", description="Path of the script.", required=True),
                        PromptArgument(name="budget", description="Such as 30 minutes, or 40 trials."),
                    ],
                )
            ]
        )

    async def get_prompt(
        self, context: ServerRequestContext[Any], params: GetPromptRequestParams
    ) -> GetPromptResult:
        """The prompt for a script."""
        given = params.arguments or {}
        if params.name != "tune_this_script" or "script" not in given:
            told = "there is one prompt, tune_this_script, which takes script and budget"
            raise MCPError(code=INVALID_PARAMS, message=told)
        text = PROMPT.format(script=given["script"], budget=given.get("budget") or "30 minutes")
        return GetPromptResult(messages=[PromptMessage(role="user", content=TextContent(text=text))])

    def _may(self, kind: ToolKind) -> bool:
        return kind.scope in self._scopes()


def _described(kind: ToolKind) -> Tool:
    """A tool as clients list it."""
    return Tool(
        name=kind.name,
        description=kind.description,
        input_schema=_without_titles(kind.arguments),
        annotations=ToolAnnotations(
            read_only_hint=kind.reads,
            destructive_hint=kind.destroys,
            idempotent_hint=kind.repeats,
            open_world_hint=False,
        ),
    )


def _without_titles(arguments: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of arguments, without titles, which only repeat their names."""
    schema = arguments.model_json_schema()
    schema.pop("title", None)
    for each in schema["properties"].values():
        each.pop("title", None)
    return schema


def _unpacked(kind: ToolKind, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments, with lists and objects that some clients send as texts of JSON."""
    found = dict(arguments)
    properties = kind.arguments.model_json_schema()["properties"]
    for name, value in arguments.items():
        takes_text = '"string"' in json.dumps(
            properties.get(name, {}).get("anyOf") or properties.get(name, {}).get("type")
        )
        if isinstance(value, str) and name in properties and not takes_text:
            with suppress(ValueError):
                found[name] = json.loads(value)
    return found


def _mistakes(kind: ToolKind, error: ValidationError) -> str:
    """Wrong arguments: each with what was found, and what there is."""
    known = list(kind.arguments.model_fields)
    lines, found = [], error.errors(include_url=False)
    for each in found[: words.MOST_MISTAKES]:
        place = shortened(".".join(map(str, each["loc"])), words.LONGEST_LINE // 10)
        if each["type"] == "extra_forbidden":
            lines.append(f"{place}: unknown argument; {hint(place, known)}")
        elif each["type"] == "missing":
            lines.append(f"{place}: is missing; {kind.name} takes {', '.join(known)}")
        else:
            lines.append(f"{place}: {each['msg']}, not {str(each['input'])[:100]!r}")
    return "\n".join(words.brief(lines, len(found)))


def _message(error: Exception, place: str) -> str:
    """An error's message, with what may help as calls of tools."""
    if isinstance(error, SpaceError):
        first = [str(issue) for issue in error.issues[: words.MOST_MISTAKES]]
        few = words.brief(first, len(error.issues))
        return "\n".join([*few, "mend these, then call validate_space again"])
    told = why(error) if isinstance(error, OSError) else str(error)
    lines = words.brief(without_passwords(told, [place]).splitlines())
    return "\n".join([*lines, *words.next_lines(getattr(error, "next_steps", ()))])


def _refused(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


def _page(name: str) -> str:
    """A page of the documents, which ships."""
    root = files(__name__.rpartition(".search.")[0])
    return root.joinpath("docs", name).read_text(encoding="utf-8")
