"""Scripts as objectives: real processes, started, read, stopped and cleaned up after."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from hpsearch.objectives import TrialStopped
from hpsearch.objectives.base import NothingReported, ObjectiveError, ScriptError
from hpsearch.objectives.user import command, output, writing
from hpsearch.objectives.user.command import CommandObjective
from hpsearch.objectives.user.macros import expand, flat

PARAMS: dict[str, Any] = {
    "learning_rate": 0.001,
    "name": "a b",
    "flag": True,
    "off": False,
    "layers": [1, 2],
    "none": None,
    "optimizer": {"momentum": 0.9},
}


class HandTrial:
    """A trial as a backend makes it, without a search behind it."""

    number = 3
    seed = 7

    def __init__(self, folder: Path, params: dict[str, Any], stop_at: int | None = None) -> None:
        self.params = params
        self.checkpoint = folder / "checkpoint"
        self.checkpoint.mkdir(exist_ok=True)
        self.resume_from: Path | None = None
        self.reports: list[tuple[int, float, dict[str, float]]] = []
        self.remarks: list[tuple[str, str]] = []
        self.trained = self.reported = 0
        self.last_value: float | None = None
        self._stop_at = stop_at

    def set_attribute(self, name: str, value: Any) -> None:
        raise AssertionError(name)

    def remark(self, kind: str, text: str) -> None:
        self.remarks.append((kind, text))

    def report(self, value: float, step: int, **metrics: float) -> None:
        self.reports.append((step, value, metrics))
        if step == self._stop_at:
            raise TrialStopped


Run = Callable[..., tuple[float, HandTrial]]


@pytest.fixture
def trial(tmp_path: Path) -> HandTrial:
    return HandTrial(tmp_path, {"x": 0.5})


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], CommandObjective]:
    """An objective that runs a Python script of these lines."""

    def make(text: str, *arguments: str) -> CommandObjective:
        path = tmp_path / "script.py"
        path.write_text(text)
        return CommandObjective(["python", str(path), *arguments], "loss")

    return make


def gone(pid: int) -> bool:
    """Whether a process has ended, within some seconds."""
    for _ in range(200):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def test_output_with_a_byte_order_mark_is_read(
    trial: HandTrial, script: Any, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """As programs of Windows print it, also what explains a failure."""
    objective = script(
        "import sys\n"
        "sys.stdout.buffer.write('epoch 1 loss 0.5\\nepoch 2 loss 0.25\\n'.encode('utf-16'))\n"
        "sys.stderr.buffer.write('out of \u00b5\\n'.encode('utf-16'))\n"
        "sys.exit(3)\n"
    )
    with pytest.raises(ScriptError, match="exited with code 3") as failed:
        objective(trial)
    assert [(step, value) for step, value, _ in trial.reports] == [(1, 0.5), (2, 0.25)]
    printed, _ = capfdbinary.readouterr()
    assert printed.decode("utf-16").startswith("epoch 1"), "it is passed on as it is"
    assert failed.value.detail == 'standard error ends with "out of \u00b5"'


def test_the_macros_are_those_of_wandb() -> None:
    params = flat(PARAMS)
    assert expand(["${env}", "${interpreter}", "train.py", "${args}"], params) == [
        "/usr/bin/env",
        sys.executable,
        "train.py",
        "--learning_rate=0.001",
        "--name=a b",
        "--flag=true",
        "--off=false",
        "--layers=[1, 2]",
        "--optimizer.momentum=0.9",
    ]
    assert expand(["${args_no_hyphens}"], {"a": 1, "b": "x"}) == ["a=1", "b=x"]
    assert expand(["${args_no_boolean_flags}"], {"a": 1, "t": True, "f": False}) == ["--a=1", "--t"]
    assert json.loads(expand(["${args_json}"], params)[0]) == params


def test_a_parameter_stands_anywhere_in_a_word_and_is_not_read_again() -> None:
    params = {"a": "${b}", "b": 2, "optimizer.momentum": 0.9}
    words = ["run", "--out=${a}-${b}", "${optimizer.momentum}", "$b", "$", "{b}"]
    assert expand(words, params) == ["run", "--out=${b}-2", "0.9", "$b", "$", "{b}"]


@pytest.mark.parametrize("word", ["${program}", "--x=${nothing}", "--all=${args}", "${}"])
def test_an_unknown_macro_is_refused_with_the_known_ones(word: str) -> None:
    with pytest.raises(ObjectiveError, match="unknown macro") as caught:
        expand(["run", word], {"a": 1})
    assert "${args_json}" in str(caught.value)
    with pytest.raises(ObjectiveError, match=r"\$\{seed\}, \$\{checkpoint\}, \$\{resume_from\}, \$\{run\}"):
        expand(["run", word], {"a": 1}, OWN)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("${a", 'has no "}"; did you mean "${a}"?'),
        ("--x=${a --y=${seed}", '"${a --y=" has no "}" before the next "${"; did you mean "${a}"?'),
        ("${args:dashes", 'did you mean "${args:dashes}"?'),
        ("${config:c.yaml seed=$seed", 'did you mean "${config:c.yaml}"?'),
        ("cost: 5${", ' has no "}"'),
    ],
)
def test_a_macro_that_is_not_closed_is_refused(word: str, told: str) -> None:
    for words in (["run", word], ["sh", "-c", f"run {word} b"]):
        with pytest.raises(ObjectiveError) as caught:
            expand(words, {"a": 1}, OWN)
        assert told in str(caught.value)


OWN = {"seed": 7, "checkpoint": "/runs/s/3/checkpoint", "resume_from": "", "run": "/runs/s/3"}


@pytest.mark.parametrize(
    ("words", "params", "told"),
    [
        (["--seed=${seed}", "-s${seed}"], {}, ["--seed=7", "-s7"]),
        (["--out=${run}/logs", "${checkpoint}"], {}, ["--out=/runs/s/3/logs", "/runs/s/3/checkpoint"]),
        (["--seed=${seed}"], {"seed": 42}, ["--seed=42"]),  # a parameter's name is the parameter
        (["${run}", "${seed}"], {"run": "a"}, ["a", "7"]),
        (["--resume=${resume_from}", "a"], {}, ["a"]),  # there is nothing to go on from
        (["${resume_from}", "a"], {}, ["", "a"]),
        (["--resume=${resume_from}"], {"resume_from": "b"}, ["--resume=b"]),
        (["--resume=${resume_from}"], {"resume_from": None}, []),
    ],
)
def test_macros_for_what_is_the_trials_own(words: list[str], params: dict[str, Any], told: list[str]) -> None:
    assert expand(["run", *words], params, OWN) == ["run", *told]
    gone_on = expand(["run", "--resume=${resume_from}"], {}, OWN | {"resume_from": "/c"})
    assert gone_on == ["run", "--resume=/c"]


def test_a_configuration_file_gets_the_values_of_the_trial(tmp_path: Path) -> None:
    source = tmp_path / "my train.json"
    source.write_text('{"seed": 1, "lr": 1, "train": {"out": "out", "resume": "x"}}')
    own = OWN | {"run": str(tmp_path)}
    word = f"${{config:{source} seed=$seed train.out=$checkpoint/m.pt train.resume=$resume_from}}"
    for params in ({"lr": 2}, {"lr": 2, "seed": 3}):
        [written] = expand([word], params, own)
        train = {"out": "/runs/s/3/checkpoint/m.pt", "resume": None}
        assert json.loads(Path(written).read_text()) == {"seed": 7, "lr": 2, "train": train}
    with pytest.raises(ObjectiveError, match=r'has "\$sead" in "seed=\$sead"; allowed: \$seed, \$checkpoint'):
        expand([f"${{config:{source} seed=$sead}}"], {}, own)


def test_python_is_the_one_that_searches() -> None:
    assert expand(["python", "x"], {})[0] == expand(["python3", "x"], {})[0] == sys.executable
    assert expand(["/usr/bin/python3", "x"], {})[0] == "/usr/bin/python3"


def test_reports_pass_between_other_output(
    script: Any, trial: HandTrial, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    value = script(
        "import json, sys\n"
        "print('loading')\n"
        "print(json.dumps({'step': 10, 'loss': 0.5, 'lr': 1e-3}))\n"
        "sys.stdout.buffer.write(b'\\xff {not json}\\n{\"a\": 1}\\n'); sys.stdout.flush()\n"
        "print('progress 10%\\rprogress 20%', end='')\n"
        "print('\\n' + json.dumps({'loss': 0.4, 'step': 11}))\n"
        "print(json.dumps({'event': 'memory_mb', 'value': -812.5}))\n"
        "print('\\r 50%|###' + json.dumps({'step': 30, 'loss': 0.25}), end='')\n"
    )(trial)
    assert value == 0.25
    assert trial.reports == [(10, 0.5, {"lr": 1e-3}), (11, 0.4, {}), (30, 0.25, {})]
    output = capfdbinary.readouterr().out
    assert b"loading\n" in output and b"\xff {not json}\n" in output


def test_a_script_reports_by_our_function_too(script: Any, trial: HandTrial) -> None:
    value = script(
        "from hpsearch.objectives import report\n"
        "print('half a line', end='')\n"
        "report(1.5, step=1, accuracy=0.5)\n"
        "report(float('inf'), step=2)\n"
    )(trial)
    assert value == float("inf")
    assert trial.reports[0] == (1, 1.5, {"accuracy": 0.5})


def test_of_several_ranks_only_the_first_reports(
    script: Any, trial: HandTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")  # of a launcher around the search
    script(
        "import os\n"
        "from hpsearch.objectives import report\n"
        "for rank in range(3, -1, -1):\n"
        "    if rank == 3 or os.fork() == 0:\n"  # a program without ranks, then those of torchrun
        "        rank == 3 or os.environ.update(RANK=str(rank))\n"
        "        report(rank, step=2 - (rank == 3))\n"
        "        rank == 3 or os._exit(0)\n"
        "    else:\n"
        "        os.wait()\n"
    )(trial)
    assert [(step, value) for step, value, _ in trial.reports] == [(1, 3.0), (2, 0.0)]


def test_a_script_gets_its_trial_in_arguments_and_environment(
    script: Any, trial: HandTrial, tmp_path: Path
) -> None:
    trial.params = {"x": 0.5, "name": "a b; $(c)", "deep": {"er": 1}}
    trial.resume_from = trial.checkpoint
    script(
        "import json, os, sys\n"
        "told = {k: v for k, v in os.environ.items() if k.startswith('HPSEARCH_')}\n"
        f"json.dump([sys.argv[1:], told, sys.stdin.read()], open({str(tmp_path / 'told')!r}, 'w'))\n"
        "print('{\"loss\": 1}')\n",
        "${args}",
    )(trial)
    arguments, told, read = json.loads((tmp_path / "told").read_text())
    assert arguments == ["--x=0.5", "--name=a b; $(c)", "--deep.er=1"]
    assert read == ""
    checkpoint = str(trial.checkpoint)
    assert told | {"HPSEARCH_TRIAL": "3", "HPSEARCH_SEED": "7", "HPSEARCH_RUN": str(tmp_path)} == told
    assert told["HPSEARCH_CHECKPOINT"] == told["HPSEARCH_RESUME_FROM"] == checkpoint


@pytest.mark.parametrize(
    ("lines", "error", "said"),
    [
        ("raise SystemExit(3)", ScriptError, "exited with code 3"),
        ("raise SystemExit('a\\nlong\\ntale, b')", ScriptError, 'with "a" / "long" / "tale, b"'),
        ("import os; os.kill(os.getpid(), 9)", ScriptError, "was killed by SIGKILL"),
        ("import os; os.kill(os.getpid(), 40)", ScriptError, "was killed by signal 40"),
        (
            "print('done')",
            NothingReported,
            'without reporting "loss"; it must print lines such as {"step": 1, "loss": 0.5}, or the space must say by report: {stdout: ',
        ),
        ("print('epoch 3 best loss 0.5')", NothingReported, 'another quantity: "epoch 3 best loss 0.5"'),
        ("print('hello\\nepoch 3 lossy 0.5')", NothingReported, 'line 2 of its output, "epoch 3 lossy 0.5"'),
        (
            'print(\'{"loss": "high"}\')',
            NothingReported,
            'line 1 of its output names loss, but its value is a text: "{"loss": "high"}"',
        ),
        ("import sys; print('hm', file=sys.stderr)", NothingReported, 'standard error ends with "hm"'),
        ("print('{\"loss\": 1}'); raise SystemExit(1)", ScriptError, "exited with code 1"),
    ],
)
def test_the_failure_of_a_script_is_described(
    script: Any, trial: HandTrial, lines: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as caught:
        script(lines)(trial)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "last", ["epoch 3: 10/10 loss 0.", "\\repoch 3: 5/10 loss 5.3"], ids=["half a line", "a bar in its epoch"]
)
def test_what_a_killed_script_was_printing_is_no_report(script: Any, trial: HandTrial, last: str) -> None:
    """Its line, or the epoch of its bar, had not ended."""
    lines = f"""\
