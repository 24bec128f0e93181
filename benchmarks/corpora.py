"""What loading a text costs, and what keeping its tokens on disk saves.

    python benchmarks/corpora.py [--megabytes 100] [--files 10000] [--rounds 5] [--folder .]

The texts are the two corpora that come with Python, a JSONL file of 2 kB records, and a folder of 2 kB files.
The last two are made in `--folder`. All are in the system's page cache when they are loaded.

| column | milliseconds, as the median over the rounds |
|---|---|
| made | to load the text if no tokens are kept |
| hashed | of these, to find, read and hash it: the least that tokens kept by content would cost |
| kept | to load it again in another process; only the tokens of the records are kept |
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hpsearch.trainer.data import corpus
from hpsearch.trainer.data.texts import list_files, read_files

DOCUMENT = 2000  # bytes


def make(folder: Path, megabytes: int, files: int) -> list[str]:
    """The corpora to load. Their text is Python's own, in pieces."""
    text = b"\n".join(content for _, content in corpus.python_documents()).decode(errors="ignore")
    pieces = [text[place : place + DOCUMENT] for place in range(0, len(text) - DOCUMENT, DOCUMENT)]
    with (folder / "records.jsonl").open("w") as records:
        for number in range(megabytes * 1_000_000 // DOCUMENT):
            records.write(json.dumps({"text": f"{number} {pieces[number % len(pieces)]}"}) + "\n")
    for number in range(files):
        path = folder / "files" / str(number % 100) / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number} {pieces[number % len(pieces)]}")
    return [*corpus.NAMED_CORPORA, str(folder / "records.jsonl"), str(folder / "files")]


def hash_content(name: str) -> None:
    if name in corpus.NAMED_CORPORA:
        contents = [content for _, content in corpus.named_documents(name)]
    else:
        contents = [file.content for file in read_files(list_files(Path(name)))[0]]
    digest = hashlib.sha256()
    for content in contents:
        digest.update(content)


def load(name: str) -> None:
    corpus._load.cache_clear()  # as in a new process
    corpus.load_corpus(name)


def milliseconds(work: Callable[[str], None], name: str) -> float:
    began = time.perf_counter()
    work(name)
    return 1e3 * (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=100, help="size of the records")
    parser.add_argument("--files", type=int, default=10_000, help="number of files in the folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(), help="where to make the texts (default: here)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=".corpora-", dir=options.folder) as made:
        cache = Path(made, "cache")
        os.environ["HPSEARCH_CACHE"] = str(cache)
        print(f"{'corpus':24}{'made':>9}{'hashed':>9}{'kept':>9}", flush=True)
        for name in make(Path(made), options.megabytes, options.files):
            figures: list[tuple[float, float, float]] = []
            load(name)  # so that the files are in the page cache
            for _ in range(options.rounds):
                shutil.rmtree(cache, ignore_errors=True)
                figures.append(
                    (milliseconds(load, name), milliseconds(hash_content, name), milliseconds(load, name))
                )
            medians = (statistics.median(column) for column in zip(*figures, strict=True))
            print(f"{Path(name).name:24}" + "".join(f"{median:9.0f}" for median in medians), flush=True)


if __name__ == "__main__":
    main()
