"""Ways of running trials: one module per backend, loaded when it is chosen."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import UsageError

if TYPE_CHECKING:
    from ...spaces import Spec
    from .base import Backend

_BACKENDS = {"optuna": "OptunaBackend"}  # module in this package -> its class
NAMES = tuple(_BACKENDS)


def make_backend(name: str, spec: Spec, objective: dict[str, Any]) -> Backend:
    """The backend of that name for a study; `objective` as `objectives.base.describe` gives it."""
    if name not in _BACKENDS:
        near = difflib.get_close_matches(name, NAMES, 1)
        hint = f', did you mean "{near[0]}"?' if near else ""
        raise UsageError(f'there is no backend "{name}"{hint}; there is: {", ".join(NAMES)}')
    module = import_module(f".{name}", __name__)
    backend: Backend = getattr(module, _BACKENDS[name])(spec, objective)
    return backend
