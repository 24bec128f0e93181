"""The sampler that a space asks for."""

from __future__ import annotations

from optuna.samplers import BaseSampler

from ...spaces import Spec
from .grid import GridSampler
from .space_sampler import SpaceSampler


def make_sampler(spec: Spec) -> BaseSampler:
    """The sampler of a study."""
    if spec.search.sampler == "rung_gp":
        from .rung_gp import RungGPSampler

        return RungGPSampler(spec)
    return GridSampler(spec) if spec.search.sampler == "grid" else SpaceSampler(spec)
