"""The backends, which run trials: one module each, imported when it is chosen."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import UsageError

if TYPE_CHECKING:
    from ...spaces import Spec
    from .base import Backend

_BACKENDS = {"optuna": "local:LocalBackend", "ray": "ray.backend:RayBackend"}  # in this package
NAMES = tuple(_BACKENDS)


def make_backend(name: str, spec: Spec, objective: dict[str, Any], **options: Any) -> Backend:
    """The backend of this name for a study; `objective` as `objectives.base.describe` returns it.

    Raises `UsageError` where there is no such backend, or where it cannot run the study.
    """
    check_name(name)
    if options and name != "ray":
        raise UsageError("the address of a Ray cluster needs the backend ray", code="ray-address")
    module, _, made = _BACKENDS[name].partition(":")
    backend: Backend = getattr(import_module(f".{module}", __name__), made)(spec, objective, **options)
    return backend


def check_name(name: str) -> None:
    """Raise `UsageError` where there is no backend of this name."""
    if name not in _BACKENDS:
        near = difflib.get_close_matches(name, NAMES, 1)
        hint = f', did you mean "{near[0]}"?' if near else ""
        raise UsageError(f'there is no backend "{name}"{hint}; there is: {", ".join(NAMES)}')
