"""The rungs of a study as a ladder: which trials have reached which, who waits there, and who went on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from ...spaces import Spec
from ...storage.trial_attrs import RUNG_PREFIX
from ..scheduling.rungs import brackets_of, promotes
from ..scheduling.standings import bracket_of
from ..trials.records import TrialRecord
from ..values import Value
from .study import StudyResult


@dataclass(frozen=True)
class LadderTrial:
    """A trial on its way up."""

    trial: int
    state: str
    values: tuple[float, ...]  # of the metric at the rungs that it has reached, the first one first
    end: float | None  # its value at the end; None for one that is not complete
    audited: bool  # it would have been stopped, and runs on to see what that would have lost


@dataclass(frozen=True)
class LadderBracket:
    """The trials that are compared with each other."""

    number: int
    rungs: tuple[int, ...]  # steps, rising
    trials: tuple[LadderTrial, ...]


@dataclass(frozen=True)
class RungLadder(Value):
    """The brackets of a study; none where trials are not compared at rungs."""

    study: str
    metric: str
    goal: str
    resource: str
    last: int | None  # the step at which a trial is complete; None where objectives say it
    eta: int | None  # one in so many goes on
    promotion: bool  # whether a trial that stops at a rung waits there, and may go on later
    brackets: tuple[LadderBracket, ...]


def rung_ladder(study: str, spec: Spec, read: Callable[[], StudyResult]) -> RungLadder:
    """The ladder of a study, whose trials are read only where they are compared at rungs."""
    by_bracket = defaultdict(list)
    brackets = brackets_of(spec)
    if brackets:
        result = read()
        for record in result.records.search:
            if record.trial.datetime_start is not None:
                by_bracket[bracket_of(result.study, spec, record.trial)].append(_on_ladder(record))
    return RungLadder(
        study=study,
        metric=spec.metric,
        goal=spec.goal,
        resource=spec.resource,
        last=spec.early_stopping.max,
        eta=getattr(spec.early_stopping, "eta", None),
        promotion=promotes(spec),
        brackets=tuple(
            LadderBracket(number, bracket.rungs, tuple(by_bracket[number]))
            for number, bracket in enumerate(brackets)
        ),
    )


def _on_ladder(record: TrialRecord) -> LadderTrial:
    attrs = record.trial.system_attrs
    values: list[float] = []
    while (value := attrs.get(f"{RUNG_PREFIX}{len(values)}")) is not None:
        values.append(value)
    return LadderTrial(
        record.number, record.state, tuple(values), record.value, record.audited_at is not None
    )
