"""Text as a sequence of bytes: where it comes from, how it is split, and how batches are drawn from it.

| corpus | text | split |
|---|---|---|
| `english` | the language reference that comes with CPython (`pydoc_data.topics`) | by topic |
| `python` | the source files of the standard library, without tests and tables | by file |
| a path | the user's own: a file, a folder, records (`texts`) | by document; if none fits, one is cut |
| two paths | the user's own | documents of `validation_file` are not trained on |

The two named corpora need no download. They differ between Python versions, so losses are comparable only if
`Corpus.sha256` is equal. A user's documents are assigned by the hash of their content, so equal documents are
never on both sides. All duplicates stay; a document that contains another one is not detected.

A token is a byte, so a text needs no tokenizing. Only the tokens of records are cached on disk
(`token_cache`): reading them takes a quarter of the time of making them. For all else, hashing the content
takes about as long as making the tokens (`benchmarks/corpora.py`).
"""

from __future__ import annotations

import hashlib
import json
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from ..errors import DataError
from ..notices import say
from ..seeds import seed_of
from . import token_cache
from .texts import RECORD_SUFFIXES, Listing, TextFile, list_files, read_documents, read_files

NAMED_CORPORA = ("english", "python")
# Tests are repetitive, `encodings` holds tables, `pydoc_data` is the other corpus.
SKIPPED_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings", "pydoc_data"}
TOKENS_VERSION = 2  # version of how tokens are made of records: a new number invalidates the cache
SPLIT_SLACK = 0.5  # relative deviation from the validation share that is accepted to keep documents whole

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
        return Corpus(name, as_tokens(train), as_tokens(validation), token_cache.hash_of(train, validation))


def as_tokens(text: bytes) -> Tensor:
    """uint8 [bytes]: one byte for each token; batches become int64 when they are used."""
    return torch.frombuffer(bytearray(text), dtype=torch.uint8) if text else torch.empty(0, dtype=torch.uint8)


def load_corpus(
    train_file: str,
    validation_file: str | None = None,
    *,
    validation_split: float = 0.1,
    text_field: str | None = None,
    max_length: int = 1,
) -> Corpus:
    """The corpus of that name, or of those files; cached in memory for the next trial of this process.

    Both parts must hold at least `max_length` + 1 tokens.
    Raises `DataError` if a file is missing, not UTF-8 or too short, a record has no text, both paths hold the
    same text, or this Python lacks the topics.
    """
    listings = (_listing(train_file), None if validation_file is None else _listing(validation_file))
    corpus = _load(train_file, validation_file, validation_split, text_field, *listings)
    for part, tokens in (("train", corpus.train), ("validate", corpus.validation)):
        if len(tokens) <= max_length:
            shared = part == "validate" and validation_file is None
            more = "raise validation_split, bring more text" if shared else "bring more text"
            raise DataError(
                f"{corpus.name}: {len(tokens)} bytes to {part} on, but max_length {max_length} needs "
                f"at least {max_length + 1}: {more} or lower max_length"
            )
    return corpus


def _listing(name: str) -> Listing | None:
    """The files as they are now: a cache key, so that a long-lived worker reads an edited file again."""
    return None if name in NAMED_CORPORA else list_files(Path(name))


@cache
def _load(
    train_file: str,
    validation_file: str | None,
    validation_split: float,
    text_field: str | None,
    train_listing: Listing | None,
    held_listing: Listing | None,
) -> Corpus:
    if train_listing is None:
        return Corpus.of(train_file, *split_documents(named_documents(train_file), validation_split))
    train = _text_files(train_file, train_listing)
    held = None if validation_file is None else _text_files(validation_file, held_listing)
    name = train_file if validation_file is None else f"{train_file} + {validation_file}"
    key = _key(train, held, validation_split, text_field)
    if key is None and text_field is not None:
        raise DataError(
            f"{name}: found no records ({', '.join(RECORD_SUFFIXES)}), so text_field {text_field!r} has no "
            "effect; leave it out"
        )
    if kept := token_cache.fetch(key) if key else None:
        corpus, left_out = Corpus(name, kept.train, kept.validation, kept.sha256), kept.left_out
    else:
        *parts, left_out = _parts(name, train, held, validation_split, text_field)
        corpus = Corpus.of(name, *parts)
        if key:
            token_cache.store(key, *parts, sha256=corpus.sha256, left_out=left_out)
    if left_out:
        say(f"{name}: left out {left_out} training documents that are in validation_file too")
    return corpus


def _parts(
    name: str,
    train: list[TextFile],
    held: list[TextFile] | None,
    validation_split: float,
    text_field: str | None,
) -> tuple[bytes, bytes, int]:
    """(train, validation, number of documents left out of train because they are in validation)."""
    documents = read_documents(train, text_field)
    if held is None:
        return *split_own(documents, validation_split), 0
    held_documents = read_documents(held, text_field)
    fresh = without(documents, held_documents)
    if documents and not fresh:
        raise DataError(
            f"{name}: all training text is in validation_file too; name another file, or leave it out to "
            "validate on a share of train_file (validation_split)"
        )
    return joined(fresh), joined(held_documents), len(documents) - len(fresh)


def _text_files(name: str, listing: Listing | None) -> list[TextFile]:
    if listing is None:
        return [TextFile(Path(name, part), content) for part, content in named_documents(name)]
    files, left_out = read_files(listing)
    if left_out:
        say(left_out)
    return files


