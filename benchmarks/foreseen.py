"""Whether studies in a queue begin and end when the queue says.

    python benchmarks/foreseen.py [--studies 10] [--scale 1.0]

`hpsearch serve` on two cores has a queue of mixed studies, whose drivers search in processes of their own: of
low, normal and high priority, on one core or on both, with a budget of time, of trials, or of both. The first
one is of low priority and runs alone when the others come; it makes room for them, and goes on at the end.

What the queue says of a study is read when it is submitted, when all are submitted, and when it begins: the
expected moments of its begin and end, and the earliest and latest. Each is compared with what then happens.
What was said of the first one before the others came, which nobody foresaw, is not. `--scale` multiplies the
budgets. A queue may say that it does not know.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from service import server_of_ours

from hpsearch.search.queue.observe import Observed, observe
from hpsearch.search.queue.view import Moment, QueuedStudy
from hpsearch.search.service.client import Server
from hpsearch.spaces import Spec
from hpsearch.storage.database import open_storage
from hpsearch.storage.wanted import Priority, Slots
from hpsearch.storage.workspace import Workspace

LOOK_SECONDS = 0.2
MOST_SECONDS = 1200.0
CORES = 2
OBJECTIVE = """
import json, time

def train(trial):
    file = trial.checkpoint / "state.json"
    step, loss = json.loads(file.read_text()) if trial.resume_from else (0, 1.0)
    for step in range(step + 1, 10):
        time.sleep(trial.params["seconds"])
        loss = 0.7 * loss + (trial.params["x"] - 0.3) ** 2 / step
        file.write_text(json.dumps([step, loss]))
        trial.report(loss, step=step)
    return loss
