"""Text as one row of bytes: where it comes from, how it is split, and how batches are cut from it.

| corpus | text | split |
|---|---|---|
| `english` | the language reference that CPython carries (`pydoc_data.topics`) | by topic |
| `python` | the source files of the standard library, without tests and tables | by file |
| a path | the user's own UTF-8 text | the last `validation_split` of it, or a file of its own |

The two named corpora need no download. They differ between Python versions, so losses compare only where
`Corpus.sha256` is equal.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from .errors import DataError

NAMED = ("english", "python")
# Tests repeat themselves, `encodings` holds tables, `pydoc_data` is the other corpus.
SKIPPED = {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings", "pydoc_data"}

Document = tuple[str, bytes]


@dataclass(frozen=True)
class Corpus:
    """A text split in two: `train` and `validation` are uint8 [bytes], `sha256` is the hash of both."""

    name: str
    train: Tensor
    validation: Tensor
    sha256: str

    @staticmethod
    def of(name: str, train: bytes, validation: bytes) -> Corpus:
        digest = hashlib.sha256(len(train).to_bytes(8, "big") + train + validation).hexdigest()
        return Corpus(name, as_tokens(train), as_tokens(validation), digest)


def as_tokens(text: bytes) -> Tensor:
    """uint8 [bytes]: a token is a byte, an eighth of an int64; batches are widened when they are used."""
    return torch.frombuffer(bytearray(text), dtype=torch.uint8) if text else torch.empty(0, dtype=torch.uint8)


def load_corpus(
    train_file: str, validation_file: str | None = None, *, validation_split: float = 0.1, max_length: int = 1
) -> Corpus:
    """The corpus of that name, or of those files; kept in memory for the next trial of this process.

    Both parts must hold a window of `max_length` tokens and the one to predict after it.
    Raises `DataError` where a file is missing, no UTF-8 or too short, or Python comes without its topics.
    """
    files = [name for name in (train_file, validation_file) if name is not None and name not in NAMED]
    corpus = _load(train_file, validation_file, validation_split, tuple(_stamp(Path(name)) for name in files))
    for part, tokens in (("train", corpus.train), ("validate", corpus.validation)):
        if len(tokens) <= max_length:
            raise DataError(
                f"{corpus.name}: {len(tokens)} bytes to {part} on, but max_length {max_length} needs "
                f"at least {max_length + 1}: bring more text or lower max_length"
            )
    return corpus


@cache
def _load(
    train_file: str, validation_file: str | None, validation_split: float, stamps: tuple[tuple[int, int], ...]
) -> Corpus:
    if train_file in NAMED:
        documents = english_documents() if train_file == "english" else python_documents()
        return Corpus.of(train_file, *split_documents(documents, validation_split))
    text = read_text(Path(train_file))
    if validation_file is not None:
        return Corpus.of(f"{train_file} + {validation_file}", text, read_text(Path(validation_file)))
    cut = len(text) - round(len(text) * validation_split)
    return Corpus.of(train_file, text[:cut], text[cut:])


def _stamp(path: Path) -> tuple[int, int]:
    """What changes when the file does, so that a worker that lives long reads an edited file again."""
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    return status.st_mtime_ns, status.st_size


def read_text(path: Path) -> bytes:
    """The bytes of a UTF-8 file."""
    try:
        text = path.read_bytes()
        text.decode()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}: not UTF-8 text (line {line}, byte {error.start}): convert it") from error
    return text


def english_documents() -> list[Document]:
    """The topics of CPython's language reference, each paragraph once.

    A fifth of the topics is repeated word for word in others (`compound` holds `if`, `while`, `try` ...):
    kept twice, a paragraph to validate on would also be one to train on.
    """
    try:
        from pydoc_data import topics
    except ImportError as error:
        raise DataError(
            "this Python comes without pydoc_data, the text of the corpus 'english' (Debian: the package "
            "libpython3-stdlib has it); set train_file to 'python' or to a text file of your own"
        ) from error
    seen: set[str] = set()
    documents = []
    for name, text in sorted(topics.topics.items()):
        fresh = []
        for paragraph in text.split("\n\n"):
            key = " ".join(paragraph.split())
            if key not in seen:
                seen.add(key)
                fresh.append(paragraph)
        documents.append((name, "\n\n".join(fresh).encode()))
    return documents


def python_documents() -> list[Document]:
    """The source files of the standard library, in the order of their paths."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return [(path.relative_to(root).as_posix(), path.read_bytes()) for path in sorted(_source_files(root))]


def _source_files(root: Path) -> Iterator[Path]:
    for entry in root.iterdir():
        if entry.name.startswith(("_sysconfigdata", "config-")):
            continue  # these tell this machine's folders
        if entry.suffix == ".py":
            yield entry
        elif entry.is_dir() and entry.name not in SKIPPED:
            inner = entry.rglob("*.py")
            yield from (path for path in inner if SKIPPED.isdisjoint(path.relative_to(root).parts))


def split_documents(documents: list[Document], validation_split: float) -> tuple[bytes, bytes]:
    """(train, validation): whole documents, dealt by the hash of their names until the share is reached.

    By the hash, so that both parts are spread over the whole corpus and a new document moves no other one.
    """
    wanted = validation_split * sum(len(text) for _, text in documents)
    held: set[str] = set()
    size = 0
    for name, text in sorted(documents, key=lambda document: hashlib.sha256(document[0].encode()).digest()):
        if size >= wanted:
            break
        held.add(name)
        size += len(text)
    train = b"\n\n".join(text for name, text in documents if name not in held)
    return train, b"\n\n".join(text for name, text in documents if name in held)


def seed_of(purpose: str, seed: int, step: int = 0) -> int:
    """The seed of one draw, from these alone: a resumed run draws what an uninterrupted one would."""
    digest = hashlib.blake2b(f"{purpose} {seed} {step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def train_windows(tokens: Tensor, rows: int, length: int, *, seed: int, step: int) -> Tensor:
    """uint8 [rows, length + 1]: windows at random places, drawn from (seed, step) alone."""
    generator = torch.Generator().manual_seed(seed_of("batch", seed, step))
    starts = torch.randint(len(tokens) - length, (rows,), generator=generator)
    return windows_at(tokens, starts, length)


def validation_windows(tokens: Tensor, rows: int, length: int) -> Tensor:
    """uint8 [<= rows, length + 1]: evenly spread, without overlap, the same for every trial and step."""
    rows = min(rows, (len(tokens) - 1) // length)
    starts = torch.linspace(0, len(tokens) - length - 1, rows, dtype=torch.float64).long()
    return windows_at(tokens, starts, length)


def windows_at(tokens: Tensor, starts: Tensor, length: int) -> Tensor:
    """uint8 [len(starts), length + 1]: a window holds its inputs and, one further, their targets."""
    return tokens.unfold(0, length + 1, 1)[starts.to(tokens.device)]


def inputs_and_targets(windows: Tensor) -> tuple[Tensor, Tensor]:
    """int64 [rows, length] twice: each token, and the one after it."""
    wide = windows.long()
    return wide[:, :-1], wide[:, 1:]
