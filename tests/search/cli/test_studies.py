"""The commands on studies: what they print, as data read back, and their exit codes in a real process."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState, create_trial
from ruamel.yaml import YAML
from typer.testing import CliRunner, Result

from hpsearch.search import open_study, run
from hpsearch.search.cli import views
from hpsearch.search.cli.app import app
from hpsearch.search.cli.console import PlainConsole
from hpsearch.search.errors import SearchError, UsageError
from hpsearch.search.operations import control
from hpsearch.search.operations import show as operations
from hpsearch.search.results.report import study_report
from hpsearch.search.results.trials import TrialRow, trial_row
from hpsearch.spaces import loads
from hpsearch.storage import StorageError, files, locks, studies
from hpsearch.storage.database import open_storage
from hpsearch.storage.wanted import Wanted, change_wanted
from hpsearch.storage.workspace import Workspace

COMMAND = [sys.executable, "-c", "from hpsearch.search.cli import main; main()"]
OBJECTIVE = """
import math

def train(trial):
    if trial.number == 2:
        raise ValueError("no such data")
    worse = 10.0 if trial.number >= 8 else 0.0
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
  double: {{expr: "2 * x"}}
  depth: 7
baseline: {{x: 0.9}}
early_stopping: {{method: asha, min: 3, max: 9, eta: 3}}
budget: {{trials: 12}}
execution: {{workers: 1}}
"""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a study of twelve trials; to be read."""
    return search(tmp_path_factory.mktemp("studies"), SPACE)


def search(folder: Path, space: str) -> Path:
    (folder / "objective.py").write_text(OBJECTIVE)
    (folder / "space.yaml").write_text(space.format(folder=folder))
    run(folder / "space.yaml", storage=str(folder / "studies.db"))
    return folder / "studies.db"


@pytest.fixture
def copied(database: Path, tmp_path: Path) -> Path:
    """A copy of the database and its files; to be changed."""
    shutil.copytree(database.parent, tmp_path / "copy")
    return tmp_path / "copy" / database.name


def call(database: Path, *words: str, input: str | None = None) -> Result:
    """Run a command in this process; an error of ours is raised, as `main` would catch it."""
    result = CliRunner().invoke(app, [*words, "--storage", str(database)], input=input)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def process(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=120, **options)


def read(database: Path, *words: str) -> Any:
    return json.loads(call(database, *words, "--json").stdout)


def test_list(database: Path) -> None:
    (found,) = read(database, "list")
    assert (found["name"], found["metric"], found["direction"]) == ("curves", "val_loss", "minimize")
    assert found["best"] == open_study("curves", storage=str(database)).best.value
    assert sum(found["states"].values()) == found["budget"] == 12
    assert found["searching"] is None
    shown = call(database, "list").stdout
    assert "curves" in shown and "12/12" in shown and "1 fail" in shown


def test_list_counts_no_training_that_confirms_as_a_trial_of_the_budget(tmp_path: Path) -> None:
    database = search(tmp_path, SPACE + "confirm: {{top: 1, seeds: 2}}\n")
    (found,) = read(database, "list")
    assert (found["ended"], found["confirming"], sum(found["states"].values())) == (12, 4, 16)
    shown = call(database, "list").stdout
    assert "12/12" in shown and "4 of them confirm" in shown


def test_list_shows_the_winner_that_was_confirmed(tmp_path: Path) -> None:
    """Trial 1 has the better value in the search, and none of those of its trainings with new seeds."""
    (tmp_path / "objective.py").write_text(
        "def train(trial):\n    return 0.1 if trial.number == 1 else 0.2 + 0.1 * (trial.params['x'] == 2)\n"
    )
    space = "version: 1\nname: lucky\nobjective: '{folder}/objective.py:train'\nmetric: loss\n"
    space += "parameters: {{x: [1, 2]}}\nsearch: {{sampler: grid}}\nbudget: {{trials: 2}}\n"
    (tmp_path / "space.yaml").write_text(
        (space + "execution: {{workers: 1}}\nconfirm: {{top: 2, seeds: 2}}\n").format(folder=tmp_path)
    )
    run(tmp_path / "space.yaml", storage=str(tmp_path / "studies.db"))
    assert read(tmp_path / "studies.db", "best", "lucky")["number"] == 0
    (found,) = read(tmp_path / "studies.db", "list")
    assert (found["best"], found["confirming"]) == (0.2, 4)


