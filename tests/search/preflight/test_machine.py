"""`hpsearch doctor`: what it sees of a machine, and kill tests and pack tests with verdicts of every kind."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from optuna.trial import create_trial

from hpsearch.search.cli import main
from hpsearch.search.cli.console import PlainConsole
from hpsearch.search.cli.doctor import conclude, conclude_packs
from hpsearch.search.preflight import machine
from hpsearch.search.preflight import pack_test as packs
from hpsearch.search.preflight.kill_test import (
    Kill,
    KillTestResult,
    Moment,
    exact,
    facts,
    first_difference,
    moments,
    small,
)
from hpsearch.spaces import load, loads
from hpsearch.spaces.samplers import TPE
from hpsearch.storage import checks
from hpsearch.storage.trial_attrs import EVENTS
from hpsearch.trainer.config.models import LoraConfig

from ...support.outputs import check_output

Cli = Callable[..., tuple[int, str, str]]

OBJECTIVES = """\
import os
import time


def train(trial):
    return descend(trial, restores=True, noise=0.0)


def forgets(trial):
    return descend(trial, restores=False, noise=0.0)


def dices(trial):
    return descend(trial, restores=True, noise=int.from_bytes(os.urandom(4), "big"))


def descend(trial, restores, noise):
    step, total = 0, noise
    if trial.resume_from:
        step, total = (float(word) for word in (trial.resume_from / "state").read_text().split())
        total = total if restores else 0.0
    for step in range(int(step) + 1, 9):
        time.sleep(0.02)
        total += trial.params["x"] / step
        part = trial.checkpoint / "part"
        part.write_text(f"{step} {total!r}")
        trial.report(total, step=step)
        part.rename(trial.checkpoint / "state")
    return total
"""
SPACE = """\
version: 1
name: mine
objective: "mine.py:train"
metric: loss
parameters: {x: {min: 0.0, max: 1.0}}
early_stopping: {method: median}
budget: {trials: 50, time: 1s}
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command in a folder with a space and its objectives: its exit code, its output, its errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where a test that is not passed is kept
    monkeypatch.setattr("tempfile.tempdir", None)
    Path("mine.py").write_text(OBJECTIVES)
    Path("mine.yaml").write_text(SPACE)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hpsearch", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


# The machine.


def test_doctor_says_of_each_part_how_it_is(cli: Cli) -> None:
    before = sorted(os.listdir())
    code, shown, errors = cli("doctor", "--json")
    content = json.loads(shown)
    names = [check["name"] for check in content["checks"]]
    for name in (
        "python",
        "hpsearch",
        "packages",
        "workers",
        "memory",
        "database",
        "disk",
        "clock",
        "devices",
    ):
        assert name in names
    assert (code, errors) == (int(content["status"] == "problem"), "")
    assert all(check["advice"] for check in content["checks"] if check["status"] != "ok")
    assert sorted(os.listdir()) == before


def test_doctor_shows_lines(cli: Cli) -> None:
    lines = cli("doctor", "mine.yaml")[1].splitlines()
    assert lines[0].split()[:2] == ["ok", "python"]
    assert any(line.split()[1] == "devices" and "cpu (" in line for line in lines)


def test_a_problem_ends_with_1_and_says_what_to_do(cli: Cli) -> None:
    text = SPACE + "execution: {cpus_per_trial: 100000}\n"
    Path("mine.yaml").write_text(text)
    code, shown, _ = cli("doctor", "mine.yaml")
    lines = shown.splitlines()
    found = next(number for number, line in enumerate(lines) if line.startswith("problem"))
    assert code == 1
    assert (
        "workers    execution.cpus_per_trial: a trial asks for 100000 CPUs; this machine has" in lines[found]
    )
    assert lines[found + 1].strip() == "request less for each trial"


def test_missing_and_old_packages_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = ["no-such-package>=1", "optuna>=99", "psutil", 'nor-this; extra == "more"']
    about = SimpleNamespace(get_all=lambda name: ["more"])
    monkeypatch.setattr(metadata, "requires", lambda name: needed)
    monkeypatch.setattr(metadata, "metadata", lambda name: about)
    _, *found = machine.package_checks()
    assert [(check.status, check.found) for check in found] == [
        ("problem", "no-such-package is not installed"),
        ("problem", f"optuna {metadata.version('optuna')} is installed; >=99 is needed"),
        ("ok", "not installed: nor-this"),
    ]
    assert found[0].advice == 'pip install "no-such-package>=1"'
    assert found[2].advice == 'only if you need it: pip install "hpsearch[more]"'