import os
print("epoch 1: 10/10 loss 0.9")
print("epoch 2: 10/10 loss 0.8")
print("{last}", end="", flush=True)
os.kill(os.getpid(), 9)
"""
    with pytest.raises(ScriptError, match="killed by SIGKILL"):
        script(lines)(trial)
    assert [value for _, value, _ in trial.reports] == [0.9, 0.8]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-such-program-anywhere", "x"], "cannot start no-such-program-anywhere x: No such file"),
        (["/"], "cannot start /: Permission denied"),
    ],
)
def test_a_program_that_cannot_be_started_is_named(trial: HandTrial, words: list[str], said: str) -> None:
    with pytest.raises(ObjectiveError, match=said):
        CommandObjective(words, "loss")(trial)


def test_steps_that_do_not_rise_or_cannot_be_used_are_left_out(script: Any, trial: HandTrial) -> None:
    """A final evaluation reports the last step again, as the Trainer's does."""
    value = script(
        "import json\n"
        "for step in (0, 1.0, 2, '3', 2, 2, 1):\n"
        "    print(json.dumps({'loss': 1 - float(step) / 8, 'step': step}))\n"
        "print('{\"loss\": NaN}')\n"
    )(trial)
    assert trial.reports == [(0, 1.0, {}), (1, 0.875, {}), (2, 0.75, {})]
    assert value == 0.75
    assert [kind for kind, _ in trial.remarks] == ["repeated"] * 4 + ["unusable"]
    assert "step 2 after step 2" in trial.remarks[0][1]
    assert "without a step after step 2" in trial.remarks[3][1]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of `env -i` with PATH and HOME: nothing that a developer's shell or a test sets."""
    for name in os.environ.keys() - {"PATH", "HOME"}:
        monkeypatch.delenv(name)


