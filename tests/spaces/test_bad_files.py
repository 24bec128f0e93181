"""Every mistake a space file can hold: what is said about it, and where."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from hpsearch.search.trials.document import load_document
from hpsearch.spaces import SpaceError, load, loads, shipped

HEAD = "version: 1\nname: t\nobjective: lora\nmetric: val_loss\n"
X = "  x: {min: 0.0, max: 1.0}\n"
OPTIONS = HEAD + "parameters:\n" + X  # what follows stands on line 7


def issues(text: str) -> list[str]:
    with pytest.raises(SpaceError) as caught:
        loads(text, "f.yaml")
    assert str(caught.value) == "\n".join(map(str, caught.value.issues))
    assert all(issue.line >= 1 and issue.column >= 1 for issue in caught.value.issues)
    return str(caught.value).splitlines()


# one parameter, on line 6 -> the only issue
PARAMETERS = {
    "a: {choices: [1, 2], pass: false}": "no expr, when or constraint reads the parameter",
    "a: {choices: [1, 2], pass: 0}": "must be true or false, not 0",
    "a: {choices: [1, 2], passed: false}": 'unknown key, did you mean "pass"?',
    "x: {mim: 1, max: 2}": '6:7 parameters.x.mim: unknown key, did you mean "min"?',
    "x: {min: 1, max: 2, Log: true}": '6:23 parameters.x.Log: unknown key, did you mean "log"?',
    "x: {min: 1, max: 1}": "6:12 parameters.x.min: min 1 must be below max 1; a constant is written `name: value`",
    "x: {min: 2, max: 1}": "6:12 parameters.x.min: min 2 must be below max 1; are they swapped?",
    "x: {min: 9007199254740991, max: 9007199254741991}": "6:35 parameters.x.max: max 9007199254741991 is beyond 2^53",
    "x: {min: -9223372036854775807, max: 9223372036854775807}": "6:12 parameters.x.min: min -9223372036854775807 is",
    "x: {min: 9007199254740993, max: 9007199254741991, log: true}": "6:12 parameters.x.min: min 9007199254740993 is",
    "x: {min: 5.0e-324, max: 1.0e-310}": "6:27 parameters.x.max: max 1e-310 minus min 5e-324 is too close to 0 for the floats with which samplers compute; use a log range, or scale it",
    "x: {min: -1.7e308, max: 1.7e308}": "6:27 parameters.x.max: max 1.7e+308 minus min -1.7e+308 exceeds the floats with which samplers compute",
    "x: {min: 0.0, max: 1.0, step: 1e-300}": "6:33 parameters.x.step: step 1e-300 gives more values than floats can distinguish here; leave step out",
    "x: {min: 1e20, max: 1.00000000000001e20, step: 16384.0}": "parameters.x.step: step 16384.0 gives more values than floats",
    "x: {min: 1.0, max: 1e9, factor: 1.0000000000000002}": "parameters.x.factor: factor 1.0000000000000002 gives more values",
    "x: [.inf, ~]": "6:7 parameters.x[0]: .inf is not a finite number",
    "x: [.nan, .nan1, ~, 1e400x, null1]": "6:7 parameters.x[0]: .nan is not a finite number",
    "x: {min: 0, max: 1, log: true}": "6:12 parameters.x.min: log needs min above 0, not 0",
    "x: {min: -1, max: 1, factor: 2}": "6:12 parameters.x.min: factor needs min above 0, not -1",
    "x: {min: 0.0, max: 1.0, step: 0.3}": "6:22 parameters.x.max: max 1.0 is not reached from 0.0 by step 0.3; the nearest is 0.9 or 1.2",
    "x: {min: 2, max: 33, factor: 2}": "6:20 parameters.x.max: max 33 is not reached from 2 by factor 2; the nearest is 32 or 64",
    "x: {min: 0.0, max: 9.800000000000003e16, step: 4.900000000000002e16}": "6:22 parameters.x.max: max 9.800000000000003e+16 is reached from 0.0 by step 4.900000000000002e+16 only because floats are rounded; write step with fewer digits",
    "x: {min: 0.0, max: 9.800000000000013e16, step: 4.900000000000006e16}": "6:22 parameters.x.max: max 9.800000000000013e+16 is reached from 0.0 by step 4.900000000000006e+16 only because floats are rounded; write step with fewer digits",
    "x: {min: 1.74e308, max: 1.78e308, step: 3e306}": "6:27 parameters.x.max: max 1.78e+308 is not reached from 1.74e+308 by step 3e+306; the nearest is 1.77e+308",
    "x: {min: 1.785e308, max: 1.79e308, step: 1.4e306}": "6:28 parameters.x.max: max 1.79e+308 is not reached from 1.785e+308 by step 1.4e+306; the nearest is too large for a number",
    "x: {min: 0.0, max: 1e308, step: 1e308}": "6:22 parameters.x.max: max 1e+308 minus min 0.0 plus step 1e+308 exceeds the floats with which samplers compute",
    "x: {min: 1, max: 10, step: 20}": "6:20 parameters.x.max: max 10 is not reached from 1 by step 20; the nearest is 21",
    "x: {min: 0, max: 1, step: 0.25}": "6:29 parameters.x.step: two integer bounds make integers; write an integer step, or min: 0.0",
    "x: {min: 0.0, max: 1.0, step: 0}": "6:33 parameters.x.step: step must be above 0, not 0.0",
    "x: {min: 1, max: 8, factor: 1}": "6:31 parameters.x.factor: factor must be above 1, not 1",
    "x: {min: 0.1, max: 0.3, log: true, step: 0.1}": "6:44 parameters.x.step: step cannot be combined with log; use factor, which multiplies",
    "x: {min: 1, max: 8, factor: 2, log: true}": "6:31 parameters.x.factor: factor cannot be combined with log; leave that out",
    "x: {min: .nan, max: 1}": "6:12 parameters.x.min: .nan is not a finite number",
    "x: {min: 1, max: +.inf}": "6:20 parameters.x.max: +.inf is not a finite number",
    "x: {min: 1, max: 1e999}": "6:20 parameters.x.max: 1e999 is too large for a number",
    "x: {min: 1, max: 99999999999999999999}": "6:20 parameters.x.max: an integer of more than 64 bits; write such a number with an exponent: 1e20",
    'x: {min: "1e-4", max: 1e-2}': '6:12 parameters.x.min: must be a number, not "1e-4"; write it without quotes and without _',
    "x: {min: 1_000, max: 2000}": '6:12 parameters.x.min: must be a number, not "1_000"; write it without quotes and without _',
    "x: {min: 1:30, max: 200}": '6:12 parameters.x.min: must be a number, not "1:30"',
    "x: {min: true, max: 2}": "6:12 parameters.x.min: must be a number, not true",
    "x: {min: 1, max: 2, log: yes}": '6:28 parameters.x.log: must be true or false, not "yes"',
    "x: {}": "6:6 parameters.x: needs min and max, or a list of choices, or value, or expr",
    "x: {min: 1}": "6:6 parameters.x.max: is missing",
    "x:": "6:3 parameters.x: has no value; a constant null is written {value: null}",
    "x: []": "6:6 parameters.x: needs at least one value",
    "x: [1, true]": "6:10 parameters.x[1]: true equals 1 before it",
    "x: [1, 2, 1.0]": "6:13 parameters.x[2]: 1.0 equals 1 before it",
    "x: [a, a]": '6:10 parameters.x[1]: "a" is listed twice',
    "x: {choices: [a, {b: c}]}": "6:20 parameters.x.choices[1]: a choice is a scalar or a list, not a mapping",
    "x: {choices: 3}": "6:16 parameters.x.choices: must be a list, not 3",
    "x: {choices: [1, 2], min: 3}": '6:24 parameters.x.min: cannot be combined with "choices"',
    "x: {choices: [a, b], prior: {at: c}}": '6:36 parameters.x.prior.at: "c" is none of "a", "b"',
    "x: {min: 1, max: 9, prior: {at: 12}}": "6:35 parameters.x.prior.at: 12 is outside int 1 .. 9",
    "x: {min: 2, max: 8, factor: 2, prior: {at: 5}}": "6:46 parameters.x.prior.at: 5 is not a value of int 2 4 8; the nearest is 4",
    "x: {min: 1, max: 9, prior: {at: 3, confidence: hihg}}": '6:50 parameters.x.prior.confidence: must be "low", "medium" or "high", not "hihg"',
    "x: {min: 1, max: 9, when: {y: 1}}": '6:33 parameters.x.when.y: "y" is not a parameter; there is no other',
    "x: {min: 1, max: 9, when: {x: 1}}": "6:6 parameters.x: depends on itself: x -> x",
    "x: {min: 1, max: 9, when: []}": "6:29 parameters.x.when: must be a mapping such as",
    "x: {min: 1, max: 9, when: x.__class__()}": "6:29 parameters.x.when: `x.__class__()` uses such a call",
    "x-y: [1, 2]": '6:8 parameters.x-y: "x-y" is not a name',
    "null: [1, 2]": '6:9 parameters.null: "null" is a value, not a name',
    "x: {min: 1, max: 9, min: 2}": '6:23 parameters.x.min: duplicate key "min", first at 6:7',
    "x: !!python/object:os.system 1": "6:6: YAML tags are not allowed here",
    "x: *nowhere": '6:6: the alias "*nowhere" has no anchor before it',
    "x: 3": "6:3 parameters: nothing is searched; a parameter needs {min, max} or a list of choices",
    "x: tune.loguniform(1e-5, 1e-1)": "is Ray Tune's; here write {min: ..., max: ..., log: true}",
    "x: orion~choices([1, 2])": "is Oríon's; here write a list of choices, [a, b, c]",
    "x: interval(0, 1)": "is Hydra's; here write {min: ..., max: ...}",
    "x: loguniform(1, 2)": "is Syne Tune's; here write {min: ..., max: ..., log: true}",
    "x: uniform[1:2]": "is Guild's; here write {min: ..., max: ...}",
}

# one more line, on line 7 -> the only issue
SETTINGS = {
    'constraints: ["x * y < 3"]': '7:15 constraints[0]: "y" is not a parameter; there is "x"',
    'constraints: ["x * 3"]': "7:15 constraints[0]: `x * 3` is neither true nor false but 0.0",
    "constraints: x < 3": '7:14 constraints: must be a list, not "x < 3"',
    'constraints: ["1 < 0"]': "7:15 constraints[0]: `1 < 0` names no parameter, so it is always true or never",
    'constraints: ["x < "]': "7:15 constraints[0]: `x < ` is not an expression: invalid syntax",
    'constraints: ["1 / (x - x) > 0"]': "7:15 constraints[0]: `1 / (x - x) > 0` divides by zero where x: 0.0",
    'constraints: ["x + 1"]': "7:15 constraints[0]: `x + 1` is neither true nor false but 1.0",
    "  alpha: {expr: 2 * alpa}": '7:17 parameters.alpha.expr: "alpa" is not a parameter; there is "x"',
    "baseline: {y: 1}": '7:15 baseline.y: "y" is not a parameter; there is "x"',
    "baseline: {x: 3}": "7:15 baseline.x: 3 is outside float 0 .. 1",
    "baseline: [1]": "7:11 baseline: must be a mapping such as {learning_rate: 1e-3}, not [1]",
    "search: tpe": '7:9 search: must be a mapping such as {sampler: tpe}, not "tpe"',
    "search: {sampler: tpee}": '7:19 search.sampler: there is no "tpee"; did you mean "tpe"?',
    "search: {sampler: [tpe]}": '7:19 search.sampler: there is no ["tpe"]; ',
    "search: {sampler: grid}": "6:6 parameters.x: a grid needs values that can be listed; add a step or a factor",
    "search: {n_startup: 3}": '7:10 search.n_startup: unknown key, did you mean "n_startup_trials"?',
    "search: {seed: 1.5}": "7:16 search.seed: must be an integer, not 1.5",
    "search: {seed: -1}": "7:16 search.seed: must be at least 0, not -1",
    "search: {sampler: cmaes, lr_adapt: true, with_margin: true}": "7:36 search.lr_adapt: cannot be combined with with_margin",
    "search: {group: true, multivariate: false}": "7:17 search.group: needs multivariate: true",
    "early_stopping: none": '7:17 early_stopping: must be a mapping such as {method: hyperband}, not "none"',
    "early_stopping: {}": '7:17 early_stopping: needs a method: one of "hyperband", ',
    "early_stopping: {metod: none}": '7:18 early_stopping.metod: unknown key, did you mean "method"?',
    "early_stopping: {method: hyperband, max: 9}": "7:17 early_stopping.min: is missing",
    "early_stopping: {method: hyperband, min: 400, max: 25}": "7:42 early_stopping.min: min 400 must be below max 25",
    "early_stopping: {method: hyperband, min: 1, max: 25, eta: 1}": "7:59 early_stopping.eta: must be at least 2, not 1",
    "early_stopping: {method: asha, min: 1, max: 25, min_early_stopping_rate: 1000000}": "7:74 early_stopping.min_early_stopping_rate: must be at most 100, not 1000000",
    "confirm: {top: 100000000}": "7:16 confirm.top: must be at most 1000, not 100000000",
    "confirm: {seeds: 100000000}": "7:18 confirm.seeds: must be at most 1000, not 100000000",
    "early_stopping: {method: threshold}": "7:17 early_stopping: needs lower or upper",
    "early_stopping: {method: threshold, lower: 2, upper: 1}": "7:44 early_stopping.lower: lower 2 must be below upper 1",
    "early_stopping: {method: median, resource: step}": '7:44 early_stopping.resource: must be "samples", "steps" or "epochs", not "step"',
    "budget: {}": "7:9 budget: needs trials, time or samples",
    "budget: 40": "7:9 budget: must be a mapping such as {trials: 50}, not 40",
    "budget: {target: 1.0}": "7:9 budget: needs trials, time or samples; a target alone may never be reached",
    "budget: {trials: 0}": "7:18 budget.trials: must be at least 1, not 0",
    "budget: {trails: 4}": '7:10 budget.trails: unknown key, did you mean "trials"?',
    "budget: {time: 30m1h}": '7:16 budget.time: must be a time such as "90s", "30m", "1.5h" or "2d", not "30m1h"',
    "budget: {time: 0h0m}": "7:16 budget.time: must be above 0",
    "budget: {time: 30 min}": '7:16 budget.time: must be a time such as "90s", "30m", "1.5h" or "2d", not "30 min"',
    "budget: {time: 0s}": "7:16 budget.time: must be above 0",
    "budget: {time: 1e300}": "7:16 budget.time: must be at most a hundred years, not 1e+300",
    "early_stopping: {method: pbt, min: 1, max: 3}": '7:26 early_stopping.method: "pbt" changes parameters in the middle of a trial, but here a trial keeps one set of them; use hyperband, or search the schedule itself: lr_scheduler, warmup_ratio',
    "search: {sampler: PB2}": '7:19 search.sampler: "PB2" changes parameters in the middle of a trial, but here a trial keeps one set of them; use hyperband, or search the schedule itself: lr_scheduler, warmup_ratio',
    "early_stopping: {method: successive_halving, min: 1, max: 3}": '7:26 early_stopping.method: there is no "successive_halving"; did you mean "asha"?',
    "early_stopping: {method: AsyncHyperBand, min: 1, max: 3}": '7:26 early_stopping.method: there is no "AsyncHyperBand"; did you mean "hyperband"?',
    "report_to: tensorbord": '7:12 report_to: there is no tracker "tensorbord"; did you mean "tensorboard"?',
    "report_to: [wandb, none]": '7:12 report_to: there is no tracker "none"; there is "tensorboard", "wandb", "mlflow"',
    "report_to: {a: 1}": '7:12 report_to: there is no tracker {"a": 1}; there is "tensorboard", "wandb", "mlflow"',
    "execution: {workers: 0}": '7:22 execution.workers: must be "auto" or a number of processes, not 0',
    "execution: {workers: true}": '7:22 execution.workers: must be "auto" or a number of processes, not true',
    "execution: {cpus_per_trial: 0.00001}": "7:29 execution.cpus_per_trial: must be at least 0.0001, not 1e-05",
    "execution: {gpus_per_trial: 0.00009}": "7:29 execution.gpus_per_trial: must be at least 0.0001, not 9e-05",
    "execution: {cpus_per_trial: 0}": "7:29 execution.cpus_per_trial: must be above 0",
    "execution: {cpus_per_trial: 0.0}": "7:29 execution.cpus_per_trial: must be above 0",
    "execution: {cpus_per_trial: -1}": "7:29 execution.cpus_per_trial: must be a whole number or a fraction between 0 and 1, not -1",
    "execution: {cpus_per_trial: 1.5}": "7:29 execution.cpus_per_trial: must be a whole number or a fraction between 0 and 1, not 1.5",
    "execution: {cpus_per_trial: true}": "7:29 execution.cpus_per_trial: must be a number, not true",
    'execution: {cpus_per_trial: "2"}': '7:29 execution.cpus_per_trial: must be a number, not "2"; write it without quotes',
    "execution: {cpus_per_trial: auto}": '7:29 execution.cpus_per_trial: must be a number, not "auto"',
    "execution: {gpus_per_trial: -0.5}": "7:29 execution.gpus_per_trial: must be a whole number or a fraction between 0 and 1, not -0.5",
    "execution: {gpus_per_trial: 2.5}": "7:29 execution.gpus_per_trial: must be a whole number or a fraction between 0 and 1, not 2.5",
    "execution: {gpus_per_trial: [1]}": "7:29 execution.gpus_per_trial: must be a number, not [1]",
    "execution: {gpus_per_trial: .inf}": "7:29 execution.gpus_per_trial: .inf is not a finite number",
    "execution: {gpu_per_trial: 1}": '7:13 execution.gpu_per_trial: unknown key, did you mean "gpus_per_trial"?',
    "execution: {max_memory: 0}": "7:25 execution.max_memory: must be above 0",
    "execution: {max_memory: 0.5}": "7:25 execution.max_memory: must be above 0",
    "execution: {max_memory: 0GiB}": "7:25 execution.max_memory: must be above 0",
    "execution: {max_memory: 5}": '7:25 execution.max_memory: must be at least 1MiB, not 5 bytes; did you mean "5GiB"?',
    "execution: {max_memory: '500'}": '7:25 execution.max_memory: must be at least 1MiB, not 500 bytes; did you mean "500MiB"?',
    "execution: {max_memory: 8K}": "7:25 execution.max_memory: must be at least 1MiB, not 8,192 bytes",
    "execution: {max_memory: -4}": "7:25 execution.max_memory: must be above 0",
    "execution: {max_memory: -4GiB}": '7:25 execution.max_memory: must be an amount of memory such as "4GiB" or "500MiB", not "-4GiB"',
    "execution: {max_memory: 4 gigabytes}": '7:25 execution.max_memory: must be an amount of memory such as "4GiB" or "500MiB", not "4 gigabytes"',
    "execution: {max_memory: 4i}": '7:25 execution.max_memory: must be an amount of memory such as "4GiB" or "500MiB", not "4i"',
    "execution: {max_memory: 4\N{KELVIN SIGN}}": "7:25 execution.max_memory: must be an amount of memory such as",
    "execution: {max_memory: 9999999999T}": "7:25 execution.max_memory: must be a finite number of at most 64 bits",
    "execution: {max_memory: 1e300}": "7:25 execution.max_memory: must be a finite number of at most 64 bits",
    "execution: {max_memory: true}": "7:25 execution.max_memory: must be a number, not true",
    "execution: {processes_per_trial: 0}": "7:34 execution.processes_per_trial: must be at least 1, not 0",
    "execution: {processes_per_trial: auto}": '7:34 execution.processes_per_trial: must be an integer, not "auto"',
    "execution: {processes_per_trial: 2, pack: 4}": "7:43 execution.pack: must be 1 beside processes_per_trial: 2; such trials are not packed",
    "execution: {fresh_process: true, pack: auto}": "7:40 execution.pack: must be 1 beside fresh_process: true; trials of a pack share a process",
    "execution: {fresh_process: 1}": "7:28 execution.fresh_process: must be true or false, not 1",
    "value: best": '7:8 value: best is for your own functions and commands; "lora" returns the value of the model that it keeps',
    "nan: ignore": '7:6 nan: ignore is for your own functions and commands; training of "lora" that is not finite cannot recover',
    "value: mean": '7:8 value: must be "last" or "best", not "mean"',
    "execution: {processes_per_trial: 2, gpus_per_trial: 0.5}": "7:53 execution.gpus_per_trial: must be a multiple of processes_per_trial (2), or 0",
    "execution: {strategy: ddp}": "7:23 execution.strategy: divides a trial among several processes: set processes_per_trial",
    "execution: {processes_per_trial: 2, strategy: dp}": '7:47 execution.strategy: must be "ddp", "fsdp" or "deepspeed", not "dp"',
    "execution: {processes_per_trial: 2, strategy: horovod}": "; start it from a script of your own with horovodrun",
    "execution: {processes_per_trial: 2, zero_stage: 2}": "7:49 execution.zero_stage: is an option of deepspeed: set strategy: deepspeed",
    "execution: {processes_per_trial: 2, strategy: deepspeed, zero_stage: 4}": "7:70 execution.zero_stage: must be at most 3",
    "execution: {pack: many}": '7:19 execution.pack: must be "auto" or a number of trials, not "many"',
    "execution: {pack: 0}": '7:19 execution.pack: must be "auto" or a number of trials, not 0',
    "confirm: {seeds: 1}": "7:18 confirm.seeds: must be at least 2, not 1",
    "confirm: {top: -1}": "7:16 confirm.top: must be at least 0, not -1",
    "confirm: 3": "7:10 confirm: must be a mapping such as {top: 3}, not 3",
    "early_stopping: {method: asha, type: pausing, min: 1, max: 9}": (
        '7:38 early_stopping.type: must be "stopping" or "promotion", not "pausing"'
    ),
    "goal: min": '7:7 goal: must be "minimize" or "maximize", not "min"',
    "metirc: a": '7:1 metirc: unknown key, did you mean "metric"?',
    "version: 1": '7:1 version: duplicate key "version", first at 1:1',
    "<<: {goal: minimize}": '7:1: merge keys ("<<") are not part of YAML 1.2; write the keys out',
    "? [a]\n: 1": "7:3: a key must be a name, not a list or a mapping",
    "--- \na: 1": "7:1: a second document starts here; a space file holds one",
    "goal: minimize: x": "7:15: not YAML: mapping values are not allowed here",
    "budget:\n\ttrials: 3": "8:1: not YAML: YAML is indented with spaces, not with this tab",
    "budget: {trials: 3": "not YAML: ",
    'metric2: "\\ud83e"': "7:10: holds half a character: a surrogate such as \\ud83e means nothing",
    '"\\udd86\\ud83e": 1': "7:1: holds half a character",
    "name2: \x07": "7:8: not YAML: special characters are not allowed",
}

# a whole file -> the first issue
FILES = {
    "": "1:1: the file is empty",
    "# nothing": "1:1: the file is empty",
    "- a": '1:1: a space file is a mapping (version: 1, name: ...), not ["a"]',
    "lora": '1:1: a space file is a mapping (version: 1, name: ...), not "lora"',
    "{}": "1:1 version: is missing",
    OPTIONS.replace("version: 1", "version: 2"): "1:10 version: must be 1, not 2",
    OPTIONS.replace("name: t", "name: a/b"): '2:7 name: "a/b" has a slash, a line break or',
    OPTIONS.replace("name: t", "name: ' '"): '2:7 name: must be a text of 1 to 200 characters, not " "',
    OPTIONS.replace(
        "objective: lora", "objective: {command: python a.py}"
    ): '3:22 objective.command: must be a list, not "python a.py"',
    OPTIONS.replace(
        "objective: lora", "objective: {command: [python, 3]}"
    ): "3:31 objective.command[1]: must be a text, not 3",
    OPTIONS.replace(
        "objective: lora", "objective: {comand: [a]}"
    ): '3:13 objective.comand: unknown key, did you mean "command"?',
    OPTIONS.replace("metric: val_loss", "metric: [a]"): '4:9 metric: must be a text, not ["a"]',
    HEAD + "parameters: []": "5:13 parameters: must be a mapping, not []",
    HEAD + "parameters: {}": "5:13 parameters: must hold at least 1",
    HEAD
    + "parameters: {m: 3, m.w: [1, 2]}": '5:25 parameters.m.w: "m" is a parameter itself, so it cannot contain another',
    HEAD
    + "parameters: {a: [1, 2], c: {expr: d}, d: {expr: c}}": "5:28 parameters.c: depends on itself: c -> d -> c",
    HEAD
    + "parameters: {a: [1, 2], b: {expr: log(a - 2)}}": "5:35 parameters.b.expr: `log(a - 2)` fails: math domain error where a: 1",
    HEAD
    + "parameters: {a: [1, x], b: {expr: a / 2}}": "5:35 parameters.b.expr: `a / 2` does arithmetic with 'x', not a number where a: \"x\"",
    HEAD
    + "parameters: {a: {min: 0, max: 8}, b: {expr: 1 / (a - 4)}}\nbaseline: {a: 4}": "6:11 baseline: `1 / (a - 4)` divides by zero where a: 4",
    HEAD
    + "parameters: {a: [1, 2], b: {expr: a + 9 ** 9 ** 9}}": "5:35 parameters.b.expr: `a + 9 ** 9 ** 9` gives a number that is too large where a: 1",
    HEAD
    + "parameters: {a: [lin, cos], b: {min: 0, max: 9, when: {a: [lni]}}}": '5:59 parameters.b.when.a: "a" can never be this: "lni" is none of "lin", "cos"; did you mean "lin"?',
    HEAD
    + "parameters: {a: {min: 0.0, max: 1.0}, b: {min: 0, max: 9, when: {a: 0.5}}}": '5:69 parameters.b.when.a: "a" is continuous, so it is never exactly 0.5',
    HEAD
    + "parameters: {a: 3, b: {min: 0, max: 9, when: {a: 4}}}": '5:50 parameters.b.when.a: "a" can never be this: it is 3',
    HEAD + "parameters: {a: 3, b: [1, 2]}\nbaseline: {a: 3}": '6:15 baseline.a: "a" is a constant',
    HEAD
    + "parameters: {a: [1, 2], b: {choices: [1, 2], when: {a: 2}}}\nbaseline: {b: 1}": '6:15 baseline.b: "b" does not exist in the baseline: its condition is not met',
    HEAD
    + "parameters: {a: [1, 2]}\nconstraints: [a > 1]\nbaseline: {a: 1}": "7:11 baseline: breaks the constraint `a > 1` (a: 1)",
    HEAD
    + "parameters: {a: [1, 2]}\nearly_stopping: {method: median, type: promotion}": '6:34 early_stopping.type: is not an option of "median", but of "hyperband", "asha"',
    HEAD
    + "parameters: {a: [1, 2]}\nsearch: {sampler: hyperopt-tpe, n_startup_trials: 3}": '6:33 search.n_startup_trials: unknown key, did you mean "n_startup_jobs"?',
    HEAD
    + "parameters: {a: [1, 2]}\nconstraints: [a > 2]": "6:14 constraints: no configuration satisfies them",
}

ALONE = "parameters: {a: [1, 2]}\n"
OTHERS = {  # another tool's words -> the only issue
    HEAD
    + ALONE
    + "direction: maximize": "6:1 direction: unknown key; here write goal: minimize or goal: maximize",
    HEAD + ALONE + "n_trials: 3": "6:1 n_trials: unknown key; here write budget: {trials: ...}",
    HEAD + "params: {a: [1, 2]}": "5:1 params: unknown key; here write parameters: {...}",
    HEAD + ALONE + "seed: 3": "6:1 seed: unknown key; here write search: {seed: ...}",
    HEAD + ALONE + "search: {sampler: bayes}": 'there is no "bayes", did you mean "tpe" or "gp"?',
    HEAD + ALONE + "search: {sampler: TPESampler}": 'there is no "TPESampler"; did you mean "tpe"?',
    HEAD.replace("val_loss", "step") + ALONE: '4:9 metric: must not be "step"',
    HEAD.replace("val_loss", "{name: loss, goal: maximize}")
    + ALONE: "; here write metric: loss and goal: maximize",
    HEAD.replace("val_loss", "{name: loss}") + ALONE: "; here write metric: loss",
    HEAD.replace("val_loss", "[a]") + ALONE: '4:9 metric: must be a text, not ["a"]',
    HEAD.replace("metric: val_loss\n", "") + ALONE: "metric: is missing",
}
NNI_SPACE = """\
{"lr": {"_type": "loguniform", "_value": [1e-5, 1e-2]},
 "units": {"_type": "choice", "_value": [64, 128]}}
