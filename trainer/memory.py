"""The most memory that this process has held, in megabytes (10**6 bytes)."""

from __future__ import annotations

import sys

import torch


def host_peak() -> float:
    """This process's largest resident set so far, including earlier runs of the same worker."""
    if sys.platform == "win32":
        import psutil

        return psutil.Process().memory_info().peak_wset / 1e6
    if sys.platform == "linux":  # where the value of `getrusage` starts at the size of the parent process
        with open("/proc/self/status", encoding="ascii") as status:
            peak = next(line for line in status if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024 / 1e6
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts bytes on macOS, else kibibytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def reset_peak_memory(device: torch.device) -> None:
    """Start to measure this process's peak on the device anew, for all runs in the process."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> dict[str, float]:
    """`host_memory_mb`, and on CUDA `device_memory_mb`: the peak of torch's tensors there.

    The latter counts all tensors of this process since `reset_peak_memory` was last called.
    """
    peaks = {"host_memory_mb": host_peak()}
    if device.type == "cuda":
        peaks["device_memory_mb"] = torch.cuda.max_memory_allocated(device) / 1e6
    return peaks
