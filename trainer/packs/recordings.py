"""What is computed again and again, recorded on CUDA and played: hundreds of kernels by one call.

A GPU has done the kernels of a small model sooner than Python has asked for them, so a tick of a pack takes
as long as the asking does. A recording (a CUDA graph) asks for all at once, and computes the same bits.

| rule | why |
|---|---|
| a recording for each kind of tick | what is computed depends on which runs begin or complete a step |
| the first of a kind is computed as it is | libraries set themselves up in it, and buffers are made |
| what differs from time to time is in tensors that stay | a recording knows addresses, and no values |
| made anew when the runs of a pack change | so do the addresses |
| one stream and one pool of memory for all | only one plays at a time, and none needs what another left |
| where memory is short, what is computed is not recorded | a recording keeps what it computed in |
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

MOST = 16  # kinds that are recorded: runs whose steps take many different numbers of passes have too many


class Recordings:
    """Of one function that asks a device for something. `generators` are those that it draws from."""

    def __init__(self, device: torch.device, generators: Sequence[torch.Generator] = ()) -> None:
        self._stream = _stream(device)
        self._generators = generators
        self._made: dict[Hashable, torch.cuda.CUDAGraph | None] = {}  # None: of a kind that was met once
        self._most = MOST
        self.recording = False  # whether the function is called to be recorded: then nothing is computed

    def compute(self, kind: Hashable, function: Callable[[], None]) -> None:
        """Call `function`, or play what it asked the device for when it was called for this kind before."""
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
        """Nothing is computed meanwhile."""
        recording = torch.cuda.CUDAGraph()
        for generator in self._generators:
            recording.register_generator_state(generator)
        with torch.cuda.graph(recording, pool=_pool(), stream=self._stream):
            function()
        _sharing.add(self)
        return recording


@functools.cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """Where nothing else is asked for.

    What is recorded may not wait for another stream, and autograd lets each leaf wait for the one that it was
    first used on: so what is computed as it is goes there too.
    """
    with torch.cuda.device(device):
        return torch.cuda.Stream()  # type: ignore[no-untyped-call]


_sharing: weakref.WeakSet[Recordings] = weakref.WeakSet()  # whose recordings are in the last pool
_pools: list[Any] = []


def _pool() -> Any:
    """The pool of memory that all share who have recorded, and a new one where they are all gone.

    Torch does not take a pool again whose recordings are gone, as long as a tensor is left in it.
    """
    if not _sharing:
        _pools[:] = [torch.cuda.graph_pool_handle()]
    return _pools[-1]
