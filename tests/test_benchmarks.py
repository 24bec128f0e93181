"""The benchmarks run; what they measure is asserted nowhere."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import json
import math
import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial
from scipy import stats
from scipy.optimize import approx_fprime

from hpsearch.trainer.data.texts import prompt_and_text

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def lines_of(name: str, *options: str) -> list[str]:
    """What a benchmark prints."""
    command = [sys.executable, str(BENCHMARKS / name), *options]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.benchmark
def test_the_driver_is_measured_beside_its_peer() -> None:
    lines = lines_of("driver.py", "--finished", "12", "--trials", "2", "--rounds", "1")
    assert [line.split()[0] for line in lines[2:]] == ["study.optimize", "hpsearch", "ratio"]


@pytest.mark.benchmark
@pytest.mark.ray
def test_whole_searches_are_measured_beside_their_peers() -> None:
    names = ["study.optimize", "hpsearch optuna", "Tuner.fit, reuse_actors"]
    sizes = ["--trials", "20", "--reports", "2", "--rounds", "1"]  # so many that a search confirms by default
    lines = lines_of("overhead.py", *sizes, "--only", *names)
    assert [line[:26].strip() for line in lines[3:6]] == names
    assert [len(line[26:].split()) for line in lines[3:6]] == [4] * 3
    assert lines[6::2] == ["hpsearch optuna / study.optimize"]


@pytest.mark.benchmark
@pytest.mark.ray
def test_early_stopping_is_compared_on_both_backends() -> None:
    lines = lines_of("early_stopping.py", "--trials", "4", "--seeds", "1")
    assert [line.split()[0] for line in lines[2:]] == ["seed", "0", "median"]
    assert {len(line.split()) for line in lines[3:]} == {10}


@pytest.mark.benchmark
def test_loading_a_text_is_measured(tmp_path: Path) -> None:
    sizes = ["--megabytes", "1", "--files", "9", "--rounds", "1"]
    lines = lines_of("corpora.py", *sizes, "--folder", str(tmp_path))
    assert [line.split()[0] for line in lines[1:]] == ["english", "python", "records.jsonl", "files"]
    assert {len(line.split()) for line in lines[1:]} == {4}
    assert not list(tmp_path.iterdir())


@pytest.mark.benchmark
def test_checkpoints_are_measured(tmp_path: Path) -> None:
    sizes = ["--only", "lora", "--rounds", "1", "--samples", "32"]
    lines = lines_of("checkpoint.py", *sizes, "--folder", str(tmp_path))
    assert [line.split(",")[0] for line in lines[3:]] == ["lora", "lora"]
    assert [len(line[32:].split()) for line in lines[3:]] == [8, 8]
    assert not list(tmp_path.iterdir())


@pytest.mark.benchmark
def test_confirmations_are_judged_where_the_truth_is_known() -> None:
    lines = lines_of("confirm.py", "--studies", "20", "--searches", "1")
    assert len(lines) == 2 + 3 * 2 * 2 + 1 + 4
    assert [line.split()[0] for line in lines[-2:]] == ["random", "tpe"]
    rates = [float(line[34:].split()[0]) for line in lines[2:14]]
    assert all(rate >= 70 for rate in rates), "far from what they state is wrong even of twenty"


@pytest.mark.benchmark
def test_searches_for_a_lora_are_compared_in_the_same_time() -> None:
    sizes = ["--time", "1", "--seeds", "1", "--confirm", "1", "--samples", "240", "--workers", "1"]
    lines = lines_of(
        "lora_search.py", *sizes
    )  # the first training of each comes to its end whatever the time
    row = lines[3].split()
    assert row[0] == "0" and len(row) == 12
    assert int(row[2]) >= 1 and int(row[7]) >= 1, "both come to a winner"
    assert lines[4].startswith("mean difference: ") and lines[4].endswith("(one seed, no interval)")


@pytest.mark.benchmark
def test_what_the_settings_of_a_space_bring_is_simulated() -> None:
    names = ["the space lora", "no early stopping", "the same, told the priors"]
    lines = lines_of("lora_simulated.py", "--searches", "2", "--trainings", "3", "--only", *names)
    assert [line[:26].strip() for line in lines[2:]] == names
    assert [line[26:].count("to") for line in lines[2:]] == [1, 2, 2], "the first row has no difference"
    assert lines[3].split()[-2:] == ["4.0", "2.0"], "the baseline and another end; two more are cut short"


@pytest.mark.benchmark
def test_going_on_after_a_kill_is_measured() -> None:
    lines = lines_of("resume.py", "--finished", "3", "--rounds", "1", "--only", "optuna")
    assert lines[2].split()[:2] == ["optuna", "3"]
    assert len(lines) == 3 and len(lines[2].split()) == 5


@pytest.mark.benchmark
@pytest.mark.parametrize("space", ["plain", "rungs"])
def test_a_study_that_grows_is_measured_beside_optuna(space: str) -> None:
    sizes = ["--trials", "40", "--every", "20", "--proposals", "3", "--rounds", "1", "--space", space]
    lines = lines_of("scale.py", *sizes)
    head = lines.index("") + 1
    assert lines[head - 2].startswith("the last 20 / the first 20") and "ms per trial" in lines[0]
    assert lines[head].split() == ["hpsearch", "Optuna", "ratio"]
    rows = ["list, s", "show, s", "trials --json, s", "first trial, s", "proposal, ms", "longest, ms"]
    assert [line[:20].strip() for line in lines[head + 1 :]] == [*rows, "memory, MiB", "per trial, KiB"]
    assert {len(line[20:].split()) for line in lines[head + 1 :]} == {3}


@pytest.mark.benchmark
@pytest.mark.browser
def test_the_page_is_measured_beside_optuna_dashboard() -> None:
    lines = lines_of("page.py", "--trials", "20", "--rounds", "1", "--watched", "12", "--scrolled", "0.5")
    titles = ["curves, s", "again, s", "table, s", "heap, MiB", "process, MiB", "scrolling, ms"]
    assert re.split(r"  +", lines[0].strip()) == ["trials", *titles, "50 reports/s, ms"]
    assert [line.split()[:2] for line in lines[1:]] == [["hpsearch", "20"], ["optuna-dashboard", "20"]]
    assert {line.count(" to ") for line in lines[1:]} == {7}, "each cell is there"


@pytest.mark.benchmark
def test_training_is_measured_without_the_peers() -> None:
    sizes = ["--sizes", "1x16", "--rounds", "1", "--tokens", "64", "--trial-steps", "2"]
    lines = lines_of("trainer.py", "--only", "together", "evaluation", "where", *sizes)
    cores = len(os.sched_getaffinity(0))
    names = [f"one after another, {cores} threads", f"Optuna, n_jobs={cores}", f"{cores} processes"]
    assert [line[:32].strip() for line in lines[3:6]] == names
    (whole,) = (number for number, line in enumerate(lines) if line.startswith("a whole trial"))
    assert [line[:32].strip() for line in lines[whole + 2 : whole + 4]] == [
        "seconds",
        "of these validating, %",
    ]
    shares = [float(line.split()[-1]) for line in lines[whole + 6 :]]
    assert len(shares) == 9 and sum(shares) == pytest.approx(100, abs=1)


@pytest.mark.benchmark
def test_training_is_measured_beside_peft() -> None:
    missing = [
        name for name in ("transformers", "peft", "accelerate") if importlib.util.find_spec(name) is None
    ]
    command = [sys.executable, str(BENCHMARKS / "trainer.py"), "--only", "trial", "checkpoint"]
    command += ["--sizes", "1x16", "--rounds", "1", "--tokens", "64"]
    result = subprocess.run(command, capture_output=True, text=True)
    if missing:
        assert result.returncode == 2 and "pip install 'hpsearch[bench]'" in result.stderr
        return
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line[:32].strip() for line in lines[3:6]] == ["hpsearch", "plain loop, peft", "HF Trainer, peft"]
    assert [line[:32].strip() for line in lines[-2:]] == ["hpsearch", "torch.save, peft"]


@pytest.mark.benchmark
def test_searches_over_a_framework_are_measured_beside_plain_optuna() -> None:
    command = [sys.executable, str(BENCHMARKS / "frameworks.py"), "--trials", "5", "--seeds", "1"]
    command += ["--libraries", "xgboost", "lightgbm", "--data", "breast_cancer"]
    result = subprocess.run(command, capture_output=True, text=True)
    if importlib.util.find_spec("optuna_integration") is None:
        assert result.returncode == 2 and "pip install 'hpsearch[bench,xgboost,lightgbm]'" in result.stderr
        return
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line.split(",")[0] for line in lines[::7]] == ["xgboost", "lightgbm"]
    for table in (lines[2:7], lines[9:14]):
        assert [len(line[30:].split()) for line in table] == [5] * 5
        trees = [float(line[30:].split()[3]) for line in table]
        assert trees[0] == trees[1] == trees[2] == 100, "the pruner has no whole trials yet"


CURVES = '''
"""Two tasks whose best is known."""

import math


def list_tasks():
    return ["lcbench/near", "lcbench/nearby", "lcbench/far", "lora/other"]


def dev_tasks():
    return ["lcbench/near", "lcbench/nearby"]


def space(task):
    return {
        "rate": {"type": "float", "low": 1e-4, "high": 1.0, "log": True, "default": 0.1},
        "size": {"type": "int", "low": 1, "high": 9, "log": False, "default": 5},
        "kind": {"type": "choice", "values": ["a", "b"], "default": "a"},
    }


def max_epoch(task):
    return 9


def curve(task, config):
    off = abs(math.log10(config["rate"]) + (1.5 if task == "lcbench/near" else 3)) + config["size"] / 9
    return [off + (config["kind"] == "b") + 1 / epoch for epoch in range(1, 10)]


def reference(task):
    return {"best": 2 / 9, "median": 11 / 9}
'''
SEARCHES = [
    "hpsearch",
    "random",
    "one-epoch",
    "few-epochs",
    "optuna-tpe",
    "optuna-hyperband",
    "optuna-median",
    "optuna-auto",
    "optuna-auto-hyperband",
]
TUNE_SEARCHES = ["ray-asha", "ray-asha-tpe"]
PEERS_WITH_PRIOR = ["one-epoch", "few-epochs", "optuna-hyperband", "optuna-auto", "ray-asha"]
EXTRAS = [
    "hpsearch-tpe",
    "hpsearch-prior",
    "hpsearch-default",
    *(f"{name}-prior" for name in PEERS_WITH_PRIOR),
]
SYNE_SEARCHES = ["syne-asha", "syne-mobster", "syne-dyhpo"]
SYNE_TUNE = importlib.util.find_spec("syne_tune") is not None
RIVALS = [
    "neps-hyperband",
    "smac-hyperband",
    "syne-cqr",
    "wandb-bayes",
    "bohb",
]  # each in its own environment
ENVIRONMENTS = "HPSEARCH_ENVIRONMENTS"  # names the folder of these, where there is one


@pytest.fixture
def curves(tmp_path: Path) -> Path:
    """A folder of curves like the one that `search.py` is meant for."""
    (tmp_path / "mfbench.py").write_text(CURVES)
    return tmp_path


@pytest.mark.benchmark
def test_searches_are_compared_over_curves(curves: Path) -> None:
    names = [*SEARCHES, *TUNE_SEARCHES, *EXTRAS, *(SYNE_SEARCHES if SYNE_TUNE else [])]
    options = [
        "--data",
        str(curves),
        "--suites",
        "lcbench",
        "--tasks",
        "lcbench/near",
        "judge",
        "--seeds",
        "1",
    ]
    options += ["--budgets", "1", "3", "--each-task"]
    options += ["--only", *names, "--out", str(curves / "runs.csv"), "--curves", str(curves / "curves.html")]
    lines = lines_of("search.py", *options)
    drawn = (curves / "curves.html").read_text()
    assert [drawn.count(f'"name":"{name}"') for name in names] == [2] * len(names), "a line in each panel"
    assert [line for line in lines if " seeds, " in line] == [
        "2 tasks, 1 seeds, 1 worker",
        "2 tasks, 1 seeds, 4 workers",
    ]
    for heading in (1, lines.index("2 tasks, 1 seeds, 4 workers")):
        table = lines[heading + 3 : heading + 3 + len(names)]
        assert sorted(line.split()[0] for line in table) == sorted(names)
        assert {len(line.split()) for line in table} == {1 + 3 * 2 + 3}
        tasks = lines[heading + 3 + len(names) :][3:5]
        assert [(line.split()[0], len(line.split())) for line in tasks] == [
            (task, 1 + len(names)) for task in ("lcbench/far", "lcbench/near")
        ]
    *runs, last = (curves / "runs.csv").read_text().splitlines(keepends=True)
    told = sum(name.startswith(("hpsearch", "one-epoch", "few-epochs")) for name in names)
    assert len(runs) == 2 * 2 * (len(names) + told), "a search that knows its budget runs for each"
    (curves / "runs.csv").write_text("".join(runs))
    shown = lines_of("search.py", *options, "--show")
    assert "without 1 of the tasks and seeds, which not all contestants have run" in shown
    assert len(lines_of("search.py", *options)) == len(lines)
    *again, made = (curves / "runs.csv").read_text().splitlines(keepends=True)
    assert again == runs, "what was run is not run again"
    assert made.split(",")[:6] == last.split(",")[:6]


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark of searches, which imports its neighbour."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return benchmark("search")


def test_a_line_that_a_kill_has_cut_short_is_no_run(search: Any, tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    file.touch()  # as a kill before the header leaves it
    plans = [search.Plan("random", "near", seed, 1, False, 2) for seed in range(3)]
    runs = search.Runs(file, 2)
    for plan in plans[:2]:
        runs.take(search.Run(plan, 0.5, 3, 2, (0.25, 0.125)))
    file.write_bytes(cut := file.read_bytes()[:-4])
    again = search.Runs(file, 2)
    assert again.find(plans[0]).best == (0.25, 0.125) and again.find(plans[1]) is None
    assert file.read_bytes() == cut, "reading runs leaves the file as it is"
    again.take(search.Run(plans[2], 0.5, 3, 2, (0.5, 0.5)))
    third = search.Runs(file, 2)
    assert [third.find(plan) is not None for plan in plans] == [True, False, True]


def test_searches_without_such_runs_are_named_and_do_not_empty_the_table(
    search: Any, curves: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (curves / "runs.csv").write_text(
        "contestant,task,seed,workers,default,budget,seconds,trials,finished,best_1\n"
        "random,lcbench/near,0,1,False,1,0.1,1,1,0.5\n"
        "ray-asha,lcbench/near,0,4,False,1,0.1,1,1,0.5\n"
    )
    command = [
        "search.py",
        "--data",
        str(curves),
        "--out",
        str(curves / "runs.csv"),
        "--show",
        "--no-default",
    ]
    command += ["--budgets", "1", "--seeds", "1", "--tasks", "lcbench/near", "--workers", "1"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit, match="0"):
        search.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["1 tasks, 1 seeds, 1 worker", "without ray-asha: no such runs"]
    assert lines[5].split()[0] == "random"


def test_searches_that_are_not_installed_are_left_out_loudly(
    search: Any, curves: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(ENVIRONMENTS, raising=False)
    if SYNE_TUNE:
        assert search.present(None) == [*SEARCHES, *TUNE_SEARCHES, *SYNE_SEARCHES[:2]], "one is an extra"
        return
    assert search.present(None) == [*SEARCHES, *TUNE_SEARCHES]
    said = capsys.readouterr().err
    assert said.startswith("LEFT OUT: syne-asha: syne_tune is not installed; syne-mobster: ")
    assert "; bohb: the environment hpbandster is not installed (--help" in said
    monkeypatch.setattr(sys, "argv", ["search.py", "--data", str(curves), "--only", "syne-asha"])
    with pytest.raises(SystemExit, match="2"):
        search.main()
    said = capsys.readouterr().err
    (curves / "runs.csv").write_text(
        "contestant,task,seed,workers,default,budget,seconds,trials,finished,best_1\n"
        "syne-asha,lcbench/near,0,1,False,1,0.1,1,1,0.5\n"
    )
    shown = [*sys.argv[:3], "--show", "--out", str(curves / "runs.csv"), "--budgets", "1", "--seeds", "1"]
    monkeypatch.setattr(sys, "argv", [*shown, "--tasks", "lcbench/near", "--workers", "1", "--no-default"])
    with pytest.raises(SystemExit, match="0"):
        search.main()
    assert "syne-asha" in capsys.readouterr().out, "what others have run is shown"
    assert said.endswith("--only: syne-asha: syne_tune is not installed (--help says how to install it)\n")


def test_searches_whose_environment_is_there_are_compared(
    search: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "smac" / "bin").mkdir(parents=True)
    (tmp_path / "smac" / "bin" / "python").touch()
    monkeypatch.setenv(ENVIRONMENTS, str(tmp_path))
    assert [name for name in search.present(None) if name in RIVALS] == ["smac-hyperband"]


RIVAL = """
import os
import random
import sys

