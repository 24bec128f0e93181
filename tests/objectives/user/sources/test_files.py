"""Log files are followed while they grow, whatever a program does with them."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpsearch.objectives.base import ScriptError
from hpsearch.objectives.user.output import Piece
from hpsearch.objectives.user.sources.columns import Columns
from hpsearch.objectives.user.sources.files import FileSource
from hpsearch.objectives.user.sources.follow import FollowedFile
from hpsearch.objectives.user.sources.rows import Rows

SILENT = Piece((), {False: 0.0, True: 0.0})
Found = list[tuple[int | None, float]]


OPEN: list[FileSource] = []


def source_of(path: Path | str, value: str = "loss", step: str | None = None, **more: Any) -> FileSource:
    OPEN.append(FileSource("val_loss", str(path), Columns(value, step), **more))
    return OPEN[-1]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


def news(source: FileSource) -> Found:
    return [(report.step, report.value) for report in source.take(SILENT).found]


def last(source: FileSource) -> Found:
    return [(report.step, report.value) for report in source.end().found]


def rows(*steps: int, **more: Any) -> str:
    return "".join(json.dumps({"step": step, "loss": step / 10, **more}) + "\n" for step in steps)


def test_a_metric_or_a_step_in_two_columns_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "log.csv"
    sources = [source_of(table), source_of(table, "x", "n"), source_of(table, "y")]
    table.write_text("step,n,loss,x,n,loss,y\n1,1,0.5,7,2,0.25,3\n")
    for source, name in zip(sources, ("loss", "n"), strict=False):
        with pytest.raises(ScriptError, match=f'log.csv has several columns "{name}"'):
            source.take(SILENT)
    assert news(sources[2]) == [(1, 3.0)], "others may be there twice"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def append(path: Path, text: str) -> None:
    with path.open("a") as stream:
        stream.write(text)


def test_lines_are_read_as_they_come(log: Path) -> None:
    source = source_of(log)
    assert news(source) == [], "it appears late"
    append(log, rows(1))
    assert news(source) == [(1, 0.1)]
    append(log, rows(2, 3)[:-5])
    assert news(source) == [(2, 0.2)], "the second half of a line is missing"
    append(log, rows(3)[-5:] + '{"other": 1}\n\nnot json\n' + '{"loss": 0.4, "step": 4}')
    assert news(source) == [(3, 0.3), (4, 0.4)], "a whole object needs no line break"
    append(log, "\n")
    assert news(source) == last(source) == []
    assert source.origin == f'val_loss from "loss" in {log}, with the step "step"'


def test_the_last_half_line_counts_at_the_end(tmp_path: Path) -> None:
    table = tmp_path / "log.csv"
    source = source_of(table)
    table.write_text("step,loss\n1,0.1\n2,0.2")
    assert news(source) == [(1, 0.1)]
    assert last(source) == [(2, 0.2)]


@pytest.mark.parametrize("same_file", [True, False])
def test_a_file_that_is_written_again_repeats_nothing(log: Path, same_file: bool) -> None:
    """In place, or a new one that replaces it."""
    source = source_of(log)
    found: Found = []
    for step in range(1, 5):
        if same_file:
            log.write_text(rows(*range(1, step + 1)))
        else:
            (new := log.with_suffix(".tmp")).write_text(rows(*range(1, step + 1)))
            new.replace(log)
        os.utime(log, ns=(step, step))
        found += news(source)
    assert found == [(step, step / 10) for step in range(1, 5)]


def test_a_rotated_file_is_read_to_its_end(log: Path) -> None:
    source = source_of(log)
    append(log, rows(1))
    assert news(source) == [(1, 0.1)]
    append(log, rows(2))
    log.rename(log.with_suffix(".1"))
    assert news(source) == [(2, 0.2)]
    append(log, rows(3))
    assert news(source) == [(3, 0.3)]
    log.write_text("")  # truncated
    append(log, rows(4))
    os.utime(log, ns=(1, 1))
    assert news(source) == [(4, 0.4)]


def test_rows_that_come_just_before_a_rotation_are_read(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks at the file, a program may write, rotate and write again."""
    source, real = source_of(log), os.stat
    append(log, rows(1))
    assert news(source) == [(1, 0.1)]

    def rotating(path: Any, **how: Any) -> os.stat_result:
        if path == log:
            monkeypatch.undo()
            append(log, rows(2))
            log.rename(log.with_suffix(".1"))
            append(log, rows(3))
        return real(path, **how)

    monkeypatch.setattr(os, "stat", rotating)
    assert news(source) == [(2, 0.2), (3, 0.3)]


