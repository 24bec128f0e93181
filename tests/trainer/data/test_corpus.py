from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.trainer.data.corpus import (
    Corpus,
    as_tokens,
    english_documents,
    inputs_and_targets,
    load_corpus,
    python_documents,
    split_documents,
    split_own,
    train_places,
    validation_windows,
)
from hpsearch.trainer.errors import DataError


def test_a_text_file_is_split_by_position(text_file: Path) -> None:
    corpus = load_corpus(str(text_file), validation_split=0.25)
    whole = text_file.read_bytes()
    assert bytes(torch.cat([corpus.train, corpus.validation]).tolist()) == whole
    assert len(corpus.validation) == round(len(whole) / 4)


def test_a_validation_file_leaves_the_whole_text_to_train_on(text_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "held.txt"
    other.write_text("held out " * 20)
    corpus = load_corpus(str(text_file), str(other))
    assert bytes(corpus.train.tolist()) == text_file.read_bytes()
    assert bytes(corpus.validation.tolist()) == other.read_bytes()


def test_an_edited_file_is_read_again(text_file: Path) -> None:
    first = load_corpus(str(text_file))
    assert load_corpus(str(text_file)) is first
    text_file.write_text("something else entirely, long enough to split")
    assert load_corpus(str(text_file)).sha256 != first.sha256


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.txt: cannot be read: No such file"):
        load_corpus(str(tmp_path / "nothing.txt"))


def test_a_file_that_is_not_utf8_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"one\ntwo\ncaf\xe9 three\n")
    with pytest.raises(DataError, match=r"latin\.txt: not UTF-8 text \(line 3, byte 11\)"):
        load_corpus(str(path))


@pytest.mark.parametrize("text", ["", "short"])
def test_a_text_too_short_for_one_window_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "short.txt"
    path.write_text(text)
    with pytest.raises(DataError, match="needs at least 17: bring more text or lower max_length"):
        load_corpus(str(path), max_length=16)


def test_a_share_too_small_for_one_window_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("a line of some words\n" * 100)
    told = "10 bytes to validate on, but max_length 16 needs at least 17: raise validation_split, bring more text"
    with pytest.raises(DataError, match=told):
        load_corpus(str(path), validation_split=0.005, max_length=16)


def test_a_python_without_its_topics_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data", None)
    with pytest.raises(DataError, match=r"lacks pydoc_data.*set train_file to 'python'"):
        english_documents()


def test_english_has_no_paragraph_twice_so_none_is_on_both_sides() -> None:
    train, validation = split_documents(english_documents(), 0.1)
    trained = {" ".join(paragraph.split()) for paragraph in train.decode().split("\n\n")}
    held = {" ".join(paragraph.split()) for paragraph in validation.decode().split("\n\n")}
    assert len(trained) > 1000 and len(held) > 100
    assert trained & held <= {""}


def test_python_is_split_by_file() -> None:
    documents = python_documents()
    names = [name for name, _ in documents]
    assert {"ast.py", "json/decoder.py"} <= set(names)
    assert not [name for name in names if {"test", "site-packages", "pydoc_data"} & set(name.split("/"))]
    train, validation = split_documents(documents, 0.1)
    for _, text in documents[::40]:
        assert (text in train) != (text in validation) or not text.strip()
    assert 0.1 <= len(validation) / (len(train) + len(validation)) < 0.15


# Each begins and ends with a mark of its own, so that no part of one is another.
words = (
    st.text("abcdef ", min_size=1, max_size=12)
    .filter(str.strip)
    .map(lambda text: text.replace(text.strip(), f"<{text.strip()}>").encode())
)
shares = st.floats(0.01, 0.5)


def dealt(documents: list[bytes], share: float) -> tuple[list[bytes], list[bytes]]:
    """The documents to train and to validate on, and the parts of one; none of them holds an empty line."""
    train, validation = (part.split(b"\n\n") if part else [] for part in split_own(documents, share))
    return train, validation


@given(documents=st.lists(words, max_size=30), share=shares)
def test_equal_documents_are_treated_alike_and_no_text_is_lost(documents: list[bytes], share: float) -> None:
    train, validation = dealt(documents, share)
    cut = {document for document in documents if document not in train + validation}
    assert len({document.strip() for document in cut}) <= 1, "one is cut, with its copies"
    whole = [document for document in documents if document not in cut]
    assert not {d.strip() for d in whole if d in train} & {d.strip() for d in whole if d in validation}
    assert sum(map(len, train + validation)) == sum(map(len, documents))
    assert [document for document in whole if document in train] == [d for d in train if d in whole]


