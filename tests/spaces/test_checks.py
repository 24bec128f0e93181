"""Warnings: what is probably not meant, said in place; and silence where all is well."""

from __future__ import annotations

import pytest

from hpsearch.spaces import loads, warnings

HEAD = "version: 1\nname: t\nobjective: lora\nmetric: val_loss\n"
HYPERBAND = "early_stopping: {method: hyperband, min: 1, max: 9}\n"

WARNED = {
    "parameters: {lr: {min: 1000, max: 1e4}}\n": "5:18 parameters.lr: has one integer and one real bound, so it is "
    "searched as real numbers; for integers write min: 1000, max: 10000, else min: 1000.0",
    "parameters: {x: {min: -1, max: 1}, y: {min: 0, max: 99}}\n": "5:17 parameters.x: has two integer bounds, so it is -1, 0, 1 with nothing "
    "between; for real numbers write min: -1.0, max: 1.0",
    "parameters:\n  lr: {min: 1e-5, max: 1e-2}\n": "6:7 parameters.lr: max is 1000 times min; add log: true to search orders of magnitude evenly",
    "parameters:\n  n: {min: 1, max: 100}\n": "6:6 parameters.n: max is 100 times min; add log: true to search orders of magnitude evenly",
    "parameters:\n  batch_size: {min: 1, max: 64}\n"
    + HYPERBAND: "7:17 early_stopping.resource: steps of trials that differ in batch_size are not equal work; "
    "count samples instead",
    "parameters: {train.gradient_accumulation_steps: {min: 1, max: 64}}\n"
    "early_stopping: {method: median, resource: steps}\n": "6:44 early_stopping.resource: steps of trials that differ in train.gradient_accumulation_steps",
    "parameters: {a: [1, 2, 3]}\n": "budget.trials: there are only 3 configurations for 50 trials; "
    "the search ends with the last",
    "parameters: {a: [1, 2, 3], b: [1, 2]}\nbudget: {trials: 5}\nsearch: {sampler: grid}\n": "6:18 budget.trials: the grid has 6 configurations; 5 trials leave some out",
    "parameters: {a: {min: 0.0, max: 1.0}}\nconstraints: [a < 0.02]\n": "6:14 constraints: only 2.2% of random configurations satisfy them; narrow the ranges",
    "parameters: {a: {min: 0.0, max: 1.0}, b: [1, 2], c: {min: 1, max: 9, when: a > 0.5}}\n"
    "search: {sampler: cmaes}\n": "6:19 search.sampler: cmaes models only numbers that always exist; it draws b, c at random",
}

WARNED["parameters:\n  a: {min: 0.0, max: 1.0}\nconstraints: [1 / a > 2]\n"] = (
    "7:15 constraints[0]: `1 / a > 2` divides by zero where a: 0.0; configurations like this one are left out"
)
WARNED["parameters:\n  a: {min: -9.0, max: 9.0}\n  b: {expr: sqrt(a)}\n"] = (
    "parameters.b.expr: `sqrt(a)` fails: math domain error where a: -9.0; configurations like this one"
)
SILENT = [
    "parameters: {lr: {min: 0, max: 0.5}, x: {min: 0, max: 1.0}, y: {min: 0, max: 9}}",
    "parameters: {lr: {min: 100, max: 1000.0, step: 50}}\nbudget: {trials: 9}",
    "parameters: {lr: {min: 1e-5, max: 1e-2, log: true}}",
    "parameters: {lr: {min: 1, max: 1024, factor: 2}}\nbudget: {trials: 4}",
    "parameters: {lr: {min: 1.0, max: 99.0}}",
    "parameters: {lr: {min: 0, max: 1000}}",
    "parameters: {lr: {min: 1.0, max: 1001.0, step: 1}}",
    "parameters: {batch_size: {min: 1, max: 64}}",
    "parameters: {batch_size: {min: 1, max: 64}, max_samples: 100}\n" + HYPERBAND,
    "parameters: {batch_size: 8, a: {min: 0.0, max: 1.0}}\n" + HYPERBAND,
    "parameters: {a: [1, 2, 3]}\nsearch: {sampler: grid}",
    "parameters: {a: [1, 2, 3]}\nbudget: {time: 3m}",
    "parameters: {a: {min: 0.0, max: 1.0}}\nconstraints: [a < 0.2]",
]


@pytest.mark.parametrize("text", WARNED)
def test_a_warning_stands_in_its_place(text: str) -> None:
    (warning,) = warnings(loads(HEAD + text))
    assert WARNED[text] in str(warning)


def test_a_command_needs_no_fresh_process() -> None:
    rest = "parameters: {a: {min: 0.0, max: 1.0}}\nexecution: {fresh_process: true}\n"
    assert warnings(loads(HEAD + rest)) == []
    (warning,) = warnings(loads(HEAD.replace("lora", "{command: [a]}") + rest))
    assert str(warning).endswith("is not needed: a command is a process of its own for each trial")


@pytest.mark.parametrize("text", SILENT)
def test_no_warning_without_cause(text: str) -> None:
    assert warnings(loads(HEAD + text)) == []


def test_warnings_come_in_the_order_of_the_file() -> None:
    parameters = "parameters:\n  lr: {min: 1.0, max: 1e3}\n  batch_size: [1, 2]\n"
    found = warnings(loads(HEAD + HYPERBAND + parameters))
    assert [issue.line for issue in found] == [5, 7]
