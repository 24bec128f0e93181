"""What a search is going to do, and what speaks against it."""

from __future__ import annotations

import getpass
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search.preflight import checks
from hpsearch.search.preflight.objective import own_code
from hpsearch.search.scheduling.rungs import Bracket, plan_of
from hpsearch.spaces import SpaceError, Spec, loads, warnings
from hpsearch.spaces.document import read
from hpsearch.trainer.config.models import FINETUNING_TYPES, LoraConfig, PretrainConfig, TrainConfig
from hpsearch.trainer.config.rules import rules
from hpsearch.trainer.config.training import OPTIMIZERS, SCHEDULERS

MakeSpec = Callable[..., Spec]

LORA: dict[str, Any] = {
    "objective": "lora",
    "metric": "val_loss",
    "parameters": {
        "learning_rate": {"min": 1e-4, "max": 1e-2, "log": True},
        "batch_size": [4, 8],
        "max_samples": 900,
        "eval_every": 100,
    },
    "early_stopping": {"method": "hyperband", "min": 100, "max": 900, "eta": 3},
    "budget": {"trials": 60},
}


def hyperband(least: int, most: int, eta: int = 3) -> dict[str, Any]:
    return {"method": "hyperband", "min": least, "max": most, "eta": eta}


def parameters(**changes: Any) -> dict[str, Any]:
    """LoRA's parameters with some changed; None takes one away."""
    changed = LORA["parameters"] | changes
    return {name: value for name, value in changed.items() if value is not None}


def found(spec: Spec) -> list[tuple[str, str]]:
    return [
        (issue.path, issue.message)
        for issue in sorted(
            [*warnings(spec), *checks.warnings(spec)], key=lambda issue: (issue.line, issue.column)
        )
    ]


def test_the_plan_of_hyperband_follows_from_its_rungs(make_spec: MakeSpec) -> None:
    made = plan_of(make_spec(early_stopping=hyperband(1, 9), budget={"trials": 17}))
    assert made.brackets == [Bracket((1, 3), 9 / 17), Bracket((3,), 5 / 17), Bracket((), 3 / 17)]
    assert made.complete == pytest.approx(9 / 9 + 5 / 3 + 3)
    spent = 9 * (1 + 2 / 3 + 6 / 9) + 5 * (3 + 6 / 3) + 3 * 9
    assert made.saving == pytest.approx(1 - spent / 17 / 9)


@pytest.mark.parametrize(
    ("changes", "highest"),
    [
        ({"lora_r": 256}, 256),
        ({"lora_r": {"min": 2, "max": 512, "factor": 2}}, 512),
        ({"lora_r": [8, 64]}, None),
        ({"lora_r": 256, "finetuning_type": "full"}, None),
    ],
)
def test_a_rank_above_the_width_of_the_base_is_reported(
    make_spec: MakeSpec, changes: dict[str, Any], highest: int | None
) -> None:
    told = [
        message
        for path, message in found(make_spec(**LORA | {"parameters": parameters(**changes)}))
        if "above the width" in message and path == "parameters.lora_r"
    ]
    wanted = f"is up to {highest}, above the width of the base: a rank above 128 adds nothing to adapters"
    assert told == ([wanted] if highest else [])


def test_successive_halving_is_one_bracket_that_may_begin_later(make_spec: MakeSpec) -> None:
    stopping = hyperband(1, 27) | {"method": "asha", "min_early_stopping_rate": 1}
    made = plan_of(make_spec(early_stopping=stopping, budget={"trials": 9}))
    assert made.brackets == [Bracket((3, 9), 1.0)]
    assert made.complete == pytest.approx(1.0)


@pytest.mark.parametrize("stopping", [{"method": "none"}, {"method": "median"}])
def test_no_rungs_no_plan(make_spec: MakeSpec, stopping: dict[str, Any]) -> None:
    made = plan_of(make_spec(early_stopping=stopping))
    assert (made.brackets, made.complete, made.saving) == ([], None, None)


def test_a_budget_of_time_alone_promises_no_number_of_trials(make_spec: MakeSpec) -> None:
    made = plan_of(make_spec(early_stopping=hyperband(1, 9), budget={"time": 60}))
    assert (made.trials, made.complete) == (None, None)


