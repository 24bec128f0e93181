"""Seeds for single random draws."""

from __future__ import annotations

import hashlib


def seed_of(purpose: str, seed: int, step: int = 0) -> int:
    """The seed of one draw, from the arguments alone: a resumed run draws what an uninterrupted one would."""
    digest = hashlib.blake2b(f"{purpose} {seed} {step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")
