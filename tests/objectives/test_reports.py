"""Reports are found in what a script prints, whatever other text is around them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.objectives.reports import MAX_LINE_BYTES, LineSplitter, PrintedReport, ReportFinder, Writing


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b'{"step": 3, "loss": 0.5, "acc": 1}', PrintedReport(0.5, 3, {"acc": 1.0})),
        (b'{"step": 0, "loss": 1}', PrintedReport(1.0, 0, {})),
        (b'{"step": 1.0, "loss": 1}', PrintedReport(1.0, 1, {})),
        (b'{"step": null, "loss": 1}', PrintedReport(1.0, None, {})),
        (b'  {"loss": 1}', PrintedReport(1.0, None, {})),
        (b'{"loss": 1, "value": 2, "self": 3, "step": 4, "t": "x", "": 5}', PrintedReport(1.0, 4, {})),
        (
            b'{"loss": 1, "train/loss": 2, "grad-norm": 3, "metrics/mAP50-95(B)": 4}',
            PrintedReport(1.0, None, {"train/loss": 2.0, "grad-norm": 3.0, "metrics/mAP50-95(B)": 4.0}),
        ),
        (b'###{"step": 2, "loss": 0.5}', PrintedReport(0.5, 2, {})),
        (b'INFO {eval}: {"a": {"b": {}}} {"step": 2, "loss": 0.5} 50%|##', PrintedReport(0.5, 2, {})),
        (b'{"step": 1, "value": 2, "hpsearch": "report", "acc": 1}', PrintedReport(2.0, 1, {"acc": 1.0})),
        (b'\xff {"loss": 1, "\xff": 1}', PrintedReport(1.0, None, {"\ufffd": 1.0})),
    ],
)
def test_a_report_names_the_metric(line: bytes, found: PrintedReport) -> None:
    assert ReportFinder("loss").read(line) == [found]


@pytest.mark.parametrize(
    "line",
    [
        b'{"value": 1}',
        b'{"event": "memory_mb", "value": -812.5}',
        b'{"step": 1, "value": 2, "hpsearch": true}',
        b'{"other": 1}',
        b"{",
        b"[1]",
        b"loss: 1",
        b'{"a":' * 100_000,
        b"{" * 1_000_000,
    ],
)
def test_other_output_is_no_report(line: bytes) -> None:
    reports = ReportFinder("loss")
    assert reports.read(line) == []
    assert reports.unusable == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ('"loss": "high"', "it names loss, but its value is a text"),
        ('"loss": true', "its value is true, not a number"),
        ('"loss": null', "its value is null, not a number"),
        ('"loss": 1' + "0" * 400, "not a number"),
        ('"loss": 1, "step": "4"', "the step is '4'; it must be a whole number"),
        ('"loss": 1, "step": 1.5', "the step is 1.5"),
        ('"loss": 1, "step": -1', "the step is -1"),
        ('"loss": 1, "step": true', "the step is True"),
        ('"loss": 1, "step": 9223372036854775808', "from 0 to 2^63 - 1"),
        ('"Loss": 0.5', "not a JSON object with that key"),
        ('"loss": 0.5,', "not a JSON object with that key"),
        ('"log": {"loss": 1}', "not a JSON object with that key"),
        ("'loss': 0.5", "not a JSON object with that key"),
        ('"loss": 1, "step": NaN', "the step is nan"),
    ],
)
def test_unusable_reports_are_quoted_with_their_line(fields: str, said: str) -> None:
    reports = ReportFinder("loss")
    assert reports.read(f"{{{fields}}}".encode()) == []
    (told,) = reports.unusable
    assert said in told and fields[:20] in told


def test_a_number_that_is_none_is_a_report() -> None:
    (report,) = ReportFinder("loss").read(b'{"loss": NaN, "step": 1}')
    assert report.value != report.value


@pytest.mark.parametrize(
    "line",
    [
        "epoch 3 val_loss 0.4123",
        "{'val_loss': 0.5, 'epoch': 1.0}",
        "eval/loss: 0.5",
        '{"eval_loss": 0.5}',
        "valloss=0.5",
    ],
)
def test_near_misses_are_remembered(line: str) -> None:
    reports = ReportFinder("val_loss")
    for each in ("loading 3 files", line, "step 3 of 4", "done in 3 s"):
        assert reports.read(each.encode()) == []
    assert len(reports.near_misses) == 1 and f'"{line}"' in reports.near_misses[0]


def test_near_misses_with_a_number_come_first() -> None:
    reports = ReportFinder("val_loss")
    told = ["training, watching val_loss", "eval_loss: 0.5", '  "val_loss": 1.0,', "{'val_loss': 0.5}"]
    for line in ('{"config": {"metric": "val_loss", "lr": 0.1}}', "{'eval_val_loss': 0.5}"):
        assert reports.read(line.encode()) == []
        assert reports.unusable == [], "it names another metric, or gives it nothing"
    reports = ReportFinder("val_loss")
    for line in told:
        reports.read(line.encode())
        assert " ".join(line.split()) in reports.near_misses[-1], "the best so far"


@given(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"{}"]), max_size=30), st.integers(1, 5))
def test_lines_are_the_same_however_they_come(parts: list[bytes], size: int) -> None:
    text, lines = b"".join(parts), LineSplitter()
    found, number = [], 1
    for at in range(0, len(text), size):
        found += lines.numbered(piece := text[at : at + size], number)
        number += piece.count(b"\n")
    found += lines.end(number)
    expected = []
    for place, line in enumerate(text.split(b"\n"), 1):
        *before, last = line.split(b"\r")
        expected += [(each, place, Writing.REWRITTEN) for each in before if each]
        if last or before:
            expected.append((last, place, Writing.LAST if before else Writing.WHOLE))
    assert found == expected


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r"]), min_size=1, max_size=12), st.binary(max_size=2))
def test_the_lines_between_the_first_and_the_rest_can_be_passed_over(
    parts: list[bytes], first: bytes
) -> None:
    first = first.translate(bytes(b"\n\rab"[byte % 4] for byte in range(256)))
    whole, some = LineSplitter(), LineSplitter()
    whole.numbered(first, 1)
    some.numbered(first, 1)
    every = whole.numbered(b"".join(parts), 1)
    few, after = some.first_of(b"".join(parts), 1)
    assert few == every[: len(few)]
    number = 1 + parts.count(b"\n")
    passed = some.pass_over(after, number - after.count(b"\n"))
    ended = [line for line in passed if line[2] is Writing.LAST]
    assert ended == [line for line in every[len(few) :] if line[2] is Writing.LAST][: len(ended)]
    assert len(passed) - len(ended) == any(line[2] is Writing.REWRITTEN for line in passed)
    assert some.numbered(b"b\n", number) == whole.numbered(b"b\n", number)


@pytest.mark.parametrize("dots", [1 << 16, 40_000, MAX_LINE_BYTES + 1])
def test_the_end_of_an_endless_line_is_kept(dots: int) -> None:
    lines = LineSplitter()
    for _ in range(64):
        assert lines.numbered(b"." * dots, 1) == []
    assert sum(map(len, lines._rest)) < MAX_LINE_BYTES + dots
    (long, *_), (short, *_) = lines.numbered(b'{"loss": 2}\n{"loss": 1}\n', 1)
    assert long == b"." * (MAX_LINE_BYTES - 11) + b'{"loss": 2}'
    assert short == b'{"loss": 1}'
    assert lines.end() == []


def test_every_report_of_a_line_is_read() -> None:
    line = "".join(json.dumps({"step": step, "loss": 1}) for step in range(300))
    assert [report.step for report in ReportFinder("loss").read(line.encode())] == list(range(300))


@pytest.mark.parametrize("line", ["GATTACA" * 2340, "a" + " " * 16_000, "Loading   |" * 1490, "x_1." * 4000])
def test_a_long_line_that_is_no_report_is_looked_at_in_few_steps(line: str) -> None:
    """Its letters once or twice each: with the square of them, this would not end."""
    reports = ReportFinder("val_loss")
    for _ in range(1000):
        assert reports.read(line.encode()) == []
    assert reports.near_misses == []


@given(st.dictionaries(st.text(), st.floats() | st.integers() | st.text() | st.none() | st.lists(st.none())))
def test_any_json_that_a_script_prints_is_read(record: dict[str, Any]) -> None:
    found = ReportFinder("loss").read(json.dumps(record | {"loss": 0.5, "step": 3}).encode())
    assert [(report.value, report.step) for report in found] == [(0.5, 3)]
