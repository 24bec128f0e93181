"""Sends a test to each target, to see which of them take it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from dataclasses import dataclass

from ...values import Value
from .base import NotSent, Target
from .messages import notice_of_test

TEST_SECONDS = 15.0  # for all of them together


@dataclass(frozen=True)
class Tried(Value):
    """A target, named by its host, and why it did not take the test; None: it did."""

    target: str
    error: str | None


@dataclass(frozen=True)
class Tries(Value):
    """What has come of a test. Without targets in serve.yaml there is nobody to be notified."""

    targets: tuple[Tried, ...]


def try_each(targets: Sequence[Target], link: str | None = None) -> Tries:
    """Send a test to all targets at once."""
    if not targets:
        return Tries(())
    pool, notice = ThreadPoolExecutor(len(targets), "notice test"), notice_of_test(link)
    sent = [(target.label, pool.submit(target.send, notice)) for target in targets]
    pool.shutdown(wait=False)
    found = []
    for label, future in sent:
        error = None
        try:
            future.result(TEST_SECONDS)
        except NotSent as refusal:
            error = str(refusal)
        except TooLate:
            error = "it did not answer in time"
        found.append(Tried(label, error))
    return Tries(tuple(found))
