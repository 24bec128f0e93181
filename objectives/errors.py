"""Turns the trainer's errors into those of objectives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..trainer.errors import TrainerError
from .base import ObjectiveError


@contextmanager
def trainer_errors() -> Iterator[None]:
    """Raise the trainer's errors about a configuration or a file as `ObjectiveError`."""
    try:
        yield
    except TrainerError as error:  # its message says what to change
        raise ObjectiveError(str(error)) from error
