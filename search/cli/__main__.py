"""`python -m hpsearch.search.cli`: the command line where no script `hpsearch` is at hand."""

from __future__ import annotations

from .app import main

main()
