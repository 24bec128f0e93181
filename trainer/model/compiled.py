"""Blocks compiled by torch: they compute the same as `Block`, up to rounding, with fewer kernels.

| choice | reason |
|---|---|
| a block is compiled, not the model | all blocks share the code, also with those of the next run |
| for fixed shapes | the kernels are faster, and a run has one shape; a process keeps them all |
| its dropout is drawn before | a generator cannot be compiled; drawn in this order the bits are the same |
| a block is compiled as a whole, or there is an error | no silent training without the compiler |

When adapters train, two versions are compiled: the first block needs no gradient of its input. Validation is
not compiled, because its shape differs. Torch's compiler is loaded with the first block.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..errors import CompileError
from .gpt import Block, Dropout
from .lora import LoraLinear

MAX_SHAPES = 10_000  # that a process keeps; with torch's default of 8 the next would be an error


class _Stopwatch:
    """Counts the seconds that this process has spent compiling."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def start(self, event: object = None) -> None:
        self._began = time.perf_counter()

    def stop(self, event: object = None) -> None:
        self.seconds += time.perf_counter() - self._began


_compiling = _Stopwatch()


def clock() -> float:
    """`time.perf_counter` in seconds, not counting the time that this process has spent compiling."""
    return time.perf_counter() - _compiling.seconds


def compiled_block(block: nn.Module, x: Tensor, time: int) -> Tensor:
    """Compute `block(x, time)` in training, compiled. Use it within `compile_errors`."""
    drawing = [layer for layer in block.modules() if isinstance(layer, Dropout | LoraLinear)]
    for layer in drawing:
        layer.draw(x)
    try:
        return _compiled_forward()(block, x, time)
    finally:
        for layer in drawing:
            layer.drawn = None


@functools.cache
def _compiled_forward() -> Callable[..., Tensor]:
    """`Block.forward`, compiled again for every new shape."""
    _compiling.start()
    import torch._dynamo
    from torch._dynamo.callback import on_compile_end, on_compile_start

    torch._dynamo.config.recompile_limit = MAX_SHAPES
    torch._dynamo.config.accumulated_recompile_limit = MAX_SHAPES
    forward: Callable[..., Tensor] = torch.compile(Block.forward, fullgraph=True, dynamic=False)
    _compiling.stop()
    on_compile_start(_compiling.start)  # also for backward passes, which are compiled when first needed
    on_compile_end(_compiling.stop)
    return forward


@contextmanager
def compile_errors() -> Iterator[None]:
    """Raise `CompileError` if torch's compiler fails; errors of memory or disk are raised as they are."""
    try:
        yield
    except RuntimeError as error:
        from torch._dynamo.exc import TorchDynamoException
        from torch._inductor.exc import CppCompileError, InvalidCxxCompiler

        if not isinstance(error, TorchDynamoException | CppCompileError | InvalidCxxCompiler):
            raise
        cause = getattr(error, "inner_exception", error)
        if isinstance(cause, OSError | MemoryError | torch.OutOfMemoryError):
            raise cause from error
        raise CompileError(f"torch_compile: {_explanation(cause)}, or set torch_compile to false") from error


def _explanation(error: Exception) -> str:
    from torch._inductor import config
    from torch._inductor.exc import CppCompileError, InvalidCxxCompiler

    if isinstance(error, InvalidCxxCompiler):
        return (
            f"torch needs a C++ compiler, but {config.cpp.cxx[1]!r} does not run; install one "
            "(Debian: apt-get install g++), set the environment variable CXX to yours"
        )
    if isinstance(error, CppCompileError):
        lines = error.output.strip().splitlines()
        first = next((line for line in lines if "error" in line), lines[0] if lines else "no message")
        return f"the C++ compiler {error.cmd[0]!r} failed: {first.strip()}; fix that"
    first = str(error).strip().splitlines()[0]
    return f"torch could not compile the model here ({type(error).__name__}: {first}); fix that"
