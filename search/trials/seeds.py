"""Seeds of a study: which parameters are one, and what is drawn from the study's."""

from __future__ import annotations

import re
import zlib

from ...spaces.stopping import snake


def derived_seed(seed: int, *what: object) -> int:
    """A seed for one purpose, drawn from the study's seed; the same after any interruption."""
    return zlib.crc32(":".join(map(str, (seed, *what))).encode()) & 0x7FFFFFFF


SEED_NAME = re.compile(  # of a whole training; that of a split of the data is to stay the same
    r"((base|global|init|manual|master|model|np|numpy|rand|random|rng|torch|train|training)_)?seed|random_state"
)


def is_seed(name: str) -> bool:
    """Whether a parameter of this name is a training's seed, which each trial is to have of its own."""
    return SEED_NAME.fullmatch(snake(name)) is not None