sys.path.insert(0, {folder!r})
import rivals


class Random(rivals.Halving):
    \"""Every second trial goes on from the first rung to the end.\"""

    def __init__(self, task):
        super().__init__()
        self._task, self._random = task, random.Random(task.seed)
        self._configs, self._waiting = [], []
        print("printed by the tool, and no answer")

    def ask(self):
        if self._waiting:
            trial = self._waiting.pop()
            return trial, self._configs[trial], self._task.epochs
        if {dies} and len(self._configs) == 3:
            sys.exit("no more ideas")
        config = self._task.first if not self._configs else None
        self._configs.append(config or {{
            name: self._random.choice(p["values"]) if p["type"] == "choice" else
            self._random.randint(p["low"], p["high"]) if p["type"] == "int" else
            p["low"] * (p["high"] / p["low"]) ** self._random.random()
            for name, p in self._task.parameters.items()
        }})
        return len(self._configs) - 1, self._configs[-1], self._task.first_rung

    def tell(self, trial, value):
        if value < 1000 and trial % 2 == 0 and self._until[trial] < self._task.epochs:
            self._waiting.append(trial)


rivals.serve(Random)
"""


@pytest.fixture
def begun(search: Any, curves: Path, tmp_path: Path) -> Any:
    """Begins a search that a small program makes, in a process of its own."""
    suites = search.Suites(curves)
    contestants = sys.modules["contestants"]

    def begin(seed: int, dies: bool = False, diverges: bool = False) -> tuple[Any, Any]:
        program = tmp_path / "rival.py"
        program.write_text(RIVAL.format(folder=str(BENCHMARKS), dies=dies))
        task = search.Task(
            suites.space("lcbench/near"),
            9,
            lambda config: [math.inf] * 9 if diverges else suites.reported("lcbench/near", config, 0),
            lambda config: suites.expected("lcbench/near", config),
            None,
            dict,
        )
        task = replace(task, first=task.default)
        return contestants.Rival(task, seed, [sys.executable, "-P", program]), task

    return begin


