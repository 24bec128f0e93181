"""The backends, which run trials: one module each, imported when it is chosen."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from ...objectives.info import ObjectiveInfo
from ..errors import UsageError

if TYPE_CHECKING:
    from ...spaces import Spec
    from .base import Backend

NAMES = ("optuna", "ray", "remote")


def make_backend(name: str, spec: Spec, objective: dict[str, Any], ray_address: str | None) -> Backend:
    """The backend of this name for a study; `objective` as `objectives.base.describe` returns it.

    Raises `UsageError` where there is no such backend, or where it cannot run the study.
    """
    check_backend(name, spec)
    if name == "ray":
        from .ray.backend import RayBackend

        return RayBackend(spec, objective, ray_address)
    if ray_address is not None:
        raise UsageError("the address of a Ray cluster needs the backend ray", code="ray-address")
    if name == "remote":
        from .remote.backend import RemoteBackend

        return RemoteBackend(spec, objective)
    from .local import LocalBackend

    return LocalBackend(spec, objective)


def check_backend(name: str, spec: Spec) -> None:
    """Raise `UsageError` where there is no backend of this name, or where it has not the study's code."""
    check_name(name)
    if name != "remote" and ObjectiveInfo(spec.objective_words).kind == "remote":
        raise UsageError(
            f"the objective is remote, so workers elsewhere bring its code: the backend {name} has none; "
            "search with the backend remote",
            code="remote-objective",
        )


def check_name(name: str) -> None:
    """Raise `UsageError` where there is no backend of this name."""
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, 1)
        hint = f', did you mean "{near[0]}"?' if near else ""
        raise UsageError(f'there is no backend "{name}"{hint}; there is: {", ".join(NAMES)}')