def test_list_shows_studies_of_other_tools(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/other.db"
    two = optuna.create_study(storage=url, study_name="two", directions=["minimize", "maximize"])
    two.optimize(lambda trial: (trial.suggest_float("x", 0, 1), 1.0), n_trials=2)
    one = optuna.create_study(storage=url, study_name="one", direction="maximize")
    one.optimize(lambda trial: float(trial.number), n_trials=3)
    found = {study["name"]: study for study in read(tmp_path / "other.db", "list")}
    assert (found["one"]["best"], found["one"]["states"]) == (2.0, {"complete": 3})
    assert (found["two"]["best"], found["two"]["direction"]) == (None, "minimize, maximize")
    assert "two" in call(tmp_path / "other.db", "list").stdout
    with pytest.raises(StorageError, match="made by another program"):
        call(tmp_path / "other.db", "show", "one")


def test_show_study(database: Path) -> None:
    data = read(database, "show", "curves")
    best = read(database, "best", "curves")
    assert (data["best"]["value"], data["best"]["number"]) == (best["value"], best["number"])
    assert data["best"]["params"] == best["params"]
    assert [p["name"] for p in data["parameters"]] == ["x", "layers", "double", "depth"]
    assert {e["why"] for e in data["endings"]} == {"ValueError", "diverged", "pruned at step 3"}
    shown = call(database, "show", "curves").stdout
    for said in (
        f"{best['value']:.6g} by trial {best['number']}, better than the baseline (0.36)",
        "12 of 12",
        "float -1 .. 1",
        "choice [1, 2] | [3]",
        "importance: PED-ANOVA over 10 trials at step 3",
        "trial 2: no such data",
        "trial 3",
        "hpsearch show curves --trial 2",
        "hpsearch export curves -o best.yaml",
        f"hpsearch run SPACE --name curves --backend optuna --trials 24 --storage {database}",
    ):
        assert said in shown


@pytest.mark.parametrize("audit", ["audit: 0.001\n", ""], ids=["asked", "by default"])
def test_an_audit_that_drew_no_trial_says_so_where_it_was_asked_for(tmp_path: Path, audit: str) -> None:
    database = search(tmp_path, SPACE + audit)
    told = ["it drew none of the trials that were to stop"] * bool(audit)
    assert read(database, "show", "curves")["audit"] == told
    open_study("curves", storage=str(database)).study.enqueue_trial({})
    assert read(database, "show", "curves")["audit"] == [f"{line} so far" for line in told]


def test_show_trial(database: Path) -> None:
    pruned = read(database, "show", "curves", "--trial", "9")
    assert (pruned["study"], pruned["number"], pruned["state"]) == ("curves", 9, "pruned")
    assert [step for step, _ in pruned["curve"]] == [1, 2, 3]
    assert [rung["step"] for rung in pruned["rungs"]] == [3]
    shown = call(database, "show", "curves", "--trial", "9").stdout
    rung = pruned["rungs"][0]
    assert pruned["reason"] in shown and f"{rung['rank']} of {rung['reached']}" in shown
    assert "= 2 * x" in shown and pruned["folder"] in shown
    failed = call(database, "show", "curves", "--trial", "2").stdout
    assert "ValueError: no such data" in failed and "Traceback (most recent call last)" in failed
    assert "tried 2 times" in failed


def test_show_why(database: Path) -> None:
    story = read(database, "show", "curves", "--why", "9")
    trial = read(database, "show", "curves", "--trial", "9")
    assert (story["study"], story["number"], story["state"]) == ("curves", 9, "pruned")
    assert story["end"] == trial["reason"] and story["waits"] == []
    shown = call(database, "show", "curves", "--why", "9").stdout
    for said in [story["suggested"], *story["by_now"], story["end"]]:
        assert said in shown
    failed = call(database, "show", "curves", "--why", "2").stdout
    assert "ValueError: no such data" in failed and "tried 2 times" in failed
    with pytest.raises(StorageError, match="no trial 99"):
        call(database, "show", "curves", "--why", "99")
    with pytest.raises(UsageError, match="one of --trial, --why and --ranges"):
        call(database, "show", "curves", "--why", "1", "--edges")


def test_show_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = SPACE.replace("{{x: 0.9}}", "{{x: 0.5}}").replace("min: -1.0, max: 1.0", "min: 0.5, max: 0.9")
    database = search(tmp_path, space)
    found = read(database, "show", "curves", "--edges")
    assert (found["compared"], found["step"]) == (10, 3)
    (edge,) = found["found"]
    assert (edge["name"], edge["end"], edge["winner"]) == ("x", "lower", True)
    assert edge["line"] == "x: {min: 0.3, max: 0.9}"
    shown = call(database, "show", "curves", "--edges").stdout
    assert "lower end" in shown and "hpsearch run SPACE --name curves_wider" in shown
    assert "at the end of its range: x" in call(database, "show", "curves").stdout
    assert read(database, "show", "curves")["parameters"][0]["edge"] == edge
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    line = f"  {edge['line']}\n"
    assert line in call(database, "show", "curves", "--edges").stdout, "a narrow terminal does not break it"
    (tmp_path / "wider.yaml").write_text(
        space.format(folder=tmp_path).replace("  x: {min: 0.5, max: 0.9}\n", line)
    )
    assert run(tmp_path / "wider.yaml", name="wider", budget={"trials": 1}, storage=str(database)).ran == 1


def test_trials_csv_has_every_column_and_full_values(database: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(call(database, "trials", "curves", "--csv").stdout)))
    wanted = rows_of(database)
    assert list(rows[0])[:4] == ["number", "state", "value", "baseline"]
    assert list(rows[0])[-5:] == [
        "params_x",
        "params_layers",
        "params_double",
        "params_depth",
        "metrics_accuracy",
    ]
    assert [int(row["number"]) for row in rows] == list(range(12))
    for row, trial in zip(rows, wanted, strict=True):
        assert row["state"] == trial.state and row["reason"] == (trial.reason or "")
        assert (float(row["value"]) if row["value"] else None) == trial.value
        assert {name: json.loads(row[f"params_{name}"]) for name in trial.params} == trial.params


