"""Objectives that tell what a database may refuse; run by workers, which import this file by its path."""

from __future__ import annotations

import json
import os
from typing import Any

from hpsearch.objectives import Trial

ODD: list[dict[str, Any]] = [
    {"step": 2},
    {"step": 2**31},
    {"step": 2**63},
    {"step": 10**400},
    {"a" * 501: 1.0},
    {"a\0b": 1.0},
    {"\ud83e": 1.0},
    {"\N{DUCK}" * 500: 1.0},
    {"reason": 1.0, "constraints": 2.0},
    {"value": 5e-324},
    {"value": -1.7e308},
    {"raises": "a\0b \ud83e \x1b[2J"},
    {"remarks": "a\0b \ud83e \x1b[2J"},
]  # what trials tell, of which a database refuses some


def odd(trial: Trial) -> float:
    """Tells what its number says, which is its own trouble alone."""
    told = dict(ODD[trial.number])
    trial.report(1.0, step=1)
    if "raises" in told:
        raise ValueError(told["raises"])
    if "remarks" in told:
        trial.remark("odd", told.pop("remarks"))
    trial.report(told.pop("value", 0.5), step=told.pop("step", 2), **told)
    return float(trial.params["x"])


if __name__ == "__main__":  # the same as a script: what `odd` raises has no place in it
    for record in (
        {"step": 1, "loss": 1.0},
        {"step": 2, "loss": 0.5} | ODD[int(os.environ["HPSEARCH_TRIAL"])],
    ):
        print(json.dumps(record), flush=True)
