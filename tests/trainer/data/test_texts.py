from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from hpsearch.trainer.config.models import LoraConfig
from hpsearch.trainer.data.texts import fingerprint, list_files, read_documents, read_files
from hpsearch.trainer.errors import DataError
from hpsearch.trainer.guides.footprint import shape_of
from hpsearch.trainer.header import SHIPPED_BASE
from hpsearch.trainer.model.base_file import load_base


def read(path: Path, text_field: str | None = None) -> list[bytes]:
    files, _ = read_files(list_files(path))
    return read_documents(files, text_field)


def records(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_a_folder_is_read_in_the_order_of_its_paths(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("c.txt", "b/z.md", "a", "b/a.rst"):
        (tmp_path / name).write_text(name)
    (tmp_path / "blank.txt").write_text(" \n")
    assert read(tmp_path) == [b"a", b"b/a.rst", b"b/z.md", b"c.txt"]


def test_hidden_and_binary_files_are_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for name in (".git/config", ".hidden.txt", "shown.txt"):
        (tmp_path / name).write_text(name)
    for number in range(4):
        (tmp_path / f"{number}.bin").write_bytes(b"BM\0\0")
    files, told = read_files(list_files(tmp_path))
    assert [file.path.name for file in files] == ["shown.txt"]
    assert told == (
        f"{tmp_path}: read 1 files, left out 2 hidden (.git, .hidden.txt) and 4 binary (0.bin, 1.bin, 2.bin ...)"
    )


def test_a_folder_takes_links_to_files_but_neither_pipes_nor_circles(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "outside.txt").write_text("outside")
    (tmp_path / "folder/link.txt").symlink_to(tmp_path / "outside.txt")
    (tmp_path / "folder/circle").symlink_to(tmp_path / "folder")
    os.mkfifo(tmp_path / "folder/pipe")
    assert read(tmp_path / "folder") == [b"outside"]


def test_a_folder_holds_records_and_packed_files_too(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"text": "first"}\n{"text": "second"}\n')
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"third"))
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b'{"text": "fourth"}'))
    (tmp_path / "d.tar.gz").write_bytes(gzip.compress(b"name\0\0\0\0"))
    assert read(tmp_path) == [b"first", b"second", b"third", b"fourth"]


def test_the_mark_that_a_text_may_begin_with_is_no_text(tmp_path: Path) -> None:
    mark = b"\xef\xbb\xbf"
    for name, content in (("a", mark + b"text"), ("b", mark), ("c", b"in the " + mark + b" middle")):
        (tmp_path / f"{name}.txt").write_bytes(content)
    assert read(tmp_path) == [b"text", b"in the " + mark + b" middle"]


def test_names_may_end_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "A.JSONL").write_text('{"text": "first"}\n{"text": "second"}\n')
    (tmp_path / "B.Ndjson.GZ").write_bytes(gzip.compress(b'{"text": "third"}'))
    (tmp_path / "C.TXT.GZ").write_bytes(gzip.compress(b"fourth"))
    assert read(tmp_path) == [b"first", b"second", b"third", b"fourth"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no text file in this folder"),
        ({".a": b"a", "b": b"\0"}, r"no text file in this folder, but 1 hidden \(\.a\) and 1 binary \(b\)"),
    ],
)
def test_a_folder_without_text_is_refused(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(tmp_path)


def test_a_file_in_a_folder_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"one\ncaf\xe9\n")
    with pytest.raises(DataError, match=r"latin\.txt: not UTF-8 text \(line 2, byte 7\): convert it"):
        read(tmp_path)


