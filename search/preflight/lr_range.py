"""Finds the range of learning rates that a search is to try, by a range test of the space's baseline."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...objectives.catalog import trainer_config, trainers
from ...objectives.guides import preset_values
from ...spaces import Range, SpaceError, Spec, with_log_range
from ...spaces.document import text_of
from ...storage.files import write
from ..errors import SearchError, UsageError
from .checks import check_objective

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from ...objectives.range_test import Point, RangeTest

NAME = "learning_rate"
# What the test sets itself, and no other parameter of a run matters to it.
NOT_TOLD = (
    NAME,
    "lr_scheduler",
    "warmup_ratio",
    "warmup_steps",
    "min_lr_ratio",
    "max_samples",
    "max_steps",
    "num_train_epochs",
    "samples_per_epoch",
    "eval_every",
    "eval_samples",
)


@dataclass(frozen=True)
class LrRangeResult:
    """A test of a space, and the range it proposes."""

    space: str
    parameters: dict[str, Any]  # that the test was made with
    test: RangeTest
    range: tuple[float, float] | None  # in round numbers; None where the loss does not fall
    widened_for: tuple[str, ...]  # what the space holds to outside the proposal: its baseline, its prior

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        proposal = self.test.proposal
        return {
            "space": self.space,
            "parameters": self.parameters,
            "points": [asdict(point) for point in self.test.points],
            "diverged": self.test.diverged,
            "suggestions": None if proposal is None else asdict(proposal),
            "range": None
            if self.range is None
            else {"min": self.range[0], "max": self.range[1], "log": True},
            "widened_for": list(self.widened_for),
        }


def lr_find(
    spec: Spec, *, low: float, high: float, steps: int, on_point: Callable[[Point], None]
) -> LrRangeResult:
    """Test a space's baseline, or its middle where it has none, from one learning rate to another.

    Raises `SpaceError` where its objective is not built in.
    """
    check_objective(spec)
    objective = spec.objective
    if not isinstance(objective, str) or trainer_config(objective) is None:
        theirs = objective if isinstance(objective, str) else " ".join(objective.command)
        message = (
            f"lr-find trains the objectives of hpsearch's trainer ({', '.join(trainers())}), not {theirs}"
        )
        raise SpaceError([spec.issue("objective", message)])
    from ...objectives.range_test import range_test

    params = {"seed": spec.search.seed} | spec.space.passed(spec.space.central())
    test = range_test(objective, params, low=low, high=high, steps=steps, on_point=on_point)
    told = {name: value for name, value in params.items() if name not in NOT_TOLD}
    if test.proposal is None:
        return LrRangeResult(spec.name, told, test, None, ())
    found = _down(test.proposal.low), float(f"{test.proposal.high:.0e}")
    if found[0] >= found[1]:  # by rounding, where the test went no further than to the next digit
        found = found[0], _up(test.proposal.high)
    held = {name: value for name, value in held_to(spec).items() if not found[0] <= value <= found[1]}
    low, high = min([found[0], *map(_down, held.values())]), max([found[1], *map(_up, held.values())])
    return LrRangeResult(spec.name, told, test, (low, high), tuple(held))


def held_to(spec: Spec) -> dict[str, float]:
    """The learning rates that a range must hold for the space to stay one: the baseline's and the prior's."""
    values = {"baseline": (spec.baseline or {}).get(NAME)}
    parameter = spec.parameters.get(NAME)
    if isinstance(parameter, Range) and parameter.prior is not None:
        values["prior"] = parameter.prior.at
    return {name: float(value) for name, value in values.items() if value is not None}


def check_writable(file: str, spec: Spec, low: float, high: float) -> None:
    """Raise where a range could not be put into the file, before anything is trained."""
    if not Path(file).is_file():
        raise UsageError(
            f'--write: "{file}" ships with hpsearch and stays as it is; copy it to a file of yours'
        )
    every = [low, high, *held_to(spec).values()]
    with_log_range(text_of(Path(file)), file, NAME, min(every), max(every), preset_values)


def write_range(file: str, low: float, high: float) -> None:
    """Put the range into a space file, in which nothing else changes.

    Raises `SpaceError` where that cannot be done in place, and `SearchError` where it cannot be written.
    """
    try:
        text = with_log_range(text_of(Path(file)), file, NAME, low, high, preset_values)
        write(Path(file).resolve(), text)  # a link of the user's stays one
    except OSError as error:
        raise SearchError(f"cannot write {file}: {error.strerror}") from error


def top_of(found: LrRangeResult) -> float:
    """The highest loss worth drawing: as far above the first as the lowest is below. It diverges beyond."""
    losses = [point.smoothed for point in found.test.points]
    fall = losses[0] - min(losses)
    return min(max(losses), losses[0] + max(fall, 0.05 * losses[0]))


def page(found: LrRangeResult) -> str:
    """The curve as a page of HTML that needs nothing else."""
    import html

    title = html.escape(f"learning rate range test of {found.space}")
    plot = _figure(found).to_html(full_html=False, include_plotlyjs=True, default_height="90vh")
    head = f'<meta charset="utf-8"><title>{title}</title>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{plot}</body></html>\n'


def _figure(found: LrRangeResult) -> Figure:
    from plotly.graph_objects import Figure, Scatter

    points, proposal = found.test.points, found.test.proposal
    rates = [point.learning_rate for point in points]
    figure = Figure()
    losses = [point.loss for point in points]
    dots = {"size": 5, "color": "#b0b8c4"}
    figure.add_trace(Scatter(x=rates, y=losses, mode="markers", name="loss of a step", marker=dots))
    smooth = [point.smoothed for point in points]
    line = {"color": "#1f5fbf", "width": 2.5}
    figure.add_trace(Scatter(x=rates, y=smooth, mode="lines", name="smoothed", line=line))
    if found.range is not None and proposal is not None:
        low, high = found.range
        figure.add_vrect(low, high, fillcolor="#2f9e44", opacity=0.12, line_width=0)
        figure.add_annotation(
            x=(math.log10(low) + math.log10(high)) / 2, y=1, yref="paper", yanchor="bottom", showarrow=False,
            text=f"proposed range: {low:g} to {high:g}",
        )  # fmt: skip
        named = {
            "steepest": proposal.steepest, "valley": proposal.valley, "minimum / 10": proposal.minimum_tenth
        }  # fmt: skip
        at = [min(range(len(rates)), key=lambda i: abs(math.log(rates[i] / rate))) for rate in named.values()]
        figure.add_trace(
            Scatter(
                x=list(named.values()), y=[smooth[i] for i in at], mode="markers+text",
                name="suggestions", textposition="top right",
                text=list(named), hovertemplate="%{text}: %{x:.2g}<extra></extra>",
                marker={"size": 10, "color": "#d9480f", "symbol": ["triangle-down", "diamond", "square"]},
            )
        )  # fmt: skip
    bottom = min(smooth + losses)
    space = 0.06 * (top_of(found) - bottom)
    figure.update_layout(
        template="plotly_white",
        title=f"Learning rate range test of {found.space}",
        xaxis={"type": "log", "title": "learning rate", "exponentformat": "power", "dtick": 1},
        yaxis={
            "title": "training loss (nats a token)",
            "range": [bottom - space, top_of(found) + space],
        },
        legend={"orientation": "h", "y": -0.15},
    )
    return figure


def _down(value: float) -> float:
    """The next smaller number of one digit; itself where it has one."""
    return _one_digit(value, math.floor)


def _up(value: float) -> float:
    return _one_digit(value, math.ceil)


def _one_digit(value: float, rounded: Callable[[float], int]) -> float:
    mantissa, exponent = f"{value:.6e}".split("e")
    return float(f"{rounded(float(mantissa))}e{exponent}")
