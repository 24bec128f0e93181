"""`hpsearch lr-find`: the curve, the range, and the file that gets it."""

from __future__ import annotations

import itertools
import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpsearch.objectives.range_test import Point, Proposal, RangeTest
from hpsearch.search.cli import main
from hpsearch.search.cli.chart import log_chart
from hpsearch.search.errors import SearchError
from hpsearch.search.preflight.lr_range import LrRangeResult, page, top_of, write_range
from hpsearch.spaces import load

from ...support.outputs import check_output

SPACE = """\
# a small one
version: 1
name: small
objective: pretrain
metric: val_loss
parameters:
  learning_rate: {min: 1e-5, max: 1e-1, log: true}   # too wide
  batch_size: [4, 8]
  lr_scheduler: cosine
  width: 8
  depth: 1
  heads: 2
  max_length: 16
  max_steps: 8
  eval_every: 4
  device: cpu
  train_file: text.txt
"""
Cli = Callable[..., tuple[int, str, str]]
QUICK = ("--min", "1e-4", "--max", "10", "--steps", "40")


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run `hpsearch lr-find` beside a small space: its exit code, its output, and its errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("text.txt").write_text("".join(f"{n} and {n * 7 % 101}\n" for n in range(400)))
    Path("small.yaml").write_text(SPACE)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hpsearch", "lr-find", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


def json_of(cli: Cli, *words: str) -> dict[str, object]:
    code, out, error = cli("small.yaml", *words, "--json")
    assert code == 0, error
    found: dict[str, object] = json.loads(out)
    check_output("lr-find", found)
    return found


def test_a_curve_and_a_range_are_shown(cli: Cli) -> None:
    code, out, _ = cli("small.yaml", *QUICK)
    assert code == 0
    assert all(len(line) <= 80 for line in out.splitlines() if "learning_rate:" not in line)
    for word in ("steepest", "valley", "minimum / 10", "range", "1e-3", "batch_size 4", "├"):
        assert word in out
    assert any(0x2800 < ord(letter) <= 0x28FF for letter in out)
    assert "for the space file: learning_rate: {min: " in out
    assert Path("small.yaml").read_text() == SPACE


def test_the_steps_go_from_min_to_max(cli: Cli) -> None:
    found = json_of(cli, "--min", "1e-4", "--max", "1e-2", "--steps", "24")
    points = found["points"]
    assert isinstance(points, list) and len(points) == 24
    assert points[0]["learning_rate"] == pytest.approx(1e-4)
    assert points[-1]["learning_rate"] == pytest.approx(1e-2)
    assert found["diverged"] is False
    assert "lr_scheduler" not in str(found["parameters"]), "the test has its own"


def test_the_range_is_written_and_nothing_else(cli: Cli) -> None:
    found = json_of(cli, *QUICK, "--write")["range"]
    assert isinstance(found, dict)
    before, after = SPACE.splitlines(), Path("small.yaml").read_text().splitlines()
    [(old, new)] = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
    assert new.endswith("}   # too wide") and new.startswith("  learning_rate: {min: ")
    written = load("small.yaml").parameters["learning_rate"]
    assert (written.min, written.max, written.log) == (found["min"], found["max"], True)  # type: ignore[union-attr]
    assert old != new


def test_the_range_of_a_short_test_is_one(cli: Cli) -> None:
    found = json_of(cli, "--min", "1e-2", "--max", "1.4e-2", "--steps", "30", "--write")["range"]
    assert found == {"min": 0.01, "max": 0.02, "log": True}


def test_a_range_goes_beside_a_preset(cli: Cli) -> None:
    text = SPACE.replace("metric:", "preset: quick\nmetric:")
    Path("small.yaml").write_text(
        text.replace("  learning_rate: {min: 1e-5, max: 1e-1, log: true}   # too wide\n", "")
    )
    code, _, error = cli("small.yaml", *QUICK, "--write")
    assert code == 0, error
    written = Path("small.yaml").read_text().splitlines()
    assert written[4] == "preset: quick" and written[-1].startswith("  learning_rate: {min: ")


