"""Starts our actors where Tune would start its own, which load all of Tune, in 1.5 s for each.

`RayActorManager` is private to Ray 2.60: if a newer Ray moves it, the import here fails, and the tests kill
actors in every way that Ray distinguishes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray import tune
from ray.air.execution._internal import RayActorManager, TrackedActor
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.tune.execution import tune_controller

from .actor import ASSIGNMENT_KEY, ActorSettings, WorkerActor
from .cluster import replaced


class PlaceholderTrainable(tune.Trainable):
    """The class that Tune believes it starts; it never does."""


@contextmanager
def actors_with(settings: ActorSettings) -> Iterator[None]:
    """Let Tune start our actors, and let the loss of an actor end its own trials only."""
    remote = ray.remote(WorkerActor)
    common = ray.put(settings)  # once: a notebook's function in it may be large

    class Manager(RayActorManager):
        """Tune's manager of actors."""

        def add_actor(self, cls: Any, kwargs: dict[str, Any], *more: Any, **options: Any) -> TrackedActor:
            given = {"settings": common, "assignment": kwargs["config"][ASSIGNMENT_KEY]}
            return super().add_actor(remote, given, *more, **options)

        def schedule_actor_task(
            self,
            tracked_actor: TrackedActor,
            method_name: str,
            args: tuple[Any, ...] | None = None,
            *more: Any,
            **options: Any,
        ) -> Any:
            if method_name == "reset" and args:
                (config,) = args
                args, options["kwargs"] = (config[ASSIGNMENT_KEY],), {}
            return super().schedule_actor_task(tracked_actor, method_name, args, *more, **options)

        def _actor_task_failed(self, tracked_actor_task: Any, exception: Exception) -> None:
            # Tune knows two kinds of error. Any other, such as that of an actor that Ray killed because its
            # node ran out of memory, would end the whole run.
            known = (RayActorError, RayTaskError)
            if isinstance(exception, RayError) and not isinstance(exception, known):
                exception = RayActorError(error_msg=f"{type(exception).__name__}: {exception}")
            super()._actor_task_failed(tracked_actor_task=tracked_actor_task, exception=exception)

    with replaced(tune_controller, "RayActorManager", Manager):
        yield
