"""The settings of a search: its budget, its objective's command, its trackers, and how trials run."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, PlainValidator, Tag, WithJsonSchema, model_validator

from .errors import hint
from .fields import MOST_COUNT, Model, NotNegative, Positive, Text, number, refuse, show
from .times import Seconds

MOST_PRICE = 1e9  # an hour, in any currency
LEAST_SHARE = 0.0001  # of a device: the smallest share that Ray distinguishes
_UNITS = {unit: 1024**power for power, unit in enumerate(["", "K", "M", "G", "T"])}


class Budget(Model):
    """When the search ends: at the first of these limits, counted over all resumes."""

    trials: Positive | None = None
    """Trials that start, the baseline included."""
    time: Seconds | None = None
    """Wall time, such as 30m or 1.5h."""
    samples: Positive | None = None
    """Training samples over all trials."""
    target: float | None = None
    """Stop as soon as the metric is this good."""

    @model_validator(mode="after")
    def _check(self) -> Budget:
        if self.trials is self.time is self.samples is None:
            more = "; a target alone may never be reached" if self.target is not None else ""
            raise refuse(f"needs trials, time or samples{more}")
        return self


TRACKERS = ("tensorboard", "wandb", "mlflow")


def trackers(value: Any) -> list[str]:
    """The names of trackers, from a list, one name, or "none". Raises `ValueError` for anything else."""
    names = value if isinstance(value, list) else [] if value == "none" else [value]
    for name in names:
        if not isinstance(name, str) or name not in TRACKERS:
            raise ValueError(f"there is no tracker {show(name)}; {hint(str(name), TRACKERS)}")
    return list(dict.fromkeys(names))


Trackers = Annotated[
    list[str],
    PlainValidator(trackers),
    WithJsonSchema(
        {
            "if": {"type": "array"},
            "then": {"items": {"enum": list(TRACKERS)}},
            "else": {"enum": [*TRACKERS, "none"]},
        }
    ),
]


def _count(value: Any, *, of: str) -> Any:
    if value == "auto" or (type(value) is int and 1 <= value <= MOST_COUNT):
        return value
    most = f" of at most {MOST_COUNT:,}" if type(value) is int and value > 0 else ""
    raise refuse(f'must be "auto" or a number of {of}{most}, not {show(value)}')


_COUNT_SCHEMA = WithJsonSchema(
    {
        "if": {"type": "string"},
        "then": {"const": "auto"},
        "else": {"type": "integer", "minimum": 1, "maximum": MOST_COUNT},
    }
)


def _amount(value: Any) -> float:
    """The part of a device that a trial takes: a fraction of one, or whole ones."""
    if number(value) < 0 or (value > 1 and value != int(value)):
        raise refuse(f"must be a whole number or a fraction between 0 and 1, not {show(value)}")
    if 0 < value < LEAST_SHARE:
        raise refuse(f"must be at least {LEAST_SHARE:.4f}, not {show(value)}")
    return float(value)


def _cores(value: Any) -> float:
    if _amount(value) == 0:
        raise refuse("must be above 0")
    return float(value)


def memory(value: Any) -> int:
    """Bytes from `"4GiB"`, `"500 MB"` or a number of bytes; K, M, G and T are powers of 1024."""
    if isinstance(value, str):
        pattern = r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:i?B)?"
        match = re.fullmatch(pattern, value, re.IGNORECASE | re.ASCII)
        if match is None:
            raise refuse(f'must be an amount of memory such as "4GiB" or "500MiB", not {show(value)}')
        value = float(match[1]) * _UNITS[match[2].upper()]
    if number(value) < 1:
        raise refuse("must be above 0")
    if value < _UNITS["M"]:
        meant = f'; did you mean "{int(value)}{"GiB" if value < 128 else "MiB"}"?' if value < 1024 else ""
        raise refuse(f"must be at least 1MiB, not {int(value):,} bytes{meant}")
    return int(number(int(value)))  # the space is stored as JSON, whose integers have 64 bits here


_WHOLE_ABOVE_ONE: dict[str, Any] = {
    "type": "number",
    "if": {"type": "number", "exclusiveMinimum": 1},
    "then": {"type": "integer"},
}
_CORES_SCHEMA = _WHOLE_ABOVE_ONE | {"minimum": LEAST_SHARE}
_AMOUNT_SCHEMA = _WHOLE_ABOVE_ONE | {
    "minimum": 0,
    "not": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": LEAST_SHARE},
}
_MEMORY_SCHEMA = {
    "type": ["string", "number"],
    "pattern": r"^(?=.*[1-9])([0-9]{7,}(\.[0-9]+)?\s*|[0-9]{4,}(\.[0-9]+)?\s*[Kk]"
    r"|[0-9]+(\.[0-9]+)?\s*[MGTmgt])([Ii]?[Bb])?$",
    "minimum": _UNITS["M"],
}


STRATEGIES = ("ddp", "fsdp", "deepspeed")
Strategy = Literal["ddp", "fsdp", "deepspeed"]
ZERO_STAGE = 2  # of deepspeed, by default


def _strategy(value: Any) -> str:
    if value in STRATEGIES:
        return str(value)
    message = f'must be "ddp", "fsdp" or "deepspeed", not {show(value)}'
    if isinstance(value, str) and value.lower() == "horovod":
        message += "; start it from a script of your own with horovodrun: objective: {command: [...]}"
    raise refuse(message)


class Confirm(Model):
    """The best few trials of a search train again with new seeds, which decides the winner."""

    top: Annotated[int, Field(ge=0, le=1000)] | None = None
    """How many of the best; 0: none. By default 3, 2 or none, as a third of the search or its time allows."""
    seeds: Annotated[int, Field(ge=2, le=1000)] | None = None
    """Trainings of each, with the same seeds for all. By default 3 or 2."""


class Execution(Model):
    """How trials run on this machine, or on a cluster."""

    workers: Annotated[
        int | Literal["auto"], PlainValidator(partial(_count, of="processes")), _COUNT_SCHEMA
    ] = "auto"
    """Trials at the same time, each in a process; auto fits the machine."""
    pack: Annotated[int | Literal["auto"], PlainValidator(partial(_count, of="trials")), _COUNT_SCHEMA] = 1
    """Trials of the objective lora that a process trains together; auto measures what is fastest."""
    processes_per_trial: Annotated[int, Field(ge=1, le=1024)] = 1
    """Processes that train a trial together, started as by torchrun; each gets a part of the cores."""
    strategy: (
        Annotated[Strategy, PlainValidator(_strategy), WithJsonSchema({"enum": list(STRATEGIES)})] | None
    ) = None
    """How the processes divide a trial of lora, pretrain or hf_lora: ddp, fsdp, or deepspeed with ZeRO."""
    zero_stage: Annotated[int, Field(ge=1, le=3)] | None = None
    """What deepspeed divides: 1, the optimizer's state; 2, the default, gradients too; 3, weights too."""
    fresh_process: bool = False
    """Whether each trial runs in a process of its own, for functions that leave global state behind."""
    cpus_per_trial: Annotated[float, PlainValidator(_cores), WithJsonSchema(_CORES_SCHEMA)] | None = None
    """CPU cores of a trial, such as 0.5 or 4; by default the workers share all cores evenly."""
    gpus_per_trial: Annotated[float, PlainValidator(_amount), WithJsonSchema(_AMOUNT_SCHEMA)] | None = None
    """GPUs of a trial; 0.25 lets four trials share one, 0 trains on the CPU."""
    max_memory: Annotated[int, PlainValidator(memory), WithJsonSchema(_MEMORY_SCHEMA)] | None = None
    """Memory of a trial, packed or not, and the programs it starts: 4GiB; a trial that takes more ends."""
    retries: NotNegative = 1
    """How often a failed trial is retried from its checkpoint."""
    trial_timeout: Seconds | None = None
    """Wall time after which a trial fails."""
    keep: NotNegative = 3
    """Trials whose checkpoints stay on disk, best first; trials to be confirmed keep theirs too."""

    price_per_hour: Annotated[float, Field(gt=0, le=MOST_PRICE)] | None = None
    """What an hour of a GPU costs, or of the machine where trials have none; reports tell what was spent."""

    @model_validator(mode="after")
    def _check(self) -> Execution:
        ranks = self.processes_per_trial
        if ranks == 1 and self.strategy is not None:
            raise refuse("divides a trial among several processes: set processes_per_trial", "strategy")
        if self.zero_stage is not None and self.strategy != "deepspeed":
            raise refuse("is an option of deepspeed: set strategy: deepspeed", "zero_stage")
        if ranks > 1 and self.pack != 1:
            raise refuse(f"must be 1 beside processes_per_trial: {ranks}; such trials are not packed", "pack")
        if self.fresh_process and self.pack != 1:
            raise refuse("must be 1 beside fresh_process: true; trials of a pack share a process", "pack")
        if ranks > 1 and self.gpus_per_trial is not None and self.gpus_per_trial % ranks:
            raise refuse(
                f"must be a multiple of processes_per_trial ({ranks}), or 0 to train on the CPU, "
                f"not {self.gpus_per_trial:g}: each process has a GPU of its own",
                "gpus_per_trial",
            )
        return self

    @property
    def sharing(self) -> dict[str, Any]:
        """How the processes of a trial divide it, as far as the space says."""
        if self.strategy != "deepspeed":
            return {} if self.strategy is None else {"strategy": self.strategy}
        return {"strategy": self.strategy, "zero_stage": self.zero_stage or ZERO_STAGE}


class Command(Model):
    """A program that trains one trial."""

    command: Annotated[list[Text], Field(min_length=1)]
    """The program and its arguments; ${args} becomes --name=value for every parameter.

    ${config:FILE} becomes the path of a copy of that file with the values of all parameters in it; ${seed},
    ${checkpoint}, ${resume_from} and ${run} become the trial's own.
    """


Objective = Annotated[
    Annotated[Text, Tag("text")] | Annotated[Command, Tag("command")],
    Discriminator(lambda value: "command" if isinstance(value, dict | Command) else "text"),
]
