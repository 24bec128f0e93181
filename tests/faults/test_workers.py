"""A worker that dies, hangs or runs wild: its trial says so and goes on from its checkpoint, and the search goes on.

Who starts a worker, on this backend or that, hears of its end by the same class (`process.Worker`); on Ray too
are those of whose end an actor passes something on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from hpsearch.search.backends.worker import process
from hpsearch.search.errors import SearchError
from hpsearch.search.trials.events import events_of
from hpsearch.search.trials.reports import read_reports
from hpsearch.storage import files

from ..support.bench import HPSEARCH

OBJECTIVES = Path(__file__).with_name("objectives.py")
MEMORY = 192 << 20  # bytes for a worker in a control group: it loads no torch


def faulty(bench: Any, fault: str, function: str = "faulty", **execution: Any) -> Any:
    fields: dict[str, Any] = {"fault": fault, "pause": 0.01, "folder": str(bench.folder)}
    return bench.make_spec(
        objective=f"{OBJECTIVES}:{function}",
        parameters={"x": {"min": 0.0, "max": 1.0}, **fields},
        budget={"trials": 3},
        execution={"workers": 2, "retries": 1, **execution},
    )


def went_on_from_its_checkpoint(bench: Any) -> None:
    """Trial 1 was tried twice, the second time from its fourth step, and all trials have all reports once."""
    trials = bench.trials()
    assert [t.state.name for t in trials] == ["COMPLETE"] * 3
    assert all(list(t.intermediate_values) == list(range(1, 10)) for t in trials)
    begins = [n["begins"] for n in bench.notes(1) if "begins" in n]
    assert begins == [0, 4]
    steps = [n["step"] for n in bench.notes(1) if "step" in n]
    assert steps == list(range(1, 10)), "nothing is trained twice"
    assert trials[1].user_attrs["retries"] == 1


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("SIGKILL", "the worker process was killed by SIGKILL"),
        pytest.param("segfault", "the worker process was killed by SIGSEGV", marks=pytest.mark.any_backend),
        pytest.param(
            "_exit",
            "the worker process exited with code 0 in the middle of the trial",
            marks=pytest.mark.any_backend,
        ),
        pytest.param("exit", "SystemExit: 0", marks=pytest.mark.any_backend),
        ("exception", "ValueError: bad luck"),
    ],
)
def test_a_trial_whose_worker_ends_goes_on_from_its_checkpoint(bench: Any, fault: str, said: str) -> None:
    bench.search(faulty(bench, fault))
    went_on_from_its_checkpoint(bench)
    assert bench.trials()[1].user_attrs["error"].startswith(said)


@pytest.mark.any_backend
def test_a_frozen_worker_is_noticed_by_its_silence(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "SILENCE_SECONDS", 20.0)  # it gives a sign every five
    bench.search(faulty(bench, "SIGSTOP"))
    went_on_from_its_checkpoint(bench)
    assert bench.trials()[1].user_attrs["error"] == "the worker process gave no sign of life for 20 s"


@pytest.mark.any_backend
def test_a_trial_that_hangs_ends_at_its_timeout(bench: Any) -> None:
    bench.search(faulty(bench, "hang", trial_timeout="10s"))  # the start of its worker is part of it
    went_on_from_its_checkpoint(bench)
    assert bench.trials()[1].user_attrs["error"] == "the trial ran longer than 10 s"


@pytest.mark.any_backend
def test_a_trial_that_takes_too_much_memory_ends_and_the_search_goes_on(bench: Any) -> None:
    bench.search(faulty(bench, "memory", max_memory="400MiB"))
    trials = bench.trials()
    assert [t.state.name for t in trials] == ["COMPLETE", "PRUNED", "COMPLETE"]
    assert trials[1].user_attrs["reason"].startswith("out of memory: the trial took")


@pytest.mark.any_backend
def test_a_worker_that_the_kernel_kills_for_memory_is_tried_again(bench: Any, make_group: Any) -> None:
    spec = faulty(bench, "oom killer", "confined")
    bench.search(spec.override(parameters={"group": str(make_group(MEMORY))}))
    went_on_from_its_checkpoint(bench)
    error = bench.trials()[1].user_attrs["error"]
    assert error == "the worker process was killed by SIGKILL; the machine may have run out of memory"


ENDLESS_COMPILER = """\
#!/bin/sh
case "$*" in *--version*) exec c++ --version;; esac
sleep 600 &
echo $$ $! > {begun}.part
mv {begun}.part {begun}
wait
"""


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_worker_that_is_killed_while_it_compiles_takes_its_compiler_along(
    bench: Any, recorder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, compiler = tmp_path / "begun", tmp_path / "compiler"
    compiler.write_text(ENDLESS_COMPILER.format(begun=begun))
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    below: list[list[str]] = []

    def kill(driver: Any) -> None:
        if begun.exists() and not below:
            [worker] = [p for p in psutil.Process().children() if str(compiler) in commands_below(p)]
            below.append(commands_below(worker))
            worker.kill()

    spec = bench.make_spec(
        objective="lora",
        metric="val_loss",
        parameters={"lora_r": [2, 4], "torch_compile": True, "max_samples": 40, "max_length": 16},
        budget={"trials": 1},
    )
    bench.search(spec, watcher=recorder(at_tick=kill))
    reason = bench.trials()[0].user_attrs["reason"]
    assert reason.startswith("the worker process was killed by SIGKILL")
    assert below == [[str(compiler), "sleep"]]
    assert all(gone(int(pid)) for pid in begun.read_text().split())


def commands_below(process: psutil.Process) -> list[str]:
    """What a process has started: scripts, or the names of programs."""
    lines = [child.cmdline() for child in process.children(recursive=True)]
    return [line[1] if line[0] == "/bin/sh" else line[0] for line in lines]


def gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.mark.any_backend
def test_a_trial_that_prints_without_end_does_not_fill_the_disk(bench: Any) -> None:
    bench.search(faulty(bench, "flood"))
    assert bench.states() == ["COMPLETE"] * 3
    output = bench.folder / "runs" / "study" / "1" / "output.log"
    assert output.stat().st_size <= files.LONGEST_OUTPUT, "64 MiB were printed"
    text = output.read_bytes()
    assert b"bytes are omitted here" in text and text.endswith(b"the last words\n")


@pytest.mark.any_backend
def test_a_checkpoint_that_a_kill_tore_is_not_the_one_that_is_gone_on_from(bench: Any) -> None:
    spec = faulty(bench, "", "torn", workers=1, retries=1)
    bench.search(spec.override(budget={"trials": 1}))
    (trial,) = bench.trials()
    assert trial.state.name == "COMPLETE"
    assert list(trial.intermediate_values) == list(range(1, 10))
    assert [n["begins"] for n in bench.notes(0)] == [0, 3]


def test_a_checkpoint_that_cannot_be_read_costs_its_trial_a_new_start_and_no_more(
    bench: Any, recorder: Any
) -> None:
    watcher = recorder()
    spec = faulty(bench, "", "forgetful", workers=1, retries=1)
    bench.search(spec.override(budget={"trials": 1}), watcher=watcher)
    (trial,) = bench.trials()
    assert trial.state.name == "COMPLETE"
    assert list(trial.intermediate_values) == list(range(1, 10))
    assert [n["begins"] for n in bench.notes(0)] == [False, True, False]
    assert any("could not go on from its checkpoint (ValueError" in said for said in watcher.said)
    (event,) = events_of(trial, "steps")
    assert event.startswith("could not go on from its checkpoint (ValueError")


def test_a_kill_between_a_checkpoint_and_its_report_loses_neither(bench: Any) -> None:
    bench.search(faulty(bench, "", "between"))
    trial = bench.trials()[1]
    assert trial.state.name == "COMPLETE" and trial.user_attrs["retries"] == 1
    assert list(trial.intermediate_values) == list(range(1, 10))
    assert [n["step"] for n in bench.notes(1)] == list(range(1, 10)), "from the fourth report on"


@pytest.mark.any_backend
def test_workers_that_all_die_alike_end_the_search_with_the_cause(bench: Any) -> None:
    spec = faulty(bench, "", "alike", workers=1).override(budget={"trials": 200})
    with pytest.raises(SearchError, match=r"first 3 trials all failed the same way: the worker .* SIGKILL"):
        bench.search(spec)
    assert bench.states() == ["FAIL"] * 3


@pytest.mark.any_backend
@pytest.mark.parametrize("program", ["/nowhere/python", __file__])
def test_a_worker_that_cannot_be_started_ends_the_search_with_the_cause(
    bench: Any, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    why = "No such file or directory" if program != __file__ else "Permission denied"
    with pytest.raises(SearchError, match=f"no worker can be started: {program}: {why}"):
        bench.search(faulty(bench, ""))
    assert bench.states() == ["WAITING"]
    monkeypatch.undo()
    bench.search(faulty(bench, ""))
    assert bench.states() == ["COMPLETE"] * 3


@pytest.mark.any_backend
def test_what_a_trial_leaves_behind_ends_with_the_search_and_holds_no_output(
    bench: Any, recorder: Any
) -> None:
    mine = subprocess.Popen(["sleep", "600"])  # started before, and by whoever searches
    also: list[subprocess.Popen[bytes]] = []
    held: list[list[str]] = []

    def look(driver: Any) -> None:
        also.append(subprocess.Popen(["sleep", "600"]))
        for each in daemons():
            held.append([os.readlink(path) for path in Path(f"/proc/{each}/fd").iterdir()])

    def daemons() -> list[int]:
        return [n["daemon"] for number in range(3) for n in bench.notes(number)]

    ours = {os.readlink(f"/proc/self/fd/{descriptor}") for descriptor in (1, 2)}
    bench.search(faulty(bench, "", "haunted", workers=1), watcher=recorder(at_end=look))
    try:
        assert bench.states() == ["COMPLETE"] * 3 and len(daemons()) == 3
        assert all(gone(pid) for pid in daemons())
        assert len(held) >= 3 and not [links for links in held if ours & set(links)]
        assert [each.poll() for each in (mine, *also)] == [None] * 4, "what this process started stays"
    finally:
        for each in (mine, *also):
            each.kill()
            each.wait()


@pytest.mark.slow
@pytest.mark.parametrize("backend_name", ["optuna"])
@pytest.mark.parametrize("descriptors", [7, 12])
def test_a_shell_that_allows_few_open_files_is_told_so(bench: Any, command: Any, descriptors: int) -> None:
    command("descend")
    words = f"ulimit -n {descriptors}; exec {HPSEARCH} run space.yaml"
    done = subprocess.run(["sh", "-c", words], cwd=bench.folder, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert done.stderr.startswith("hpsearch: ") and done.stderr.count("\n") == 1
    assert "ulimit -n 4096" in done.stderr or "unable to open database file" in done.stderr


@pytest.mark.any_backend
def test_an_objectives_handlers_do_not_disturb_how_a_worker_leaves(
    bench: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    bench.search(faulty(bench, "", "nosy", workers=1))
    assert bench.states() == ["COMPLETE"] * 3
    captured = capfd.readouterr()
    assert "Traceback" not in captured.err + captured.out


@pytest.mark.any_backend
def test_no_timer_handler_or_blocked_signal_outlives_its_trial(bench: Any) -> None:
    bench.search(faulty(bench, "", "ticking", workers=1, retries=0))
    assert bench.states() == ["COMPLETE"] * 3
    notes = [note for number in range(3) for note in bench.notes(number)]
    assert len({note.pop("pid") for note in notes}) == 1, "in one worker"
    assert notes == [{"running": [], "blocked": [], "ours": []}] * 3


TICKING = """\
import os, signal, time
from hpsearch.search.backends.worker.server import TIMER_SIGNALS, with_own_signals

