"""Turns rows into tokens: what the model reads of each row, and which part of it is learned.

| row | the model reads | it learns |
|---|---|---|
| text, for a causal model | all texts joined with ending tokens, then cut into rows | everything |
| prompt and completion | both and the ending token; a long prompt loses its beginning | the completion |
| the same, for a seq2seq model | the prompt, in the encoder; a long one loses its end | the completion |
| text and label | the text; a long one loses its end | the class |

The number of truncated rows is printed on stderr.
"""

from __future__ import annotations

import functools
import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...trainer.config.training import NAMED_CORPORA
from ...trainer.data.texts import list_files
from ...trainer.errors import DataError
from ...trainer.notices import say
from .rows import ChatFormat, Row, ordered_classes, split_rows

if TYPE_CHECKING:
    from .config import Config

IGNORED = -100  # a label that is not learned, as in torch and transformers
PAD_MULTIPLE = 8  # the length of a batch is padded to a multiple of this
MAX_KEPT_SETS = 2  # sets of examples that a process keeps, for searches over max_length
EXAMPLE_PARAMETERS = (  # the parameters that examples depend on
    *("task", "train_file", "validation_file", "validation_split", "split_seed", "max_length"),
    *("text_field", "prompt_field", "completion_field", "label_field"),
)
_kept: dict[object, Examples] = {}


@dataclass(frozen=True)
class Example:
    """`ids` are the model's input, `labels` the expected output: one for each id, or a separate sequence."""

    ids: list[int]
    labels: list[int]


@dataclass(frozen=True)
class Examples:
    """The data of a search; `classes` are the names of the classes, by number."""

    train: list[Example]
    validation: list[Example]
    classes: tuple[str, ...]
    sha256: str


def load_examples(config: Config, tokenizer: Any, model: str) -> Examples:
    """The examples of a configuration, cached in memory for the next trials of this process.

    `model` identifies the tokenizer. Raises `DataError` if a row does not fit the task, or there are too few.
    """
    files = filter(None, (config.train_file, config.validation_file))
    stamps = tuple(list_files(Path(file)) for file in files if file not in NAMED_CORPORA)
    key = (model, stamps, *(getattr(config, name) for name in EXAMPLE_PARAMETERS))
    if key not in _kept:
        while len(_kept) >= MAX_KEPT_SETS:
            del _kept[next(iter(_kept))]
        _kept[key] = _examples(config, tokenizer)
    return _kept[key]


def _examples(config: Config, tokenizer: Any) -> Examples:
    train, held = split_rows(config, _chat(tokenizer))
    classes = ordered_classes([row.label for row in (*train, *held) if row.label is not None])
    if config.task == "sequence_classification":
        if len(classes) < 2:
            raise DataError(f"{config.train_file}: all rows have the same class, {classes[0]!r}")
        if unknown := sorted({str(row.label) for row in held} - {str(row.label) for row in train}):
            raise DataError(
                f"{config.validation_file}: has rows of the class {unknown[0]!r}, "
                f"but {config.train_file} has none"
            )
    encoder = _Encoder(config, tokenizer, classes)
    parts = [encoder.examples(rows) for rows in (train, held)]
    encoder.say_what_was_cut()
    for part, examples in zip(("train", "validate"), parts, strict=True):
        if not examples:
            raise DataError(f"{config.train_file}: too little text to {part} on")
    digest = hashlib.sha256(json.dumps([len(parts[0]), len(parts[1]), classes]).encode())
    for example in (*parts[0], *parts[1]):
        for numbers in (example.ids, example.labels):
            digest.update(array("q", [len(numbers), *numbers]).tobytes())
    return Examples(parts[0], parts[1], classes, digest.hexdigest())


