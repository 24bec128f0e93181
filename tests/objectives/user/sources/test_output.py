"""Reports in output: as JSON, in lines for people, or by a pattern; however the output comes."""

from __future__ import annotations

import gc
import json
import pprint
import random
import re
import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.objectives.base import ScriptError
from hpsearch.objectives.reports import PrintedReport
from hpsearch.objectives.user.output import Chunk, Piece
from hpsearch.objectives.user.sources import limit, output
from hpsearch.objectives.user.sources.base import Source
from hpsearch.objectives.user.sources.lines import LineReader
from hpsearch.objectives.user.sources.output import AutoSource
from hpsearch.objectives.user.sources.pattern import PatternSource

Found = list[tuple[float, int | None]]
SILENT = Piece((), {False: 0.6, True: 0.6})


def piece(text: str | bytes, *, is_error: bool = False, line: int = 1) -> Piece:
    content = text.encode() if isinstance(text, str) else text
    return Piece([Chunk(content, is_error, line)], {False: 0.0, True: 0.0})


def found(source: Source, *texts: str | bytes) -> Found:
    """The reports of a program that prints these texts."""
    reports: list[PrintedReport] = []
    for text in texts:
        reports += source.take(piece(text)).found
    reports += source.end().found
    return [(report.value, report.step) for report in reports]


def auto(*texts: str | bytes) -> Found:
    return found(AutoSource("val_loss", "its output"), *texts)


def test_lines_for_people_are_reports() -> None:
    source = AutoSource("val_loss", "its output")
    assert found(source, "epoch 1 val_loss 0.5\nloading\nepoch 2 val_loss 0.4\n") == [(0.5, 1), (0.4, 2)]
    assert source.origin == 'val_loss from lines such as "epoch 1 val_loss 0.5" of its output'
    assert auto("val_loss 0.5\nval_loss 0.4") == [(0.5, None), (0.4, None)]
    assert auto("[ Info: Epoch 1: val_loss = 0.5f0\nEpoch 2: val_loss = 5D-01\n") == [(0.5, 1), (0.5, 2)]
    assert auto('{"epoch": 1, "val_loss": "0.5"}\n') == [(0.5, None)]
    assert auto("\x1b[1mepoch 1\x1b[0m \x1b[32mval_loss\x1b[0m: \x1b[31m0.5\x1b[0m\n") == [(0.5, 1)]


@pytest.mark.parametrize("between", ["", "saving\n", "\n\n"])
def test_json_counts_alone_where_both_are_printed(between: str) -> None:
    lines = [
        f"epoch {epoch} val_loss 0.{epoch}\n{between}"
        + json.dumps({"step": 10 * epoch, "val_loss": epoch})
        + "\n"
        for epoch in (1, 2, 3)
    ]
    assert auto("".join(lines)) == auto(*lines) == [(1, 10), (2, 20), (3, 30)]
    backwards = json.dumps({"step": 1, "val_loss": 1}) + "\nepoch 1 val_loss 0.1\n"
    assert auto(backwards) == [(1, 1)]


def test_the_first_line_for_people_waits_for_json(monkeypatch: pytest.MonkeyPatch) -> None:
    source = AutoSource("val_loss", "its output")
    assert source.take(piece("epoch 1 val_loss 0.5\n")).found == []
    assert source.take(SILENT).found == [], "no time has passed"
    monkeypatch.setattr(output, "HOLD_SECONDS", 0.0)
    assert [report.value for report in source.take(SILENT).found] == [0.5]
    monkeypatch.setattr(output, "HOLD_SECONDS", 100.0)
    assert len(source.take(piece("epoch 2 val_loss 0.4\n")).found) == 1, "later ones do not wait"


def test_json_takes_over_from_lines_for_people() -> None:
    source = AutoSource("val_loss", "its output")
    text = 'epoch 1 val_loss 0.5\nepoch 2 val_loss 0.4\n{"val_loss": 0.3}\nepoch 3 val_loss 0.2\n'
    assert found(source, text) == [(0.5, 1), (0.4, 2), (0.3, 3)]
    assert source.unusual is not None and "as JSON" in source.unusual