def test_a_scripts_output_is_read_at_once(script: Any, tmp_path: Path, bare: None) -> None:
    """It waits for a file that is there only once its report was heard."""
    heard = tmp_path / "heard"

    class Hearing(HandTrial):
        def report(self, value: float, step: int, **metrics: float) -> None:
            super().report(value, step=step, **metrics)
            heard.touch()

    trial = Hearing(tmp_path, {})
    script(
        "import os, time\n"
        "print('{\"loss\": 1}')\n"
        f"while not os.path.exists({str(heard)!r}):\n    time.sleep(0.01)\n"
        "print('{\"loss\": 2}')\n"
    )(trial)
    assert trial.reports == [(1, 1.0, {}), (2, 2.0, {})]
    assert not trial.remarks and not trial.trained


BUFFERED = """\
import io, json, sys, time
out = open(sys.stdout.fileno(), "w", buffering=1 << 20, closefd=False)  # as C programs have it
for step in range(1, 4):
    time.sleep(0.2)
    print(json.dumps({"loss": 1 / step, "step": step}), file=out)
out.flush()
"""


def test_reports_that_come_together_after_a_silence_are_late(script: Any, tmp_path: Path) -> None:
    trial = HandTrial(tmp_path, {}, stop_at=1)
    with pytest.raises(TrialStopped):
        script(BUFFERED)(trial)
    assert trial.trained == 3
    ((kind, told),) = trial.remarks
    assert kind == "late" and "steps 1 to 3" in told and "flush" in told