def test_a_search_in_a_process_of_its_own_resumes_trials_and_repeats(search: Any, begun: Any) -> None:
    rival, task = begun(0)
    first = rival.next()
    assert (first.config, first.done) == (task.default, 0)
    first.done = 1
    assert rival.goes_on(first, 0.5) is False, "the first rung"
    assert rival.next() is first, "it resumes"
    for first.done in range(2, 9):
        assert rival.goes_on(first, 0.5) is True
    first.done = 9
    assert rival.goes_on(first, 0.5) is False, "the end"
    assert rival.next().config != first.config
    rival.close(0)
    told = [search.simulate(*begun(seed), workers, 90) for workers in (1, 3) for seed in (0, 0, 1)]
    assert told[0] == told[1] != told[2]
    assert told[3] == told[4] != told[5]
    assert {(made.trials, made.finished) for made in told[:3]} == {(18, 9)}
    diverged = search.simulate(*begun(0, diverges=True), 1, 40)
    assert (diverged.trials, diverged.finished) == (40, 0), "each ends after an epoch"


def test_a_search_in_a_process_of_its_own_that_dies_says_why(search: Any, begun: Any) -> None:
    with pytest.raises(RuntimeError, match=r"the search ended with code 1: \S+ -P \S+rival.py") as raised:
        search.simulate(*begun(0, dies=True), 1, 40)
    assert str(raised.value).endswith("\nprinted by the tool, and no answer\nno more ideas")


def test_an_environment_that_no_tool_has_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rivals = benchmark("rivals")
    monkeypatch.setattr(sys, "argv", ["rivals.py", "install", "--into", str(tmp_path), "smack"])
    with pytest.raises(SystemExit, match="2"):
        rivals.main()
    assert "no environment smack; there are hpbandster, neps, smac, " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.benchmark
@pytest.mark.parametrize("name", [*RIVALS, "neps-priorband", "neps-priorband-prior"])
def test_a_search_of_another_environment_repeats(search: Any, curves: Path, name: str) -> None:
    if (package := search.missing(name)) is not None:
        pytest.skip(f"{package} is not installed")
    for workers, default in ((1, True), (4, False)):
        made = [
            search.run(search.Plan(name, "lcbench/near", seed, workers, default, 5), curves)
            for seed in (0, 0, 1)
        ]
        assert made[0].best == made[1].best != made[2].best
        assert made[0].trials == made[1].trials > 5 > made[0].finished