def test_the_stream_of_the_first_line_counts() -> None:
    """A program that logs to standard error and prints the same."""
    source = AutoSource("val_loss", "its output")
    first = source.take(piece("val_loss 0.5\n", is_error=True)).found
    second = [
        report for text in ("val_loss 0.5\n", "val_loss 0.4\n") for report in source.take(piece(text)).found
    ]
    third = source.take(piece("val_loss 0.4\n", is_error=True)).found
    assert [report.value for report in (*first, *second, *third)] == [0.5, 0.4]
    assert source.origin is not None and source.origin.endswith("of its standard error")


def test_json_on_standard_error_is_a_line_like_others() -> None:
    source = AutoSource("val_loss", "its output")
    for step in (1, 2):
        source.take(piece(json.dumps({"val_loss": 9, "step": step}) + "\n", is_error=True))
        (report,) = source.take(piece(json.dumps({"val_loss": 1, "step": step}) + "\n")).found
        assert report.value == 1


def test_steps_that_begin_again_with_each_epoch_are_added_up() -> None:
    lines = [f"epoch {epoch} step {step} val_loss 0.5\n" for epoch in (1, 2, 3) for step in (10, 20)]
    assert [step for _, step in auto("".join(lines))] == [10, 20, 30, 40, 50, 60]
    within = [f"Epoch {epoch} step {step}/20 val_loss 0.5\n" for epoch in (1, 2) for step in (20,)]
    assert [step for _, step in auto("".join(within))] == [1, 2], "the epoch, which rises"


def test_steps_of_the_first_line_decide() -> None:
    """The Trainer evaluates twice per epoch: the first has no whole step, so all are counted."""
    lines = [f"{{'val_loss': 0.5, 'epoch': {epoch}}}\n" for epoch in (0.5, 1.0, 1.5)]
    assert [step for _, step in auto("".join(lines))] == [None] * 3


def test_steps_may_have_thousands_with_dots() -> None:
    def steps(*written: str, after: str = "") -> list[int | None]:
        return [step for _, step in auto("".join(f"step {each} val_loss 0.5{after}" for each in written))]

    for end in ("\n", "\r\n", "\r"):
        assert steps("500", "1.000", "1.500", "10.000", after=end) == [500, 1000, 1500, 10_000]
    assert steps("998.000", "999.000", "1000.000", "1.000", after="\n") == [998, 999, 1000, 1], "floats"
    assert steps("0.500", "1.000", "1.500", after="\n") == [None] * 3, "fractions, which are counted"
    source = AutoSource("val_loss", "output.log")
    assert found(source, "step 1.000 val_loss 0.5\nstep 1.500 val_loss 0.4\n") == [(0.5, 1)]
    assert source.unusable == [
        'line 2 of output.log names val_loss, but its step is "1.500", not a whole number: "step 1.500 val_loss 0.4"'
    ]


BAR = "Epoch {epoch}: {done}%|##| {done}/100 [00:01, 5.0it/s, val_loss={value}]\r"


def test_a_progress_bar_reports_each_value_once_with_its_epoch() -> None:
    """As Lightning's: until the validation of an epoch it shows the value of the one before."""
    shown, value = [], ""
    for epoch in range(3):
        for done in (0, 50, 100):
            shown.append(
                BAR.format(epoch=epoch, done=done, value=value) if value else f"Epoch {epoch}: {done}%|##|\r"
            )
        value = f"0.{9 - epoch}"
        shown.append(BAR.format(epoch=epoch, done=100, value=value))
    assert auto("".join(shown)) == [(0.9, 0), (0.8, 1), (0.7, 2)]
    without = [
        f"{done}%|##| {done}/100 [00:01, 5.0it/s, val_loss=0.{done // 10}]\n" for done in range(10, 100, 2)
    ]
    assert auto("".join(without)) == [(n / 10, None) for n in range(1, 10)]