WARNED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a wide range without log": (
        {"parameters": parameters(learning_rate={"min": 1e-4, "max": 1e-2})},
        "parameters.learning_rate",
        "add log: true",
    ),
    "steps while the batch size varies": (
        {"parameters": parameters(max_samples=None, max_steps=900)},
        "early_stopping.resource",
        "count samples",
    ),
    "one rung": (
        {"early_stopping": hyperband(400, 900), "parameters": parameters(eval_every=400)},
        "early_stopping.min",
        "min * eta = 1200 is above max = 900",
    ),
    "a grid larger than the budget": (
        {
            "parameters": parameters(learning_rate=None, lora_r=[2, 4, 8], batch_size=[4, 8, 16]),
            "search": {"sampler": "grid"},
            "budget": {"trials": 8},
        },
        "budget.trials",
        "the grid has 9 configurations",
    ),
    "constraints that leave little": ({"constraints": ["learning_rate < 1.1e-4"]}, "constraints", "only 2"),
    "many brackets": (
        {"early_stopping": hyperband(1, 900), "parameters": parameters(eval_every=1)},
        "early_stopping",
        "7 brackets",
    ),
    "an audit that tells nothing": ({"audit": 0.03}, "audit", "and a rate needs 5 audited trials"),
    "a confirmation that does not fit": (
        {"confirm": {"top": 3, "seeds": 3}, "budget": {"samples": 8100}},
        "confirm",
        "need budget.samples: 10800, since trials must finish first; 8100 are enough for 3 x 2",
    ),
    "brackets that starve": ({"budget": {"trials": 5}}, "budget.trials", "fewer than two"),
    "an option of another scheduler": (
        {"parameters": parameters(lr_scheduler="cosine", lr_cycles=3)},
        "parameters.lr_cycles",
        "unless lr_scheduler is cosine_with_restarts, which is never so here",
    ),
    "an option of the scheduler that stands when none is named": (
        {"parameters": parameters(lr_power=[1.0, 2.0])},
        "parameters.lr_power",
        "unless lr_scheduler is polynomial, which is never so here",
    ),
    "an option that is searched for schedulers without it": (
        {"parameters": parameters(lr_scheduler=["cosine", "polynomial"], lr_power={"min": 0.5, "max": 3.0})},
        "parameters.lr_power",
        "add when: {lr_scheduler: polynomial}",
    ),
    "an option of another optimizer": (
        {"parameters": parameters(optimizer="lion", momentum=0.9)},
        "parameters.momentum",
        "unless optimizer is sgd, or muon with a finetuning_type of lora or full, which is never so here",
    ),
    "an option of the optimizer that is searched beside others": (
        {"parameters": parameters(optimizer=["adamw", "lion"], lion_beta2=[0.98, 0.99])},
        "parameters.lion_beta2",
        "unless optimizer is lion: add when: {optimizer: lion}",
    ),
    "an adapter where none is": (
        {"parameters": parameters(finetuning_type=["full", "linear"], lora_r=[2, 4])},
        "parameters.lora_r",
        "unless finetuning_type is lora, which is never so here",
    ),
    "an alpha derived for no adapter": (
        {"parameters": parameters(finetuning_type="full", lora_alpha={"expr": "2 * batch_size"})},
        "parameters.lora_alpha",
        "unless finetuning_type is lora, which is never so here",
    ),
    "a patience that is not there": (
        {"parameters": parameters(early_stopping_min_delta=0.01)},
        "parameters.early_stopping_min_delta",
        "unless early_stopping_patience is above 0, which is never so here",
    ),
    "a patience that is there at times": (
        {"parameters": parameters(early_stopping_min_delta=[0.01, 0.1], early_stopping_patience=[0, 2])},
        "parameters.early_stopping_min_delta",
        "add when: early_stopping_patience > 0",
    ),
    "a floor that is never reached": (
        {"parameters": parameters(lr_scheduler="constant", min_lr_ratio=0.1)},
        "parameters.min_lr_ratio",
        "unless lr_scheduler is not constant, which is never so here",
    ),
    "an epoch of a run that is not measured in any": (
        {"parameters": parameters(samples_per_epoch=900)},
        "parameters.samples_per_epoch",
        "unless num_train_epochs is given, which is never so here",
    ),
    "a share beside a file": (
        {"parameters": parameters(train_file=__file__, validation_file=__file__, validation_split=0.2)},
        "parameters.validation_split",
        "unless validation_file is left out, which is never so here",
    ),
    "a switch that is searched for nothing": (
        {"parameters": parameters(nesterov=[True, False])},
        "parameters.nesterov",
        "unless optimizer is sgd, which is never so here",
    ),
    "a choice that the objective refuses": (
        {"parameters": parameters(lr_scheduler=["linear", "cosin"])},
        "parameters.lr_scheduler",
        'did you mean "cosine"?',
    ),
}


