"""Blocks as torch's compiler writes them: they compute what `Block` does, up to rounding, with fewer kernels.

| what | why |
|---|---|
| a block is compiled, not the model | all blocks are one code, and so are those of the next run |
| for one shape | kernels are made for its numbers, and a run trains in one; a process remembers all |
| its dropout is drawn before | a generator cannot be compiled; drawn in this order the bits are the same |
| a whole block, or an error | nobody is to wait for a compiler and train without it |

Where adapters train, blocks are compiled twice: nobody wants the gradient of the first one's input.
Validation is not compiled, for its shape is another. Torch's compiler is loaded with the first block.
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

MOST_SHAPES = 10_000  # that a process remembers; after torch's own 8 the next would be an error


class _Stopwatch:
    """The seconds that this process has spent compiling."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def start(self, told: object = None) -> None:
        self._began = time.perf_counter()

    def stop(self, told: object = None) -> None:
        self.seconds += time.perf_counter() - self._began


_spent = _Stopwatch()


def clock() -> float:
    """The seconds of `time.perf_counter`, without those that this process has spent compiling."""
    return time.perf_counter() - _spent.seconds


def compiled_block(block: nn.Module, x: Tensor, time: int) -> Tensor:
    """`block(x, time)` while it trains, compiled. Use it within `explained`."""
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
    """`Block.forward`, which is compiled whenever it is called with a shape that it has not seen."""
    _spent.start()
    import torch._dynamo
    from torch._dynamo.callback import on_compile_end, on_compile_start

    torch._dynamo.config.recompile_limit = MOST_SHAPES
    torch._dynamo.config.accumulated_recompile_limit = MOST_SHAPES
    found: Callable[..., Tensor] = torch.compile(Block.forward, fullgraph=True, dynamic=False)
    _spent.stop()
    on_compile_start(_spent.start)  # of backward passes too, which are compiled when they are first needed
    on_compile_end(_spent.stop)
    return found


@contextmanager
def explained() -> Iterator[None]:
    """Raise `CompileError` where torch's compiler fails; what it ran out of is raised as it is."""
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
        raise CompileError(f"torch_compile: {_told(cause)}, or set torch_compile to false") from error


def _told(error: Exception) -> str:
    from torch._inductor import config
    from torch._inductor.exc import CppCompileError, InvalidCxxCompiler

    if isinstance(error, InvalidCxxCompiler):
        return (
            f"found no C++ compiler ({config.cpp.cxx[1]!r} does not run), which torch compiles with; install "
            "one (Debian: apt-get install g++), name yours in the environment's CXX"
        )
    if isinstance(error, CppCompileError):
        lines = error.output.strip().splitlines()
        first = next((line for line in lines if "error" in line), lines[0] if lines else "it said nothing")
        return f"the C++ compiler {error.cmd[0]!r} failed: {first.strip()}; put that right"
    first = str(error).strip().splitlines()[0]
    return f"torch could not compile the model here ({type(error).__name__}: {first}); put that right"