def test_near_misses_have_their_places_and_counts() -> None:
    source = AutoSource("val_loss", "output.log")
    text = "hello\n" + "eval_loss: 0.5\n" * 14
    assert found(source, text) == []
    assert source.near_misses == [
        '14 lines look like reports of eval_loss; the space says val_loss (line 2 of output.log, "eval_loss: 0.5")'
    ]
    source.take(piece('{"val_loss": "high"}\n', line=16))
    assert source.near_misses == [
        'line 16 of output.log names val_loss, but its value is a text: "{"val_loss": "high"}"'
    ]
    source = AutoSource("val_loss", "output.log")
    assert found(source, "step 100: train loss 1.2, val loss 1.3") == []
    (told,) = source.near_misses
    assert "a report of val loss; the space says val_loss" in told
    source = AutoSource("val_loss", "output.log")
    assert found(source, "train_loss: 0.5\n" * 3 + "Val_Loss: 0.4\nbest val_loss") == []
    assert [told.split(";")[0] for told in source.near_misses] == [
        "a line looks like a report of Val_Loss",
        "3 lines look like reports of train_loss",
    ], "another spelling is likelier than another name"


@pytest.mark.parametrize(
    ("metric", "line", "told"),
    [
        ("valloss", "epoch 1 val_loss 0.1", "val_loss"),
        ("lss", "epoch 1 loss 0.1", "loss"),
        ("val_los", "epoch 1 val_loss 0.1", "val_loss"),
        ("val_loss", "epoch 1: validation loss: 0.1", "validation loss"),
        ("val_loss", "epoch 1: train loss: 0.2, validation loss: 0.1", "validation loss"),
        ("val_loss", "epoch 1: lr 0.1, test loss 0.2", "test loss"),
        ("loss", "epoch 1: lr 0.1, gpu 3", None),
    ],
)
def test_the_name_that_a_near_miss_proposes_is_one_that_can_be_read(
    metric: str, line: str, told: str | None
) -> None:
    source = AutoSource(metric, "output.log")
    assert found(source, line + "\n") == []
    if told is None:
        assert source.near_misses == []
        return
    assert f"looks like a report of {told}; the space says {metric} (" in source.near_misses[0]
    (value,) = found(AutoSource(told, "output.log"), line + "\n")
    assert value[0] in (0.1, 0.2)


def records() -> list[dict[str, Any]]:
    return [
        {
            "best": {"val_loss": 0.001},
            "step": step,
            "val_loss": step / 10,
            "note": "{",
            "ok": True,
            "more": None,
        }
        for step in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    "written",
    [
        lambda record: json.dumps(record, indent=2),
        lambda record: json.dumps(record, indent="\t", sort_keys=True),
        lambda record: "INFO:root:metrics: " + json.dumps(record, indent=4),
        lambda record: json.dumps([record], indent=2),
        lambda record: json.dumps(record, indent=2).replace("\n", "\r\n"),
        lambda record: pprint.pformat(record, width=30),
        lambda record: pprint.pformat({**record, "model": object(), "note": ""}, width=30),
        lambda record: re.sub('"(\\w+)":', r"\1:", json.dumps(record, indent=2)),
        lambda record: "metrics " + pprint.pformat(record, width=30, sort_dicts=False),
        str,
    ],
)
def test_an_object_over_several_lines_is_one_record(written: Any) -> None:
    text = "".join(f"training\n{written(record)}\n" for record in records())
    expected = [(step / 10, step) for step in (1, 2, 3)]
    assert auto(text) == auto(*text.splitlines(keepends=True)) == expected
    source = AutoSource("val_loss", "its output")
    source._finder._looked = 1 << 30  # lines without the metric's name are not looked at any more
    assert found(source, *text.splitlines(keepends=True)) == expected
    source = AutoSource("val_loss", "its output")
    source._finder._looked = 1 << 30
    assert found(source, '{\n"a": 1\n}\n', text) == expected, "one that does not matter was not kept"
    assert auto(text.rstrip("\n")) == expected, "the last line has not ended"


