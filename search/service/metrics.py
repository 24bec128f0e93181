"""What Prometheus is told. Each part of the service adds its own metrics to `REGISTRY`.

A study's are told to whom may see it alone, and at most those of 100 studies.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from optuna.trial import TrialState
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ...storage.damage import readable
from ...storage.database import open_tables
from ...storage.figures import counts_in, report_counts
from ...storage.pages import study_head
from ...storage.rows import read_trials
from ...storage.studies import LEASES_LOST
from ...storage.wanted import PRIORITIES
from ...storage.workspace import Workspace
from ..backends.remote.leases import StoredLease
from ..operations.studies import list_studies
from ..queue.view import Queue
from .tokens import Caller

REGISTRY = CollectorRegistry()
MOST_STUDIES = 100  # as labels
HTTP_REQUESTS = Counter(
    "hpsearch_http_requests", "Requests by method and status.", ["method", "status"], registry=REGISTRY
)
HTTP_SECONDS = Histogram(
    "hpsearch_http_seconds",
    "How long answers took.",
    ["method"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30),
    registry=REGISTRY,
)
QUEUE_WAIT = Histogram(
    "hpsearch_queue_wait_seconds",
    "How long studies waited in the queue until they were started, as this server has seen it.",
    buckets=(1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600),
    registry=REGISTRY,
)
FORECAST_ERROR = Histogram(
    "hpsearch_forecast_error_ratio",
    "How far searches ended from the first end that was foreseen, by the seconds to that: 0.1 is 10 %.",
    buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
    registry=REGISTRY,
)


def count_request(method: str, status: int, seconds: float) -> None:
    """Count an answer; one without a status was broken off."""
    HTTP_REQUESTS.labels(method, str(status or "none")).inc()
    HTTP_SECONDS.labels(method).observe(seconds)


def exposition(workspace: Workspace, caller: Caller, queue: Queue) -> bytes:
    """All metrics as Prometheus reads them, of the studies that a caller may see, and their queue."""
    told = CollectorRegistry()
    told.register(_Told(lambda: _of_studies(workspace, caller)))
    told.register(_Told(lambda: _of_queue(queue)))
    told.register(_Told(lambda: _of_leases(workspace, queue)))
    told.register(_Told(lambda: _so_far(workspace, caller)))
    told.register(_Told(lambda: _seen(REGISTRY.collect(), caller)))
    return generate_latest(told)


@dataclass(frozen=True)
class _Told(Collector):
    """Metrics that are made when they are asked for."""

    make: Callable[[], Iterable[Metric]]

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        return self.make()


def _seen(metrics: Iterable[Metric], caller: Caller) -> Iterator[Metric]:
    """The metrics without samples of studies that the caller may not see."""
    for metric in metrics:
        kept = Metric(metric.name, metric.documentation, metric.type, metric.unit)
        kept.samples = [
            sample
            for sample in metric.samples
            if "study" not in sample.labels or caller.may_see(sample.labels["study"])
        ]
        yield kept


def _of_studies(workspace: Workspace, caller: Caller) -> Iterator[Metric]:
    """The metrics of studies, from what the database says of them."""
    seen = [each for each in list_studies(workspace=workspace).studies if caller.may_see(each.name)]
    trials = CounterMetricFamily("hpsearch_trials", "Trials by state.", labels=["study", "state"])
    best = GaugeMetricFamily("hpsearch_best", "The value of the best trial.", labels=["study"])
    for study in seen[-MOST_STUDIES:]:
        for state, count in sorted(study.states.items()):
            trials.add_metric([study.name, state], count)
        if study.best is not None:
            best.add_metric([study.name], study.best)
    yield from (trials, best)


def _of_queue(queue: Queue) -> Iterator[Metric]:
    """What waits, what runs, what of the machine is in use, and what making room has cost."""
    states = Counts[str](each.state.state for each in queue.studies)
    counted = GaugeMetricFamily("hpsearch_studies", "Studies in the queue, by state.", labels=["state"])
    for state, count in sorted(states.items()):
        counted.add_metric([state], count)
    waiting = Counts(each.priority or "normal" for each in queue.studies if each.place is not None)
    length = GaugeMetricFamily("hpsearch_queue_length", "Studies that wait.", labels=["priority"])
    for priority in PRIORITIES:
        length.add_metric([priority], waiting[priority])
    machine, has = queue.machine, queue.machine.has.values()
    slots = GaugeMetricFamily(
        "hpsearch_slots", "Parts of the machine; memory in bytes.", labels=["kind", "used"]
    )
    for kind, total, used in (
        ("cores", len(machine.cores), sum(len(each.cpus) for each in has)),
        ("gpus", len(machine.gpus), sum(len(each.gpus) for each in has)),
        ("memory", machine.memory, sum(each.memory for each in has)),
    ):
        slots.add_metric([kind, "yes"], used)
        slots.add_metric([kind, "no"], max(0, total - used))
    times = CounterMetricFamily("hpsearch_preemptions", "Times that a study made room.", labels=["study"])
    lost = CounterMetricFamily("hpsearch_preemption_lost_seconds", "What that has cost.", labels=["study"])
    for study in queue.studies[-MOST_STUDIES:]:
        if study.preemptions:
            times.add_metric([study.study], study.preemptions)
            lost.add_metric([study.study], study.lost_seconds)
    yield from (counted, length, slots, times, lost)


def _so_far(workspace: Workspace, caller: Caller) -> Iterator[Metric]:
    """Reports of trials, and leases whose workers fell silent."""
    reports = CounterMetricFamily("hpsearch_reports", "Reports of trials.", labels=["study"])
    told = "Leases whose workers were silent for too long."
    lost = CounterMetricFamily("hpsearch_leases_lost", told, labels=["study"])
    with readable(), open_tables(workspace.url).engine.connect() as connection:
        found = (reports, report_counts(connection)), (lost, counts_in(connection, LEASES_LOST))
    for metric, counts in found:
        for study in [name for name in counts if caller.may_see(name)][-MOST_STUDIES:]:
            metric.add_metric([study], counts[study])
        yield metric


def _of_leases(workspace: Workspace, queue: Queue) -> Iterator[Metric]:
    """The trials that remote workers have now."""
    leases = GaugeMetricFamily("hpsearch_leases", "Trials that remote workers have.", labels=["study"])
    for study in [each for each in queue.studies if each.driver is not None][:MOST_STUDIES]:
        head = study_head(workspace, study.study)
        with head.engine.connect() as connection:
            running = read_trials(connection, head.key, [TrialState.RUNNING])
        found = [lease for lease in map(StoredLease.of, running) if lease is not None]
        if found:
            leases.add_metric([study.study], sum(lease.end is None for lease in found))
    yield leases