def test_a_program_may_write_to_a_rotated_file_for_a_while(tmp_path: Path) -> None:
    """Until it knows that somebody else has rotated it; its last row may have no line break."""
    table = tmp_path / "log.csv"
    source = source_of(table)
    append(table, "step,loss\n1,0.1\n")
    assert news(source) == [(1, 0.1)]
    old = table.rename(table.with_suffix(".1"))
    table.touch()
    assert news(source) == []
    append(old, "2,0.2\n3,0.3")
    append(table, "step,loss\n4,0.4\n")
    assert news(source) == [(2, 0.2), (3, 0.3), (4, 0.4)]


def test_a_file_that_is_rewritten_while_it_is_read(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, real = source_of(log), os.pread
    append(log, rows(1))
    assert news(source) == [(1, 0.1)]
    reads = []

    def rewriting(descriptor: int, size: int, at: int) -> bytes:
        reads.append(at)
        if len(reads) == 3:  # after the head and the tail
            log.write_text(rows(2, 3, 4))
        return real(descriptor, size, at)

    append(log, rows(5))
    monkeypatch.setattr(os, "pread", rewriting)
    assert news(source) == [(2, 0.2), (3, 0.3), (4, 0.4)]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("was_there", [True, False])
def test_a_byte_order_mark_says_how_a_log_is_encoded(tmp_path: Path, encoding: str, was_there: bool) -> None:
    """As PowerShell writes it. An encoding with a named order writes no mark by itself."""
    table = tmp_path / "log.csv"
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    content = f"{mark}step,loss\n1,0.1\n".encode(encoding)
    source = None if was_there else source_of(table)
    found: Found = []
    with table.open("wb") as stream:
        for cut in (slice(1), slice(1, 23), slice(23, None)):
            stream.write(content[cut])
            stream.flush()
            found += [] if source is None else news(source)
    assert source is None or found == [(1, 0.1)]
    source = source or source_of(table)
    with table.open("ab") as stream:
        stream.write("2,0.2\n".encode({"utf-16": "utf-16-le"}.get(encoding, encoding).removesuffix("-sig")))
    assert news(source) == [(2, 0.2)]


def test_rows_without_steps_are_counted_once(log: Path) -> None:
    source = source_of(log)
    values = [0.5, 0.5, 0.4]
    found: Found = []
    for count in range(1, 4):
        log.write_text("".join(json.dumps({"loss": value}) + "\n" for value in values[:count]))
        os.utime(log, ns=(count, count))
        found += news(source)
    assert found == [(None, value) for value in values]


def test_what_was_there_before_is_not_this_trials(log: Path) -> None:
    append(log, rows(1, 2))
    source = source_of(log)
    assert news(source) == last(source) == []
    assert "was there before and has not changed" in source.near_misses[0]
    source = source_of(log)
    append(log, rows(1))
    assert news(source) == [(1, 0.1)]
    source = source_of(log)
    log.write_text(rows(7, 8, 9, 10))  # in place, and longer
    os.utime(log, ns=(1, 1))
    assert [step for step, _ in news(source)] == [7, 8, 9, 10]


def test_a_table_that_was_there_before_keeps_its_header(tmp_path: Path) -> None:
    table = tmp_path / "log.csv"
    table.write_text("step,loss\n1,0.1\n")
    source = source_of(table)
    append(table, "step,loss\n2,0.2\n")
    assert news(source) == [(2, 0.2)]


@pytest.mark.parametrize(
    "header", ["step,acc,loss", "step,loss,acc,f1"], ids=["another order", "another column"]
)
def test_a_table_may_name_its_columns_again(tmp_path: Path, header: str) -> None:
    path = tmp_path / "log.csv"
    source = source_of(path)
    path.write_text("step,loss,acc\n1,0.4,0.8\n")
    assert news(source) == [(1, 0.4)]
    row = {"step": "2", "loss": "0.3", "acc": "0.9", "f1": "0.5"}
    append(path, f"{header}\n{','.join(row[name] for name in header.split(','))}\n")
    assert news(source) == [(2, 0.3)]


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    source = source_of(tmp_path / "pipe")
    assert last(source) == []
    assert "is a pipe or a device, not a file" in source.near_misses[0]


def test_a_resumed_trial_with_nothing_left_to_train_has_its_earlier_rows(log: Path) -> None:
    append(log, rows(1, 2))
    assert last(source_of(log, resumed=True)) == [(1, 0.1), (2, 0.2)]
    source = source_of(log, resumed=True)
    append(log, rows(3))
    assert last(source) == [(3, 0.3)]


def test_lightnings_metrics(tmp_path: Path) -> None:
    """Several rows of a step, empty cells, and a new column, for which all is written again."""
    table = tmp_path / "metrics.csv"
    source = source_of(table, "val_loss")
    append(table, "epoch,step,train_loss\n0,9,1.5\n")
    assert news(source) == []
    table.write_text("epoch,step,train_loss,val_loss\n0,9,1.5,\n0,9,,0.9\n")
    assert news(source) == [(9, 0.9)]
    append(table, "1,19,1.2,\n1,19,,0.8\n")
    (report,) = source.take(SILENT).found
    assert (report.step, report.value, report.metrics) == (19, 0.8, {"epoch": 1.0})


def test_the_trainers_state(tmp_path: Path) -> None:
    """Each checkpoint has all of it."""
    source = source_of(f"{tmp_path}/out/checkpoint-*/trainer_state.json", "eval_loss")
    history: list[dict[str, float]] = []
    found: Found = []
    for step in (500, 1000, 1500):
        history += [
            {"epoch": step / 1000, "loss": 1.0, "step": step},
            {"eval_loss": 1 / step, "step": step, "epoch": 0.5},
        ]
        folder = tmp_path / "out" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        text = json.dumps({"best_metric": None, "log_history": history}, indent=2)
        (folder / "trainer_state.json").write_text(text[:100])
        found += news(source)
        (folder / "trainer_state.json").write_text(text)
        os.utime(folder / "trainer_state.json", ns=(step, step))
        found += news(source)
    assert found == [(step, 1 / step) for step in (500, 1000, 1500)]


@pytest.mark.parametrize(
    ("content", "read"),
    [
        ('{"loss": 0.5, "epoch": 3}', [(3, 0.5)]),
        ('{"loss": 0.5,\n "epoch": 3.0\n}', [(3, 0.5)]),
        ('[{"loss": 0.5}, {"loss": 0.4}]', [(None, 0.5), (None, 0.4)]),
        ('{"loss": [0.5, 0.4], "epoch": [1, 2]}', [(1, 0.5), (2, 0.4)]),
        ('{"eval": {"loss": 0.5}, "loss": 0.6, "current_steps": 7}', [(7, 0.6)]),
        ("\ufeffepoch\tloss\n1\t0.5\n", [(1, 0.5)]),
        ("epoch;loss\n1;0.5\n", [(1, 0.5)]),
        ("# epoch loss\n1 0.5\n2 nan\n", [(1, 0.5), (2, float("nan"))]),
        ("# run 1\n# lr, x\n\nepoch,loss\n1,0.5\n", [(1, 0.5)]),
        ("# two words\n# epoch\tloss\n# run 1 of 9\n1\t0.5\n", [(1, 0.5)]),
        ('step,loss,note\n1,3.5,"hello\n2,0.001,x"\n2,3.0,ok\n', [(1, 3.5), (2, 3.0)]),
        ('step,note,loss\r\n1,"a\r\n\r\nb",3.5\r\n2,"c",3.0\r\n', [(1, 3.5), (2, 3.0)]),
        ('"a\nb","epoch","loss"\n"x\ny","1","0.5"\n"x\ny","2","0.4"\n', [(1, 0.5), (2, 0.4)]),
        ('"a, b";loss\n1;0.5\n', [(None, 0.5)]),
        ('"loss"\n"0.5"\n', [(None, 0.5)]),
        ('step,loss,note\n1,0.5,5" and "6"\n2,0.4,"half', [(1, 0.5), (2, 0.4)]),
        ('"epoch","loss"\n"1","0.5"\n', [(1, 0.5)]),
        ("loss\n0.5\n", [(None, 0.5)]),
        ('{"loss": NaN}\n', [(None, float("nan"))]),
        ("", []),
        ("\0\1\2", []),
    ],
)
def test_forms_of_files(log: Path, content: str, read: Found) -> None:
    source = source_of(log)
    log.write_text(content, encoding="utf-8")
    assert repr(news(source) + last(source)) == repr(read)


def test_names_inside_of_objects(log: Path) -> None:
    source = source_of(log, "eval.loss", "at.step")
    append(log, '{"eval": {"loss": 0.5}, "at": {"step": 3}}\n')
    assert news(source) == [(3, 0.5)]


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (lambda log: None, "no file "),
        (lambda log: log.with_name("log.json").touch(), 'did you mean "'),
        (lambda log: log.touch(), "has no row"),
        (lambda log: log.mkdir(), "is a folder"),
        (
            lambda log: log.write_text('{"eval_loss": 1, "a": 2}\n'),
            'with "eval_loss", "a": "loss" is not among them; did you mean "eval_loss"?',
        ),
        (lambda log: log.write_text('{"loss": null}\n'), '"loss" has no value in any of them'),
        (lambda log: log.write_text('{"loss": "high"}\n'), 'names "loss", but its value is a text'),
        (lambda log: log.write_text("step,loss\n1,high\n"), "its value is a text"),
        (lambda log: log.write_text('{"loss": 1, "step": 1}\n{"loss": 1, "step": 1.5}\n'), None),
        (lambda log: log.write_text("{\n"), "not a whole JSON document"),
        (lambda log: log.write_text('{"a": {"b": 1}}\n{x}\n'), '"a.b"'),
        (lambda log: log.write_text("step,losss,Loss\n1,2,3\n"), 'did you mean "Loss"?'),
        (
            lambda log: log.write_text("# run 1\n1,2\n"),
            'no header that names "loss": its first line is "1,2"',
        ),
    ],
)
def test_near_misses_say_what_is_there(log: Path, write: Callable[[Path], object], told: str | None) -> None:
    source = source_of(log)
    write(log)
    read = news(source) + last(source)
    if told is None:
        assert read == [(1, 1.0)] and 'its "step" is 1.5, not a whole number' in source.unusable[0]
        return
    assert read == []
    assert told in source.near_misses[0]


