"""Record learning curves of LoRA: the table in `lora-curves/`, whose README says what it holds.

    python benchmarks/lora_curves.py --folder FOLDER [--workers 2] [--configurations 320] [--repeated 60]
        [--tasks TASK ...]
    python benchmarks/lora_curves.py --folder FOLDER --show | --write | --check N

Trains configurations of the space `lora`, with wider ranges (`lora_table.RANGES`), on each task to the end,
every run alone in one thread. Seed 0 comes first, in blocks of all tasks, then the other seeds of the first
configurations, so what there is at any time is balanced. Every run is kept in `--folder` when it ends: the
same command resumes where it was stopped or killed, and repeats only the runs that were training.

The bases and the instruction rows are made first, which takes ten minutes. All text comes with Python, so the
losses of two machines are only comparable if the hashes of the texts in their `about.json` are equal.

| option | what it does |
|---|---|
| `--show` | prints how far the recording is |
| `--write` | writes what is recorded into `--table`, sorted |
| `--check N` | trains N runs of `--table` again, and prints how far they are from it |
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import json
import math
import multiprocessing
import os
import platform
import random
import shutil
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from itertools import repeat
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import filelock
import torch
from lora_table import (
    ABOUT,
    PLACES,
    RANGES,
    SOBOL_SEED,
    TABLE,
    TASKS,
    Run,
    configurations,
    read_runs,
    wide_space,
    write_runs,
)

from hpsearch.search.backends.worker.process import environment
from hpsearch.trainer.config.models import LoraConfig, PretrainConfig
from hpsearch.trainer.data.corpus import python_documents
from hpsearch.trainer.model.base_file import load_base, save_model
from hpsearch.trainer.runs.base import drive, train_to_end
from hpsearch.trainer.runs.run import GptRun, fit
from hpsearch.trainer.tools.pretrain_base import RECIPE

RUNS, LOCK, ROWS = "runs.jsonl", ".lock", "instructions.jsonl"
BLOCK = 16  # configurations of a task before the next task has its turn
SEEDS = 3  # of the first configurations
BASES: dict[str, PretrainConfig] = {  # besides the one that ships, which is 128 wide and has learned python
    "english": dataclasses.replace(RECIPE, train_file="english"),
    "small": dataclasses.replace(RECIPE, width=64),
    "deep": dataclasses.replace(RECIPE, width=64, depth=8, train_file="english"),
}
Key = tuple[str, int, int]  # task, configuration, seed


def wanted(count: int, repeated: int, tasks: Sequence[str] = tuple(TASKS)) -> Iterator[Key]:
    """The runs to record, in order."""
    for seed in range(SEEDS):
        last = count if seed == 0 else min(repeated, count)
        for first in range(0, last, BLOCK):
            for task in tasks:
                for number in range(first, min(first + BLOCK, last)):
                    yield task, number, seed


class Recorded:
    """The runs in a folder: a line of JSON each, written when it ends."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / RUNS
        self.runs: dict[Key, Run] = {}
        text = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # a kill may have cut the last line
        self._size = len(whole.encode())
        for line in whole.splitlines():
            fields = json.loads(line)
            self._know(Run(**fields | {"losses": tuple(fields["losses"])}))

    def _know(self, run: Run) -> None:
        self.runs[run.task, run.configuration, run.seed] = run

    def add(self, run: Run) -> None:
        line = (json.dumps(dataclasses.asdict(run)) + "\n").encode()
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.truncate(self._size)
            file.seek(self._size)
            file.write(line)
        self._size += len(line)
        self._know(run)


def instruction_rows() -> Iterator[dict[str, str]]:
    """The documented functions and classes of Python's standard library: a question, and the docstring."""
    seen = set()
    for path, content in python_documents():
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for node in ast.walk(ast.parse(content)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            answer = ast.get_docstring(node)
            if answer is None or answer in seen:
                continue
            seen.add(answer)
            if isinstance(node, ast.ClassDef):
                asked = f"What is the class {node.name} of {module} for?"
            else:
                asked = f"What does {node.name}({ast.unparse(node.args)}) of {module} do?"
            yield {"instruction": asked, "output": answer}


def text_of(task: str, folder: Path) -> str:
    """What `train_file` is for a task."""
    text = TASKS[task].text
    return str(folder / ROWS) if text == "instructions" else text


def base_of(task: str, folder: Path) -> str | None:
    """What `base` is for a task."""
    base = TASKS[task].base
    return None if base == "shipped" else str(folder / f"{base}.safetensors")


def make_rows(folder: Path) -> None:
    """Write the instruction rows, unless they are there."""
    if not (path := folder / ROWS).exists():
        partial = path.with_suffix(".part")
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in instruction_rows())
        partial.write_text("".join(lines), encoding="utf-8")
        partial.replace(path)


