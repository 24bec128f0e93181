"""The share of the machine that each trial has: it fits, it is the most that fits, and what does not fit is said."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpsearch.search.backends.local import devices_of
from hpsearch.search.backends.resources import (
    LEAST_CORES,
    WORKER_MEMORY,
    Node,
    WorkerShare,
    memory_for,
    share,
    this_machine,
    visible_gpus,
)
from hpsearch.search.errors import UsageError
from hpsearch.spaces.settings import Execution

GIB = 1 << 30
FIELDS = ("workers", "pack", "cpus_per_trial", "gpus_per_trial", "max_memory")


def node(cpus: float, gpus: float = 0, gibs: float = 64) -> Node:
    return Node(cpus, gpus, int(gibs * GIB))


def fits(nodes: list[Node], count: int, cpus: float, gpus: float, memory: int | None) -> bool:
    """Whether so many trials can be placed: one by one, in Ray's units, a share of a GPU on one device."""

    def units(amount: float) -> int:
        return round(amount * 10_000)

    for here in nodes:
        free, left = units(here.cpus), here.memory
        devices = [10_000] * int(here.gpus)
        while count and free >= units(cpus) and left >= (memory or 0):
            if gpus >= 1:
                if len(devices) < gpus:
                    break
                del devices[: int(gpus)]
            elif gpus:
                device = next((i for i, rest in enumerate(devices) if rest >= units(gpus)), None)
                if device is None:
                    break
                devices[device] -= units(gpus)
            free, left, count = free - units(cpus), left - (memory or 0), count - 1
    return count == 0


AUTO: Any = "auto"
ONE, FOUR = [node(2)], [node(16, gpus=4)]


SHARES: list[tuple[list[Node], dict[str, Any], int, float, float]] = [
    (ONE, {}, 2, 1, 0),
    (ONE, {"workers": 1}, 1, 2, 0),
    (ONE, {"workers": 2}, 2, 1, 0),
    (ONE, {"workers": 4}, 4, 0.5, 0),
    (ONE, {"workers": 3}, 3, 0.6666, 0),
    (ONE, {"cpus_per_trial": 2.0}, 1, 2, 0),
    (ONE, {"cpus_per_trial": 0.25}, 8, 0.25, 0),
    (ONE, {"cpus_per_trial": 0.1}, 20, 0.1, 0),
    (ONE, {"workers": 1, "cpus_per_trial": 1.0}, 1, 1, 0),
    ([node(7)], {"workers": 2}, 2, 3, 0),
    ([node(0.5)], {}, 1, 0.5, 0),
    (FOUR, {}, 4, 4, 1),
    (FOUR, {"workers": 1}, 1, 16, 1),
    (FOUR, {"workers": 8}, 8, 2, 0.5),
    (FOUR, {"workers": 5}, 5, 3, 0.5),
    ([node(8, gpus=1)], {"workers": 6}, 6, 1, 0.1666),
    (FOUR, {"gpus_per_trial": 0.25}, 16, 1, 0.25),
    (FOUR, {"gpus_per_trial": 0.4}, 8, 2, 0.4),  # never across devices
    (FOUR, {"gpus_per_trial": 0.6}, 4, 4, 0.6),
    (FOUR, {"gpus_per_trial": 2.0}, 2, 8, 2),
    (FOUR, {"gpus_per_trial": 3.0}, 1, 16, 3),
    (FOUR, {"gpus_per_trial": 0.0}, 16, 1, 0),
    (FOUR, {"gpus_per_trial": 1.0, "cpus_per_trial": 8.0}, 2, 8, 1),
    ([node(4, gpus=8)], {}, 8, 0.5, 1),
    ([node(64), node(4, gpus=4)], {}, 4, 1, 1),  # the cores beside no GPU are no use
    ([node(64), node(4, gpus=4)], {"workers": 2}, 2, 2, 1),
    ([node(2), node(8), node(3)], {}, 13, 1, 0),
    ([node(2), node(8), node(3)], {"workers": 3}, 3, 3, 0),
    ([node(2), node(8), node(3)], {"cpus_per_trial": 3.0}, 3, 3, 0),
    ([node(8, gpus=1), node(8, gpus=3)], {"gpus_per_trial": 2.0}, 1, 8, 2),
    ([node(0), node(4)], {}, 4, 1, 0),  # a head node that runs nothing
    ([node(8, gibs=3)], {}, 3, 2, 0),
    ([node(8, gibs=0.5)], {}, 1, 8, 0),
    ([node(8, gibs=9)], {"max_memory": 4 * GIB}, 2, 4, 0),
    ([node(8, gibs=3), node(8, gibs=9)], {"max_memory": 4 * GIB}, 2, 4, 0),
    ([node(16, gibs=9, gpus=4)], {"max_memory": 4 * GIB}, 2, 8, 1),
    ([node(8)], {"pack": 4}, 8, 1, 0),
    ([node(8, gibs=17)], {"max_memory": 4 * GIB, "pack": 2}, 2, 4, 0),
    ([node(8, gibs=17)], {"max_memory": 4 * GIB, "pack": 4}, 1, 8, 0),
    ([node(8, gibs=17)], {"max_memory": 4 * GIB, "pack": "auto"}, 4, 2, 0),  # counted as one until it is measured
    ([node(8, gibs=17), node(2, gibs=9)], {"max_memory": 4 * GIB, "pack": 2}, 3, 2, 0),
    ([node(8)], {"processes_per_trial": 2}, 4, 2, 0),  # a core for each process
    ([node(1)], {"processes_per_trial": 2}, 1, 1, 0),
    ([node(8, gibs=5)], {"processes_per_trial": 2}, 2, 4, 0),
    ([node(8, gpus=4)], {"processes_per_trial": 2}, 2, 4, 2),  # and a GPU
    ([node(8, gpus=4)], {"processes_per_trial": 2, "workers": 1}, 1, 8, 2),
]  # fmt: skip


