"""Trains one configuration in several processes, outside a search: a worker is rank 0."""

from __future__ import annotations

import os
from typing import Any

from ...objectives.base import TrialStopped
from ...objectives.info import ObjectiveInfo
from ...objectives.resolve import describe
from ...spaces.settings import Execution
from ..backends.resources import this_machine, threads_on
from ..backends.worker.process import TrialLimits, Worker, environment
from ..trials.document import Document
from ..trials.reports import Report
from ..trials.trial import LocalTrial


class RanksFailedError(Exception):
    """The processes of a run ended without a value; `failure` is what a study would store."""

    def __init__(self, failure: dict[str, str]) -> None:
        super().__init__(failure["message"])
        self.failure = failure


def described(document: Document) -> dict[str, Any]:
    """The objective as plain JSON: see `resolve.describe`."""
    if ObjectiveInfo(document.objective).kind not in ("optuna", "ray"):
        return describe(document.objective, folder=document.folder, report=document.report)
    told = ((name, document.provenance.get(name)) for name in ("study", "goal", "last"))
    return describe(
        document.objective, folder=document.folder, search={name: each for name, each in told if each}
    )


def value_of_ranks(document: Document, trial: LocalTrial) -> float:
    """The value of a run that several processes train; the trial gets its reports.

    Raises `TrialStopped` where a report ends the run, and `RanksFailedError`.
    """
    threads = document.provenance.get("threads")
    if not isinstance(threads, int):
        threads = threads_on(this_machine().cpus / document.processes)
    setup = {
        "objective": described(document),
        "metric": document.metric,
        "processes": document.processes,
        "sharing": document.sharing,
        "pack": 1,
    }
    worker = Worker(setup, TrialLimits.of(Execution()), environment(threads), os.getcwd())
    worker.give(
        {
            "number": trial.number,
            "params": trial.params,
            "seed": trial.seed,
            "folder": str(trial.checkpoint.parent),
            "reported": trial.resumed_at or 0,
        }
    )
    try:
        while worker.numbers:
            for message in worker.news():
                if message["kind"] == "done":
                    return float(message["value"])
                if message["kind"] != "report":
                    raise RanksFailedError({"traceback": "", **message["failure"]})
                if trial.deliver(Report(message["step"], message["value"], message["metrics"])):
                    worker.stop(message)
                else:
                    worker.let_continue(message)
    finally:
        worker.end()
    raise TrialStopped