def test_trials_json_equals_the_csv(database: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(call(database, "trials", "curves", "--csv").stdout)))
    data = read(database, "trials", "curves")
    assert [row["started"] for row in rows] == [trial["started"] for trial in data]
    assert [json.loads(row["params_layers"]) for row in rows] == [t["params"]["layers"] for t in data]
    assert all(datetime.fromisoformat(trial["started"]).tzinfo is not None for trial in data)


def test_trials_filter_sort_and_limit(database: Path) -> None:
    failed = read(database, "trials", "curves", "--state", "fail")
    assert [trial["number"] for trial in failed] == [2]
    first = read(database, "trials", "curves", "--sort", "value", "--limit", "3")
    assert first[0]["number"] == read(database, "best", "curves")["number"]
    assert [t["value"] for t in first] == sorted(t["value"] for t in first) and len(first) == 3
    nothing = call(database, "trials", "curves", "--state", "waiting")
    assert nothing.stdout == "" and "no trial in the state waiting" in nothing.stderr


def test_a_pipe_gets_every_parameter_unwrapped_and_plain(database: Path) -> None:
    shown = call(database, "trials", "curves").stdout
    head, *lines = shown.splitlines()
    assert head.split() == ["trial", "state", "val_loss", "steps", "seconds", "x", "layers", "ended", "early"]
    assert len(lines) == 12 and "\x1b" not in shown
    assert shown == "".join(f"{line.rstrip()}\n" for line in shown.splitlines())


