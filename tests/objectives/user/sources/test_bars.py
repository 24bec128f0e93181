"""Progress bars as tqdm, Keras, rich and Lightning write them: one report for each epoch, with its last value."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn
from tqdm import tqdm  # type: ignore[import-untyped]

from hpsearch.objectives.user.output import Chunk, Piece
from hpsearch.objectives.user.sources.lines import Reading
from hpsearch.objectives.user.sources.output import AutoSource, OutputSource
from hpsearch.objectives.user.sources.pattern import PatternSource

EPOCHS, BATCHES = 3, 4
Found = list[tuple[float, int | None]]


def value_of(epoch: int, batch: int = BATCHES - 1) -> float:
    return (90 - 20 * epoch - batch) / 100


LAST = [value_of(epoch) for epoch in range(EPOCHS)]
COUNTED: Found = [(value, None) for value in LAST]
NUMBERED: Found = [(value, epoch) for epoch, value in enumerate(LAST, 1)]


def bar(out: io.StringIO, *of: Any, **more: Any) -> Any:
    return tqdm(*of, file=out, mininterval=0, ascii=False, ncols=100, **more)


def batches(out: io.StringIO, label: str = "", **more: Any) -> None:
    """A bar for each epoch, whose value changes with each batch."""
    for epoch in range(EPOCHS):
        shown = bar(out, range(BATCHES), desc=label.format(epoch + 1), **more)
        for batch in shown:
            shown.set_postfix(loss=1.0, val_loss=value_of(epoch, batch))


def batches_with_messages(out: io.StringIO) -> None:
    for epoch in range(EPOCHS):
        shown = bar(out, range(BATCHES))
        for batch in shown:
            shown.set_postfix(val_loss=value_of(epoch, batch))
            tqdm.write("saving", file=out)


def epochs(out: io.StringIO, **more: Any) -> None:
    """One bar, whose value changes with each epoch, while it shows that of the one before."""
    shown = bar(out, range(EPOCHS), **more)
    for epoch in shown:
        shown.set_postfix(val_loss=value_of(epoch))


def epochs_by_hand(out: io.StringIO) -> None:
    with bar(out, total=EPOCHS, unit="epoch") as shown:
        for epoch in range(EPOCHS):
            shown.set_postfix(val_loss=value_of(epoch), refresh=False)
            shown.update()


def nested(out: io.StringIO, *, outer: bool) -> None:
    """A bar within a bar: tqdm goes down a line for the inner one, and up again."""
    over = bar(out, range(EPOCHS))
    for epoch in over:
        within = bar(out, range(BATCHES), leave=False)
        for batch in within:
            within.set_postfix({"loss" if outer else "val_loss": value_of(epoch, batch)})
        if outer:
            over.set_postfix(val_loss=value_of(epoch))


def rich_bars(out: io.StringIO) -> None:
    columns = (
        TextColumn("Epoch {task.description}"),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=Console(file=out, width=100)) as progress:
        for epoch in range(EPOCHS):
            task = progress.add_task(str(epoch + 1), total=BATCHES, text="")
            for batch in range(BATCHES):
                progress.update(task, advance=1, text=f"val_loss {value_of(epoch, batch)}")


def keras_bars(out: io.StringIO) -> None:
    """Recorded from Keras 3.15: colours, and backspaces before each carriage return."""
    for epoch in range(EPOCHS):
        out.write(f"Epoch {epoch + 1}/{EPOCHS}\n")
        for batch in range(BATCHES):
            out.write(
                f"\r\x1b[1m{batch + 1}/{BATCHES}\x1b[0m \x1b[32m{'━' * 5 * (batch + 1)}\x1b[0m\x1b[37m"
                f"{'━' * 5 * (BATCHES - batch - 1)}\x1b[0m \x1b[1m0s\x1b[0m 24ms/step - loss: 1.5"
                f" - val_loss: {value_of(epoch, batch)}" + "\b" * 52 * (batch < BATCHES - 1)
            )
        out.write("\n")


def lightning_bar(out: io.StringIO) -> None:
    """One bar for all epochs, which shows the value of the epoch before until the validation."""
    shown = bar(out, total=BATCHES, leave=True)
    for epoch in range(EPOCHS):
        shown.reset(BATCHES)
        shown.set_description(f"Epoch {epoch + 1}")
        for _ in range(BATCHES):
            shown.update()
        shown.set_postfix(v_num=0, val_loss=value_of(epoch))
    shown.close()


def plain(out: io.StringIO, text: str) -> None:
    """Lines that a program rewrites itself."""
    for epoch in range(EPOCHS):
        for batch in range(BATCHES):
            out.write(text.format(epoch=epoch + 1, batch=batch + 1, value=value_of(epoch, batch)))


BARS: dict[str, tuple[Callable[[io.StringIO], None], Found]] = {
    "tqdm, a bar for each epoch": (batches, COUNTED),
    "tqdm, with a message in each batch": (batches_with_messages, COUNTED),
    "tqdm, which erases its bars": (lambda out: batches(out, leave=False), COUNTED),
    "tqdm, which names the epoch": (lambda out: batches(out, "Epoch {}"), NUMBERED),
    "tqdm, which names the epoch and erases": (lambda out: batches(out, "Epoch {}", leave=False), NUMBERED),
    "tqdm over epochs": (lambda out: epochs(out, desc="Epochs"), COUNTED),
    "tqdm over epochs by its unit": (lambda out: epochs(out, unit="epoch"), COUNTED),
    "tqdm over epochs by hand": (epochs_by_hand, COUNTED),
    "tqdm over anything": (epochs, COUNTED[-1:]),
    "tqdm, the outer of two": (lambda out: nested(out, outer=True), COUNTED),
    "tqdm, the inner of two": (lambda out: nested(out, outer=False), COUNTED),
    "rich": (rich_bars, NUMBERED),
    "Keras": (keras_bars, COUNTED),
    "Lightning": (lightning_bar, NUMBERED),
    "a return before": (lambda out: plain(out, "\rEpoch {epoch} {batch}/4 val_loss {value}"), NUMBERED),
    "a return behind": (lambda out: plain(out, "epoch {epoch} {batch}/4 val_loss {value}\r"), NUMBERED),
    "a step within the epoch": (
        lambda out: plain(out, "\repoch {epoch} step {batch} val_loss {value}"),
        NUMBERED,
    ),
    "a step of many": (lambda out: plain(out, "\rstep {batch}/4 val_loss {value}"), COUNTED),
    "without a place": (lambda out: plain(out, "\rval_loss {value} epoch {epoch}"), NUMBERED),
    "Windows": (
        lambda out: out.writelines(f"epoch {at} val_loss {value}\r\n" for at, value in enumerate(LAST, 1)),
        NUMBERED,
    ),
}


def read(source: OutputSource, pieces: list[bytes]) -> Found:
    found = [
        report
        for piece in pieces
        for report in source.take(Piece([Chunk(piece, False, 1)], {False: 0.0, True: 0.0})).found
    ]
    return [(report.value, report.step) for report in (*found, *source.end().found)]


def text_of(name: str) -> bytes:
    BARS[name][0](out := io.StringIO())
    return out.getvalue().encode()


@pytest.mark.parametrize("name", BARS)
def test_a_bar_reports_once_for_each_epoch(name: str) -> None:
    source = AutoSource("val_loss", "output.log")
    assert read(source, [text_of(name)]) == BARS[name][1]
    assert (source.unusual is not None) == (name == "tqdm over anything")


def test_an_epoch_counts_as_soon_as_its_line_ends() -> None:
    source = AutoSource("loss", "output.log")

    def take(text: str) -> list[float]:
        found = source.take(Piece([Chunk(text.encode(), False, 1)], {False: 0.0, True: 0.0})).found
        return [report.value for report in found]

    assert take("Epoch 1/2\n\r1/2 - loss: 0.9\r2/2 - loss: 0.8") == []
    assert take("\nEpoch 2/2\n\r1/2 - loss: 0.7") == [], "the first one waits for JSON"
    assert take("\r2/2 - loss: 0.6\n") == [0.8, 0.6]
    assert take("\r1/2 - loss: 0.6\r\n") == [0.6], "epochs may have the same value"


@pytest.mark.parametrize("name", ["a return before", "tqdm, which names the epoch", "Lightning"])
def test_a_pattern_with_a_step_counts_the_last_value_of_each(name: str) -> None:
    source = PatternSource("val_loss", "output.log", r"(?i)epoch (?P<step>\d+).* val_loss\W(?P<value>[\d.]+)")
    assert read(source, [text_of(name)]) == NUMBERED


def test_a_pattern_without_a_step_counts_the_last_value_of_a_bar() -> None:
    source = PatternSource("val_loss", "output.log", r"val_loss\W+(?P<value>[\d.]+)")
    assert read(source, [text_of("Keras")]) == COUNTED


@given(st.sampled_from(sorted(BARS)), st.lists(st.integers(0, 1 << 12), max_size=8), st.booleans())
def test_a_bar_is_the_same_however_it_is_cut(name: str, cuts: list[int], by_pattern: bool) -> None:
    text = text_of(name)
    ends = sorted({cut % (len(text) + 1) for cut in cuts})
    pieces = [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]

    def source() -> OutputSource:
        if by_pattern:
            return PatternSource("val_loss", "", r"val_loss\W+(?P<value>[\d.]+)")
        return AutoSource("val_loss", "")

    assert read(source(), pieces) == read(source(), [text])


def test_a_long_bar_is_not_read_in_each_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of hours: thousands of writings of the same form, which differ in their numbers."""
    source, reads = AutoSource("val_loss", ""), list[str]()
    read_line = source._reader.read

    def reading(text: str) -> Reading | str | None:
        reads.append(text)
        return read_line(text)

    monkeypatch.setattr(source._reader, "read", reading)
    lines = [
        f"\rEpoch {n // 5000}: {n % 100:2d}%|##| {n % 5000:4d}/5000 [00:01, 5.0it/s, val_loss=0.{n:05d}]"
        for n in range(10_000)
    ]
    assert read(source, ["".join(lines).encode()]) == [(0.04999, 0), (0.09999, 1)]
    assert len(reads) < 100
