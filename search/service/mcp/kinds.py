"""What a tool is: its name, what it needs, and what it may change."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

from ...operations import Scope

T = TypeVar("T", bound=Callable[..., Any])


@dataclass(frozen=True)
class ToolKind:
    """A method of `Tools` as agents see it. Its docstring is what they read."""

    method: Callable[..., Any]
    scope: Scope  # of the token that calls it
    reads: bool  # whether it changes nothing
    repeats: bool  # whether the same call again changes nothing more
    destroys: bool  # whether it ends what cannot be had back

    @property
    def name(self) -> str:
        """Its name."""
        return self.method.__name__

    @property
    def description(self) -> str:
        """What it does, and when to call it."""
        return inspect.cleandoc(self.method.__doc__ or "")

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """What it takes; anything else is refused."""
        hints = get_type_hints(self.method, include_extras=True)
        parameters = list(inspect.signature(self.method).parameters.values())[1:]
        fields: dict[str, Any] = {
            each.name: (hints[each.name], ... if each.default is each.empty else each.default)
            for each in parameters
        }
        return create_model(self.name, __config__=ConfigDict(extra="forbid"), **fields)

    @property
    def hints(self) -> str:
        """What it may change, in a few words."""
        if self.reads:
            return "reads"
        return ", ".join(
            word
            for word, holds in (
                ("changes", True),
                ("again is the same", self.repeats),
                ("ends a trial", self.destroys),
            )
            if holds
        )


def tool(
    scope: Scope, *, reads: bool | None = None, repeats: bool = False, destroys: bool = False
) -> Callable[[T], T]:
    """Make a method a tool. One that needs to read alone changes nothing."""

    def marked(method: T) -> T:
        does_read = scope == "read" if reads is None else reads
        method.kind = ToolKind(method, scope, does_read, repeats or does_read, destroys)  # type: ignore[attr-defined]
        return method

    return marked


def kinds_of(tools: type) -> dict[str, ToolKind]:
    """The tools of a class, in the order in which they stand."""
    found = (getattr(method, "kind", None) for method in vars(tools).values())
    return {kind.name: kind for kind in found if kind is not None}
