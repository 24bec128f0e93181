"""What a search is going to do, and what speaks against it."""

from __future__ import annotations

import getpass
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search import plan
from hpsearch.search.cli.spaces import all_warnings
from hpsearch.search.scheduling import Bracket
from hpsearch.spaces import SpaceError, Spec, loads
from hpsearch.trainer.config import SCHEDULERS

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
    return [(issue.path, issue.message) for issue in all_warnings(spec)]


def test_hyperband_comes_to_what_its_rungs_let_through(make_spec: MakeSpec) -> None:
    made = plan.plan_of(make_spec(early_stopping=hyperband(1, 9), budget={"trials": 17}))
    assert made.brackets == [Bracket((1, 3), 9 / 17), Bracket((3,), 5 / 17), Bracket((), 3 / 17)]
    assert made.complete == pytest.approx(9 / 9 + 5 / 3 + 3)
    spent = 9 * (1 + 2 / 3 + 6 / 9) + 5 * (3 + 6 / 3) + 3 * 9
    assert made.saving == pytest.approx(1 - spent / 17 / 9)


def test_successive_halving_is_one_bracket_that_may_begin_later(make_spec: MakeSpec) -> None:
    stopping = hyperband(1, 27) | {"method": "asha", "min_early_stopping_rate": 1}
    made = plan.plan_of(make_spec(early_stopping=stopping, budget={"trials": 9}))
    assert made.brackets == [Bracket((3, 9), 1.0)]
    assert made.complete == pytest.approx(1.0)


@pytest.mark.parametrize("stopping", [{"method": "none"}, {"method": "median"}])
def test_no_rungs_no_plan(make_spec: MakeSpec, stopping: dict[str, Any]) -> None:
    made = plan.plan_of(make_spec(early_stopping=stopping))
    assert (made.brackets, made.complete, made.saving) == ([], None, None)


def test_a_budget_of_time_alone_promises_no_number_of_trials(make_spec: MakeSpec) -> None:
    made = plan.plan_of(make_spec(early_stopping=hyperband(1, 9), budget={"time": 60}))
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
    "brackets that starve": ({"budget": {"trials": 5}}, "budget.trials", "fewer than two"),
    "an option of another scheduler": (
        {"parameters": parameters(lr_scheduler="cosine", lr_cycles=3)},
        "parameters.lr_cycles",
        "unless lr_scheduler is cosine_with_restarts, which it never is here",
    ),
    "an option of the scheduler that stands when none is named": (
        {"parameters": parameters(lr_power=[1.0, 2.0])},
        "parameters.lr_power",
        "unless lr_scheduler is polynomial, which it never is here",
    ),
    "an option that is searched for schedulers without it": (
        {"parameters": parameters(lr_scheduler=["cosine", "polynomial"], lr_power={"min": 0.5, "max": 3.0})},
        "parameters.lr_power",
        "add when: {lr_scheduler: polynomial}",
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
    plan.check_objective(spec)  # a warning, and no error
    assert [message for at, message in found(spec) if at == path and part in message]


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
    ],
    ids=["plain", "every scheduler"],
)
def test_a_sound_space_has_no_warning(make_spec: MakeSpec, options: dict[str, Any]) -> None:
    spec = make_spec(**LORA | {"parameters": parameters(**options)})
    plan.check_objective(spec)
    assert found(spec) == []


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
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
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(make_spec: MakeSpec, name: str) -> None:
    fields, path, part = REFUSED[name]
    with pytest.raises(SpaceError) as caught:
        plan.check_objective(make_spec(**LORA | fields))
    assert [issue for issue in caught.value.issues if issue.path == path and part in issue.message]


def test_an_unknown_parameter_is_refused_at_its_place() -> None:
    spec = loads(
        "version: 1\nname: s\nobjective: lora\nmetric: m\nparameters:\n  lora_rank: [2, 4]\n"
        "  max_samples: 64\nbudget: {trials: 2}\n",
        "s.yaml",
    )
    with pytest.raises(SpaceError, match=r"^s\.yaml:6:14 parameters\.lora_rank: .*knows no such parameter"):
        plan.check_objective(spec)


def warned_of(make_spec: MakeSpec, source: str, **values: Any) -> list[str]:
    Path("mine.py").write_text(source, encoding="utf-8")
    spec = make_spec(objective="mine.py:train", parameters=values)
    plan.check_objective(spec)
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


def test_planning_loads_neither_optuna_nor_torch() -> None:
    code = "import sys, hpsearch.search.plan; print(*({'optuna', 'torch', 'numpy'} & sys.modules.keys()))"
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""


def test_a_search_says_which_code_it_runs(make_spec: MakeSpec, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("raise SystemExit('nobody imports this')\n")
    user = getpass.getuser()
    for name in ("mine:train", "mine.py:train"):
        assert (
            plan.own_code(make_spec(objective=name))
            == f"each trial runs train() of {tmp_path}/mine.py, as {user}"
        )
    command = {"command": ["python", "a b.py", "${args}"]}
    said = f"each trial runs python 'a b.py' '${{args}}' in {tmp_path}, as {user}"
    assert plan.own_code(make_spec(objective=command)) == said
    assert plan.own_code(make_spec(**LORA)) is None
