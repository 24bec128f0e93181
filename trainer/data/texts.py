"""A user's own text, as documents: a file, a folder, or records.

| path | documents |
|---|---|
| a folder | those of each file below it, in order of their paths |
| `*.jsonl`, `*.ndjson` | each line, by the table below |
| any other file | the file itself |
| `*.gz` | those of the compressed file: `*.jsonl.gz`, `*.txt.gz` |

The case of a suffix does not matter. In a folder, hidden (`.name`) and binary files (a zero byte near the
start, as for git) are left out with a notice. Links to files are followed, links to folders are not.
Everything else must be UTF-8. Blank documents are dropped.

| fields of a record, the first that fit | its text |
|---|---|
| `text` | as it is |
| `prompt`, `completion` | one right after the other |
| `instruction`, `output`, optionally `input` | under `### Instruction:`, `### Input:`, `### Response:` |
| `messages`: a list of `role` and `content` | a line for each: `role: content` |

With `text_field`, the text of a record is in the field of that name only.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DataError

RECORD_SUFFIXES = (".jsonl", ".ndjson")
BINARY_CHECK_BYTES = 8192  # bytes that are searched for a zero byte
LAYOUTS = '"text", "prompt" and "completion", "instruction" and "output", or "messages"'


@dataclass(frozen=True)
class Listing:
    """The files of a text as they are on the disk: two listings are equal if no file has changed."""

    path: Path
    folder: bool
    files: tuple[tuple[Path, int, int], ...]  # each with the time of its last change and its size
    hidden: tuple[str, ...]


@dataclass(frozen=True)
class TextFile:
    """A file's content, decompressed but not decoded."""

    path: Path
    content: bytes

    @property
    def holds_records(self) -> bool:
        """Whether each line of it is a document."""
        return self.path.name.lower().removesuffix(".gz").endswith(RECORD_SUFFIXES)


def list_files(path: Path) -> Listing:
    """List the file, or all files in the folder that are not hidden. Raises `DataError` if there is none."""
    path = Path(os.path.expanduser(path))  # the home of an unknown user stays as it is, and is missing
    try:
        folder = path.is_dir()
        if path.exists() and not folder and not path.is_file():  # reading a pipe would block
            raise DataError(f"{path}: is a pipe or a device, not a file; write its text into a file")
        files, hidden = _below(path) if folder else ([path], [])
        stats = ((file, file.stat()) for file in files)
        stamped = tuple((file, status.st_mtime_ns, status.st_size) for file, status in stats)
    except OSError as error:
        raise _unreadable(path, error) from error
    return Listing(path, folder, stamped, tuple(hidden))


def fingerprint(path: Path) -> str:
    """The SHA-256 of the file, or of all files in the folder with their names. Raises `DataError`."""
    digest = hashlib.sha256()
    listing = list_files(path)
    for file, _, size in listing.files:
        name = file.relative_to(listing.path) if listing.folder else ""
        digest.update(f"{name}\0{size}\0".encode())
        try:
            with file.open("rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
        except OSError as error:
            raise _unreadable(file, error) from error
    return digest.hexdigest()


def _below(root: Path) -> tuple[list[Path], list[str]]:
    """The files in order of their paths, and the names of hidden files and folders."""
    files: list[Path] = []
    hidden: list[str] = []
    for folder, inner, names in os.walk(root, onerror=_raise):
        hidden += [name for name in inner + names if name.startswith(".")]
        inner[:] = [name for name in inner if not name.startswith(".")]
        seen = (Path(folder, name) for name in names if not name.startswith("."))
        files += [path for path in seen if path.is_file()]  # reading a pipe would block
    return sorted(files), sorted(hidden)


def _raise(error: OSError) -> None:
    raise error


def _unreadable(path: Path, error: Exception) -> DataError:
    name = getattr(error, "filename", None) or path
    return DataError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}")


