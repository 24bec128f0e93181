"""Words from another terminal to a search that runs, and to a study that nobody searches."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from hpsearch.search.cli.commands import command as to_type

pytestmark = pytest.mark.slow

OBJECTIVES = Path(__file__).with_name("objectives.py")
TERMINAL = """\
import contextlib, io, json, sys
from hpsearch.search.cli import main
for line in sys.stdin:
    sys.argv, said = json.loads(line), io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main()
        code = 0
    except SystemExit as end:
        code = end.code
    print(json.dumps([code or 0, said.getvalue()]), flush=True)
"""


@pytest.fixture
def tell(bench: Any) -> Iterator[Callable[..., tuple[int, str]]]:
    """Another terminal: the exit code of a command there, and what it said.

    One process for all: starting takes longer than most commands.
    """
    terminal = subprocess.Popen(
        [sys.executable, "-c", TERMINAL],
        cwd=bench.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert terminal.stdin is not None and terminal.stdout is not None
    stdin, stdout = terminal.stdin, terminal.stdout

    def run(*words: str) -> tuple[int, str]:
        stdin.write(json.dumps(["hpsearch", *words, "--storage", bench.url]) + "\n")
        stdin.flush()
        code, said = json.loads(stdout.readline())
        return code, said

    yield run
    terminal.communicate()


def fields(bench: Any, function: str = "faulty", **more: Any) -> dict[str, Any]:
    constants = {"fault": "", "pause": 8.0, "folder": str(bench.folder)}
    return {
        "objective": f"{OBJECTIVES}:{function}",
        "parameters": {"x": {"min": 0.0, "max": 1.0}, **constants},
        "budget": {"trials": 3},
        "execution": {"workers": 2, "retries": 0},
    } | more


def living(bench: Any, number: int) -> bool:
    """Whether the process of a trial's last attempt lives."""
    pid = [n["pid"] for n in bench.notes(number) if "pid" in n][-1]
    return bool(psutil.pid_exists(pid))


def test_a_search_obeys_another_terminal(bench: Any, command: Any, tell: Any) -> None:
    search = command(**fields(bench))
    process = search.start()
    search.begun(0)
    search.begun(1)

    code, said = tell("kill", "study", "0")
    again = to_type("retry", "study", "0", "--storage", bench.url)
    assert (code, said) == (0, f"killed trial 0; to try it again: {again}\n")
    search.wait_for(lambda: bench.states()[0] == "FAIL")
    search.wait_for(lambda: not living(bench, 0))
    assert bench.trials()[0].user_attrs["reason"] == "killed by hpsearch kill"
    search.begun(2)

    code, said = tell("pause", "study")
    again = to_type("resume", "study", "--storage", bench.url)
    assert code == 0 and f"to resume it: {again}\n" in said
    search.wait_for(lambda: bench.states() == ["FAIL", "WAITING", "WAITING"])
    search.wait_for(lambda: not living(bench, 1) and not living(bench, 2))  # the machine is free
    assert process.poll() is None
    assert "paused" in tell("list")[1]
    code, said = tell("kill", "study", "0")
    assert (code, said) == (1, "hpsearch: trial 0 has ended already: it is fail\n")

    assert tell("resume", "study")[0] == 0
    assert tell("retry", "study", "0") == (0, "trial 0: the search tries again\n")
    search.wait_for(lambda: "RUNNING" in bench.states())
    assert tell("stop", "study")[0] == 0
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "paused; hpsearch resume continues the search" in output and "resumed" in output
    assert "stopped: asked by hpsearch stop" in output
    assert "RUNNING" not in bench.states()

    (bench.folder / "hurry").touch()
    bench.run(bench.make_spec(**fields(bench)), backend="optuna")
    for trial in bench.trials():
        assert trial.state.name == "COMPLETE"
        assert list(trial.intermediate_values) == list(range(1, 10))
        steps = [n["step"] for n in bench.notes(trial.number) if "step" in n]
        assert len(steps) <= 11, "no more than the step in the hands of a kill or a pause is done twice"


@pytest.mark.parametrize("backend_name", ["optuna"])
def test_a_study_without_a_running_search_takes_kills_and_retries(
    bench: Any, command: Any, tell: Any
) -> None:
    search = command(**fields(bench, "failing", budget={"trials": 5}, execution={"workers": 1, "retries": 0}))
    retry = "hpsearch retry study --failed"
    output, _ = search.start().communicate(timeout=120)
    assert bench.states() == ["FAIL", "FAIL", *["COMPLETE"] * 3], output
    assert "\n2 trials failed (0, 1): " in output and f"next:\n  {retry}\n" in output
    code, said = tell("show", "study")
    assert code == 0 and re.search(f"{retry} --storage .* +try those that failed again\n", said)
    for words, told in (
        (("retry", "study", "3"), "trial 3 is complete; only failed trials are tried again"),
        (("retry", "study", "9"), "has no trial 9"),
        (("kill", "study", "1"), "trial 1 has ended already: it is fail"),
        (("pause", "study"), 'no search of "study" is running'),
        (("resume", "study"), 'no search of "study" is running; hpsearch run continues the study'),
    ):
        code, said = tell(*words)
        assert code in (1, 2) and told in said, said
    assert tell("retry", "study")[0] == 2
    assert tell("retry", "study", "1", "--failed")[0] == 2
    assert tell("stop", "study") == (0, 'no search of "study" is running\n')

    (bench.folder / "mended").touch()
    code, said = tell("retry", "study", "--failed")
    told = "trials 0, 1: the next search of this study tries again: hpsearch run --study study --storage "
    assert code == 0 and said.startswith(told)
    assert bench.states()[:2] == ["WAITING", "WAITING"]
    assert tell("kill", "study", "1")[0] == 0
    assert bench.states()[:2] == ["WAITING", "FAIL"]
    output, _ = search.start().communicate(timeout=120)
    trials = bench.trials()
    assert [t.state.name for t in trials] == ["COMPLETE", "FAIL", *["COMPLETE"] * 3], output
    assert not trials[0].user_attrs.keys() & {"error", "reason", "traceback"}
    assert re.search(r"trial 0 +complete", output)
    began = "1 trial failed (1): killed by hpsearch kill; to try again, also while this search runs: hpsearch retry"
    assert began in output[: output.index("trial 0")]