def raises(number, frame):
    raise KeyboardInterrupt

def objective(trial):
    signal.signal(signal.SIGALRM, raises)
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
    while True:
        sum(range(100))

before = [signal.getsignal(number) for number in signal.valid_signals()]
def load():
    signal.signal(signal.SIGCHLD, raises)  # as a module may
    return objective

run = with_own_signals(load)
for _ in range(100):
    try:
        run(None)
    except KeyboardInterrupt:
        pass
    assert not any(any(signal.getitimer(timer)) for timer in TIMER_SIGNALS)
    assert [signal.getsignal(number) for number in signal.valid_signals()] == before
    os.kill(os.getpid(), signal.SIGCHLD)  # nobody hears it
print("all is as before")
"""


def test_a_handler_that_raises_at_every_moment_is_put_back() -> None:
    done = subprocess.run([sys.executable, "-c", TICKING], capture_output=True, text=True, timeout=120)
    assert done.stdout == "all is as before\n", done.stderr


@pytest.mark.any_backend
def test_a_trial_may_close_its_streams(bench: Any) -> None:
    bench.search(faulty(bench, "", "closes", workers=1, retries=0).override(budget={"trials": 6}))
    assert bench.states() == ["COMPLETE"] * 6
    for number in range(6):
        output = bench.folder / "runs" / "study" / str(number) / "output.log"
        assert output.read_text() == f"trial {number} speaks\n"


@pytest.mark.any_backend
def test_a_trial_whose_output_has_no_place_fails_alone(bench: Any) -> None:
    bench.search(faulty(bench, "", "blocks", workers=1, retries=1))
    assert bench.states() == ["COMPLETE", "FAIL", "COMPLETE"]
    assert bench.trials()[1].user_attrs["reason"].startswith("IsADirectoryError: ")


@pytest.mark.parametrize("damage", [b"\0" * 100, b"garbage\n", b'{"step": "x"}\n[]\n', b'{"step": 5, "val'])
def test_a_damaged_record_of_reports_is_cut_where_the_damage_begins(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    good = b'{"step": 1, "value": 0.5, "loss": 1.0}\n{"step": 2, "value": NaN}\n'
    path.write_bytes(good + damage + b'{"step": 9, "value": 0.1}\n')
    found = read_reports(path, repair=True)
    assert [(r.step, r.metrics) for r in found] == [(1, {"loss": 1.0}), (2, {})]
    assert path.read_bytes() == good
