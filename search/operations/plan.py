"""Before a search: predict how it will go, and which learning rates are worth it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...objectives.info import ObjectiveInfo
from ...objectives.range_test import Point
from ...spaces import Spec
from ...spaces.document import STDIN
from ...spaces.loader import Source
from ...spaces.times import seconds as time_in_seconds
from ..backends.resources import share, this_machine
from ..errors import UsageError
from ..preflight import lr_range
from ..preflight.checks import checked
from ..preflight.forecast import SearchForecast, forecast_search
from ..preflight.lr_range import LrRangeResult
from ..preflight.measure import measure
from ..preflight.memory import expected_memory
from ..preflight.objective import described, load_space, own_code


def plan(
    *,
    space: Source | Spec,
    seconds: float | str = 60.0,
    startup: Callable[[], float] = lambda: 0.0,
    on_progress: Callable[[int], None] = lambda configurations: None,
    say: Callable[[str], None] = lambda message: None,
) -> SearchForecast:
    """Predict a search: measure trials for up to `seconds`, then say how many reach which rung, and when.

    The objective runs, as in a search, with the baseline and quasi-random configurations; nothing is kept.
    `seconds` may be a time as in a space, such as "5m". `startup` says the seconds that a search takes before
    this, `on_progress` is told the configurations measured so far.
    """
    spec = checked(load_space(space))
    refuse_remote(spec)
    if code := own_code(spec):
        say(code)
    try:
        seconds = time_in_seconds(seconds)
    except ValueError as error:
        raise UsageError(f"seconds {error}") from None
    objective = described(spec)
    before = startup()
    import scipy.stats  # noqa: F401  # quasi-random numbers: an import may swallow an interrupt

    expected = expected_memory(spec, share(spec.execution, [this_machine()], "this machine"), seconds)
    measured = measure(spec, objective, seconds=seconds, on_probe=on_progress, say=say)
    return forecast_search(spec, measured, before, expected)


def refuse_remote(spec: Spec) -> None:
    """Raise `UsageError` for a space whose code is with its workers: a plan has nothing to measure."""
    if ObjectiveInfo(spec.objective_words).kind == "remote":
        raise UsageError(
            "the objective is remote: its code is with the workers, and a plan measures it; name it instead, "
            'as in objective: "file.py:function"',
            code="remote-objective",
        )


def lr_find(
    *,
    space: Source | Spec,
    low: float = 1e-6,
    high: float = 1.0,
    steps: int = 100,
    write: bool = False,
    on_progress: Callable[[Point], None] = lambda point: None,
) -> LrRangeResult:
    """Test which learning rates are worth a search: a short training in which the rate rises to divergence.

    With `write` the range is put into the space file. Raises `UsageError` for a range or a file that cannot
    be used, before anything is trained.
    """
    if not 0 < low < high < float("inf"):
        raise UsageError(
            f"the lowest learning rate {low:g} must be above 0 and below the highest {high:g}",
            code="lr-range",
        )
    spec = load_space(space)
    if write and (not isinstance(space, str | Path) or str(space) == STDIN):
        raise UsageError("the range can be written only into a space file; name one")
    if write:
        lr_range.check_writable(str(space), spec, low, high)
    found = lr_range.lr_find(spec, low=low, high=high, steps=steps, on_point=on_progress)
    if write and found.range is not None:
        lr_range.write_range(str(space), *found.range)
    return found