"""


@dataclass(frozen=True)
class Plan:
    """A study of the queue; its budget is of seconds, of trials, or of both."""

    name: str
    priority: Priority
    cores: int
    time: float | None = None
    trials: int | None = None

    def spec(self, folder: Path, scale: float) -> Spec:
        """Its space, whose budget is multiplied."""
        budget = {} if self.time is None else {"time": self.time * scale}
        budget |= {} if self.trials is None else {"trials": max(3, round(self.trials * scale))}
        content = {
            "version": 1,
            "name": self.name,
            "objective": "curve.py:train",
            "metric": "loss",
            "parameters": {"x": {"min": 0.0, "max": 1.0}, "seconds": 0.1},
            "search": {"sampler": "random", "seed": 7},
            "early_stopping": {"method": "asha", "min": 3, "max": 9, "eta": 3},
            "confirm": {"top": 0},
            "budget": budget,
            "execution": {"workers": 1},
        }
        return Spec.from_json(content).in_folder(folder)

    @property
    def words(self) -> str:
        parts = [f"{self.time:g} s"] if self.time is not None else []
        return " or ".join([*parts, *([f"{self.trials} trials"] if self.trials is not None else [])])


PLANS = (
    Plan("low", "low", 2, time=40),
    Plan("high", "high", 2, time=20),
    Plan("two cores", "normal", 2, time=25),
    Plan("left", "normal", 1, time=30),
    Plan("right", "normal", 1, time=20),
    Plan("either", "normal", 1, time=40, trials=20),
    Plan("long", "normal", 1, time=45),
    Plan("short", "normal", 1, time=15),
    Plan("last time", "normal", 2, time=20),
    Plan("trials", "normal", 2, trials=20),
)


@dataclass
class Said:
    """What the queue has said of a study, and what has happened. Moments are seconds since 1970."""

    begin: list[Moment] = field(default_factory=list)
    end: list[Moment] = field(default_factory=list)  # until it begins
    end_at_begin: Moment | None = None  # when it begins, or as soon as anything is known then
    began: float | None = None
    ended: float | None = None


class Watch:
    """A queue that is watched until all has ended."""

    def __init__(self, folder: Path, link: dict[str, Any]) -> None:
        self.folder = folder
        self.server = Server(link["url"], link["token"])
        self.workspace = Workspace.at(str(folder / "studies.db"))
        self.database = open_storage(self.workspace.url)
        self.said: dict[str, Said] = {}

    def submit(self, plan: Plan, scale: float) -> None:
        """Submit a study, and read what is said of it."""
        self.server.submit(
            space=plan.spec(self.folder, scale), priority=plan.priority, slots=Slots(plan.cores),
            cwd=self.folder,
        )  # fmt: skip
        self.said[plan.name] = Said()
        self.read(self.queued()[plan.name])

    def queued(self) -> dict[str, QueuedStudy]:
        return {study.study: study for study in self.server.queue().studies}

    def read(self, study: QueuedStudy) -> None:
        """Note what is said of a study that waits."""
        said = self.said[study.study]
        said.begin += [] if study.begins is None else [study.begins]
        said.end += [] if study.ends is None else [study.ends]

    def begin_first(self, plan: Plan, scale: float) -> None:
        """Let a study run, and make it report."""
        self.submit(plan, scale)
        self._until(lambda seen: seen[plan.name].progress.reached > 0)

    def all_are_submitted(self) -> None:
        """What was said before of what already ran, nobody could know."""
        queued = self.queued()
        for name, said in self.said.items():
            if said.began is not None:
                self.said[name] = said = Said()
            self.read(queued[name])

    def to_the_end(self) -> None:
        """Until all studies have ended."""
        self._until(lambda seen: all(said.ended is not None for said in self.said.values()))

    def _until(self, holds: Any) -> None:
        deadline = time.monotonic() + MOST_SECONDS
        while True:
            seen = {study.name: study for study in observe(self.workspace, self.database)}
            for name, said in self.said.items():
                self._note(seen[name], said)
            if holds(seen):
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"the queue does not end: {self.server.queue()}")
            time.sleep(LOOK_SECONDS)

    def _note(self, study: Observed, said: Said) -> None:
        wanted, runs = study.wanted, study.driver is not None
        leaves = wanted is not None and wanted.preempted is not None and wanted.preempted.started is None
        if runs and said.began is None and not leaves:
            assert study.driver is not None
            said.began = study.driver.since
        if runs and not leaves and said.end_at_begin is None:
            said.end_at_begin = self.queued()[study.name].ends
        if study.is_over and not runs and said.ended is None:
            said.ended = time.time()


def seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def holds(moment: Moment | None, actual: float | None) -> bool | None:
    """Whether something happened within what was said; None where nothing was said."""
    if moment is None or actual is None:
        return None
    return seconds(moment.earliest) - LOOK_SECONDS <= actual <= seconds(moment.latest) + LOOK_SECONDS


def show(plans: list[Plan], said: dict[str, Said], start: float) -> None:
    """The table, in seconds since the last study was submitted."""

    def words(moment: Moment | None) -> str:
        if moment is None:
            return "unknown"
        expected, low, high = (
            seconds(at) - start for at in (moment.expected, moment.earliest, moment.latest)
        )
        return f"{expected:.0f} ({low:.0f} to {high:.0f})"

    rows = [
        (
            "study",
            "priority",
            "cores",
            "budget",
            "begin said",
            "began",
            "end said",
            "end said at begin",
            "ended",
        )
    ]
    kept = {"begin": [0, 0], "end": [0, 0], "end at begin": [0, 0]}
    for plan in plans:
        found = said[plan.name]
        assert found.began is not None and found.ended is not None
        begin, end = (of[0] if of else None for of in (found.begin, found.end))
        checks = (
            ("begin", found.begin, found.began), ("end", found.end, found.ended),
            ("end at begin", [found.end_at_begin], found.ended),
        )  # fmt: skip
        for what, moments, actual in checks:
            for verdict in (holds(moment, actual) for moment in moments):
                if verdict is not None:
                    kept[what][0] += verdict
                    kept[what][1] += 1
        began, ended = found.began - start, found.ended - start
        about = plan.name, plan.priority, str(plan.cores), plan.words
        rows.append(
            (*about, words(begin), f"{began:.0f}", words(end), words(found.end_at_begin), f"{ended:.0f}")
        )
    for row in rows:
        print("| " + " | ".join(row) + " |")
        if row is rows[0]:
            print("|" + "---|" * len(row))
    for what, (right, all_) in kept.items():
        print(f"{what}: {right} of {all_} within what was said")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=len(PLANS), help=f"of {len(PLANS)}")
    parser.add_argument("--scale", type=float, default=1.0, help="of the budgets")
    options = parser.parse_args()
    plans = list(PLANS[: max(2, options.studies)])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    with tempfile.TemporaryDirectory(prefix="foreseen-", ignore_cleanup_errors=True) as where:
        folder = Path(where)
        (folder / "curve.py").write_text(OBJECTIVE)
        (folder / "home").mkdir()
        (folder / "home/serve.yaml").write_text("settle: 0\n")
        with server_of_ours(folder) as link:
            watch = Watch(folder, link)
            first, *others = plans
            watch.begin_first(first, options.scale)
            for plan in others:
                watch.submit(plan, options.scale)
            start = time.time()
            watch.all_are_submitted()
            watch.to_the_end()
            report = watch.server.show(study=first.name)
        show(plans, watch.said, start)
        assert report.made_room is not None
        print(f"{first.name}: {json.dumps(report.made_room.to_json())}")


if __name__ == "__main__":
    main()
