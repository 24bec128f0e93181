"""The search: driver, backends, algorithms and the command line.

from hpsearch.search import run, open_study
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .operations.run import Best, StudyResult, open_study, run

__all__ = ["Best", "StudyResult", "open_study", "run"]


def __getattr__(name: str) -> Any:
    """Load the search only when it is used: `hpsearch --help` needs neither Optuna nor torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .operations import run as api

    return getattr(api, name)
