"""What operations return, in few words: evidence before values, at most fifty rows, the next step last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....spaces.document import written
from ...formatting import counted, duration, gibibytes, position
from ...values import NextStep

if TYPE_CHECKING:
    from ....spaces import Spec
    from ...operations.forecast import StudyForecast
    from ...operations.spaces import ValidSpace
    from ...operations.studies import ListedStudy
    from ...operations.winner import Winner
    from ...preflight.forecast import SearchForecast
    from ...preflight.simulated import Reached
    from ...queue.view import Moment, QueuedStudy
    from ...results.confirmation import Interval
    from ...results.report import StudyReport, TrialReport
    from ...results.trials import TrialRow
    from ...results.why import TrialHistory

MOST_ROWS = 50
MOST_POINTS = 12  # of a curve
MOST_LINES = 8  # of a traceback
MOST_MISTAKES = 10  # that an answer tells
LONGEST_LINE = 600  # characters of a message, which may repeat what was sent
LINE_END = 200  # of these, where the line is longer: what is allowed stands there
TOOL_OF = {  # by operation: its tool, and the arguments that it has there
    "show": "show_study",
    "show --trial": "show_trial",
    "export": "export",
    "retry": "retry_trial",
    "resume": "steer",
    "stop": "steer",
}
STEERED = {"resume": "run", "stop": "stop"}


def number(value: float | None) -> str:
    """A number with six digits; a dash for none."""
    return "-" if value is None else f"{value:.6g}"


def interval(found: Interval) -> str:
    """An estimate with its interval."""
    return f"{number(found.value)}, 95% [{number(found.low)}, {number(found.high)}]"


def config(values: Mapping[str, Any]) -> str:
    """A configuration on one line."""
    told = [
        f"{name}={number(value) if isinstance(value, float) else written(value)}"
        for name, value in list(values.items())[:MOST_ROWS]
    ]
    return ", ".join([*told, f"and {len(values) - MOST_ROWS:,} more"] if len(values) > MOST_ROWS else told)


def brief(lines: Sequence[str], count: int | None = None) -> Iterator[str]:
    """The first lines of a message, each with its beginning and its end; `count`: how many there are."""
    for line in lines[:MOST_MISTAKES]:
        beginning = line[: LONGEST_LINE - LINE_END]
        yield line if len(line) <= LONGEST_LINE else f"{beginning} ... {line[-LINE_END:]}"
    if (more := (len(lines) if count is None else count) - MOST_MISTAKES) > 0:
        yield f"and {more:,} more"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Rows under their columns, with bars between the cells."""
    yield " | ".join(columns)
    for row in rows:
        yield " | ".join(_cell(value) for value in row)


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return number(value)
    text = value if isinstance(value, str) else written(value)
    return " ".join(text.replace("|", "/").split())


def call(tool: str, **arguments: Any) -> str:
    """A call of a tool."""
    given = ", ".join(f"{name}={written(value)}" for name, value in arguments.items() if value is not None)
    return f"{tool}({given})"


def next_lines(steps: Iterable[NextStep]) -> Iterator[str]:
    """What makes sense next, as calls of tools."""
    for step in steps:
        tool = TOOL_OF.get(step.operation)
        if step.operation == "run" and (study := step.arguments.get("name")):
            limits = step.arguments.get("budget") or {}
            more = {limit: "..." if value is None else value for limit, value in limits.items()}
            more |= {"confirm": step.arguments["confirm"]["top"]} if "confirm" in step.arguments else {}
            yield f"next: {call('steer', study=study, to='run', **more)}: {step.why}"
        elif step.operation == "train":
            yield f"next: hpsearch train best.yaml, in a shell, with what export gives: {step.why}"
        elif tool is not None:
            to = STEERED.get(step.operation)
            yield f"next: {call(tool, **step.arguments, to=to)}: {step.why}"


def moment(found: Moment | None) -> str:
    """A foreseen moment with its interval."""
    if found is None:
        return "unknown"
    at, low, high = (f"{each[:19]}Z" for each in (found.expected, found.earliest, found.latest))
    return at if low == high else f"{at} ({low} to {high})"


def evidence(found: Winner) -> Iterator[str]:
    """How sure a winner is, then its value."""
    yield f"evidence: {found.status}. {found.why}"
    if found.trial is None:
        return
    best = f"trial {found.trial}: {found.metric} ({found.goal})"
    if found.value is None:
        yield f"{best} {number(found.searched)} in the search"
    else:
        by = f"by {counted(found.seeds, 'new seeds')}; {number(found.searched)} in the search"
        yield f"{best} {interval(found.value)} {by}"
    if found.gain is not None:
        yield f"gain over the baseline (trial {found.baseline}): {interval(found.gain)}"
    yield f"parameters: {config(found.params)}"


def winner(found: Winner) -> Iterator[str]:
    """The winner of a study."""
    yield from evidence(found)
    yield from next_lines(found.next)


