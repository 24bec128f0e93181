"""What a worker can say, checked: the bodies of the requests, over the socket and over HTTP alike."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from ....objectives.base import as_step, metric_name

SHORTEST_LEASE, USUAL_LEASE, LONGEST_LEASE = 15.0, 60.0, 600.0  # seconds
LONGEST_WAIT = 60.0  # seconds that a worker may wait for a trial in one request
LONGEST_TEXT = 1 << 18  # letters of output, or of a traceback, in one request


def _number(value: Any) -> Any:
    """A JSON number, or one of the words for those that JSON lacks."""
    if isinstance(value, str) and value.lower() in ("nan", "inf", "-inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError('must be a number, or "nan", "inf" or "-inf"')
    try:
        return float(value)
    except OverflowError:
        raise ValueError("is too large for a number of 64 bits") from None


def _step(value: Any) -> Any:
    try:
        return as_step(value)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _metrics(value: Any) -> Any:
    return {metric_name(name): each for name, each in value.items()} if isinstance(value, dict) else value


_ANY_NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}]}
Number = Annotated[float, BeforeValidator(_number), WithJsonSchema(_ANY_NUMBER)]
Step = Annotated[int, BeforeValidator(_step), WithJsonSchema({"type": "integer", "minimum": 0})]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Output = Annotated[str, Field(max_length=LONGEST_TEXT)]


class Request(BaseModel):
    """A request of a worker."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Ask(Request):
    """Ask for a trial. The same worker and request get the same trial while its lease lives."""

    worker: Name
    request: Name
    lease: float = Field(USUAL_LEASE, ge=SHORTEST_LEASE, le=LONGEST_LEASE)
    wait: float = Field(0.0, ge=0, le=LONGEST_WAIT)
    threads: int | None = Field(None, ge=1, le=65536)


class Notes(Request):
    """What a worker can add to a report or to an end."""

    remarks: list[tuple[str, str]] = Field([], max_length=100)
    attributes: dict[Annotated[str, Field(min_length=1, max_length=500)], Any] = Field({}, max_length=100)
    output: Output = ""  # what the trial has printed since the last request
    used: Annotated[list[Seconds | None], Field(min_length=5, max_length=5)] | None = Field(
        None,
        description="What the trial has used since it was lent, as far as that is known: seconds of a "
        "worker, the same times its part of the machine's cores, and times its GPUs; watt-hours of these "
        "GPUs, and of that part of the processors.",
    )


class Report(Notes):
    """Report a value."""

    step: Step
    value: Number
    metrics: Annotated[dict[str, Number], BeforeValidator(_metrics)] = Field({}, max_length=1000)
    seconds: Seconds | None = None  # since the training began
    trained: Step = 0


class Complete(Notes):
    """The trial ran to its end."""

    value: Number
    seconds: Seconds | None = None


class Fail(Notes):
    """The attempt ended without a value."""

    message: str = Field(min_length=1, max_length=2000)
    kind: Literal["error", "mismatch", "silent", "ended", "memory", "lost", "timeout", "checkpoint"] = "error"
    traceback: Output = Field("", title="Where it was raised")
    detail: Output = ""


class Nothing(Request):
    """A request that says all by its name: a sign of life, or that the worker gives a trial back."""


class Uploaded(Request):
    """A checkpoint is in this folder, which `place` has named."""

    folder: str
