"""The operations as tools for agents, by the Model Context Protocol: over stdio, and at /mcp of a server.

`tools` says what there is, over a place that does operations; `protocol` speaks the protocol, which needs the
extra `mcp`, and is loaded where it is used.
"""
