"""Runs a page of docs/recipes: the programs beside this file, unchanged, in its space.

`python tests/recipes/recipe.py [NAME ...]` prints the table of docs/recipes/README.md.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
PAGES = HERE.parents[1] / "docs/recipes"
BLOCK = re.compile(r"^```yaml\n(# file: (\S+)\n.*?)^```$", re.MULTILINE | re.DOTALL)
NO_MORE = ["--no-confirm", "--no-audit"]  # they would only take longer


def last(pattern: str) -> Callable[[Path, str], float]:
    """The last number that the program printed so."""
    return lambda folder, output: float(re.findall(pattern, output)[-1])


def last_state(key: str) -> Callable[[Path, str], float]:
    """The last value in the newest `trainer_state.json`."""

    def value(folder: Path, output: str) -> float:
        import json

        states = sorted(folder.glob("checkpoint-*/trainer_state.json"), key=lambda path: path.stat().st_mtime)
        history = json.loads(states[-1].read_text())["log_history"]
        return float([row[key] for row in history if key in row][-1])

    return value


def last_row(file: str, column: str) -> Callable[[Path, str], float]:
    """The last value of a column of a CSV file below the run's folder."""

    def value(folder: Path, output: str) -> float:
        import csv

        path = max(folder.parent.glob(file), key=lambda path: path.stat().st_mtime)
        with path.open() as rows:
            return float([row[column] for row in csv.DictReader(rows) if row[column]][-1])

    return value


def last_scalar(tag: str) -> Callable[[Path, str], float]:
    """The last value of a tag in TensorBoard's event files."""

    def value(folder: Path, output: str) -> float:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(folder.parent / "logs"))
        events.Reload()
        return float(events.Scalars(tag)[-1].value)

    return value


@dataclass(frozen=True)
class Recipe:
    """A page, the folder of its program, and what the program leaves."""

    title: str
    value: Callable[[Path, str], float]  # of a run, by its checkpoint folder and its output
    programs: str = ""  # the folder, if it is not called like the page
    needs: tuple[str, ...] = ()  # modules and programs
    extras: bool = False  # whether it runs only where all extras are installed
    tiny: bool = False  # whether it trains the tiny language model
    environment: tuple[tuple[str, str], ...] = ()
    apart: float = 0.0  # how far a winner that has resumed may be from its command line, relative to the larger


RECIPES = {
    "pytorch": Recipe("PyTorch script, argparse", last(r"val_loss (\S+)")),
    "nanogpt": Recipe("nanoGPT-style script, `--key=value`", last(r"val loss (\S+)"), extras=True),
    "torchrun": Recipe("torchrun, two processes", last(r"eval_error=(\S+)"), extras=True),
    "shell": Recipe("shell script", last(r"error is (\S+)")),
    "r": Recipe("R program", last(r"deviance: (\S+)"), needs=("Rscript",), extras=True),
    "tensorboard": Recipe(
        "PyTorch script, TensorBoard", last_scalar("error/eval"), needs=("tensorboard",), extras=True
    ),
    "keras": Recipe(
        "Keras script",
        last_row("training.csv", "val_loss"),
        needs=("keras",),
        extras=True,
        environment=(("KERAS_BACKEND", "torch"),),
    ),
    "hydra": Recipe("Hydra application", last(r"loss: (\S+)"), needs=("hydra",), extras=True),
    "lightning": Recipe(
        "LightningCLI",
        last_row("logs/**/metrics.csv", "val_loss"),
        needs=("lightning", "jsonargparse"),
        extras=True,
    ),
    "accelerate": Recipe(
        "accelerate launch, two processes",
        last(r"eval_loss (\S+)"),
        needs=("accelerate",),
        extras=True,
    ),
    "trainer": Recipe(
        "Trainer, HfArgumentParser",
        last_state("eval_loss"),
        needs=("transformers", "datasets", "accelerate"),
        extras=True,
        tiny=True,
    ),
    "trl-sft": Recipe(
        "trl sft, YAML", last_state("eval_loss"), "trl", ("trl", "peft"), extras=True, tiny=True
    ),
    "trl-dpo": Recipe(
        "trl dpo, YAML",
        last_state("eval_rewards/accuracies"),
        "trl",
        ("trl", "peft"),
        extras=True,
        tiny=True,
    ),
    "llamafactory": Recipe(
        "LLaMA-Factory, YAML", last_state("eval_loss"), needs=("llamafactory-cli",), extras=True, tiny=True
    ),
    "axolotl": Recipe(
        "Axolotl, YAML",
        last_state("eval_loss"),
        needs=("axolotl",),
        extras=True,
        tiny=True,
        environment=(("AXOLOTL_DO_NOT_TRACK", "1"),),
        apart=0.01,
    ),
}