"""


def test_a_search_space_of_another_tool_is_reported_as_one() -> None:
    whole, rate, units = issues(NNI_SPACE)
    assert whole.startswith("f.yaml:1:1: this looks like a search space for NNI; ")
    assert rate.endswith('lr._type: "_type" is NNI\'s; here write {min: ..., max: ..., log: true}')
    assert units.endswith("here write a list of choices, [a, b, c]")


def test_another_tools_word_is_reported_once(subtests: pytest.Subtests) -> None:
    for text in OTHERS:
        with subtests.test(text):
            (said,) = issues(text)
            assert OTHERS[text] in said


DIALECTS = {
    "method: bayes\nrun_cap: 4\nparameters: {lr: {distribution: log_uniform_values, min: 1, max: 2}}": "a W&B sweep file",
    "searchSpace: {lr: {_type: loguniform, _value: [1, 2]}}\ntrialCommand: a": "an NNI experiment file",
    "hyperparameters: {lr: {type: log, minval: -5, maxval: -2}}": "a Determined experiment file",
    "apiVersion: kubeflow.org/v1beta1\nkind: Experiment\nspec: {}": "a Katib experiment file",
    HEAD + "parameters: [{name: lr, parameterType: double, feasibleSpace: {}}]": "a Katib experiment file",
    HEAD + "parameters: {lr: {attributes: {low: 1, high: 2}}}": "an Optuna search space in JSON",
    HEAD + "parameters: {lr: {type: uniform_float, lower: 1, upper: 2}}": "a NePS or ConfigSpace space",
    "hydra: {sweeper: {params: {}}}": "a Hydra config",
    "base_model: a\nlora_r: [8, 16]": "an Axolotl config",
    HEAD + "parameters: {lr: {bounds: [1, 2], scaling: log}}": "an Ax experiment",
}


CONVERTED = ("method: bayes", "searchSpace:", "apiVersion:", "hydra:")  # whole files, not parts of one


def test_a_bad_parameter_is_reported_once_and_in_place(subtests: pytest.Subtests) -> None:
    for line in PARAMETERS:
        with subtests.test(line):
            (said,) = issues(f"{HEAD}parameters:\n  {line}\n")
            assert said.startswith("f.yaml:6:") and PARAMETERS[line] in said


def test_a_bad_setting_is_reported_once_and_in_place(subtests: pytest.Subtests) -> None:
    for line in SETTINGS:
        with subtests.test(line):
            (said,) = issues(f"{OPTIONS}{line}\n")
            assert SETTINGS[line] in said


def test_a_bad_file_is_reported_in_place(subtests: pytest.Subtests) -> None:
    for text in FILES:
        with subtests.test(text):
            assert FILES[text] in issues(text)[0]


def test_another_tools_file_is_recognised(subtests: pytest.Subtests) -> None:
    for text in DIALECTS:
        with subtests.test(text):
            message = f"this looks like {DIALECTS[text]}; hpsearch has its own language"
            advice = (
                "; to convert it: hpsearch init --from f.yaml -o space.yaml"
                if text.startswith(CONVERTED)
                else ""
            )
            assert issues(text)[0] == f"f.yaml:1:1: {message}{advice}"


def test_another_tools_key_says_what_to_write() -> None:
    said = issues(HEAD + "parameters: {lr: {distribution: log_uniform_values, min: 1, max: 2}}")
    assert said[1] == (
        'f.yaml:5:19 parameters.lr.distribution: "distribution" is W&B\'s; '
        "here write {min: ..., max: ..., log: true}"
    )


DISTRIBUTIONS: list[tuple[str, str]] = [
    ("distribution: uniform", "{min: ..., max: ...}"),
    ("distribution: int_uniform", "{min: ..., max: ...} with two integer bounds"),
    ("distribution: q_uniform", "{min: ..., max: ..., step: ...}"),
    ("distribution: log_uniform", "{min: ..., max: ..., log: true} with real bounds, no exponents"),
    ("distribution: normal", "{min: ..., max: ..., prior: {at: ...}}"),
    ("distribution: categorical", "a list of choices, [a, b, c]"),
    ("distribution: constant", "the value alone"),
    ("distribution: what", "{min: ..., max: ...} or a list of choices, [a, b, c]"),
    ("grid_search: [1, 2]", "a list of choices, [a, b, c], and search: {sampler: grid}"),
    ("q: 8", "step: ..., or neither beside log: true"),
    ("_type: quniform", "{min: ..., max: ..., step: ...}"),
    ("_type: loguniform", "{min: ..., max: ..., log: true}"),
]


def test_each_distribution_of_another_tool_has_its_own_words(subtests: pytest.Subtests) -> None:
    for written, instead in DISTRIBUTIONS:
        with subtests.test(written):
            said = issues(HEAD + f"parameters: {{lr: {{{written}, min: 1, max: 2}}}}")
            assert said[-1].endswith(f"; here write {instead}")


@pytest.mark.parametrize("value", ["1e400", ".inf", "99999999999999999999"])
def test_a_value_that_cannot_be_read_is_not_said_to_be_missing(value: str) -> None:
    said = issues(HEAD + f"parameters: {{a: [1, 2]}}\nbudget: {{time: {value}}}")
    assert len(said) == 1 and "6:16 budget.time: " in said[0]


def test_all_issues_are_reported_at_once_in_the_order_of_the_file() -> None:
    text = """version: 1