def test_searches_are_ranked_by_what_they_found(search: Any) -> None:
    found = {"a": ([0.1, 0.3], [0.2, 0.2]), "b": ([0.1, 0.2], [0.4, 0.2])}
    runs = [
        search.Run(search.Plan(name, task, seed, 1, True, 2), 1.0, 3, 2, (9.0, value))
        for name, tasks in found.items()
        for task, values in zip(("x", "y"), tasks, strict=True)
        for seed, value in enumerate(values)
    ]
    unequal = search.Run(search.Plan("a", "x", 2, 1, True, 2), 1.0, 3, 2, (9.0, 0.0))
    table = search.Table(["a", "b"], [*runs, unequal], lambda task, value: value)
    assert table.left_out == 1
    assert table.ranks(1) == {"a": 1.5, "b": 1.5}
    assert table.ranks(2) == {"a": (1.5 + 2 + 1 + 1.5) / 4, "b": (1.5 + 1 + 2 + 1.5) / 4}
    assert table.mean_regret("b", 2) == pytest.approx(0.225)
    assert table.worst("a", 2) == pytest.approx(0.22 / 0.17)
    assert table.worst("b", 2) == pytest.approx(0.32 / 0.22)


def test_a_search_is_judged_after_each_budget_by_the_run_that_had_it(search: Any) -> None:
    def made(budget: int, *best: float) -> Any:
        return search.Run(search.Plan("a", "x", 0, 1, True, budget), 1.0, budget, 1, best)

    found = search.joined([made(4, 9.0, 8.0, 7.0, 6.0), made(2, 9.0, 5.0)])
    assert found.best == (9.0, 5.0, 7.0, 6.0)
    assert found.plan.budget == found.trials == 4


# The suites of curves.


def test_tasks_are_named_after_their_suite_and_chosen_by_their_role(search: Any, curves: Path) -> None:
    suites = search.Suites(curves)
    roles = suites.roles(["lcbench"])
    assert roles == {"lcbench/near": "dev", "lcbench/nearby": "dev", "lcbench/far": "judge"}
    assert search.chosen(["judge", "lcbench/far", "lcbench/near"], roles) == ["lcbench/far", "lcbench/near"]
    with pytest.raises(search.WrongUse, match=r"--tasks: no far; there are all, dev, judge, lcbench/near"):
        search.chosen(["far"], roles)
    assert suites.reference("lcbench/near").median == 11 / 9
    with pytest.raises(search.WrongUse, match=r"--data: found no data/scan/vlm.csv in "):
        suites.roles(["scan"])
    with pytest.raises(search.WrongUse, match=r"--data: name the folder that contains mfbench.py"):
        search.Suites(None).roles(["taskset"])


@pytest.fixture
def lora_table(recorder: Any, tmp_path: Path) -> Path:
    """A table in which a high rate ends best: its losses fall to 1.2, those of the lowest to 1.76."""
    table, configs = sys.modules["lora_table"], recorder.configurations(24)

    def losses(config: dict[str, Any], seed: int) -> tuple[float, ...]:
        end = 1.2 + 0.001 * seed + (math.log10(config["learning_rate"]) + 1) ** 2 / 16
        return 2.0, (2.0 + end) / 2, end

    runs = [table.Run("english", n, 0, 1.0, losses(config, 0)) for n, config in enumerate(configs)]
    runs += [table.Run("english", n, seed, 1.0, losses(configs[n], seed)) for n in (3, 4) for seed in (1, 2)]
    runs[5] = replace(runs[5], losses=(3.0, math.inf, math.inf))
    runs += [replace(run, task="python") for run in runs[6:12]]
    runs.append(replace(runs[5], task="python", seed=1))
    table.write_runs(tmp_path, runs)
    return tmp_path