def test_a_file_that_there_is_no_room_for_stays_whole(cli: Cli) -> None:
    Path("linked.yaml").symlink_to("small.yaml")
    Path("small.yaml").chmod(0o640)
    there = sorted(Path().iterdir())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(SearchError, match=r"cannot write linked\.yaml: "):
            write_range("linked.yaml", 1e-4, 1e-2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert Path("small.yaml").read_text() == SPACE and sorted(Path().iterdir()) == there
    write_range("linked.yaml", 1e-4, 1e-2)
    assert "learning_rate: {min: 1e-4, max: 1e-2, log: true}   # too wide" in Path("small.yaml").read_text()
    assert Path("linked.yaml").is_symlink() and Path("small.yaml").stat().st_mode & 0o777 == 0o640


def test_the_baseline_is_what_is_tested_and_stays_in_the_range(cli: Cli) -> None:
    Path("small.yaml").write_text(SPACE + "baseline: {batch_size: 8, learning_rate: 2.5e-5}\n")
    code, out, error = cli("small.yaml", *QUICK, "--write")
    assert code == 0 and "batch_size 8" in out
    assert "to hold the learning rate of the baseline" in error
    assert load("small.yaml").parameters["learning_rate"].min == 2e-5  # type: ignore[union-attr]


def test_a_prior_above_the_proposal_stays_in_the_range(cli: Cli) -> None:
    wide = "{min: 1e-5, max: 1e3, log: true, prior: {at: 450.0, confidence: low}}"
    Path("small.yaml").write_text(SPACE.replace("{min: 1e-5, max: 1e-1, log: true}", wide))
    found = json_of(cli, *QUICK)
    assert found["widened_for"] == ["prior"] and found["range"]["max"] == 500.0  # type: ignore[index]


def test_the_curve_as_a_page(cli: Cli) -> None:
    code, out, _ = cli("small.yaml", *QUICK, "--html", "curve.html")
    assert code == 0 and "wrote curve.html" in out
    html = Path("curve.html").read_text()
    assert "<title>learning rate range test of small</title>" in html
    assert "proposed range" in html and "Plotly.newPlot" in html
    assert "src=" not in html.partition("Plotly.newPlot")[2], "it needs no network"
    code, out, error = cli("small.yaml", *QUICK, "--html", "nowhere/curve.html", "--write")
    assert (code, out, error) == (
        1,
        "",
        "hpsearch: cannot write nowhere/curve.html: there is no folder nowhere\n",
    )
    assert Path("small.yaml").read_text() == SPACE, "it is told before the test, not after it"


@pytest.mark.parametrize(
    ("change", "words", "told"),
    [
        (
            ("pretrain", "mine.py:train"),
            (),
            "small.yaml:4:12 objective: lr-find trains the objectives of hpsearch's trainer",
        ),
        (
            ("pretrain", "{command: ['true']}"),
            (),
            "objective: lr-find trains the objectives of hpsearch's trainer",
        ),
        (
            ("", ""),
            ("--min", "1", "--max", "0.1"),
            "learning rate 1 must be above 0 and below the highest 0.1 (--min, --max)",
        ),
        (("", ""), ("--min", "0"), "learning rate 0 must be above 0 and below the highest 1 (--min, --max)"),
        (("", ""), ("--steps", "3"), "--steps"),
        (
            ("{min: 1e-5, max: 1e-1, log: true}", "{min: 0.0, max: 1.0, step: 0.1}"),
            ("--write",),
            "write it by hand",
        ),
        (("text.txt", "none.txt"), (), "none.txt"),
    ],
)
def test_what_cannot_be_is_one_message(
    cli: Cli, change: tuple[str, str], words: tuple[str, ...], told: str
) -> None:
    Path("mine.py").write_text("def train(trial):\n    return trial.params['learning_rate']\n")
    Path("small.yaml").write_text(SPACE.replace(*change, 1) if change[0] else SPACE)
    code, out, error = cli("small.yaml", *words)
    assert (code, out) == (2, "")
    assert told in error and "Traceback" not in error


def test_a_space_that_ships_is_not_written(cli: Cli) -> None:
    code, _, error = cli("pretrain", "--write")
    assert code == 2 and "ships with hpsearch and cannot be changed" in error


def test_no_fall_is_a_failure_and_writes_nothing(cli: Cli) -> None:
    code, _, error = cli("small.yaml", "--min", "1e-12", "--max", "1e-11", "--steps", "20", "--write")
    assert code == 1 and "the loss did not fall between 1e-12 and 1.0e-11" in error
    assert Path("small.yaml").read_text() == SPACE


# The drawings

LOSSES = [2.0, 2.0, 1.5, 1.0, 9.0]
POINTS = tuple(Point(step, 10.0 ** (step - 4), loss, loss) for step, loss in enumerate(LOSSES))
FOUND = LrRangeResult(
    "a <b>", {}, RangeTest(POINTS, True, Proposal(1e-3, 1e-3, 1e-2, 1e-4, 0.1)), (1e-4, 0.1), ()
)


def test_what_diverged_is_cut_off() -> None:
    assert top_of(FOUND) == 3.0


def test_the_curve_stands_where_its_numbers_say() -> None:
    lines = log_chart(
        [p.learning_rate for p in POINTS],
        LOSSES,
        top=3.0,
        width=48,
        height=8,
        marked=(1e-3, 0.1),
        label="range",
    )
    assert all(len(line) <= 48 for line in lines)
    assert (
        lines[0].startswith(" 3.000 ┤")
        and lines[4].startswith(" 2.000 ┤")
        and lines[7].startswith(" 1.000 ┤")
    )
    axis, words, bar = lines[8:]
    ticks = [place for place, letter in enumerate(axis) if letter == "┬"]
    assert ticks == [8, 18, 28, 37, 47] and "1e-4" in words and "1e0" in words
    assert (bar.index("├"), bar.index("┤")) == (18, 37) and " range " in bar
    flat = lines[3 if lines[3][8] != " " else 4]
    assert all(letter not in " \u2800" for letter in flat[8:18]), "level from 1e-4 to 1e-3"
    lowest = [place for place, letter in enumerate(lines[7]) if ord(letter) > 0x2800]
    assert min(lowest) > 30 and 37 in lowest, "lowest at 0.1"


def test_a_flat_curve_can_be_drawn() -> None:
    lines = log_chart([1e-3, 1e-2], [1.0, 1.0], top=1.0, width=40, height=4, marked=None, label="range")
    assert len(lines) == 6


def test_a_page_quotes_the_name() -> None:
    html = page(FOUND)
    assert "a &lt;b&gt;" in html.partition("<body>")[0]
    for trace, wanted in itertools.product(("loss of a step", "smoothed", "suggestions"), ("name",)):
        assert f'"{wanted}":"{trace}"' in html
