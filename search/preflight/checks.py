"""Checks a space before anything runs: what is wrong with it, and what is probably not meant."""

from __future__ import annotations

import difflib
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ...objectives.base import ObjectiveError
from ...objectives.info import ObjectiveInfo
from ...objectives.resolve import check_name
from ...spaces import Choice, Constant, Derived, Issue, SpaceError, Spec
from ...spaces.expressions import Expression
from ...spaces.fields import TO_FILL
from ...spaces.stopping import Rungs
from ..engine.confirmation_size import ConfirmationSize
from ..scheduling.rungs import MAX_BRACKETS, MIN_AUDITED, audited_one_in, brackets_of, plan_of
from ..trials.seeds import is_seed
from .commands import (
    cannot_resume,
    metric_like_parameter,
    read_by_a_shell,
    shared_log,
    two_files,
    unusable_words,
)
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
            check_name(spec.objective, spec.folder)
        except ObjectiveError as error:
            raise SpaceError([spec.issue("objective", str(error))]) from error
    for faults in (_unusable_processes, _unfilled, _withheld, unusable_words, _of_built_in):
        if issues := list(faults(spec)):
            raise SpaceError(issues)


def _unusable_processes(spec: Spec) -> Iterator[Issue]:
    """Why the objective cannot use the processes that each trial is given."""
    ranks, strategy = spec.execution.processes_per_trial, spec.execution.strategy
    info = ObjectiveInfo(spec.objective_words)
    if strategy is not None and not info.is_built_in:
        problem = f"is for built-in objectives; yours divides a trial among its {ranks} processes itself"
        yield spec.issue("execution.strategy", problem)
    elif ranks > 1 and not info.can_share:
        problem = f'must be 1, not {ranks}: the objective "{spec.objective}" trains in one process'
        yield spec.issue("execution.processes_per_trial", problem)


def _unfilled(spec: Spec) -> Iterator[Issue]:
    """Values that `hpsearch init --from` left for the user to fill in."""
    if spec.metric == TO_FILL:
        yield spec.issue("metric", f"is still {TO_FILL}: name the value that the program reports")
    for name, parameter in spec.parameters.items():
        if isinstance(parameter, Constant) and parameter.value == TO_FILL:
            problem = f"is still {TO_FILL}: give it the value that the script needs"
            yield spec.issue(f"parameters.{name}", problem)


def _withheld(spec: Spec) -> Iterator[Issue]:
    """Parameters with `pass: false` that the command asks for."""
    from ...objectives.user.shell import names_in

    command = ObjectiveInfo(spec.objective_words).command
    for name in spec.parameters.keys() - spec.passed.keys():
        if asking := next((word for word in command if name in names_in(word)), None):
            problem = f'is false, but the command\'s "{asking}" needs the parameter: remove one of them'
            yield spec.issue(f"parameters.{name}.pass", problem)


def _of_built_in(spec: Spec) -> list[Issue]:
    """What a built-in objective does not know or refuses, and what its trials cannot do."""
    info = ObjectiveInfo(spec.objective_words)
    if (known := info.known_parameters) is None:
        return []
    issues = [
        spec.issue(f"parameters.{name}", unknown_parameter(name, info.name, known))
        for name in spec.passed
        if name not in known
    ]
    if not issues:
        refusals = _refusals(spec, info)
        issues += [spec.issue(path, text) for path, text, count in refusals if count == SAMPLED_CONFIGS]
    return [*issues, *_missing_files(spec, info), *_course_issues(spec, info)]


def unknown_parameter(name: str, objective: str, known: frozenset[str]) -> str:
    """The message that a built-in objective has no parameter of this name."""
    near = difflib.get_close_matches(name, known, 1)
    hint = f', did you mean "{near[0]}"?' if near else f"; it knows {', '.join(sorted(known))}"
    if name == "preset":
        hint = "; a preset stands beside `parameters`, not among them"
    return f'the objective "{objective}" has no such parameter{hint}'


def _sampled(spec: Spec, count: int = SAMPLED_CONFIGS) -> list[dict[str, Any]]:
    """The parameters that an objective gets from random configurations, always the same ones."""
    rng = random.Random(0)
    return [spec.space.passed(spec.space.sample(rng)) for _ in range(count)]


def _refusals(spec: Spec, info: ObjectiveInfo) -> list[tuple[str, str, int]]:
    """What a built-in objective refuses in random configurations: a path, a message, and how often."""
    messages: dict[str, str] = {}
    counts = Counter[str]()
    for config in _sampled(spec):
        problems = dict(reversed(_problems(spec, info, config)))  # the first problem of each path
        counts.update(problems.keys())
        messages = problems | messages
    return [(path, messages[path], count) for path, count in counts.items()]


