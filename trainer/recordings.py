"""What a pack computes in a tick, recorded on CUDA and played again: hundreds of kernels by one call.

A GPU has done the kernels of a small model sooner than Python has asked for them, so a tick takes as long as
the asking does. A recording (a CUDA graph) asks for all at once, and computes the same bits.

| rule | why |
|---|---|
| a recording for each kind of tick | what is computed depends on which runs begin or complete a step |
| the first tick of a kind is computed as it is | libraries set themselves up in it, and buffers are made |
| what differs from tick to tick is in tensors that stay | a recording knows addresses, and no values |
| made anew when the runs of a pack change | so do the addresses |
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import torch

MOST = 16  # kinds that are recorded: runs whose steps take many different numbers of passes have too many


class Recordings:
    """Of the ticks of a pack, as long as its runs stay. `generators` are those that draw in a tick."""

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        self._generators = generators
        self._made: dict[Hashable, torch.cuda.CUDAGraph | None] = {}  # None: of a kind that was met once
        self._pool = torch.cuda.graph_pool_handle()  # one for all, for only one plays at a time
        # Where nothing else is asked for. What is recorded may not wait for another stream, and autograd lets
        # each leaf wait for the one that it was first used on: so ticks as they are go here too.
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

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
