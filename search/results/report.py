"""What a study and its trials have to say, as plain data; `cli.views` draws it for people."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ...objectives.info import ObjectiveInfo
from ...spaces import Choice, Derived, Parameter, Range, describe
from ...storage.locks import driver_running
from ...storage.studies import PAUSED, Phase, phase_of, trial_of
from ...storage.told import told_of
from ...storage.wanted import Wanted, wanted_of
from ..scheduling.rungs import brackets_of
from ..scheduling.standings import RungResult, bracket_of, rung_results, stopping_in_words
from ..trials.advice import advice_after
from ..trials.events import events_of
from ..trials.records import TrialRecord, usage_of
from ..trials.usage import Usage
from ..values import NextStep, Value, merged
from .cost import StudyCost, cost_of
from .importance import Importance, importances_of
from .next_steps import consumed_in, elapsed_in, exhausted, is_over, steps_of_search, steps_of_study
from .ranges import NarrowRange, narrow_ranges
from .sentences import against, audit_of, confirmation
from .study import StudyResult
from .trials import Ending, TrialRow, attributes_of, endings, trial_row


@dataclass(frozen=True)
class TrialReport(Value):
    """A trial by itself."""

    study: str
    metric: str
    resource: str
    row: TrialRow
    kinds: dict[str, str]  # of each parameter: "searched", "constant" or the expression it is derived by
    curve: list[tuple[int, float]]
    bracket: int | None
    bracket_rungs: list[int]  # the steps at which trials of its bracket are compared
    rungs: list[RungResult]  # those it has reached
    events: list[str]  # when it paused and resumed
    retries: int
    attributes: dict[str, Any]  # texts and other values that its objective has set
    error: str | None
    traceback: str | None
    advice: list[str]  # the guides', after this trial, what helps most first
    folder: Path
    files: list[str]
    used: Usage | None = None  # of machines, in all its attempts
    measured: list[str] = field(default_factory=list)  # whose energy that has: GPU, CPU package

    def to_json(self) -> dict[str, Any]:
        """The study and the trial's row first."""
        content: dict[str, Any] = super().to_json()
        row: dict[str, Any] = content.pop("row")
        return {"study": content.pop("study")} | row | content

    @classmethod
    def from_json(cls, data: Any) -> Self:
        return super().from_json(data | {"row": data})

    @classmethod
    def shape(cls) -> Any:
        return merged(cls.__name__, TrialRow, cls, without=("row",))


@dataclass(frozen=True)
class ParameterReport:
    """A parameter, and what the search says about it."""

    name: str
    values: str  # in words
    edge: NarrowRange | None  # where its best values press against an end
    importance: Importance | None  # the share of the difference between good and bad trials


@dataclass(frozen=True)
class Spent:
    """A budget and how much of it is used."""

    used: float
    total: float | None  # None where there is no such budget


@dataclass(frozen=True)
class MadeRoom(Value):
    """How often a study has made room for others of a service's queue, and what that has cost it."""

    times: int
    last_for: str | None  # the study
    lost_seconds: float  # to put trials back, and to start again; without the last time while it waits

    @classmethod
    def of(cls, wanted: Wanted | None) -> MadeRoom | None:
        """What is known of it; None where it has not."""
        if wanted is None or not wanted.times_preempted:
            return None
        last = wanted.made_room_for if wanted.preempted is None else wanted.preempted.by
        return cls(wanted.times_preempted, last, wanted.lost)


@dataclass(frozen=True)
class Untold:
    """Who was not notified yet, by its host, and of what: the kinds of notices, the oldest first."""

    target: str
    kinds: list[str]


@dataclass(frozen=True)
class StudyReport(Value):
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
    phase: Phase  # of its search, where it is or was last
    paused: bool  # it waits to be resumed
    made_room: MadeRoom | None  # for others, so far
    parameters: list[ParameterReport]
    constraints: list[str]
    states: dict[str, int]
    confirming: int  # of these, trainings that confirm the best
    trials: Spent
    seconds: Spent
    consumed: Spent  # in the study's resource
    exhausted: bool  # every configuration of the space has been tried
    without_stopping: int | None  # what its ended trials would have consumed, but for those that failed
    best: TrialRow | None
    baseline: TrialRow | None
    comparison: str | None  # of the best with the baseline, in words
    confirmation: list[str]  # what training the best again told
    audit: list[str]  # what early stopping loses
    importance: str | None  # how far to trust the importances, in words
    endings: list[Ending]
    next_steps: list[NextStep]
    untold: list[Untold] = field(default_factory=list)
    cost: StudyCost | None = None


