"""Trials that end badly say what would help, in their reason and on their screen."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from typer.testing import CliRunner

from hpsearch.search import open_study, run
from hpsearch.search.cli.app import app
from hpsearch.search.results.report import study_report, trial_report
from hpsearch.search.results.study import StudyResult
from hpsearch.search.trials.document import load_document
from hpsearch.search.trials.export import document, render
from hpsearch.search.trials.reports import read_reports
from hpsearch.spaces import loads
from hpsearch.storage.files import METRICS

OBJECTIVE = """
import math

def train(trial):
    if trial.number == 1:
        trial.report(1.5, step=100, grad_norm=2.0)
        trial.report(1.9, step=200, grad_norm=5000.0)
        trial.report(math.nan, step=300, grad_norm=math.nan)
    if trial.number == 2:
        raise MemoryError("so big")
    if trial.number == 3:
        raise ValueError("no such data")
    for step in range(1, 4):
        overfitted = (step - 1) / 10 if trial.number == 4 else -step / 1000
        trial.report(1.3 + overfitted, step=100 * step, train_loss=1.0 / step)
    return 1.3 + overfitted
"""
SPACE = """
version: 1
name: bad
objective: "{folder}/objective.py:train"
metric: val_loss
parameters:
  learning_rate: [0.01, 0.002]
  x: {{min: 0.0, max: 1.0}}
  batch_size: 16
  gradient_accumulation_steps: 1
  max_grad_norm: 0
  dropout: 0.1
  max_samples: 300
baseline: {{learning_rate: 0.002}}
search: {{sampler: random, seed: 0}}
early_stopping: {{method: none, max: 300}}
budget: {{trials: 5}}
execution: {{workers: 1, retries: 0}}
"""
CLIP = "the gradient's norm grew from 2 to 5,000: set max_grad_norm to 1 (it is 0, which is no limit)"
HALVE = (
    "halve batch_size from 16 to 8 and raise gradient_accumulation_steps from 1 to 2: "
    "the same step with half the activations"
)
SHORTER = (
    "val_loss rose from 1.3 at 100 to 1.5 at 300 samples while train_loss fell from 1 to 0.3333: "
    "lower max_samples from 300 to 100"
)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    """The study as another process opens it afterwards."""
    folder = tmp_path_factory.mktemp("advice")
    (folder / "objective.py").write_text(OBJECTIVE)
    (folder / "space.yaml").write_text(SPACE.format(folder=folder))
    run(folder / "space.yaml", storage=str(folder / "studies.db"))
    return open_study("bad", storage=str(folder / "studies.db"))


def shown(result: StudyResult, number: int) -> list[str]:
    words = ["show", "bad", "--trial", str(number), "--storage", result.workspace.url]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    return [line.strip() for line in done.stdout.splitlines()]


def rate(result: StudyResult, number: int) -> Any:
    return trial_report(result, number).row.params["learning_rate"]


def test_a_diverged_trial_says_what_would_help(searched: StudyResult) -> None:
    report = trial_report(searched, 1)
    assert rate(searched, 1) == 0.01
    lower = "learning_rate 0.01 is 5 times that of the best trial (0.002 in trial 0): lower it"
    assert report.row.reason == f"diverged: val_loss was nan at 300 samples; {CLIP}; {lower}"
    assert report.advice == [CLIP, lower]
    lines = shown(searched, 1)
    assert lines[lines.index("advice") + 1 : lines.index("files") - 1] == [CLIP, lower]


def test_a_trial_out_of_memory_says_what_would_help(searched: StudyResult) -> None:
    report = trial_report(searched, 2)
    assert report.row.reason == f"out of memory: MemoryError: so big; {HALVE}"
    assert report.advice == [HALVE]
    assert HALVE in shown(searched, 2)


def test_an_overfitted_trial_says_what_would_help_on_its_screen(searched: StudyResult) -> None:
    report = trial_report(searched, 4)
    assert (report.row.state, report.row.reason) == ("complete", SHORTER)
    assert report.advice == [SHORTER]
    assert shown(searched, 4).count(SHORTER) == 1


@pytest.mark.parametrize("number", [0, 3])
def test_a_good_trial_and_a_failed_one_get_no_advice(searched: StudyResult, number: int) -> None:
    report = trial_report(searched, number)
    assert report.advice == []
    assert "advice" not in shown(searched, number)
    assert report.row.state == ("complete" if number == 0 else "fail")


def test_endings_are_counted_without_advice(searched: StudyResult) -> None:
    endings = {ending.why: ending.trials for ending in study_report(searched).endings}
    assert endings == {"ValueError": [3], "diverged": [1], "out of memory": [2]}


def test_advice_without_the_files_of_a_trial_uses_the_study(searched: StudyResult, tmp_path: Path) -> None:
    elsewhere = replace(searched, workspace=replace(searched.workspace, runs=tmp_path))
    report = trial_report(elsewhere, 1)
    assert report.advice[0].startswith("learning_rate 0.01 is 5 times"), "the norms are lost"
    assert trial_report(elsewhere, 4).advice == [], "and the training loss too"


def test_reading_reports_leaves_the_file_of_a_worker_alone(searched: StudyResult, tmp_path: Path) -> None:
    written = (searched.trial_folder(1) / METRICS).read_bytes()
    path = tmp_path / METRICS
    path.write_bytes(written + b'{"step": 400, "va')
    assert [report.step for report in read_reports(path)] == [100, 200, 300]
    assert math.isnan(read_reports(path)[-1].value)
    assert path.read_bytes() != written
    assert [report.step for report in read_reports(path, repair=True)] == [100, 200, 300]
    assert path.read_bytes() == written


HARDLY = """
def train(trial):
    rate = trial.params["learning_rate"]
    for step in range(1, 5):
        trial.report(1.5 + abs(rate - 0.0049) - step / 10000, step=step)
    return 1.5 + abs(rate - 0.0049)
