"""Runs at the start of each Python that a command starts: its lines are written whole, as in a terminal.

It leaves everything else as it would be without it, for any version of Python.
"""

import os
import sys

for stream in (sys.stdout, sys.stderr):
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(line_buffering=True, write_through=False)

sys.path[:] = [folder for folder in sys.path if folder != os.path.dirname(os.path.abspath(__file__))]
this = sys.modules.pop(__name__)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 - another one, which this hides
except ImportError as error:
    sys.modules[__name__] = this
    if error.name != __name__:
        raise
