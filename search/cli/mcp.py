"""`hpsearch mcp`: hpsearch as tools of a coding agent."""

from __future__ import annotations

from . import options, places


def mcp(storage: options.Storage = None, runs: options.Runs = None) -> None:
    """Offer searches to a coding agent as tools: the Model Context Protocol over standard input and output.

    An agent starts it: docs/agents.md says how to add it to Claude, Codex, Cursor and VS Code. With --server
    it works at a server. What an agent submits is searched without a server too, and goes on when it leaves.

    Example: hpsearch mcp --storage studies.db
    """
    with options.needs_extra("mcp"):
        from ..service.mcp import stdio
    from ..service.place import Here

    at = places.place(storage, runs)
    if isinstance(at, Here):
        assert at.workspace is not None
        stdio.serve_here(at.workspace)
    else:
        stdio.serve(at)
