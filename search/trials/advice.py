"""What the guides advise after a trial: from the study's words to theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from ...objectives.guides import EndedRun, RunEnd, advice, against_worsening
from ...spaces import Spec
from ...storage.files import METRICS
from .configuration import config_of, has_config
from .export import searched_of
from .reports import Report, read_reports

MAX_SENTENCES = 2  # sentences; `hpsearch show --trial` has them all
ENDING_OF_REASON: Mapping[str, RunEnd] = {"diverged": "diverged", "out of memory": "out_of_memory"}


def advice_for(
    spec: Spec, params: Mapping[str, Any], reports: Sequence[Report], ended: RunEnd, best: FrozenTrial | None
) -> list[str]:
    """The advice after a trial of these parameters and reports; `best` is the study's best, maybe itself."""
    return advice(spec.objective_words, _seen(spec, params, reports, ended, best))


def _seen(
    spec: Spec, params: Mapping[str, Any], reports: Sequence[Report], ended: RunEnd, best: FrozenTrial | None
) -> EndedRun:
    return EndedRun(
        params,
        ended,
        reports,
        metric=spec.metric,
        unit=spec.resource,
        maximize=spec.goal == "maximize",
        searched=searched_of(spec),
        best=(best.number, config_of(spec, best)) if best is not None and has_config(spec, best) else None,
    )


def with_advice(
    reason: str, spec: Spec, params: Mapping[str, Any], folder: Path, ended: RunEnd, best: FrozenTrial | None
) -> str:
    """The reason why a trial ended, and what would help most."""
    found = advice_for(spec, params, read_reports(folder / METRICS), ended, best)
    return "; ".join([reason, *found[:MAX_SENTENCES]])


def when_worse(spec: Spec, params: Mapping[str, Any], folder: Path, best: FrozenTrial | None) -> str | None:
    """What a complete trial calls for that ended worse than it had been; None for another."""
    seen = _seen(spec, params, read_reports(folder / METRICS), "complete", best)
    return "; ".join(against_worsening(spec.objective_words, seen)[:MAX_SENTENCES]) or None


def advice_after(spec: Spec, trial: FrozenTrial, folder: Path, best: FrozenTrial | None) -> list[str]:
    """The advice for a trial of a study that diverged, ran out of memory or is complete; none for others.

    Where its file of reports is gone, the study has the values and no other metrics.
    """
    ended = ENDING_OF_REASON.get(str(trial.user_attrs.get("reason", "")).partition(":")[0])
    if trial.state == TrialState.COMPLETE:
        ended = "complete"
    elif trial.state != TrialState.PRUNED:
        ended = None
    if ended is None or not has_config(spec, trial):
        return []
    values = sorted(trial.intermediate_values.items())
    reports = read_reports(folder / METRICS) or [Report(step, value, {}) for step, value in values]
    return advice_for(spec, config_of(spec, trial), reports, ended, best)