def test_a_step_column_can_be_named(log: Path) -> None:
    source = source_of(log, step="at")
    append(log, '{"loss": 1, "step": 1, "at": 10}\n{"loss": 2, "step": 2}\n')
    assert news(source) == [(10, 1.0), (None, 2.0)]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('step,loss,note\n1,0.5,"never\n2,0.4,closed\n', r'where quotes are not closed, "1,0.5,"never 2,0.4'),
        ('step,loss,note\n1,0.5,"never\n' + "2,0.4,closed\n" * 20_000, "not closed within 128 KiB"),
    ],
)
def test_quotes_that_stay_open_fail_the_trial(tmp_path: Path, content: str, told: str) -> None:
    """What is behind them may be rows, or may not."""
    source = source_of(tmp_path / "log.csv")
    (tmp_path / "log.csv").write_text(content)
    with pytest.raises(ScriptError, match=told):
        last(source)


def test_a_table_that_was_there_before_keeps_the_header_behind_its_comments(tmp_path: Path) -> None:
    table = tmp_path / "log.csv"
    table.write_text('# run 1\nstep,"lo\nss",loss\n1,"2\n\n3",0.1\n2,"')
    source = source_of(table)
    append(table, "3,5,0.2\n")
    assert news(source) == [(3, 0.2)]


