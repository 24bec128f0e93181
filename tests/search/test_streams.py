"""No encoding of the output ends a command: every one is run where its letters cannot be written."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.panel import Panel
from rich.text import Text
from ruamel.yaml import YAML
from typer.testing import CliRunner

from hpsearch.search import open_study, run
from hpsearch.search.cli.app import app, main
from hpsearch.search.cli.console import PlainConsole
from hpsearch.search.cli.progress import LineProgress
from hpsearch.search.cli.studies import _safe, csv_text
from hpsearch.search.streams import harmless, make_readable, never_refusing
from hpsearch.trainer.notices import say

from ..support.bench import HPSEARCH

OBJECTIVE = """
def train(trial):
    print("za\\u017c\\u00f3\\u0142\\u0107")
    if trial.number == 1:
        raise ValueError("\\u0142 is no number")
    for step in (1, 2, 3):
        trial.report(1 / step + trial.params["x"], step=step)
    return trial.params["x"]
"""
SPACE: dict[str, Any] = {
    "version": 1,
    "name": "łódź",
    "metric": "jakość",
    "parameters": {"x": {"min": 0.0, "max": 1.0}, "choice": ["gęś", "żółw", "🦆"]},
    "baseline": {"x": 0.5},
    "budget": {"trials": 6},
    "confirm": {"top": 0},
    "execution": {"workers": 1, "retries": 0},
}


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study whose every name has letters beyond Latin-1."""
    folder = tmp_path_factory.mktemp("ł")
    (folder / "ć.py").write_text(OBJECTIVE, encoding="utf-8")
    space = SPACE | {"objective": f"{folder}/ć.py:train"}
    (folder / "ś.yaml").write_text(json.dumps(space, ensure_ascii=False), encoding="utf-8")
    run(folder / "ś.yaml", storage=str(folder / "hpsearch.db"), watcher=LineProgress())
    assert "zażółć" in (folder / "runs" / "łódź" / "0" / "output.log").read_text(encoding="utf-8")
    return folder


COMMANDS = {
    "run": ["run ś.yaml --name łoś --trials 2", "run ń.yaml"],
    "validate": ["validate ś.yaml", "validate ć.py"],
    "schema": ["schema"],
    "objectives": ["objectives", "objectives lora", "objectives ł"],
    "init": ["init --from ć.py --output ż.yaml --force", "init ł", "init hf_lora --model ł"],
    "list": ["list", "list --json"],
    "show": ["show łódź", "show łódź --edges", "show łódź --json", "show łódź --trial 0", "show gęś"],
    "trials": ["trials łódź", "trials łódź --csv", "trials łódź --json", "trials gęś"],
    "best": ["best łódź", "best łódź --json"],
    "export": ["export łódź", "export łódź --format json", "export łódź --format flags", "export gęś"],
    "report": ["report łódź --format md", "report łódź -o ż.html --force", "report gęś"],
    "delete": ["delete gęś --yes"],
    "stop": ["stop łódź", "stop gęś"],
    "pause": ["pause łódź"],
    "resume": ["resume łódź"],
    "kill": ["kill łódź 0"],
    "retry": ["retry gęś"],
    "try": ["try łódź ł=ś"],
    "train": ["train ź.yaml"],
    "dashboard": ["dashboard --storage ł.db"],
    "copy": ["copy gęś --to ł.db"],
    "backup": ["backup ł.db --force", "backup /nowhere/ł.db"],
    "doctor": ["doctor gęś"],
    "generate": ["generate łódź --prompt ł"],
    "lr-find": ["lr-find ś.yaml"],
    "plan": ["plan gęś.yaml", "plan ś.yaml"],
    "serve": ["serve --host ł"],
    "login": ["login ł"],
    "submit": ["submit gęś.yaml"],
    "steer": ["steer ł"],
    "queue": ["queue ł"],
    "top": ["top ł"],
    "work": ["work ł gęś"],
    "mcp": ["mcp ł"],
    "agent-docs": ["agent-docs"],
}


TRAINING = ("run", "plan", "generate", "dashboard")  # or what takes as long to load