def test_a_long_line_is_passed_on_while_it_grows(
    script: Any, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    trial = HandTrial(tmp_path, {})
    script("print('.' * 3_000_000, end='', flush=True)\nprint('\\r{\"loss\": 1}', end='')\n")(trial)
    assert trial.reports == [(1, 1.0, {})]
    assert capfdbinary.readouterr().out.count(b".") == 3_000_000


def test_a_scripts_output_is_utf_8(script: Any, trial: HandTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "utf-16")
    assert script('print(\'{"loss": 1, "größe": 2}\')\n')(trial) == 1.0
    assert trial.reports == [(1, 1.0, {"größe": 2.0})]


@pytest.mark.parametrize(
    ("earlier", "later", "again"),
    [
        (["model.pt", "optimizer.pt"], ["model.pt"], False),
        (["model-2.pt", "optimizer-2.pt"], ["model-3.pt"], False),
        (["model.pt", "optimizer.pt"], [], None),
        (["model.pt", "optimizer.pt"], ["model.pt", "optimizer.pt"], True),
        (["model-2.pt"], ["model-3.pt"], True),
        (["model.pt", "train.log"], ["model.pt"], True),
    ],
)
def test_a_checkpoint_is_saved_again_where_all_of_its_parts_are(
    tmp_path: Path, earlier: list[str], later: list[str], again: bool | None
) -> None:
    """Reports at 10 and 20, and a file from before them."""
    for name in ["config.json", *earlier, *later]:
        at = 5 if name == "config.json" else 25 if name in later else 15
        (tmp_path / name).touch()
        os.utime(tmp_path / name, ns=(at, at))
    assert writing._is_saved_again(tmp_path, [10, 20]) is again
    assert writing._is_saved_again(tmp_path, [20]) is None


def test_output_during_termination_does_not_block(
    script: Any, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """More than a pipe holds, on both streams."""
    trial = HandTrial(tmp_path, {}, stop_at=1)
    with pytest.raises(TrialStopped):
        script(
            "import signal, sys, time\n"
            "def end(*_):\n"
            "    print('x' * 200_000); print('y' * 200_000, file=sys.stderr); print('left'); sys.exit()\n"
            "signal.signal(signal.SIGTERM, end)\n"
            'print(\'{"loss": 1, "step": 1}\')\ntime.sleep(600)\n'
        )(trial)
    captured = capfdbinary.readouterr()
    assert captured.out.endswith(b"left\n") and captured.err.count(b"y") == 200_000


STUBBORN = """\
import os, signal, subprocess, sys, time
{ignore}
sleep = "import signal, time; {child}; print(1, flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", sleep], stdout=subprocess.PIPE)
child.stdout.readline()
open({pids!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
print('{{"loss": 1, "step": 1}}', flush=True)
time.sleep(600)
"""
IGNORE = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


@pytest.mark.parametrize("ignore", ["", IGNORE])
@pytest.mark.parametrize("child", ["", IGNORE])
def test_a_stop_ends_the_script_and_its_children_whatever_they_ignore(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ignore: str, child: str
) -> None:
    monkeypatch.setattr(command, "TERM_SECONDS", 0.2)
    pids = tmp_path / "pids"
    trial = HandTrial(tmp_path, {}, stop_at=1)
    text = STUBBORN.format(ignore=ignore, child=child or "pass", pids=str(pids))
    with pytest.raises(TrialStopped):
        script(text)(trial)
    assert all(gone(int(pid)) for pid in pids.read_text().split())


def test_a_stopped_script_can_clean_up(script: Any, tmp_path: Path) -> None:
    done = tmp_path / "done"
    trial = HandTrial(tmp_path, {}, stop_at=1)
    with pytest.raises(TrialStopped):
        script(
            "import signal, sys, time\n"
            f"def end(*_):\n    time.sleep(0.2); open({str(done)!r}, 'w').close(); sys.exit()\n"
            "signal.signal(signal.SIGTERM, end)\n"
            'print(\'{"loss": 1, "step": 1}\', flush=True)\ntime.sleep(600)\n'
        )(trial)
    assert done.exists()


@pytest.mark.parametrize("session", [False, True])
def test_a_process_left_behind_does_not_block_the_trial(script: Any, trial: HandTrial, session: bool) -> None:
    """It has the script's output open; what is in the script's group ends with it."""
    value = script(
        "import subprocess\n"
        f"child = subprocess.Popen(['sleep', '600'], start_new_session={session})\n"
        "print(f'{{\"loss\": {child.pid}}}')\n"
    )(trial)
    if session:  # it asked for a life of its own
        os.kill(int(value), signal.SIGKILL)
    assert gone(int(value))


def test_a_noisy_process_left_behind_does_not_block_the_trial(
    script: Any, trial: HandTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "LEFTOVER_SECONDS", 0.2)
    value = script(
        "import subprocess\n"
        "child = subprocess.Popen(['sh', '-c', 'while :; do echo .; sleep 0.05; done'])\n"
        "print(f'{{\"loss\": {child.pid}}}')\n"
    )(trial)
    assert gone(int(value))


def test_an_error_in_the_search_ends_the_script(script: Any, tmp_path: Path) -> None:
    class Broken(HandTrial):
        def report(self, value: float, step: int, **metrics: float) -> None:
            self.reports.append((int(value), value, metrics))
            raise ValueError("steps rise")

    trial = Broken(tmp_path, {})
    with pytest.raises(ValueError, match="steps rise"):
        script("import os, time\nprint(f'{{\"loss\": {os.getpid()}}}', flush=True)\ntime.sleep(600)\n")(trial)
    assert gone(trial.reports[0][0])


RANKS = """
import json, os, signal, sys, time
rank = os.environ["RANK"]
assert os.environ["LOCAL_RANK"] == rank and os.environ["WORLD_SIZE"] == "3"
with open(f"{sys.argv[1]}/{rank}", "w") as stream:
    stream.write(f"{os.getpid()} {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}")
while sum(os.path.getsize(f"{sys.argv[1]}/{name}") > 0 for name in os.listdir(sys.argv[1])) < 3:
    time.sleep(0.01)
if rank == "2" and sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
print(json.dumps({"step": 1, "loss": float(rank)}), flush=True)
time.sleep(600 if sys.argv[2] != "ends" else 0)
"""


@pytest.mark.parametrize(
    ("course", "stop_at", "raised", "said"),
    [
        ("ends", None, None, None),
        ("stopped", 1, TrialStopped, None),
        ("killed", None, ScriptError, ", rank 2, was killed by SIGKILL"),
    ],
)
def test_ranks_of_a_script_meet_and_end_together(
    tmp_path: Path, course: str, stop_at: int | None, raised: type[BaseException] | None, said: str | None
) -> None:
    (tmp_path / "ranks.py").write_text(RANKS)
    (tmp_path / "there").mkdir()
    words = ["python", str(tmp_path / "ranks.py"), str(tmp_path / "there"), course]
    trial = HandTrial(tmp_path, {}, stop_at)
    objective = CommandObjective(words, "loss", 3)
    if raised is None:
        assert objective(trial) == 0.0
    else:
        with pytest.raises(raised, match=said):
            objective(trial)
    if course != "killed":
        assert trial.reports == [(1, 0.0, {})], "rank 0's alone"
    told = [(tmp_path / "there" / str(rank)).read_text().split() for rank in range(3)]
    assert len({place for _, place in told}) == 1
    assert all(gone(int(pid)) for pid, _ in told)


SLOW_SAVE = """
import json, os, time
with open(f"{os.environ['HPSEARCH_CHECKPOINT']}/state", "w") as stream:
    stream.write("half")
    stream.flush()
    print(json.dumps({"step": 1, "loss": 1.0}), flush=True)
    time.sleep(WAIT)
    stream.write(", whole")
time.sleep(600)
"""


def test_a_script_that_reports_while_it_saves_can_finish_the_file(script: Any, tmp_path: Path) -> None:
    trial = HandTrial(tmp_path, {}, stop_at=1)
    with pytest.raises(TrialStopped):
        script(SLOW_SAVE.replace("WAIT", "0.3"))(trial)
    assert (trial.checkpoint / "state").read_text() == "half, whole"


@pytest.mark.parametrize("at_sigterm", ["SIG_IGN", "SIG_DFL"])
def test_unfinished_files_of_a_script_are_set_aside(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_sigterm: str
) -> None:
    monkeypatch.setattr(writing, "WRITE_SECONDS", 0.3)
    monkeypatch.setattr(command, "TERM_SECONDS", 0.1)
    trial = HandTrial(tmp_path, {}, stop_at=1)
    (trial.checkpoint / "before").touch()
    with pytest.raises(TrialStopped):
        script(
            f"import signal; signal.signal(signal.SIGTERM, signal.{at_sigterm})\n"
            + SLOW_SAVE.replace("WAIT", "600")
        )(trial)
    left = sorted(path.name for path in trial.checkpoint.iterdir())
    assert left == ["before", "state.incomplete"]


@pytest.mark.parametrize(
    ("opened", "counts"),
    [
        ("open({!r} + '/model.pt', 'wb')", True),
        ("open({!r} + '/model.h5', 'r+b' if os.path.exists({!r} + '/model.h5') else 'w+b')", True),
        ("open({!r} + '/log.txt', 'a')", False),
        ("open({!r} + '/model.pt', 'w').close() or open({!r} + '/model.pt')", False),
        ("open({!r} + '/events.out.tfevents.1', 'wb')", False),
        ("open({!r} + '/train.log', 'w')", False),
        ("open({!r} + '/../elsewhere', 'w')", False),
    ],
)
def test_a_file_that_is_open_to_write_it_whole_is_being_written(
    tmp_path: Path, opened: str, counts: bool
) -> None:
    (folder := tmp_path / "checkpoint").mkdir()
    code = (
        f"import os, sys; file = {opened.format(*[str(folder)] * 2)}; print(1, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"1\n"
        found = list(
            writing.being_written([psutil.Process(process.pid)], lambda path: folder in path.parents)
        )
        process.communicate()
    assert bool(found) == counts


def test_await_still_waits_for_all_threads_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn = "threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()"
    spin = f"import threading\nfor _ in range(3): {turn}"
    process = subprocess.Popen([sys.executable, "-c", spin + "\nprint(flush=True)"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        assert writing.await_still([psutil.Process(process.pid)])
        tasks = Path(f"/proc/{process.pid}/task").glob("*/stat")
        assert {task.read_text().rpartition(")")[2].split()[0] for task in tasks} == {"T"}
        process.send_signal(signal.SIGCONT)
        monkeypatch.setattr(writing, "STILL_SECONDS", 0.1)
        assert not writing.await_still([psutil.Process(process.pid)])
    finally:
        process.kill()
        process.communicate()


FAST = """
import json, os, pathlib, sys
folder = pathlib.Path(os.environ["HPSEARCH_CHECKPOINT"])
with open(folder.parent / "begun", "a") as begun:
    begun.write("x")
done = int((folder / "done").read_text()) if (folder / "done").exists() else 0
(folder / "done").write_text("10")
for epoch in range(done + 1, 11):
    print(f"epoch {epoch} val_loss {1 / epoch}")
"""


@pytest.mark.slow
@pytest.mark.parametrize("after", ["", "sys.stdout.flush(); import time; time.sleep(60)\n"])
def test_a_program_that_ends_past_its_pause_is_not_trained_again(tmp_path: Path, after: str) -> None:
    once = f"if done == 0:\n    {after}" if after else ""
    objective = CommandObjective([sys.executable, "-c", FAST + once], "val_loss")
    paused = HandTrial(tmp_path, {}, stop_at=3)
    with pytest.raises(TrialStopped):
        objective(paused)
    assert [step for step, _, _ in paused.reports] == [1, 2, 3]
    again = HandTrial(tmp_path, {}, stop_at=9)
    again.resume_from = again.checkpoint
    with pytest.raises(TrialStopped):
        objective(again)
    assert [step for step, _, _ in again.reports] == list(range(4, 10)), "it pauses again"
    last = HandTrial(tmp_path, {})
    last.resume_from = last.checkpoint
    assert objective(last) == 0.1
    assert last.reports[-1] == (10, 0.1, {})
    assert (tmp_path / "begun").read_text() == ("xxx" if after else "x")
    anew = HandTrial(tmp_path, {})
    (tmp_path / "checkpoint" / "done").unlink()
    CommandObjective([sys.executable, "-c", FAST], "val_loss")(anew)
    assert len(anew.reports) == 10, "without a checkpoint it starts over"


@pytest.mark.slow
def test_a_program_that_ends_at_its_pause_only_returns_its_value(tmp_path: Path) -> None:
    objective = CommandObjective([sys.executable, "-c", FAST], "val_loss")
    with pytest.raises(TrialStopped):
        objective(HandTrial(tmp_path, {}, stop_at=10))
    again = HandTrial(tmp_path, {})
    again.resume_from = again.checkpoint
    assert objective(again) == 0.1


STEPS = """
import os, pathlib, time
state = pathlib.Path(os.environ["HPSEARCH_CHECKPOINT"], "done")
done = int(state.read_text()) if state.exists() else 0
for epoch in range(done + 1, 11):
    state.write_text(str(epoch))
    print(f"epoch {epoch} val_loss {1 / epoch}", flush=True)
    time.sleep(30 * (epoch == 5 and done < 5))
"""


@pytest.mark.slow
def test_no_report_is_lost_between_a_pause_and_the_checkpoint_that_is_ahead_of_it(tmp_path: Path) -> None:
    objective = CommandObjective([sys.executable, "-c", STEPS], "val_loss")
    paused = HandTrial(tmp_path, {}, stop_at=3)
    with pytest.raises(TrialStopped):
        objective(paused)
    again = HandTrial(tmp_path, {})
    again.resume_from = again.checkpoint
    assert objective(again) == 0.1
    assert [step for step, _, _ in again.reports] == list(range(4, 11))
    assert not (tmp_path / "rest.json").exists()


@pytest.mark.parametrize("report", [{}, {"mlflow": "loss"}, {"file": "log.csv"}])
def test_a_resumed_program_with_nothing_left_to_train_keeps_its_value(
    trial: HandTrial, report: dict[str, str]
) -> None:
    objective = CommandObjective(["sh", "-c", "echo resuming"], "loss", report=report)
    trial.last_value, trial.reported = 0.25, 9
    with pytest.raises(NothingReported):
        objective(trial)  # without a checkpoint, it has trained anew
    trial.resume_from = trial.checkpoint
    assert objective(trial) == 0.25 and trial.reports == []
    assert trial.remarks[-1][1] == "it resumed and reported nothing more: its value is that of step 9"
    unusable = CommandObjective(["sh", "-c", """echo '{"loss": "low"}'"""], "loss")
    with pytest.raises(NothingReported, match="without reporting"):
        unusable(trial)
