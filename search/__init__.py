"""The search from Python: `run` a space, `open_study` what was searched.

Nothing is loaded before it is used: `hpsearch --help` needs neither Optuna nor torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ..spaces import Spec
    from ..spaces.loader import Source
    from .engine.watcher import Watcher
    from .results.notebook import Study
    from .results.study import Best

__all__ = ["Best", "Study", "open_study", "run"]


def run(
    space: Source | Spec,
    *,
    objective: Callable[[Any], float] | None = None,
    backend: str = "optuna",
    storage: str | None = None,
    runs: str | Path | None = None,
    watcher: Watcher | None = None,
    ray_address: str | None = None,
    began: float | None = None,
    notify: Sequence[str] = (),
    **changes: Any,
) -> Study:
    """Search a space, or continue an earlier search of the same name.

    `space` is a file, the name of one that ships, a dict of what a file holds, or a loaded `Spec`.
    `objective` replaces the file's by a function of this process. `changes` go over the file's fields, as in
    `budget={"trials": 80}`, `execution={"workers": 4}` or `name="mine"`. Reports progress by lines, or to a
    `watcher`.

    `ray_address` is that of a Ray cluster: "auto" on one of its nodes, or "host:port". Without one, the Ray
    backend runs in the Ray that this process is connected to, or else starts its own.

    `began`: since when, by the monotonic clock, the time of the search counts; by default since this call.

    `notify`: who is told when the search has finished or failed: webhooks, or URLs that Apprise takes.

    Raises `SpaceError`, `ObjectiveError`, `StorageError` or `SearchError` with what to do about it.
    """
    from ..storage.workspace import Workspace
    from .cli.progress import LineProgress
    from .operations.run import run as search
    from .results.notebook import Study

    result = search(
        workspace=Workspace.at(storage, runs),
        space=space,
        objective=objective,
        backend=backend,
        watcher=LineProgress() if watcher is None else watcher,
        ray_address=ray_address,
        began=began,
        notify=notify,
        **changes,
    )
    return Study.of(result)


def open_study(name: str, *, storage: str | None = None, runs: str | Path | None = None) -> Study:
    """A study that was searched before. Raises `StorageError` where there is none of that name."""
    from ..storage.workspace import Workspace
    from .results.notebook import Study
    from .results.study import load_result

    return Study.of(load_result(Workspace.at(storage, runs), name))


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .results import notebook, study

    return getattr(notebook if name == "Study" else study, name)
