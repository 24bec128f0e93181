"""Our learning-rate schedules in Hugging Face's names and options, where the curve is the same.

    hf_schedule("cosine", {"learning_rate": 1e-3, "min_lr_ratio": 0.1, ...}, steps=400)

`trainer/optim/schedule.py` has our formulas, `transformers/optimization.py` theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# The options of the schedules in trainer/config/training.py.
SCHEDULE_OPTIONS = (
    *("warmup_ratio", "warmup_steps", "min_lr_ratio", "lr_cycles", "lr_power", "lr_step_every", "lr_gamma"),
    *("lr_timescale", "lr_decay_ratio", "lr_decay_type", "lr_rise_ratio", "lr_start_divisor"),
    *("lr_plateau_patience", "lr_plateau_factor", "lr_plateau_min_delta"),
)


@dataclass(frozen=True)
class TranslatedSchedule:
    """A schedule in `TrainingArguments`: `lr_scheduler_type` and `lr_scheduler_kwargs`."""

    name: str | None  # None: there is no schedule with the same curve
    kwargs: dict[str, Any] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)  # options that it lacks, and why


def hf_schedule(name: str, values: Mapping[str, Any], steps: int | None) -> TranslatedSchedule:
    """Hugging Face's schedule with the same curve. `values`: the learning rate and all `SCHEDULE_OPTIONS`.

    `steps`: of the whole training, where they are known; some options are counted in steps there.
    """
    peak, floor = values["learning_rate"], values["min_lr_ratio"]
    warmup = values["warmup_steps"] or (
        None if steps is None and values["warmup_ratio"] else round(values["warmup_ratio"] * (steps or 0))
    )
    rest = None if steps is None or warmup is None else max(1, steps - warmup)
    no_floor = {"min_lr_ratio": "this schedule decays to 0 there"} if floor else {}
    warm = bool(values["warmup_ratio"] or values["warmup_steps"])
    if name == "constant" or (floor == 1 and name in ("linear", "polynomial", "cosine")):
        return TranslatedSchedule("constant_with_warmup" if warm else "constant")
    if name in ("linear", "cosine") and not floor:
        return TranslatedSchedule(name)
    if name in ("linear", "polynomial"):
        power = values["lr_power"] if name == "polynomial" else 1.0
        return TranslatedSchedule("polynomial", {"power": power, "lr_end": floor * peak})
    if name == "cosine":
        return TranslatedSchedule("cosine_with_min_lr", {"min_lr_rate": floor})
    if name == "cosine_with_restarts":
        return TranslatedSchedule(name, {"num_cycles": values["lr_cycles"]}, no_floor)
    if name == "inverse_sqrt" and rest is not None:
        scale = values["lr_timescale"]
        scaled = (warmup or max(1, round(0.1 * rest))) if scale is None else max(1, round(scale * rest))
        return TranslatedSchedule(name, {"timescale": scaled}, no_floor)
    if name == "inverse_sqrt" and values["lr_timescale"] is None and warm:
        return TranslatedSchedule(name, {}, no_floor)  # there, too, it is the length of the warm-up
    if name == "warmup_stable_decay" and rest is not None:
        falling = max(1, round(values["lr_decay_ratio"] * rest))
        kwargs = {"num_decay_steps": falling, "decay_type": values["lr_decay_type"], "min_lr_ratio": floor}
        return TranslatedSchedule(name, kwargs)
    if name == "reduce_on_plateau":
        kwargs = {
            "factor": values["lr_plateau_factor"],
            "patience": values["lr_plateau_patience"],
            "threshold": values["lr_plateau_min_delta"],
            "threshold_mode": "abs",
            "min_lr": floor * peak,
        }
        why = "reduce_lr_on_plateau has no warm-up"
        lost = {option: why for option in ("warmup_ratio", "warmup_steps") if values[option]}
        return TranslatedSchedule("reduce_lr_on_plateau", kwargs, lost)
    if name == "one_cycle" and not warm:
        final = 1e9 if not floor else 1.0 / (values["lr_start_divisor"] * floor)
        kwargs = {
            "pct_start": values["lr_rise_ratio"],
            "div_factor": values["lr_start_divisor"],
            "final_div_factor": final,  # relative to the initial rate
            "cycle_momentum": False,
        }
        return TranslatedSchedule(name, kwargs)  # PyTorch's OneCycleLR; only Axolotl has it
    if name in ("inverse_sqrt", "warmup_stable_decay"):
        return TranslatedSchedule(None, lost={"lr_scheduler": "it is counted in steps there; set max_steps"})
    return TranslatedSchedule(None, lost={"lr_scheduler": "Hugging Face's Trainer has no equivalent"})
