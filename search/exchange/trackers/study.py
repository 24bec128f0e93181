"""A study's trials as runs, for a search that reports to trackers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from ....spaces import Spec
from ....storage.files import METRICS, file_name, trial_folder
from ....storage.studies import PROVENANCE, folder_in
from ....storage.trial_attrs import AUDITED, CONFIRMS, CONFIRMS_SEED, is_baseline, state_of
from ...engine.watcher import SearchView, Watcher
from ...trials.configuration import known_config
from ...trials.reports import Report, read_reports
from .base import TrackedRun
from .thread import TrackerThread

SHOWN_ATTRS = ("reason", "error", "retries", "baseline", CONFIRMS, CONFIRMS_SEED, AUDITED)  # of a trial


class StudyTracking:
    """A watcher that shows the trials to trackers, and passes everything on to another watcher.

    It looks after the study has been written. A tracker finds what was written before, so a resumed search
    starts by showing all trials.
    """

    def __init__(self, inner: Watcher, spec: Spec, attrs: Mapping[str, Any], runs: Path) -> None:
        """`attrs`: the study's user attributes."""
        self._inner = inner
        self._spec = spec
        self._runs = runs
        self._folder = folder_in(attrs, spec.name)
        self._seen: dict[int, FrozenTrial] = {}
        # Another study of the same name gets another group.
        started = datetime.fromisoformat(attrs[PROVENANCE]["started"])
        self._group = f"{file_name(self._folder)}-{started:%Y%m%d-%H%M%S}"

    def trial_ended(self, search: SearchView, trial: FrozenTrial) -> None:
        self._inner.trial_ended(search, trial)

    def tick(self, search: SearchView) -> None:
        self._show(search.trials)
        self._thread.report()
        self._inner.tick(search)

    def say(self, message: str) -> None:
        self._inner.say(message)

    def close(self, trials: Sequence[FrozenTrial]) -> None:
        """Show the trials at the end, and wait until all is written."""
        self._show(trials)
        self._thread.close()

    @cached_property
    def _thread(self) -> TrackerThread:
        """Created when there is something to show: a search that fails to start needs no thread."""
        return TrackerThread(self._spec.report_to, self._runs.parent, self._group, self._inner.say)

    def _show(self, trials: Sequence[FrozenTrial]) -> None:
        for trial in trials:
            if self._seen.get(trial.number) is trial:  # a trial that changes is another object
                continue
            self._seen[trial.number] = trial
            if trial.datetime_start is not None and trial.params:
                self._thread.show(str(trial.number), partial(self._run, trial))

    def _run(self, trial: FrozenTrial) -> TrackedRun:
        assert trial.datetime_start is not None
        file = trial_folder(self._runs, self._folder, trial.number) / METRICS
        metrics = {report.step: report.metrics for report in read_reports(file)}
        known = sorted(trial.intermediate_values.items())
        about = {name: trial.user_attrs[name] for name in SHOWN_ATTRS if name in trial.user_attrs}
        return TrackedRun(
            name=_name(trial),
            metric=self._spec.metric,
            parameters=known_config(self._spec, trial) or trial.params,
            reports=[Report(step, value, metrics.get(step, {})) for step, value in known],
            state=state_of(trial),
            value=trial.value if trial.state == TrialState.COMPLETE else None,
            about={"study": self._spec.name, "trial": trial.number, **about},
            began=trial.datetime_start,
            ended=trial.datetime_complete,
        )


def _name(trial: FrozenTrial) -> str:
    """`trial-0012`, with its role where it is a baseline or confirms another trial."""
    name = f"trial-{trial.number:04}"
    if is_baseline(trial):
        return f"{name}-baseline"
    confirmed = trial.user_attrs.get(CONFIRMS)
    return name if confirmed is None else f"{name}-confirms-{confirmed:04}"