def test_what_is_not_said_is_shared_evenly(subtests: pytest.Subtests) -> None:
    for nodes, asked, workers, cpus, gpus in SHARES:
        with subtests.test(f"{asked} on {nodes}"):
            found = share(Execution(**asked), nodes, "this machine")
            pack = asked.get("pack", 1)
            memory = asked["max_memory"] * (1 if pack == "auto" else pack) if "max_memory" in asked else None
            assert found == WorkerShare(workers, cpus, gpus, memory, asked.get("processes_per_trial", 1))


@pytest.mark.parametrize(
    ("nodes", "asked", "message"),
    [
        (ONE, {"cpus_per_trial": 3.0},
         "execution.cpus_per_trial: a trial asks for 3 CPUs; the place has 2 CPUs"),
        (ONE, {"gpus_per_trial": 1.0},
         "execution.gpus_per_trial: a trial asks for 1 GPU; the place has 0 GPUs"),
        (ONE, {"gpus_per_trial": 0.25},
         "execution.gpus_per_trial: a trial asks for 0.25 GPUs; the place has 0 GPUs"),
        (FOUR, {"gpus_per_trial": 5.0},
         "execution.gpus_per_trial: a trial asks for 5 GPUs; the place has 4 GPUs"),
        (ONE, {"max_memory": 65 * GIB}, "execution.max_memory: a trial asks for 65 GiB; the place has 64 GiB"),
        (ONE, {"workers": 3, "cpus_per_trial": 1.0},
         "execution.workers: 3 trials at a time, each with 1 CPU, do not fit; the place has 2 CPUs, 64 GiB, enough for 2"),
        (FOUR, {"workers": 3, "gpus_per_trial": 2.0},
         "execution.workers: 3 trials at a time, each with 2 GPUs, do not fit; the place has 16 CPUs, 4 GPUs, 64 GiB, enough for 2"),
        (FOUR, {"workers": 9, "gpus_per_trial": 0.4, "cpus_per_trial": 1.0},
         "execution.workers: 9 trials at a time, each with 1 CPU and 0.4 GPUs, do not fit; the place has 16 CPUs, 4 GPUs, 64 GiB, enough for 8"),
        (ONE, {"workers": 3, "max_memory": 30 * GIB},
         "execution.workers: 3 trials at a time, each with 30 GiB, do not fit; the place has 2 CPUs, 64 GiB, enough for 2"),
        (ONE, {"workers": 10**9},
         "execution.workers: 1000000000 trials at a time, each with 0.0001 CPUs, do not fit; the place has 2 CPUs, 64 GiB, enough for 20000"),
        ([node(2), node(3)], {"cpus_per_trial": 4.0},
         "execution.cpus_per_trial: a trial asks for 4 CPUs; the place has 3 CPUs on its largest node"),
        ([node(8, gpus=1), node(8, gpus=1)], {"gpus_per_trial": 2.0},
         "execution.gpus_per_trial: a trial asks for 2 GPUs; the place has 1 GPU on its largest node"),
        ([node(8), node(1, gpus=1)], {"cpus_per_trial": 4.0, "gpus_per_trial": 1.0},
         "execution.cpus_per_trial: a trial asks for 4 CPUs and 1 GPU; the place has 9 CPUs, 1 GPU, 128 GiB, but no node has all that a trial asks for"),
        ([node(8, gibs=64), node(8, gibs=1, gpus=1)], {"workers": 1, "max_memory": 4 * GIB},
         "execution.max_memory: a trial asks for 1 GPU and 4 GiB; the place has 16 CPUs, 1 GPU, 65 GiB, but no node has all that a trial asks for"),
        (ONE, {"max_memory": 20 * GIB, "pack": 4},
         "execution.pack: 4 trials in a worker, each with a max_memory of 20 GiB, ask for 80 GiB; the place has 64 GiB"),
        (ONE, {"workers": 2, "max_memory": 20 * GIB, "pack": 2},
         "execution.workers: 2 workers of 2 trials, each with 40 GiB, do not fit; the place has 2 CPUs, 64 GiB, enough for 1"),
        ([node(8, gpus=1)], {"processes_per_trial": 2},
         "execution.processes_per_trial: a trial asks for 2 GPUs; the place has 8 CPUs, 1 GPU, 64 GiB, but no node has all that a trial asks for"),
        ([node(0)], {},
         "execution.workers: a trial asks for 0.0001 CPUs; the place has 0 CPUs, 64 GiB, but no node has all that a trial asks for"),
    ],
)  # fmt: skip
def test_a_request_that_does_not_fit_is_reported_with_what_there_is(
    nodes: list[Node], asked: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        share(Execution(**asked), nodes, "the place")
    assert str(caught.value) == message


NODES = st.lists(
    st.builds(
        node,
        cpus=st.sampled_from([0.0, 0.5, 1.0, 2.0, 2.5, 3.0, 7.0, 16.0]),
        gpus=st.sampled_from([0, 0, 1, 2, 3, 4]),
        gibs=st.sampled_from([0.25, 1, 3, 8, 17]),
    ),
    min_size=1,
    max_size=4,
)
HUNDREDTHS = st.integers(5, 100).map(lambda n: n / 100)
EXECUTIONS = st.builds(
    Execution,
    workers=st.just(AUTO) | st.integers(1, 40),
    cpus_per_trial=st.none() | HUNDREDTHS | st.integers(1, 8).map(float),
    gpus_per_trial=st.none() | st.just(0.0) | HUNDREDTHS | st.integers(1, 4).map(float),
    max_memory=st.none() | st.sampled_from([GIB // 4, GIB // 2, GIB, 3 * GIB, 4 * GIB]),
    pack=st.just(1) | st.integers(2, 6),
)


def shared(execution: Execution, nodes: list[Node]) -> WorkerShare | None:
    """The share; None where it is refused as it should be: in words, and with the field."""
    try:
        return share(execution, nodes, "the place")
    except UsageError as error:
        field = str(error).removeprefix("execution.").partition(":")[0]
        assert field in FIELDS and "the place has" in str(error)
        assert field == "workers" or getattr(execution, field) is not None
        return None


@given(EXECUTIONS, NODES)
def test_what_is_not_refused_fits(execution: Execution, nodes: list[Node]) -> None:
    found = shared(execution, nodes)
    if found is not None:
        assert fits(nodes, found.workers, found.cpus, found.gpus, found.memory)
        assert execution.workers in ("auto", found.workers)
        assert execution.cpus_per_trial in (None, found.cpus)
        assert execution.gpus_per_trial in (None, found.gpus)
        assert found.memory == memory_for(execution, int(execution.pack))
        assert found.threads >= 1 and found.threads <= max(1, found.cpus)
        assert round(found.gpus, 4) == found.gpus and round(found.cpus, 4) == found.cpus, "Ray's precision"


@given(EXECUTIONS, NODES)
def test_what_fits_is_not_refused(execution: Execution, nodes: list[Node]) -> None:
    if shared(execution, nodes) is None:
        count = 1 if execution.workers == "auto" else int(execution.workers)
        gpus = execution.gpus_per_trial
        if gpus is None and any(n.gpus for n in nodes):
            gpus = min(1.0, sum(n.gpus for n in nodes) / count)  # the most; a trial has some of a GPU
            fewest = next(k for k in range(1, 41) if 1 / k <= gpus)
            gpus = int(10_000 / fewest) / 10_000
        assert not fits(
            nodes,
            count,
            execution.cpus_per_trial or LEAST_CORES,
            gpus or 0.0,
            memory_for(execution, int(execution.pack)),
        )


@given(EXECUTIONS, NODES)
def test_auto_is_the_most_that_fit(execution: Execution, nodes: list[Node]) -> None:
    found = shared(execution.model_copy(update={"workers": "auto"}), nodes)
    if found is not None and found.workers > 1:
        least = execution.cpus_per_trial or (LEAST_CORES if found.gpus else 1.0)
        memory = found.memory or (None if found.gpus else WORKER_MEMORY)
        assert not fits(nodes, found.workers + 1, least, found.gpus, memory)


@given(EXECUTIONS, NODES)
def test_no_larger_share_of_the_cores_would_fit(execution: Execution, nodes: list[Node]) -> None:
    found = shared(execution.model_copy(update={"cpus_per_trial": None}), nodes)
    if found is not None:
        more = found.cpus + 1 if found.cpus >= 1 else round(found.cpus + LEAST_CORES, 4)
        assert not fits(nodes, found.workers, more, found.gpus, found.memory)


# Devices


@pytest.mark.parametrize(
    ("devices", "gpus", "seen"),
    [
        ([], 0.0, [None, None]),
        (["0", "1"], 0.0, ["", ""]),
        (["0", "1"], 1.0, ["0", "1"]),
        (["2", "5", "6", "7"], 2.0, ["2,5", "6,7"]),
        (["GPU-a", "GPU-b", "GPU-c"], 1.0, ["GPU-a", "GPU-b", "GPU-c"]),
        (["0", "1"], 0.5, ["0", "1", "0", "1"]),
        (["3"], 0.25, ["3", "3", "3", "3"]),
    ],
)
def test_each_worker_sees_its_devices(devices: list[str], gpus: float, seen: list[str | None]) -> None:
    found = [devices_of(slot, gpus, devices).get("CUDA_VISIBLE_DEVICES") for slot in range(len(seen))]
    assert found == seen


@given(EXECUTIONS, st.integers(0, 8))
def test_no_device_is_given_to_more_trials_than_it_has_room_for(execution: Execution, count: int) -> None:
    found = shared(execution, [node(16, gpus=count)])
    if found is None:
        return
    devices = [str(i + 3) for i in range(count)]
    taken: Counter[str] = Counter()
    for slot in range(found.workers):
        environment = devices_of(slot, found.gpus, devices)
        assert set(environment) == ({"CUDA_VISIBLE_DEVICES"} if devices else set())
        own = [device for device in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if device]
        assert len(set(own)) == len(own) == (found.gpus if found.gpus >= 1 else 1 if found.gpus else 0)
        taken.update(own)
    assert set(taken) <= set(devices)
    assert all(trials * min(1.0, found.gpus) <= 1 + 1e-9 for trials in taken.values())


@pytest.mark.parametrize(
    ("value", "devices"),
    [("", []), ("-1", []), ("0", ["0"]), ("2,0", ["2", "0"]), ("GPU-1f,MIG-2", ["GPU-1f", "MIG-2"])],
)
def test_the_environment_chooses_the_devices(
    monkeypatch: pytest.MonkeyPatch, value: str, devices: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert visible_gpus() == devices
    machine = this_machine()
    assert machine.gpus == len(devices) and machine.cpus >= 1 and machine.memory > 0
