"""Look at this machine, and show that neither kills nor packs change what a search finds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from ...spaces import Spec, load
from ...spaces.loader import Source
from ...storage.workspace import Workspace
from ..backends import check_name
from ..preflight import kill_test as kill_tests
from ..preflight import pack_test as pack_tests
from ..preflight.checks import checked
from ..preflight.machine import Check, Status, machine_checks
from ..preflight.objective import load_space
from ..values import Value

DEFAULT_SPACE = "lora_quick"
PACKED_SPACE = "lora"
DEFAULT_TRIALS = DEFAULT_KILLS = 6
SEVERITY: tuple[Status, ...] = ("ok", "warning", "problem")  # of checks, the worst last


@dataclass(frozen=True)
class MachineReport(Value):
    """What was found on this machine."""

    status: Status  # of the worst check
    checks: tuple[Check, ...]


def doctor(
    *,
    workspace: Workspace,
    space: Source | Spec | None = None,
    backend: str = "optuna",
    on_progress: Callable[[Check], None] = lambda check: None,
) -> MachineReport:
    """Look at this machine and a database's folder, with the eyes of a search of the space.

    For the backend "ray" a Ray is started and ended.
    """
    check_name(backend)
    spec = None if space is None else checked(load_space(space))
    found = []
    for check in machine_checks(workspace, spec=spec, ray=backend == "ray"):
        on_progress(check)
        found.append(check)
    worst = max((check.status for check in found), key=SEVERITY.index)
    return MachineReport(worst, tuple(found))


def kill_test(
    *,
    space: Source | Spec | None = None,
    backend: str = "optuna",
    trials: int = DEFAULT_TRIALS,
    kills: int = DEFAULT_KILLS,
    seed: int | None = None,
    on_begin: Callable[[Spec, int], None] = lambda spec, seed: None,
    on_progress: kill_tests.Watch = lambda what, done, total: None,
) -> kill_tests.KillTestResult:
    """Run a small search with one worker, twice undisturbed and once killed at random moments, and compare.

    `seed` is that of the moments, a random one by default; `on_begin` is told it with the space as it is
    searched. The user's own studies are left alone.
    """
    check_name(backend)
    spec = kill_tests.small(checked(_default() if space is None else load_space(space)), trials)
    seed = random.randrange(2**32) if seed is None else seed
    on_begin(spec, seed)
    return kill_tests.kill_test(spec, backend=backend, kills=kills, seed=seed, watch=on_progress)


def pack_test(
    *,
    space: Source | Spec | None = None,
    trials: int = DEFAULT_TRIALS,
    seed: int | None = None,
    on_begin: Callable[[Spec, int], None] = lambda spec, seed: None,
    on_progress: kill_tests.Watch = lambda what, done, total: None,
) -> pack_tests.PackTestResult:
    """Train random configurations of a space for a few steps, each alone and then all together, and compare.

    One more among them diverges. `seed` is that of the configurations, a random one by default.
    """
    spec = checked(load_space(PACKED_SPACE if space is None else space))
    seed = random.randrange(2**32) if seed is None else seed
    on_begin(spec, seed)
    return pack_tests.pack_test(spec, trials=trials, seed=seed, watch=on_progress)


def _default() -> Spec:
    """The smallest space that ships, with trials of a second or two that pause, are audited and confirmed."""
    return load(DEFAULT_SPACE).override(
        parameters={"max_samples": 180, "eval_every": 30},
        early_stopping={"type": "promotion", "min": 30, "max": 180, "eta": 2},
        confirm={"top": 2, "seeds": 2},
        audit=0.4,
        execution={"cpus_per_trial": 1},
    )
