"""What the trainer raises where the user can put things right; each message says what to change."""


class TrainerError(Exception):
    """The base of the trainer's own errors: shown without a traceback."""


class ConfigError(TrainerError, ValueError):
    """A configuration that cannot be trained. `problems` holds one sentence for each thing that is wrong."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[list[str]]]:
        return type(self), (self.problems,)  # a worker process sends it to the driver


class CompileError(TrainerError):
    """A run that asks for `torch_compile` where torch cannot compile."""


class DataError(TrainerError):
    """A text that cannot be read, is not UTF-8 or is too short to train on."""


class CheckpointError(TrainerError):
    """A checkpoint or base model that cannot be read, or that belongs to another configuration."""