def test_a_torch_that_does_not_load_is_a_problem() -> None:
    script = "import sys; print('libcuda is broken', file=sys.stderr); sys.exit(1)"
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as torch:
        check = machine.devices_check(torch)
    assert (check.status, check.found) == ("problem", "torch does not load: libcuda is broken")


def test_gpus_that_torch_cannot_use_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    answer = {"torch": "2.13.0", "cuda": None, "devices": [{"kind": "cpu", "name": "AVX2", "memory": None}]}
    script = f"print({json.dumps(answer)!r})"
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as torch:
        check = machine.devices_check(torch)
    assert check.status == "problem"
    assert check.found == "2 GPUs here, but torch 2.13.0 (built without CUDA) uses none of them"


def test_what_the_file_system_does_not_do_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "sqlite_faults", lambda folder: ["no WAL", "no locks"])
    found = list(machine.database_checks(tmp_path / "a.db"))
    assert [check.status for check in found] == ["problem"] * 2
    assert found[0].found.endswith(": no WAL")
    assert found[0].advice.startswith("put the database on a disk of this machine (--storage)")


def test_another_clock_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "clock_offset", lambda folder: -100.0)
    check = machine.clock_check(tmp_path)
    assert check.status == "warning" and check.found.endswith("are stamped 100 s earlier")


def test_a_network_file_system_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = SimpleNamespace(mountpoint=str(tmp_path.parent), fstype="fuse.sshfs")
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: [part])
    [check] = machine.database_checks(tmp_path / "a.db")
    assert check.status == "warning"
    assert "(sshfs) is a network file system" in check.found


def test_a_folder_that_cannot_be_written_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    [check] = machine.database_checks(tmp_path / "a.db")
    assert (check.status, check.found) == ("problem", f"{tmp_path} cannot be written")


def test_little_disk_space_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for free in (200 << 30, 500 << 20, 5 << 20):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: SimpleNamespace(free=free))
        found.append(machine.disk_check(tmp_path).status)
    assert found == ["ok", "warning", "problem"]


@pytest.mark.slow
@pytest.mark.ray
def test_ray_is_started_where_it_is_asked_for(cli: Cli) -> None:
    content = json.loads(cli("doctor", "--backend", "ray", "--json")[1])
    ray = content["checks"][-1]
    assert ray["name"] == "ray" and ray["found"].startswith("starts in ")
    assert ray["found"].endswith("listens on this machine alone, and stops")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--kills", "3"], "--kills goes with --kill-test"),
        (["--kills", "3", "--pack-test"], "--kills goes with --kill-test"),
        (["--seed", "3"], "--seed goes with --kill-test or --pack-test"),
        (["--kill-test", "--pack-test"], "--kill-test and --pack-test are two tests; give one of them"),
        (["--backend", "rai"], 'there is no backend "rai", did you mean "ray"?'),
    ],
)
def test_what_cannot_be_is_refused(cli: Cli, words: list[str], message: str) -> None:
    code, _, errors = cli("doctor", *words)
    assert code == 2 and message in errors


# The kill test.


def test_a_space_is_cut_to_what_repeats() -> None:
    cut = small(loads(SPACE), 6)
    assert cut.budget.trials == 6 and cut.budget.time is None
    assert cut.execution.workers == 1 and cut.execution.gpus_per_trial == 0
    assert isinstance(cut.search, TPE) and cut.search.n_startup_trials == 2
    assert small(loads(SPACE), 100).budget.trials == 50
    assert small(load("lora_quick"), 8).early_stopping == load("lora_quick").early_stopping


