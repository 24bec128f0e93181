"""What operations return, as plain data, and what can be done next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

State = Literal["complete", "pruned", "fail", "running", "paused", "waiting"]  # of a trial, as it is shown


class Value:
    """A frozen dataclass that an operation returns."""

    computed: ClassVar[tuple[str, ...]] = ()  # properties that belong to its plain data

    def to_json(self) -> Any:
        """Its fields as plain data, ready for `json.dumps`."""
        return plain(self) | {name: plain(getattr(self, name)) for name in self.computed}


@dataclass(frozen=True)
class NextStep(Value):
    """An operation that makes sense now, with its arguments. One of None is for the user to choose."""

    operation: str  # as `operations.OPERATIONS` names it, or `dashboard`
    arguments: dict[str, Any]
    why: str


def plain(content: Any) -> Any:
    """Content as JSON can hold it: a float that is no finite number becomes None, a path its text."""
    if content is None or type(content) in (str, int, bool):  # most of ten thousand trials is
        return content
    if is_dataclass(content):
        return {field.name: plain(getattr(content, field.name)) for field in fields(content)}
    if isinstance(content, Mapping):
        return {str(key): plain(value) for key, value in content.items()}
    if isinstance(content, Set) or (isinstance(content, Sequence) and not isinstance(content, str)):
        return [plain(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return str(content) if isinstance(content, Path) else content
