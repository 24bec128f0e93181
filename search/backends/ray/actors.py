"""Actors of ours where Tune would start its own: theirs load all of Tune, a second and a half for each.

`RayActorManager` is private to Ray 2.60: a Ray that has moved it fails on import here, and the tests kill
actors in every way that Ray tells apart.
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

from .actor import ASSIGNMENT, Setting, WorkerActor
from .cluster import replaced


class Stand(tune.Trainable):
    """What Tune takes for the class that it starts; it never does."""


@contextmanager
def actors_of(kind: type[WorkerActor], setting: Setting) -> Iterator[None]:
    """Let Tune start actors of this class, and let every way in which Ray loses one end its trial alone."""
    remote = ray.remote(kind)
    common = ray.put(setting)  # once: a notebook's function, which travels in it, may be large

    class Manager(RayActorManager):
        """Tune's keeper of actors."""

        def add_actor(self, cls: Any, kwargs: dict[str, Any], *more: Any, **options: Any) -> TrackedActor:
            given = {"setting": common, "assignment": kwargs["config"][ASSIGNMENT]}
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
                args, options["kwargs"] = (config[ASSIGNMENT],), {}
            return super().schedule_actor_task(tracked_actor, method_name, args, *more, **options)

        def _actor_task_failed(self, tracked_actor_task: Any, exception: Exception) -> None:
            # Tune knows two kinds. Any other, such as the one of an actor that Ray killed because its node
            # ran out of memory, would end the whole run.
            known = (RayActorError, RayTaskError)
            if isinstance(exception, RayError) and not isinstance(exception, known):
                exception = RayActorError(error_msg=f"{type(exception).__name__}: {exception}")
            super()._actor_task_failed(tracked_actor_task=tracked_actor_task, exception=exception)

    with replaced(tune_controller, "RayActorManager", Manager):
        yield
