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
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

MOST = 16  # kinds that are recorded: runs whose steps take many different numbers of passes have too many


class Recordings:
    """Of one function that asks a device for something. `generators` are those that it draws from."""

    def __init__(self, device: torch.device, generators: Sequence[torch.Generator] = ()) -> None:
        self._stream, self._pool = _stream_and_pool(device)
        self._generators = generators
        self._made: dict[Hashable, torch.cuda.CUDAGraph | None] = {}  # None: of a kind that was met once

    def compute(self, kind: Hashable, function: Callable[[], None]) -> None:
        """Call `function`, or play what it asked the device for when it was called for this kind before."""
        if kind not in self._made:
            usual = torch.cuda.current_stream()
            self._stream.wait_stream(usual)
            with torch.cuda.stream(self._stream):
                function()
            usual.wait_stream(self._stream)
            if len(self._made) < MOST:
                self._made[kind] = None
            return
        recording = self._made[kind]
        if recording is None:
            recording = self._made[kind] = self._recorded(function)
        recording.replay()

    def _recorded(self, function: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Nothing is computed meanwhile."""
        recording = torch.cuda.CUDAGraph()
        for generator in self._generators:
            recording.register_generator_state(generator)
        with torch.cuda.graph(recording, pool=self._pool, stream=self._stream):
            function()
        return recording


@functools.cache
def _stream_and_pool(device: torch.device) -> tuple[torch.cuda.Stream, Any]:
    """Where nothing else is asked for.

    What is recorded may not wait for another stream, and autograd lets each leaf wait for the one that it was
    first used on: so what is computed as it is goes there too.
    """
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        return stream, torch.cuda.graph_pool_handle()