def test_every_command_is_run() -> None:
    names = {c.name or c.callback.__name__.replace("_", "-") for c in app.registered_commands if c.callback}
    assert names == set(COMMANDS)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, marks=pytest.mark.slow if name in TRAINING else ())
        for name, each in COMMANDS.items()
        for words in each
    ],
)
def test_no_command_ends_at_a_letter(
    subtests: pytest.Subtests, searched: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.chdir(searched)
    monkeypatch.setattr(sys, "argv", ["hpsearch", *words.split()])
    for encoding in ("ascii", "latin1", "cp437"):
        with subtests.test(encoding):
            printed = printed_by_main(monkeypatch, encoding)
            assert printed and b"Traceback" not in printed
            if "--csv" not in words and not words.startswith(("export", "schema", "report")):
                printed.decode(encoding)


def printed_by_main(monkeypatch: pytest.MonkeyPatch, encoding: str) -> bytes:
    """What the command line prints, where both streams have an encoding."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        try:
            main()
        except SystemExit as end:
            assert end.code in (None, 0, 1, 2)
        out.flush()
        err.flush()
    assert isinstance(out.buffer, io.BytesIO) and isinstance(err.buffer, io.BytesIO)
    return out.buffer.getvalue() + err.buffer.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {"PYTHONIOENCODING": "latin1"},
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0"},  # file names are ASCII too, as in a locale of few letters
    ],
)
def test_a_users_shell_shows_it_and_reads_what_is_exported(searched: Path, more: dict[str, str]) -> None:
    plain = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]} | more
    for command in ("show", "trials", "export"):
        words = [HPSEARCH, command, "łódź"]
        done = subprocess.run(words, cwd=searched, env=plain, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
    found = YAML(typ="safe", pure=True).load(done.stdout.decode("utf-8"))
    assert found["metric"] == "jakość" and found["parameters"]["choice"] in SPACE["parameters"]["choice"]


@pytest.mark.parametrize(
    ("encoding", "text", "told"),
    [
        ("utf-8", "łódź ▁█ 🦆", "łódź ▁█ 🦆"),
        ("latin1", "café łódź", r"café \u0142ód\u017a"),
        ("ascii", "café 🦆", r"caf\xe9 \U0001f986"),
        ("ascii", "│ ┤ └─┬ ▁▄█ …", "| + +-+ -## ."),
        ("utf-8", "\udce9", r"\udce9"),
    ],
)
def test_what_an_encoding_lacks_is_written_in_letters_that_it_has(
    encoding: str, text: str, told: str
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    never_refusing(stream)
    print(text, file=stream, end="", flush=True)
    assert isinstance(stream.buffer, io.BytesIO)
    assert stream.buffer.getvalue().decode(encoding) == told


def test_a_search_from_python_shows_its_progress_anywhere(
    searched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    run(searched / "ś.yaml", storage=str(tmp_path / "x.db"), budget={"trials": 2})
    out.flush()
    assert isinstance(out.buffer, io.BytesIO)
    assert rb"\u0142 is no number" in out.buffer.getvalue()


MOVES = "\x1b]0;pwn\x1b\\\x1b]52;c;aGk=\x07\x1b[2J\x9b1A\x7f\u202e\u2028\u200f\r"
PICTURES = "␛]0;pwn␛\\␛]52;c;aGk=␇␛[2J\ufffd1A␡\ufffd\ufffd\ufffd␍"


def test_what_a_terminal_would_obey_is_shown_as_a_picture_of_it() -> None:
    assert harmless(f"é {MOVES}\t\n") == f"é {PICTURES}\t\n"
    assert len(harmless(MOVES)) == len(MOVES), "columns stay"


@pytest.mark.parametrize("hides", ["\u200b", "\u2060", "\ufeff", "\u00ad", "\U000e0041"])
def test_what_a_terminal_would_not_show_is_shown(hides: str) -> None:
    assert harmless(f"a{hides}b") == "a\ufffdb"


@pytest.mark.parametrize("kept", ["हिन्\u200cदी", "👩\u200d👧", "é", "🏳️"])
def test_what_a_language_is_written_with_is_shown_as_it_is(kept: str) -> None:
    assert harmless(kept) == kept


@pytest.mark.parametrize("words", [["--x\u202e\u200b"], ["run", "--x\u202e\u200b"], ["x\u202e\u200b"]])
def test_wrong_words_of_a_command_are_quoted_as_they_move_no_terminal(words: list[str]) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "\u202e" not in done.output and "\u200b" not in done.output


def test_what_a_training_tells_of_files_moves_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"{MOVES}.txt: left out")
    told = capsys.readouterr().err
    assert told.removesuffix("\n").isprintable() and told.endswith(".txt: left out\n")


@pytest.mark.parametrize("shown", [MOVES, Text(MOVES, style="bold red"), Panel(MOVES)])
def test_of_what_a_console_prints_its_own_styles_alone_reach_the_terminal(shown: Any) -> None:
    stream = io.StringIO()
    PlainConsole(file=stream, force_terminal=True, width=100, _environ={}).print(shown)
    told = stream.getvalue()
    assert "␛]0;pwn␛" in told  # Rich itself leaves some out
    left = re.sub(r"\x1b\[[0-9;]*m", "", told)
    assert all(letter.isprintable() or letter == "\n" for letter in left)


def test_a_search_with_a_mischievous_objective_moves_no_terminal(tmp_path: Path) -> None:
    mischief = f"import sys\ndef train(trial):\n    print({MOVES!r})\n    raise ValueError({MOVES!r})\n"
    (tmp_path / "o.py").write_text(mischief)
    space = SPACE | {"name": "study", "objective": f"{tmp_path}/o.py:train"}
    space |= {"parameters": {"c": [MOVES, "x"]}, "budget": {"trials": 2}, "metric": "loss"}
    del space["baseline"]
    (tmp_path / "s.yaml").write_text(json.dumps(space))
    storage = f"--storage={tmp_path}/studies.db"
    for words in (
        *(["run", f"{tmp_path}/s.yaml", storage], ["run", f"{tmp_path}/s.yaml", storage, "--plain"]),
        *(
            ["show", "study", storage],
            ["show", "study", "--trial", "0", storage],
            ["trials", "study", storage],
        ),
        *(["validate", f"{tmp_path}/s.yaml"], ["list", storage]),
    ):
        done = CliRunner().invoke(app, words)
        assert "\x1b" not in done.output and "\x9b" not in done.output, words


def test_no_cell_of_a_csv_is_run_by_a_spreadsheet_or_obeyed_by_a_terminal() -> None:
    assert _safe(f"a {MOVES}") == f"a {PICTURES}"
    assert csv_text([], [MOVES]).endswith(f"params_{PICTURES}\n")
    cells = [_safe(cell) for cell in ("=1+1", "@x", "-x", "+1", "-0.5", "-inf", 3, "a=b", None)]
    assert cells == ["'=1+1", "'@x", "'-x", "+1", "-0.5", "-inf", 3, "a=b", None]
    full_width = "\uff1d1+1"  # a Japanese spreadsheet runs it
    assert [_safe(cell) for cell in (full_width, "\n=1")] == [f"'{full_width}", "'\n=1"]


@pytest.mark.parametrize("closed", ["stdout", "stdout, stderr", "stdin, stdout, stderr"])
def test_streams_that_were_closed_before_it_began_end_no_search(tmp_path: Path, closed: str) -> None:
    (tmp_path / "o.py").write_text(
        "import sys\ndef train(trial):\n    print(1)\n    print(2, file=sys.stderr)\n    return trial.params['x']\n"
    )
    space = SPACE | {"name": "study", "objective": f"{tmp_path}/o.py:train", "budget": {"trials": 2}}
    (tmp_path / "s.yaml").write_text(json.dumps(space, ensure_ascii=False), encoding="utf-8")
    descriptors = {"stdin": 0, "stdout": 1, "stderr": 2}
    closing = " ".join(f"{descriptors[name]}>&-" for name in closed.split(", "))
    for words in ("run s.yaml", "trials study", "show study"):
        command = f"{shlex.quote(str(HPSEARCH))} {words} {closing}"
        done = subprocess.run(["sh", "-c", command], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), (words, done.stderr)
    read = open_study("study", storage=str(tmp_path / "hpsearch.db"))
    assert [trial.state.name for trial in read.study.trials] == ["COMPLETE"] * 2


@pytest.mark.parametrize(
    ("told", "size"),
    [
        ({"COLUMNS": "0", "LINES": "0", "TERMINAL_WIDTH": "wide"}, {}),
        ({"COLUMNS": "-5", "LINES": ""}, {}),
        ({"COLUMNS": "9" * 5000}, {}),
        ({"COLUMNS": "1", "LINES": "1", "TERMINAL_WIDTH": "2"}, {"COLUMNS": "20", "LINES": "1", "TERMINAL_WIDTH": "20"}),
        ({"COLUMNS": "120", "LINES": "40"}, {"COLUMNS": "120", "LINES": "40"}),
        ({"COLUMNS": "999999999"}, {"COLUMNS": "100000"}),
    ],
)  # fmt: skip
def test_a_size_of_the_terminal_that_is_none_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, str], size: dict[str, str]
) -> None:
    monkeypatch.setattr("os.get_terminal_size", nowhere)
    environ = {"TERM": "xterm", **told}
    make_readable(environ)
    assert environ == {"TERM": "xterm", **size}


def nowhere(descriptor: int) -> os.terminal_size:
    raise OSError("Inappropriate ioctl for device")


@pytest.mark.parametrize(("columns", "width"), [(0, 80), (1, 20), (19, 20), (20, 20), (200, 200)])
def test_what_a_terminal_is_too_narrow_for_is_not_drawn_anew(
    monkeypatch: pytest.MonkeyPatch, columns: int, width: int
) -> None:
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("os.get_terminal_size", lambda descriptor: os.terminal_size((columns, 24)))
    with open(os.devnull, "w") as file:
        console = PlainConsole(file=file, force_terminal=True)
        assert (console.width, console.redraws) == (width, columns >= 20)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--help", "Find the best training"),
        ("run", "name a space"),
        ("run --nothing s.yaml", "No such option"),
        ("objectives", "fine-tune low-rank adapters"),
    ],
)
def test_a_terminal_of_no_columns_is_told_what_any_other_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, told: str
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    monkeypatch.setattr(sys, "argv", ["hpsearch", *words.split()])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr()
    assert told in said.out + said.err
