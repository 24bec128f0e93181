"""Which search finds a better LoRA in the same time: `hpsearch run`, or a plain Optuna script.

    python benchmarks/lora_search.py [--time 300] [--seeds 5] [--first-seed 0] [--workers 2] [--confirm 5]
        [--same-rungs]

The space is `spaces/lora.yaml`. hpsearch is the command itself with the file's defaults, but with a time
budget instead of a number of trials; the time includes starting workers and confirming the winner. The Optuna
script follows Optuna's docs: `TPESampler`, `HyperbandPruner` from the first validation on (with
`--same-rungs` with the rung of the space), the baseline enqueued first, one process per worker with a shared
`JournalStorage` (with a shared SQLite file, two processes may take the same enqueued trial), and
`study.optimize(timeout=...)`. The script finishes the training runs it has started by then, so it gets more
time than hpsearch. Both train with `hpsearch.trainer`, one thread each, in the same environment.

The searches run one after the other, and which comes first alternates. Then each winner is trained again, not
counted in the time, with the same new seeds, which no search has seen. The means of these runs are compared.

| column | what it is |
|---|---|
| trials, finished | trials started, and how many of them trained to the end, without confirmation runs |
| seconds | of the command, from start to end |
| claimed | the best validation loss that the search has seen |
| winner | the mean over the new training runs of the winner |
| difference | Optuna's winner - hpsearch's winner, on the same seeds: positive is better for hpsearch |

The last line has the mean difference over the seeds, with Student's 95% interval.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from scipy.special import stdtrit

from hpsearch.search import open_study
from hpsearch.search.backends.worker.process import environment
from hpsearch.search.preflight.objective import load_space
from hpsearch.spaces import Spec
from hpsearch.spaces.stopping import Rungs
from hpsearch.storage.trial_attrs import search_trials
from hpsearch.trainer.config.models import LoraConfig
from hpsearch.trainer.runs.run import fit

FRESH = 1_000_000  # the first new seed
VALIDATIONS = 12  # of a training run, as in the space
SCRIPT = """
import sys

import optuna
from hpsearch.trainer.config.models import LoraConfig
from hpsearch.trainer.runs.run import fit
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend


def objective(trial):
    rank = trial.suggest_categorical("lora_r", [8, 16, 32, 64])
    config = {
        "learning_rate": trial.suggest_float("learning_rate", 1e-4, 3e-2, log=True),
        "batch_size": trial.suggest_categorical("batch_size", [4, 8, 16]),
        "lora_r": rank,
        "lora_alpha": 2 * rank,
        "lora_dropout": trial.suggest_float("lora_dropout", 0.0, 0.2, step=0.05),
        "lr_scheduler": trial.suggest_categorical("lr_scheduler", ["linear", "cosine"]),
        "warmup_ratio": trial.suggest_float("warmup_ratio", 0.0, 0.2, step=0.05),
        "weight_decay": trial.suggest_categorical("weight_decay", [0.0, 0.01, 0.1]),
        "train_file": "english",
        "max_samples": samples,
        "eval_every": every,
    }
    trial.set_user_attr("config", config)

    def on_report(report):
        trial.report(report.value, report.step)
        if trial.should_prune():
            raise optuna.TrialPruned

    return fit(LoraConfig.from_params(config | {"seed": trial.number}), on_report=on_report).value


if __name__ == "__main__":
    file, seconds = sys.argv[1], float(sys.argv[2])
    seed, samples, every, first, eta = map(int, sys.argv[3:])
    study = optuna.load_study(
        study_name="peer",
        storage=JournalStorage(JournalFileBackend(file)),
        sampler=optuna.samplers.TPESampler(seed=seed),
        pruner=optuna.pruners.HyperbandPruner(min_resource=first, max_resource=samples, reduction_factor=eta),
    )
    study.optimize(objective, timeout=seconds)