def listed(studies: Sequence[ListedStudy], states: Mapping[str, str]) -> Iterator[str]:
    """Studies, the newest first."""
    shown = studies[::-1][:MOST_ROWS]
    yield f"studies: {len(studies)}, the newest first; winner tells how sure a best value is"
    yield from table(
        ("study", "state", "metric", "best", "trials ended", "of"),
        (
            (
                each.name,
                states.get(each.name, "not in the queue"),
                each.metric,
                each.best,
                each.ended,
                each.budget,
            )
            for each in shown
        ),
    )
    if len(shown) < len(studies):
        yield f"{len(studies) - len(shown)} older ones are left out"


def state_line(name: str, queued: QueuedStudy | None) -> str:
    """The state of a study, why, and when it begins and ends."""
    if queued is None:
        return f"{name}: no search of it runs or waits"
    line = f"{name}: {queued.state.state}: {queued.state.reason}"
    if queued.place is not None:
        line += f"; place {queued.place} in the queue, begins {moment(queued.begins)}"
    if queued.ends is not None:
        line += f"; ends {moment(queued.ends)}"
    return line


def study(report: StudyReport, found: Winner, queued: QueuedStudy | None) -> Iterator[str]:
    """A study as a whole."""
    yield state_line(report.name, queued)
    yield from evidence(found)
    yield from (line for line in (report.comparison, *report.confirmation) if line)
    yield from (f"early stopping: {line}" for line in report.audit)
    states = ", ".join(f"{count} {state}" for state, count in report.states.items())
    spent = {"trials": report.trials, "seconds": report.seconds, report.resource: report.consumed}
    used = (f"{what} {number(each.used)} of {number(each.total)}" for what, each in spent.items())
    yield f"used: {', '.join(used)}; trials are {states or 'none'}"
    yield f"objective {report.objective}, sampler {report.sampler}, early stopping {report.early_stopping}"
    ranked = sorted(report.parameters, key=lambda each: -(each.importance.share if each.importance else 0.0))
    rows = (
        (
            each.name,
            each.values,
            each.importance and round(each.importance.share, 3),
            each.edge and each.edge.line,
        )
        for each in ranked[:MOST_ROWS]
    )
    yield from table(("parameter", "searched", "importance", "its best values lie at an end; wider is"), rows)
    yield from ([f"importance: {report.importance}"] if report.importance else [])
    for ending in report.endings[:MOST_LINES]:
        some = ", ".join(map(str, ending.trials[:5]))
        yield f"{ending.state}: {len(ending.trials)} {ending.why} (trials {some}): {ending.example}"
    yield from next_lines(report.next_steps)


def rows(found: Sequence[TrialRow], parameters: Sequence[str], fields: Sequence[str]) -> Iterator[str]:
    """Trials as a table."""
    yield from table(
        (*fields, *parameters),
        (
            (*(getattr(row, name) for name in fields), *(row.params.get(name) for name in parameters))
            for row in found
        ),
    )


def curve(points: Sequence[tuple[int, float]]) -> str:
    """A curve as step: value, with its ends; thinned evenly."""
    some = list(points)
    if len(some) > MOST_POINTS:
        last = len(some) - 1
        some = [some[round(at * last / (MOST_POINTS - 1))] for at in range(MOST_POINTS)]
    thinned = "" if len(some) == len(points) else f" ({len(some)} of {len(points)} reports)"
    return " ".join(f"{step}:{number(value)}" for step, value in some) + thinned


def trial(report: TrialReport, history: TrialHistory) -> Iterator[str]:
    """A trial with its story."""
    row = report.row
    what = f", confirms trial {row.confirms}" if row.confirms is not None else ", the baseline" * row.baseline
    yield f"trial {row.number} of {report.study}: {row.state}{what}"
    yield f"{report.metric} {number(row.value)}, by one training"
    yield f"parameters: {config(row.params)}"
    if row.seconds is not None:
        at = "" if row.trained is None else f", to {position(row.trained, report.resource)}"
        yield f"trained {duration(row.seconds)}{at}; {counted(report.retries, 'retries')}"
    if report.curve:
        yield f"curve by {report.resource}: {curve(report.curve)}"
    for rung in report.rungs:
        yield f"rung {rung.step:,}: {number(rung.value)}, rank {rung.rank} of {rung.reached}"
    yield f"suggested: {history.suggested}"
    yield from (
        f"story: {line}" for line in (*history.events[-MOST_ROWS:], *history.attempts, *history.waits)
    )
    yield from ([f"end: {history.end}"] if history.end else [])
    yield from ([f"error: {report.error}"] if report.error else [])
    if report.traceback:
        yield from report.traceback.strip().splitlines()[-MOST_LINES:]
    yield from (f"advice: {line}" for line in report.advice[:3])
    yield from ([f"metrics: {config(row.metrics)}"] if row.metrics else [])
    yield from ([f"files: {', '.join(report.files[:MOST_ROWS])}"] if report.files else [])


