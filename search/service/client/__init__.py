"""The client of a server: `Server`, whose methods are the operations. Needs the extra `serve`."""

from __future__ import annotations

from .server import Server

__all__ = ["Server"]
