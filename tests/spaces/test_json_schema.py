"""The JSON Schema: in step with the loader, and its errors stand at the field."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from hpsearch.spaces import SpaceError, Spec, json_schema, load, loads, shipped
from hpsearch.spaces.document import read
from hpsearch.spaces.parameters import PARAMETERS
from hpsearch.spaces.samplers import SAMPLERS
from hpsearch.spaces.settings import Budget, Command, Execution
from hpsearch.spaces.stopping import METHODS

SCHEMA = json_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
SMALL = "version: 1\nname: t\nobjective: lora\nmetric: val_loss\nparameters:\n  x: {min: 0.0, max: 1.0}\n"


def faults(text: str) -> list[str]:
    """Where the schema finds the text wrong."""
    data, _, _ = read(text, "f.yaml")
    return [error.json_path.removeprefix("$").removeprefix(".") for error in VALIDATOR.iter_errors(data)]


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("choice", ["anyOf", "oneOf"])
def test_no_error_is_any_of_many(choice: str) -> None:
    assert f"'{choice}'" not in str(SCHEMA)


def test_a_full_file_is_valid(text: str, spec: Spec) -> None:
    assert faults(text) == []
    assert list(VALIDATOR.iter_errors(spec.to_json())) == []


@pytest.mark.parametrize("name", shipped())
def test_what_ships_is_valid(name: str) -> None:
    assert list(VALIDATOR.iter_errors(load(name).to_json())) == []


GOOD: list[str] = [
    "  y: [1, a, null, [b]]",
    "  y: 3",
    "  y: text",
    "  y: {value: null}",
    "  y: {expr: x * 2}",
    "  y: {choices: [1, 2], when: x > 0.5, prior: {at: 1}}",
    "  y: {value: [1], when: {x: [1, 2]}}",
    "objective: {command: [a, b]}",
    "search: {sampler: grid}",
    "search: {seed: 3}",
    "search: {}",
    "search: {sampler: qmc, qmc_type: halton}",
    "budget: {time: 90}",
    "budget: {time: 1.5h, trials: null}",
    "early_stopping: {method: none}",
    "early_stopping: {method: percentile, percentile: 25, max: 9}",
    "execution: {workers: auto, trial_timeout: null}",
    "execution: {workers: 3}",
    "report_to: [tensorboard, mlflow]",
    "report_to: wandb",
    "report_to: none",
    "baseline: {}",
]


def test_a_good_line_is_valid(subtests: pytest.Subtests) -> None:
    for line in GOOD:
        with subtests.test(line):
            kept = SMALL.replace("objective: lora\n", "") if line.startswith("objective") else SMALL
            assert faults(kept + line) == []


@pytest.mark.parametrize(
    "line",
    [
        "execution: {cpus_per_trial: 4, gpus_per_trial: 0.25, max_memory: 4GiB}",
        "execution: {cpus_per_trial: 0.5, gpus_per_trial: 0, max_memory: 1073741824}",
        "execution: {cpus_per_trial: 1, gpus_per_trial: 1, max_memory: 500 MB}",
        "execution: {cpus_per_trial: 2.0, gpus_per_trial: 2.0, max_memory: 1.5t}",
        "execution: {cpus_per_trial: null, gpus_per_trial: null, max_memory: null}",
        "execution: {max_memory: '5000000'}",
        "execution: {max_memory: 4GIB}",
        "execution: {max_memory: 4e9}",
        "execution: {max_memory: 5000000.5}",
        "execution: {max_memory: 2048k}",
    ],
)
def test_an_amount_that_the_loader_takes_is_valid(line: str) -> None:
    loads(SMALL + line)
    assert faults(SMALL + line) == []


BAD: dict[str, str] = {
    "  y: {mim: 1, min: 1, max: 2}": "parameters.y",
    "  y: {min: 1}": "parameters.y",
    "  y: {min: a, max: 2}": "parameters.y.min",
    "  y: {min: 1, max: 2, log: yes}": "parameters.y.log",
    "  y: {min: 1, max: 2, log: true, step: 1}": "parameters.y.step",
    "  y: {min: 1, max: 2, prior: {at: 1, confidence: hihg}}": "parameters.y.prior.confidence",
    "  y: {min: 1, max: 2, when: 3}": "parameters.y.when",
    "  y: {choices: 3}": "parameters.y.choices",
    "  y: {choices: [1], min: 3}": "parameters.y",
    "  y: {expr: 3}": "parameters.y.expr",
    "  y:": "parameters.y",
    "  y: []": "parameters.y",
    "  y-z: 3": "parameters",
    "goal: min": "goal",
    "constraints: x < 3": "constraints",
    "constraints: [3]": "constraints[0]",
    "search: tpe": "search",
    "search: {sampler: tpee}": "search.sampler",
    "search: {n_startup: 3}": "search",
    "search: {sampler: random, n_startup_trials: 3}": "search",
    "search: {sampler: gp, n_startup_trials: -3}": "search.n_startup_trials",
    "early_stopping: none": "early_stopping",
    "early_stopping: {}": "early_stopping",
    "early_stopping: {method: ashas}": "early_stopping.method",
    "early_stopping: {method: hyperband, min: 1}": "early_stopping",
    "early_stopping: {method: hyperband, min: 1, max: 9, eta: 1}": "early_stopping.eta",
    "early_stopping: {method: median, resource: step}": "early_stopping.resource",
    "budget: 40": "budget",
    "budget: {trials: 0}": "budget.trials",
    "budget: {time: 30 min}": "budget.time",
    "budget: {time: 0.0s}": "budget.time",
    "budget: {time: 0}": "budget.time",
    "execution: {workers: many}": "execution.workers",
    "execution: {workers: 0}": "execution.workers",
    "execution: {cpus_per_trial: 0.00001}": "execution.cpus_per_trial",
    "execution: {gpus_per_trial: 0.00009}": "execution.gpus_per_trial",
    "execution: {cpus_per_trial: 0}": "execution.cpus_per_trial",
    "execution: {cpus_per_trial: 1.5}": "execution.cpus_per_trial",
    "execution: {cpus_per_trial: many}": "execution.cpus_per_trial",
    "execution: {gpus_per_trial: -1}": "execution.gpus_per_trial",
    "execution: {gpus_per_trial: 2.5}": "execution.gpus_per_trial",
    "execution: {gpus_per_trial: true}": "execution.gpus_per_trial",
    "execution: {max_memory: 0}": "execution.max_memory",
    "execution: {max_memory: 0GiB}": "execution.max_memory",
    "execution: {max_memory: 5}": "execution.max_memory",
    "execution: {max_memory: '500'}": "execution.max_memory",
    "execution: {max_memory: 100k}": "execution.max_memory",
    "execution: {max_memory: 4 gigabytes}": "execution.max_memory",
    "execution: {max_memory: 4\N{KELVIN SIGN}}": "execution.max_memory",
    "execution: {max_memory: [4]}": "execution.max_memory",
    "execution: {pack: many}": "execution.pack",
    "execution: {pack: 0}": "execution.pack",
    "confirm: {seeds: 1}": "confirm.seeds",
    "confirm: {top: -1}": "confirm.top",
    "confirm: 3": "confirm",
    "early_stopping: {method: asha, type: pausing, min: 1, max: 9}": "early_stopping.type",
    "objective: {command: []}": "objective.command",
    "objective: {comand: [a], command: [a]}": "objective",
    "objective: [a]": "objective",
    "report_to: tensorbord": "report_to",
}


def test_a_bad_line_is_one_error_at_its_field(subtests: pytest.Subtests) -> None:
    for line, place in BAD.items():
        with subtests.test(line):
            text = (SMALL.replace("objective: lora\n", "") if line.startswith("objective") else SMALL) + line
            assert faults(text) == [place]
            with pytest.raises(SpaceError):
                loads(text)


def test_every_key_of_the_loader_is_in_the_schema_with_its_help() -> None:
    models: list[Any] = [
        *PARAMETERS.values(),
        *SAMPLERS.values(),
        *METHODS.values(),
        Budget,
        Command,
        Execution,
    ]
    sections: list[tuple[type[Any], dict[str, Any]]] = [(Spec, SCHEMA)]
    sections += [(model, SCHEMA["$defs"][model.__name__]) for model in models]
    for model, schema in sections:
        assert list(schema["properties"]) == model.file_keys()
        assert schema["additionalProperties"] is False
        for key, described in schema["properties"].items():
            assert key in ("sampler", "method") or described["description"].endswith("."), (model, key)