"""


@dataclass(frozen=True)
class Found:
    """The result of a search."""

    trials: int
    whole: int
    seconds: float
    claimed: float
    config: dict[str, Any]  # of its winner, for the trainer


def ours(folder: Path, seed: int, seconds: float, workers: int, spec: Spec) -> Found:
    """`hpsearch run` on the bundled space, for `seconds`."""
    spec = spec.override(
        name="ours",
        search={"seed": seed},
        budget={"trials": None, "time": seconds},
        execution={"workers": workers},
    )
    space, database = folder / "space.yaml", folder / "ours.db"
    space.write_text(json.dumps(spec.to_json()), encoding="utf-8")  # JSON is YAML
    command = [sys.executable, "-P", "-m", "hpsearch.search.cli", "run", str(space), "--plain"]
    took = _timed([[*command, "--storage", str(database), "--runs", str(folder / "runs")]], folder, "ours")
    result = open_study("ours", storage=str(database), runs=folder / "runs")
    trials = search_trials(result.study.get_trials(deepcopy=False))
    whole = [t.value for t in trials if t.state == TrialState.COMPLETE and t.value is not None]
    return Found(len(trials), len(whole), took, min(whole), result.best.params)


def peer(folder: Path, seed: int, seconds: float, workers: int, spec: Spec, rungs: tuple[int, int]) -> Found:
    """A plain Optuna script, in one process per worker. `rungs`: the first of Hyperband, and its eta."""
    script, file = folder / "peer.py", str(folder / "peer.log")
    script.write_text(SCRIPT, encoding="utf-8")
    study = optuna.create_study(study_name="peer", storage=JournalStorage(JournalFileBackend(file)))
    study.enqueue_trial(dict(spec.baseline or {}))
    command = [sys.executable, "-P", str(script), file]
    length = spec.early_stopping.max
    assert length is not None
    given = [str(number) for number in (length, length // VALIDATIONS, *rungs)]
    seeds = range(seed * workers, (seed + 1) * workers)  # equal seeds would sample the same
    took = _timed([[*command, str(seconds), str(own), *given] for own in seeds], folder, "peer")
    trials = study.get_trials()
    whole = [t.value for t in trials if t.state == TrialState.COMPLETE and t.value is not None]
    known = {name for trial in trials for name in trial.params}
    assert known == set(spec.space.searched), "the script's space differs from spaces/lora.yaml"
    return Found(len(trials), len(whole), took, min(whole), study.best_trial.user_attrs["config"])


def _timed(commands: Sequence[Sequence[str]], folder: Path, name: str) -> float:
    """The seconds until all these processes have ended. Raises `SystemExit` if one fails."""
    began = time.monotonic()
    with (folder / f"{name}.out").open("wb") as log:
        processes = [
            subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment(1))
            for command in commands
        ]
        codes = [process.wait() for process in processes]
    if any(codes):
        raise SystemExit(f"{name} failed:\n{(folder / f'{name}.out').read_text()[-2000:]}")
    return time.monotonic() - began


def trained(task: tuple[dict[str, Any], int]) -> float:
    """The validation loss of a configuration and seed, trained to the end; infinite if it diverges."""
    config, seed = task
    value = fit(LoraConfig.from_params(config | {"seed": seed}), on_report=lambda report: None).value
    return value if math.isfinite(value) else math.inf


def interval(differences: Sequence[float]) -> str:
    """A mean with Student's 95% interval, where there is one."""
    count, mean = len(differences), statistics.mean(differences)
    if count < 2:
        return f"{mean:+.4f} (one seed, no interval)"
    if not all(map(math.isfinite, differences)):
        return f"{mean:+.4f} (a winner diverged, no interval)"
    half = float(stdtrit(count - 1, 0.975)) * statistics.stdev(differences) / math.sqrt(count)
    return f"{mean:+.4f} ({mean - half:+.4f} to {mean + half:+.4f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--time", type=float, default=300, help="seconds per search")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--same-rungs", action="store_true", help="give Optuna the rungs of the space")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--samples", type=int, default=1800, help="per full training run, as in the space")
    parser.add_argument("--confirm", type=int, default=5, help="new training runs of each winner")
    options = parser.parse_args()
    if min(options.seeds, options.workers, options.confirm, options.samples // VALIDATIONS) < 1:
        parser.error(f"--seeds, --workers, --confirm need 1 or more, --samples {VALIDATIONS} or more")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    length, every = options.samples, options.samples // VALIDATIONS
    spec = load_space("lora").override(
        parameters={"max_samples": {"value": length}, "eval_every": {"value": every}},
        early_stopping={"min": VALIDATIONS * 3 // 4 * every, "max": length},  # as in the space
    )
    stopping = spec.early_stopping
    assert isinstance(stopping, Rungs)
    rungs = (stopping.min, stopping.eta) if options.same_rungs else (every, 3)
    os.environ.update(environment(1))  # for the processes that retrain the winners
    columns = f"{'trials':>7}{'finished':>9}{'seconds':>8}{'claimed':>9}{'winner':>9}"
    print(
        f"{options.time:g} s each, {options.workers} workers, {options.confirm} new training runs per winner"
    )
    print(f"{'':6}{'hpsearch':<42}{'Optuna, TPE and Hyperband':<42}")
    print(f"{'seed':6}{columns}{columns}{'difference':>12}", flush=True)
    differences = []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        found: dict[str, Found] = {}
        with tempfile.TemporaryDirectory() as name:
            for who in ("ours", "peer") if seed % 2 == 0 else ("peer", "ours"):
                search = ours if who == "ours" else partial(peer, rungs=rungs)
                found[who] = search(Path(name), seed, options.time, options.workers, spec)
        fresh = range(FRESH, FRESH + options.confirm)
        tasks = [(found[who].config, new) for who in ("ours", "peer") for new in fresh]
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.workers, mp_context=context) as pool:
            values = list(pool.map(trained, tasks))
        means = statistics.mean(values[: options.confirm]), statistics.mean(values[options.confirm :])
        differences.append(means[1] - means[0])
        cells = [
            f"{f.trials:7}{f.whole:9}{f.seconds:8.0f}{f.claimed:9.4f}{mean:9.4f}"
            for f, mean in zip((found["ours"], found["peer"]), means, strict=True)
        ]
        print(f"{seed:<6}{''.join(cells)}{differences[-1]:+12.4f}", flush=True)
    print(f"mean difference: {interval(differences)}")


if __name__ == "__main__":
    main()