def comparison(trials: Sequence[TrialReport], found: Winner) -> Iterator[str]:
    """Trials side by side: what differs first."""
    yield f"evidence of the winner: {found.status}. {found.why}"
    yield "one training each tells little of which is better"
    heads = ["", *(f"trial {each.row.number}" for each in trials)]
    names = list(dict.fromkeys(name for each in trials for name in each.row.params))
    same = {}
    yield " | ".join(heads)
    lines: list[Sequence[Any]] = [
        ("state", *(each.row.state for each in trials)),
        (trials[0].metric, *(each.row.value for each in trials)),
        ("seconds", *(each.row.seconds for each in trials)),
    ]
    for name in names:
        values = [each.row.params.get(name) for each in trials]
        if all(value == values[0] for value in values):
            same[name] = values[0]
        else:
            lines.append((name, *values))
    common = sorted(set.intersection(*(set(dict(each.curve)) for each in trials)))
    picked = common if len(common) <= 6 else [common[round(at * (len(common) - 1) / 5)] for at in range(6)]
    lines += [(f"at {step}", *(dict(each.curve)[step] for each in trials)) for step in picked]
    yield from (" | ".join(_cell(value) for value in line) for line in lines)
    yield from ([f"the same in all: {config(same)}"] if same else [])


def budget(spec: Spec) -> str:
    """The limits of a search."""
    limits = spec.budget.model_dump(exclude_none=True)
    return ", ".join(
        f"{name} {duration(value) if name == 'time' else number(value)}" for name, value in limits.items()
    )


def valid(found: ValidSpace, *, has_budget: bool) -> Iterator[str]:
    """How a space is understood."""
    spec = found.spec
    said = budget(spec) + ("" if has_budget else " (not in the space: submit refuses it without)")
    objective = spec.objective if isinstance(spec.objective, str) else " ".join(spec.objective_words)
    yield f"valid: {spec.name}: {spec.goal} {spec.metric} of {objective}; budget: {said}"
    content = found.to_json()
    yield from table(
        ("parameter", "values", "kind"),
        (
            (name, each["values"], each["kind"])
            for name, each in list(content["parameters"].items())[:MOST_ROWS]
        ),
    )
    if content["baseline"] is not None:
        yield f"baseline: {config(content['baseline'])}"
    yield from (f"sample: {config(sample)}" for sample in found.samples[:2])
    yield from brief([f"warning: {issue}" for issue in found.warnings])
    yield f"next: {call('plan', space='...')}, then submit it"


def _reached(found: Sequence[Reached], resource: str) -> Iterator[str]:
    for each in found:
        when = "" if each.last is None else f", all after {duration(each.last)}"
        yield f"{each.trials} trials reach {position(each.step, resource) if each.step else 'the end'}{when}"


def plan(found: SearchForecast) -> Iterator[str]:
    """What a search will do, as it was measured."""
    spec, ahead, measured = found.spec, found.forecast, found.measured
    earliest, latest = ahead.ends
    luck = f"by luck {duration(earliest)} to {duration(latest)}"
    yield f"foreseen end of {spec.name}: {duration(ahead.end)} after its start, {luck}"
    yield f"budget: {budget(spec)}; ended by {ahead.by}"
    mean = sum(measured.all_training_seconds) / len(measured.all_training_seconds)
    yield (
        f"{counted(ahead.trials, 'trials')}, {counted(measured.slots, 'trials')} at a time; "
        f"a training takes about {duration(mean)} ({counted(len(measured.known), 'configurations')} "
        f"measured in {duration(measured.seconds)})"
    )
    yield from _reached(ahead.reached, spec.resource)
    confirms = f"{counted(ahead.confirms, 'trainings')} with {counted(ahead.seeds, 'new seeds')} each"
    confirmed = f"{duration(ahead.confirmation)}, {confirms}"
    yield f"confirmation: {confirmed if ahead.seeds else 'none: the winner will be unconfirmed'}"
    if found.memory is not None:
        yield f"memory: {gibibytes(found.memory)} for a trial at its peak"
    yield from (f"failed: {error}" for error in measured.errors[:3])
    yield from (f"not sensible: {line}" for line in found.remarks)
    yield f"this holds if {found.assumed}"
    yield f"next: {call('submit', space='...')}, or change its budget and plan again"


def forecast(found: StudyForecast) -> Iterator[str]:
    """How a study goes on by its own pace."""
    if found.over:
        yield f"{found.study} is over: nothing is left to do"
        return
    low, high = duration(found.left_low), duration(found.left_high)
    yield f"{found.study}: about {duration(found.left)} left ({low} to {high})"
    yield f"it ends {found.ends or 'too far ahead to be known'} by its {found.by}"
    confirming = f"{counted(found.confirming, 'trainings')} confirm the best"
    yield f"{counted(found.trials, 'trials')} in all, {found.slots} at a time; {confirming}"
    yield from _reached(found.reached, found.resource)
    yield f"this rests on {counted(found.rests_on, 'trials')}, and holds if {found.assumed}"