def study_report(result: StudyResult) -> StudyReport:
    """All there is to say about a study."""
    spec, records = result.spec, result.records
    best, baseline = result.winner, records.baseline
    every, last = records.by_number.values(), spec.early_stopping.max
    importances, trust = importances_of(result)
    edges = {edge.name: edge for edge in narrow_ranges(result).found}
    budget, elapsed = spec.budget, elapsed_in(result)
    searching = driver_running(result.workspace, result.folder_name)
    paused = bool(result.study.user_attrs.get(PAUSED))
    ended_early = endings(every)
    complete = exhausted(result)
    over = searching is None and is_over(records, elapsed)
    if searching is not None:
        steps = steps_of_search(result.name, paused=paused)
    else:
        steps = steps_of_study(result, ended_early, over=over, complete=complete)
    return StudyReport(
        name=result.name,
        objective=ObjectiveInfo(spec.objective_words).name,
        metric=spec.metric,
        goal=spec.goal,
        sampler=f"{spec.search.sampler}, seed {spec.search.seed}",
        early_stopping=stopping_in_words(spec),
        resource=spec.resource,
        backend=result.provenance.get("backend", "optuna"),
        searching=searching,
        phase=Phase.OVER if over else phase_of(result.study.user_attrs),
        paused=paused,
        made_room=MadeRoom.of(wanted_of(result.study._study_id, result.study.user_attrs)),
        parameters=[
            ParameterReport(name, describe(parameter), edges.get(name), importances.get(name))
            for name, parameter in spec.parameters.items()
        ],
        constraints=spec.constraints,
        states=dict(Counter(trial.state for trial in every)),
        confirming=len(records.confirmations),
        trials=Spent(sum(trial.has_ended for trial in records.search), budget.trials),
        seconds=Spent(elapsed, budget.time),
        consumed=Spent(consumed_in(result), budget.samples),
        exhausted=complete,
        without_stopping=None
        if last is None
        else last * sum(trial.has_ended and trial.state != "fail" for trial in every),
        best=None if best is None else trial_row(best),
        baseline=None if baseline is None else trial_row(baseline),
        comparison=None if best is None else against(baseline, best, result.confirmed),
        confirmation=confirmation(result),
        audit=audit_of(result),
        importance=trust,
        endings=ended_early,
        next_steps=steps,
        untold=[
            Untold(label, [notice.body["type"] for notice in told.pending])
            for label, told in told_of(result.study._study_id, result.study.user_attrs).items()
            if told.pending
        ],
        cost=cost_of(records, best, result.confirmed, result.price_per_hour),
    )


def trial_report(result: StudyResult, number: int) -> TrialReport:
    """All there is to say about one trial. Raises `StorageError` where there is none of that number."""
    spec, trial = result.spec, trial_of(result.study, number)
    brackets = brackets_of(spec)
    bracket = bracket_of(result.study, spec, trial) if brackets else None
    folder, used = result.trial_folder(number), usage_of(trial)
    return TrialReport(
        study=result.name,
        metric=spec.metric,
        resource=spec.resource,
        row=trial_row(TrialRecord(spec, trial)),
        kinds={name: _kind(parameter) for name, parameter in spec.parameters.items()},
        curve=sorted(trial.intermediate_values.items()),
        bracket=bracket,
        bracket_rungs=[] if bracket is None else list(brackets[bracket].rungs),
        rungs=rung_results(result.study, spec, trial),
        events=events_of(trial, spec.resource),
        retries=trial.user_attrs.get("retries", 0),
        attributes=attributes_of(spec, trial),
        used=used,
        measured=[] if used is None else used.measured,
        error=trial.user_attrs.get("error"),
        traceback=trial.user_attrs.get("traceback"),
        advice=advice_after(spec, trial, folder, result.best_trial),
        folder=folder,
        files=sorted(path.name for path in folder.iterdir()) if folder.is_dir() else [],
    )


def _kind(parameter: Parameter) -> str:
    if isinstance(parameter, Derived):
        return f"= {parameter.expr}"
    return "searched" if isinstance(parameter, Range | Choice) else "constant"
