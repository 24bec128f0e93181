"""Checks a space before anything runs: what is wrong with it, and what is probably not meant."""

from __future__ import annotations

import difflib
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...objectives.base import ObjectiveError
from ...objectives.catalog import (
    can_share,
    config_class,
    idle_parameters,
    idle_rank,
    is_built_in,
    known_parameters,
    metric_problem,
    missing_file,
    parameter_problems,
    sharing_problems,
)
from ...objectives.resolve import check_name
from ...spaces import Choice, Constant, Derived, Issue, SpaceError, Spec
from ...spaces.expressions import Expression
from ...spaces.fields import TO_FILL
from ...spaces.stopping import Rungs
from ..engine.confirmation_size import ConfirmationSize
from ..scheduling import MIN_AUDITED, audited_one_in, brackets_of
from ..scheduling.plan import MAX_BRACKETS, Plan, plan_of
from ..trials.seeds import is_seed
from .requirements import check_extras

SAMPLED_CONFIGS = 20  # random configurations that a built-in objective is asked about
SAMPLED_CONFIGS_FOR_IDLE = 200  # enough to meet each of ten schedulers


def checked(spec: Spec) -> Spec:
    """The spec, if its objective takes its parameters and what it needs is installed; else `SpaceError`."""
    check_objective(spec)
    check_extras(spec)
    return spec


def check_objective(spec: Spec) -> None:
    """Raise `SpaceError` where the objective does not exist or, built in, does not know a parameter."""
    if isinstance(spec.objective, str):
        try:
            check_name(spec.objective)
        except ObjectiveError as error:
            raise SpaceError([spec.issue("objective", str(error))]) from error
    if issue := _processes_issue(spec):
        raise SpaceError([issue])
    if missing := list(_unfilled(spec)):
        raise SpaceError(missing)
    if withheld := list(_withheld(spec)):
        raise SpaceError(withheld)
    if not isinstance(spec.objective, str):
        if unusable := list(_unusable_words(spec, spec.objective.command)):
            raise SpaceError(unusable)
        return
    known = known_parameters(spec.objective)
    if known is None:
        return
    issues = [
        spec.issue(f"parameters.{name}", unknown_parameter(name, spec.objective, known))
        for name in spec.passed
        if name not in known
    ]
    if not issues:
        refusals = _refusals(spec)
        issues += [spec.issue(path, text) for path, text, count in refusals if count == SAMPLED_CONFIGS]
    issues += [*_missing_files(spec), *_course_issues(spec)]
    if issues:
        raise SpaceError(issues)


def _processes_issue(spec: Spec) -> Issue | None:
    """Why the objective cannot use the processes that each trial is given."""
    ranks, strategy = spec.execution.processes_per_trial, spec.execution.strategy
    if strategy is not None and not is_built_in(spec.objective_words):
        problem = f"is for built-in objectives; yours divides a trial among its {ranks} processes itself"
        return spec.issue("execution.strategy", problem)
    if ranks > 1 and not can_share(spec.objective_words):
        problem = f'must be 1, not {ranks}: the objective "{spec.objective}" trains in one process'
        return spec.issue("execution.processes_per_trial", problem)
    return None


def _unfilled(spec: Spec) -> Iterator[Issue]:
    """Values that `hpsearch init --from` left for the user to fill in."""
    for name, parameter in spec.parameters.items():
        if isinstance(parameter, Constant) and parameter.value == TO_FILL:
            problem = f"is still {TO_FILL}: give it the value that the script needs"
            yield spec.issue(f"parameters.{name}", problem)


