"""Trials whose actor is gone: what Tune makes of it, and how the study tells it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.tune.experiment import Trial

from ...running import Failure
from ...trial import LONGEST_MESSAGE, TRACEBACK_LINES
from .cluster import replaced


@contextmanager
def lost_actors_are_errors() -> Iterator[None]:
    """Let every way in which Ray loses an actor end that actor's trial alone, and not the run.

    Tune 2.60 knows two kinds of exception. Any other, such as the one of an actor that Ray killed because its
    node ran out of memory, ends the whole run. `RayActorManager` is private: a Ray that has moved it fails on
    import here, and the tests kill actors in each of these ways.
    """
    original = RayActorManager._actor_task_failed

    def failed(self: Any, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, RayError) and not isinstance(exception, (RayActorError, RayTaskError)):
            exception = RayActorError(error_msg=f"{type(exception).__name__}: {exception}")
        original(self, tracked_actor_task=tracked_actor_task, exception=exception)

    with replaced(RayActorManager, "_actor_task_failed", failed):
        yield


def how_it_ended(trial: Trial) -> Failure:
    """Why a trial of Tune's ended without a word of its worker."""
    path = trial.error_file
    text = Path(path).read_text(errors="replace") if path and Path(path).exists() else ""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)  # Ray colours what it raises
    lines = [line.strip() for line in text.splitlines()[1:] if line.strip()]  # the first counts failures
    if not lines:
        return Failure("lost", f"Ray Tune ended the trial ({trial.status.lower()})")
    if (
        "Traceback" in text or "creation task" in lines[0]
    ):  # an error of our own in the actor, or of its start
        return Failure("error", lines[-1][:LONGEST_MESSAGE], "\n".join(text.splitlines()[-TRACEBACK_LINES:]))
    if "OutOfMemoryError" in text:
        return Failure("lost", "Ray killed the trial: its node ran out of memory")
    if "node has died" in text or "NodeDiedError" in text:
        return Failure("lost", "the node that ran the trial died")
    if "unavailable" in lines[0]:
        return Failure("lost", "the trial's Ray actor does not answer: its process or its node is gone")
    detail = next((line for line in lines if "exit detail" in line.lower()), lines[0])
    detail = (detail.partition("exit detail: ")[2] or detail).partition(" Some common causes")[0]  # advice
    return Failure("lost", f"the trial's Ray actor died: {detail}"[:LONGEST_MESSAGE])
