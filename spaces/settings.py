"""What is trained, for how long, and how this machine does it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, PlainValidator, Tag, WithJsonSchema, model_validator

from .model import Model, NotNegative, Positive, Seconds, Text, refuse, show


class Budget(Model):
    """When the search ends: at the first of these, counted over all resumes."""

    trials: Positive | None = None
    """Trials that are started, the baseline included."""
    time: Seconds | None = None
    """Wall time, such as 30m or 1.5h."""
    samples: Positive | None = None
    """Training samples over all trials."""
    target: float | None = None
    """End as soon as the metric is this good."""

    @model_validator(mode="after")
    def _check(self) -> Budget:
        if self.trials is self.time is self.samples is None:
            raise refuse(
                (
                    "",
                    "needs trials, time or samples"
                    + ("; a target alone may never be reached" if self.target is not None else ""),
                )
            )
        return self


def _workers(value: Any) -> int | str:
    if value == "auto" or (type(value) is int and value >= 1):
        return value  # type: ignore[no-any-return]   # narrowed by the test above
    raise refuse(("", f'must be "auto" or a number of processes, not {show(value)}'))


class Execution(Model):
    """How trials run on this machine."""

    workers: Annotated[
        int | Literal["auto"],
        PlainValidator(_workers),
        WithJsonSchema(
            {"if": {"type": "string"}, "then": {"const": "auto"}, "else": {"type": "integer", "minimum": 1}}
        ),
    ] = "auto"
    """Trials at the same time; auto asks the machine."""
    retries: NotNegative = 1
    """How often a failed trial is tried again from its checkpoint."""
    trial_timeout: Seconds | None = None
    """Wall time after which a trial counts as failed."""
    keep: NotNegative = 3
    """Trials whose checkpoints stay on disk, the best first."""


class Command(Model):
    """A program that trains one trial."""

    command: Annotated[list[Text], Field(min_length=1)]
    """The program and its arguments; ${args} becomes --name=value for every parameter."""


Objective = Annotated[
    Annotated[Text, Tag("text")] | Annotated[Command, Tag("command")],
    Discriminator(lambda value: "command" if isinstance(value, dict | Command) else "text"),
]
