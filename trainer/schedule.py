"""The learning rate and the places of the reports, as pure functions of how far a run has come."""

from __future__ import annotations

import math

from .config import TrainConfig


def lr_factor(progress: float, *, scheduler: str, warmup: float = 0.0, floor: float = 0.0) -> float:
    """The learning rate at `progress` (0 to 1 of the run) as a share of its peak.

    It rises linearly over the first `warmup` of the run, for every scheduler, then falls from 1 to `floor`
    over the rest:

    | scheduler | with t from 0 to 1 over the rest |
    |---|---|
    | constant | 1 (no fall, no floor) |
    | linear | 1 - t |
    | cosine | (1 + cos(pi t)) / 2: SGDR without restarts (Loshchilov and Hutter 2017, equation 5) |
    """
    if progress < warmup:
        return progress / warmup
    if scheduler == "constant":
        return 1.0
    t = (progress - warmup) / (1.0 - warmup) if warmup < 1.0 else 0.0
    fall = 1.0 - t if scheduler == "linear" else 0.5 * (1.0 + math.cos(math.pi * t))
    return floor + (1.0 - floor) * fall


def learning_rate(config: TrainConfig, step: int) -> float:
    """The learning rate of optimizer step `step` (from 0), taken at the middle of the step.

    In the middle, no step is wasted on a rate of zero, at either end, and a run of the same samples in larger
    batches follows the same curve.
    """
    warmup = config.warmup_ratio or min(1.0, config.warmup_steps / config.total_steps)
    progress = (step + 0.5) / config.total_steps
    return config.learning_rate * lr_factor(
        progress, scheduler=config.lr_scheduler, warmup=warmup, floor=config.min_lr_ratio
    )


def report_due(config: TrainConfig, step: int) -> int | None:
    """The place of the report that is due after `step` optimizer steps, in the run's unit; or None.

    Reports stand on a grid, the multiples of `eval_interval` and the end. A step that crosses several points
    of it reports the highest, so the places rise strictly, and the last is exactly the run's length.
    """
    reached, before = _grid_point(config, step), _grid_point(config, max(0, step - 1))
    return reached if reached > before else None


def _grid_point(config: TrainConfig, step: int) -> int:
    if step >= config.total_steps:
        return config.length
    done = step if config.unit == "steps" else step * config.rows_per_step
    return done - done % config.eval_interval
