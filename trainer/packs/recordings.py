"""CUDA graphs of repeated work: one call replays hundreds of kernels.

A GPU runs the kernels of a small model faster than Python launches them, so a tick of a pack takes as long as
the launches do. A recording (a CUDA graph) launches them all at once, and computes the same bits.

| rule | reason |
|---|---|
| a recording for each kind of tick | the work depends on which runs begin or complete a step |
| the first tick of a kind is not recorded | libraries initialize in it, and buffers are allocated |
| inputs that vary are in tensors that stay | a recording knows addresses, not values |
| new recordings when the runs of a pack change | the addresses change |
| one stream and one memory pool for all | only one plays at a time, and none needs another's memory |
| no recording when memory is short | a recording keeps the memory that it computes in |
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

MAX_KINDS = 16  # kinds that are recorded: runs with many different numbers of passes would have too many


class Unrecorded:
    """Calls a function as it is. `Recordings` has the same interface."""

    recording = False  # whether the function is being recorded; nothing is computed then

    def compute(self, kind: Hashable, function: Callable[[], None]) -> None:
        """Call `function`, or replay its recording for this kind of call."""
        function()


class Recordings(Unrecorded):
    """The recordings of one function that works on a device. `generators` are those that it draws from."""

    def __init__(self, device: torch.device, generators: Sequence[torch.Generator] = ()) -> None:
        self._stream = _stream(device)
        self._generators = generators
        self._made: dict[Hashable, torch.cuda.CUDAGraph | None] = {}  # None: a kind that was computed once
        self._most = MAX_KINDS

    def compute(self, kind: Hashable, function: Callable[[], None]) -> None:
        if kind not in self._made:
            self._as_it_is(function)
            if len(self._made) < self._most:
                self._made[kind] = None
            return
        recording = self._made[kind]
        if recording is None:
            try:
                recording = self._made[kind] = self._record(function)
            except torch.OutOfMemoryError:
                del self._made[kind]
                self._most = len(self._made)
                return self._as_it_is(function)
        recording.replay()

    def _record(self, function: Callable[[], None]) -> torch.cuda.CUDAGraph:
        self.recording = True
        try:
            return self._recorded(function)
        finally:
            self.recording = False

    def _as_it_is(self, function: Callable[[], None]) -> None:
        usual = torch.cuda.current_stream()
        self._stream.wait_stream(usual)
        try:
            with torch.cuda.stream(self._stream):
                function()
        finally:
            usual.wait_stream(self._stream)

    def _recorded(self, function: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Record the function, without computing anything."""
        recording = torch.cuda.CUDAGraph()
        for generator in self._generators:
            recording.register_generator_state(generator)
        with torch.cuda.graph(recording, pool=_pool(), stream=self._stream):
            function()
        _sharing.add(self)
        return recording


@functools.cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """The stream that recordings use, and nothing else.

    A recording may not wait for another stream, but autograd makes each leaf wait for the stream of its first
    use. So calls that are not recorded use this stream too.
    """
    with torch.cuda.device(device):
        return torch.cuda.Stream()  # type: ignore[no-untyped-call]


_sharing: weakref.WeakSet[Recordings] = weakref.WeakSet()  # those with recordings in the last pool
_pools: list[Any] = []


def _pool() -> Any:
    """The memory pool that all recordings share; a new one if no recordings are left in it.

    Torch does not reuse a pool without recordings as long as there is a tensor in it.
    """
    if not _sharing:
        _pools[:] = [torch.cuda.graph_pool_handle()]
    return _pools[-1]