def _chat(tokenizer: Any) -> ChatFormat | None:
    """A function that formats messages by a tokenizer's chat template: the prompt, and the last answer."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    import jinja2  # installed with transformers, for its templates

    def formatted(messages: list[dict[str, Any]]) -> tuple[str, str]:
        if (role := messages[-1]["role"]) != "assistant":
            raise DataError(f"the role of its last message is {role!r}, needs 'assistant'")
        write = functools.partial(tokenizer.apply_chat_template, tokenize=False)
        try:
            whole: str = write(messages)
            before: str = write(messages[:-1], add_generation_prompt=True)
        except jinja2.TemplateError as error:  # unknown roles, for example
            raise DataError(f"the tokenizer's chat template refuses its messages: {error}") from error
        if not whole.startswith(before):
            raise DataError("the tokenizer's chat template does not put its last message at the end")
        return before, whole[len(before) :].rstrip()

    return formatted


class _Encoder:
    """Turns rows into examples, and counts the truncated ones."""

    def __init__(self, config: Config, tokenizer: Any, classes: Sequence[str]) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._numbers = {name: number for number, name in enumerate(classes)}
        bare, whole = self._ids("a"), list(tokenizer("a")["input_ids"])
        begin = next((n for n in range(len(whole)) if whole[n : n + len(bare)] == bare), 0)
        self._head = whole[:begin]  # tokens that the tokenizer puts before a text, as Llama's does
        self._end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        self._cut: Counter[str] = Counter()
        self._seen = 0

    def examples(self, rows: Sequence[Row]) -> list[Example]:
        """The examples of these rows in order, with joined texts at the end."""
        make = {"sequence_classification": self._classified, "seq2seq_lm": self._translated}
        examples, texts = [], []
        for row in rows:
            if self._config.task == "causal_lm" and row.prompt is None:
                texts += [*self._head, *self._ids(row.text), *self._end]
            else:
                examples.append(make.get(self._config.task, self._completed)(row))
                self._seen += 1
        length = self._config.max_length
        parts = [texts[begin : begin + length] for begin in range(0, len(texts), length)]
        return examples + [Example(part, part) for part in parts if len(part) > 1]

    def say_what_was_cut(self) -> None:
        """Print how many rows were truncated."""
        for what, count in self._cut.items():
            say(
                f"{self._config.train_file}: cut {what} of {count} of {self._seen} rows, to max_length "
                f"{self._config.max_length}"
            )

    def _ids(self, text: str) -> list[int]:
        """The tokens of a text, without special tokens."""
        ids: list[int] = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def _completed(self, row: Row) -> Example:
        """A prompt and its completion; at least one token of each is kept."""
        prompt, text = self._ids(row.prompt or ""), self._ids(row.text)
        head = [] if prompt[: len(self._head)] == self._head else self._head  # a chat template may include it
        text += [] if text[-1:] == self._end else self._end
        room = self._config.max_length - len(head)
        if len(prompt) + len(text) > room:
            least = min(1, len(prompt))
            if len(text) > room - least:
                self._cut["the end of the completion"] += 1
                text = text[: max(1, room - least)]
            if len(prompt) > room - len(text):
                self._cut["the beginning of the prompt"] += 1
                prompt = prompt[len(prompt) - max(0, room - len(text)) :]
        given = head + prompt
        return Example(given + text, [IGNORED] * len(given) + text)

    def _translated(self, row: Row) -> Example:
        return Example(
            self._whole(row.prompt or "", "the end of the prompt"),
            self._whole(row.text, "the end of the completion", target=True),
        )

    def _classified(self, row: Row) -> Example:
        assert row.label is not None
        return Example(self._whole(row.text, "the end of the text"), [self._numbers[row.label]])

    def _whole(self, text: str, what: str, *, target: bool = False) -> list[int]:
        """A text with the tokenizer's special tokens, truncated by the tokenizer itself."""
        length = self._config.max_length
        given = {"text_target" if target else "text": text}
        ids: list[int] = self._tokenizer(**given, truncation=True, max_length=length)["input_ids"]
        if len(ids) == length and len(self._tokenizer(**given, verbose=False)["input_ids"]) > length:
            self._cut[what] += 1
        return ids


def unlearned(example: Example) -> Example:
    """The example without labels: it is computed, but nothing is learned from it."""
    return Example(example.ids, [IGNORED] * len(example.labels))


def label_count(batch: dict[str, Tensor], *, causal: bool) -> int:
    """The number of labels learned in a batch. A causal model does not predict the first token."""
    labels = batch["labels"]
    return int((labels[:, 1:] if causal else labels).ne(IGNORED).sum())


def collate(examples: Sequence[Example], pad: int, *, causal: bool, classify: bool) -> dict[str, Tensor]:
    """A batch: int64 `input_ids`, `attention_mask`, `labels` [rows, tokens]; labels of classes [rows, 1]."""
    ids = _filled([example.ids for example in examples], pad)
    mask = _filled([[1] * len(example.ids) for example in examples], 0)
    labels = [example.labels for example in examples]
    made = torch.tensor(labels) if classify else _filled(labels, IGNORED)
    assert not causal or made.shape == ids.shape
    return {"input_ids": ids, "attention_mask": mask, "labels": made}


def _filled(rows: Sequence[list[int]], value: int) -> Tensor:
    """int64 [rows, tokens], short rows padded on the right."""
    length = -(-max(map(len, rows)) // PAD_MULTIPLE) * PAD_MULTIPLE
    return torch.tensor([row + [value] * (length - len(row)) for row in rows])
