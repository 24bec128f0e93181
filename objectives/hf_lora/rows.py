"""Reads rows from files, each with its place, and splits them into training and validation rows.

| file | a row is |
|---|---|
| `*.jsonl`, `*.ndjson` | a line with a record |
| `*.json` | an item of the list in the file |
| `*.csv`, `*.tsv` | a line after the header |
| any other text | the whole file |
| a folder, `*.gz` | the rows of the files in it, by the same rules |
| `english`, `python` | one of the two parts of a corpus that comes with Python |

The fields of a record are those of `texts`, or those that the configuration names. `messages` are formatted
by the tokenizer's chat template, if there is one; only the last answer is learned. Blank rows are left out.
The validation rows depend on `split_seed` and the rows' content: the same share of each class, with equal
rows on the same side.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...trainer.config.training import NAMED_CORPORA
from ...trainer.data import corpus
from ...trainer.data.texts import (
    RECORD_SUFFIXES,
    TextFile,
    at,
    decode_text,
    fields_of,
    list_files,
    prompt_and_text,
    read_files,
    records,
)
from ...trainer.errors import DataError
from ...trainer.notices import say

if TYPE_CHECKING:
    from .config import Config

SEPARATORS = {".csv": ",", ".tsv": "\t"}
LABEL = "label"  # the default field of the class
_NUMBER = re.compile("-?[0-9]{1,18}")  # of a class; anything longer is a name
csv.field_size_limit(sys.maxsize)  # texts may exceed the default limit of 128 KiB

ChatFormat = Callable[[list[dict[str, Any]]], tuple[str, str]]


@dataclass(frozen=True)
class Row:
    """`text` is to be learned; `prompt` is given, None for a text alone; `label` is its class."""

    place: str
    text: str
    prompt: str | None = None
    label: str | None = None

    @property
    def fingerprint(self) -> str:
        """The hash of the row's content."""
        return corpus.fingerprint(json.dumps([self.prompt, self.text.strip(), self.label]).encode())


def split_rows(config: Config, chat: ChatFormat | None) -> tuple[list[Row], list[Row]]:
    """(train, validation) rows of a configuration, at least one each. Raises `DataError`.

    Rows that are left out are reported on stderr.
    """
    if config.train_file in NAMED_CORPORA:
        texts = corpus.split_documents(corpus.named_documents(config.train_file), config.validation_split)
        train, held = ([Row(config.train_file, text.decode())] for text in texts)
        return train, held
    rows = _rows(config.train_file, config, chat)
    if config.validation_file is None:
        train, held = _dealt(rows, config)
    else:
        held = _rows(config.validation_file, config, chat)
        known = {row.fingerprint for row in held}
        train = [row for row in rows if row.fingerprint not in known]
        if left_out := len(rows) - len(train):
            say(f"{config.train_file}: left out {left_out} rows that are in validation_file too")
    parts = ("train", train, config.train_file), ("validate", held, config.validation_file)
    for purpose, some, where in parts:
        if not some:
            file = where or config.train_file
            raise DataError(f"{file}: {len(rows)} rows leave none to {purpose} on; add more")
    return train, held


def _dealt(rows: list[Row], config: Config) -> tuple[list[Row], list[Row]]:
    """Split into whole rows; if there are only few, long texts, one is cut."""
    salt = f"{config.split_seed} "
    texts = [row for row in rows if row.prompt is None and row.label is None]
    parts = corpus.deal([row.text.encode() for row in texts], config.validation_split, salt)
    # The cut may be inside a character.
    train, held = ([Row(config.train_file, text.decode(errors="ignore")) for text in part] for part in parts)
    classes: dict[str | None, list[tuple[str, Row]]] = {}
    for row in rows:
        if row.prompt is not None or row.label is not None:
            classes.setdefault(row.label, []).append((salt + row.fingerprint, row))
    for same in classes.values():
        chosen = corpus.held_out(Counter(name for name, _ in same), config.validation_split * len(same))
        for name, row in same:
            (held if name in chosen else train).append(row)
    return train, held


def _rows(path: str, config: Config, chat: ChatFormat | None) -> list[Row]:
    """The rows of a file or folder that are not blank."""
    files, left_out = read_files(list_files(Path(path)))
    if left_out:
        say(left_out)
    rows, blank = [], 0
    for file in files:
        for place, record in _records(file):
            with at(place):
                row = _row(place, record, config, chat)
                f"{row.prompt}{row.text}{row.label}".encode()  # raises at an unpaired surrogate
            if row.text.strip():
                rows.append(row)
            else:
                blank += 1
    if blank:
        say(f"{path}: left out {blank} of {blank + len(rows)} rows that have no text to learn")
    return rows


def _records(file: TextFile) -> Iterator[tuple[str, Any]]:
    """The place and the content of each record; of plain text, the whole text."""
    name, text = Path(file.path.name.lower().removesuffix(".gz")), decode_text(file)
    if name.suffix in RECORD_SUFFIXES:
        yield from records(file.path, text)
    elif name.suffix == ".json":
        yield from _list_items(file.path, text)
    elif name.suffix in SEPARATORS:
        yield from _lines(file.path, text, SEPARATORS[name.suffix])
    else:
        yield str(file.path), text