@pytest.mark.parametrize("name", WARNED)
def test_warns(make_spec: MakeSpec, name: str) -> None:
    fields, path, part = WARNED[name]
    spec = make_spec(**LORA | fields)
    checks.check_objective(spec)  # a warning, and no error
    assert [message for at, message in found(spec) if at == path and part in message]


def test_a_late_rung_is_meant_to_be_the_only_one(make_spec: MakeSpec) -> None:
    late = {"early_stopping": hyperband(600, 900), "parameters": parameters(eval_every=600)}
    assert not [message for at, message in found(make_spec(**LORA | late)) if at == "early_stopping.min"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "lr_scheduler": list(SCHEDULERS),
            "lr_gamma": 0.5,
            "lr_power": {"min": 0.5, "max": 3.0, "when": {"lr_scheduler": "polynomial"}},
            "lr_plateau_factor": {"min": 0.1, "max": 0.9, "when": 'lr_scheduler == "reduce_on_plateau"'},
        },
        {
            "optimizer": list(OPTIMIZERS),
            "momentum": {"min": 0.5, "max": 0.9, "when": {"optimizer": ["sgd", "muon"]}},
            "nesterov": {"value": True, "when": {"optimizer": "sgd"}},
            "lion_beta1": 0.8,
            "adam_beta2": {"min": 0.9, "max": 0.99, "when": {"optimizer": "adamw"}},
        },
        {
            "finetuning_type": ["lora", "full"],
            "lora_r": {"min": 2, "max": 8, "when": {"finetuning_type": "lora"}},
            "lora_alpha": {"expr": "2 * lora_r"},
            "use_rslora": True,
            "min_lr_ratio": 0.1,
            "lr_scheduler": ["constant", "linear"],
        },
        {"early_stopping_patience": [0, 2], "early_stopping_min_delta": 0.1, "nesterov": False},
        {
            "early_stopping_patience": [0, 2],
            "early_stopping_min_delta": {"min": 0.0, "max": 0.1, "when": "early_stopping_patience > 0"},
        },
    ],
    ids=[
        "plain",
        "every scheduler",
        "every optimizer",
        "with adapters and without",
        "constants",
        "a patience",
    ],
)
def test_a_sound_space_has_no_warning(make_spec: MakeSpec, options: dict[str, Any]) -> None:
    spec = make_spec(**LORA | {"parameters": parameters(**options)})
    checks.check_objective(spec)
    assert found(spec) == []


