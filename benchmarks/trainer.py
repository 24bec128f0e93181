"""What training costs, for one trial and for several at once, compared with peft and Hugging Face's Trainer.

    python benchmarks/trainer.py [--only trial ...] [--sizes 4x128 ...] [--rounds 9] [--device cpu]

| part | what is measured | compared with |
|---|---|---|
| trial | tokens per second of one LoRA trial | a plain loop over peft's model; Hugging Face's Trainer |
| together | steps per second of several trials on all cores | other ways to share the cores |
| packs | steps per second of packs of several sizes in one process | one trial; on CUDA also unrecorded |
| memory | megabytes of several trials in a pack | as many processes of one trial each |
| compiled | tokens per second of one trial with `torch_compile` | the same without |
| evaluation | the share of a trial's time spent on validation, as often as in its space | |
| checkpoint | milliseconds and bytes of a checkpoint | torch.save of peft's model and the optimizer |
| where | the parts of a step of one trial, by torch's profiler (wall time) | |

All train the same function from the same weights on the same windows of the same text (`huggingface.py`).
Every contestant is a process of its own, in a worker's environment. They take turns of `--tokens` tokens,
round by round, while the others wait, so that load on the machine affects all of them. Loading and a first
turn are not measured. The tables have medians over the rounds, including the medians of each round's ratios.

`trial` and `checkpoint` need transformers, peft and accelerate: pip install 'hpsearch[bench]'.
"""

from __future__ import annotations

import argparse
import atexit
import dataclasses
import functools
import importlib.util
import itertools
import json
import math
import os
import queue
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from hpsearch.trainer.config.models import LoraConfig
    from hpsearch.trainer.runs.run import GptRun

EXTRA = ("transformers", "peft", "accelerate")
STEPS = 1_000_000  # the length of a run: more than is ever trained
SAVES, BETWEEN = 12, 5  # checkpoints per turn, and steps before each


@dataclass(frozen=True)
class Work:
    """What one process does in its turns."""

    role: str
    rows: int = 4
    length: int = 128
    trials: int = 1  # that this process trains
    threads: int = 1
    device: str = "cpu"
    precision: str = "fp32"
    activation: str = "gelu"  # of the other tools
    model: str = "base"  # the bundled one, or one of a preset's size with random weights
    params: dict[str, Any] = dataclasses.field(default_factory=dict)  # more parameters of the trials

    @property
    def configs(self) -> list[LoraConfig]:
        """The trials: as in the bundled spaces, with a constant learning rate and no dropout."""
        from hpsearch.trainer.config.models import LoraConfig

        params = {
            "batch_size": self.rows,
            "max_length": self.length,
            "max_steps": STEPS,
            "lr_scheduler": "constant",
            "device": self.device,
            "precision": self.precision,
        }
        if self.model != "base":
            params["base"] = random_base(self.model)
        return [LoraConfig.from_params(params | self.params | {"seed": s}) for s in range(self.trials)]


@functools.cache
def random_base(size: str) -> str:
    """The path of a base model of a preset's size. The file exists until the process ends."""
    import torch

    from hpsearch.trainer.config.shape import Shape
    from hpsearch.trainer.guides.presets import SIZES
    from hpsearch.trainer.model.base_file import save_model
    from hpsearch.trainer.model.gpt import GPT

    folder = tempfile.TemporaryDirectory(prefix="hpsearch-base-")
    atexit.register(folder.cleanup)
    shape = Shape(**{name: SIZES[size][name] for name in ("width", "depth", "heads")}, max_length=128)
    model = GPT(shape)
    model.initialize(torch.Generator().manual_seed(0))
    save_model(path := Path(folder.name) / "base.safetensors", model.state_dict(), shape)
    return str(path)


