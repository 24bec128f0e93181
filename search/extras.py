"""What a space may name and hpsearch does not bring: samplers of another library."""

from __future__ import annotations

from ..objectives.catalog import Needs
from ..spaces import SpaceError, Spec

SAMPLERS = {
    "hyperopt-tpe": Needs(("hyperopt",), "hyperopt"),
    "hyperopt-atpe": Needs(("hyperopt", "lightgbm", "sklearn"), "atpe"),
    "hyperopt-anneal": Needs(("hyperopt",), "hyperopt"),
}


def check_extras(spec: Spec) -> None:
    """Raise `SpaceError` where a package is missing, with what installs it."""
    sampler = spec.search.sampler
    if sampler in SAMPLERS and (told := SAMPLERS[sampler].told) is not None:
        raise SpaceError([spec.issue("search.sampler", f'the sampler "{sampler}" {told}')])