def _problems(spec: Spec, info: ObjectiveInfo, config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a built-in objective refuses in a configuration, or in its processes: paths and messages."""
    problems = [("parameters", *problem) for problem in info.parameter_problems(config)]
    if spec.execution.processes_per_trial > 1:
        shared = info.sharing_problems(config, spec.execution.strategy or "ddp")
        problems += [("execution.strategy", *problem) for problem in shared]
    return [(f"parameters.{name}" if name in spec.parameters else at, text) for at, name, text in problems]


def _missing_files(spec: Spec, info: ObjectiveInfo) -> Iterator[Issue]:
    """Data or models that do not exist: every trial would fail."""
    for name, parameter in spec.passed.items():
        choices = parameter.choices if isinstance(parameter, Choice) else []
        for value in [parameter.value] if isinstance(parameter, Constant) else choices:
            if problem := info.missing_file(name, value):
                yield spec.issue(f"parameters.{name}", problem)


def _course_issues(spec: Spec, info: ObjectiveInfo) -> Iterator[Issue]:
    """Conflicts between the space and the course of a trial: its metric, goal, end, and reports at rungs."""
    samples = _sampled(spec)
    if problem := info.metric_problem(spec.metric):
        yield spec.issue("metric", problem)
    goals = {info.parameters.goal(sample) for sample in samples}
    if len(goals) == 1 and (goal := goals.pop()) not in (None, spec.goal):
        yield spec.issue("goal", f"is {spec.goal}, but {spec.objective} reports a value to {goal}")
    courses = {info.parameters.report_plan(sample) for sample in samples}
    if len(courses) > 1:
        return  # the resource of a trial is itself searched
    course, stopping = courses.pop(), spec.early_stopping
    last, every = course.end, course.every
    if stopping.max is not None and last is not None and last != stopping.max:
        problem = f"is {stopping.max}, but a trial ends at {course.length}: {last}; make them equal"
        yield spec.issue("early_stopping.max", problem)
    if not isinstance(stopping, Rungs):
        return
    missed = [r for b in brackets_of(spec) for r in b.rungs if isinstance(every, int) and r % every]
    if missed:
        yield spec.issue(
            "parameters.eval_every",
            f"reports come every {every}, so none falls on the rung {missed[0]}; "
            f"use a divisor of early_stopping.min ({stopping.min})",
        )
    if every is None:
        problem = f"reports must fall on the rungs: add eval_every: {stopping.min} to the parameters"
        yield spec.issue("early_stopping.min", problem)


def warnings(spec: Spec) -> list[Issue]:
    """What is allowed but probably not meant, in early stopping and in a user's objective."""
    doubts = (
        *(_about_brackets, _about_audit, _about_confirmation, _sometimes_refused, _idle),
        *(_ranks_beyond_their_base, _unread, _same_seed, two_files, cannot_resume, shared_log),
        *(metric_like_parameter, read_by_a_shell),
    )
    return [issue for doubt in doubts for issue in doubt(spec)]


def _about_brackets(spec: Spec) -> Iterator[Issue]:
    stopping, plan = spec.early_stopping, plan_of(spec)
    brackets, trials = len(plan.brackets), plan.trials
    # A rung in the second half is meant to be the only one.
    if isinstance(stopping, Rungs) and 2 * stopping.min < stopping.max < stopping.min * stopping.eta:
        yield spec.issue(
            "early_stopping.min",
            f"min * eta = {stopping.min * stopping.eta} is above max = {stopping.max}: "
            "there is one rung, and none between it and the end",
        )
    if brackets > MAX_BRACKETS:
        problem = f"{brackets} brackets: more than {MAX_BRACKETS} spread a budget thin; raise min or eta"
        yield spec.issue("early_stopping", problem)
    elif trials is not None and brackets > 1 and any(each.share * trials < 2 for each in plan.brackets):
        problem = f"{trials} trials over {brackets} brackets leave one with fewer than two"
        yield spec.issue("budget.trials", f"{problem}; raise trials or min")


def _about_audit(spec: Spec) -> Iterator[Issue]:
    drawn, trials = audited_one_in(spec, spec.audit or 0) or 0, plan_of(spec).trials
    if trials is not None and trials < MIN_AUDITED * drawn:
        larger = "a larger share, or " if drawn > 1 else ""
        yield spec.issue(
            "audit",
            f"draws one of {drawn} trials, and a rate needs {MIN_AUDITED} audited trials: use "
            f"{larger}{MIN_AUDITED * drawn} trials instead of {trials}",
        )


def _about_confirmation(spec: Spec) -> Iterator[Issue]:
    asked = ConfirmationSize.asked(spec)
    size, needs = asked.within(spec), asked.needs(spec)
    if spec.confirm.top is not None and size != asked:
        enough = f"{size.top} x {size.seeds}" if size.top else "none"
        yield spec.issue(
            "confirm",
            f"{asked.top} x {asked.seeds} trainings need budget.samples: {needs}, since trials must "
            f"finish first; {spec.budget.samples} are enough for {enough}",
        )


def _sometimes_refused(spec: Spec) -> Iterator[Issue]:
    """Values that a built-in objective refuses in some configurations: their trials fail."""
    info = ObjectiveInfo(spec.objective_words)
    for path, text, count in _refusals(spec, info) if info.is_built_in else []:
        if count < SAMPLED_CONFIGS:
            yield spec.issue(path, f"{text} (so {count} of {SAMPLED_CONFIGS} random configurations fail)")


def _idle(spec: Spec) -> Iterator[Issue]:
    """Options that have no effect beside the others, such as those of a scheduler that is never drawn.

    A constant may have none in some configurations, a searched option in no configuration. A switch that is
    off may have none.
    """
    info = ObjectiveInfo(spec.objective_words)
    if not info.is_built_in:
        return
    unless: dict[str, tuple[str, str]] = {}
    used: set[str] = set()
    for config in _sampled(spec, SAMPLED_CONFIGS_FOR_IDLE):
        idle = info.idle_parameters(config)
        unless |= idle
        used |= config.keys() - idle.keys()
    fixed = {name for name, parameter in spec.parameters.items() if isinstance(parameter, Constant | Derived)}
    off = {n for n, p in spec.parameters.items() if isinstance(p, Constant) and p.value is False}
    for name, (need, when) in unless.items():
        if name not in off | used & fixed:
            remedy = f": add when: {when}" if name in used else ", which is never so here"
            yield spec.issue(f"parameters.{name}", f"changes nothing unless {need}{remedy}")


def _ranks_beyond_their_base(spec: Spec) -> Iterator[Issue]:
    """Adapters of so high a rank that they cost more than whole matrices and learn no more."""
    info = ObjectiveInfo(spec.objective_words)
    if "lora_r" not in spec.passed or not info.is_built_in:
        return
    configs = [*map(spec.space.passed, spec.space.corners()), *_sampled(spec)]
    if beyond := [ranks for config in configs if (ranks := info.idle_rank(config))]:
        rank, highest = max(beyond)
        problem = f"is up to {rank}, above the width of the base"
        yield spec.issue("parameters.lora_r", f"{problem}: a rank above {highest} adds nothing to adapters")


def _unread(spec: Spec) -> Iterator[Issue]:
    """Parameters that a user's function never reads, as far as its source shows."""
    info = ObjectiveInfo(spec.objective_words)
    if info.kind not in ("function", "optuna"):
        return
    from ...objectives.user.function import parameters_read, parameters_suggested

    suggests = info.kind == "optuna"
    read = (parameters_suggested if suggests else parameters_read)(info.name, spec.folder)
    if read is None:
        return
    feeding = {
        name
        for parameter in spec.parameters.values()
        if isinstance(parameter, Derived)
        for name in Expression.parse(parameter.expr).names
    }
    given = {name: name if suggests else name.split(".")[0] for name in spec.passed}
    for name, outer in given.items():
        if outer not in read and name not in feeding:
            never = f'suggests "{outer}"' if suggests else f'reads trial.params["{outer}"]'
            problem = f'"{spec.objective}" never {never}'
            yield spec.issue(f"parameters.{name}", problem)
    for name in spec.parameters:
        if (outer := name if suggests else name.split(".")[0]) in read - {*given.values()}:
            needs = f'suggests "{outer}"' if suggests else f'reads trial.params["{outer}"]'
            problem = f'is false, but "{spec.objective}" {needs}'
            yield spec.issue(f"parameters.{name}.pass", problem)


def _same_seed(spec: Spec) -> Iterator[Issue]:
    """A parameter that gives a user's script or function the same seed in all trainings."""
    info = ObjectiveInfo(spec.objective_words)
    if info.is_built_in:
        return
    instead = {
        "command": "--seed=${seed} in the command",
        "function": "trial.seed in the function",
    }.get(info.kind, 'os.environ["HPSEARCH_SEED"] in the function')
    problem = f"is the same in all trainings, even in confirmation runs; use {instead}"
    for name, parameter in spec.parameters.items():
        if isinstance(parameter, Constant) and is_seed(name):
            yield spec.issue(f"parameters.{name}", problem)
