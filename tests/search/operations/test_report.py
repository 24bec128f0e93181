"""A report holds what the page asks for, reads back, and lets nothing of a study act."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState, create_trial

from hpsearch.search.errors import UsageError
from hpsearch.search.operations.markdown import _beside
from hpsearch.search.operations.report import POINTS, WrittenReport, report
from hpsearch.search.operations.run import run
from hpsearch.search.operations.watch import curves
from hpsearch.spaces import Spec
from hpsearch.spaces.loader import load
from hpsearch.storage.database import open_storage
from hpsearch.storage.studies import PROVENANCE, SPEC, open_live
from hpsearch.storage.workspace import Workspace

from ...support.in_process import InProcessBackend
from ...support.watchers import Recorder

SPACE: dict[str, Any] = {
    "objective": "short.py:short",
    "version": 1,
    "metric": "loss",
    "parameters": {"x": {"min": 0.0, "max": 1.0}, "kind": ["a|b", "c"]},
    "baseline": {"x": 0.5, "kind": "c"},
    "search": {"sampler": "random", "seed": 1},
    "early_stopping": {"method": "none", "max": 2},
    "budget": {"trials": 5},
    "execution": {"workers": 1, "retries": 0},
}


SHORT = """\
def short(trial):
    if trial.number == 3:
        name = b"caf\\xe9.csv".decode(errors="surrogateescape")  # as a file name that is no UTF-8
        trial.set_attribute("file", {"read": [name]})
        raise ValueError("</script><script>alert(1)</script> | `x` \\x1b[31m " + name)
    trial.report(1 + trial.params["x"], 1)
    return float((trial.params["x"] - 0.3) ** 2)
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("report")
    (folder / "short.py").write_text(SHORT)
    workspace = Workspace.at(str(folder / "studies.db"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(
            "hpsearch.search.operations.run.make_backend", lambda name, *of: InProcessBackend(*of[:2])
        )
        for name in ("first", "second|study's"):
            run(workspace=workspace, space=SPACE | {"name": name}, watcher=Recorder())
    return workspace


def frozen(written: WrittenReport) -> dict[str, Any]:
    (text,) = re.findall(r'id="frozen">(.*?)</script>', written.text)
    return dict(json.loads(gzip.decompress(base64.b64decode(text))))


def test_it_holds_the_answers_of_routes(workspace: Workspace) -> None:
    written = report(workspace=workspace, study=["first"])
    held = frozen(written)
    answers = held["answers"]
    assert held["first"] == "studies/first/report"
    assert [study["name"] for study in answers["studies"]] == ["first"]
    assert answers["studies/first"]["states"] == {"complete": 4, "fail": 1}
    assert len(answers["studies/first/trials"]) == 5
    assert answers["studies/first/curves"]["trial"] == [0, 1, 2, 4]
    assert {f"studies/first/trials/{n}{what}" for n in range(5) for what in ("", "/story")} <= answers.keys()
    assert str(workspace.runs.parent) not in json.dumps(held), "it says nothing of where files are"
    assert answers["studies/first/winner/recipe?format=yaml"]["text"].startswith(
        "objective: short.py:short\n"
    )
    (failed,) = answers["studies/first"]["endings"]
    assert failed["example"].endswith(" caf\\udce9.csv"), "which UTF-8 can hold"
    assert written.text.encode()


def test_what_a_study_stores_can_be_written(workspace: Workspace) -> None:
    with closing(sqlite3.connect(workspace.url.removeprefix("sqlite:///"))) as database:
        stored = [
            json.loads(text) for (text,) in database.execute("select value_json from trial_user_attributes")
        ]
    assert {"read": ["caf\\udce9.csv"]} in stored
    assert json.dumps(stored, ensure_ascii=False).encode()


def test_its_space_reads_as_the_same(workspace: Workspace, tmp_path: Path) -> None:
    text = frozen(report(workspace=workspace, study=["first"]))["answers"]["studies/first/space"]
    assert "null" not in text
    (tmp_path / "space.yaml").write_text(text)
    again, first = load(tmp_path / "space.yaml"), Spec.from_json(SPACE | {"name": "first"})
    assert again.parameters == first.parameters and again.budget == first.budget


def test_no_text_of_a_study_ends_a_script(workspace: Workspace) -> None:
    written = report(workspace=workspace, study=["first"]).text
    assert "alert(1)" not in written, "it is packed"
    assert written.count("</script>") == 3  # the import map, the answers, the start
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', written)
    assert "unsafe" not in policy and "default-src 'none'" in policy


def test_several_studies_are_compared_and_each_is_there_once(workspace: Workspace) -> None:
    held = frozen(report(workspace=workspace, study=["first", "second|study's", "first"]))
    assert held["first"] == "compare?of=first,second%257Cstudy%27s"  # a name is quoted, then the list
    assert "studies/second%7Cstudy's/winner" in held["answers"]  # as encodeURIComponent has it


def test_markdown_for_a_pull_request(workspace: Workspace) -> None:
    text = report(workspace=workspace, study=["first"], form="md").text
    assert text.startswith("# first\n\n**Not confirmed.** Trial ")
    assert "| `kind` | `c` | choice of a\\|b, c |" in text or "a\\|b" in text
    assert "<script>" not in text and "&lt;script>" in text
    assert text.count("<details>") == text.count("</details>") == 2
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert all(row.endswith("|") for row in rows) and len(rows) > 8
    assert "\n\n5 trials (4 complete, 1 fail) in " in text
    assert "\\| \\`x\\` ␛\\[31m caf\\\\udce9.csv |" in text and "\x1b" not in text
    assert str(workspace.runs.parent) not in text


def test_no_name_breaks_markdown(workspace: Workspace) -> None:
    odd = SPACE | {"name": "a`b_*", "metric": "l<o>|`s", "budget": {"trials": 1}}
    database = open_storage(workspace.url)
    attrs = {SPEC: Spec.from_json(odd).to_json(), PROVENANCE: {"backend": "optuna"}}
    live = open_live(database, "a`b_*", goal="minimize", attrs=attrs)
    study = optuna.load_study(study_name=live.born, storage=live)
    trial = {"x": 0.5, "kind": "a|b"}
    ranges: dict[str, Any] = {
        "x": FloatDistribution(0.0, 1.0),
        "kind": CategoricalDistribution(["a|b", "c"]),
    }
    study.add_trial(create_trial(params=trial, distributions=ranges, value=0.25))
    reason = "sh exited with code 3; its output is in /home/mine/runs/s/1/output.log"
    older = b"\xe9".decode(errors="surrogateescape")  # stored as it was
    study.add_trial(create_trial(state=TrialState.FAIL, user_attrs={"reason": reason, "file": older}))
    live.flush()
    live.close()
    text = report(workspace=workspace, study=["a`b_*"], form="md").text
    assert text.startswith("# a\\`b\\_\\*\n") and "`` l<o>|`s ``" in text
    assert "\n| l&lt;o>\\|\\`s in the search | 0.25 |\n" in text and "\n| `kind` | `a\\|b` | " in text
    assert "trial 1: sh exited with code 3; its output is in runs/s/1/output.log |" in text
    assert "/home/mine" not in text and report(workspace=workspace, study=["a`b_*"]).text.encode()
    held = frozen(report(workspace=workspace, study=["a`b_*"]))
    assert "runs/s/1/output.log" in json.dumps(held) and "/home/mine" not in json.dumps(held)


def test_markdown_tells_what_a_study_has_cost(workspace: Workspace) -> None:
    text = report(workspace=workspace, study=["first"], form="md").text
    (cost,) = re.findall(r"## Cost\n\n(.*?)\n\n##", text, re.DOTALL)
    assert re.match(r"- .* of the machine: search .*", cost) or "of workers" in cost
    assert re.search(r"- a gain of \S+ over the baseline, which is not confirmed: .* per unit of it", cost)


def test_markdown_of_several_studies_compares_them(workspace: Workspace) -> None:
    text = report(workspace=workspace, study=["first", "second|study's"], form="md").text
    assert text.startswith("# first and second") and text.count("\n# ") == 0
    tables = dict(re.findall(r"## (.*?)\n\n(.*?)(?=\n\n##|\Z)", text, re.DOTALL))
    assert list(tables) == [
        "What they found", "Their best configurations", "What they search", "The whole of each",
    ]  # fmt: skip
    rows = {line.split("|")[1].strip(): line for line in tables["What they found"].splitlines()}
    assert {
        "winner",
        "metric",
        "what the search saw of it",
        "trials",
        "states",
        "time",
        "cost",
    } <= rows.keys()
    assert rows["states"].count("4 complete, 1 fail") == 2 and rows["cost"].count("per unit of it") == 2
    assert rows["trials"] == "| trials | 5 of 5 | 5 of 5 |"


def test_what_differs_comes_first() -> None:
    rows = _beside("parameter", ("one", "two"), [{"same": "1", "b": "2"}, {"same": "1", "b": "3", "c": "4"}])
    assert rows[2:] == ["| b | 2 | 3 |", "| c | - | 4 |", "| same | 1 | 1 |"]


def test_none_is_a_mistake(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="1 to 20 studies, not 0"):
        report(workspace=workspace, study=[])


def test_a_trial_that_begins_meanwhile_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Spec.from_json(SPACE | {"name": "runs"})
    database = open_storage(f"sqlite:///{tmp_path / 'studies.db'}", create=True)
    live = open_live(database, "runs", goal=spec.goal, attrs={SPEC: spec.to_json(), PROVENANCE: {}})
    study = optuna.load_study(study_name=live.born, storage=live)
    ranges = {"x": FloatDistribution(0.0, 1.0), "kind": CategoricalDistribution(["a|b", "c"])}

    def begin(x: float) -> None:
        params = {"x": x, "kind": "c"}
        study.add_trial(
            create_trial(params=params, distributions=ranges, intermediate_values={1: x}, value=x)
        )
        live.flush()

    def read_later(**asked: Any) -> Any:
        begin(0.25)
        return curves(**asked)

    begin(0.5)
    monkeypatch.setattr("hpsearch.search.operations.watch.curves", read_later)
    written = report(workspace=Workspace.at(str(tmp_path / "studies.db")), study=["runs"])
    live.close()
    answers = frozen(written)["answers"]
    assert [row["number"] for row in answers["studies/runs/trials"]] == [0]
    assert answers["studies/runs/curves"]["trial"] == [0] and answers["studies/runs/curves"]["step"] == [[1]]


def test_two_hundred_trials_are_under_a_megabyte(tmp_path: Path) -> None:
    """Of a wide space, and with more reports than a report holds of a curve."""
    names = [f"parameter_{number}_of_a_wide_space" for number in range(30)]
    parameters = {name: {"min": 0.0, "max": 1.0} for name in names}
    stopping = {"method": "none", "max": 100}
    spec = Spec.from_json(
        SPACE | {"name": "long", "parameters": parameters, "baseline": None, "early_stopping": stopping}
    )
    database = open_storage(f"sqlite:///{tmp_path / 'studies.db'}", create=True)
    attrs = {SPEC: spec.to_json(), PROVENANCE: {"backend": "optuna"}}
    live = open_live(database, "long", goal=spec.goal, attrs=attrs)
    study = optuna.load_study(study_name=live.born, storage=live)
    chance = random.Random(1)
    for _ in range(200):
        reports = {step: chance.random() for step in range(1, 101)}  # with all their digits
        params = {name: chance.random() for name in names}
        ranges: dict[str, Any] = dict.fromkeys(names, FloatDistribution(0.0, 1.0))
        study.add_trial(
            create_trial(params=params, distributions=ranges, intermediate_values=reports, value=reports[100])
        )
    live.flush()
    live.close()
    written = report(workspace=Workspace.at(str(tmp_path / "studies.db")), study=["long"])
    answers = frozen(written)["answers"]
    curves = answers["studies/long/curves"]
    assert len(curves["value"]) == 200 and max(map(len, curves["value"])) == POINTS
    assert all((steps[0], steps[-1]) == (1, 100) for steps in curves["step"])
    assert curves["reports"] == [100] * 200, "the report says that it holds some of them alone"
    once = json.dumps(answers["studies/long/trials/7"])
    assert "curve" not in once and "params" not in once and '"rungs"' in once
    assert len(written.text.encode()) < 1_000_000
