"""The errors of the trainer that a user can fix; each message says what to change."""


class TrainerError(Exception):
    """The base class of the trainer's own errors, which are shown without a traceback."""


class ConfigError(TrainerError, ValueError):
    """A configuration that cannot be trained. `problems` holds one sentence for each problem."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[list[str]]]:
        return type(self), (self.problems,)  # a worker process sends it to the driver


class CompileError(TrainerError):
    """A run asks for `torch_compile`, but torch cannot compile here."""


class DataError(TrainerError):
    """A text that cannot be read, is not UTF-8 or is too short to train on."""


class CheckpointError(TrainerError):
    """A checkpoint or base model that cannot be read, or that belongs to another configuration."""
