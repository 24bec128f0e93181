"""Seeds: those derived from a study's, and the parameter names that mean one."""

from __future__ import annotations

import re
import zlib

from ...spaces.stopping import snake


def derived_seed(seed: int, *what: object) -> int:
    """A seed for one purpose, derived from the study's seed; the same after any interruption."""
    return zlib.crc32(":".join(map(str, (seed, *what))).encode()) & 0x7FFFFFFF


SEED_NAME = re.compile(  # of a whole training; the seed of a data split must stay the same for all trials
    r"((base|global|init|manual|master|model|np|numpy|rand|random|rng|torch|train|training)_)?seed|random_state"
)


def is_seed(name: str) -> bool:
    """Whether a parameter of this name is the seed of a training, which differs from trial to trial."""
    return SEED_NAME.fullmatch(snake(name)) is not None