def make_base(name: str, folder: Path) -> None:
    """Pretrain a base, unless it is there."""
    if not (path := folder / f"{name}.safetensors").exists():
        result = fit(BASES[name], on_report=lambda report: None)
        save_model(path, result.weights, BASES[name].shape)


def config_of(key: Key, params: Mapping[str, Any], folder: Path) -> LoraConfig:
    """What the trainer gets for a run."""
    task, _, seed = key
    given = {
        "train_file": text_of(task, folder),
        "base": base_of(task, folder),
        "seed": seed,
        "device": "cpu",
    }
    return LoraConfig.from_params(dict(wide_space().space.passed(params)) | given)


def train(key: Key, params: Mapping[str, Any], folder: Path) -> Run:
    """Train a run to its end."""
    run = GptRun(config_of(key, params, folder))
    began = time.process_time()
    result = train_to_end(run, drive(run, on_report=lambda report: None))
    seconds = time.process_time() - began
    losses = {report.step: report.value for report in result.reports}
    if result.stopped == "diverged":  # the last report is that of a loss that is no number
        losses = {place: math.inf for place in PLACES} | dict(list(losses.items())[:-1])
    return Run(*key, seconds, tuple(losses[place] for place in PLACES))


def about(folder: Path) -> dict[str, Any]:
    """What the curves depend on: versions, the space, and hashes; and the loss of each base alone."""
    tasks = {}
    for name, task in TASKS.items():
        run = GptRun(config_of((name, 0, 0), configurations(1)[0], folder))
        tasks[name] = {
            "role": task.role,
            "base": task.base,
            "base_sha256": load_base(base_of(name, folder)).sha256,
            "text": task.text,
            "text_sha256": run.corpus.sha256,
            "loss_of_base": round(run.evaluate()[0], 5),  # adapters that have not learned change nothing
        }
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    return {**versions, "sobol_seed": SOBOL_SEED, "ranges": RANGES, "tasks": tasks}


@contextmanager
def workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes with one thread each, in the environment of a search's workers."""
    os.environ.update(environment(1))
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), end_with_parent)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def end_with_parent() -> None:
    """End this process when its parent is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def watch() -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def prepare(folder: Path, pool: ProcessPoolExecutor) -> None:
    """Make the rows and the bases. Exits if the folder has runs that depend on other ones."""
    make_rows(folder)
    for made in [pool.submit(make_base, name, folder) for name in BASES]:
        made.result()
    now, path = pool.submit(about, folder).result(), folder / ABOUT
    if not path.exists():
        path.write_text(json.dumps(now, indent=2) + "\n", encoding="utf-8")
    elif differ := differences(now, json.loads(path.read_text(encoding="utf-8"))):
        sys.exit(f"--folder: the runs in {folder} have another {differ}; choose another folder")


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The names of what differs."""
    return ", ".join(name for name in one if one[name] != other.get(name))


def record(folder: Path, table: Path, keys: Iterable[Key], count: int) -> None:
    """Train the runs that the folder and the table lack, `count` at a time."""
    with workers(count) as pool:
        prepare(folder, pool)
        recorded = Recorded(folder)
        take_in(recorded, folder, table)
        missing = [key for key in keys if key not in recorded.runs]
        configs = configurations(1 + max((number for _, number, _ in missing), default=0))
        waiting = [pool.submit(train, key, configs[key[1]], folder) for key in missing]
        for done in as_completed(waiting):
            recorded.add(run := done.result())
            place = f"{run.task} {run.configuration}, seed {run.seed}"
            print(f"{place}: {run.end:.5f}, {run.seconds:.1f} s", flush=True)


