"""What a study and its trials have to say, as plain data; `cli.screens` draws it for people."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from optuna.trial import FrozenTrial, TrialState

from ...spaces import Choice, Derived, Parameter, Range, Spec, describe
from ...storage.files import driver_running, trial_folder
from ...storage.states import EVENTS, confirms, seconds_of, state_of, trained_to
from ...storage.studies import ELAPSED, PAUSED, trial_of
from ..engine.budget import spent_on
from ..engine.confirmation import at_target, searched, unusable
from ..engine.confirmation_size import Wish
from ..engine.lifecycle import OWN_ATTRS
from ..formatting import option
from ..operations.run import StudyResult
from ..sampling.tried import Untried, tried
from ..scheduling import brackets_of
from ..scheduling.standings import bracket_of, rung_results, stopping_in_words
from ..trials.advice import advice_after
from ..trials.configuration import config_of
from .audit import Audited
from .confirmation import Confirmed
from .importance import Importance, importances_of
from .ranges import Edge, edges_of

ENDED_EARLY = (TrialState.PRUNED, TrialState.FAIL)
Amount = TypeVar("Amount", int, float)


@dataclass(frozen=True)
class TrialRow:
    """A trial in a list."""

    number: int
    state: str
    value: float | None
    baseline: bool
    confirms: int | None  # the trial whose configuration it trains again
    last_step: int | None  # that it reported
    trained: int | None  # the step that it had come to by then: reports may come late
    seconds: float | None  # that it trained, in all its attempts
    started: str | None
    ended: str | None
    why: str | None  # it ended early, in few words
    reason: str | None  # the same as a whole sentence
    params: dict[str, Any]  # searched, constant and derived by name; empty while it only waits
    metrics: dict[str, float]


@dataclass(frozen=True)
class Rung:
    """How a trial stands at a rung it has reached."""

    step: int
    value: float
    rank: int  # among all that have reached the rung by now, from 1
    reached: int


@dataclass(frozen=True)
class TrialReport:
    """A trial by itself."""

    study: str
    metric: str
    resource: str
    row: TrialRow
    kinds: dict[str, str]  # of each parameter: "searched", "constant" or the expression it is derived by
    curve: list[tuple[int, float]]
    bracket: int | None
    bracket_rungs: list[int]  # the steps at which trials of its bracket are compared
    rungs: list[Rung]  # those it has reached
    events: list[str]  # when it paused and went on
    retries: int
    error: str | None
    traceback: str | None
    advice: list[str]  # the guides', after this trial, what helps most first
    folder: Path
    files: list[str]


@dataclass(frozen=True)
class ParameterReport:
    """A parameter, and what the search says about it."""

    name: str
    values: str  # in words
    edge: Edge | None  # where its best values press against an end
    importance: Importance | None  # the share of the difference between good and bad trials


@dataclass(frozen=True)
class Spent:
    """A budget and how much of it is used."""

    used: float
    total: float | None  # None where there is no such budget


@dataclass(frozen=True)
class Ending:
    """Trials that ended early, and alike."""

    why: str
    state: str
    trials: list[int]
    example: str  # the whole reason of the last one


@dataclass(frozen=True)
class StudyReport:
    """A study as a whole."""

    name: str
    objective: str
    metric: str
    goal: str
    sampler: str
    early_stopping: str
    resource: str
    backend: str
    searching: int | None  # the process that searches now
    paused: bool  # it waits to be resumed
    parameters: list[ParameterReport]
    constraints: list[str]
    states: dict[str, int]
    confirming: int  # of these, trainings that confirm the best
    trials: Spent
    seconds: Spent
    consumed: Spent  # in the study's resource
    exhausted: bool  # every configuration of the space has been tried
    extension: list[str]  # the options with which it goes on, where it is over
    without_stopping: int | None  # what its ended trials would have consumed
    best: TrialRow | None
    baseline: TrialRow | None
    comparison: str | None  # of the best with the baseline, in words
    confirmation: list[str]  # what training the best again told
    audit: list[str]  # what early stopping loses
    importance: str | None  # how far to trust the importances, in words
    endings: list[Ending]


def study_report(result: StudyResult) -> StudyReport:
    """All there is to say about a study."""
    spec, trials = result.spec, result.study.get_trials(deepcopy=False)
    best, baseline = result.best_trial, result.baseline
    ended = sum(t.state.is_finished() for t in searched(trials))
    last = spec.early_stopping.max
    importances, trust = importances_of(result)
    edges = {edge.name: edge for edge in edges_of(result).found}
    budget, elapsed = spec.budget, _elapsed(result)
    return StudyReport(
        name=result.name,
        objective=spec.objective if isinstance(spec.objective, str) else " ".join(spec.objective.command),
        metric=spec.metric,
        goal=spec.goal,
        sampler=f"{spec.search.sampler}, seed {spec.search.seed}",
        early_stopping=stopping_in_words(spec),
        resource=spec.resource,
        backend=result.provenance.get("backend", "optuna"),
        searching=driver_running(result.storage, result.runs, result.folder_name),
        paused=bool(result.study.user_attrs.get(PAUSED)),
        parameters=[
            ParameterReport(name, describe(parameter), edges.get(name), importances.get(name))
            for name, parameter in spec.parameters.items()
        ],
        constraints=spec.constraints,
        states=dict(Counter(map(state_of, trials))),
        confirming=len(trials) - len(searched(trials)),
        trials=Spent(ended, budget.trials),
        seconds=Spent(elapsed, budget.time),
        consumed=Spent(_consumed(result), budget.samples),
        exhausted=Untried(spec).exhausted(tried(searched(trials))),
        extension=extension(result) if _is_over(spec, trials, elapsed) else [],
        without_stopping=None if last is None else last * sum(t.state.is_finished() for t in trials),
        best=None if best is None else trial_row(spec, best),
        baseline=None if baseline is None else trial_row(spec, baseline),
        comparison=None if best is None else against(baseline, best, spec.goal, result.confirmed),
        confirmation=confirmation(result),
        audit=audit_of(result),
        importance=trust,
        endings=endings(spec, trials),
    )


def confirmation(result: StudyResult) -> list[str]:
    """What training the best again told, in lines."""
    best, confirmed, trials = result.best_trial, result.confirmed, result.study.get_trials(deepcopy=False)
    out = [
        f"trial {number} {_became(trial)} when it was trained again"
        for number, trial in unusable(trials).items()
    ]
    failed: dict[int, list[str]] = {}  # errors of the trainings that were to confirm a trial
    for trial in trials:
        if (number := confirms(trial)) is not None and trial.state == TrialState.FAIL:
            failed.setdefault(number, []).append(trial.user_attrs.get("error", "by another program"))
    if best is None or confirmed is None:
        told = [_failures([error for errors in failed.values() for error in errors])] if failed else []
        return [f"not confirmed, {line}" for line in told + out]
    out += [f"trial {n} is not among those compared: {_failures(errors)}" for n, errors in failed.items()]
    value, off = confirmed.value, confirmed.optimism
    was = f"{abs(off):.3g} too {'good' if off > 0 else 'bad'}" if off else "no better and no worse"
    lines = [
        f"trained again with {confirmed.seeds} new seeds: expect {value.value:.6g} "
        f"({value.low:.6g} to {value.high:.6g}); its value in the search, {best.value:.6g}, "
        f"was {was}"
    ]
    if confirmed.seedless:
        lines.append(
            "no seed changed a value: a training has no chance in it, or takes no seed from trial.seed "
            "(a script: HPSEARCH_SEED)"
        )
    if confirmed.ties:
        others = ", ".join(map(str, confirmed.ties))
        lines.append(f"a tie with trial{'s' if len(confirmed.ties) > 1 else ''} {others}")
    later = result.overlooked
    if later is not None:
        lines.append(f"trial {later.number} has {later.value:.6g}, which was not confirmed")
    return lines + out


def _failures(errors: Sequence[str]) -> str:
    return f"{len(errors)} training{'s' * (len(errors) > 1)} failed: {errors[-1]}"


def _became(unusable: FrozenTrial) -> str:
    return "ran out of memory" if unusable.constraints.get("out_of_memory") else "diverged"


def audit_of(result: StudyResult) -> list[str]:
    """What the audit of a study told, in lines; where its space asks for one, also that it drew nobody."""
    if result.audited is not None:
        return audit(result.audited)
    if not result.spec.audit:
        return []
    goes_on = any(not trial.state.is_finished() for trial in result.study.get_trials(deepcopy=False))
    return ["it drew none of the trials that were to stop" + " so far" * goes_on]


def audit(found: Audited) -> list[str]:
    """What the trials told that were to stop and went on, in lines."""
    stopped = "1 trial that was to stop" if found.ended == 1 else f"{found.ended} trials that were to stop"
    lost = found.lost
    if lost is None:
        told = f"{stopped} went on, beside {found.let_through} let through: too few to say what is lost"
    else:
        told = (
            f"of {stopped}, {lost.count} ended as good as the best one in {found.one_in} of the "
            f"{found.let_through} let through: {lost.count / lost.of:.0%} lost, "
            f"{lost.low:.1%} to {lost.high:.1%}"
        )
    if found.ended and found.let_through:
        told += f"; {found.better_than_all or 'none'} better than the best of those"
    known = [rung for rung in found.rungs if rung.correlation is not None]
    at = ", ".join(f"{rung.correlation:.2f} at {rung.step:,} ({rung.trials} trials)" for rung in known)
    ranks = f"rank correlation of rungs with the end: {at}" if at else None
    return [told, ranks or "rank correlation of rungs with the end: too few trials"]


def against(
    baseline: FrozenTrial | None, best: FrozenTrial, goal: str, confirmed: Confirmed | None = None
) -> str:
    """How the best trial compares with the baseline."""
    assert best.value is not None
    if confirmed is not None and confirmed.gain is not None:
        gained = confirmed.gain
        interval = f"({gained.low:.4g} to {gained.high:.4g})"
        if gained.low <= 0:
            return f"no better than the baseline: by {gained.value:.4g} {interval}"
        return f"better than the baseline by {gained.value:.4g} {interval}"
    luck = ", and the best trial is not confirmed" if confirmed is None else ""
    if baseline is None:
        return f"the space has no baseline to compare with{luck}"
    state = baseline.state.name.lower()
    if baseline.value is None or baseline.state != TrialState.COMPLETE:
        return f"the baseline (trial {baseline.number}) is {state}, so nothing compares{luck}"
    if baseline.number == best.number:
        if confirmed is None:
            return "the baseline itself, which is not confirmed: nothing else that came to its end was better"
        return "the baseline itself: nothing was better when it was trained again"
    gain = baseline.value - best.value if goal == "minimize" else best.value - baseline.value
    than = f"than the baseline ({baseline.value:.6g})"
    told = f"better {than} by {gain:.4g}" if gain > 0 else f"no better {than}"
    if confirmed is None:
        return f"{told}, by values that are not confirmed"
    return f"{told}, by what the search saw: the baseline was not confirmed"


def endings(spec: Spec, trials: Sequence[FrozenTrial]) -> list[Ending]:
    """The trials that ended early, by why they did: failures first, then the most frequent."""
    groups: dict[tuple[str, str], list[FrozenTrial]] = {}
    for trial in trials:
        if trial.state in ENDED_EARLY:
            groups.setdefault((trial.state.name.lower(), why_ended(spec, trial)), []).append(trial)
    found = [
        Ending(why, state, [t.number for t in alike], alike[-1].user_attrs.get("reason", ""))
        for (state, why), alike in groups.items()
    ]
    return sorted(found, key=lambda ending: (ending.state != "fail", -len(ending.trials)))


def why_ended(spec: Spec, trial: FrozenTrial) -> str:
    """Why a trial ended early, in the few words it shares with those that ended alike."""
    reason = str(trial.user_attrs.get("reason", "no reason recorded"))
    if trial.state == TrialState.FAIL:
        error_class = re.match(r"([A-Za-z_][\w.]*):", reason)
        return error_class[1] if error_class else reason
    cause = reason.partition(":")[0]
    return cause if brackets_of(spec) else re.sub(r"^(pruned by \w+) at .*", r"\1", cause)


def trial_row(spec: Spec, trial: FrozenTrial) -> TrialRow:
    """A trial as a line of a list."""
    attrs = trial.user_attrs
    return TrialRow(
        number=trial.number,
        state=state_of(trial),
        value=trial.value,
        baseline="baseline" in attrs,
        confirms=confirms(trial),
        last_step=trial.last_step,
        trained=None if trial.last_step is None else trained_to(trial),
        seconds=seconds_of(trial),
        started=_moment(trial.datetime_start),
        ended=_moment(trial.datetime_complete),
        why=why_ended(spec, trial) if trial.state in ENDED_EARLY else None,
        reason=attrs.get("reason"),
        params=_params(spec, trial),
        metrics={
            name: value
            for name, value in attrs.items()
            if name not in OWN_ATTRS and name not in spec.parameters and isinstance(value, int | float)
        },
    )


def trial_rows(result: StudyResult, *, state: str | None = None, best_first: bool = False) -> list[TrialRow]:
    """The trials of a study, all or those in one state, by number or the best complete one first.

    Trainings that confirm are no finds of the search: by value they come after its own complete trials.
    """
    sign = 1 if result.spec.goal == "minimize" else -1
    rows = [trial_row(result.spec, trial) for trial in result.study.get_trials(deepcopy=False)]
    rows = [row for row in rows if state in (None, row.state)]
    if best_first:  # a pruned trial's value is of another step and does not compare
        rows.sort(
            key=lambda row: (
                *(row.state != "complete", row.confirms is not None, row.value is None),
                sign * (row.value or 0.0),
            )
        )
    return rows


def trial_report(result: StudyResult, number: int) -> TrialReport:
    """All there is to say about one trial. Raises `StorageError` where there is none of that number."""
    spec, trial = result.spec, trial_of(result.study, number)
    brackets = brackets_of(spec)
    bracket = bracket_of(result.study, spec, trial) if brackets else None
    folder = trial_folder(result.runs, result.folder_name, number)
    return TrialReport(
        study=result.name,
        metric=spec.metric,
        resource=spec.resource,
        row=trial_row(spec, trial),
        kinds={name: _kind(parameter) for name, parameter in spec.parameters.items()},
        curve=sorted(trial.intermediate_values.items()),
        bracket=bracket,
        bracket_rungs=[] if bracket is None else list(brackets[bracket].rungs),
        rungs=[
            Rung(rung.step, rung.value, rung.rank, rung.reached)
            for rung in rung_results(result.study, spec, trial)
        ],
        events=trial.user_attrs.get(EVENTS, []),
        retries=trial.user_attrs.get("retries", 0),
        error=trial.user_attrs.get("error"),
        traceback=trial.user_attrs.get("traceback"),
        advice=advice_after(spec, trial, folder, result.best_trial),
        folder=folder,
        files=sorted(path.name for path in folder.iterdir()) if folder.is_dir() else [],
    )


def extension(result: StudyResult) -> list[str]:
    """The options with which a search that is over goes on: a further target, or twice of each budget."""
    budget, trials = result.spec.budget, result.study.get_trials(deepcopy=False)
    if at_target(result.spec, trials) is not None:
        return ["--target", "VALUE"]
    found = []
    if budget.trials is not None:
        found += ["--trials", str(_doubled(budget.trials, len(searched(trials))))]
    found += more_time(result)
    if budget.samples is not None:
        found += ["--samples", str(_doubled(budget.samples, _consumed(result)))]
    return found


def more_time(result: StudyResult) -> list[str]:
    """The option that gives a search twice its time; none where that has no limit."""
    time = result.spec.budget.time
    return [] if time is None else ["--time", option(_doubled(time, _elapsed(result)))]


def more_samples(result: StudyResult) -> list[str]:
    """The option that gives a search the samples to confirm its winner; none where it has them."""
    spec, asked = result.spec, Wish.asked(result.spec)
    samples, last = spec.budget.samples, spec.early_stopping.max
    if samples is None or last is None or not asked.top:
        return []
    needed = max(asked.needs(spec), _consumed(result) + asked.trainings(spec) * last)
    return ["--samples", str(needed)] if needed > samples else []


def _consumed(result: StudyResult) -> int:
    """The resource that all trials took."""
    return sum(spent_on(result.spec, trial) for trial in result.study.get_trials(deepcopy=False))


def _elapsed(result: StudyResult) -> float:
    """Seconds searched so far."""
    return float(result.study.user_attrs.get(ELAPSED, 0.0))


def _doubled(budget: Amount, spent: float) -> Amount:
    """Twice a budget, or as often twice as it takes where more is spent already."""
    while (budget := 2 * budget) <= spent:
        pass
    return budget


def _is_over(spec: Spec, trials: Sequence[FrozenTrial], elapsed: float) -> bool:
    """Whether a search would end at once. By time or samples it ends before the last of them is used."""
    budget = spec.budget
    if budget.time is not None and elapsed >= budget.time:
        return True
    if not trials or not all(trial.state.is_finished() for trial in trials):
        return False
    if budget.time is not None or budget.samples is not None or at_target(spec, trials) is not None:
        return True
    return budget.trials is not None and len(searched(trials)) >= budget.trials


def _params(spec: Spec, trial: FrozenTrial) -> dict[str, Any]:
    try:
        return config_of(spec, trial)
    except KeyError:  # it waits and has no parameters yet
        return {}


def _kind(parameter: Parameter) -> str:
    if isinstance(parameter, Derived):
        return f"= {parameter.expr}"
    return "searched" if isinstance(parameter, Range | Choice) else "constant"


def _moment(moment: datetime | None) -> str | None:
    """A moment with its time zone; Optuna's are local and naive."""
    return None if moment is None else moment.astimezone().isoformat(timespec="seconds")