def read_files(listing: Listing) -> tuple[list[TextFile], str | None]:
    """The files that hold text, and a sentence about the files left out, if any."""
    read = [(path, _content(path, text_only=listing.folder)) for path, _, _ in listing.files]
    texts = [TextFile(path, content) for path, content in read if content is not None]
    binary = [path.name for path, content in read if content is None]
    kinds = (("hidden", list(listing.hidden)), ("binary", binary))
    left_out = " and ".join(f"{len(names)} {kind} ({_some(names)})" for kind, names in kinds if names)
    if not texts:
        but = f", but {left_out}" if left_out else ""
        raise DataError(f"{listing.path}: no text file in this folder{but}")
    return texts, f"{listing.path}: read {len(texts)} files, left out {left_out}" if left_out else None


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")


def _content(path: Path, *, text_only: bool) -> bytes | None:
    """The content of the file, decompressed; None if it is binary and only text is wanted."""
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            head = file.read(BINARY_CHECK_BYTES)
            return None if text_only and b"\0" in head else head + file.read()
    except (OSError, EOFError, zlib.error) as error:  # the last two: a damaged archive
        raise _unreadable(path, error) from error


def read_documents(files: Iterable[TextFile], text_field: str | None) -> list[bytes]:
    """The documents of these files that are not blank, in order.

    Raises `DataError`, with file and line, if one is not UTF-8 or a record has none of the layouts.
    """
    documents: list[bytes] = []
    for file in files:
        text = decode_text(file)
        if file.holds_records:
            for place, record in records(file.path, text):
                with at(place):
                    documents.append("".join(prompt_and_text(record, text_field)).encode())
        else:
            documents.append(file.content.removeprefix(codecs.BOM_UTF8))
    return [document for document in documents if document.strip()]


def decode_text(file: TextFile) -> str:
    """A file's text. Raises `DataError` if it is not UTF-8."""
    try:
        return file.content.decode().removeprefix(codecs.BOM_UTF8.decode())
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{file.path}: not UTF-8 text (line {line}, byte {error.start}): convert it"
        ) from error


@contextmanager
def at(place: str) -> Iterator[None]:
    """Put the place (`file:line`) before the message of an error. Raises `DataError`."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise DataError(f"{place}: found an unpaired surrogate, needs Unicode text") from error
    except DataError as error:
        raise DataError(f"{place}: {error}") from error
    except (ValueError, RecursionError) as error:
        needed = 'needs a record such as {"text": "..."}'
        raise DataError(f"{place}: not valid JSON ({error}), {needed}") from error


def records(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    """The place (`file:line`) and the JSON of each line that is not blank. Raises `DataError`."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            place = f"{path}:{number}"
            with at(place):
                record = json.loads(line)
            yield place, record


def prompt_and_text(record: Any, text_field: str | None) -> tuple[str, str]:
    """Split a record's text, by the table above, into the part that is given and the part to learn.

    The first is empty if all of it is to be learned. Raises `DataError` if the record has no text.
    """
    if not isinstance(record, dict):
        raise DataError(f'found {kind_of(record)}, needs a record such as {{"text": "..."}}')
    match record if text_field is None else {"text": record.get(text_field)}:
        case {"text": str(text)}:
            return "", text
        case {"prompt": str(prompt), "completion": str(completion)}:
            return prompt, completion
        case {"instruction": str(asked), "output": str(answer)} if _is_text(record.get("input", "")):
            given = f"### Input:\n{record['input']}\n\n" if record.get("input") else ""
            return f"### Instruction:\n{asked}\n\n{given}### Response:\n", answer
        case {"messages": [_, *_] as messages} if all(map(_is_message, messages)):
            return "", "\n".join(f"{message['role']}: {message['content']}" for message in messages)
    needed = f'"{text_field}" (text_field)'
    if text_field is None:
        needed = f"{LAYOUTS}; or name the field with text_field"
    raise DataError(f"found the fields {fields_of(record)}, needs text in {needed}")


def fields_of(record: Mapping[str, Any]) -> str:
    """The fields of a record, for a message."""
    return ", ".join(f'"{name}" ({kind_of(value)})' for name, value in record.items()) or "none"


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in ("role", "content"))


def kind_of(value: Any) -> str:
    """The JSON type of a value."""
    names = {dict: "object", list: "list", str: "text", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")