ROW = st.fixed_dictionaries(
    {"loss": st.floats(allow_nan=False)}, optional={"step": st.integers(0, 9), "x": st.text()}
)


@settings(max_examples=50)
@given(st.lists(ROW, max_size=12), st.data())
def test_rows_are_the_same_however_a_file_grows(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    reader = Rows()
    read = [
        row for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True) for row in reader.feed(text[a:b])
    ]
    assert read + reader.feed(b"", ended=True) == rows


CELL = st.text(st.sampled_from('ab1,"\n#'), max_size=6)


@settings(max_examples=100)
@given(st.lists(st.lists(CELL, min_size=2, max_size=2), max_size=6), st.data())
def test_cells_are_those_of_the_csv_module_however_a_table_grows(
    cells: list[list[str]], data: st.DataObject
) -> None:
    written = io.StringIO(newline="")
    writer = csv.writer(written, quoting=data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])))
    writer.writerows([["step", "loss"], *cells])
    text = written.getvalue().encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    reader = Rows()
    read = [
        row for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True) for row in reader.feed(text[a:b])
    ]
    stripped = [{"step": step.strip(), "loss": loss.strip()} for step, loss in cells]
    assert read + reader.feed(b"", ended=True) == stripped
    assert (reader.fault, reader.damage) == (None, None)


@given(st.binary(max_size=200), st.lists(st.binary(max_size=50), max_size=4))
def test_no_content_is_too_strange(first: bytes, others: list[bytes]) -> None:
    reader = Rows()
    reader.skip(first, len(first))
    for piece in [first, *others]:
        reader.feed(piece)
    reader.feed(b"", ended=True)


def test_a_followed_file_costs_nothing_while_it_rests(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, rows(1))
    file = FollowedFile(log)
    append(log, rows(2))
    assert [part.content for part in file.news()] == [rows(2).encode()]
    assert list(file.news()) == []
    monkeypatch.setattr(os, "pread", None)
    assert list(file.news()) == []
    file.close()


def test_unusable_rows_are_told_once_with_their_count(log: Path) -> None:
    source = source_of(log)
    append(log, '{"loss": 1}\n{"loss": "high"}\n{"loss": "higher"}\n')
    assert news(source) == [(None, 1.0)]
    append(log, '{"loss": "highest"}\n')
    assert news(source) == []
    (told,) = source.unusable
    assert told == (
        f'3 rows of {log} name "loss", but cannot be used: in row 2, the first, its value is a text'
    )


def test_a_rewritten_file_has_its_unusable_rows_once(log: Path) -> None:
    source = source_of(log)
    for last_one in range(3):
        log.write_text(json.dumps([{"loss": "high"}, *({"loss": n} for n in range(last_one + 1))]))
        news(source)
    (told,) = source.unusable
    assert told.startswith(f'row 1 of {log} names "loss", but its value is a text')
