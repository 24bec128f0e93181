"""Callbacks that report the training of a library's loop to the search, and end it there.

    from hpsearch.objectives.callbacks import TrainerCallback    # transformers, and what builds on it
    from hpsearch.objectives.callbacks import LightningCallback  # lightning or pytorch_lightning
    from hpsearch.objectives.callbacks import KerasCallback

A function gives its trial: `TrainerCallback(trial)`. A script that runs as a command gives none. Outside a
search they do nothing, so a script still runs alone.

They report after the checkpoint of the same moment is saved, because a trial may end or pause at a report.
Each needs its library only when it is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .keras import KerasCallback
    from .lightning import LightningCallback
    from .trainer import TrainerCallback

__all__ = ["KerasCallback", "LightningCallback", "TrainerCallback"]

_LIBRARIES = {"KerasCallback": "keras", "LightningCallback": "lightning", "TrainerCallback": "transformers"}


def __getattr__(name: str) -> Any:
    """A callback, with its library. Raises `ImportError` if the library is not installed."""
    if name not in _LIBRARIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if name == "KerasCallback":
            from .keras import KerasCallback

            return KerasCallback
        if name == "LightningCallback":
            from .lightning import LightningCallback

            return LightningCallback
        from .trainer import TrainerCallback

        return TrainerCallback
    except ModuleNotFoundError as error:
        library = _LIBRARIES[name]
        raise ImportError(
            f"{name} needs {library}, but there is no module {error.name!r}: pip install {library}"
        ) from error