def test_a_lora_trains_as_a_model_of_the_recorded_ones_says(
    recorder: Any, lora_table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = benchmark("suites").LoraCurves(lora_table)
    assert suite.tasks() == {"english": True, "python": False}
    assert suite.epochs("english") == 3
    space = suite.space("english")
    assert space["lora_r"] == {"type": "int", "low": 1, "high": 64, "log": True, "default": 8}
    assert space["batch_size"] == {"type": "choice", "values": [2, 4, 8, 16, 32], "default": 8}
    known, configs = suite.recorded["english"], recorder.configurations(24)
    end = 1.2 + (math.log10(configs[3]["learning_rate"]) + 1) ** 2 / 16
    assert len(suite.recorded["python"].losses) == 6, "one without seed 0 would have another's noise"
    assert known.losses[3, -1] == pytest.approx(end + 0.001, abs=1e-5), "the mean of the seeds 0, 1 and 2"
    configs = [{"warmup_ratio": 0.25} | config for config in configs]
    means = np.array([suite.curves("english", config).mean(axis=0) for config in configs])
    usual = np.isfinite(known.losses[:, -1])
    assert means[usual] == pytest.approx(known.losses[usual], abs=0.05)
    assert np.isfinite(means).all() and means[~usual][0, -1] > 1.9, "the worst that was recorded"
    seeds = suite.curves("english", configs[0])
    monkeypatch.setattr(sys.modules["lora_table"], "NOISE", 0.0)
    shown = suite.curves("english", configs[0])
    assert seeds.shape == (10, 3)
    assert seeds.mean(axis=0) == pytest.approx(shown[0], abs=1e-9), "noise adds up to nothing"
    assert 0.002 < np.std(seeds[:, -1]) < 0.01 and np.ptp(seeds[:, 0] - seeds[:, -1]) < 1e-9
    constant = next(config for config in configs if config["lr_scheduler"] == "constant")
    unused = suite.curves("english", constant | {"warmup_ratio": 0.1})
    assert np.array_equal(unused, suite.curves("english", constant))
    reference = suite.reference("english")
    assert means.min() - 0.1 < reference.best <= means.min() < reference.median
    again = benchmark("suites").LoraCurves(lora_table)
    assert np.array_equal(again.curves("english", configs[0]), shown)


def test_a_model_predicts_what_the_nearest_neighbour_cannot(
    lora_table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["curve_model.py", "--table", str(lora_table)])
    benchmark("suites")  # with the recorder's places
    benchmark("curve_model").main()
    printed = capsys.readouterr().out
    _, neighbour, model, few = (line.split() for line in printed.splitlines())
    assert neighbour[:4] == ["lora-curves/english", "24", "nearest", "neighbour"]
    assert model[:3] == ["lora-curves/english", "24", "model"]
    assert float(model[-1]) > 0.5 > 0.2 > float(neighbour[-1]), printed
    assert few[:3] == ["lora-curves/python", "6", "too"]


def test_a_model_does_not_know_what_is_hidden_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    rng = np.random.default_rng(0)
    points, losses = rng.random((40, 2)), rng.random((40, 3))
    ends = losses[:, -1]
    for found in benchmark("curve_model").hidden(points, losses):
        assert abs(np.corrcoef(ends, found)[0, 1]) < 0.4, "there is nothing to know"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--table", "nothing"], "--table: found no runs in nothing"),
        (["--data", "nothing"], "--data: found no data/scan/vlm.csv in nothing"),
    ],
)
def test_a_table_that_is_not_there_is_named(
    options: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr(sys, "argv", ["curve_model.py", *options])
    with pytest.raises(SystemExit, match="2"):
        benchmark("curve_model").main()
    assert capsys.readouterr().err.endswith(f"error: {told}\n")


def test_every_trial_draws_a_recorded_seed_and_is_judged_by_their_mean(
    search: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    suites = search.Suites(None)
    curves = np.array([[3.0, 1.0], [3.0, 2.0], [3.0, 6.0]])
    monkeypatch.setattr(suites, "curves", lambda task, config: curves)
    drawn = [suites.reported("t", {"x": x, "y": 1}, 0)[1] for x in range(50)]
    assert set(drawn) == {1.0, 2.0, 6.0}
    assert drawn == [suites.reported("t", {"y": 1, "x": x}, 0)[1] for x in range(50)]
    assert drawn != [suites.reported("t", {"x": x, "y": 1}, 1)[1] for x in range(50)]
    task = search.Task(
        {"x": {"type": "float", "low": 0.0, "high": 1.0, "log": False, "default": 0.5}},
        2,
        lambda config: suites.reported("t", config, 0),
        lambda config: suites.expected("t", config),
        None,
        dict,
    )
    told = search.simulate(search.CONTESTANTS["random"].begin(task, 0, 8), task, 1, 8)
    assert told.best == [3.0] * 8, "the mean, not a lucky seed"


@pytest.mark.parametrize("first", [None, {"kind": "short", "size": 3.0}])
@pytest.mark.parametrize("name", [*SEARCHES, *TUNE_SEARCHES, "hpsearch-baseline"])
def test_a_search_is_told_when_parameters_exist(search: Any, name: str, first: dict[str, Any] | None) -> None:
    """A full configuration is tried first: other searches need a value for each parameter."""
    space: dict[str, dict[str, Any]] = {
        "kind": {"type": "choice", "values": ["short", "long"], "default": "short"},
        "size": {"type": "float", "low": 1.0, "high": 9.0, "log": True, "default": 3.0},
    }
    space["size"]["when"] = {"kind": ["long"]}
    seen: list[dict[str, Any]] = []

    def curve(config: dict[str, Any]) -> list[float]:
        seen.append(config)
        return [config.get("size", 2.0)] * 3

    task = search.Task(space, 3, curve, curve, first, dict)
    search.simulate(search.CONTESTANTS[name].begin(task, 0, 24), task, 1, 24)
    assert {config["kind"] for config in seen} == {"short", "long"}
    assert all(("size" in config) == (config["kind"] == "long") for config in seen)
    assert first is None or seen[0] == {"kind": "short"}


def test_a_clip_model_is_known_at_the_checkpoints_that_it_has_passed(search: Any, tmp_path: Path) -> None:
    suites = sys.modules["suites"]
    names = list(suites.Scan.SPACE)
    lines = [",".join(["config_id", "epoch", *names, "epoch_diverged", "val_loss", "total_epochs"])]
    runs: dict[
        float, tuple[int, list[float | None]]
    ] = {  # by rate: epochs planned, and their losses; the last of a diverged one is not in use
        1e-4: (7, [7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]),
        1e-3: (5, [5.0, 4.0, 3.0, 2.0, 1.5]),
        1e-2: (10, [9.0, 8.0, 7.0, None]),
        2e-2: (4, [0.4, 0.3, 0.2, 0.1]),
    }
    default = {name: p["default"] for name, p in suites.Scan.SPACE.items()}
    for number, (rate, (planned, losses)) in enumerate(runs.items()):
        values = [rate if name == "lr" else default[name] for name in names]
        for epoch, loss in enumerate(losses, start=1):
            end = [loss is None, 4.8 if loss is None else loss, float(planned)]
            lines.append(",".join(map(str, [number, epoch, *values, *end])))
    (tmp_path / "data" / "scan").mkdir(parents=True)
    (tmp_path / "data" / "scan" / "vlm.csv").write_text("\n".join(lines))
    asked = search.Suites(tmp_path)
    assert asked.roles(["scan"]) == {"scan/clip": "judge"}

    def curve(rate: float) -> Any:
        return asked.expected("scan/clip", default | {"lr": rate}).tolist()

    assert curve(2e-4) == [7.0, 6.0, 4.0, 3.0, 1.0]
    assert curve(4e-4) == runs[1e-3][1], "nearer by its order of magnitude"
    assert curve(2e-2) == [8.0, math.inf, math.inf, math.inf, math.inf], "the one of four epochs is left out"
    assert asked.reference("scan/clip").best == 1.0
    assert asked.roles(["scan-model"]) == {"scan-model/clip": "judge"}
    modelled = asked.curves("scan-model/clip", default | {"lr": 1e-4})
    assert modelled.shape == (10, 5)
    assert modelled.mean(axis=0) == pytest.approx(curve(1e-4), abs=0.2), "as far as noise allows"
    assert 0 < np.std(modelled[:, -1]) < 0.2
    assert 0.8 < asked.reference("scan-model/clip").best < 1.1


def test_the_surrogate_of_xgboost_sees_what_its_booster_uses(
    search: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    xgboost = sys.modules["suites"].Xgboost

    def described(name: str) -> dict[str, Any]:
        kind = "uniform_int" if name in ("nrounds", "max_depth", "repl") else "uniform_float"
        return {"name": name, "type": kind, "log": name == "eta", "lower": 0.01, "upper": 1000}

    choices = {
        "task_id": ["16", "3"],
        "booster": ["gblinear", "gbtree", "dart"],
        "num.impute.selected.cpo": ["impute.mean", "impute.hist"],
    }
    space = {
        "hyperparameters": [
            *({"name": name, "type": "categorical", "choices": its} for name, its in choices.items()),
            *map(described, xgboost.NUMBERS),
        ],
        "conditions": [
            {"child": "eta", "type": "IN", "values": ["dart", "gbtree"]},
            {"child": "rate_drop", "type": "EQ", "value": "dart"},
        ],
    }
    codes = {name: {"#na#": 0} | {its[n]: n + 1 for n in range(len(its))} for name, its in choices.items()}
    folder = tmp_path / "data" / "rbv2_xgboost"
    folder.mkdir(parents=True)
    (folder / "config_space.json").write_text(json.dumps(space))
    (folder / "encoding.json").write_text(json.dumps(codes))
    (folder / "model.onnx").touch()
    seen: list[NDArray[np.float64]] = []

    class Session:
        """A surrogate that is better with more data, in later replications, and with a faster rate."""

        def __init__(self, *_: object, **__: object) -> None: ...

        def run(self, _: None, inputs: dict[str, NDArray[np.float64]]) -> list[NDArray[np.float64]]:
            seen.append(np.concatenate([inputs["x_cat"], inputs["x_cont"]], axis=1))
            place = {name: number for number, name in enumerate(xgboost.NUMBERS)}
            accuracy = sum(inputs["x_cont"][:, place[name]] for name in ("trainsize", "eta")) / 4
            return [(accuracy + inputs["x_cont"][:, place["repl"]] / 100)[:, None]]

    runtime = SimpleNamespace(InferenceSession=Session, SessionOptions=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    suites = search.Suites(tmp_path)
    assert suites.roles(["rbv2_xgboost"]) == {"rbv2_xgboost/16": "dev", "rbv2_xgboost/3": "judge"}
    space_of_3 = suites.space("rbv2_xgboost/3")
    assert not {"task_id", "trainsize", "repl"} & set(space_of_3)
    assert not any("." in name for name in space_of_3), "to hpsearch, a dot nests"
    config = {name: p["default"] for name, p in space_of_3.items()}
    assert config["booster"] == "gbtree" and config["alpha"] == 0.01, "XGBoost's own is below the range"
    assert {name: p["when"] for name, p in space_of_3.items() if "when" in p} == {
        "eta": {"booster": ["dart", "gbtree"]},
        "rate_drop": {"booster": ["dart"]},
    }
    curves = suites.curves("rbv2_xgboost/3", config)
    assert curves.shape == (10, 25)
    assert curves[9, 24] == pytest.approx(1 - (1 + 0.3) / 4 - 0.1)
    assert curves[0, 0] == pytest.approx(1 - (0.03 + 0.3) / 4 - 0.01)
    first = dict(zip([*xgboost.CHOICES, *xgboost.NUMBERS], seen[-1][0], strict=True))
    assert [first[name] for name in xgboost.CHOICES] == [2, 2, 1]
    assert first["rate_drop"] == 0 and first["eta"] == pytest.approx(0.3)
    linear = suites.curves("rbv2_xgboost/3", config | {"booster": "gblinear"})
    assert linear == pytest.approx(curves + 0.3 / 4)
    without = {name: value for name, value in config.items() if name not in ("eta", "rate_drop")}
    assert np.array_equal(suites.curves("rbv2_xgboost/3", without | {"booster": "gblinear"}), linear)
    known = suites.reference("rbv2_xgboost/3")
    assert known.best < known.median < 1
    assert search.known(suites, "rbv2_xgboost/3")["eta"] > 1, "a prior from the task that may be tuned on"


# The searches that this program has to write itself.


@pytest.mark.parametrize("workers", [1, 4])
def test_i_epoch_tries_many_and_trains_the_best_three_to_the_end(search: Any, workers: int) -> None:
    space = {"x": {"type": "float", "low": 0.0, "high": 1.0, "log": False, "default": 0.5}}
    trained: Counter[float] = Counter()

    class Counting(search.Task):  # type: ignore[misc]
        def value(self, config: dict[str, Any], epoch: int) -> float:
            trained[config["x"]] += 1
            return math.inf if config["x"] < 0.2 else float(config["x"] + 1 / epoch)

        def expected(self, config: dict[str, Any], epoch: int) -> float:
            return float(config["x"] + 1 / epoch)

    task = Counting(space, 9, None, None, {"x": 0.5}, dict)
    told = search.simulate(search.CONTESTANTS["one-epoch"].begin(task, 0, 5 * 9), task, workers, 5 * 9)
    kept = sorted(x for x in trained if x >= 0.2)
    assert told.trials == 5 * 9 - 3 * 8 == len(trained) and 0.5 in trained and kept[0] > min(trained)
    assert [trained[x] for x in kept] == [9] * 3 + [1] * (len(kept) - 3)
    assert told.finished == 3 and told.best[-1] == pytest.approx(kept[0] + 1 / 9)
    alone = search.simulate(search.CONTESTANTS["one-epoch"].begin(task, 0, 9), task, workers, 9)
    assert (alone.trials, alone.finished) == (1, 1), "one full training run is one trial"
    hopeless = replace(task, first={"x": 0.1})
    told = search.simulate(search.CONTESTANTS["one-epoch"].begin(hopeless, 0, 9), task, workers, 9)
    assert told.trials > 1, "what a diverged trial leaves is spent on others"


def test_optunas_recommendation_depends_on_the_space(search: Any) -> None:
    contestants = sys.modules["contestants"]
    number = {"type": "int", "low": 0, "high": 9, "log": False, "default": 5}
    word = {"type": "choice", "values": ["a", "b"], "default": "a"}
    for space, sampler in (({"x": number}, "GPSampler"), ({"x": number, "y": word}, "TPESampler")):
        task = search.Task(space, 9, None, None, None, dict)
        assert type(contestants.recommended(task, 0)).__name__ == sampler


# Syne Tune's model of curves: what `exp_decay.py` computes is what its formulas say.


def curves_of(configs: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Configurations of three parameters that have come to some of four rungs, out of order, and their values."""
    random = np.random.default_rng(seed)
    reports = [(*config, rung / 4) for config in random.random((configs, 3)) for rung in (1, 2, 3, 4)]
    reports = [reports[place] for place in random.permutation(len(reports))[: 3 * configs]]
    features = np.array(reports)
    return features, np.exp(-features[:, -1]) + features[:, 0] + 0.1 * random.normal(size=len(features))


def by_definition(features: NDArray[np.float64], targets: NDArray[np.float64], point: list[float]) -> float:
    """The negative log likelihood and log prior, written down report by report."""
    noise, scale, *bandwidths, alpha, lam, gamma = np.exp(point[:-1])
    beta = alpha / lam

    def kappa(resource: float) -> float:
        return float((beta / (resource + beta)) ** alpha)

    def covariance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
        distance = math.sqrt(5 * ((one - other)[:-1] ** 2 @ np.square(bandwidths)) + 1e-9)
        of_configs = scale * (1 + distance + distance**2 / 3) * math.exp(-distance)
        resources = kappa(one[-1] + other[-1]) - kappa(one[-1]) * kappa(other[-1])
        return float(of_configs + gamma**2 * resources)

    matrix = [[covariance(one, other) for other in features] for one in features]
    mean = [point[-1] + gamma * kappa(resource) for resource in features[:, -1]]
    likelihood = stats.multivariate_normal(mean, np.array(matrix) + noise * np.eye(len(features))).logpdf(
        targets
    )
    priors = stats.gamma(0.1, scale=1).logpdf(noise) + stats.lognorm(1).logpdf(scale)
    priors += stats.norm().logpdf(point[-1]) + math.log(2 * math.pi)  # whose constants Syne Tune leaves out
    return float(-likelihood - priors + len(bandwidths) * math.log(100 - 1e-4))


@pytest.mark.parametrize("seed", range(4))
def test_the_model_of_curves_is_the_one_that_is_written_down(seed: int) -> None:
    exp_decay = benchmark("exp_decay")
    features, targets = curves_of(6, seed)
    likelihood = exp_decay.Likelihood(features, targets)
    point = np.random.default_rng(seed).normal(scale=0.7, size=9) - [3, 0, 0, 0, 0, 0, 0, 0, 0]
    value, gradient = likelihood(point)
    assert value == pytest.approx(by_definition(features, targets, list(point)), rel=1e-9)

    def value_at(at: NDArray[np.float64]) -> float:
        return float(likelihood(at)[0])

    differences = approx_fprime(point, value_at, 1e-6)
    assert gradient == pytest.approx(differences, rel=1e-3, abs=1e-3)


def test_the_model_of_curves_takes_as_little_jitter_as_it_can() -> None:
    exp_decay = benchmark("exp_decay")
    singular = np.ones((3, 3))
    factor = exp_decay.cholesky(singular.copy(), 0.0)
    added = (factor @ factor.T - singular).diagonal()
    assert added == pytest.approx(np.full(3, 1e-9), rel=1e-3)
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        exp_decay.cholesky(-1e6 * np.eye(2), 0.0)


@pytest.mark.skipif(not SYNE_TUNE, reason="Syne Tune is not installed")
def test_the_model_of_curves_is_that_of_syne_tune(
    search: Any, curves: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exp_decay = sys.modules["contestants"].exp_decay  # the one that the search uses
    model = importlib.import_module(f"{exp_decay.PACKAGE}.bayesopt.gpautograd.gp_model")
    theirs, by_hand, asked = model.create_lbfgs_arguments, exp_decay.objective, []

    def both(criterion: Any, crit_args: list[Any], verbose: bool = False) -> Any:
        ours, _ = by_hand(criterion, crit_args)
        fits, parameters = theirs(criterion, crit_args, verbose)

        def compared(point: Any) -> Any:
            value, gradient = fits(point)
            asked.append(point)
            assert ours(point)[0] == pytest.approx(value, rel=1e-6)
            assert ours(point)[1] == pytest.approx(gradient, rel=1e-3, abs=1e-3)
            return value, gradient

        return compared, parameters

    monkeypatch.setattr(exp_decay, "objective", both)
    search.run(search.Plan("syne-dyhpo", "lcbench/near", 0, 1, False, 3), curves)
    assert len(asked) > 100
    assert model.create_lbfgs_arguments is theirs


# Chaos: what it finds in order, and that it would find what is not.


@pytest.mark.benchmark
def test_a_search_under_chaos_keeps_its_promises() -> None:
    lines = lines_of("chaos.py", "--minutes", "0.15", "--backends", "optuna", "--workers", "2")
    cells = {line[:36].strip(): line[36:].split() for line in lines[2:]}
    assert cells["workers"] == ["2", "1"]
    assert cells["no report lost"] == cells["exactly the budget's trials"] == ["ok", "ok"]
    assert cells["equals an undisturbed search"] == ["-", "ok"]


@pytest.mark.benchmark
def test_a_server_under_chaos_keeps_its_promises() -> None:
    lines = lines_of("chaos.py", "--serve", "--minutes", "0.2")
    cells = {line[:36].strip(): line[36:].split() for line in lines}
    first = list(cells).index("exactly the budget's trials")
    assert {cell for row in list(cells.values())[first:] for cell in row} == {"ok", "-"}
    assert all(int(count) > 0 for what in ("searches", "trials", "reports sent") for count in cells[what][:2])
    assert cells["queue order kept"] == ["ok", "-", "-"]


@pytest.mark.benchmark
def test_a_queue_is_compared_with_what_it_foresaw() -> None:
    lines = lines_of("foreseen.py", "--studies", "3", "--scale", "0.3")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    assert [row[0] for row in cells[2:]] == ["low", "high", "two cores"]
    assert {len(row) for row in cells} == {9}
    assert [line.split(":")[0] for line in lines[5:]] == ["begin", "end", "end at begin", "low"]


def benchmark(name: str) -> Any:
    """A benchmark as a module."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def evidence(module: Any, database: Path) -> Any:
    """Three trials that ran to their ends, and what they noted."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE trials (study_id INTEGER, number INTEGER)")
    trials, notes = [], {}
    for number in range(3):
        params = {"x": number / 10, "y": number / 7}
        values = {step: params["x"] + 1 / step for step in range(1, module.LAST + 1)}
        trial = create_trial(
            state=TrialState.COMPLETE,
            value=values[module.LAST],
            params=params,
            distributions=dict.fromkeys(params, FloatDistribution(0.0, 1.0)),
            intermediate_values=values,
        )
        trial.number = number
        trials.append(trial)
        lines: list[dict[str, Any]] = [{"what": "begins", "pid": 10 + number, "at": 0.0, "step": 0, **params}]
        for step, value in values.items():
            for what, at in (("sends", step), ("heard", step + 0.5)):
                lines.append({"what": what, "pid": 10 + number, "at": at, "step": step, "value": value})
        notes[number] = lines
    return module.Evidence(trials, 3, notes, database)


def lose_a_report(found: Any) -> None:
    del found.trials[1].intermediate_values[5]
    found.notes[1][:] = [n for n in found.notes[1] if n["step"] != 5 or n["what"] == "heard"]


def change_a_value(found: Any) -> None:
    found.trials[1].intermediate_values[5] += 1e-16
    found.notes[1][:] = [n for n in found.notes[1] if n["step"] != 5 or n["what"] != "heard"]


def lose_a_trial(found: Any) -> None:
    del found.trials[2]


def fail_a_trial(found: Any) -> None:
    found.trials[0].state = TrialState.FAIL


def draw_twice(found: Any) -> None:
    found.trials[2].params = found.trials[1].params


def change_parameters(found: Any) -> None:
    found.notes[0].append({**found.notes[0][0], "x": 0.9, "at": 100.0})


def run_twice(found: Any) -> None:
    found.notes[2].insert(20, {**found.notes[2][0], "pid": 99, "at": found.notes[2][19]["at"] + 0.1})


def write_twice(found: Any) -> None:
    with closing(sqlite3.connect(found.database)) as connection, connection:
        connection.execute("INSERT INTO trials VALUES (1, 0), (1, 1), (1, 1), (2, 1)")


@pytest.mark.parametrize(
    ("harm", "checks"),
    [
        (None, set()),
        (lose_a_report, {"no report lost", "no report invented"}),
        (change_a_value, {"no report invented"}),
        (lose_a_trial, {"exactly the budget's trials", "no report lost"}),
        (fail_a_trial, {"exactly the budget's trials"}),
        (draw_twice, {"no duplicate trial"}),
        (change_parameters, {"no duplicate trial"}),
        (run_twice, {"no trial in two processes at once"}),
        (write_twice, {"database intact (integrity_check)"}),
    ],
)
def test_chaos_finds_what_went_wrong(tmp_path: Path, harm: Any, checks: set[str]) -> None:
    module = benchmark("chaos")
    found = evidence(module, tmp_path / "trials.db")
    if harm is not None:
        harm(found)
    assert {name for name, check in module.CHECKS.items() if check(found)} == checks


@pytest.mark.benchmark
def test_late_bloomers_are_sought(tmp_path: Path) -> None:
    space = tmp_path / "space.yaml"
    space.write_text(LATE)
    lines = lines_of("late_bloomers.py", "--space", str(space), "--trials", "6", "--orders", "2")
    assert lines[0].startswith("6 trials of late")
    assert {len(line[18:].split()) for line in lines[1:]} == {5} and len(lines) == 9


LATE = """
version: 1
name: late
objective: lora
metric: val_loss
parameters:
  learning_rate: {min: 1e-4, max: 1e-2, log: true}
  lr_scheduler: [constant, cosine]
  lora_r: 2
  batch_size: 4
  max_length: 16
  eval_samples: 2
  max_samples: 48
  eval_every: 4
early_stopping: {method: asha, min: 4, max: 48}
"""


# The recorder of LoRA's curves.


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The recorder, whose runs have 12 samples and 3 reports here."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    table, module = benchmark("lora_table"), benchmark("lora_curves")
    monkeypatch.setattr(table, "SAMPLES", 12)
    monkeypatch.setattr(table, "EVERY", 4)
    for each in (table, module):
        monkeypatch.setattr(each, "PLACES", (4, 8, 12))
    monkeypatch.setattr(table, "SHOWN", (4, 8))
    return module


def test_configurations_are_spread_over_the_space_from_the_first(recorder: Any) -> None:
    table, configs = sys.modules["lora_table"], recorder.configurations(64)
    assert configs[0] == table.wide_space().space.baseline() and configs[:17] == recorder.configurations(17)
    assert len({json.dumps(config) for config in configs}) == 64
    for name, many in {"batch_size": 5, "lora_r": 7, "lora_dropout": 7, "lr_scheduler": 3}.items():
        counts = Counter(config[name] for config in configs[1:])
        assert len(counts) == many and max(counts.values()) <= min(counts.values()) + 4, name
    assert {"warmup_ratio" in config for config in configs if config["lr_scheduler"] == "constant"} == {False}
    rates = sorted(config["learning_rate"] for config in configs)
    assert rates[31] == pytest.approx(10**-2.5, rel=0.2) and rates[0] >= 1e-4 and rates[-1] <= 1e-1


def test_tasks_take_turns_and_other_seeds_come_last(recorder: Any) -> None:
    keys = list(recorder.wanted(20, 5))
    tasks = list(sys.modules["lora_table"].TASKS)
    assert keys[: 2 * 16] == [(task, number, 0) for task in tasks[:2] for number in range(16)]
    assert [seed for _, _, seed in keys] == [0] * 20 * len(tasks) + [1] * 5 * len(tasks) + [2] * 5 * len(
        tasks
    )
    assert len(set(keys)) == len(keys)


def test_a_run_is_recorded_again_as_it_was(recorder: Any, one_thread: None, tmp_path: Path) -> None:
    config = recorder.configurations(2)[1] | {"batch_size": 4}
    one, again = (recorder.train(("english", 1, 0), config, tmp_path) for _ in range(2))
    assert one.losses == again.losses and len(one.losses) == 3 and one.seconds > 0
    assert recorder.train(("english", 1, 1), config, tmp_path).losses != one.losses
    hot = recorder.train(("english", 1, 0), config | {"learning_rate": 1e30}, tmp_path)
    assert hot.losses[1:] == (math.inf, math.inf)


def test_what_a_kill_left_unfinished_is_recorded_anew(recorder: Any, tmp_path: Path) -> None:
    table = sys.modules["lora_table"]
    runs = [
        table.Run("small", 1, 0, 1.5, (2.0, 1.75, math.inf)),
        table.Run("english", 2, 1, 2.0, (3.0, 2.5, 1.123456789)),
        table.Run("english", 2, 0, 2.0, (3.0, 2.5, 1.25)),
    ]
    recorded = recorder.Recorded(tmp_path)
    for run in runs:
        recorded.add(run)
    file = tmp_path / recorder.RUNS
    file.write_bytes(file.read_bytes()[:-9])
    recorded = recorder.Recorded(tmp_path)
    assert list(recorded.runs.values()) == runs[:2]
    recorded.add(runs[2])
    assert list(recorder.Recorded(tmp_path).runs.values()) == runs
    table.write_runs(tmp_path, runs)
    rounded = replace(runs[1], losses=(3.0, 2.5, 1.12346))
    assert table.read_runs(tmp_path) == [runs[2], rounded, runs[0]]


def test_a_new_folder_begins_with_the_runs_of_the_table(
    recorder: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sys.modules["lora_table"].Run("english", 2, 0, 2.0, (3.0, 2.5, 1.25))
    folder, table = tmp_path / "folder", tmp_path / "table"
    sys.modules["lora_table"].write_runs(table, [run])
    folder.mkdir()
    (folder / "about.json").write_text('{"torch": "2", "python": "3"}')
    for torch, kept in (("1", []), ("2", [run])):
        (table / "about.json").write_text(json.dumps({"torch": torch, "python": "3"}))
        recorder.take_in(recorded := recorder.Recorded(folder), folder, table)
        assert list(recorded.runs.values()) == kept
    assert capsys.readouterr().out == f"{folder} has another torch than {table}, so it has none of its runs\n"


def test_a_simulated_curve_agrees_with_those_that_were_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    simulated = benchmark("lora_simulated")
    monkeypatch.setattr(sys.modules["curve_model"], "COMPONENTS", 1)  # all that differs here
    baseline = sys.modules["lora_table"].BASELINE | {"lora_alpha": 32}
    configs = [baseline | {"learning_rate": 2e-4 * 1.5**power} for power in range(12)]
    ends = [1.2 + 0.02 * (power - 7) ** 2 / 16 for power in range(12)]
    places = np.linspace(0, 1, len(simulated.PLACES))
    runs = [(config, 1.5 + (end - 1.5) * places) for config, end in zip(configs, ends, strict=True)]
    model = simulated.model_of(runs)
    one, same, other = map(model.drawn, (0, 0, 1))

    def end(drawn: Any, config: dict[str, Any]) -> float:
        return float(drawn(np.array(simulated.columns(config)))[-1])

    assert all(end(one, config) == pytest.approx(losses[-1], abs=0.02) for config, losses in runs)
    elsewhere = configs[7] | {"batch_size": 32, "lora_r": 64, "lr_scheduler": "cosine"}
    assert end(one, elsewhere) == end(same, elsewhere) != end(other, elsewhere)


def test_simulated_optuna_trains_what_the_space_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    simulated = benchmark("lora_simulated")
    spec = simulated.space({}, 0, 18)
    search = simulated.Optuna(
        spec, sys.modules["contestants"].Task({}, 12, None, None, None, dict), 0, told=True
    )
    configs = [search.next().config for _ in range(20)]
    assert all(spec.space.violated(config) is None for config in configs)
    assert {config["lora_r"] for config in configs} <= set(spec.parameters["lora_r"].values())


def test_a_winner_that_diverged_leaves_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    interval = benchmark("lora_search").interval
    assert interval([1.0, math.inf]) == "+inf (a winner diverged, no interval)"
    assert interval([1.0, 3.0]) == "+2.0000 (-10.7062 to +14.7062)"


def test_instruction_rows_ask_for_docstrings(recorder: Any) -> None:
    rows = list(itertools.islice(recorder.instruction_rows(), 300))
    assert all(prompt_and_text(row, None)[1] == row["output"] for row in rows)
    assert len({row["output"] for row in rows}) == len(rows)
    asked = {row["instruction"] for row in rows}
    assert "What does getOptionalRelease(self) of __future__ do?" in asked
    assert "What is the class ABCMeta of _py_abc for?" in asked


def test_a_table_is_described(
    recorder: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = sys.modules["lora_table"]
    runs = [
        table.Run("english", number, 0, 1.0, (3.0 - number / 8, 2.0 + number / 8, 2.0 - number / 8))
        for number in range(8)
    ]
    runs += [replace(run, seed=1, losses=(*run.losses[:2], run.end + 0.1)) for run in runs]
    table.write_runs(tmp_path, runs)
    (tmp_path / table.ABOUT).write_text('{"tasks": {"english": {"loss_of_base": 1.8}}}')
    monkeypatch.setattr(sys, "argv", ["lora_table.py", "--table", str(tmp_path)])
    table.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:7] == ["english,", "all", "8", "2", "1.00", "-1.00", "1.1250"]
    assert lines[1].split()[-1] == "0.0707", "the deviation of two values that are 0.1 apart"
    assert lines[2].split()[:5] == ["english,", "better", "half", "4", "0"]
    best = [line.split()[2] for line in lines[8:11]]
    assert best == ["1.1250", "1.2500", "1.3750"]