@pytest.mark.parametrize(
    "content", [b"not packed", gzip.compress(b"a text" * 99, mtime=0)[:-12], b"\x1f\x8b\x08" + b"\xff" * 40]
)
def test_a_damaged_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.txt.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.txt\.gz: cannot be read: "):
        read(tmp_path / "a.txt.gz")


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"text": "as it is", "prompt": "a", "completion": "b"}, "as it is"),
        ({"prompt": "2 + 2 =", "completion": " 4"}, "2 + 2 = 4"),
        (
            {"instruction": "Add.", "input": "2, 2", "output": "4"},
            "### Instruction:\nAdd.\n\n### Input:\n2, 2\n\n### Response:\n4",
        ),
        ({"instruction": "Go.", "input": "", "output": "Gone."}, "### Instruction:\nGo.\n\n### Response:\nGone."),
        ({"instruction": "Go.", "input": None, "output": "Gone."}, "### Instruction:\nGo.\n\n### Response:\nGone."),
        ({"instruction": "Go.", "output": "Gone."}, "### Instruction:\nGo.\n\n### Response:\nGone."),
        (
            {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]},
            "user: Hi\nassistant: Hello",
        ),
        ({"text": None, "prompt": "a", "completion": "b"}, "ab"),
        ({"text": "na\u00efve \U0001f600"}, "na\u00efve \U0001f600"),
    ],
)  # fmt: skip
def test_each_layout_of_a_record_has_its_text(tmp_path: Path, record: dict[str, Any], text: str) -> None:
    assert read(records(tmp_path, json.dumps(record))) == [text.encode()]


def test_records_may_begin_with_a_mark_end_as_on_windows_and_have_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "one"}\r\n\r\n{"text": " "}\r\n{"text": "two"}')
    assert read(path) == [b"one", b"two"]


def test_a_named_field_is_the_only_one_looked_at(tmp_path: Path) -> None:
    path = records(tmp_path, '{"text": "no", "body": "yes"}', '{"prompt": "a", "completion": "b"}')
    with pytest.raises(
        DataError, match=r':2: found the fields "prompt" .*, needs text in "body" \(text_field\)'
    ):
        read(path, "body")
    assert read(records(tmp_path, '{"text": "no", "body": "yes"}'), "body") == [b"yes"]


LAYOUTS = 'needs text in "text", "prompt" and "completion", "instruction" and "output", or "messages"; or name the field with text_field'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("one plain line", 'not valid JSON (Expecting value: line 1 column 1 (char 0)), needs a record such as {"text": "..."}'),
        ('{"text": "unended', "not valid JSON (Unterminated string"),
        ('["a"]', 'found list, needs a record such as {"text": "..."}'),
        ("3", "found number, needs a record"),
        ("{}", f"found the fields none, {LAYOUTS}"),
        ('{"body": "a", "id": 3}', f'found the fields "body" (text), "id" (number), {LAYOUTS}'),
        ('{"text": ["a"]}', 'found the fields "text" (list), needs text'),
        ('{"messages": []}', 'found the fields "messages" (list), needs text'),
        ('{"messages": [{"role": "user", "content": null}]}', 'found the fields "messages" (list), needs text'),
        ('{"instruction": "a", "input": 3, "output": "b"}', '"input" (number), "output" (text), needs text'),
        ('{"text": "\\ud800"}', "found an unpaired surrogate"),
        ("[" * 100_000, "not valid JSON (maximum recursion depth"),
        ("9" * 5000, "not valid JSON (Exceeds the limit"),
    ],
)  # fmt: skip
def test_a_record_without_text_is_refused_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    path = records(tmp_path, '{"text": "fine"}', "", line, '{"text": "fine"}')
    with pytest.raises(DataError) as told:
        read(path)
    assert str(told.value).startswith(f"{path}:3: ") and message in str(told.value)
    assert "\n" not in str(told.value)


def test_a_tilde_is_expanded_to_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`hpsearch validate` takes what it leads to for there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.txt").write_text("text")
    shutil.copy(SHIPPED_BASE, tmp_path / "base.safetensors")
    config = LoraConfig(max_steps=1, base="~/base.safetensors", train_file="~/a.txt")
    assert list_files(Path(config.train_file)).path == tmp_path / "a.txt"
    assert fingerprint(Path(config.train_file)) == fingerprint(tmp_path / "a.txt")
    assert load_base(config.base).shape == load_base().shape and shape_of(config).max_length == 128
    with pytest.raises(DataError, match=r"~nobody here/a\.txt: cannot be read: No such file"):
        list_files(Path("~nobody here/a.txt"))


def test_a_pipe_is_no_text(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(DataError, match="is a pipe or a device, not a file"):
            list_files(path)