name: t
objective: lora
metric: 3
parameters:
  a: {mim: 1, max: 2}
  b: {expr: "aa + 1"}
  c: {min: .nan, max: 2}
  d: {min: 3, max: 2, log: true, step: 1}
constraints: ["q < 3"]
budget: {trials: 0, tmie: 3}
"""
    assert [said.partition(":")[2].partition(" ")[0] for said in issues(text)] == [
        "4:9",
        "6:7",
        "7:13",
        "8:12",
        "9:12",
        "9:40",
        "10:15",
        "11:18",
        "11:21",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "- " * 50_000,
        "? " * 1000,
        "a: " + "9" * 5000,
        "!" * 1000,
        "a: '" + "''" * 50_000,
        "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghi")),
        "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [[[[[[[[*a{i - 1}]]]]]]]]\n" for i in range(1, 200)),
        HEAD
        + "parameters:\n  p: [1, 2]\n"
        + "".join(f"  p{i}: {{expr: '{'+'.join(f'q{i}_{j}' for j in range(20))}'}}\n" for i in range(400)),
        HEAD + "parameters:\n  a.b" + ".b" * 400 + ": [1, 2]\n",
        "x" * 300_000,
        "a: &a [*a]\n",
        "a: &a {<<: *a}\n",
        "a: !!python/object/apply:os.system ['true']\n",
        "a: !!binary " + "A" * 100_000,
        "".join(f"k{i}: 1\n" for i in range(5_000)),
    ],
    ids=range(16),
)
@pytest.mark.timeout(10)
def test_a_file_made_to_hurt_is_refused_quickly(text: str) -> None:
    with pytest.raises(SpaceError):
        loads(text)


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9",
        "1 << 99999999999",
        "'a' * 10**9",
        "len('a' * 99999999999)",
        "[0] * 10**10",
        "'%99999999d' % 1",
        "round(n, -10**18)",
        "int('9' * 9)",
        "int('" + "9" * 480 + "')",
        "1" * 490,
        "0x" + "f" * 490,
        "-" * 490 + "n",
        "[" * 200 + "]" * 200,
        "n if n else " * 40 + "n",
    ],
)
@pytest.mark.timeout(10)
def test_an_expression_made_to_hurt_is_refused_quickly(expression: str) -> None:
    with pytest.raises(SpaceError, match=r"parameters\.y\.expr: "):
        loads(HEAD + f'parameters:\n  n: {{min: 1, max: 9}}\n  y: {{expr: "{expression}"}}\n')


@pytest.mark.parametrize("expression", ["2**n**n", "(n**20)**(n*7)", "exp(exp(exp(n)))"])
@pytest.mark.timeout(10)
def test_an_expression_with_few_values_is_measured_quickly(expression: str) -> None:
    space = loads(HEAD + f'parameters:\n  n: {{min: 1, max: 9}}\n  y: {{expr: "{expression}"}}\n').space
    ((path, told),) = space.lacking()
    assert path == "parameters.y.expr" and "gives a number that is too large where n: " in told
    assert 0 < len(list(space.grid())) < 9


LONG = f"'max({'a, ' * 99}a) < 999'"
TEN = "parameters: {" + ", ".join(f"{name}: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]" for name in "abcd") + "}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{TEN}constraints: [{', '.join(['a < 99'] * 1001)}]", "6:14 constraints: must hold at most 1000"),
        (
            f"{TEN}constraints: [{LONG}{', b < 99' * 900}]",
            None,
        ),
        (
            f"{TEN}constraints: [{', '.join([LONG] * 80)}]",
            "6:14 constraints: the expressions of a space have at most 20,000 characters in total, not ",
        ),
        (
            "parameters:\n  a: [1, 2]\n"
            + "".join(f"  y{i}: {{value: 1, when: {LONG}}}\n" for i in range(70)),
            "6:3 parameters: the expressions of a space have at most 20,000 characters in total, not 21,630",
        ),
        (
            "parameters: {a: {min: 1, max: 5000}, b: {min: 1, max: 5000}}\nsearch: {sampler: grid}\n"
            "constraints: [a + b < 3]",
            "6:19 search.sampler: the grid has 25,000,000 points before the expressions leave some out, but at "
            "most 100,000 can be tried",
        ),
    ],
)
@pytest.mark.timeout(60)
def test_a_small_file_is_no_endless_work(text: str, told: str | None) -> None:
    if told is not None:
        assert told in issues(HEAD + text)[0]
        return
    space = loads(HEAD + text).space
    assert space.grid_size == 10_000 and space.few() is None, "they are not counted one by one"
    assert space.feasible_share() == 1


@pytest.mark.timeout(60)
def test_many_expressions_are_tried_less_often() -> None:
    """Thousands of constraints, hundreds of long derived values; none of them wrong."""
    constraints = ", ".join(['"x < 2"'] * 400)
    long = "".join(f"  y{i}: {{expr: 'max({', '.join(['x'] * 120)})'}}\n" for i in range(25))
    for rest, share in ((f"constraints: [{constraints}]\n", 1.0), (f'{long}constraints: ["x < 0.5"]\n', 0.5)):
        space = loads(f"{HEAD}parameters:\n  x: {{min: 0.0, max: 1.0}}\n{rest}").space
        assert space.feasible_share() == pytest.approx(share, abs=0.2)
    empty = f"{HEAD}parameters:\n  x: {{min: 0.0, max: 1.0}}\n{long}constraints: ['x > 2']\n"
    with pytest.raises(SpaceError, match=r"none of 1,[0-9]{3} random configurations"):
        loads(empty).space.sample(random.Random(0))


@pytest.mark.timeout(10)
def test_no_more_of_a_file_is_read_than_a_space_may_hold(tmp_path: Path) -> None:
    with (tmp_path / "huge.yaml").open("wb") as stream:
        stream.truncate(10**12)  # a hole: takes no room on the disk
    for endless in (tmp_path / "huge.yaml", Path("/dev/zero")):
        with pytest.raises(SpaceError, match=r"^[^:]*: larger than 200,000 characters"):
            load(endless)
        with pytest.raises(SpaceError, match=r"^[^:]*: larger than 200,000 characters"):
            load_document(endless)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes("name: é".encode("latin-1"))
    cases: dict[str | Path, str] = {
        tmp_path: "a directory; name the file in it",
        tmp_path / "none.yaml": "no such file",
        tmp_path / "latin.yaml": "not UTF-8: byte 6 cannot be read",
        "a\0b": "cannot be read: ",
        "x" * 5000: "cannot be read: File name too long",
        "no_such_space": "no such file, and no such space ships; there is",
    }
    for source, message in cases.items():
        with pytest.raises(SpaceError) as caught:
            load(source)
        assert message in str(caught.value)


@pytest.mark.parametrize("name", shipped())
def test_a_misspelt_shipped_space_is_named(name: str) -> None:
    with pytest.raises(SpaceError, match=f'did you mean "{name}"'):
        load(name + "x")


def test_of_very_many_issues_the_first_are_shown() -> None:
    keys = "".join(f"k{number}: 1\n" for number in range(10_000))
    with pytest.raises(SpaceError) as caught:
        loads(OPTIONS + keys, "f.yaml")
    assert len(caught.value.issues) == 10_000
    told = str(caught.value).splitlines()
    assert told[0].startswith("f.yaml:7:1 k0: unknown key")
    assert told[-1] == "and 9,900 more like these" and len(told) == 101