class Outcome(NamedTuple):
    """What a run of a recipe has shown."""

    trials: int
    reports: int
    pruned: int
    resumed: int  # trials that paused and went on from their checkpoint
    started_over: int
    changed: int  # lines of the program that differ afterwards
    value: float  # the winner's
    again: float  # of its command line, in a shell

    @property
    def off(self) -> float:
        """How far the values are apart, relative to the larger one."""
        return abs(self.value - self.again) / max(abs(self.value), abs(self.again), 1e-300)


def missing(recipe: Recipe) -> list[str]:
    return [name for name in recipe.needs if shutil.which(name) is None and find_spec(name) is None]


def prepare(name: str, folder: Path, tiny: Path | None = None) -> Path:
    """Lay out the program, its data and the space of a page. Returns the path of the space."""
    recipe = RECIPES[name]
    shutil.copytree(HERE / (recipe.programs or name), folder, dirs_exist_ok=True)
    if tiny is not None:
        shutil.copytree(tiny, folder, dirs_exist_ok=True)
    blocks = BLOCK.findall((PAGES / f"{name}.md").read_text(encoding="utf-8"))
    for content, file in blocks:
        (folder / file).write_text(content)
    return folder / str(blocks[0][1])


def run(name: str, folder: Path, tiny: Path | None = None) -> Outcome:
    """Search a page's space in `folder`, then train the winner by its exported command line."""
    from hpsearch.search import open_study

    space = prepare(name, folder, tiny)
    search = _hpsearch(name, folder, "run", space.name, *NO_MORE)
    [study] = re.findall(r"^name: (\S+)$", space.read_text(), re.MULTILINE)
    result = open_study(study, storage=str(folder / "hpsearch.db"), runs=folder / "runs")
    assert result.best_trial is not None, search
    trials = result.study.get_trials(deepcopy=False)
    events = [
        [event.get("kind") for event in trial.user_attrs.get("events", ()) if isinstance(event, dict)]
        for trial in trials
    ]
    line = _hpsearch(name, folder, "export", study, "--format", "command")
    output = subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env=_environment(name),
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        stdin=subprocess.DEVNULL,
    ).stdout
    [checkpoint] = folder.glob("trained/*/checkpoint")
    programs = HERE / (RECIPES[name].programs or name)
    return Outcome(
        trials=len(trials),
        reports=sum(len(trial.intermediate_values) for trial in trials),
        pruned=sum(trial.state.name == "PRUNED" for trial in trials),
        resumed=sum("resumed" in kinds and "started_over" not in kinds for kinds in events),
        started_over=sum("started_over" in kinds for kinds in events),
        changed=sum(
            (programs / path.relative_to(programs)).read_bytes()
            != (folder / path.relative_to(programs)).read_bytes()
            for path in programs.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        ),
        value=float(result.best.value),
        again=RECIPES[name].value(checkpoint, output),
    )


def _environment(name: str) -> dict[str, str]:
    bin_folder = Path(sys.executable).parent
    own = {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "HF_HUB_OFFLINE": "1", "COLUMNS": "200"}
    return os.environ | own | dict(RECIPES[name].environment)


def _hpsearch(name: str, folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "hpsearch.search.cli", *words],
        cwd=folder,
        env=_environment(name),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{shutil.which('hpsearch')} {words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def row(name: str, outcome: Outcome) -> str:
    """A line of the table."""
    off = outcome.off
    same = "bit for bit" if off == 0 else f"to {off:.1%}"
    cells: list[Any] = [
        f"[{RECIPES[name].title}]({name}.md)",
        outcome.changed,
        outcome.reports,
        outcome.pruned,
        outcome.resumed,
        same,
    ]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    names = sys.argv[1:] or list(RECIPES)
    print("| program | lines changed | reports seen | pruned | resumed | reproduced |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        tiny = Path(temporary, "tiny")
        for name in names:
            if lacking := missing(RECIPES[name]):
                print(f"{name}: needs {', '.join(lacking)}", file=sys.stderr)
                continue
            if RECIPES[name].tiny and not tiny.exists():
                tiny.mkdir()
                subprocess.run([sys.executable, HERE / "tiny.py", tiny], check=True)
            folder = Path(temporary, name)
            print(row(name, run(name, folder, tiny if RECIPES[name].tiny else None)), flush=True)


if __name__ == "__main__":
    main()