"""
RATES = """
version: 1
name: rates
objective: "hardly.py:train"
metric: val_loss
parameters:
  learning_rate: {min: 1e-4, max: 0.1, log: true}
  max_steps: 4
baseline: {learning_rate: 0.0049}
search: {sampler: random, seed: 0}
budget: {trials: 3}
execution: {workers: 1}
"""


@pytest.mark.slow
def test_a_training_gets_no_advice_that_its_search_has_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hardly.py").write_text(HARDLY)
    Path("rates.yaml").write_text(RATES)
    run("rates.yaml", storage="hpsearch.db")

    def advised(*words: str) -> list[str]:
        result = CliRunner().invoke(app, ["train", "best.yaml", "--force", *words], catch_exceptions=False)
        assert result.exit_code == 0
        return [line.partition("steps: ")[2] for line in result.output.splitlines() if "advice: " in line]

    for trial in ("0", "1"):
        words = ["export", "rates", "-o", "best.yaml", "--force", "--trial", trial]
        assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
        assert advised("--set", "learning_rate=0.0049") == []
        assert advised("--set", "learning_rate=0.04943") == []
        low = ["raise learning_rate from 0.001; the best trial (0) has 0.0049"]
        assert advised("--set", "learning_rate=0.001") == low
    by_hand = (
        "objective: hardly.py:train\nmetric: val_loss\nparameters: {learning_rate: 0.0049, max_steps: 4}\n"
    )
    Path("best.yaml").write_text(by_hand)
    assert advised() == ["raise learning_rate from 0.0049 to 0.049"]


def test_a_document_knows_what_its_search_varied(tmp_path: Path) -> None:
    spec = loads(
        "version: 1\nname: s\nobjective: a.py:train\nmetric: accuracy\ngoal: maximize\nparameters:\n"
        "  k: {min: 1, max: 3, pass: false}\n  lr: {expr: 0.1 * k}\n  fixed: 3\n  twice: {expr: 2 * fixed}\n"
        "  a.decay: [0.1, 0.0]\n  names: [a, 1]\n  sometimes: {min: 1, max: 2, when: {names: a}}\n"
    )
    params = {"k": 2, "a.decay": 0.1, "names": 1}
    frozen = optuna.trial.create_trial(
        params=params,
        distributions={name: optuna.distributions.CategoricalDistribution([v]) for name, v in params.items()},
        value=1.0,
    )
    frozen.number = 7
    (tmp_path / "best.yaml").write_text(render(document(spec, frozen, {}), "yaml"))
    found = load_document(tmp_path / "best.yaml")
    assert found.searched == {"lr": None, "a.decay": (0.0, 0.1), "names": None}
    assert found.best == (7, {"lr": 0.2, "a.decay": 0.1, "names": 1})
    assert found.maximize
