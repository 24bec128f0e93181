"""The learning rate and the places of the reports, as pure functions of a run's progress."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..config.training import TrainingConfig

History = Sequence[tuple[int, float]]  # validations so far: optimizer steps done, value


def lr_factor(config: TrainingConfig, progress: float, history: History = ()) -> float:
    """The learning rate at `progress` (0 to 1 of the run) as a share of its peak.

    Over the first part w of the run (`warmup_ratio` or `warmup_steps`) it rises linearly from 0 to the start
    of the schedule. With t from 0 to 1 over the rest, m for `min_lr_ratio` and C(x) = (1 + cos(pi x)) / 2:

    | scheduler | share of the peak | source |
    |---|---|---|
    | constant | 1 | |
    | linear | m + (1 - m) (1 - t) | |
    | cosine | m + (1 - m) C(t) | Loshchilov and Hutter 2017 (SGDR), equation 5 |
    | cosine_with_restarts | m + (1 - m) C(`lr_cycles` t mod 1) | the same |
    | polynomial | m + (1 - m) (1 - t)^`lr_power` | Chen et al. 2018 (DeepLab) |
    | step | max(m, `lr_gamma`^floor(t / `lr_step_every`)) | PyTorch's StepLR |
    | inverse_sqrt | max(m, (1 + t / s)^(-1/2)) | Vaswani et al. 2017, equation 3 |
    | warmup_stable_decay | m + (1 - m) f(u) | Hu et al. 2024 (MiniCPM) |
    | one_cycle | 1 - (1 - 1/d) C(t / r), then m + (1 - m) C((t - r) / (1 - r)) | Smith and Topin 2018 |
    | reduce_on_plateau | max(m, `lr_plateau_factor`^drops) | PyTorch's ReduceLROnPlateau |

    - inverse_sqrt: s is `lr_timescale`, by default the length of the warm-up, w / (1 - w), which gives
      equation 3: (w / progress)^(1/2). Without a warm-up the default is 0.1.
    - warmup_stable_decay: u is 0 until the last `lr_decay_ratio`, then rises to 1. f is `lr_decay_type`:
      1 - u, C(u), or 1 - u^(1/2) (Hägele et al. 2024).
    - one_cycle: it starts at 1/d, d the `lr_start_divisor`, and rises until t = r, the `lr_rise_ratio`. The
      paper's slopes are straight; fastai and PyTorch use cosines.
    - reduce_on_plateau: the only one that depends on `history`, the validations so far.
    """
    warmup = _warmup(config)
    if progress < warmup:
        begin = 1.0 / config.lr_start_divisor if config.lr_scheduler == "one_cycle" else 1.0
        return begin * (progress / warmup)
    t = (progress - warmup) / (1.0 - warmup) if warmup < 1.0 else 0.0
    floor = config.min_lr_ratio
    match config.lr_scheduler:
        case "constant":
            return 1.0
        case "linear":
            fall = 1.0 - t
        case "cosine":
            fall = _cosine(t)
        case "cosine_with_restarts":
            fall = _cosine(t * config.lr_cycles % 1.0 if t < 1.0 else 1.0)
        case "polynomial":
            fall = (1.0 - t) ** config.lr_power
        case "step":
            return max(floor, config.lr_gamma ** math.floor(t / config.lr_step_every))
        case "inverse_sqrt":
            return max(floor, 1.0 / math.sqrt(1.0 + t / _timescale(config)))
        case "warmup_stable_decay":
            fall = _decay(config.lr_decay_type, 1.0 - min(1.0, (1.0 - t) / config.lr_decay_ratio))
        case "one_cycle":
            rise = config.lr_rise_ratio
            if t < rise:
                return 1.0 - (1.0 - 1.0 / config.lr_start_divisor) * _cosine(t / rise)
            fall = _cosine((t - rise) / (1.0 - rise))
        case "reduce_on_plateau":
            return max(floor, config.lr_plateau_factor ** _drops(config, progress, history))
        case unknown:
            raise AssertionError(f"a scheduler without a formula: {unknown}")
    return floor + (1.0 - floor) * fall


def learning_rate(config: TrainingConfig, step: int, history: History = ()) -> float:
    """The learning rate of optimizer step `step` (from 0), taken at the middle of the step.

    So no step is wasted on a rate of zero, at either end, and a run of the same samples in larger batches
    follows the same curve. Only validations before the step count in `history`, which reduce_on_plateau uses:
    the rate of an earlier step does not change.
    """
    return config.learning_rate * lr_factor(config, (step + 0.5) / config.total_steps, history)


def _warmup(config: TrainingConfig) -> float:
    """The share of the run in which the rate rises from 0."""
    return config.warmup_ratio or min(1.0, config.warmup_steps / config.total_steps)


def _cosine(x: float) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * x))


def _decay(kind: str, u: float) -> float:
    if kind == "cosine":
        return _cosine(u)
    return 1.0 - (math.sqrt(u) if kind == "1-sqrt" else u)


def _timescale(config: TrainingConfig) -> float:
    warmup = _warmup(config)
    if config.lr_timescale is not None:
        return config.lr_timescale
    return warmup / (1.0 - warmup) if 0.0 < warmup < 1.0 else 0.1


def _drops(config: TrainingConfig, progress: float, history: History) -> int:
    """How often the rate has dropped until `progress`, like ReduceLROnPlateau with `mode="min"`, `"abs"`.

    A NaN is not a gain. Validations without gain in the warm-up do not count: the rate was still rising.
    """
    best, without_gain, drops = math.inf, 0, 0
    for step, value in history:
        place = step / config.total_steps
        if place > progress:
            break
        if value < best - config.lr_plateau_min_delta:
            best, without_gain = value, 0
        elif place >= _warmup(config):
            without_gain += 1
        if without_gain > config.lr_plateau_patience:
            drops, without_gain = drops + 1, 0
    return drops


def report_due(config: TrainingConfig, step: int) -> int | None:
    """The place of the report that is due after `step` optimizer steps, in the run's unit; or None.

    Reports are due at the multiples of `eval_interval` and at the end. A step that passes several of these
    places reports the highest, so the places increase strictly, and the last is exactly the run's length.
    """
    reached, before = _grid_point(config, step), _grid_point(config, max(0, step - 1))
    return reached if reached > before else None


def _grid_point(config: TrainingConfig, step: int) -> int:
    if step >= config.total_steps:
        return config.length
    done = config.place_after(step)
    return done - done % config.eval_interval
