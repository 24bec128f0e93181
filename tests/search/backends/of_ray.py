# mypy: ignore-errors
"""Trainables as people write them for Ray Tune; nothing here knows of hpsearch."""

import json
import os
import tempfile
from pathlib import Path

import ray
from ray import train, tune


def descend(config):
    done = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder:
            done = json.loads(Path(folder, "state.json").read_text())["epoch"]
    assert (train.get_checkpoint() is None) is (done == 0)
    print("begins after", done, "as", tune.get_context().get_trial_id(), flush=True)
    for epoch in range(done + 1, 10):
        of = train if epoch % 2 else tune  # it pauses at odd ones
        loss = config["model"]["x"] + 1 / epoch
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps({"epoch": epoch}))
            checkpoint = of.Checkpoint.from_directory(folder)
            of.report({"loss": loss, "eval": {"half": loss / 2}, "note": "text"}, checkpoint=checkpoint)


def by_train(config):
    assert train.get_checkpoint() is None
    assert train.get_context().get_world_size() == 1
    for epoch in range(1, 10):
        train.report({"loss": config["model"]["x"] + 1 / epoch})


def returns(config):
    return {"loss": config["model"]["x"], "seed": int(os.environ["HPSEARCH_SEED"])}


def yields(config):
    for epoch in range(1, 4):
        yield {"loss": config["model"]["x"] + 1 / epoch, "done": epoch == 2}


def with_data(config, data=None):
    tune.report({"loss": config["model"]["x"] + sum(data)})


def another_key(config):
    try:
        tune.report({"los": 1.0})
    except Exception:  # as scripts have it
        return


class Steps(tune.Trainable):
    def setup(self, config):
        self.x, self.steps = config["model"]["x"], 0

    def step(self):
        self.steps += 1
        return {"loss": self.x + 1 / self.steps}

    def save_checkpoint(self, folder):
        return {"steps": self.steps}

    def load_checkpoint(self, state):
        print("loads", state["steps"], flush=True)
        self.steps = state["steps"]


given = tune.with_resources(tune.with_parameters(with_data, data=[1, 2]), {"cpu": 1})
ray.init()
tune.Tuner(descend, param_space={"model": {"x": tune.uniform(0, 1)}}).fit()
raise SystemExit("this must not run")