@pytest.mark.parametrize(("width", "left_out"), [(200, []), (76, ["layers"]), (40, ["x", "layers"])])
def test_a_narrow_terminal_leaves_out_whole_parameters(
    database: Path, width: int, left_out: list[str]
) -> None:
    rows = operations.trials(workspace=Workspace.at(str(database)), study="curves")
    table, missing = views.trials_table(rows, width)
    assert missing == left_out
    assert len(table.columns) == 8 - len(left_out)


@pytest.mark.parametrize("width", [54, 200])
def test_no_number_is_broken(database: Path, width: int) -> None:
    report = study_report(open_study("curves", storage=str(database)))
    assert report.best is not None
    console = PlainConsole(file=io.StringIO(), width=width)
    console.print(views.study_screen(report, ()))
    assert isinstance(console.file, io.StringIO)
    assert f" {report.best.params['x']:.3g} " in console.file.getvalue()


def test_best(database: Path) -> None:
    data = read(database, "best", "curves")
    result = open_study("curves", storage=str(database))
    assert (data["number"], data["value"]) == (result.best.number, result.best.value)
    assert data["folder"] == str(result.best.folder)
    shown = call(database, "best", "curves").stdout
    assert f"  x: {data['params']['x']}\n" in shown


def test_export_is_the_best_trial_or_the_one_asked_for(database: Path, tmp_path: Path) -> None:
    result = open_study("curves", storage=str(database))
    yaml = YAML(typ="safe", pure=True)
    assert yaml.load(call(database, "export", "curves").stdout)["parameters"] == result.best.params
    file = tmp_path / "five.yaml"
    said = call(database, "export", "curves", "--trial", "5", "-o", str(file))
    content = yaml.load(file.read_text())
    assert content["parameters"] == trial_row(result.records.by_number[5]).params
    assert content["provenance"]["trial"] == 5
    assert said.stdout == "" and "trial 5 of curves, pruned" in said.stderr
    as_json = json.loads(call(database, "export", "curves", "--trial", "5", "--format", "json").stdout)
    assert as_json == content
    flags = call(database, "export", "curves", "--format", "flags").stdout
    assert f"--x={result.best.params['x']}" in flags


def test_export_keeps_an_existing_file(database: Path, tmp_path: Path) -> None:
    file = tmp_path / "best.yaml"
    file.write_text("mine")
    with pytest.raises(SearchError, match="is there already"):
        call(database, "export", "curves", "-o", str(file))
    assert file.read_text() == "mine"
    call(database, "export", "curves", "-o", str(file), "--force")
    assert "provenance" in file.read_text()


def test_a_study_without_winner_says_so(tmp_path: Path) -> None:
    database = tmp_path / "empty.db"
    empty = optuna.create_study(study_name="empty", storage=f"sqlite:///{database}")
    empty.set_user_attr(studies.SPEC, loads(SPACE.format(folder=tmp_path)).to_json())
    for words in (["best", "empty"], ["export", "empty"]):
        with pytest.raises(SearchError, match="no winner"):
            call(database, *words)
    empty.enqueue_trial({"x": 0.5})
    with pytest.raises(SearchError, match="no parameters yet: it is waiting"):
        call(database, "export", "empty", "--trial", "0")
    assert "waits for its turn" in call(database, "show", "empty", "--trial", "0").stdout
    assert "no trial has run to its end" in call(database, "show", "empty").stdout