def first_fields(path: str) -> frozenset[str] | None:
    """The fields of the first record of a file or folder; None if it cannot be read."""
    try:
        files, _ = read_files(list_files(Path(path)))
        _, record = next(_records(files[0]))
    except (DataError, LookupError, StopIteration):
        return None
    return frozenset(record) if isinstance(record, dict) else frozenset()


def _list_items(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    """The items of a JSON list, each with the line in which it begins."""
    decoder, begin, line = json.JSONDecoder(), _past_blanks(text, 0), 1
    if text[begin : begin + 1] != "[":
        raise DataError(f"{path}:1: not a list; needs [{{...}}, ...], or a .jsonl with a record on each line")
    line += text.count("\n", 0, begin)
    end, sign = _past_blanks(text, begin + 1), ","
    if text[end : end + 1] == "]":
        sign, end = "]", end + 1
    while sign == ",":
        line += text.count("\n", begin, end)
        begin = end
        with at(f"{path}:{line}"):
            item, end = decoder.raw_decode(text, begin)
        yield f"{path}:{line}", item
        end = _past_blanks(text, end)
        sign = text[end : end + 1]
        end = _past_blanks(text, end + 1) if sign == "," else end + 1
    line += text.count("\n", begin, end)
    if sign != "]":
        raise DataError(f"{path}:{line}: found {sign or 'the end'!r}, needs , or ] after an item of the list")
    if (rest := _past_blanks(text, end)) < len(text):
        line += text.count("\n", end, rest)
        raise DataError(f"{path}:{line}: found {text[rest]!r} after the list, needs a single list")


def _past_blanks(text: str, begin: int) -> int:
    while begin < len(text) and text[begin] in " \t\r\n":
        begin += 1
    return begin


def _lines(path: Path, text: str, separator: str) -> Iterator[tuple[str, Any]]:
    """The rows of a table as records, by the names in its header. A quoted field may span several lines."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    names: list[str] | None = None
    line = 1
    try:
        for values in reader:
            place, line = f"{path}:{line}", reader.line_num + 1
            if not values:
                continue
            if names is None:
                names = values
                if repeated := [name for name, count in Counter(names).items() if name and count > 1]:
                    raise DataError(f"{place}: found two columns {repeated[0]!r}, needs different names")
                continue
            if len(values) != len(names):
                raise DataError(
                    f"{place}: found {len(values)} fields, needs {len(names)}: {', '.join(names)}"
                )
            yield place, dict(zip(names, values, strict=True))
    except csv.Error as error:
        raise DataError(f"{path}:{line}: {error}") from error


def _row(place: str, record: Any, config: Config, chat: ChatFormat | None) -> Row:
    """The row of a record for the task. Raises `DataError` if the record does not fit it."""
    if isinstance(record, str) and config.task == "causal_lm":
        return Row(place, record)
    if config.task == "sequence_classification":
        return _labelled(place, record, config)
    if config.prompt_field and isinstance(record, dict):
        record = {
            "prompt": _field(record, config.prompt_field, "prompt_field"),
            "completion": _field(record, str(config.completion_field), "completion_field"),
        }
    if chat and isinstance(record, dict) and "messages" in record and config.text_field is None:
        prompt_and_text(record, None)  # raises unless they are messages
        prompt, text = chat(record["messages"])
    else:
        prompt, text = prompt_and_text(record, config.text_field)
    given = prompt or (isinstance(record, dict) and "prompt" in record)
    if config.task == "seq2seq_lm" and not given:
        raise DataError(f"found the fields {fields_of(record)}, needs a prompt and its completion")
    return Row(place, text, prompt if given else None)


def _labelled(place: str, record: Any, config: Config) -> Row:
    if not isinstance(record, dict):
        raise DataError('not a record, needs one such as {"text": "...", "label": "..."}')
    label = record.get(config.label_field or LABEL)
    if isinstance(label, bool) or not isinstance(label, str | int) or label == "":
        named = f'"{config.label_field or LABEL}" (label_field)'
        raise DataError(
            f"found the fields {fields_of(record)}, needs a class (text or a whole number) in {named}"
        )
    return Row(place, _field(record, config.text_field or "text", "text_field"), label=str(label))


def _field(record: dict[str, Any], name: str, parameter: str) -> str:
    text = record.get(name)
    if not isinstance(text, str):
        raise DataError(f'found the fields {fields_of(record)}, needs text in "{name}" ({parameter})')
    return text


def ordered_classes(labels: Sequence[str]) -> tuple[str, ...]:
    """The classes in order: numbers by value, words alphabetically."""
    words = sorted(set(labels))  # sorted first, so that 1 and 01 have the same order in every process
    return tuple(sorted(words, key=int) if all(map(_NUMBER.fullmatch, words)) else words)
