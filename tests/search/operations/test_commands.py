"""Searches of scripts in the folder of their space: found, resumed and exported from anywhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpsearch.search.cli import main

pytestmark = pytest.mark.slow

SCRIPT = """
import argparse, json, os, re, time, tomllib
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float); p.add_argument("--layers", type=int, nargs="+")
p.add_argument("--amp", action="store_true"); p.add_argument("--sched"); p.add_argument("--seed", type=int)
p.add_argument("--config"); p.add_argument("--out"); p.add_argument("--resume")
a = p.parse_args()
units = tomllib.load(open(a.config, "rb"))["model"]["layers"][1]["units"]
begin = int(re.search(r"checkpoint-([0-9]+)", a.resume)[1]) if a.resume else 0
print("begins at", begin)
for step in range(begin + 1, 10):
    os.makedirs(f"{a.out}/checkpoint-{step}", exist_ok=True)
    open(f"{a.out}/checkpoint-{step}/state.json", "w").write("{}")
    loss = abs(a.lr - 0.01) + 1 / step + sum(a.layers) / 1000 + a.amp / 100 + units / 1000 + a.seed % 7 / 1e4
    print(json.dumps({"step": step, "loss": loss + (a.sched is None) / 1e3}), flush=True)
    time.sleep(0.4)  # a program that ends before its pause is not resumed
"""
SPACE = """
version: 1
name: mine
objective:
  command: [python, train.py, "--lr=${lr}", --layers, "${layers:words}", "${amp:--amp|}", --sched, "${sched}",
    "--seed=${seed}", --config, "${config:c.toml}", "--out=${checkpoint}", --resume, "${checkpoint:last}"]
metric: loss
parameters:
  lr: {min: 0.001, max: 0.1, log: true}
  layers: {choices: [[64, 32], [8]]}
  amp: [true, false]
  sched: [null, cosine]
  model.layers.1.units: [1, 2]
early_stopping: {method: asha, min: 1, max: 9, eta: 3, type: promotion}
budget: {trials: 9}
"""


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a space, its script and its configuration file; the current folder is another one."""
    space, here = tmp_path / "spaces", tmp_path / "here"
    space.mkdir()
    here.mkdir()
    (space / "train.py").write_text(SCRIPT)
    (space / "c.toml").write_text("# mine\nlr = 1\n[model]\nlayers = [{units = 3}, {units = 4}]\n")
    (space / "mine.yaml").write_text(SPACE)
    monkeypatch.chdir(here)
    return space


def hpsearch(*words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command of hpsearch in the current folder."""
    command = [sys.executable, "-m", "hpsearch.search.cli", *map(str, words)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command in this process: its output, and its errors."""

    def run(*words: str | Path) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["hpsearch", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        return capsys.readouterr()

    return run


def test_a_space_from_another_folder_is_searched_resumed_and_exported(
    there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Any
) -> None:
    typed("run", there / "mine.yaml", "--plain")
    logs = [path.read_text() for path in Path("runs/mine").glob("*/output.log")]
    assert len(logs) == 9
    assert any(re.search("begins at [1-9]", log) for log in logs), "a promoted trial resumes"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    store: list[str | Path] = [
        "--storage",
        tmp_path / "here" / "hpsearch.db",
        "--runs",
        tmp_path / "here" / "runs",
    ]
    monkeypatch.chdir(elsewhere)
    assert "not in it" not in typed("export", "mine", "-o", "best.yaml", *store)[1]
    best = yaml.safe_load(Path("best.yaml").read_text())
    assert best["objective"]["command"][:2] == ["python", "train.py"]
    assert "bit for bit" in typed("train", "best.yaml")[0]
    line = typed("export", "mine", "--format", "command", *store)[0]
    ran = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout.splitlines()[-1])["loss"] == best["provenance"]["value"]
    (there / "mine.yaml").write_text(SPACE.replace("trials: 9", "trials: 11"))
    typed("run", there / "mine.yaml", "--plain", *store)


def test_a_function_is_found_beside_its_space(there: Path) -> None:
    (there / "mine.py").write_text("def f(trial):\n    return trial.params['x']\n")
    space = "version: 1\nname: f\nobjective: mine.py:f\nmetric: loss\nparameters: {x: {min: 0.0, max: 1.0}}\n"
    (there / "f.yaml").write_text(f"{space}budget: {{trials: 2}}\n")
    hpsearch("validate", there / "f.yaml", "--import")
    hpsearch("run", there / "f.yaml", "--plain")
    hpsearch("export", "f", "-o", "f-best.yaml")
    assert "bit for bit" in hpsearch("train", "f-best.yaml").stdout


HYDRA = """
import hydra
from omegaconf import DictConfig, OmegaConf

@hydra.main(version_base=None, config_path=".", config_name="conf")
def main(conf: DictConfig) -> None:
    import json
    print(json.dumps({"loss": conf.optimizer.lr, "step": 1}))
    print("read", json.dumps(OmegaConf.to_container(conf, resolve=True)))

main()
"""


def test_a_hydra_application_reads_what_the_trial_has(there: Path) -> None:
    (there / "app.py").write_text(HYDRA)
    (there / "conf.yaml").write_text(
        "optimizer: {lr: 1, name: x}\nlayers: []\nnote: ''\nsched: x\nflag: no\n"
    )
    note = 'it\'s "a, b" = ${x} {1: [2]} \\ # é'
    space: dict[str, Any] = {
        "version": 1,
        "name": "app",
        "objective": {"command": ["python", "app.py", "${args_hydra}", "hydra.run.dir=${run}/hydra"]},
        "metric": "loss",
        "parameters": {
            "optimizer.lr": {"min": 1e-5, "max": 1e-3, "log": True},
            "layers": {"value": [64, 32]},
            "note": {"value": note},
            "sched": {"value": None},
            "flag": True,
        },
        "budget": {"trials": 2},
    }
    (there / "app.yaml").write_text(yaml.safe_dump(space))
    hpsearch("run", there / "app.yaml", "--plain")
    text = Path("runs/app/0/output.log").read_text()
    read = json.loads(
        next(line for line in text.splitlines() if line.startswith("read")).removeprefix("read ")
    )
    assert read.pop("optimizer")["lr"] < 1e-3
    assert read == {"layers": [64, 32], "note": note, "sched": None, "flag": True}


def test_a_missing_file_is_told_with_its_line(there: Path) -> None:
    (there / "mine.yaml").write_text(SPACE.replace("train.py", "trian.py").replace("c.toml", "d.toml"))
    for command in ("validate", "run"):
        told = hpsearch(command, there / "mine.yaml", code=2).stderr
        assert f'mine.yaml:5:21 objective.command[1]: there is no file "trian.py" in {there} or' in told
        assert "did you mean train.py?" in told and "did you mean c.toml?" in told