def test_what_a_user_wrote_is_shown_as_it_is(tmp_path: Path) -> None:
    """None of it is markup for colours, nor the name of an emoji."""
    (tmp_path / "objective.py").write_text(
        "def train(trial):\n"
        "    if trial.number:\n"
        "        raise ValueError('no [/data] in [red] :fire: now')\n"
        "    return 1.0\n"
    )
    space = (
        SPACE.format(folder=tmp_path).replace("val_loss", '"acc[/top1]"').replace("[3]", '"[/b]", ":fire:"')
    )
    (tmp_path / "space.yaml").write_text(space)
    made = process("run", str(tmp_path / "space.yaml"), "--storage", str(tmp_path / "studies.db"))
    assert "best acc[/top1] 1 by trial 0" in made.stdout
    database = tmp_path / "studies.db"
    shown = call(database, "show", "curves").stdout
    assert "minimizes acc[/top1] of " in shown and "| [/b] | :fire:" in shown
    assert "acc[/top1]" in call(database, "trials", "curves").stdout
    assert "no [/data] in [red] :fire: now" in call(database, "show", "curves", "--why", "1").stdout
    assert "no [/data] in [red] :fire: now" in call(database, "show", "curves", "--trial", "1").stdout


@pytest.mark.parametrize(("ended", "further"), [("diverged: the loss is nan", False), ("pruned at 3", True)])
def test_a_study_whose_trials_were_all_lost_is_looked_into_before_it_is_longer(
    tmp_path: Path, ended: str, further: bool
) -> None:
    database = tmp_path / "lost.db"
    lost = optuna.create_study(study_name="lost", storage=f"sqlite:///{database}")
    lost.set_user_attr(studies.SPEC, loads(SPACE.format(folder=tmp_path)).to_json())
    for number in range(12):
        attrs = {"reason": ended if number else "diverged: the loss is nan"}
        lost.add_trial(create_trial(state=TrialState.PRUNED, user_attrs=attrs))
    shown = call(database, "show", "lost").stdout
    assert "see why it ended" in shown and ("twice the budget" in shown) is further


def test_stop_asks_the_driver(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, runs = f"sqlite:///{copied}", copied.parent / "runs"
    assert 'no search of "curves" is running' in call(copied, "stop", "curves").stderr
    monkeypatch.setattr(control, "ANSWER_SECONDS", 0.2)
    with locks.driver_lock(Workspace(url, runs), "curves"):
        with pytest.raises(
            SearchError, match=rf"process {os.getpid()} searches the study but does not answer"
        ):
            call(copied, "stop", "curves")
        assert read(copied, "list")[0]["searching"] == os.getpid()
        assert "searching now" in call(copied, "list").stdout
        assert "hpsearch stop curves" in call(copied, "show", "curves").stdout
    attrs = open_study("curves", storage=str(copied)).study.user_attrs
    asked = [value for name, value in attrs.items() if name.startswith("hpsearch:command:")]
    assert asked == [{"do": "stop", "driver": os.getpid()}]


def test_show_tells_for_whom_a_study_made_room_and_what_it_lost(copied: Path) -> None:
    def made(wanted: Wanted) -> str:
        change_wanted(open_storage(f"sqlite:///{copied}"), "curves", lambda _: wanted)
        return call(copied, "show", "curves").stdout

    once = Wanted(0.0, preemptions=1, made_room_for="[b]first", lost=2.5)
    assert "made room" not in made(Wanted(0.0))
    assert "1 time for [b]first; 2.5 s lost, no number changed" in made(once)
    assert "2 times, the last for now; 2.5 s lost" in made(once.preempted_by("now", 1.0))
    gone_on = once.preempted_by("now", 1.0).goes_on(3.0)
    assert "2 times, the last for now; 5.5 s lost" in made(gone_on)
    assert read(copied, "show", "curves")["made_room"] == {"times": 2, "last_for": "now", "lost_seconds": 5.5}


@pytest.mark.parametrize("state", [TrialState.FAIL, TrialState.PRUNED])
def test_a_trial_that_ended_by_itself_was_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: TrialState
) -> None:
    """It waited at a rung when it was looked at, and the search ended it before it was told."""
    database = tmp_path / "one.db"
    study = optuna.create_study(study_name="one", storage=f"sqlite:///{database}")
    study.set_user_attr(studies.SPEC, loads(SPACE.format(folder=tmp_path)).to_json())
    trial = study.ask()

    def told(*_: Any) -> bool:
        study.tell(trial, state=state)
        return True

    monkeypatch.setattr("hpsearch.search.operations.control.sent", told)
    if state == TrialState.FAIL:
        assert "killed trial 0; to try it again" in call(database, "kill", "one", "0").output
        return
    with pytest.raises(SearchError, match="trial 0 was not killed: it is pruned"):
        call(database, "kill", "one", "0")


