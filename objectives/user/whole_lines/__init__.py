"""Lets programs print each line at once and whole, also into a pipe."""

from __future__ import annotations

import os
from collections.abc import Mapping

# For Python, for its texts, and for what gfortran compiles.
_VARIABLES = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8", "GFORTRAN_UNBUFFERED_PRECONNECTED": "y"}


def with_whole_lines(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment with the variables for that.

    Unbuffered, Python's `print` writes a line and its end apart, and another thread or process may print
    between them. `sitecustomize` beside this module, which Python imports at its start, mends that.
    """
    folders = [os.path.dirname(__file__), environment.get("PYTHONPATH", "")]
    return {**environment, **_VARIABLES, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