def test_of_an_object_that_is_too_long_no_value_is_taken() -> None:
    source = AutoSource("val_loss", "output.log")
    inner = [{"val_loss": 0.001, "note": "a" * 30}] * 300
    assert found(source, f"{{'val_loss': 0.5, 'earlier': {inner}}}\n") == []
    assert "its object is longer than 8,192 letters" in source.near_misses[0]


@pytest.mark.parametrize("begin", ["{\n", "if (x) {\n", '{\n"a": 1,\n', "{'a': 1,\n"])
def test_lines_behind_a_stray_brace_are_read_as_they_come(begin: str) -> None:
    source = AutoSource("val_loss", "output.log")
    source.take(piece(begin + "epoch 1 val_loss 0.5\n"))
    assert [report.value for report in source.take(piece("epoch 2 val_loss 0.4\n")).found] == [0.5, 0.4]
    assert auto(begin + '{"val_loss": 0.5}\n' * 2) == [(0.5, None)] * 2, "no object follows another in one"
    assert auto(begin + '"val_loss": 0.5') == [(0.5, None)], "the program has ended"


def phases(train: str, validation: str, *, epochs: int = 3) -> tuple[AutoSource, Found]:
    """The reports of a program that prints these lines in each epoch: 0.1 of training, 1 of validation."""
    source = AutoSource("loss", "output.log")
    lines = [
        written.replace("EPOCH", str(epoch)).replace("VALUE", str(value * epoch))
        for epoch in range(1, epochs + 1)
        for written, value in ((train, 0.125), (validation, 1))
    ]
    return source, found(source, *lines)


LINE, RECORD = "epoch EPOCH loss VALUE\n", '"epoch": EPOCH, "loss": VALUE}\n'


@pytest.mark.parametrize(
    ("train", "validation"),
    [
        (f"training: {LINE}", f"validation: {LINE}"),
        (f"2026-01-01 12:00:00,123 INFO [Train] {LINE}" * 3, f"2026-01-01 12:00:00,123 INFO [Val] {LINE}"),
        ("Epoch EPOCH | trn | acc 0.5, loss VALUE\n", "Epoch EPOCH | dev | acc 0.5, loss VALUE\n"),
        ("split=train epoch=EPOCH step=10 loss=VALUE\n", "split=test epoch=EPOCH loss=VALUE\n"),
        (
            "{'epoch': EPOCH, 'phase': 'train', 'loss': VALUE}\n",
            "{'epoch': EPOCH, 'phase': 'eval', 'loss': VALUE}\n",
        ),
        (f"Training {LINE}".replace("\n", "\r") * 2, f"Validation {LINE}".replace("\n", "\r")),
    ],
)
def test_validation_counts_alone_where_training_has_the_same_name(train: str, validation: str) -> None:
    source, reports = phases(train, validation)
    assert reports == [(1, 1), (2, 2), (3, 3)]
    assert dict(source.remarks())["phases"] == (
        "its lines that give loss of training are left out: others give it of validation"
    )


def test_validation_counts_alone_in_json() -> None:
    for train, validation in (
        ('{"split": "train", ' + RECORD, '{"split": "val", ' + RECORD),
        ("train: {" + RECORD, "valid: {" + RECORD),
    ):
        source, reports = phases(train, validation)
        assert reports == [(1, None), (2, None), (3, None)]
        assert "left out" in dict(source.remarks())["phases"]


def test_bars_of_training_are_left_out() -> None:
    bars = [f"\r{{}}: {10 * at}%|##| {at}/10 [00:01, 5.0it/s, loss=VALUE]" for at in (1, 5, 10)]
    train, validation = ("".join(bars).format(*[word] * 3) for word in ("Training", "Validation"))
    for end in ("", "\n"):
        source, reports = phases(train + end, validation + end)
        assert reports == [(1, None), (2, None), (3, None)]
        assert "left out" in dict(source.remarks())["phases"]


