"""What is allowed in a space but probably not meant: warnings, each with its place in the file."""

from __future__ import annotations

from collections.abc import Iterator

from .errors import Issue
from .parameters import Choice
from .ranges import Range, brief
from .spec import Spec

WIDE_RATIO = 100  # of max to min, from which orders of magnitude matter
LARGE_INTEGER = 100  # from which people write 1e2 for an integer
SCARCE_SHARE = 0.05  # of random configurations, below which rejection is slow and samplers learn little
BATCH_PARAMETERS = {"batch_size", "per_device_train_batch_size", "gradient_accumulation_steps"}

Warnings = Iterator[tuple[str, str]]


def warnings(spec: Spec) -> list[Issue]:
    """Every warning about a spec, in the order of the file."""
    checks = (_kinds, _logarithms, _resource, _grid, _values, _constraints, _categories, _processes)
    issues = (spec.issue(*warning) for check in checks for warning in check(spec))
    return sorted(issues, key=lambda issue: (issue.line, issue.column))


def _kinds(spec: Spec) -> Warnings:
    """Ranges of real numbers that may be meant as integers, or the reverse, judged by their bounds."""
    for name, parameter in spec.parameters.items():
        if not isinstance(parameter, Range):
            continue
        low, high = parameter.min, parameter.max
        whole = low == int(low) and high == int(high)
        stepped = parameter.step is not None or parameter.factor is not None
        if parameter.is_mixed and whole and high >= LARGE_INTEGER and not stepped:
            message = "has one integer and one real bound, so it is searched as real numbers; for integers "
            yield f"parameters.{name}", message + f"write min: {int(low)}, max: {int(high)}, else min: {low}"
        elif parameter.is_int and low >= -1 and high <= 1:
            values = ", ".join(map(brief, parameter.values() or ()))
            message = f"has two integer bounds, so it is {values} with nothing between; for real numbers "
            yield f"parameters.{name}", message + f"write min: {float(low)}, max: {float(high)}"


def _logarithms(spec: Spec) -> Warnings:
    for name, parameter in spec.parameters.items():
        if not isinstance(parameter, Range) or parameter.log or parameter.factor or parameter.step:
            continue
        if parameter.min > 0 and parameter.max / parameter.min >= WIDE_RATIO:
            ratio = brief(float(f"{parameter.max / parameter.min:.2g}"))
            message = f"max is {ratio} times min; add log: true to search orders of magnitude evenly"
            yield f"parameters.{name}", message


def _resource(spec: Spec) -> Warnings:
    if spec.early_stopping.method == "none" or spec.resource != "steps":
        return
    for name in spec.space.searched:
        if name.rpartition(".")[2] in BATCH_PARAMETERS:
            message = f"steps of trials that differ in {name} are not equal work; count samples instead"
            yield "early_stopping.resource", message
            return


def _grid(spec: Spec) -> Warnings:
    size, trials = spec.space.grid_size, spec.budget.trials
    if size is None or trials is None:
        return
    if size < trials and spec.search.sampler != "grid":  # a grid search simply ends
        then = "some will repeat" if spec.space.few() is None else "the search ends with the last"
        yield "budget.trials", f"there are only {size} configurations for {trials} trials; {then}"
    if size > trials and spec.search.sampler == "grid":
        yield "budget.trials", f"the grid has {size} configurations; {trials} trials leave some out"


def _values(spec: Spec) -> Warnings:
    for path, message in spec.space.lacking():
        yield path, f"{message}; configurations like this one are left out"


def _constraints(spec: Spec) -> Warnings:
    share = spec.space.feasible_share()
    if share < SCARCE_SHARE:
        verb = "satisfy them" if spec.constraints else "have a value for each expression"
        yield "constraints", f"only {share:.1%} of random configurations {verb}; narrow the ranges"


def _processes(spec: Spec) -> Warnings:
    if spec.execution.fresh_process and not isinstance(spec.objective, str):
        yield "execution.fresh_process", "is not needed: a command is a process of its own for each trial"


def _categories(spec: Spec) -> Warnings:
    if spec.search.sampler != "cmaes":
        return
    odd = [n for n, p in spec.parameters.items() if isinstance(p, Choice) or p.when is not None]
    if odd:
        message = f"cmaes models only numbers that always exist; it draws {', '.join(odd)} at random"
        yield "search.sampler", message