def take_in(recorded: Recorded, folder: Path, table: Path) -> None:
    """Add the runs of a table that the folder lacks, if they could have been made in it."""
    if not (table / ABOUT).is_file():
        return
    now, then = (json.loads((place / ABOUT).read_text(encoding="utf-8")) for place in (folder, table))
    if differ := differences(now, then):
        print(f"{folder} has another {differ} than {table}, so it has none of its runs", flush=True)
        return
    for run in read_runs(table):
        if (run.task, run.configuration, run.seed) not in recorded.runs:
            recorded.add(run)


def show(runs: Collection[Run], keys: Collection[Key]) -> None:
    """Print how far the recording is, and the CPU hours of what is left."""
    print(
        f"{'task':16}"
        + "".join(f"{f'seed {seed}':>12}" for seed in range(SEEDS))
        + f"{'s a run':>10}{'left, h':>9}"
    )
    for task in TASKS:
        its = [run for run in runs if run.task == task]
        had, needed = (
            Counter(run.seed for run in its),
            Counter(seed for name, _, seed in keys if name == task),
        )
        cells = "".join(f"{f'{had[seed]}/{needed[seed]}':>12}" for seed in range(SEEDS))
        mean = statistics.fmean(run.seconds for run in its) if its else math.nan
        left = max(0, needed.total() - had.total()) * mean / 3600
        print(f"{task:16}{cells}{mean:10.1f}{left:9.1f}")


def check(folder: Path, table: Path, number: int, count: int) -> bool:
    """Train some runs of the table again. Whether all are as in the table, to its last digit."""
    runs, then = read_runs(table), json.loads((table / ABOUT).read_text(encoding="utf-8"))
    chosen = random.Random(0).sample(runs, min(number, len(runs)))
    configs = configurations(1 + max(run.configuration for run in runs))
    same = True
    with workers(count) as pool:
        prepare(folder, pool)
        if differ := differences(then, json.loads((folder / ABOUT).read_text(encoding="utf-8"))):
            print(f"{folder} has another {differ} than the table")
        print(f"{'run':32}{'table':>10}{'again':>10}{'largest difference':>20}")
        keys = [(run.task, run.configuration, run.seed) for run in chosen]
        news = pool.map(train, keys, [configs[run.configuration] for run in chosen], repeat(folder))
        for old, new in zip(chosen, news, strict=True):
            pairs = zip(old.losses, new.losses, strict=True)
            gap = max((abs(a - b) for a, b in pairs if a != b), default=0.0)  # infinities may be equal
            same &= gap < 1e-5
            place = f"{old.task} {old.configuration}, seed {old.seed}"
            print(f"{place:32}{old.end:10.5f}{new.end:10.5f}{gap:20.5f}", flush=True)
    return same


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="where runs, bases and rows are kept")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--configurations", type=int, default=320)
    parser.add_argument("--repeated", type=int, default=60, help="of these, how many with three seeds")
    parser.add_argument(
        "--tasks", nargs="+", choices=list(TASKS), default=list(TASKS), metavar="TASK", help="to record"
    )
    parser.add_argument("--table", type=Path, default=TABLE, help="default: lora-curves, beside this file")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--show", action="store_true")
    mode.add_argument("--write", action="store_true")
    mode.add_argument("--check", type=int, metavar="N")
    options = parser.parse_args()
    folder = options.folder.absolute()
    if min(options.workers, options.configurations, 1 if options.check is None else options.check) < 1:
        parser.error("--workers, --configurations, --check: need 1 or more")
    if (options.show or options.write) and not (folder / RUNS).is_file():
        parser.error(f"--folder: found no runs in {folder}")
    if options.check and not (options.table / ABOUT).is_file():
        parser.error(f"--table: found no {ABOUT} in {options.table}")
    keys = list(wanted(options.configurations, options.repeated, list(dict.fromkeys(options.tasks))))
    if options.show:
        show(Recorded(folder).runs.values(), keys)
        return
    if options.write:
        write_runs(options.table, Recorded(folder).runs.values())
        shutil.copyfile(folder / ABOUT, options.table / ABOUT)
        return
    folder.mkdir(parents=True, exist_ok=True)
    if options.check is not None:
        sys.exit(0 if check(folder, options.table, options.check, options.workers) else 1)
    try:
        with filelock.FileLock(folder / LOCK, timeout=0):
            record(folder, options.table, keys, options.workers)
    except filelock.Timeout:
        parser.error(f"--folder: another process records in {folder}; choose another folder")


if __name__ == "__main__":
    main()
