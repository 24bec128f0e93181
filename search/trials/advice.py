"""The guides' advice after a trial, from what the study holds of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from ...objectives.guides import EndedRun, RunEnd, advice, against_worsening
from ...spaces import Spec
from ...storage.files import METRICS
from .configuration import known_config
from .export import searched_of
from .reports import Report, read_reports
from .stops import stop_of

MAX_SENTENCES = 2  # sentences; `hpsearch show --trial` has them all


def advice_for(
    spec: Spec,
    params: Mapping[str, Any],
    reports: Sequence[Report],
    ended: RunEnd,
    best: FrozenTrial | None,
    advise: Callable[[str | list[str], EndedRun], list[str]] = advice,
) -> list[str]:
    """The advice after a trial with these parameters and reports; `best`: the best of its study."""
    config = None if best is None else known_config(spec, best)
    seen = EndedRun(
        params,
        ended,
        reports,
        metric=spec.metric,
        unit=spec.resource,
        maximize=spec.goal == "maximize",
        searched=searched_of(spec),
        best=None if best is None or config is None else (best.number, config),
    )
    return advise(spec.objective_words, seen)


def with_advice(
    reason: str, spec: Spec, params: Mapping[str, Any], folder: Path, ended: RunEnd, best: FrozenTrial | None
) -> str:
    """The reason why a trial ended, followed by the advice that helps most."""
    sentences = advice_for(spec, params, read_reports(folder / METRICS), ended, best)
    return "; ".join([reason, *sentences[:MAX_SENTENCES]])


def when_worse(spec: Spec, params: Mapping[str, Any], folder: Path, best: FrozenTrial | None) -> str | None:
    """Advice for a complete trial whose last value was worse than its best one; else None."""
    reports = read_reports(folder / METRICS)
    sentences = advice_for(spec, params, reports, "complete", best, against_worsening)
    return "; ".join(sentences[:MAX_SENTENCES]) or None


def advice_after(spec: Spec, trial: FrozenTrial, folder: Path, best: FrozenTrial | None) -> list[str]:
    """The advice for a trial that diverged, ran out of memory or completed; empty for any other.

    If its file of reports is gone, the study still has the values, but no other metrics.
    """
    stop = stop_of(trial)
    ended: RunEnd | None = None if stop is None else stop.untrainable
    if trial.state == TrialState.COMPLETE:
        ended = "complete"
    config = None if ended is None else known_config(spec, trial)
    if ended is None or config is None:
        return []
    values = sorted(trial.intermediate_values.items())
    reports = read_reports(folder / METRICS) or [Report(step, value, {}) for step, value in values]
    return advice_for(spec, config, reports, ended, best)
