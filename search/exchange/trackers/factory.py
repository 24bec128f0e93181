"""Chooses a tracker by its name."""

from __future__ import annotations

from pathlib import Path

from .base import Tracker


def make_tracker(name: str, root: Path, group: str) -> Tracker:
    """The tracker of this name. Imports its library, and raises whatever that raises."""
    match name:
        case "tensorboard":
            from .tensorboard import TensorBoard

            return TensorBoard(root, group)
        case "wandb":
            from .wandb import WandB

            return WandB(root, group)
        case "mlflow":
            from .mlflow import MLflow

            return MLflow(root, group)
    raise AssertionError(f"the loader accepted the tracker {name!r}")
