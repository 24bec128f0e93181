"""Shows that trials compute the same together as alone: here, with this space."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from ...objectives.info import ObjectiveInfo
from ...spaces import SpaceError, Spec
from ..backends.resources import share, this_machine
from ..backends.tools import check_tool, start_tool
from ..backends.worker.process import environment
from ..errors import SearchError
from ..trials.seeds import derived_seed
from ..values import Value
from .kill_test import Watch

STEPS = 8  # of each trial's optimizer
LENGTH = (
    *("max_samples", "max_steps", "num_train_epochs", "samples_per_epoch"),
    *("eval_every", "eval_samples", "early_stopping_patience"),
)
SCHEDULE = ("lr_scheduler", "warmup_ratio", "warmup_steps")
DIVERGING = {"learning_rate": 1e30, "max_grad_norm": 0.0, "lr_scheduler": "constant"}  # NaN after a step
DIVERGING_INDEX = 1  # the first trial trains with it as it diverges, the others join afterwards


@dataclass(frozen=True)
class ComparedTrial:
    """A configuration, and its runs alone and together, as `objectives.gpt.pack_test` compares them."""

    params: dict[str, Any]
    wild: bool  # chosen to diverge
    others: int  # the most trials that trained with it
    value: float | None  # the last loss; None where it diverged
    difference: dict[str, float] | None  # of `reports` and `adapter`; None where the runs ended differently
    identical: bool  # bit for bit
    sensitivity: dict[str, float] | None  # the effect of a start 1e-7 away, where the verdict needs it
    allowed: dict[str, float]  # differences
    passed: bool


@dataclass(frozen=True)
class PackTestResult(Value):
    """The result of the test."""

    computed = ("passed", "identical")
    seed: int
    threads: int
    trials: list[ComparedTrial]

    @property
    def passed(self) -> bool:
        """Whether all agree and the test means something: trials met, and the diverging one diverged."""
        met = any(each.others for each in self.trials)
        diverged = all(each.value is None for each in self.trials if each.wild)
        return met and diverged and all(each.passed for each in self.trials)

    @property
    def identical(self) -> bool:
        """Whether every bit agrees."""
        return all(each.identical for each in self.trials)


def configurations(spec: Spec, trials: int, seed: int) -> list[dict[str, Any]]:
    """Random configurations of the space, shortened, and one that diverges."""
    params = []
    rng = random.Random(seed)
    for number in range(trials):
        drawn = spec.space.passed(spec.space.sample(rng))
        drawn = {"seed": derived_seed(seed, "trial", number)} | drawn
        warmup = {"warmup_steps": min(drawn["warmup_steps"], STEPS // 4)} if "warmup_steps" in drawn else {}
        kept = {name: value for name, value in drawn.items() if name not in LENGTH}
        params.append(kept | warmup | {"max_steps": STEPS, "eval_every": STEPS // 4, "eval_samples": 8})
    like = {name: value for name, value in params[0].items() if name not in SCHEDULE}
    params.insert(DIVERGING_INDEX, like | DIVERGING)
    return params


def pack_test(spec: Spec, *, trials: int, seed: int, watch: Watch) -> PackTestResult:
    """Train random configurations of a space, and one that diverges, alone and together.

    Raises `SpaceError` where the trials of the space cannot be packed, `SearchError` where one cannot train.
    """
    info = ObjectiveInfo(spec.objective_words)
    if not info.can_pack:
        message = f"only trials of the objective lora are packed, not of {info.name}"
        raise SpaceError([spec.issue("objective", message)])
    asked = configurations(spec, trials, seed)
    threads = share(spec.execution, [this_machine()], "this machine").threads
    compared = [
        ComparedTrial(params, index == DIVERGING_INDEX, **runs)
        for index, (params, runs) in enumerate(zip(asked, _compared(asked, threads, watch), strict=True))
    ]
    return PackTestResult(seed, threads, compared)


def _compared(asked: list[dict[str, Any]], threads: int, watch: Watch) -> list[dict[str, Any]]:
    """Run `objectives.gpt.pack_test` and return the comparisons that it prints."""
    watch("each trial alone", 0, len(asked))
    compared: list[dict[str, Any]] = []
    with start_tool("objectives.gpt.pack_test", environment(threads)) as tool:
        assert tool.stdin is not None and tool.stdout is not None and tool.stderr is not None
        try:
            tool.stdin.write(json.dumps(asked))
            tool.stdin.close()
            for line in tool.stdout:
                message = json.loads(line)
                compared = message.get("compared", [])
                if (done := message.get("alone")) is not None:
                    what = "each trial alone" if done < len(asked) else "all of them together"
                    watch(what, done, len(asked))
        except BaseException:
            tool.kill()
            raise
        errors = tool.stderr.read()
    try:
        check_tool(tool, errors)
    except SearchError as error:
        raise SearchError(f"the trials cannot be trained: {error}") from None
    return compared