@pytest.mark.parametrize(
    ("line", "late"),
    [
        (f"training: {LINE}", "validation: epoch 4 loss 4\n"),
        ('{"split": "train", ' + RECORD, '{"split": "val", "epoch": 4, "loss": 4}\n'),
    ],
)
def test_training_counts_where_there_is_nothing_else(line: str, late: str) -> None:
    source = AutoSource("loss", "output.log")
    take = [
        [
            report.value
            for report in source.take(piece(line.replace("EPOCH", each).replace("VALUE", each))).found
        ]
        for each in "123"
    ]
    assert take == [[], [1, 2], [3]]
    assert "phases" not in dict(source.remarks())
    assert phases(line, "", epochs=1)[1][0][0] == 0.125, "at its end, too"
    with pytest.raises(ScriptError, match='it gives "loss" of training, and then of validation; say which'):
        source.take(piece(late))


def test_many_values_of_training_do_not_wait_for_ever() -> None:
    source = AutoSource("loss", "output.log")
    source.take(piece("".join(f"train epoch 1 step {step} loss 1\n" for step in range(101))))
    assert len(source.take(piece("train epoch 1 step 101 loss 1\n")).found) == 1


def test_a_line_is_of_a_phase_by_a_word_of_its_own(subtests: pytest.Subtests) -> None:
    reader = LineReader("loss")
    for line in (
        "train.py: loss 1",
        "trainer epoch 1 loss 1",
        "train_acc 1 loss 1",
        "train 1, val 2, loss 1",
    ):
        with subtests.test(line):
            assert reader.phase_in(line) is None
    assert LineReader("val_loss").phase_in("training: val_loss 1") is None, "the name says it"


@pytest.mark.parametrize(
    ("first", "second", "values", "left"),
    [
        ("epoch EPOCH loss VALUE\n", f"validation: {LINE}", (0.125, 0.25, 0.375), "of validation"),
        (f"validation: {LINE}", "epoch EPOCH loss VALUE\n", (0.125, 0.25, 0.375), "without saying of what"),
        (f"training: {LINE}", "epoch EPOCH loss VALUE\n", (1, 2, 3), "of training"),
    ],
)
def test_lines_that_do_not_say_of_what_count_alone(
    first: str, second: str, values: tuple[float, ...], left: str
) -> None:
    source, reports = phases(first, second)
    assert reports == [(value, epoch) for epoch, value in enumerate(values, 1)]
    told = dict(source.remarks())["phases"]
    assert told.startswith(f"its lines that give loss {left} are left out: others give it ")


def pattern(text: str, *, of: str = r"loss (?P<value>\S+)") -> Found:
    return found(PatternSource("val_loss", "its output", of), text)


def test_a_pattern_has_groups() -> None:
    source = PatternSource("loss", "its output", r"(?P<step>\d+): (?P<value>\S+) acc (?P<acc>\S+)")
    reports = source.take(piece("1: 0.5 acc 0.9\nx\n2: nan acc -\n3.5: 1\n")).found
    assert [(report.step, report.metrics) for report in reports] == [(1, {"acc": 0.9}), (2, {})]
    assert pattern("loss 0.5 loss 0.4\n\x1b[1mloss\x1b[0m 0.3") == [(0.5, None), (0.4, None), (0.3, None)]


def test_what_a_pattern_finds_must_be_a_number() -> None:
    source = PatternSource("loss", "its output", r"loss (?P<value>\S+)( at (?P<step>\S+))?")
    assert found(source, "loss high\nloss 0.5 at first\nloss 0.4 at 2\n") == [(0.4, 2)]
    assert (
        "its value is a text" in source.unusable[0]
        and "its step is 'first', not a whole number" in source.unusable[1]
    )


