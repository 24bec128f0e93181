"""A search whose training is looked up: workers and a clock, but no processes."""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass

from contestants import Job, Search, Task

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # of processes that search


@dataclass
class Simulated:
    """The results of a simulated search."""

    trials: int
    finished: int
    best: list[float]  # after each epoch


def simulate(search: Search, task: Task, workers: int, budget: int) -> Simulated:
    """Run a search with simulated workers until `budget` epochs are spent."""
    told = Simulated(0, 0, [])
    clock: list[tuple[int, int, Job]] = []  # the end of an epoch, a tie breaker, the job
    turns = itertools.count()
    now, idle = 0, workers
    lowest = best = math.inf
    while len(told.best) < budget:
        while idle and (job := search.next()) is not None:
            heapq.heappush(clock, (now + 1, next(turns), job))
            told.trials += job.done == 0
            idle -= 1
        now, _, job = heapq.heappop(clock)
        job.done += 1
        value = task.value(job.config, job.done)
        if value < lowest:
            lowest, best = value, task.expected(job.config, job.done)
        told.best.append(best)
        told.finished += job.done == task.epochs
        if search.goes_on(job, value):
            heapq.heappush(clock, (now + 1, next(turns), job))
        else:
            idle += 1
    search.close(budget)
    return told
