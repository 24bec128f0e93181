from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.trainer.data import (
    as_tokens,
    english_documents,
    inputs_and_targets,
    load_corpus,
    python_documents,
    split_documents,
    train_windows,
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


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.txt: cannot be read: No such file"):
        load_corpus(str(tmp_path / "nothing.txt"))


def test_a_file_that_is_no_utf8_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"one\ntwo\ncaf\xe9 three\n")
    with pytest.raises(DataError, match=r"latin\.txt: not UTF-8 text \(line 3, byte 11\)"):
        load_corpus(str(path))


@pytest.mark.parametrize("text", ["", "short"])
def test_a_text_too_short_for_one_window_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "short.txt"
    path.write_text(text)
    with pytest.raises(DataError, match="needs at least 17: bring more text or lower max_length"):
        load_corpus(str(path), max_length=16)


def test_a_python_without_its_topics_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data", None)
    with pytest.raises(DataError, match=r"comes without pydoc_data.*set train_file to 'python'"):
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


def test_a_new_document_moves_no_other_one_to_train_unless_it_takes_its_place() -> None:
    documents = [(f"d{number}", b"x" * 10) for number in range(100)]
    _, before = split_documents(documents, 0.1)
    assert len(before.split(b"\n\n")) == 10


@given(seed=st.integers(0, 2**63 - 1), step=st.integers(0, 10**9))
def test_windows_come_from_seed_and_step_alone(seed: int, step: int) -> None:
    tokens = as_tokens(bytes(range(256)))
    torch.manual_seed(0)
    first = train_windows(tokens, 3, 8, seed=seed, step=step)
    torch.manual_seed(1)
    assert torch.equal(first, train_windows(tokens, 3, 8, seed=seed, step=step))
    assert not torch.equal(
        train_windows(tokens, 32, 8, seed=seed, step=step),
        train_windows(tokens, 32, 8, seed=seed, step=step + 1),
    )


def test_every_place_of_the_text_can_be_drawn_and_none_beyond() -> None:
    tokens = as_tokens(bytes(range(12)))
    starts = {int(train_windows(tokens, 1, 8, seed=0, step=step)[0, 0]) for step in range(200)}
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
