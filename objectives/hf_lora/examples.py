"""From rows to tokens: what a model reads of each, and what of it is to be learned.

| row | what is read | what is learned |
|---|---|---|
| text of a causal model | all texts and their ending tokens in one row, cut into shorter ones | all |
| prompt and completion | both, and the ending token; a long prompt loses its beginning | the completion |
| the same of a seq2seq model | the prompt, by the encoder; a long one loses its end | the completion |
| text and label | the text; a long one loses its end | the class |

How many were cut is said on stderr.
"""

from __future__ import annotations

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
from .rows import Chat, Row, names_of, split_rows

if TYPE_CHECKING:
    from .config import Config

IGNORED = -100  # a label that is not learned, as torch and transformers have it
PADDED = 8  # tokens that the length of a batch is a multiple of
KEPT = 2  # sets of examples that a process keeps: as many lengths may be searched
MAKING = (  # the parameters that examples are made by
    *("task", "train_file", "validation_file", "validation_split", "split_seed", "max_length"),
    *("text_field", "prompt_field", "completion_field", "label_field"),
)
_kept: dict[object, Examples] = {}


@dataclass(frozen=True)
class Example:
    """`ids` are what a model reads; `labels` what it is to say: for each of the ids, or by themselves."""

    ids: list[int]
    labels: list[int]


@dataclass(frozen=True)
class Examples:
    """All that a search learns from; `classes` has the name of each number of a classification."""

    train: list[Example]
    validation: list[Example]
    classes: tuple[str, ...]
    sha256: str


def load_examples(config: Config, tokenizer: Any, model: str) -> Examples:
    """The examples of a configuration, kept in memory for the next trials of this process.

    `model` is what the tokenizer is known by. Raises `DataError` where a row is not what the task needs, or
    too few are there.
    """
    files = [
        file for file in (config.train_file, config.validation_file) if file and file not in NAMED_CORPORA
    ]
    stamps = tuple(list_files(Path(file)) for file in files)
    key = (model, stamps, *(getattr(config, name) for name in MAKING))
    if key not in _kept:
        while len(_kept) >= KEPT:
            del _kept[next(iter(_kept))]
        _kept[key] = _examples(config, tokenizer)
    return _kept[key]


def _examples(config: Config, tokenizer: Any) -> Examples:
    train, held = split_rows(config, _chat(tokenizer))
    classes = names_of([row.label for row in (*train, *held) if row.label is not None])
    if config.task == "sequence_classification":
        if len(classes) < 2:
            raise DataError(f"{config.train_file}: all rows are of one class, {classes[0]!r}")
        if unknown := sorted({str(row.label) for row in held} - {str(row.label) for row in train}):
            raise DataError(
                f"{config.validation_file}: {config.train_file} has no row of the class {unknown[0]!r}"
            )
    encoder = _Encoder(config, tokenizer, classes)
    found = [encoder.examples(rows) for rows in (train, held)]
    encoder.tell()
    for part, examples in zip(("train", "validate"), found, strict=True):
        if not examples:
            raise DataError(f"{config.train_file}: too little text to {part} on")
    digest = hashlib.sha256(json.dumps([len(found[0]), len(found[1]), classes]).encode())
    for example in (*found[0], *found[1]):
        for numbers in (example.ids, example.labels):
            digest.update(array("q", [len(numbers), *numbers]).tobytes())
    return Examples(found[0], found[1], classes, digest.hexdigest())


def _chat(tokenizer: Any) -> Chat | None:
    """What writes messages as a tokenizer's chat template has them: what is given, and the last answer."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    import jinja2  # of transformers, whose templates are written in it

    def written(messages: list[dict[str, Any]]) -> tuple[str, str]:
        if (role := messages[-1]["role"]) != "assistant":
            raise DataError(f"the last of its messages is of {role!r}, needs an answer of 'assistant'")
        try:
            whole: str = tokenizer.apply_chat_template(messages, tokenize=False)
            before: str = tokenizer.apply_chat_template(
                messages[:-1], tokenize=False, add_generation_prompt=True
            )
        except jinja2.TemplateError as error:  # as of roles that it does not know
            raise DataError(f"the tokenizer's chat template refuses its messages: {error}") from error
        if not whole.startswith(before):
            raise DataError("the tokenizer's chat template does not write its last message at the end")
        return before, whole[len(before) :].rstrip()

    return written


class _Encoder:
    """Makes examples of rows, and counts what it cuts."""

    def __init__(self, config: Config, tokenizer: Any, classes: Sequence[str]) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._numbers = {name: number for number, name in enumerate(classes)}
        bare, whole = self._ids("a"), list(tokenizer("a")["input_ids"])
        begin = next((n for n in range(len(whole)) if whole[n : n + len(bare)] == bare), 0)
        self._head = whole[:begin]  # what the tokenizer begins a text with, as Llama's does
        self._end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        self._cut: Counter[str] = Counter()
        self._seen = 0

    def examples(self, rows: Sequence[Row]) -> list[Example]:
        """The examples of some rows, in their order; packed texts after all others."""
        make = {"sequence_classification": self._classified, "seq2seq_lm": self._translated}
        found, texts = [], []
        for row in rows:
            if self._config.task == "causal_lm" and row.prompt is None:
                texts += [*self._head, *self._ids(row.text), *self._end]
            else:
                found.append(make.get(self._config.task, self._completed)(row))
                self._seen += 1
        length = self._config.max_length
        parts = [texts[begin : begin + length] for begin in range(0, len(texts), length)]
        return found + [Example(part, part) for part in parts if len(part) > 1]

    def tell(self) -> None:
        """Say how many rows were cut."""
        for what, count in self._cut.items():
            say(
                f"{self._config.train_file}: {what} of {count} of {self._seen} rows cut, to max_length "
                f"{self._config.max_length}"
            )

    def _ids(self, text: str) -> list[int]:
        """The tokens of a text by itself."""
        found: list[int] = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return found

    def _completed(self, row: Row) -> Example:
        """At least one token of the prompt and of the completion stays."""
        prompt, text = self._ids(row.prompt or ""), self._ids(row.text)
        head = [] if prompt[: len(self._head)] == self._head else self._head  # a chat template writes it too
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
        """A text with all tokens that the tokenizer puts around it, cut by the tokenizer itself."""
        length = self._config.max_length
        told = {"text_target" if target else "text": text}
        found: list[int] = self._tokenizer(**told, truncation=True, max_length=length)["input_ids"]
        if len(found) == length and len(self._tokenizer(**told, verbose=False)["input_ids"]) > length:
            self._cut[what] += 1
        return found


def unlearned(example: Example) -> Example:
    """An example to compute with of which nothing is learned."""
    return Example(example.ids, [IGNORED] * len(example.labels))


def label_count(batch: dict[str, Tensor], *, causal: bool) -> int:
    """What is learned of a batch: tokens, or rows. A causal model says each token after the one before it."""
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
    """int64 [rows, tokens], short rows filled up on the right."""
    length = -(-max(map(len, rows)) // PADDED) * PADDED
    return torch.tensor([row + [value] * (length - len(row)) for row in rows])
