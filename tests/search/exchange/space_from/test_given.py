"""What `study.optimize` is given, in the shapes that people write: read, and run as it is."""

from __future__ import annotations

import sys
from pathlib import Path

import optuna
import pytest
import yaml

from hpsearch.objectives.base import ObjectiveError
from hpsearch.objectives.user.optuna_function import load_optuna
from hpsearch.search.exchange.space_from import proposal

from ....objectives.user.test_optuna_function import Heard

HEAD = """
import pickle
import sys
from functools import partial

import optuna

LOW, DATA = 0.0, [1, 2]


def objective(trial, data, high=4.0):
    return trial.suggest_float("x", LOW, high) * sum(data)


class Objective:
    WIDTHS = [8, 16]

    def __init__(self, high, data=DATA):
        self.high = high
        self.data = pickle.loads(pickle.dumps(data))

    def width(self, trial):
        return trial.suggest_categorical("w", self.WIDTHS)

    def __call__(self, trial):
        assert pickle.loads(pickle.dumps(self)).high == self.high  # as loaders in other processes need it
        self.width(trial)
        return trial.suggest_float("x", 0, self.high) * sum(self.data)

    def run(self, trial):
        return self(trial)


def make(data, high):
    def inner(trial):
        return trial.suggest_float("x", 0, high) * sum(data)

    return inner


def main(data=(1, 2)):
    high = 5.0

    def nested(trial):
        return trial.suggest_float("x", 0, high) * sum(data)

    runner = Objective(high=3)
    study = optuna.create_study(storage="sqlite:///none.db", study_name="s")
    {inside}


{after}
if __name__ == "__main__":
    MORE = 3
    assert len(sys.argv) == 1
    {guarded}
"""
SHAPES = [  # what optimize is given, and the end of the range of x
    ("guarded", "Objective(10)", 10.0),
    ("guarded", "lambda t: objective(t, DATA)", 4.0),
    ("guarded", "lambda t: objective(t, data=[MORE], high=6.0)", 6.0),
    ("guarded", "partial(objective, data=DATA)", 4.0),
    ("guarded", "make([3], 7.0)", 7.0),
    ("guarded", "lambda t: t.suggest_float('x', 0, MORE) * MORE", 3.0),
    ("inside", "nested", 5.0),
    ("inside", "runner.run", 3.0),
    ("inside", "make(data, high=2.0)", 2.0),
    ("after", "Objective(9)", 9.0),
]


def script(place: str, given: str) -> str:
    search = f"optuna.create_study().optimize({given}, n_trials=3)" if place != "inside" else ""
    places = dict.fromkeys(("inside", "after", "guarded"), "pass") | {place: search}
    if place == "inside":
        places |= {"inside": f"study.optimize({given}, n_trials=3)", "guarded": "main()"}
    text = HEAD
    for name, line in places.items():
        text = text.replace(f"{{{name}}}", line)
    return text


@pytest.mark.parametrize(("place", "given", "high"), SHAPES, ids=[given for _, given, _ in SHAPES])
def test_what_optimize_is_given_is_searched_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, given: str, high: float
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = Path("train.py")
    path.write_text(script(place, given))
    space = yaml.safe_load(proposal(path))
    assert space["objective"] == "optuna:train.py:__main__"
    assert space["parameters"]["x"] == {"min": 0.0, "max": high}
    before = sys.modules["__main__"]
    objective = load_optuna(space["objective"], {})
    trial = Heard({"x": 1.0, "w": 8}, tmp_path)
    assert objective(trial) == 3.0
    assert trial.remarks == []
    assert sys.modules["__main__"] is before
    assert not Path("none.db").exists(), "the studies of the user's database stay as they are"


def test_an_object_at_the_top_of_the_file_has_a_name_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        script("guarded", "tuned").replace("LOW, ", "LOW, ").replace("\npass\n", "\ntuned = Objective(8)\n")
    )
    space = yaml.safe_load(proposal(path))
    assert space["objective"] == f"optuna:{path}:tuned"
    assert space["parameters"] == {"w": [8, 16], "x": {"min": 0.0, "max": 8.0}}


def test_a_function_that_needs_what_only_the_program_sets_is_found_by_running_it(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "import optuna\ndef objective(trial):\n    return trial.suggest_float('x', 0, 1) * DATA\n"
        "if __name__ == '__main__':\n    DATA = 2\n    optuna.create_study().optimize(objective)\n"
    )
    assert yaml.safe_load(proposal(path))["objective"] == f"optuna:{path}:__main__"
    assert load_optuna(f"optuna:{path}:__main__", {})(Heard({"x": 0.5})) == 1.0


def test_what_cannot_be_followed_is_read_from_the_function_that_suggests_and_said(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(script("guarded", "[partial(objective, data=DATA)][0]"))
    text = proposal(path)
    assert yaml.safe_load(text)["parameters"] == {"x": {"min": 0.0, "max": 4.0}}
    assert "what optimize is given cannot be read; this is objective: check it" in text


@pytest.mark.parametrize(
    ("given", "name"),
    [("objective", "objective"), ("Objective(0.5)", "__main__"), ("lambda t: both(t, 2)", "__main__")],
)
def test_an_objective_from_a_file_beside_it_is_read_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, name: str
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "model_beside", raising=False)
    (tmp_path / "model_beside.py").write_text(
        "HIGH = 4.0\ndef objective(trial):\n    return trial.suggest_float('x', 0, HIGH)\n"
        "def both(trial, times):\n    trial.suggest_float('y', 0, far())\n    return objective(trial) * times\n"
        "class Objective:\n    def __init__(self, low):\n        self.low = low\n"
        "    def __call__(self, trial):\n        return objective(trial) + trial.suggest_float('z', self.low, 1)\n"
    )
    path = tmp_path / "train.py"
    path.write_text(
        "import optuna\nfrom model_beside import Objective, both, objective\nif __name__ == '__main__':\n"
        f"    optuna.create_study(direction='maximize').optimize({given})\n"
    )
    text = proposal(path)
    space = yaml.safe_load(text)
    assert (space["objective"], space["goal"]) == (f"optuna:{path}:{name}", "maximize")
    assert space["parameters"]["x"] == {"min": 0.0, "max": 4.0}
    assert ("z" in space["parameters"]) is given.startswith("Objective")
    assert ("# model_beside.py, line 5: " in text) is ("both" in given), "what cannot be read is in that file"
    if "both" not in given:
        assert load_optuna(space["objective"], {})(Heard({"x": 1.0, "z": 1.0})) in (1.0, 2.0)


def test_of_several_searches_the_first_is_searched_and_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(script("guarded", "Objective(2)") + "    optuna.create_study().optimize(Objective(3))\n")
    text = proposal(path)
    assert yaml.safe_load(text)["parameters"]["x"] == {"min": 0.0, "max": 2.0}
    assert "the one that the program reaches first is searched" in text


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("x = 1", "train.py ended before it began a search: it gave nothing to study.optimize"),
        ("raise SystemExit(2)", "with exit code 2; it gets no arguments here: give them defaults"),
        ("import optuna\noptuna.create_study().optimize(3)", "searches a int, not a function"),
    ],
)
def test_a_program_that_begins_no_search_is_told(tmp_path: Path, source: str, told: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(source)
    with pytest.raises(ObjectiveError) as raised:
        load_optuna(f"optuna:{path}:__main__", {})
    assert told in str(raised.value)
    with pytest.raises(ObjectiveError, match="is of a file"):
        load_optuna("optuna:json.tool:__main__", {})
    assert optuna.create_study is optuna.study.create_study