def _unusable_words(spec: Spec, command: Sequence[str]) -> Iterator[Issue]:
    """Words of a command that no value fills, that hide a parameter, or that name no configuration file."""
    from ...objectives.user.command import TRIAL_MACROS, unknown_macro
    from ...objectives.user.config_file import check_config
    from ...objectives.user.script_settings import overriding_words
    from ...objectives.user.shell import without_absent

    for place, word in enumerate(command):
        problem = unknown_macro(word, [*TRIAL_MACROS, *spec.passed])
        try:
            if problem is None:
                check_config([word], spec.passed)
        except ObjectiveError as error:
            problem = str(error)
        if problem is not None:
            yield spec.issue(f"objective.command.{place}", problem)
    conditional = [name for name, parameter in spec.passed.items() if parameter.when is not None]
    for word in without_absent(command, conditional):
        if name := next((name for name in conditional if f"${{{name}}}" in word), None):
            problem = f'"${{{name}}}" cannot be left out of "{word}" where the parameter does not exist'
            yield spec.issue("objective.command", f"{problem}: make it a word of its own")
    for place, word, passing in overriding_words(command, spec.passed):
        problem = f'"{word}" overrides the value that "{passing}" passes: remove one of them'
        yield spec.issue(f"objective.command.{place}", problem)


def _withheld(spec: Spec) -> Iterator[Issue]:
    """Parameters with `pass: false` that the command asks for."""
    words = [] if isinstance(spec.objective, str) else spec.objective.command
    for name in spec.parameters.keys() - spec.passed.keys():
        if asking := next((word for word in words if f"${{{name}}}" in word), None):
            problem = f'is false, but the command\'s "{asking}" needs the parameter: remove one of them'
            yield spec.issue(f"parameters.{name}.pass", problem)


def unknown_parameter(name: str, objective: str, known: frozenset[str]) -> str:
    """The message that a built-in objective has no parameter of this name."""
    near = difflib.get_close_matches(name, known, 1)
    hint = f', did you mean "{near[0]}"?' if near else f"; it knows {', '.join(sorted(known))}"
    if name == "preset":
        hint = "; a preset stands beside `parameters`, not among them"
    return f'the objective "{objective}" has no such parameter{hint}'


def _passed(spec: Spec, rng: random.Random) -> dict[str, Any]:
    """The parameters that an objective gets from a random configuration."""
    return spec.space.passed(spec.space.sample(rng))


def _refusals(spec: Spec) -> list[tuple[str, str, int]]:
    """What a built-in objective refuses in random configurations: a path, a message, and how often."""
    rng = random.Random(0)
    messages: dict[str, str] = {}
    counts = Counter[str]()
    for _ in range(SAMPLED_CONFIGS):
        problems = dict(reversed(_problems(spec, _passed(spec, rng))))  # the first problem of each path
        counts.update(problems.keys())
        messages = problems | messages
    return [(path, messages[path], count) for path, count in counts.items()]


