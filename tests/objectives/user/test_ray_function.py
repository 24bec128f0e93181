"""A session of Ray Tune without Ray: reports, checkpoints that are whole or not there, and resumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpsearch.objectives.base import NothingReported, ObjectiveError, SpaceMismatch, TrialStopped

from .test_optuna_function import Heard

pytestmark = pytest.mark.slow  # Ray takes seconds to import


def objective(function: Any, metric: str = "loss", **search: Any) -> Any:
    from hpsearch.objectives.user.ray_function import RayObjective

    return RayObjective(function, search, metric)


def saves(last: int) -> Any:
    """A function of so many reports, each with a checkpoint."""
    from ray import tune

    def train(config: Any) -> None:
        done, checkpoint = 0, tune.get_checkpoint()
        if checkpoint:
            done = json.loads(Path(checkpoint.path, "n").read_text())
        for n in range(done + 1, last + 1):
            folder = Path(config["folder"])
            folder.mkdir(exist_ok=True)
            (folder / "n").write_text(str(n))
            tune.report({"loss": 1 / n}, checkpoint=tune.Checkpoint.from_directory(str(folder)))

    return train


def test_a_resumed_function_counts_on_and_keeps_one_checkpoint(tmp_path: Path) -> None:
    checkpoint, params = tmp_path / "0" / "checkpoint", {"folder": str(tmp_path / "made")}
    first = Heard(params, checkpoint, stop_at=3)
    with pytest.raises(TrialStopped):
        objective(saves(5))(first)
    assert [path.name for path in checkpoint.iterdir()] == ["report-000003"]
    second = Heard(params, checkpoint)
    assert objective(saves(5))(second) == 1 / 5
    assert second.reports == [(4, 1 / 4), (5, 1 / 5)]
    third = Heard(params, checkpoint)
    assert objective(saves(5))(third) == 1 / 5, "it has nothing left to report"
    assert third.reports == []


def test_a_checkpoint_is_the_last_whole_one(tmp_path: Path) -> None:
    """A kill may come at any moment of a copy."""
    checkpoint, params = tmp_path / "0" / "checkpoint", {"folder": str(tmp_path / "made")}
    objective(saves(2))(Heard(params, checkpoint))
    half = checkpoint / "tmp-report-000003" / "data"
    half.mkdir(parents=True)
    (half / "n").write_text("9")
    trial = Heard(params, checkpoint)
    objective(saves(3))(trial)
    assert trial.reports == [(3, 1 / 3)]


def test_metrics_are_flat_numbers_and_the_rest_is_left_out(tmp_path: Path) -> None:
    import numpy as np
    from ray import tune

    trial = Heard({}, tmp_path)

    def train(config: Any) -> None:
        tune.report({"a": {"loss": np.float32(0.5), "x": 1}, "text": "t", "on": True, "step": 3, "many": [1]})

    assert objective(train, "a/loss")(trial) == 0.5
    assert trial.reports == [(1, 0.5)] and trial.metrics == [{"a/x": 1.0}]


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        (
            {"val_loss": 1.0},
            'was given only val_loss, and the metric of the space is "loss"; write metric: val_loss',
        ),
        ({"a": 1.0, "b": 2}, "write one of them as metric:"),
        ({}, "was given {}"),
        (None, "was given None"),
    ],
)
def test_a_report_without_the_metric_names_what_it_has(metrics: Any, told: str, tmp_path: Path) -> None:
    from ray import tune

    with pytest.raises(SpaceMismatch) as raised:
        objective(lambda config: tune.report(metrics))(Heard({}, tmp_path))
    assert told in str(raised.value)


@pytest.mark.parametrize(
    "given",
    [
        "Tuner(nested, param_space={})",
        "Tuner(tune.with_parameters(train, data=data), param_space={})",
        "Tuner(lambda config: train(config, data), param_space={})",
        "Tuner(tune.with_resources(tune.with_parameters(Steps, data=data), {'cpu': 1}))",
        "run(tune.with_parameters(train, data=data), config={})",
    ],
)
def test_whatever_a_tuner_is_given_runs_unchanged(given: str, tmp_path: Path) -> None:
    from hpsearch.objectives.user.ray_function import load_ray

    path = tmp_path / "train.py"
    path.write_text(
        "import pickle\nfrom ray import tune\n"
        "def train(config, data):\n    assert pickle.loads(pickle.dumps(train)) is train\n"
        "    tune.report({'loss': config['x'] * sum(data)})\n"
        "class Steps(tune.Trainable):\n"
        "    def setup(self, config, data):\n        self.x = config['x'] * sum(data)\n"
        "    def step(self):\n        return {'loss': self.x, 'done': True}\n"
        "def main():\n    data = [1, 2]\n    def nested(config):\n        train(config, data)\n"
        f"    tune.{given}.fit()\n"
        "if __name__ == '__main__':\n    main()\n"
    )
    assert load_ray(f"ray:{path}:__main__", {}, "loss")(Heard({"x": 0.5}, tmp_path)) == 1.5


def test_a_report_of_ray_before_its_mapping_is_told_what_to_write(tmp_path: Path) -> None:
    from ray import tune

    def old(config: Any) -> None:
        tune.report(loss=1.0)

    with pytest.raises(SpaceMismatch, match=r'write tune\.report\(\{"loss": loss\}\)'):
        objective(old)(Heard({}, tmp_path))
    others: dict[str, Any] = {}
    exec("def report(): ...\ndef own(config):\n    report(loss=1)", others)
    with pytest.raises(TypeError, match="unexpected keyword"):
        objective(others["own"])(Heard({}, tmp_path))


def test_a_function_that_reports_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(NothingReported, match=r"ended without tune\.report"):
        objective(lambda config: None)(Heard({}, tmp_path))
    with pytest.raises(TypeError, match="Ray Tune takes a mapping or a number"):
        objective(lambda config: "text")(Heard({}, tmp_path))
    assert objective(lambda config: 3)(Heard({}, tmp_path)) == 3


def test_no_session_stays_after_a_trial(tmp_path: Path) -> None:
    from ray import tune
    from ray.train._internal.session import get_session

    objective(lambda config: tune.report({"loss": 1}))(Heard({}, tmp_path))
    assert get_session() is None


def test_what_a_context_says(tmp_path: Path) -> None:
    from ray import tune

    said: dict[str, Any] = {}

    def train(config: Any) -> float:
        context = tune.get_context()
        said.update(id=context.get_trial_id(), name=context.get_trial_name(), folder=context.get_trial_dir())
        said.update(
            experiment=context.get_experiment_name(), cpus=context.get_trial_resources().required_resources
        )
        return 1.0

    objective(train, study="mine")(Heard({}, tmp_path / "checkpoint"))
    assert said["id"] == "00000" and said["name"] == "mine_00000" and said["experiment"] == "mine"
    assert said["folder"] == str(tmp_path) and "CPU" in said["cpus"]


def test_a_class_that_is_no_trainable_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ObjectiveError, match=r"none of tune\.Trainable's"):
        objective(type("Plain", (), {}))(Heard({}, tmp_path))
