"""Spaces: what can be searched, how a space is understood, and other tools' files as spaces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field, model_validator

from ....spaces import SpaceError
from ....spaces.dialects import CONVERTED
from ...operations import spaces
from .. import submission
from ..access import Body, Reader, TheService, names
from ..problems import problem_of
from ..submission import CodeBody

router = APIRouter(prefix="/v1", tags=["spaces"])
Text = Annotated[str, Field(max_length=1 << 20)]


class SpaceBody(CodeBody):
    """A space as the text of its file, or as the object that the text stands for."""

    text: Text | None = Field(None, description="The text of a space file; issues have their lines.")
    space: dict[str, Any] | None = Field(None, description="What a space file would hold.")

    @model_validator(mode="after")
    def _one(self) -> SpaceBody:
        if (self.text is None) == (self.space is None):
            raise ValueError("give either text or space")
        return self

    @property
    def content(self) -> str | dict[str, Any]:
        """The one that was given."""
        return self.space if self.text is None else self.text  # type: ignore[return-value]


class ConvertBody(Body):
    """Another tool's file."""

    text: Text
    dialect: Literal["auto"] | str = Field(
        "auto", description=f"auto, or whose file it is: {', '.join(CONVERTED)}."
    )


class ProposeBody(Body):
    """A script, or a file of settings."""

    text: Text
    file: str = Field("train.py", max_length=200, description="Its name, as commands are to call it.")


@router.get("/spaces", **names("spaces"))
def list_spaces(caller: Reader, service: TheService) -> Annotated[Any, spaces.ListedSpaces]:
    """The spaces that ship, and the space files in the server's roots."""
    return spaces.list_spaces(folders=service.settings.roots).to_json()


@router.get(
    "/spaces/text",
    **names("spaces --text"),
    response_class=Response,
    responses={200: {"content": {"application/yaml": {}}}},
)
def text(
    caller: Reader,
    service: TheService,
    space: Annotated[str, Query(description="The name of one that ships, or a file of the list.")],
) -> Response:
    """The text of a space of that list."""
    found = spaces.listed_text(space=space, folders=service.settings.roots)
    return Response(found, media_type="application/yaml")


@router.get("/spaces/schema", **names("schema"))
def schema(caller: Reader) -> Annotated[Any, spaces.Schema]:
    """The JSON Schema of space files."""
    return spaces.schema().to_json()


@router.get("/objectives", **names("objectives"))
def objectives(
    caller: Reader, name: Annotated[str | None, Query(description="Of one objective alone.")] = None
) -> Annotated[Any, spaces.Objectives]:
    """The objectives that hpsearch brings, with their parameters, defaults and limits."""
    return spaces.objectives(name=name).to_json()


@router.post("/spaces/validate", **names("validate"))
def validate(caller: Reader, service: TheService, body: SpaceBody) -> Annotated[Any, spaces.ValidSpace]:
    """How a space is understood; 422 with every mistake in it. Trains nothing, runs nothing.

    Of another tool's file that can be converted the problem says whose it is, in `tool`.
    """
    try:
        spec = submission.read(body.content)
    except SpaceError as error:
        tool = None if body.text is None else spaces.tool_of(body.text)
        if tool is None:
            raise
        refusal = problem_of(error)
        refusal.more["tool"] = tool
        raise refusal from None
    spec, _ = submission.accepted(spec, body, service, caller)
    return spaces.validate(space=spec).to_json()


@router.post("/spaces/convert", **names("convert"))
def convert(caller: Reader, body: ConvertBody) -> Annotated[Any, spaces.ConvertedSpace]:
    """The text of a space for another tool's file; comments in it say what differs."""
    tool = None if body.dialect == "auto" else body.dialect
    return spaces.convert(text=body.text, tool=tool).to_json()


@router.post("/spaces/propose", **names("init"))
def propose(caller: Reader, body: ProposeBody) -> Annotated[Any, spaces.NewSpace]:
    """A space to start from, proposed from a script, which is read and not run, or from its settings."""
    return spaces.init(source=Path(body.file), text=body.text).to_json()
