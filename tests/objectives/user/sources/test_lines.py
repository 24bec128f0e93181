"""Values are read from lines as people print them, and never from a line that does not name the metric."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.objectives.user.sources.lines import LineReader, Reading, steps_in


@pytest.mark.parametrize(
    ("line", "value", "steps"),
    [
        ("epoch 3 val_loss 0.4123", 0.4123, {"epoch": 3}),
        ("val_loss=0.410", 0.41, {}),
        ("INFO:root:epoch=3 val_loss=1e-3.", 1e-3, {"epoch": 3}),
        ("Epoch 3/10 - loss: 0.52 - val_loss: 0.41", 0.41, {"epoch": 3}),
        ("391/391 - 2s - 5ms/step - loss: 0.4 - val_loss: 0.41", 0.41, {}),
        ("[Epoch 3/10] val_loss: tensor(0.41, device='cuda:0')", 0.41, {"epoch": 3}),
        (
            "2026-01-01 12:00:00,123 INFO global_step=300 epoch=3 val_loss .4",
            0.4,
            {"global_step": 300, "epoch": 3},
        ),
        ("epoch 1 step 50/391 val_loss 0.5", 0.5, {"epoch": 1, "step/": 50}),
        ("epoch 1,000: val_loss -0.5", -0.5, {"epoch": 1000}),
        ("epoch 0.5 val_loss 0.5", 0.5, {}),
        ("val_loss 0.41 epoch 3", 0.41, {"epoch": 3}),
        ("val_loss 0.4 best step 3", 0.4, {}),
        ("remaining steps: 5 val_loss 0.4", 0.4, {}),
        ("{best: {val_loss: 0.1, epoch: 2}, epoch: 3, val_loss: 0.4}", 0.4, {"epoch": 3}),
        ("epochs 10 val_loss 0.4", 0.4, {}),
        ("epochs: 3/10 val_loss 0.4", 0.4, {"epoch": 3}),
        ("step 1.000.500 val_loss 0.4", 0.4, {"step": 1_000_500}),
        ("epoch 1.500 val_loss 0.4", 0.4, {}),
        ("Epoch: 33% val_loss 0.4", 0.4, {}),
        ("params: 12M val_loss 12 lr 0.1", 12.0, {}),
        ("epoch 5 | best 0.28 | val_loss 0.41", 0.41, {"epoch": 5}),
        ("val_loss 91.2% (lr 3)", 91.2, {}),
        ("val_loss nan", math.nan, {}),
        ("│ val_loss │ 0.41 │", 0.41, {}),
        ('"val_loss": 0.4', 0.4, {}),
        ("{'val_loss': 0.5, 'epoch': 1.0}", 0.5, {"epoch": 1}),
        ("{'val_loss': '0.5123', 'epoch': '1'}", 0.5123, {"epoch": 1}),
        ("{'val_loss': nan, 'epoch': 0.53}", math.nan, {}),
        ("INFO {'val_loss': np.float64(0.41), 'step': 12} done", 0.41, {"step": 12}),
        ("{val_loss: 0.5, epoch: 3}", 0.5, {"epoch": 3}),
    ],
)
def test_a_value_is_read_with_its_step(line: str, value: float, steps: dict[str, int]) -> None:
    reading = LineReader("val_loss").read(line)
    assert isinstance(reading, Reading)
    assert repr(reading.value) == repr(value)
    assert reading.steps == steps
    assert not reading.progress


@pytest.mark.parametrize(
    "line",
    [
        *("best val_loss: 0.3", "min val_loss 0.3", "Final val_loss=0.3", "average val_loss 0.2"),
        *("Best epoch: 3, val_loss: 0.3", "Loaded checkpoint with val_loss 0.3", "(best: val_loss=0.3)"),
        *(
            "best_val_loss 0.3",
            "val_loss (best) 0.3",
            "val_loss improved from 0.5 to 0.41",
            "val_loss_ema 0.3",
        ),
        *("val_loss 0.41 -> 0.38", "val_loss 0.5s", "val_loss 3/10", "val_loss 1e-3x", "val_loss 1,234.5"),
        *("--val_loss 0.5", "saved epoch=3-val_loss=0.41.ckpt", "Val_Loss 0.4", "eval/val_loss 0.4"),
        *("val_loss=0.5 val_loss=0.4", "step 100: train loss 1.2, val loss 1.3", "loss 0.3", "val_loss"),
        *("best: {'val_loss': 0.3}", "Final: {'val_loss': 0.3, 'epoch': 3}", "config: {'val_loss': 0.3}"),
        *(
            "val_loss 1'234.5",
            "val_loss 1 234.5",
            "val_loss 4\u00d710^-1",
            "val_loss 4*10^-1",
            "val_loss 1.#QNAN",
        ),
        *("val_loss 2024-01-01 0.4", "val_loss 12:30:05 0.4", "val_loss 1.#INF", "saved val_loss=0.30.ckpt"),
        *(
            "val_loss: 3 epochs without improvement",
            "val_loss 5 times worse",
            "val_loss: 3 ms",
            "worst val_loss 0.9",
        ),
        *(
            "patience val_loss 5",
            "early stopping on val_loss 3",
            "top-3 val_loss 0.3",
            "weight of val_loss = 0.5",
        ),
        *(
            "Namespace(val_loss=0.3, a=1)",
            "Config(val_loss=1, lr=2)",
            "+ python train.py val_loss=0.5",
            "--metric val_loss 5",
        ),
        *("{'m': {'val_loss': 0.5}}", "{'val_loss': None}", "{'val_loss': True}", "val_loss - 0.5"),
        *('{"ok": true, "best": {"val_loss": 0.5}}', "{'best': {'val_loss': 0.5},", "{a: {val_loss: 0.5}}"),
    ],
)
def test_another_quantity_is_not_read(line: str) -> None:
    assert not isinstance(LineReader("val_loss").read(line), Reading)


def test_a_name_that_goes_on_is_another(subtests: pytest.Subtests) -> None:
    for line, value in {"mAP@0.5:0.95 0.3": None, "mAP@0.5: 0.3": 0.3, "mAP@0.5 0.3": 0.3}.items():
        with subtests.test(line):
            reading = LineReader("mAP@0.5").read(line)
            assert (reading.value if isinstance(reading, Reading) else None) == value


def test_a_value_with_its_mean_is_two(subtests: pytest.Subtests) -> None:
    """As the program of PyTorch's examples for ImageNet prints them, and timm."""
    for line in (
        "Epoch: [0][ 1/10]\tLoss 6.9e+00 (6.91e+00)",
        "Test: [10/10]  Loss:   5.0 ( 5.05)  Time: 0.1",
    ):
        with subtests.test(line):
            assert "has two values" in str(LineReader("Loss").read(line))
    for line in (" * Loss 5.05 Acc@1 11.3", "Loss 5.05 (0.3s)", "Loss 5.05 (3)", "Loss 5.05 (best 4.9)"):
        with subtests.test(line):
            assert isinstance(LineReader("Loss").read(line), Reading)


