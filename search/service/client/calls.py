"""Calls of a server's routes, whose answers are values again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import metadata
from typing import IO, TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import parse_qsl

from ...errors import SearchError
from ...values import from_plain
from .connection import CHUNK, Connection, part

if TYPE_CHECKING:
    from ....spaces import Spec
    from ....spaces.loader import Source

T = TypeVar("T")
PAGE = 1000  # rows of a page, the most there are
LARGEST = 10**9  # rows of a list
NEXT = re.compile(r'<[^>?]*\?([^>]*)>; *rel="?next"?')


class Calls:
    """A connection, and what is made of its answers."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self.connection.close()

    @property
    def url(self) -> str:
        """Its address."""
        return self.connection.url

    def _get(self, path: str, **options: Any) -> Any:
        return self._call("GET", path, **options)

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        file: str | None = None,
        headers: Mapping[str, str] | None = None,
        wait: float = 0.0,
        **named: str | int,
    ) -> Any:
        """What the server answers at a path whose names in braces are `named`."""
        place = path.format(**{name: part(value) for name, value in named.items()})
        data, _ = self.connection.call(
            method, place, query=query, body=body, file=file, headers=headers, wait=wait
        )
        return data

    @contextmanager
    def _open(
        self,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **named: str | int,
    ) -> Iterator[Any]:
        """The answer at a path, to be read as it comes."""
        place = path.format(**{name: part(value) for name, value in named.items()})
        with self.connection.stream(place, query=query, headers=headers) as answer:
            yield answer

    def _receive(
        self, path: str, into: IO[bytes], query: Mapping[str, Any] | None = None, **named: str | int
    ) -> int:
        """Write what is at a path into a file; its bytes."""
        with self._open(path, query=query, headers=None, **named) as answer:
            return sum(into.write(piece) for piece in answer.iter_bytes(CHUNK))

    def _rows(
        self, path: str, query: Mapping[str, Any] | None = None, most: int | None = None, **named: str
    ) -> Iterator[Any]:
        """The rows of a list, page after page, as its header Link leads on."""
        place = path.format(**{name: part(value) for name, value in named.items()})
        left = LARGEST if most is None else most
        asked = {**(query or {}), "limit": min(PAGE, left)}
        while left > 0:
            content, answer = self.connection.call("GET", place, query=asked)
            rows = self._as(list[Any], content)
            yield from rows[:left]
            left -= len(rows)
            following = NEXT.search(answer.headers.get("link", ""))
            if following is None or not rows:
                return
            asked = {**asked, **dict(parse_qsl(following[1]))}

    def _as(self, kind: type[T], data: Any) -> T:
        """What the server answers as the value that it is."""
        try:
            made: T = from_plain(kind, data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self._not_understood(error) from error
        return made

    def _not_understood(self, error: Exception) -> SearchError:
        return SearchError(
            f"an answer of {self.url} is not understood ({error}): it is of another version than this "
            f"hpsearch ({metadata.version('hpsearch')}), or something is between",
            code="server-version",
        )


def text_of_space(space: Source | Spec) -> tuple[dict[str, Any], str | None, Spec | None]:
    """A space as the body of a request, what its file is called in messages, and what it is here.

    The text is sent as it is, so that the server finds mistakes at their lines: with one it is None here.
    Raises `SpaceError` where a file cannot be read.
    """
    from ....objectives.guides import preset_values
    from ....spaces import SpaceError, Spec, load, loads
    from ....spaces.loader import source_text

    if isinstance(space, Spec):
        return {"space": space.to_json()}, None, space
    spec = None
    if isinstance(space, Mapping):
        with suppress(SpaceError):
            spec = load(space, preset_values)
        return {"space": dict(space)}, "<dict>", spec
    text, file, folder = source_text(space)
    with suppress(SpaceError):
        spec = loads(text, file, preset_values).in_folder(folder)
    return {"text": text}, file, spec
