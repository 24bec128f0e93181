"""Reports are made of a real search whose trials complete, fail, diverge and are pruned."""

import math
from pathlib import Path

import optuna
import pytest

from hpsearch.search import open_study, run
from hpsearch.search.operations.show import trials
from hpsearch.search.results.confirmation import confirmed
from hpsearch.search.results.report import study_report, trial_report
from hpsearch.search.results.sentences import against
from hpsearch.search.results.study import StudyResult
from hpsearch.search.results.trials import TrialRow, trial_row
from hpsearch.storage import StorageError, files, studies
from hpsearch.storage.trial_attrs import CONFIRMS, CONFIRMS_SEED
from hpsearch.storage.workspace import Workspace

OBJECTIVE = """
import math

def train(trial):
    if trial.number == 2:
        raise ValueError("no such data")
    worse = 10.0 if trial.number >= 10 else 0.0
    for step in range(1, 10):
        value = (trial.params["x"] - 0.3) ** 2 + 1 / step + worse
        if trial.number == 3 and step == 3:
            value = math.nan
        trial.report(value, step=step, accuracy=1 - value)
    return (trial.params["x"] - 0.3) ** 2 + worse
"""
SPACE = """
version: 1
name: curves
objective: "{folder}/objective.py:train"
metric: val_loss
parameters:
  x: {{min: -1.0, max: 1.0}}
  layers: [[1, 2], [3]]
  width: {{min: 1, max: 4}}
  double: {{expr: "2 * width"}}
  warmup: {{min: 0.0, max: 0.5, when: {{layers: [[3]]}}}}
  depth: 7
baseline: {{x: 0.9}}
early_stopping: {{method: asha, min: 1, max: 9, eta: 3, min_early_stopping_rate: 1}}
budget: {{trials: 14, time: 1h}}
confirm: {{top: 0}}
execution: {{workers: 1}}
"""


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    """The study as another process finds it afterwards."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "objective.py").write_text(OBJECTIVE)
    (folder / "space.yaml").write_text(SPACE.format(folder=folder))
    run(folder / "space.yaml", storage=str(folder / "studies.db"))
    return open_study("curves", storage=str(folder / "studies.db"))


def rows_of(result: StudyResult) -> list[TrialRow]:
    return [trial_row(record) for record in result.records.by_number.values()]


def test_counts_every_trial_once(searched: StudyResult) -> None:
    report = study_report(searched)
    assert sum(report.states.values()) == 14
    assert (report.trials.used, report.trials.total) == (14, 14)
    assert report.seconds.used > 0 and report.seconds.total == 3600
    assert report.consumed.used == sum(row.last_step or 0 for row in rows_of(searched))
    assert report.without_stopping == (14 - report.states.get("fail", 0)) * 9
    assert report.searching is None


def test_best_and_baseline(searched: StudyResult) -> None:
    report = study_report(searched)
    complete = [row for row in rows_of(searched) if row.state == "complete"]
    assert report.best is not None and report.baseline is not None
    assert report.best.value == min(row.value for row in complete if row.value is not None)
    assert report.baseline.number == 0 and report.baseline.params["x"] == 0.9
    gain = 0.36 - (report.best.value or 0.0)
    told = f"better than the baseline (0.36) by {gain:.4g}, by values that are not confirmed"
    assert report.comparison == told


def test_a_best_trial_that_is_not_confirmed_is_said_to_be_so(searched: StudyResult) -> None:
    records = searched.records
    baseline, failed, (best,) = records.by_number[0], records.by_number[2], records.best(1)
    assert against(baseline, baseline) == (
        "the baseline itself, which is not confirmed: nothing else that came to its end was better"
    )
    luck = ", and the best trial is not confirmed"
    assert against(None, best) == f"the space has no baseline to compare with{luck}"
    assert against(failed, best) == f"the baseline (trial 2) is fail, so nothing compares{luck}"


def test_a_baseline_that_could_not_be_trained_again_compares_by_the_search(searched: StudyResult) -> None:
    baseline, (best,) = searched.records.by_number[0], searched.records.best(1)
    assert best.value is not None
    again = confirmed({0: [math.inf, 0.4], best.number: [0.1, 0.2]}, {0: 0.36, best.number: 0.1}, baseline=0)
    seen = "by what the search saw: the baseline was not confirmed"
    told = f"better than the baseline (0.36) by {0.36 - best.value:.4g}, {seen}"
    assert against(baseline, best, again) == told
    assert against(best, baseline, again) == f"no better than the baseline ({best.value:.6g}), {seen}"


def test_endings_are_grouped_failures_first(searched: StudyResult) -> None:
    endings = study_report(searched).endings
    first, *rest = endings
    assert (first.why, first.state, first.trials) == ("ValueError", "fail", [2])
    assert first.example == "ValueError: no such data"
    assert [e.trials for e in rest if e.why == "diverged"] == [[3]]
    pruned = next(e for e in rest if e.why == "pruned at step 3")
    assert {10, 11, 12, 13} <= set(pruned.trials)
    ended_early = [row.number for row in rows_of(searched) if row.state in ("pruned", "fail")]
    assert sorted(number for e in endings for number in e.trials) == ended_early


def test_pruned_trial_shows_its_rung(searched: StudyResult) -> None:
    report = trial_report(searched, 12)
    assert report.row.state == "pruned" and report.row.last_step == 3
    assert report.row.reason is not None and report.row.reason.startswith("pruned at step 3: rung 1 of 1")
    assert (report.bracket, report.bracket_rungs) == (0, [3])
    (rung,) = report.rungs
    assert rung.value == pytest.approx(dict(report.curve)[3])
    others = [r for n in range(14) for r in trial_report(searched, n).rungs]
    assert rung.reached == len(others)
    assert rung.rank == 1 + sum(other.value < rung.value for other in others)


def test_hyperband_brackets_are_known_in_a_study_opened_later(tmp_path: Path) -> None:
    (tmp_path / "objective.py").write_text(OBJECTIVE)
    text = SPACE.format(folder=tmp_path)
    stopping = "{method: hyperband, min: 1, max: 9, eta: 3}"
    start = text.index("early_stopping")
    text = f"{text[:start]}early_stopping: {stopping}\nbudget: {{trials: 8}}\nexecution: {{workers: 1}}\n"
    (tmp_path / "space.yaml").write_text(text)
    live = run(tmp_path / "space.yaml", storage=str(tmp_path / "studies.db"))
    later = open_study("curves", storage=str(tmp_path / "studies.db"))
    found = [trial_report(later, number).bracket for number in range(8)]
    assert found == [trial_report(live, number).bracket for number in range(8)]
    assert len(set(found)) > 1


def test_failed_trial_shows_its_error(searched: StudyResult) -> None:
    report = trial_report(searched, 2)
    assert (report.row.state, report.row.value, report.curve) == ("fail", None, [])
    assert report.error == report.row.reason == "ValueError: no such data"
    assert report.traceback is not None and 'raise ValueError("no such data")' in report.traceback
    assert report.retries == 1


def test_parameters_metrics_and_files_are_kept_apart(searched: StudyResult) -> None:
    report = trial_report(searched, 0)
    assert report.row.params["double"] == 2 * report.row.params["width"]
    assert report.kinds == {
        "x": "searched",
        "layers": "searched",
        "width": "searched",
        "double": "= 2 * width",
        "warmup": "searched",
        "depth": "constant",
    }
    assert set(report.row.metrics) == {"accuracy"}
    assert report.row.baseline
    assert report.folder == files.trial_folder(searched.workspace.runs, "curves", 0)
    assert files.METRICS in report.files and all((report.folder / name).exists() for name in report.files)


def test_conditional_parameter_is_absent_where_its_condition_fails(searched: StudyResult) -> None:
    rows = rows_of(searched)
    assert {("warmup" in row.params) for row in rows} == {True, False}
    assert all(("warmup" in row.params) == (row.params["layers"] == [3]) for row in rows)


def test_sorting_puts_complete_trials_first(searched: StudyResult) -> None:
    rows = trials(workspace=searched.workspace, study="curves", best_first=True).rows
    count = sum(row.state == "complete" for row in rows)
    values = [row.value for row in rows[:count] if row.value is not None]
    assert all(row.state == "complete" for row in rows[:count])
    assert len(values) == count and values == sorted(values)
    assert rows[-1].value is None


def test_trainings_that_confirm_come_after_what_was_found(searched: StudyResult, tmp_path: Path) -> None:
    study = optuna.create_study(storage=f"sqlite:///{tmp_path}/c.db", study_name="curves")
    study.set_user_attr(studies.SPEC, searched.spec.to_json())
    study.add_trials(searched.study.trials)
    again = searched.study.best_trial
    again.value = -1.0
    again.set_user_attr(CONFIRMS, again.number)
    again.set_user_attr(CONFIRMS_SEED, 1)
    study.add_trial(again)
    found = trials(workspace=Workspace.at(str(tmp_path / "c.db")), study="curves", best_first=True)
    rows = list(found.rows)
    complete = [row for row in rows if row.state == "complete"]
    assert [row.confirms for row in complete] == [None] * (len(complete) - 1) + [again.number]
    assert complete[0].number == again.number and rows[: len(complete)] == complete


def test_unknown_trial_says_which_there_are(searched: StudyResult) -> None:
    with pytest.raises(StorageError, match="no trial 14; they go from 0 to 13"):
        trial_report(searched, 14)


def test_a_waiting_trial_has_no_parameters(searched: StudyResult, tmp_path: Path) -> None:
    study = optuna.create_study(storage=f"sqlite:///{tmp_path}/w.db", study_name="curves")
    study.set_user_attr(studies.SPEC, searched.spec.to_json())
    study.enqueue_trial({"x": 0.9})
    waiting = open_study("curves", storage=str(tmp_path / "w.db"))
    report = study_report(waiting)
    assert report.best is None and report.comparison is None
    (row,) = rows_of(waiting)
    assert (row.state, row.params, row.value) == ("waiting", {}, None)