def test_moments_are_spread_over_the_whole_search_and_follow_from_the_seed() -> None:
    calm: Any = SimpleNamespace(seconds=12.0, first=2.0, events=100)
    chosen = moments(20, 7, calm)
    assert chosen == moments(20, 7, calm) != moments(20, 8, calm)
    early = [moment.seconds for moment in chosen if moment.events is None]
    later = [moment.events for moment in chosen if moment.events is not None]
    assert len(early) == 5 and all(0 <= seconds <= 2.0 for seconds in early)
    assert later == sorted(later)
    assert all(low * 100 // 15 <= event <= (low + 1) * 101 // 15 for low, event in enumerate(later))
    assert {moment.at_once for moment in chosen} == {True, False}


def test_the_first_difference_is_named_by_its_bits() -> None:
    one = [{"state": "COMPLETE", "value at 1": exact(0.1)}, {"state": "COMPLETE"}]
    other = [{"state": "COMPLETE", "value at 1": exact(0.1 + 2**-56)}, {"state": "FAIL"}]
    names = ("undisturbed", "killed")
    assert first_difference(one, one, names) is None
    assert first_difference(one, other, names) == (
        "trial 0, value at 1: undisturbed 0.1 (0x1.999999999999ap-4), "
        "killed 0.10000000000000002 (0x1.999999999999bp-4)"
    )
    assert first_difference(one, other, names, {"value at 1"}) == (
        "trial 1, state: undisturbed COMPLETE, killed FAIL"
    )
    assert first_difference(one, one[:1], names) == "the number of trials: undisturbed 2, killed 1"


def test_a_checkpoint_that_a_kill_left_half_made_is_no_difference() -> None:
    paused = {"kind": "paused", "step": 1, "rank": 1, "of": 2}
    over = {"kind": "started_over", "error": "ValueError"}
    calm = create_trial(value=0.5, user_attrs={EVENTS: [paused]})
    killed = create_trial(value=0.5, user_attrs={EVENTS: [over, paused]})
    other = create_trial(value=0.5, user_attrs={EVENTS: [paused | {"rank": 2}]})
    names = ("undisturbed", "killed")
    assert first_difference([facts(calm, "steps")], [facts(killed, "steps")], names) is None
    assert first_difference([facts(calm, "steps")], [facts(other, "steps")], names) == (
        "trial 0, event 1: undisturbed paused at step 1, ranked 1 of 2, killed paused at step 1, ranked 2 of 2"
    )


def kill_test(cli: Cli, *, objective: str = "train", kills: int = 2) -> tuple[int, dict[str, Any], str]:
    Path("mine.yaml").write_text(SPACE.replace(":train", f":{objective}"))
    options = ["--kill-test", "--trials", "3", "--kills", str(kills), "--seed", "3", "--json"]
    code, shown, errors = cli("doctor", "mine.yaml", *options)
    check_output("doctor --kill-test", json.loads(shown))
    return code, json.loads(shown), errors


def outcome(**fields: Any) -> KillTestResult:
    """A test that is passed, or otherwise where fields say so."""
    kill = Kill("while it starts", 1.25, 0, 0, True, [])
    late = Kill("20 ms after event 7", 3.5, 2, 5, False, [])
    whole: dict[str, Any] = {
        "verdict": "exact",
        "difference": None,
        "seed": 3,
        "kills": [kill, late],
        "left": [],
        "trials": 3,
        "reports": 24,
        "winner": {"trial": 2, "value": "0.5 (0x1.0000000000000p-1)"},
        "not_compared": ["tokens_per_second"],
        "seconds": {},
        "folder": Path("elsewhere/kept"),
    }
    return KillTestResult(**(whole | fields))


def said(found: KillTestResult) -> list[str]:
    console = PlainConsole(width=80, record=True, file=io.StringIO())
    conclude(console, found, "hpsearch doctor --kill-test --seed 3")
    return [" ".join(line.split()) for line in console.export_text().splitlines()]


def test_a_passed_test_is_reported_with_its_kills() -> None:
    assert said(outcome()) == [
        "kill when after trials reports continued",
        "1 while it starts 1.25 s 0 0 at once",
        "2 20 ms after event 7 3.50 s 2 5 with none of it left",
        "exact: 3 trials and 24 reports, winner trial 2; bit for bit the same with 2 kills and without",
        "not compared, for no two runs have the same: tokens_per_second",
        "the same kills again: hpsearch doctor --kill-test --seed 3",
    ]


def test_a_failed_test_says_where_it_is_kept_and_how_to_repeat_it() -> None:
    lines = said(outcome(verdict="not exact", difference="trial 1, state: undisturbed COMPLETE, killed FAIL"))
    assert "not exact: trial 1, state: undisturbed COMPLETE, killed FAIL" in lines
    assert lines[-2:] == [
        "all of it is kept in elsewhere/kept",
        "to repeat: hpsearch doctor --kill-test --seed 3",
    ]
    lines = said(outcome(verdict="not deterministic", difference="trial 0, value: ...", kills=[]))
    assert lines[0].startswith(
        "not deterministic: two undisturbed searches differ, so kills cannot be judged."
    )
    assert "first difference: trial 0, value: ..." in lines


def test_what_is_left_behind_fails_an_exact_test() -> None:
    left = outcome(kills=[Kill("while it starts", 1.0, 1, 0, False, ["trial 0 is RUNNING"])])
    assert outcome().passed and not left.passed and not outcome(left=["process 7"]).passed
    lines = said(left)
    assert "left behind after kill 1: trial 0 is RUNNING" in lines
    assert lines[-2] == "all of it is kept in elsewhere/kept"


@pytest.mark.slow
def test_a_killed_search_is_exact(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*asked: Any) -> list[Moment]:  # as when the undisturbed search was slow
        return [replace(each, seconds=1e3) if each.events is None else each for each in moments(*asked)]

    monkeypatch.setattr("hpsearch.search.preflight.kill_test.moments", late)
    before = sorted(os.listdir())
    code, outcome, said = kill_test(cli)
    assert (code, outcome["verdict"], outcome["difference"], outcome["left"]) == (0, "exact", None, [])
    assert len(outcome["kills"]) == 2 and not any(kill["left"] for kill in outcome["kills"])
    (early,) = (kill for kill in outcome["kills"] if kill["moment"] == "while it starts")
    assert 0 < early["reports"] < 24
    assert (outcome["trials"], outcome["not_compared"]) == (3, [])
    assert "killed search: to kill 2 of 2" in said
    assert {*os.listdir()} - {*before} <= {"__pycache__"}


@pytest.mark.slow
def test_an_objective_that_forgets_its_state_is_not_exact(cli: Cli) -> None:
    code, outcome, _ = kill_test(cli, objective="forgets", kills=3)
    assert (code, outcome["verdict"]) == (1, "not exact")
    assert outcome["difference"].startswith("trial ") and ": undisturbed " in outcome["difference"]
    assert (Path(outcome["folder"]) / "killed" / "studies.db").exists()


@pytest.mark.slow
def test_an_objective_that_throws_dice_is_not_blamed_on_the_kills(cli: Cli) -> None:
    code, outcome, _ = kill_test(cli, objective="dices")
    assert (code, outcome["verdict"], outcome["kills"]) == (1, "not deterministic", [])
    assert outcome["difference"].startswith("trial 0, value: the first time ")


@pytest.mark.slow
def test_a_space_that_fails_by_itself_is_reported(cli: Cli) -> None:
    Path("mine.py").write_text("def train(trial):\n    raise ValueError('no data')\n")
    Path("mine.yaml").write_text(SPACE)
    code, shown, errors = cli("doctor", "mine.yaml", "--kill-test", "--trials", "3")
    assert code == 1 and "exact" not in shown
    assert "the undisturbed search failed before anything was killed (exit code 1)" in errors
    assert "ValueError: no data" in errors


# The pack test.


@pytest.mark.slow
def test_packed_trials_of_a_space_are_what_they_are_alone(cli: Cli) -> None:
    code, shown, errors = cli("doctor", "--pack-test", "--trials", "3", "--seed", "1", "--json")
    content = json.loads(shown)
    check_output("doctor --pack-test", content)
    assert (code, content["passed"], content["again"]) == (
        0,
        True,
        "hpsearch doctor --pack-test --trials 3 --seed 1",
    )
    assert [trial["wild"] for trial in content["trials"]] == [False, True, False, False]
    for trial in content["trials"]:
        assert trial["passed"] and trial["difference"].keys() == {"reports", "adapter"}
        assert (trial["value"] is None) == trial["wild"]
        assert trial["params"]["train_file"] == "english" and trial["params"]["max_steps"] == 8
    assert 'pack test of "lora": 3 random configurations' in errors and "all of them together" in errors


def test_a_seed_draws_the_trials_of_a_pack_test() -> None:
    spec = load("lora")
    one, again, other = (packs.configurations(spec, 4, seed) for seed in (1, 1, 2))
    assert one == again
    for first, second in zip(one, other, strict=True):
        assert first["seed"] != second["seed"] and first | {"seed": 0} != second | {"seed": 0}


@pytest.mark.parametrize(
    "length",
    [
        {"max_samples": 90},
        {"max_steps": 9},
        {"num_train_epochs": 3},
        {"num_train_epochs": 3, "samples_per_epoch": 8},
    ],
)
def test_trials_of_every_unit_are_shortened(length: dict[str, int]) -> None:
    space = {
        **{"version": 1, "name": "mine", "objective": "lora", "metric": "val_loss", "budget": {"trials": 4}},
        "parameters": {"learning_rate": [0.001, 0.01], **length},
    }
    for params in packs.configurations(loads(json.dumps(space)), 2, 0):
        assert LoraConfig.from_params(params).total_steps == packs.STEPS


def test_a_space_that_is_not_packed_is_refused(cli: Cli) -> None:
    Path("mine.py").write_text(OBJECTIVES)
    Path("mine.yaml").write_text(SPACE)
    code, _, errors = cli("doctor", "mine.yaml", "--pack-test")
    assert code == 2
    assert "only trials of the objective lora are packed, not of" in errors


@pytest.mark.slow
def test_a_configuration_that_cannot_train_is_reported(cli: Cli) -> None:
    Path("short.txt").write_text("short")
    Path("mine.yaml").write_text(
        "version: 1\nname: mine\nobjective: lora\nmetric: val_loss\nbudget: {trials: 4}\n"
        "parameters: {learning_rate: [0.001, 0.01], train_file: short.txt, max_steps: 10}\n"
    )
    code, _, errors = cli("doctor", "mine.yaml", "--pack-test")
    assert code == 1 and "the trials cannot be trained: short.txt: " in errors
    assert "bring more text" in errors and "Traceback" not in errors


def packed(**fields: Any) -> packs.ComparedTrial:
    none, least = ({"reports": each, "adapter": each} for each in (0.0, 1e-6))
    whole: dict[str, Any] = {"params": {}, "wild": False, "others": 2, "value": 1.5, "passed": True}
    whole |= {"difference": none, "identical": True, "sensitivity": None, "allowed": least}
    return packs.ComparedTrial(**(whole | fields))


def told(*trials: packs.ComparedTrial) -> list[str]:
    console = PlainConsole(width=120, record=True, file=io.StringIO())
    conclude_packs(console, packs.PackTestResult(3, 1, list(trials)), "hpsearch doctor --pack-test --seed 3")
    return [" ".join(line.split()) for line in console.export_text().splitlines()]


def test_verdicts_on_packs() -> None:
    wild = packed(wild=True, value=None)
    assert told(packed(), wild) == [
        "trial together with last loss reports adapter",
        "0 2 others 1.500000 0 0 same bits",
        "1 2 others diverged 0 0 same bits",
        "exact: 2 trials on 1 thread; together bit for bit what they are alone, "
        "and the one that diverges disturbs no other",
        "the same trials again: hpsearch doctor --pack-test --seed 3",
    ]
    assert told(packed(), packed(others=0), wild)[4].startswith(
        "exact: 3 trials on 1 thread, 1 of which met no other (docs/packs.md says which do); "
    )
    gaps = {"difference": (2e-5, 3e-4), "sensitivity": (4e-6, 5e-5), "allowed": (4e-5, 5e-4)}
    hot = {name: {"reports": gap[0], "adapter": gap[1]} for name, gap in gaps.items()}
    lines = told(packed(identical=False, **hot), wild)
    assert lines[1] == "0 2 others 1.500000 2e-05 0.0003 4e-05, 0.0005 allowed"
    assert lines[3].startswith("same: 2 trials on 1 thread; together what they are alone up to rounding")
    assert lines[4].startswith("allowed is ten times what a start 1e-7 away changes")
    off = packed(identical=False, difference=None, passed=False)
    assert told(packed(), off)[2:4] == [
        "1 2 others 1.500000 they end differently",
        "not the same: trial 1; leave execution.pack at 1, and report it",
    ]
    assert told(packed(others=0))[2] == (
        "not shown: no two of these trials train together (docs/packs.md says which do)"
    )
    assert told(packed(), packed(wild=True))[3] == "not shown: the trial that was to diverge did not"