class Turns:
    """The turns of a process: it reads a number of steps from stdin and prints the cost to stdout."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.found: dict[str, float] = {}  # more results of a turn
        self.began: tuple[float, float] | None = None
        self.answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # libraries print to stderr, too

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.began is not None:
            if self.device == "cuda":
                import torch

                torch.cuda.synchronize()
            wall, cpu = time.perf_counter() - self.began[0], time.process_time() - self.began[1]
            memory = psutil.Process().memory_full_info().pss  # shared pages are divided among the processes
            found = {"wall": wall, "cpu": cpu, "memory": memory} | self.found
            print(json.dumps(found), file=self.answers, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise StopIteration
        self.began = time.perf_counter(), time.process_time()
        return int(line)


# The contestants, each in processes of its own.


def ours(work: Work, turns: Turns) -> None:
    """One trial, as a worker trains it."""
    from hpsearch.trainer.runs.run import GptRun

    (config,) = work.configs
    run = GptRun(config)
    for steps in turns:
        for _ in range(steps):
            run.train()


def compiled(work: Work, turns: Turns) -> None:
    """One trial with compiled blocks, and an empty cache of compiled code."""
    from hpsearch.trainer.model.compiled import clock
    from hpsearch.trainer.runs.run import GptRun

    (config,) = work.configs
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        run = GptRun(dataclasses.replace(config, torch_compile=True))
        for steps in turns:
            for _ in range(steps):
                run.train()
            turns.found["compiling"] = time.perf_counter() - clock()


def pack(work: Work, turns: Turns) -> None:
    """A pack of trials."""
    from hpsearch.trainer.packs.factory import new_pack
    from hpsearch.trainer.runs.run import GptRun, tick

    together = new_pack(work.configs[0])
    runs = [GptRun(config, together) for config in work.configs]
    together.set_members([run.member for run in runs])
    for _ in range(together.slow_ticks):
        tick(runs)
    for steps in turns:
        until = runs[0].step + steps // work.trials
        while runs[0].step < until:
            tick(runs)
        together.wait()


def pack_unrecorded(work: Work, turns: Turns) -> None:
    """The same, but Python launches every kernel of every step."""
    from hpsearch.trainer.packs.pack import Pack

    Pack.recording = False
    pack(work, turns)


def optuna_threads(work: Work, turns: Turns) -> None:
    """Optuna's own way to run trials in parallel: threads of one process."""
    import optuna

    from hpsearch.trainer.runs.run import GptRun

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    idle: queue.SimpleQueue[GptRun] = queue.SimpleQueue()
    for config in work.configs:
        idle.put(GptRun(config))
    study = optuna.create_study()
    for steps in turns:

        def objective(trial: optuna.Trial, steps: int = steps // work.trials) -> float:
            run = idle.get()
            for _ in range(steps):
                run.train()
            idle.put(run)
            return 0.0

        study.optimize(objective, n_trials=work.trials, n_jobs=work.trials)


def plain_loop(work: Work, turns: Turns) -> None:
    from huggingface import Loop

    from hpsearch.trainer.runs.run import GptRun

    (config,) = work.configs
    loop = Loop(GptRun(config), work.activation, work.precision)
    for steps in turns:
        for _ in range(steps):
            loop.train()


def trainer(work: Work, turns: Turns) -> None:
    import huggingface

    from hpsearch.trainer.runs.run import GptRun

    (config,) = work.configs
    left: int | None = None

    def over() -> bool:
        """Count one step of this turn; at its end, wait for the next."""
        nonlocal left
        assert left is not None
        left -= 1
        if not left:
            left = next(turns, None)
        return left is None

    with tempfile.TemporaryDirectory() as folder:
        made = huggingface.trainer(
            GptRun(config), over, folder, activation=work.activation, bf16=work.precision == "bf16"
        )
        left = next(turns)
        made.train()


def evaluation(work: Work, turns: Turns) -> None:
    """A full trial of the bundled space: its baseline, validated as often as in the space."""
    from hpsearch.spaces import load
    from hpsearch.trainer.config.models import LoraConfig
    from hpsearch.trainer.runs.base import BaseRun, RunReport
    from hpsearch.trainer.runs.run import fit

    validate = BaseRun.validate

    def timed(self: BaseRun, number: int) -> RunReport:
        wall, cpu = time.perf_counter(), time.process_time()
        report = validate(self, number)
        turns.found["validating_wall"] += time.perf_counter() - wall
        turns.found["validating_cpu"] += time.process_time() - cpu
        return report

    BaseRun.validate = timed  # type: ignore[method-assign]
    space = load("lora").space
    chosen = space.baseline() or {}
    params = space.resolve(lambda name, parameter: chosen[name]) | {"device": work.device}
    for steps in turns:
        turns.found.update(validating_wall=0.0, validating_cpu=0.0)
        samples = min(steps * chosen["batch_size"], params["max_samples"])
        fit(LoraConfig.from_params(params | {"max_samples": samples}), on_report=lambda report: None)


def saving(save: Callable[[Path], Path], train: Callable[[], Any], turns: Turns) -> None:
    """Write checkpoints `BETWEEN` steps apart; `save` writes one into a folder and returns its path."""
    with tempfile.TemporaryDirectory(prefix=".checkpoint-", dir=Path()) as name:
        for saves in turns:
            walls, cpus = [], []
            for _ in range(saves):
                for _ in range(BETWEEN):
                    train()
                wall, cpu = time.perf_counter(), time.process_time()
                path = save(Path(name))
                walls.append(time.perf_counter() - wall)
                cpus.append(time.process_time() - cpu)
            medians = {"save_wall": statistics.median(walls), "save_cpu": statistics.median(cpus)}
            turns.found.update(medians, size=path.stat().st_size)


def our_checkpoint(work: Work, turns: Turns) -> None:
    from hpsearch.trainer.checkpoint import CHECKPOINT
    from hpsearch.trainer.runs.run import GptRun

    (config,) = work.configs
    run = GptRun(config)

    def save(folder: Path) -> Path:
        run.save(folder)
        return folder / CHECKPOINT

    saving(save, run.train, turns)


def torch_save(work: Work, turns: Turns) -> None:
    import torch
    from huggingface import Loop

    from hpsearch.trainer.runs.run import GptRun

    (config,) = work.configs
    loop = Loop(GptRun(config))

    def save(folder: Path) -> Path:
        state = {"model": loop.model.state_dict(), "optimizer": loop.optimizer.state_dict()}
        torch.save(state, folder / "checkpoint.pt")
        return folder / "checkpoint.pt"

    saving(save, loop.train, turns)


def profiled(work: Work, turns: Turns) -> None:
    """Where a step's time goes: for each part, the medians of its kernels, added up."""
    from torch.profiler import ProfilerActivity, profile

    from hpsearch.trainer.runs.run import GptRun

    (config,) = work.configs
    run = GptRun(config)
    for steps in turns:
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
            for _ in range(steps):
                run.train()
        kernels: dict[tuple[str, str], list[float]] = {}
        for event in found.events():
            kernels.setdefault((event.name, str(event.input_shapes)), []).append(event.self_cpu_time_total)
        turns.found = dict.fromkeys(STEP_PARTS, 0.0)
        for (name, shapes), micros in kernels.items():
            part = part_of(name, low_rank=f"{config.padded_rank}" in re.findall(r"\d+", shapes))
            turns.found[part] += statistics.median(micros) * len(micros) / steps / 1e3


STEP_PARTS = {  # a part of a step, and the names of its kernels; the first match counts
    "the base's matrix products": r"aten::(mm|addmm|bmm|baddbmm)$",
    "the adapters' matrix products": r"$^",
    "attention": r"scaled_dot_product",
    "GELU": r"aten::gelu",
    "norms": r"layer_norm",
    "loss": r"aten::(_?log_softmax|nll_loss)",
    "optimizer": r"_fused_adamw|_foreach|vector_norm",
    "sums and copies": r"aten::(add_?|mul_?|copy_|cat)$",
    "call overhead": r"",
}


def part_of(kernel: str, *, low_rank: bool) -> str:
    part = next(part for part, names in STEP_PARTS.items() if re.search(names, kernel))
    products = list(STEP_PARTS)[:2]
    return products[1] if part == products[0] and low_rank else part


ROLES: dict[str, Callable[[Work, Turns], None]] = {
    role.__name__: role
    for role in (
        ours,
        compiled,
        pack,
        pack_unrecorded,
        optuna_threads,
        plain_loop,
        trainer,
        evaluation,
        our_checkpoint,
        torch_save,
        profiled,
    )
}


# Measuring.


class Contestant:
    """A name and its processes, which end with the `with` block."""

    def __init__(self, name: str, works: list[Work]) -> None:
        from hpsearch.search.backends.worker.process import environment

        quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONWARNINGS": "ignore"}
        self.name = name
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in __exit__)
        self.processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--contestant", json.dumps(dataclasses.asdict(work))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                text=True,
                env=environment(work.threads) | quiet,
            )
            for work in works
        ]

    def __enter__(self) -> Contestant:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.communicate()
        self.log.close()

    def turn(self, steps: int) -> dict[str, float]:
        """The cost of a turn of `steps` steps: the longest wall time, and the sums of all else."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(f"{steps}\n")
            process.stdin.flush()
        answers = [self._answer(process) for process in self.processes]
        return {
            name: (max if name == "wall" else sum)(answer[name] for answer in answers) for name in answers[0]
        }

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, float]:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            process.wait()
            self.log.seek(0)
            raise SystemExit(f"{self.name} failed:\n{self.log.read()}")
        answer: dict[str, float] = json.loads(line)
        return answer


Turn = dict[str, float]


def measure(layouts: dict[str, list[Work]], steps: int, rounds: int, what: str) -> dict[str, list[Turn]]:
    """The costs of each contestant's turns, round by round."""
    found: dict[str, list[Turn]] = {name: [] for name in layouts}
    with ExitStack() as stack:
        contestants = [stack.enter_context(Contestant(name, works)) for name, works in layouts.items()]
        for contestant in contestants:
            contestant.turn(max(1, steps // 4))
        for number, contestant in itertools.product(range(rounds), contestants):
            turn = contestant.turn(steps)
            found[contestant.name].append(turn)
            told = f"{turn['wall']:.2f} s, CPU {turn['cpu']:.2f} s"
            print(f"round {number + 1}: {what}: {contestant.name}: {told}", file=sys.stderr)
    return found


def median(turns: list[Turn], figure: Callable[[Turn], float]) -> float:
    return statistics.median(figure(turn) for turn in turns)


def ratio(turns: list[Turn], others: list[Turn], figure: Callable[[Turn], float]) -> float:
    """The median of each round's ratio."""
    return statistics.median(figure(one) / figure(other) for one, other in zip(turns, others, strict=True))


# The tables.

Sizes = list[tuple[int, int]]


def trial(options: argparse.Namespace) -> None:
    """Tokens per second of one trial in one thread."""
    names = {"hpsearch": "ours", "plain loop, peft": "plain_loop", "HF Trainer, peft": "trainer"}
    found = {}
    for rows, length in options.sizes or [(4, 128), (8, 128)]:
        work = Work(
            "ours", rows, length, 1, 1, options.device, options.precision, options.activation, options.model
        )
        layouts = {name: [dataclasses.replace(work, role=role)] for name, role in names.items()}
        steps = max(1, options.tokens // (rows * length))
        found[f"{rows}x{length}"] = (
            steps * rows * length,
            measure(layouts, steps, options.rounds, f"{rows}x{length}"),
        )
    where = (
        f"{options.device}, {options.precision}, {options.model}, 1 thread; others with {options.activation}"
    )
    print(f"one trial: tokens per second; {where}; rounds: {options.rounds}")
    table(found, list(names), [("hpsearch", peer) for peer in names if peer != "hpsearch"])


def together(options: argparse.Namespace) -> None:
    """Steps per second of several trials on all cores, for each way to share the cores."""
    cores = len(os.sched_getaffinity(0))
    alone, threads, processes = (
        f"one after another, {cores} threads",
        f"Optuna, n_jobs={cores}",
        f"{cores} processes",
    )
    packs = f"{cores} processes, packs"
    found = {}
    for rows, length in options.sizes or [(1, 64), (4, 64), (8, 128)]:
        work = Work("ours", rows, length, device=options.device, precision=options.precision)
        k = max(1, options.pack_tokens // (rows * length))
        layouts = {
            alone: [dataclasses.replace(work, threads=cores)],
            threads: [dataclasses.replace(work, role="optuna_threads", trials=cores)],
            processes: [work] * cores,
        }
        layouts[packs] = [dataclasses.replace(work, role="pack", trials=k)] * cores
        # Per process, such that all its trials do equally many.
        steps = -(-options.tokens // (rows * length * k * cores)) * k * cores
        turns = measure(layouts, steps, options.rounds, f"{rows}x{length}")
        for name, works in layouts.items():
            for turn in turns[name]:
                turn["wall"], turn["cpu"] = turn["wall"] / len(works), turn["cpu"] / len(works)
        found[f"{rows}x{length}"] = steps, turns
    where = f"{options.device}, {options.precision}, {cores} cores"
    print(f"several trials: steps per second, all together; {where}; rounds: {options.rounds}")
    names = [alone, threads, processes]
    table(found, [*names, packs], [(packs, name) for name in names])


def packs(options: argparse.Namespace) -> None:
    """Steps per second of all trials of a pack, by its size, compared with one trial."""
    roles = {"": "pack"}
    if options.device == "cuda":
        roles = {"": "pack_unrecorded", ", recorded": "pack"}
    sizes = sorted(set(options.packs))
    names = {f"packs of {k}{kind}": (k, role) for kind, role in roles.items() for k in sizes}
    least, equal = next(iter(names)), math.lcm(*sizes)  # so that all trials of a pack do equally many
    found = {}
    for rows, length in options.sizes or [(4, 64), (8, 128)]:
        work = Work("", rows, length, 1, 1, options.device, options.precision, model=options.model)
        layouts = {n: [dataclasses.replace(work, role=role, trials=k)] for n, (k, role) in names.items()}
        steps = -(-options.tokens // (rows * length * equal)) * equal
        found[f"{rows}x{length}"] = steps, measure(layouts, steps, options.rounds, f"{rows}x{length}")
    where = f"{options.device}, {options.precision}, {options.model}"
    print(f"packs in one process: steps per second, all trials; {where}; rounds: {options.rounds}")
    table(found, list(names), [(name, least) for name in names if name != least])


def compiled_trial(options: argparse.Namespace) -> None:
    """Tokens per second of one trial in one thread, and the seconds to compile."""
    kinds = {"": {}, ", DoRA and dropout": {"use_dora": True, "lora_dropout": 0.1}}
    found, compiling = {}, {}
    for rows, length in options.sizes or [(1, 64), (4, 128), (8, 128)]:
        work = Work("ours", rows, length, device=options.device, precision=options.precision)
        layouts = {
            name + kind: [dataclasses.replace(work, role=role, params=params)]
            for kind, params in kinds.items()
            for name, role in {"plain": "ours", "compiled": "compiled"}.items()
        }
        steps = max(1, options.tokens // (rows * length))
        turns = measure(layouts, steps, options.rounds, f"{rows}x{length}")
        found[f"{rows}x{length}"] = steps * rows * length, turns
        compiling[f"{rows}x{length}"] = {kind: turns[f"compiled{kind}"][0]["compiling"] for kind in kinds}
    where = f"{options.device}, {options.precision}, 1 thread"
    print(f"one trial, compiled or not: tokens per second; {where}; rounds: {options.rounds}")
    table(found, list(layouts), [(f"compiled{kind}", f"plain{kind}") for kind in kinds])
    for kind in kinds:
        cells = [seconds[kind] for seconds in compiling.values()]
        print(f"{'seconds to compile' + kind:32}" + "".join(f"{cell:20.1f}" for cell in cells), flush=True)


def table(
    found: dict[str, tuple[int, dict[str, list[Turn]]]], names: list[str], ratios: list[tuple[str, str]]
) -> None:
    """Print units per second, by wall and CPU time, and their ratios."""
    sizes = list(found)
    print(f"{'':32}" + "".join(f"{size:>20}" for size in sizes))
    print(f"{'':32}" + f"{'wall':>10}{'CPU':>10}" * len(sizes))
    clocks: list[Callable[[Turn], float]] = [lambda turn: turn["wall"], lambda turn: turn["cpu"]]
    for name in names:
        cells = [units / median(turns[name], clock) for units, turns in found.values() for clock in clocks]
        print(f"{name:32}" + "".join(f"{cell:10.0f}" for cell in cells))
    for mine, peer in ratios:
        cells = [ratio(turns[peer], turns[mine], clock) for _, turns in found.values() for clock in clocks]
        print(f"{mine} / {peer}")
        print(f"{'':32}" + "".join(f"{cell:10.2f}" for cell in cells), flush=True)


def memory(options: argparse.Namespace) -> None:
    """Memory of several trials in one pack, and in as many processes; shared pages count once.

    A worker's allocator keeps its memory, so the memory at the end of a turn is the peak.
    """
    print(f"memory of {options.trials} trials: MB; {options.device}, {options.precision}")
    for rows, length in options.sizes or [(4, 128)]:
        work = Work("ours", rows, length, device=options.device, precision=options.precision)
        layouts = {
            "a pack": [dataclasses.replace(work, role="pack", trials=options.trials)],
            f"{options.trials} processes": [work] * options.trials,
        }
        found = {}
        for name, works in layouts.items():  # one after the other, because they would share pages
            (turns,) = measure(
                {name: works}, 8 * options.trials // len(works), 2, f"{rows}x{length}"
            ).values()
            found[name] = max(turn["memory"] for turn in turns) / 1e6
        packed, apart = found.values()
        told = ", ".join(f"{name} {size:.0f}" for name, size in found.items())
        print(f"{rows}x{length}: {told}, ratio {packed / apart:.2f}", flush=True)


def evaluation_share(options: argparse.Namespace) -> None:
    """The share of validation in a full trial of the space `lora`."""
    layouts = {"evaluation": [Work("evaluation", device=options.device)]}
    (turns,) = measure(layouts, options.trial_steps, options.rounds, "a whole trial").values()
    print(f"a whole trial of the space lora; {options.device}, 1 thread; rounds: {options.rounds}")
    print(f"{'':32}{'wall':>10}{'CPU':>10}")
    seconds, shares = [], []
    for clock in ("wall", "cpu"):
        seconds.append(statistics.median(turn[clock] for turn in turns))
        shares.append(statistics.median(100 * turn[f"validating_{clock}"] / turn[clock] for turn in turns))
    for name, cells in {"seconds": seconds, "of these validating, %": shares}.items():
        print(f"{name:32}" + "".join(f"{cell:10.2f}" for cell in cells), flush=True)


def checkpoint(options: argparse.Namespace) -> None:
    """An adapter of rank 8 with its optimizer, compared with the whole model and its optimizer."""
    layouts = {
        name: [Work(role, device=options.device)]
        for name, role in {"hpsearch": "our_checkpoint", "torch.save, peft": "torch_save"}.items()
    }
    found = measure(layouts, SAVES, options.rounds, "checkpoints")
    print(f"a checkpoint with its optimizer at rank 8; {options.device}; rounds: {options.rounds}")
    print(f"{'':32}{'wall ms':>10}{'CPU ms':>10}{'MB':>10}")
    figures = {"save_wall": 1e3, "save_cpu": 1e3, "size": 1e-6}
    for name, turns in found.items():
        cells = [unit * statistics.median(turn[figure] for turn in turns) for figure, unit in figures.items()]
        print(f"{name:32}" + "".join(f"{cell:10.2f}" for cell in cells), flush=True)


def where(options: argparse.Namespace) -> None:
    """The parts of a step of one trial."""
    for rows, length in options.sizes or [(4, 128)]:
        work = Work("profiled", rows, length, device=options.device, precision=options.precision)
        steps = max(1, min(20, options.tokens // (rows * length)))  # few, because the profiler is slow
        (turns,) = measure({"profile": [work]}, steps, options.rounds, f"{rows}x{length}").values()
        print(f"a step at {rows}x{length}; {options.device}, {options.precision}, 1 thread")
        print(f"{'':32}{'ms':>10}{'%':>10}")
        parts = {part: statistics.median(turn[part] for turn in turns) for part in STEP_PARTS}
        for part, took in parts.items():
            print(f"{part:32}{took:10.2f}{100 * took / sum(parts.values()):10.1f}", flush=True)


PARTS = {
    "trial": trial,
    "together": together,
    "packs": packs,
    "memory": memory,
    "compiled": compiled_trial,
    "evaluation": evaluation_share,
    "checkpoint": checkpoint,
    "where": where,
}
NEEDS_EXTRA = {"trial", "checkpoint"}


def size(text: str) -> tuple[int, int]:
    rows, _, length = text.partition("x")
    return int(rows), int(length)


def on_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"found {number}, expected at least 1")
    return number


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--sizes", type=size, nargs="+", help="rows x tokens of a step (default: by part)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=20480, help="per turn")
    parser.add_argument("--pack-tokens", type=int, default=512, help="per step of a whole pack")
    parser.add_argument("--packs", type=count, nargs="+", default=[1, 4, 8, 16, 32], help="trials per pack")
    parser.add_argument("--model", choices=("base", "small", "medium"), default="base", help="base or a size")
    parser.add_argument("--trials", type=int, default=8, help="in the part memory")
    parser.add_argument("--trial-steps", type=int, default=STEPS, help="at most, of a full trial")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--activation", choices=("gelu", "gelu_new"), default="gelu", help="of other tools")
    parser.add_argument("--contestant", help="only do this work, in turns, without measuring")
    options = parser.parse_args()
    if options.contestant is not None:
        work = Work(**json.loads(options.contestant))
        ROLES[work.role](work, Turns(work.device))
        return
    missing = [name for name in EXTRA if importlib.util.find_spec(name) is None]
    if missing and (wanting := NEEDS_EXTRA.intersection(options.only)):
        parser.error(
            f"{', '.join(sorted(wanting))}: needs {', '.join(missing)}: pip install 'hpsearch[bench]', "
            f"or --only {' '.join(part for part in PARTS if part not in NEEDS_EXTRA)}"
        )
    if options.device == "cuda" and not on_cuda():
        parser.error("--device cuda: torch finds no CUDA device here")
    for part in options.only:
        PARTS[part](options)


if __name__ == "__main__":
    main()
