"""Finds the range of learning rates for a search, by a range test of the space's baseline."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...objectives.guides import preset_values
from ...objectives.info import ObjectiveInfo, trainers
from ...spaces import Range, SpaceError, Spec, with_log_range
from ...spaces.document import text_of
from ...storage.files import write
from ..errors import SearchError, UsageError
from ..values import Value, merged
from .checks import check_objective

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from ...objectives.range_test import Point, RangeTest

NAME = "learning_rate"
# Set by the test itself, so that their values in the space do not matter.
SET_BY_TEST = (
    *(NAME, "lr_scheduler", "warmup_ratio", "warmup_steps", "min_lr_ratio"),
    *("max_samples", "max_steps", "num_train_epochs", "samples_per_epoch", "eval_every", "eval_samples"),
)


@dataclass(frozen=True)
class LrRangeResult(Value):
    """A test of a space, and the range it proposes."""

    space: str
    parameters: dict[str, Any]  # of the configuration that was tested
    test: RangeTest
    range: tuple[float, float] | None  # rounded; None where the loss does not fall
    widened_for: tuple[str, ...]  # rates of the space that lie outside the proposal: its baseline, its prior

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        proposal = self.test.proposal
        return {
            "space": self.space,
            "parameters": self.parameters,
            "points": [asdict(point) for point in self.test.points],
            "diverged": self.test.diverged,
            "suggestions": proposal and asdict(proposal),
            "range": self.range and {"min": self.range[0], "max": self.range[1], "log": True},
            "widened_for": list(self.widened_for),
        }

    @classmethod
    def shape(cls) -> Any:
        also = {
            "space": str,
            "parameters": dict[str, Any],
            "points": list[dict[str, float]],
            "diverged": bool,
            "suggestions": dict[str, float | None] | None,
            "range": dict[str, bool | float] | None,
            "widened_for": list[str],
        }
        return merged(cls.__name__, also=also)


def lr_find(
    spec: Spec, *, low: float, high: float, steps: int, on_point: Callable[[Point], None]
) -> LrRangeResult:
    """Test a space's baseline, or its middle where it has none, over a range of learning rates.

    Raises `SpaceError` where its objective is not built in.
    """
    check_objective(spec)
    info = ObjectiveInfo(spec.objective_words)
    if info.trainer is None:
        ours = f"the objectives of hpsearch's trainer ({', '.join(each.name for each in trainers())})"
        raise SpaceError([spec.issue("objective", f"lr-find trains {ours}, not {info.name}")])
    from ...objectives.range_test import range_test

    params = {"seed": spec.search.seed} | spec.space.passed(spec.space.central())
    test = range_test(info.name, params, low=low, high=high, steps=steps, on_point=on_point)
    tested = {name: value for name, value in params.items() if name not in SET_BY_TEST}
    if test.proposal is None:
        return LrRangeResult(spec.name, tested, test, None, ())
    bottom, top = _down(test.proposal.low), float(f"{test.proposal.high:.0e}")
    if bottom >= top:  # rounding made them equal, where the test covered less than one digit
        top = _up(test.proposal.high)
    outside = {name: value for name, value in fixed_rates(spec).items() if not bottom <= value <= top}
    low, high = min([bottom, *map(_down, outside.values())]), max([top, *map(_up, outside.values())])
    return LrRangeResult(spec.name, tested, test, (low, high), tuple(outside))


def fixed_rates(spec: Spec) -> dict[str, float]:
    """The learning rates that a range must contain for the space to stay valid: baseline and prior."""
    values = {"baseline": (spec.baseline or {}).get(NAME)}
    parameter = spec.parameters.get(NAME)
    if isinstance(parameter, Range) and parameter.prior is not None:
        values["prior"] = parameter.prior.at
    return {name: float(value) for name, value in values.items() if value is not None}


def check_writable(file: str, spec: Spec, low: float, high: float) -> None:
    """Raise where a range could not be written to the file, before anything is trained."""
    if not Path(file).is_file():
        raise UsageError(f'"{file}" ships with hpsearch and cannot be changed; copy it to a file of your own')
    every = [low, high, *fixed_rates(spec).values()]
    with_log_range(text_of(Path(file)), file, NAME, min(every), max(every), preset_values)


def write_range(file: str, low: float, high: float) -> None:
    """Write the range into a space file, and change nothing else in it.

    Raises `SpaceError` where it cannot be changed in place, and `SearchError` where it cannot be written.
    """
    try:
        text = with_log_range(text_of(Path(file)), file, NAME, low, high, preset_values)
        write(Path(file).resolve(), text)  # a symbolic link stays one
    except OSError as error:
        raise SearchError(f"cannot write {file}: {error.strerror}") from error


def top_of(result: LrRangeResult) -> float:
    """The highest loss to draw: as far above the first as the lowest is below it. Beyond, it diverges."""
    losses = [point.smoothed for point in result.test.points]
    fall = losses[0] - min(losses)
    return min(max(losses), losses[0] + max(fall, 0.05 * losses[0]))


def page(result: LrRangeResult) -> str:
    """The curve as a self-contained HTML page."""
    import html

    title = html.escape(f"learning rate range test of {result.space}")
    plot = _figure(result).to_html(full_html=False, include_plotlyjs=True, default_height="90vh")
    head = f'<meta charset="utf-8"><title>{title}</title>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{plot}</body></html>\n'


def _figure(result: LrRangeResult) -> Figure:
    from plotly.graph_objects import Figure, Scatter

    points, proposal = result.test.points, result.test.proposal
    rates = [point.learning_rate for point in points]
    losses, smooth = [point.loss for point in points], [point.smoothed for point in points]
    bottom, top = min(smooth + losses), top_of(result)
    space = 0.06 * (top - bottom)
    dots, line = {"size": 5, "color": "#b0b8c4"}, {"color": "#1f5fbf", "width": 2.5}
    figure = Figure(
        [
            Scatter(x=rates, y=losses, mode="markers", name="loss of a step", marker=dots),
            Scatter(x=rates, y=smooth, mode="lines", name="smoothed", line=line),
        ]
    )
    figure.update_layout(
        template="plotly_white",
        title=f"Learning rate range test of {result.space}",
        xaxis={"type": "log", "title": "learning rate", "exponentformat": "power", "dtick": 1},
        yaxis={"title": "training loss (nats a token)", "range": [bottom - space, top + space]},
        legend={"orientation": "h", "y": -0.15},
    )
    if result.range is not None and proposal is not None:
        low, high = result.range
        figure.add_vrect(low, high, fillcolor="#2f9e44", opacity=0.12, line_width=0)
        figure.add_annotation(
            x=(math.log10(low) + math.log10(high)) / 2, y=1, yref="paper", yanchor="bottom", showarrow=False,
            text=f"proposed range: {low:g} to {high:g}",
        )  # fmt: skip
        named = {
            "steepest": proposal.steepest, "valley": proposal.valley, "minimum / 10": proposal.minimum_tenth
        }  # fmt: skip
        at = [min(range(len(rates)), key=lambda i: abs(math.log(rates[i] / rate))) for rate in named.values()]
        figure.add_scatter(
            x=list(named.values()), y=[smooth[i] for i in at], mode="markers+text",
            name="suggestions", textposition="top right",
            text=list(named), hovertemplate="%{text}: %{x:.2g}<extra></extra>",
            marker={"size": 10, "color": "#d9480f", "symbol": ["triangle-down", "diamond", "square"]},
        )  # fmt: skip
    return figure


def _one_digit(rounded: Callable[[float], int], value: float) -> float:
    """The next smaller or larger number of one digit, or the number itself where it has one."""
    mantissa, exponent = f"{value:.6e}".split("e")
    return float(f"{rounded(float(mantissa))}e{exponent}")


_down, _up = partial(_one_digit, math.floor), partial(_one_digit, math.ceil)