def test_the_numbers_of_a_dictionary_are_metrics() -> None:
    reading = LineReader("eval_loss").read(
        "{'eval_loss': 0.5, 'eval_runtime': '1.2', 'name': 'a', 'epoch': 1.0}"
    )
    assert isinstance(reading, Reading)
    assert reading.metrics == {"eval_runtime": 1.2, "epoch": 1.0}


def test_a_loss_of_training_is_not_the_loss() -> None:
    for line in ("train loss 1.2", "Eval: loss=0.3", "Test set: Average loss: 0.05, Accuracy: 98/100"):
        assert isinstance(LineReader("loss").read(line), str), "told as a near miss"
    assert isinstance(LineReader("Loss").read("Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.3"), Reading)


def test_a_table_names_the_metric_once() -> None:
    reader = LineReader("val_loss")
    lines = [
        "| epoch | train_loss | val_loss |",
        "|-------|------------|----------|",
        "|   1   |    0.9     |   0.8    |",
        "|   2   |    0.7     |          |",
        "|   3   |    0.5     |   0.6    |",
        "saving",
        "| layer |   size     |   bits   |",
        "|  fc1  |    12      |    32    |",
        "|   4   |    0.5     |   0.4    |",
    ]
    read = [reader.read(line) for line in lines]
    assert [each.value if isinstance(each, Reading) else None for each in read] == [
        None,
        None,
        0.8,
        None,
        0.6,
        None,
        None,
        None,
        0.4,
    ]
    assert isinstance(read[2], Reading)
    assert read[2].metrics == {"epoch": 1.0, "train_loss": 0.9} and read[2].steps == {"epoch": 1}


@pytest.mark.parametrize(
    "lines",
    [
        "epoch     train_loss  valid_loss  accuracy  time    \n0         0.5         0.4         #na#      00:03   ",
        "epoch,train_loss,valid_loss\n0,0.5,0.4",
        "Epoch\tvalid_loss\tTrain Loss\n0\t0.4\tnan",
    ],
)
def test_a_table_without_bars_has_a_column_of_steps(lines: str) -> None:
    reader = LineReader("valid_loss")
    header, row = lines.split("\n")
    for line in ("loss valid_loss", "1 2", header, "3 files of 2 kinds", "saved 0.5 1.5", "a,0.5,0.3"):
        assert reader.read(line) is None
    read = reader.read(row)
    assert isinstance(read, Reading) and (read.value, read.steps) == (0.4, {"epoch": 0})


def test_a_table_without_steps_ends_at_another_line() -> None:
    reader = LineReader("loss")
    read = [reader.read(line) for line in ("| lr | loss |", "| 0.1 | 0.5 |", "x", "| 0.2 | 0.4 |")]
    assert [isinstance(each, Reading) for each in read] == [False, True, False, False]


def test_a_progress_bar_is_one() -> None:
    reading = LineReader("val_loss").read(
        "Epoch 3: 100%|███| 10/10 [00:00<00:00, 50.1it/s, v_num=0, train_loss=0.5, val_loss=0.41]"
    )
    assert isinstance(reading, Reading)
    assert (reading.value, reading.steps, reading.progress) == (0.41, {"epoch": 3}, True)


@given(st.text() | st.text(alphabet="val_loss:=|{}'\" 0.5e+-,()[]"))
def test_no_text_is_too_strange(text: str) -> None:
    for line in (
        text,
        f"val_loss {text}",
        f"{text} val_loss 0.5",
        f"{{'val_loss': {text}}}",
        f"| val_loss | {text} |",
    ):
        reader = LineReader("val_loss")
        reader.read(line)
        reader.read(text)
        steps_in(line, {})


@pytest.mark.parametrize(
    "part", ["val_loss ", "val_loss(", "{'val_loss': ", "best ", "|", "(", "epoch ", "1,234", "{", "[", " "]
)
def test_a_long_line_takes_few_steps(part: str) -> None:
    line = f"val_loss x {part * 8192}"[:8192]
    begun = time.process_time()
    LineReader("val_loss").read(line)
    assert time.process_time() - begun < 2, "a search with the square of its letters takes minutes"