@pytest.mark.parametrize("config", [LoraConfig, PretrainConfig])
def test_what_a_warning_tells_to_add_is_what_the_trainer_needs(
    make_spec: MakeSpec, config: type[TrainConfig]
) -> None:
    """Each `when` is one that a space takes, and where it holds the parameter is used."""
    others: dict[str, Any] = {
        "lr_scheduler": list(SCHEDULERS),
        "optimizer": list(OPTIMIZERS),
        "finetuning_type": list(FINETUNING_TYPES),
        "use_dora": [False, True],
        "load_best_model_at_end": [False, True],
        "early_stopping_patience": [0, 2],
        "num_train_epochs": [None, 3],
        "validation_file": [None, "held.txt"],
    }
    assert config.needs.keys() < rules(config).keys()
    for name, need in config.needs.items():
        when, _, faults = read(need.when, name)
        assert not faults
        space = make_spec(parameters=others | {"x": {"value": 1, "when": when}}).space
        rng = random.Random(0)
        drawn = [space.sample(rng) for _ in range(100)]
        assert {"x" in values for values in drawn} == {True, False}, name
        assert all(need.met(values) for values in drawn if "x" in values), name


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "the name of another number": (
        {"metric": "perplexity"},
        "metric",
        "is perplexity, but the value that lora reports is val_loss",
    ),
    "unknown": ({"parameters": parameters(lerning_rate=0.1)}, "parameters.lerning_rate", '"learning_rate"?'),
    "unlike anything": ({"parameters": parameters(zzz=1)}, "parameters.zzz", "it knows adam_beta1"),
    "a value that is never right": (
        {"parameters": parameters(lr_scheduler="cosin")},
        "parameters.lr_scheduler",
        'did you mean "cosine"?',
    ),
    "a scheduler by its name elsewhere": (
        {"parameters": parameters(lr_scheduler="reduce_lr_on_plateau")},
        "parameters.lr_scheduler",
        'did you mean "reduce_on_plateau"?',
    ),
    "an option out of its range": (
        {"parameters": parameters(lr_scheduler="step", lr_gamma=1.5)},
        "parameters.lr_gamma",
        "needs a number in (0, 1)",
    ),
    "no length": (
        {"parameters": parameters(max_samples=None), "early_stopping": {"method": "none"}},
        "parameters",
        "needs exactly one: the run's length",
    ),
    "a rung between reports": (
        {"parameters": parameters(eval_every=70)},
        "parameters.eval_every",
        "rung 100",
    ),
    "another end": ({"parameters": parameters(max_samples=800)}, "early_stopping.max", "ends at max_samples"),
    "no grid of reports": (
        {"parameters": parameters(eval_every=None)},
        "early_stopping.min",
        "eval_every: 100",
    ),
    "no such objective": ({"objective": "loar"}, "objective", 'did you mean "lora"?'),
    "what fsdp does not share out": (
        {
            "parameters": parameters(optimizer="muon", finetuning_type="full"),
            "execution": {"processes_per_trial": 2, "strategy": "fsdp"},
        },
        "parameters.optimizer",
        "steps whole matrices",
    ),
    "what is refused for two reasons": (
        {"parameters": parameters(max_samples=1, max_steps=5), "early_stopping": {"method": "none"}},
        "parameters.max_samples",
        "needs exactly one",
    ),
    "a strategy for a script": (
        {"objective": {"command": ["true"]}, "execution": {"processes_per_trial": 2, "strategy": "ddp"}},
        "execution.strategy",
        "yours divides a trial among its 2 processes itself",
    ),
    "processes of what has one": (
        {"objective": "sklearn", "execution": {"processes_per_trial": 2}},
        "execution.processes_per_trial",
        'the objective "sklearn" trains in one process',
    ),
    "a preset among the parameters": (
        {"parameters": LORA["parameters"] | {"preset": "quick"}},
        "parameters.preset",
        "a preset stands beside `parameters`",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(make_spec: MakeSpec, name: str) -> None:
    fields, path, part = REFUSED[name]
    with pytest.raises(SpaceError) as caught:
        checks.check_objective(make_spec(**LORA | fields))
    assert [issue for issue in caught.value.issues if issue.path == path and part in issue.message]


def test_an_unknown_parameter_is_refused_at_its_place() -> None:
    spec = loads(
        "version: 1\nname: s\nobjective: lora\nmetric: m\nparameters:\n  lora_rank: [2, 4]\n"
        "  max_samples: 64\nbudget: {trials: 2}\n",
        "s.yaml",
    )
    with pytest.raises(SpaceError, match=r"^s\.yaml:6:14 parameters\.lora_rank: .*has no such parameter"):
        checks.check_objective(spec)


def warned_of(make_spec: MakeSpec, source: str, **values: Any) -> list[str]:
    Path("mine.py").write_text(source, encoding="utf-8")
    spec = make_spec(objective="mine.py:train", parameters=values)
    checks.check_objective(spec)
    return [path for path, message in found(spec) if "never reads" in message]


def test_a_function_is_read_and_not_run(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = (
        'raise SystemExit("imported")\ntrain = lambda trial: trial.params["x"] + trial.params.get("y", 0)\n'
    )
    values = {"x": [1, 2], "y": 3, "z": [4, 5], "a.b": 1, "feeds": [1, 2], "z2": {"expr": "2 * feeds"}}
    assert warned_of(make_spec, source, **values) == ["parameters.z", "parameters.a.b", "parameters.z2"]


def test_a_function_that_hands_its_parameters_on_is_not_judged(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = 'def train(trial):\n    trial.params["x"]\n    return fit(**trial.params)\n'
    assert warned_of(make_spec, source, z=[1, 2]) == []


@pytest.mark.parametrize(
    ("objective", "parameter", "use"),
    [
        ({"command": ["true"]}, {"seed": 42}, "--seed=${seed} in the command"),
        ({"command": ["true"]}, {"train.random_state": 0}, "--seed=${seed} in the command"),
        ({"command": ["true"]}, {"manualSeed": 1}, "--seed=${seed} in the command"),
        ("mine.py:train", {"seed": 42}, "trial.seed in the function"),
        ({"command": ["true"]}, {"seed": [1, 2]}, None),  # it is searched
        ({"command": ["true"]}, {"split_seed": 1}, None),  # the data is to stay the same
        ({"command": ["true"]}, {"seeds": 3}, None),
        ("lora", {"seed": 1}, None),
    ],
)
def test_a_seed_that_is_the_same_in_all_trainings_is_warned_of(
    make_spec: MakeSpec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    objective: Any,
    parameter: dict[str, Any],
    use: str | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def train(trial): ...\n")
    spec = make_spec(objective=objective, parameters={"x": {"min": 0, "max": 1}} | parameter)
    told = [(path, message) for path, message in found(spec) if "the same in all trainings" in message]
    assert [path for path, _ in told] == ([f"parameters.{name}" for name in parameter] if use else [])
    assert all(message.endswith(f"use {use}") for _, message in told)


def test_planning_loads_neither_optuna_nor_torch() -> None:
    code = "import sys, hpsearch.search.preflight.checks; print(*({'optuna', 'torch', 'numpy'} & sys.modules.keys()))"
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""


def test_a_search_says_which_code_it_runs(make_spec: MakeSpec, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("raise SystemExit('nobody imports this')\n")
    user = getpass.getuser()
    for name in ("mine:train", "mine.py:train"):
        assert (
            own_code(make_spec(objective=name)) == f"each trial runs train() of {tmp_path}/mine.py, as {user}"
        )
    command = {"command": ["python", "a b.py", "${args}"]}
    said = f"each trial runs python 'a b.py' '${{args}}' in {tmp_path}, as {user}"
    assert own_code(make_spec(objective=command)) == said
    assert own_code(make_spec(**LORA)) is None


HELPED = {
    "k": {"min": 1, "max": 3, "pass": False},
    "learning_rate": {"expr": "0.001 * k"},
    "max_samples": 900,
    "eval_every": 100,
}


def test_a_built_in_objective_need_not_know_a_helper(make_spec: MakeSpec) -> None:
    checks.check_objective(make_spec(**LORA | {"parameters": HELPED}))


def test_a_command_that_asks_for_a_helper_is_refused(make_spec: MakeSpec) -> None:
    checks.check_objective(make_spec(objective={"command": ["true", "${args}"]}, parameters=HELPED))
    spec = make_spec(objective={"command": ["true", "--k=${k}"]}, parameters=HELPED)
    with pytest.raises(SpaceError, match=r'parameters\.k\.pass: is false, but .*"--k=\$\{k\}" needs'):
        checks.check_objective(spec)


def test_a_function_that_reads_a_helper_is_warned_of(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = "def train(trial):\n    return trial.params['k'] + trial.params['learning_rate']\n"
    Path("mine.py").write_text(source, encoding="utf-8")
    values = {name: HELPED[name] for name in ("k", "learning_rate")}
    spec = make_spec(objective="mine.py:train", parameters=values, budget={"trials": 3})
    assert found(spec) == [("parameters.k.pass", 'is false, but "mine.py:train" reads trial.params["k"]')]