def _problems(spec: Spec, config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a built-in objective refuses in a configuration, or in its processes: paths and messages."""
    assert isinstance(spec.objective, str)
    found = [("parameters", problem) for problem in parameter_problems(spec.objective, config)]
    if spec.execution.processes_per_trial > 1:
        how = spec.execution.strategy or "ddp"
        shared = sharing_problems(spec.objective, config, how)
        found += [("execution.strategy", problem) for problem in shared]
    return [
        (f"parameters.{name}" if name in spec.parameters else where, text) for where, (name, text) in found
    ]


def _missing_files(spec: Spec) -> Iterator[Issue]:
    """Data or models that do not exist: every trial would fail."""
    assert isinstance(spec.objective, str)
    for name, parameter in spec.passed.items():
        choices = parameter.choices if isinstance(parameter, Choice) else []
        for value in [parameter.value] if isinstance(parameter, Constant) else choices:
            if problem := missing_file(spec.objective, name, value):
                yield spec.issue(f"parameters.{name}", problem)


def _course_issues(spec: Spec) -> list[Issue]:
    """Conflicts between the space and the course of a trial: its metric, goal, end, and reports at rungs."""
    config = config_class(spec.objective_words)
    assert config is not None
    rng = random.Random(0)
    samples = [_passed(spec, rng) for _ in range(SAMPLED_CONFIGS)]
    issues = []
    if problem := metric_problem(spec.objective_words, spec.metric):
        issues.append(spec.issue("metric", problem))
    goals = {config.goal(sample) for sample in samples}
    if len(goals) == 1 and (goal := goals.pop()) not in (None, spec.goal):
        issues.append(spec.issue("goal", f"is {spec.goal}, but {spec.objective} reports a value to {goal}"))
    courses = {config.report_plan(sample) for sample in samples}
    if len(courses) > 1:
        return issues  # the resource of a trial is itself searched
    course = courses.pop()
    unit, last, every = course.length, course.end, course.every
    stopping = spec.early_stopping
    if stopping.max is not None and last is not None and last != stopping.max:
        issues.append(
            spec.issue(
                "early_stopping.max",
                f"is {stopping.max}, but a trial ends at {unit}: {last}; make them equal",
            )
        )
    if not isinstance(stopping, Rungs):
        return issues
    missed = [r for b in brackets_of(spec) for r in b.rungs if isinstance(every, int) and r % every]
    if missed:
        issues.append(
            spec.issue(
                "parameters.eval_every",
                f"reports come every {every}, so none falls on the rung {missed[0]}; "
                f"use a divisor of early_stopping.min ({stopping.min})",
            )
        )
    if every is None:
        issues.append(
            spec.issue(
                "early_stopping.min",
                f"reports must fall on the rungs: add eval_every: {stopping.min} to the parameters",
            )
        )
    return issues


def warnings(spec: Spec) -> list[Issue]:
    """What is allowed but probably not meant, in early stopping and in a user's objective."""
    found = []
    stopping, plan = spec.early_stopping, plan_of(spec)
    if isinstance(stopping, Rungs) and stopping.min * stopping.eta > stopping.max:
        found.append(
            spec.issue(
                "early_stopping.min",
                f"min * eta = {stopping.min * stopping.eta} is above max = {stopping.max}: "
                "there is one rung, and none between it and the end",
            )
        )
    if len(plan.brackets) > MAX_BRACKETS:
        found.append(
            spec.issue(
                "early_stopping",
                f"{len(plan.brackets)} brackets: more than {MAX_BRACKETS} spread a budget thin; "
                "raise min or eta",
            )
        )
    elif plan.trials is not None and len(plan.brackets) > 1 and _starved(plan):
        found.append(
            spec.issue(
                "budget.trials",
                f"{plan.trials} trials over {len(plan.brackets)} brackets leave one with fewer than two; "
                "raise trials or min",
            )
        )
    drawn = audited_one_in(spec, spec.audit or 0) or 0
    if plan.trials is not None and plan.trials < MIN_AUDITED * drawn:
        larger = "a larger share, or " if drawn > 1 else ""
        found.append(
            spec.issue(
                "audit",
                f"draws one of {drawn} trials, and a rate needs {MIN_AUDITED} audited trials: use "
                f"{larger}{MIN_AUDITED * drawn} trials instead of {plan.trials}",
            )
        )
    asked = ConfirmationSize.asked(spec)
    wish, needs = asked.within(spec), asked.needs(spec)
    if spec.confirm.top is not None and wish != asked:
        enough = f"{wish.top} x {wish.seeds}" if wish.top else "none"
        found.append(
            spec.issue(
                "confirm",
                f"{asked.top} x {asked.seeds} trainings need budget.samples: {needs}, since trials must "
                f"finish first; {spec.budget.samples} are enough for {enough}",
            )
        )
    return (
        found
        + _sometimes_refused(spec)
        + _idle(spec)
        + _ranks_beyond_their_base(spec)
        + _unread(spec)
        + _same_seed(spec)
    )


def _starved(plan: Plan) -> bool:
    assert plan.trials is not None
    return any(bracket.share * plan.trials < 2 for bracket in plan.brackets)


def _sometimes_refused(spec: Spec) -> list[Issue]:
    """Values that a built-in objective refuses in some configurations: their trials fail."""
    if not isinstance(spec.objective, str):
        return []
    return [
        spec.issue(path, f"{text} (so {count} of {SAMPLED_CONFIGS} random configurations fail)")
        for path, text, count in _refusals(spec)
        if count < SAMPLED_CONFIGS
    ]


def _idle(spec: Spec) -> list[Issue]:
    """Options that have no effect beside the others, such as those of a scheduler that is never drawn.

    A constant may have none in some configurations, a searched option in no configuration. A switch that is
    off may have none.
    """
    if not isinstance(spec.objective, str) or known_parameters(spec.objective) is None:
        return []
    rng = random.Random(0)
    unless: dict[str, tuple[str, str]] = {}
    used: set[str] = set()
    for _ in range(SAMPLED_CONFIGS_FOR_IDLE):
        config = _passed(spec, rng)
        idle = idle_parameters(spec.objective, config)
        unless |= idle
        used |= config.keys() - idle.keys()
    fixed = {name for name, parameter in spec.parameters.items() if isinstance(parameter, Constant | Derived)}
    off = {n for n, p in spec.parameters.items() if isinstance(p, Constant) and p.value is False}
    return [
        spec.issue(
            f"parameters.{name}",
            f"changes nothing unless {need}"
            + (f": add when: {when}" if name in used else ", which is never so here"),
        )
        for name, (need, when) in unless.items()
        if name not in off | used & fixed
    ]


def _ranks_beyond_their_base(spec: Spec) -> list[Issue]:
    """Adapters of so high a rank that they cost more than whole matrices and learn no more."""
    if not isinstance(spec.objective, str) or "lora_r" not in spec.passed:
        return []
    rng = random.Random(0)
    corners = map(spec.space.passed, spec.space.corners())
    configs = [*corners, *(_passed(spec, rng) for _ in range(SAMPLED_CONFIGS))]
    beyond = [ranks for config in configs if (ranks := idle_rank(spec.objective, config))]
    if not beyond:
        return []
    rank, highest = max(beyond)
    problem = f"is up to {rank}, above the width of the base: a rank above {highest} adds nothing to adapters"
    return [spec.issue("parameters.lora_r", problem)]


def _unread(spec: Spec) -> list[Issue]:
    """Parameters that a user's function never reads, as far as its source shows."""
    if not isinstance(spec.objective, str) or ":" not in spec.objective:
        return []
    from ...objectives.user.function import parameters_read

    read = parameters_read(spec.objective)
    if read is None:
        return []
    feeding = {
        name
        for parameter in spec.parameters.values()
        if isinstance(parameter, Derived)
        for name in Expression.parse(parameter.expr).names
    }
    given = {name.split(".")[0] for name in spec.passed}
    unread = [
        spec.issue(
            f"parameters.{name}", f'"{spec.objective}" never reads trial.params["{name.split(".")[0]}"]'
        )
        for name in spec.passed
        if name.split(".")[0] not in read and name not in feeding
    ]
    return unread + [
        spec.issue(
            f"parameters.{name}.pass", f'is false, but "{spec.objective}" reads trial.params["{outer}"]'
        )
        for name in spec.parameters
        if (outer := name.split(".")[0]) in read - given
    ]


def _same_seed(spec: Spec) -> list[Issue]:
    """A parameter that gives a user's script or function the same seed in all trainings."""
    of_a_script = not isinstance(spec.objective, str)
    if isinstance(spec.objective, str) and ":" not in spec.objective:
        return []
    instead = "--seed=${seed} in the command" if of_a_script else "trial.seed in the function"
    return [
        spec.issue(
            f"parameters.{name}", f"is the same in all trainings, even in confirmation runs; use {instead}"
        )
        for name, parameter in spec.parameters.items()
        if isinstance(parameter, Constant) and is_seed(name)
    ]