@given(documents=st.lists(words, min_size=1, max_size=30), share=shares)
def test_the_share_is_met_within_a_half_of_it(documents: list[bytes], share: float) -> None:
    _, validation = dealt(documents, share)
    wanted = share * sum(map(len, documents))
    # A document is cut between two bytes, and so is each of its copies.
    assert abs(sum(map(len, validation)) - wanted) <= wanted / 2 + len(documents) / 2


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
def test_few_documents_of_one_size_are_split_at_the_share(tmp_path: Path, count: int) -> None:
    for number in range(count):
        (tmp_path / f"{number}.txt").write_text(f"{number}" * 1000)
    corpus = load_corpus(str(tmp_path), validation_split=0.1)
    assert len(corpus.validation) == 100 * count


@pytest.mark.parametrize("variant", range(8))
def test_a_large_document_never_goes_to_validation_for_a_small_share(tmp_path: Path, variant: int) -> None:
    for name, size in (("a", 213_000), ("b", 1_400)):
        (tmp_path / f"{name}.txt").write_text(f"{variant} of {name} " * (size // 7))
    corpus = load_corpus(str(tmp_path), validation_split=0.1)
    held, trained = len(corpus.validation), len(corpus.train)
    assert 0.09 < held / (held + trained) < 0.11
    assert bytes(corpus.validation.tolist()) not in bytes(corpus.train.tolist())


@pytest.mark.parametrize("seed", range(4))
def test_records_of_very_different_sizes_meet_the_share(seed: int) -> None:
    rng = random.Random(seed)
    documents = [f"{n:03}".encode() * int(10 * rng.paretovariate(0.7)) for n in range(60)]
    _, validation = split_own(documents, 0.1)
    assert 0.05 < len(validation) / sum(map(len, documents)) < 0.16


@given(
    documents=st.sets(st.integers(100, 999), min_size=12, max_size=40),
    more=st.integers(1000, 9999),
    share=st.floats(0.2, 0.5),
)
def test_a_new_document_moves_at_most_the_one_where_the_share_ends(
    documents: set[int], more: int, share: float
) -> None:
    texts = [b"%04d" % number for number in sorted(documents)]
    new = b"%04d" % more
    _, before = dealt(texts, share)
    _, after = dealt([*texts, new], share)
    assert len(set(before) ^ (set(after) - {new})) <= 1


@given(text=words, times=st.integers(1, 5), share=shares)
def test_copies_of_a_single_document_all_stay_and_are_cut_alike(
    text: bytes, times: int, share: float
) -> None:
    train, validation = dealt([text] * times, share)
    end = round(len(text) * share * times / times)
    assert train == [text[: len(text) - end]] * times
    assert validation == ([text[len(text) - end :]] * times if end else [])


def test_the_named_corpora_are_what_they_were() -> None:
    """Studies compare by these hashes; what they are of differs between Python versions alone."""
    for name, documents in (("english", english_documents()), ("python", python_documents())):
        wanted = 0.1 * sum(len(text) for _, text in documents)
        held: set[str] = set()
        size = 0
        for document, text in sorted(documents, key=lambda pair: hashlib.sha256(pair[0].encode()).digest()):
            if size >= wanted:
                break
            held.add(document)
            size += len(text)
        train = b"\n\n".join(text for document, text in documents if document not in held)
        validation = b"\n\n".join(text for document, text in documents if document in held)
        expected = hashlib.sha256(len(train).to_bytes(8, "big") + train + validation).hexdigest()
        assert load_corpus(name).sha256 == expected


def test_the_share_of_a_named_corpus_counts() -> None:
    small, large = (len(load_corpus("english", validation_split=share).validation) for share in (0.1, 0.4))
    assert small < large / 3


def documents_of(corpus: Corpus) -> tuple[set[str], set[str]]:
    train, validation = (bytes(part.tolist()).decode() for part in (corpus.train, corpus.validation))
    return set(train.split("\n\n")), set(validation.split("\n\n"))


def write_records(path: Path, texts: Iterable[str], field: str = "text") -> str:
    path.write_text("".join(json.dumps({field: text}) + "\n" for text in texts))
    return str(path)


def test_a_folder_is_split_by_document(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.txt").write_text(f"file {number % 15} of text")  # some are there twice
    train, validation = documents_of(load_corpus(str(tmp_path), validation_split=0.25))
    assert train | validation == {f"file {number} of text" for number in range(15)}
    assert not train & validation and 2 <= len(validation) <= 6


def test_records_are_split_by_document_and_the_share_counts(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.jsonl", [f"record {number % 40}" for number in range(60)])
    sizes = []
    for share in (0.1, 0.5):
        train, validation = documents_of(load_corpus(path, validation_split=share))
        assert train | validation == {f"record {number}" for number in range(40)} and not train & validation
        sizes.append(len(validation))
    assert sizes[0] < sizes[1] / 2


def test_the_field_of_the_text_is_the_one_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": f"t{i}", "body": f"b{i}"}) + "\n" for i in range(9)))
    assert all(text[0] == "t" for part in documents_of(load_corpus(str(path))) for text in part)
    named = load_corpus(str(path), text_field="body")
    assert all(text[0] == "b" for part in documents_of(named) for text in part)
    other = write_records(tmp_path / "b.jsonl", ["held"], field="body")
    assert documents_of(load_corpus(str(path), other, text_field="body"))[1] == {"held"}


def test_a_text_field_without_records_is_refused(text_file: Path) -> None:
    with pytest.raises(
        DataError, match=r"numbers\.txt: found no records \(\.jsonl, \.ndjson\), so text_field 'body'"
    ):
        load_corpus(str(text_file), text_field="body")


@pytest.mark.parametrize("same", ["path", "link", "copy", "records"])
def test_validating_on_what_is_trained_on_is_refused(tmp_path: Path, text_file: Path, same: str) -> None:
    other = {"path": text_file, "records": tmp_path / "same.jsonl"}.get(same, tmp_path / "same.txt")
    if same == "link":
        other.symlink_to(text_file)
    elif same == "copy":
        other.write_text(text_file.read_text() + "\n")  # blanks at its ends make no other text
    elif same == "records":
        write_records(other, [text_file.read_text()])
    with pytest.raises(
        DataError, match="all training text is in validation_file too; name another file, or leave it out"
    ):
        load_corpus(str(text_file), str(other))


def test_a_file_to_validate_on_is_not_trained_on_in_its_folder(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b", "held"):
        (tmp_path / f"{name}.txt").write_text(f"text of {name}")
    corpus = load_corpus(str(tmp_path), str(tmp_path / "held.txt"))
    assert documents_of(corpus) == ({"text of a", "text of b"}, {"text of held"})
    assert "left out 1 training documents that are in validation_file too" in capfd.readouterr().err


def test_a_named_corpus_can_be_validated_on(text_file: Path) -> None:
    corpus = load_corpus(str(text_file), "english")
    assert bytes(corpus.train.tolist()) == text_file.read_bytes()
    assert b"statement" in bytes(corpus.validation.tolist())


# Kept on disk


def entries(cache: Path) -> list[Path]:
    return sorted(cache.rglob("*.tokens"))


def test_records_are_read_once_whatever_their_file_is_called(
    tmp_path: Path, own_cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    texts = [f"record {number}" for number in range(30)]
    held = write_records(tmp_path / "held.jsonl", texts[:3])
    first = load_corpus(write_records(tmp_path / "a.jsonl", texts), held)
    assert "left out 3 training documents" in capfd.readouterr().err
    [entry] = entries(own_cache)
    made = entry.stat().st_ino
    os.utime(entry, (1, 1))
    again = load_corpus(write_records(tmp_path / "b.jsonl", texts), held)
    assert again is not first and again.sha256 == first.sha256
    assert torch.equal(again.train, first.train) and torch.equal(again.validation, first.validation)
    assert again.train.dtype == torch.uint8
    assert "left out 3 training documents" in capfd.readouterr().err, "said again"
    assert entry.stat().st_ino == made and entry.stat().st_mtime > 1, "it was read, not made"


def test_other_content_field_share_or_part_is_kept_by_itself(tmp_path: Path, own_cache: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [json.dumps({"text": f"t{number}", "body": f"b{number}"}) + "\n" for number in range(9)]
    path.write_text("".join(lines))
    other = write_records(tmp_path / "b.jsonl", ["something else"])
    hashes = {
        load_corpus(str(path)).sha256,
        load_corpus(str(path), validation_split=0.5).sha256,
        load_corpus(str(path), text_field="body").sha256,
        load_corpus(str(path), other).sha256,
        load_corpus(other, str(path)).sha256,
    }
    before = path.stat()
    path.write_text("".join(lines).replace("t3", "x3"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    hashes.add(load_corpus(str(path)).sha256)
    assert len(hashes) == len(entries(own_cache)) == 6


def test_the_same_files_dealt_in_another_way_are_kept_by_themselves(tmp_path: Path, own_cache: Path) -> None:
    for folder, names in (("ab", "ab"), ("c", "c"), ("a", "a"), ("bc", "bc")):
        (tmp_path / folder).mkdir()
        for name in names:
            write_records(tmp_path / folder / f"{name}.jsonl", [f"text {name}"])
    for train, held in (("ab", "c"), ("a", "bc")):
        corpus = load_corpus(str(tmp_path / train), str(tmp_path / held))
        assert documents_of(corpus) == ({f"text {name}" for name in train}, {f"text {name}" for name in held})
    assert len(entries(own_cache)) == 2


def test_only_records_are_cached(text_file: Path, own_cache: Path) -> None:
    load_corpus(str(text_file))
    load_corpus(str(text_file.parent), max_length=1)
    load_corpus("english")
    assert entries(own_cache) == []


def test_an_unwritable_cache_is_reported_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HPSEARCH_CACHE", str(tmp_path / "file"))
    corpus = load_corpus(write_records(tmp_path / "a.jsonl", ["one", "two", "three"] * 9))
    assert len(corpus.train) and len(corpus.validation)
    assert "token cache (HPSEARCH_CACHE): cannot be written: " in capfd.readouterr().err


def test_records_without_text_are_refused(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.jsonl", ["", " "])
    with pytest.raises(DataError, match=r"a\.jsonl: 0 bytes to train on, but max_length 1 needs at least 2"):
        load_corpus(path)


@given(seed=st.integers(0, 2**63 - 1), step=st.integers(0, 10**9))
def test_places_come_from_seed_and_step_alone(seed: int, step: int) -> None:
    tokens = as_tokens(bytes(range(256)))
    torch.manual_seed(0)
    first = train_places(tokens, 3, 8, seed=seed, step=step)
    torch.manual_seed(1)
    assert torch.equal(first, train_places(tokens, 3, 8, seed=seed, step=step))
    assert not torch.equal(
        train_places(tokens, 32, 8, seed=seed, step=step),
        train_places(tokens, 32, 8, seed=seed, step=step + 1),
    )


def test_every_place_of_the_text_can_be_drawn_and_none_beyond() -> None:
    tokens = as_tokens(bytes(range(12)))
    starts = {int(train_places(tokens, 1, 8, seed=0, step=step)) for step in range(200)}
    assert starts == {0, 1, 2, 3}


@given(size=st.integers(18, 400), rows=st.integers(1, 40))
def test_validation_windows_are_spread_and_do_not_overlap(size: int, rows: int) -> None:
    tokens = as_tokens(bytes(index % 256 for index in range(size)))
    windows = validation_windows(tokens, rows, 16)
    assert windows.shape == (min(rows, (size - 1) // 16), 17)
    assert torch.equal(windows[0], tokens[:17])
    if len(windows) > 1:
        assert torch.equal(windows[-1], tokens[-17:])
        starts = torch.linspace(0, size - 17, len(windows), dtype=torch.float64).long()
        assert int(starts.diff().min()) >= 16


def test_a_target_is_the_token_after_its_input() -> None:
    inputs, targets = inputs_and_targets(as_tokens(b"abcd")[None])
    assert bytes(inputs[0].tolist()) == b"abc" and bytes(targets[0].tolist()) == b"bcd"
    assert inputs.dtype == torch.int64


def test_the_hash_tells_texts_apart_and_splits_of_one_text_too(text_file: Path) -> None:
    hashes = {load_corpus(str(text_file), validation_split=share).sha256 for share in (0.1, 0.2)}
    text_file.write_text(text_file.read_text() + "more")
    os.utime(text_file, ns=(1, 1))
    assert len(hashes | {load_corpus(str(text_file)).sha256}) == 3
