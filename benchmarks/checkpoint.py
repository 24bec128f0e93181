"""What checkpoints cost a trial, at the report intervals of the bundled spaces.

    python benchmarks/checkpoint.py [--only lora pretrain] [--rounds 5] [--folder .]

The same trial runs with a checkpoint at every report and without any; which comes first alternates between
rounds. The cases are each space's baseline and its hardest configurations (the largest file in the shortest
time). All run on the CPU with one thread, in a worker's environment. Checkpoints are written below
`--folder`: its disk affects the results.

| column | what it is, as the median over the rounds |
|---|---|
| without | wall seconds of the trial without checkpoints |
| more wall, more CPU | time that checkpoints add to the trial, in percent: noisy on a busy machine |
| a save | milliseconds in `GptRun.save` per checkpoint; and how many of these wait for the disk |
| share | percentage of the trial's wall seconds that are spent in `GptRun.save` |
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpsearch.search.backends.worker.process import environment
from hpsearch.spaces import load

CASES: dict[str, list[dict[str, Any]]] = {  # by space; {} is its baseline
    "lora": [{}, {"lora_r": 32, "batch_size": 16}],
    "pretrain": [{}, {"width": 64, "depth": 1}, {"width": 192, "depth": 6}],
}


@dataclass(frozen=True)
class Cost:
    """The cost of one trial, in seconds."""

    wall: float
    cpu: float
    saving: float  # part of the wall seconds
    syncing: float  # part of `saving`
    saves: int
    megabytes: float  # of the last checkpoint


class Stopwatch:
    """Adds up the wall seconds of a function's calls."""

    def __init__(self) -> None:
        self.seconds, self.calls = 0.0, 0

    @contextmanager
    def on(self, owner: Any, name: str) -> Iterator[None]:
        function = getattr(owner, name)
        setattr(owner, name, self._timed(function))
        try:
            yield
        finally:
            setattr(owner, name, function)

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            began = time.perf_counter()
            result = function(*arguments)
            self.seconds += time.perf_counter() - began
            self.calls += 1
            return result

        return timed


def parameters(space: str, case: dict[str, Any], samples: int | None) -> dict[str, Any]:
    """The configuration of a case: the space's baseline with the case's changes."""
    found = load(space).space
    chosen = (found.baseline() or {}) | case
    whole = {} if samples is None else {"max_samples": samples}
    return found.resolve(lambda name, parameter: chosen[name]) | whole


def trial(space: str, params: dict[str, Any], folder: Path | None) -> Cost:
    """Train once, with checkpoints in `folder`, or without any if it is None."""
    from hpsearch.trainer.checkpoint import CHECKPOINT, DiskSync
    from hpsearch.trainer.config.models import LoraConfig, PretrainConfig
    from hpsearch.trainer.runs.run import GptRun, fit

    kind = LoraConfig if space == "lora" else PretrainConfig
    config = kind.from_params({"device": "cpu"} | params)
    saving, syncing = Stopwatch(), Stopwatch()
    with saving.on(GptRun, "save"), syncing.on(DiskSync, "wait"):
        wall, cpu = time.perf_counter(), time.process_time()
        fit(config, on_report=lambda report: None, checkpoint=folder)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    size = 0 if folder is None else (folder / CHECKPOINT).stat().st_size
    return Cost(wall, cpu, saving.seconds, syncing.seconds, saving.calls, size / 1e6)


def rounds(space: str, case: dict[str, Any], options: argparse.Namespace) -> list[tuple[Cost, Cost]]:
    """The trial without and with checkpoints, once per round."""
    params = parameters(space, case, options.samples)
    trial(space, params | {"max_samples": params["batch_size"]}, None)  # loads the text and the base
    found = []
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix=".checkpoint-", dir=options.folder) as name:
            folders = [None, Path(name)]
            pair = {folder: trial(space, params, folder) for folder in folders[:: 1 - 2 * (number % 2)]}
        found.append((pair[None], pair[folders[1]]))
    return found


def row(pairs: list[tuple[Cost, Cost]]) -> list[float]:
    def median(figure: Callable[[Cost, Cost], float]) -> float:
        return statistics.median(figure(without, with_) for without, with_ in pairs)

    return [
        median(lambda _, with_: with_.saves),
        median(lambda _, with_: with_.megabytes),
        median(lambda without, _: without.wall),
        median(lambda without, with_: 100 * (with_.wall / without.wall - 1)),
        median(lambda without, with_: 100 * (with_.cpu / without.cpu - 1)),
        median(lambda _, with_: 1e3 * with_.saving / with_.saves),
        median(lambda _, with_: 1e3 * with_.syncing / with_.saves),
        median(lambda _, with_: 100 * with_.saving / with_.wall),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="SPACE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samples", type=int, help="per trial, reports unchanged (default: the space's)")
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to measure (default: here)")
    options = parser.parse_args()
    worker = environment(1)
    if any(os.environ.get(name) != value for name, value in worker.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], worker)  # only read when a process starts
    print(f"a checkpoint at every report; rounds: {options.rounds}")
    print(f"{'':32}{'':>7}{'':>8}{'without':>9}{'more %':>16}{'a save, ms':>16}{'share':>8}")
    print(
        f"{'':32}{'saves':>7}{'MB':>8}{'s':>9}{'wall':>8}{'CPU':>8}{'all':>8}{'disk':>8}{'%':>8}", flush=True
    )
    for space in options.only:
        for case in CASES[space]:
            words = ", ".join(f"{name} {value}" for name, value in case.items()) or "baseline"
            saves, size, *figures, share = row(rounds(space, case, options))
            cells = "".join(f"{figure:{9 if not place else 8}.2f}" for place, figure in enumerate(figures))
            print(f"{space + ', ' + words:32}{saves:7.0f}{size:8.2f}{cells}{share:8.2f}", flush=True)


if __name__ == "__main__":
    main()