def _key(
    train: list[TextFile], held: list[TextFile] | None, validation_split: float, text_field: str | None
) -> str | None:
    """The hash of everything the tokens depend on; None without records, for which caching does not pay."""
    files = train + (held or [])
    if not any(file.holds_records for file in files):
        return None
    share = validation_split if held is None else None
    sizes = [(file.holds_records, len(file.content)) for file in files]
    digest = hashlib.sha256(json.dumps([TOKENS_VERSION, share, text_field, len(train), sizes]).encode())
    for file in files:
        digest.update(file.content)
    return digest.hexdigest()


def named_documents(name: str) -> list[Document]:
    """The documents of a named corpus."""
    return english_documents() if name == "english" else python_documents()


def english_documents() -> list[Document]:
    """The topics of CPython's language reference, each paragraph once.

    A fifth of the topics repeats others word for word (`compound` holds `if`, `while`, `try` ...). If both
    were kept, validation paragraphs would also be trained on.
    """
    try:
        from pydoc_data import topics
    except ImportError as error:
        raise DataError(
            "this Python lacks pydoc_data, the text of the corpus 'english' (Debian: install the package "
            "libpython3-stdlib); set train_file to 'python' or to a text file of your own"
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
            continue  # these contain folders of this machine
        if entry.suffix == ".py":
            yield entry
        elif entry.is_dir() and entry.name not in SKIPPED_FOLDERS:
            inner = entry.rglob("*.py")
            yield from (path for path in inner if SKIPPED_FOLDERS.isdisjoint(path.relative_to(root).parts))


def split_documents(documents: list[Document], validation_split: float) -> tuple[bytes, bytes]:
    """(train, validation) of a named corpus: whole documents, in order of hash until the share is reached."""
    texts = dict(documents)
    wanted = validation_split * sum(map(len, texts.values()))
    held: set[str] = set()
    size = 0
    for name in _dealt(texts):
        if size >= wanted:
            break
        held.add(name)
        size += len(texts[name])
    train = joined(text for name, text in documents if name not in held)
    return train, joined(text for name, text in documents if name in held)


def _dealt(names: Iterable[str]) -> list[str]:
    """The names in order of their hash, so that the first of them are spread over the whole corpus."""
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())


def split_own(documents: list[bytes], validation_split: float) -> tuple[bytes, bytes]:
    """(train, validation) of a user's documents, each joined into one text; split as in `deal`."""
    train, validation = deal(documents, validation_split)
    return joined(train), joined(validation)


def deal(documents: list[bytes], validation_split: float, salt: str = "") -> tuple[list[bytes], list[bytes]]:
    """(train, validation) of a user's documents: whole documents if they come near the share.

    If too few are small enough, the largest is cut, and its end fills up the share. Equal documents all stay
    and are treated alike, so none is on both sides. Another `salt` gives another split.
    """
    names = [salt + fingerprint(document) for document in documents]
    sizes: Counter[str] = Counter()
    for name, document in zip(names, documents, strict=True):
        sizes[name] += len(document)
    wanted = validation_split * sizes.total()
    held = held_out(sizes, wanted)
    ends: dict[str, int] = {}  # bytes to cut off a document
    missing = wanted - sum(sizes[name] for name in held)
    if missing > SPLIT_SLACK * wanted:
        largest = max((name for name in _dealt(sizes) if name not in held), key=lambda name: sizes[name])
        ends[largest] = round(missing / names.count(largest))
    train, validation = [], []
    for name, document in zip(names, documents, strict=True):
        cut = 0 if name in held else max(0, len(document) - ends.get(name, 0))
        train.append(document[:cut])
        validation.append(document[cut:])
    return list(filter(None, train)), list(filter(None, validation))


def held_out(sizes: Mapping[str, int], wanted: float) -> set[str]:
    """Names whose sizes add up to about `wanted`: each one that brings the sum nearer, and not far beyond."""
    held: set[str] = set()
    size = 0
    for name in _dealt(sizes):
        after = size + sizes[name]
        if abs(after - wanted) < abs(size - wanted) and after <= (1 + SPLIT_SLACK) * wanted:
            held.add(name)
            size = after
    return held


def without(documents: list[bytes], others: list[bytes]) -> list[bytes]:
    """The documents that are not among the others."""
    known = {fingerprint(other) for other in others}
    return [document for document in documents if fingerprint(document) not in known]


def fingerprint(document: bytes) -> str:
    """The hash of a document without blanks at its beginning and end."""
    return hashlib.sha256(document.strip()).hexdigest()


def joined(documents: Iterable[bytes]) -> bytes:
    """The documents as one text, with an empty line between them."""
    return b"\n\n".join(documents)


def train_places(tokens: Tensor, rows: int, length: int, *, seed: int, step: int) -> Tensor:
    """int64 [rows], on the host: random starts of windows, from (seed, step) alone."""
    generator = torch.Generator().manual_seed(seed_of("batch", seed, step))
    return torch.randint(len(tokens) - length, (rows,), generator=generator)


def validation_windows(tokens: Tensor, rows: int, length: int) -> Tensor:
    """uint8 [<= rows, length + 1]: evenly spread, disjoint windows, the same for every trial and step."""
    rows = min(rows, (len(tokens) - 1) // length)
    starts = torch.linspace(0, len(tokens) - length - 1, rows, dtype=torch.float64).long()
    return windows_at(tokens, starts, length)


def windows_at(tokens: Tensor, starts: Tensor, length: int) -> Tensor:
    """uint8 [len(starts), length + 1]: windows of inputs and, shifted by one, their targets."""
    return tokens.unfold(0, length + 1, 1)[starts.to(tokens.device)]


def inputs_and_targets(windows: Tensor) -> tuple[Tensor, Tensor]:
    """int64 [rows, length] twice: each token, and the token after it."""
    wide = windows.long()
    return wide[:, :-1], wide[:, 1:]