def test_only_the_end_of_a_long_line_is_searched() -> None:
    assert pattern("loss 1 " + "." * 100_000 + "loss 2") == [(2.0, None)]
    assert auto("." * 3_000_000 + " val_loss 2") == [(2.0, None)]


LINES = [
    *(
        "epoch 1 val_loss 0.5",
        "val_loss: 0.4",
        "{'val_loss': 0.3, 'epoch': 2}",
        "loss 0.2",
        '{"val_loss": 0.1}',
    ),
    *(
        "",
        "| epoch | val_loss |",
        "| 3 | 0.6 |",
        "best val_loss 0.1",
        "\x1b[1mval_loss\x1b[0m 0.7",
        "größe 1",
        "\udcff",
        *("{", '"val_loss": 0.2,', '"best": {"val_loss": 0.9}', "}"),
    ),
]


@given(
    st.lists(st.sampled_from(LINES), max_size=20),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(),
    st.booleans(),
)
def test_reports_are_the_same_however_the_output_is_cut(
    lines: list[str], end: str, seed: int, by: bool
) -> None:
    text = end.join(lines).encode("utf-8", "surrogateescape")
    rng = random.Random(seed)
    cuts = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(10)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    def source() -> Any:
        return (
            PatternSource("val_loss", "", r"val_loss\W+(?P<value>[0-9.]+)")
            if by
            else AutoSource("val_loss", "")
        )

    whole, cut = source(), source()
    assert found(whole, text) == found(cut, *pieces)
    assert whole.origin == cut.origin


def test_a_number_that_a_pattern_cuts_is_not_a_value(subtests: pytest.Subtests) -> None:
    for text in (
        "val_loss 0,4123",
        "val_loss 1,234.5",
        "val_loss 1'234.5",
        "val_loss 1_0",
        "val_loss 1.#INF",
    ):
        with subtests.test(text):
            source = PatternSource("val_loss", "its output", r"val_loss (?P<value>[0-9.eE+-]+)")
            assert found(source, text) == []
            assert "the pattern takes only" in source.unusable[0]
    assert pattern("val_loss 0.4, lr 1", of=r"val_loss (?P<value>[0-9.eE+-]+)") == [(0.4, None)]


@pytest.mark.parametrize("before", ["Best trial: ", "config: "])
def test_json_within_a_line_does_not_take_over_from_lines_for_people(before: str) -> None:
    later = before + json.dumps({"val_loss": 0.3, "step": 100}) + "\n"
    assert auto("epoch 1 val_loss 0.5\n", "epoch 2 val_loss 0.6\n", later) == [(0.5, 1), (0.6, 2)]


def test_a_pattern_that_searches_for_ever_ends_its_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "SEARCH_SECONDS", 0.05)
    before = signal.getsignal(signal.SIGPROF)
    source = PatternSource("val_loss", "output.log", r"(?:a|aa)+ val_loss (?P<value>\S+)")
    text = "aa val_loss 0.5\n\n" + "a" * 100
    assert [report.value for report in source.take(piece(text)).found] == [0.5]
    with pytest.raises(
        ScriptError, match=r"the pattern of report\.stdout took longer than .* s for a line"
    ) as told:
        source.take(piece("a\n", line=3))
    assert told.value.detail.startswith('line 3 of output.log: "aaaa')
    assert "output" not in told.value.message, "all trials that fail so fail alike"
    source = PatternSource("val_loss", "output.log", r"(?:a|aa)+ val_loss (?P<value>\S+)")
    source.take(piece("a" * 100))
    with pytest.raises(ScriptError):
        source.end()
    assert signal.getsignal(signal.SIGPROF) == before and signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_many_lines_may_take_longer_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "SEARCH_SECONDS", 0.05)
    source = PatternSource("val_loss", "its output", r".*val_loss (?P<value>\S+)")
    gc.disable()  # with all that the other tests have left, one collection may take longer than that
    try:
        assert len(found(source, "val_loss 0.5\n" * 60_000)) == 60_000
    finally:
        gc.enable()