def test_a_killed_driver_is_not_running(copied: Path) -> None:
    url, runs = f"sqlite:///{copied}", copied.parent / "runs"
    with locks.driver_lock(Workspace(url, runs), "curves"):
        (note,) = copied.parent.glob(".*.pid")
    note.write_text(str(os.getpid()))  # as a driver leaves it that is killed
    assert locks.driver_running(Workspace(url, runs), "curves") is None


def test_delete_asks_first_and_takes_the_files_along(copied: Path) -> None:
    folder = copied.parent / "runs" / "curves"
    with pytest.raises(UsageError, match="--yes"):
        call(copied, "delete", "curves")
    assert folder.is_dir()
    said = call(copied, "delete", "curves", "--yes").stderr
    assert "with its 12 trials" in said and str(folder) in said
    assert not folder.exists() and read(copied, "list") == []


def test_delete_says_what_is_left_and_why(copied: Path) -> None:
    folder, elsewhere = copied.parent / "runs" / "curves", copied.parent / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    with pytest.raises(SearchError, match=f"{folder} is left: it is a link to {elsewhere}"):
        call(copied, "delete", "curves", "--yes")
    assert elsewhere.is_dir() and read(copied, "list") == []


def test_files_of_a_copied_study_go_with_the_last_that_has_them(copied: Path) -> None:
    folder, url = copied.parent / "runs" / "curves", f"sqlite:///{copied}"
    optuna.copy_study(from_study_name="curves", from_storage=url, to_storage=url, to_study_name="copy")
    said = call(copied, "delete", "copy", "--yes").stderr
    assert f"its files stay in {folder}: they are those of curves too" in said
    assert (folder / "0" / files.CONFIG).exists()
    optuna.copy_study(from_study_name="curves", from_storage=url, to_storage=url, to_study_name="copy")
    call(copied, "delete", "curves", "--yes")
    assert folder.is_dir()
    call(copied, "delete", "copy", "--yes")
    assert not folder.exists()


def test_delete_is_refused_while_a_driver_runs(copied: Path) -> None:
    with (
        locks.driver_lock(Workspace(f"sqlite:///{copied}", copied.parent / "runs"), "curves"),
        pytest.raises(StorageError, match=r"end it \(hpsearch stop\)"),
    ):
        call(copied, "delete", "curves", "--yes")
    assert [study["name"] for study in read(copied, "list")] == ["curves"]


def test_delete_can_keep_the_files(copied: Path) -> None:
    call(copied, "delete", "curves", "--yes", "--keep-files")
    assert (copied.parent / "runs" / "curves" / "0" / files.CONFIG).exists()
    with pytest.raises(StorageError, match='there is no study "curves"'):
        call(copied, "show", "curves")


