"""The trainer's errors, as objectives raise them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .base import ObjectiveError


@contextmanager
def trainer_errors() -> Iterator[None]:
    """Raise what the trainer says of a configuration or a file as the objective's own error."""
    from ..trainer.errors import TrainerError

    try:
        yield
    except TrainerError as error:  # its message says what to change
        raise ObjectiveError(str(error)) from error
