"""A user's code on its way to a server: a zip named after the SHA-256 of its content."""

from __future__ import annotations

MOST_FILES = 10_000
MOST_BYTES = 256 * 2**20  # unpacked
MOST_ZIPPED = 64 * 2**20