@pytest.mark.parametrize("answer", ["y\n", "n\n"])
def test_delete_obeys_the_answer_on_a_terminal(
    copied: Path, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpsearch.search.cli.studies._can_ask", lambda: True)
    result = call(copied, "delete", "curves", input=answer)
    assert (result.exit_code, len(read(copied, "list"))) == ((0, 0) if answer == "y\n" else (1, 1))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["list", "--storage", "absent.db"], 1, "a search creates it"),
        (["show", "curve"], 1, 'did you mean "curves"?'),
        (["show", "curves", "--trial", "12"], 1, "they go from 0 to 11"),
        (["show"], 2, "Missing argument"),
        (["trials", "curves", "--state", "failed"], 2, "--state"),
        (["trials", "curves", "--json", "--csv"], 2, "not both"),
        (["delete", "curves"], 2, "--yes"),
        (["best", "curves"], 0, ""),
    ],
)
def test_exit_codes(database: Path, words: list[str], code: int, said: str) -> None:
    environment = os.environ | {"HPSEARCH_STORAGE": str(database), "COLUMNS": "200"}
    ended = process(*words, env=environment, cwd=database.parent, stdin=subprocess.DEVNULL)
    assert (ended.returncode, "Traceback" in ended.stderr) == (code, False), ended.stderr
    assert said in ended.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has a disk that is always full")
@pytest.mark.parametrize("words", [["list"], ["list", "--json"]])
def test_output_that_there_is_no_room_for_is_one_sentence(database: Path, words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [*COMMAND, *words, "--storage", str(database)], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (ended.returncode, ended.stderr) == (1, "hpsearch: No space left on device\n")


@pytest.mark.parametrize("command", ["list", "show", "trials", "best", "export", "stop", "delete"])
def test_help_has_an_example(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"])
    assert shown.exit_code == 0
    assert f"Example: hpsearch {command}" in " ".join(shown.stdout.split())


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from hpsearch.search.cli import app; "
        "print(sorted({'torch', 'optuna', 'pandas', 'sqlalchemy'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


ENDLESS = """
import itertools, time

def train(trial):
    for step in itertools.count(1):
        time.sleep(0.05)
        trial.report(1 / step, step=step)
"""


@pytest.mark.slow
def test_stop_ends_a_running_search_and_puts_its_trial_back(tmp_path: Path) -> None:
    (tmp_path / "objective.py").write_text(ENDLESS)
    text = SPACE.format(folder=tmp_path)
    (tmp_path / "space.yaml").write_text(
        "".join(line for line in text.splitlines(keepends=True) if "early_stopping" not in line)
    )
    words = ["run", "space.yaml", "--storage", "studies.db", "--plain"]
    with subprocess.Popen([*COMMAND, *words], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        database = tmp_path / "studies.db"
        while not (reported(database) or driver.poll() is not None):
            time.sleep(0.1)
        asked = process("stop", "curves", "--storage", "studies.db", cwd=tmp_path)
        assert "asked the search to stop" in asked.stderr
        assert "asked by hpsearch stop" in driver.stdout.read()
    found = read(database, "show", "curves")
    assert (found["searching"], found["states"]) == (None, {"waiting": 1})
    assert read(database, "trials", "curves")[0]["last_step"] >= 1


def rows_of(database: Path) -> list[TrialRow]:
    records = open_study("curves", storage=str(database)).records
    return [trial_row(record) for record in records.by_number.values()]


def reported(database: Path) -> bool:
    """Whether the first trial has reported to the study."""
    try:
        return any(trial.last_step for trial in rows_of(database))
    except (StorageError, SearchError):
        return False  # no study yet


def test_what_another_program_wrote_without_the_parameters_is_no_winner(copied: Path) -> None:
    study = optuna.load_study(study_name="curves", storage=f"sqlite:///{copied}")
    before = read(copied, "best", "curves")
    odd = {1: float("nan"), 2: float("inf"), 3: 1.0}
    study.add_trial(optuna.trial.create_trial(value=float("-inf"), intermediate_values=odd))
    assert read(copied, "best", "curves") == before
    assert "another program wrote it" in call(copied, "show", "curves", "--trial", "12").stdout
    assert call(copied, "show", "curves").exit_code == 0
