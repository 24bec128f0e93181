"""A space read from a script that searches by itself: it asks for exactly what the script asks for."""

from __future__ import annotations

import ast
import random
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from hpsearch.search.errors import UsageError
from hpsearch.search.exchange.space_from import proposal
from hpsearch.search.exchange.space_from.scope import Scope, Unreadable
from hpsearch.search.sampling.distributions import distributions
from hpsearch.spaces import Choice, Range, Spec, loads

EPOCHS = """
import optuna
EPOCHS, KINDS = 10, {"svc": object, "forest": object}
"""
DEFINE_BY_RUN = (
    EPOCHS
    + """
def define_model(trial, most=3):
    n_layers = trial.suggest_int("n_layers", 1, most)
    layers = []
    for i in range(n_layers):
        layers.append(trial.suggest_int(f"units_l{i}", 4, 128))
        layers.append(trial.suggest_float("dropout_l{}".format(i), 0.2, 0.5))
    return layers

class Network:
    def __init__(self, trial, prefix="net"):
        self.width = trial.suggest_int(f"{prefix}_width", 8, 64, step=8)

def objective(trial: optuna.Trial):
    define_model(trial)
    Network(trial, prefix="a")
    name = trial.suggest_categorical("optimizer", ["adam", "sgd", "rmsprop"])
    lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
    if name == "sgd":
        momentum = trial.suggest_float("momentum", 0.0, 0.99)
        if trial.suggest_categorical("nesterov", [True, False]):
            trial.suggest_float("damp", 0, 1, step=0.3)
    elif name in ("adam", "rmsprop"):
        trial.suggest_float("beta", 0.8, 0.999)
    params = {"kind": trial.suggest_categorical("kind", list(KINDS)), "seed": EPOCHS}
    if params["kind"] == "svc":
        params["kernel"] = trial.suggest_categorical("kernel", ["linear", "rbf", "poly"])
        if not params["kernel"] == "linear":
            params["gamma"] = trial.suggest_float("gamma", 1e-4, 1.0, log=True)
    else:
        depth = trial.suggest_int("max_depth", 2, 32, log=True)
        if depth > 8 and lr < 0.01:
            trial.suggest_int("leaf", 1, 9, step=3)
        else:
            trial.suggest_int("leaf", 1, 9, step=3)
    match name:
        case "adam":
            trial.suggest_float("eps", 1e-9, 1e-6, log=True)
        case "sgd" | "rmsprop":
            trial.suggest_int("wd_steps", 1, 5)
        case _:
            raise ValueError
    xs = [trial.suggest_int("x%d" % i, 0, EPOCHS) for i in range(2)]
    for side in ("left", "right"):
        trial.suggest_float("w_" + side, 0, 1)
    warm = trial.suggest_float("warm", 0.0, 0.1) if lr > 0.01 else 0.0
    shape = trial.suggest_categorical("shape", ["1-2", "3"])
    if name == "adam" and params["kind"] == "forest":
        return 0.0
    trial.suggest_int("late", 1, 2)
    accuracy = 1.0
    for epoch in range(EPOCHS):
        trial.report(accuracy, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned()
    return accuracy

if __name__ == "__main__":
    study = optuna.create_study(
        study_name="my search",
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=3, multivariate=True),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=3),
    )
    study.enqueue_trial({"lr": 1e-3})
    study.optimize(objective, n_trials=100, timeout=600)
"""
)
TUNER = """
from ray import tune
from ray.tune.schedulers import ASHAScheduler
EPOCHS = 20

def train_fn(config):
    pass

space = {
    "optimizer": {"lr": tune.loguniform(1e-4, 1e-1), "name": tune.choice(["sgd", "adam"])},
    "layers": tune.randint(1, 5),
    "batch": tune.choice([2**i for i in range(4)]),
    "units": tune.qrandint(16, 64, 16),
    "odd": tune.qrandint(1, 5, 1),
    "dropout": tune.quniform(0.0, 0.5, 0.1),
    "wide": tune.lograndint(1, 10),
    "momentum": tune.uniform(0.5, 0.9),
    "epochs": EPOCHS,
    "sizes": [1, 2],
    "nothing": None,
    "act": tune.choice(["relu"]),
}

def main():
    scheduler = ASHAScheduler(max_t=EPOCHS, grace_period=2, reduction_factor=3)
    tuner = tune.Tuner(
        tune.with_resources(train_fn, {"cpu": 2}),
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="val_acc", mode="max", scheduler=scheduler, num_samples=7, time_budget_s=90
        ),
    )
    tuner.fit()
"""

Read = Callable[..., tuple[Spec, str]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """The space that a script proposes, and its text."""

    def of(source: str) -> tuple[Spec, str]:
        path = tmp_path / "train.py"
        path.write_text(source)
        text = proposal(path)
        return loads(text), text

    return of


def test_a_space_has_what_an_optuna_objective_asks_for_and_nothing_else(read: Read) -> None:
    """Optuna itself runs the objective: each of its trials has the parameters and ranges of the space."""
    spec, _ = read(DEFINE_BY_RUN)
    names: dict[str, Any] = {"__name__": "read"}
    exec(compile(DEFINE_BY_RUN, "train.py", "exec"), names)
    ours = distributions(spec.space)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a step that does not reach the end
        study.optimize(names["objective"], n_trials=200)
    seen: set[str] = set()
    for trial in study.trials:

        def suggested(name: str, parameter: Any, trial: Any = trial) -> Any:
            return trial.params[name]

        active = spec.space.resolve(suggested).keys() & ours.keys()
        assert active == trial.params.keys()
        assert {name: ours[name] for name in active} == trial.distributions
        seen |= active
    assert seen == ours.keys()


def test_the_settings_of_a_study_become_those_of_the_space(read: Read) -> None:
    spec, text = read(DEFINE_BY_RUN)
    assert spec.objective == f"optuna:{_file(text)}:objective"
    assert (spec.name, spec.metric, spec.goal) == ("my_search", "accuracy", "maximize")
    content = yaml.safe_load(text)
    assert content["search"] == {"sampler": "tpe", "seed": 3, "multivariate": True}
    assert content["early_stopping"] == {"method": "median", "n_startup_trials": 5, "n_warmup_steps": 3}
    assert content["budget"] == {"trials": 100, "time": "600s"}
    assert content["baseline"] == {"lr": 0.001}
    assert content["parameters"]["momentum"]["when"] == {"optimizer": "sgd"}
    assert content["parameters"]["units_l2"]["when"] == "n_layers > 2"


OBJECTIVE = "import optuna\ndef objective(trial):\n    {}\n    return 1.0\n"


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ('trial.suggest_float("x", 0, 1)', {"min": 0.0, "max": 1.0}),
        ('trial.suggest_float(name="x", low=0.0, high=1.0, step=0.3)', {"min": 0.0, "max": 0.9, "step": 0.3}),
        ('trial.suggest_int("x", 1, 10, step=4)', {"min": 1, "max": 9, "step": 4}),
        ('trial.suggest_int("x", 1, 2 ** 4, log=True)', {"min": 1, "max": 16, "log": True}),
        ('trial.suggest_loguniform("x", 1e-3, 1)', {"min": 1e-3, "max": 1.0, "log": True}),
        ('trial.suggest_discrete_uniform("x", 0, 1, 0.5)', {"min": 0.0, "max": 1.0, "step": 0.5}),
        ('trial.suggest_categorical("x", (None, 1, "a"))', [None, 1, "a"]),
        ('trial.suggest_categorical("x", ["one"])', "one"),
        ('trial.suggest_int("x", 3, 3)', 3),
    ],
)
def test_a_suggestion_becomes_a_parameter(read: Read, statement: str, says: Any) -> None:
    always = 'trial.suggest_float("always", 0, 1)'
    _, text = read(OBJECTIVE.format(f"{always}; {statement}"))
    assert yaml.safe_load(text)["parameters"]["x"] == says


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ('trial.suggest_categorical("x", names())', "its choices cannot be read"),
        ('trial.suggest_float("x", 0, high)', "its high cannot be read"),
        ("trial.suggest_float(name(), 0, 1)", "its name cannot be read"),
        ('trial.suggest_float("x", 2, 1)', "low 2.0 is above high 1.0"),
        ('y = trial.suggest_int("x", 0, 1) if far() else 0', "is asked for only sometimes"),
        ('trial.suggest_int("always", 0, 1)', "asks for another range of always than before"),
        ('trial.suggest_categorical("x", [{}, {}])', "choices that are values or lists"),
        ('kw = make(); trial.suggest_int("x", **kw)', "its **kw cannot be read"),
        ('trial.suggest_int("x", 1)', "its high is missing"),
        ("far(trial.suggest_float)", "what it suggests cannot be read"),
        ('trial.suggest_float("x", float("9" * 999999999), 1)', "its low cannot be read"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line(read: Read, statement: str, told: str) -> None:
    _, text = read(OBJECTIVE.format(f'trial.suggest_float("always", 0, 1)\n    {statement}'))
    (line,) = (line for line in text.splitlines() if told in line)
    assert line.startswith("# train.py, line 4: ")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("def objective(trial, data):\n    return trial.suggest_float('x', 0, 1)\n", "takes 2 arguments"),
        (
            "tuned = 1\nclass A:\n  def __call__(self, trial):\n    return trial.suggest_float('x', 0, 1)\n",
            "in a method of A, and nothing here calls study.optimize: add `tuned_2 = A(...)`",
        ),
        (
            "def main():\n  def f(trial):\n    return trial.suggest_float('x', 0, 1)\n",
            "in a function inside another one",
        ),
        (
            "def f(trial, d):\n    return trial.suggest_float('x', 0, 1)\n",
            "tuned = functools.partial(f, ...)",
        ),
        ("def objective(trial):\n    return trial.suggest_float('x', 0, y)\n", "found no parameter"),
        (
            "from ray import tune\ntune.Tuner(param_space={'x': tune.uniform(0, 1)})\n",
            "train.py:2: the tuner is given no function",
        ),
    ],
)
def test_an_objective_without_a_name_is_told_what_to_write(read: Read, source: str, told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        read(source)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            "for i in range(999):\n        for j in range(999):\n            f(trial)",
            "too long to be written out",
        ),
        ("; ".join(["objective(trial)"] * 9), "too long to be written out"),
        ("x = " + "+".join("x" * 3_000) + "; f(trial)", "not Python that can be read"),
    ],
)
def test_what_would_take_for_ever_is_refused(read: Read, body: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read(OBJECTIVE.format(f'trial.suggest_float("x", 0, 1)\n    {body}'))


def test_a_method_of_the_trial_with_a_name_of_its_own_suggests_too(read: Read) -> None:
    source = """import optuna
BOUNDS = {"low": 1, "high": 3}
def objective(trial):
    ask = trial.suggest_float
    if trial.suggest_categorical("kind", ["a", "b"]) == "a":
        ask("wd", 0, 1)
    return trial.suggest_int("k", **BOUNDS)
"""
    _, text = read(source)
    assert yaml.safe_load(text)["parameters"] == {
        "kind": ["a", "b"],
        "wd": {"min": 0.0, "max": 1.0, "when": {"kind": "a"}},
        "k": {"min": 1, "max": 3},
    }


def test_a_loop_that_trains_is_not_written_out(read: Read) -> None:
    body = (
        'trial.suggest_float("x", 0, 1)\n    for a in range(999):\n        for b in range(999):\n            '
    )
    spec, _ = read(OBJECTIVE.format(body + "for c in range(999):\n                trial.report(1.0, a)"))
    assert spec.parameters.keys() == {"x"}


@pytest.mark.parametrize("given", ["A().f", "tune.with_parameters(g, d=1)", "lambda config: g(config, 1)"])
def test_whatever_a_tuner_is_given_is_found_by_running_the_program(read: Read, given: str) -> None:
    _, text = read(
        "from ray import tune\nclass A:\n  def f(self, config): ...\ndef g(config, d): ...\n"
        f"tune.Tuner({given}, param_space={{'x': tune.uniform(0, 1)}})\n"
    )
    content = yaml.safe_load(text)
    assert content["objective"] == f"ray:{_file(text)}:__main__"
    assert content["parameters"] == {"x": {"min": 0.0, "max": 1.0}}


def test_a_param_space_becomes_a_space_of_nested_names(read: Read) -> None:
    spec, text = read(TUNER)
    content = yaml.safe_load(text)
    assert content["objective"] == f"ray:{_file(text)}:train_fn"
    assert content["parameters"] == {
        "optimizer.lr": {"min": 1e-4, "max": 0.1, "log": True},
        "optimizer.name": ["sgd", "adam"],
        "layers": {"min": 1, "max": 4},
        "batch": [1, 2, 4, 8],
        "units": {"min": 16, "max": 64, "step": 16},
        "odd": {"min": 1, "max": 4},
        "dropout": {"min": 0.0, "max": 0.5, "step": 0.1},
        "wide": {"min": 1, "max": 9, "log": True},
        "momentum": {"min": 0.5, "max": 0.9},
        "epochs": 20,
        "sizes": {"value": [1, 2]},
        "nothing": {"value": None},
        "act": "relu",
    }
    assert (spec.metric, spec.goal) == ("val_acc", "maximize")
    assert content["early_stopping"] == {"method": "asha", "min": 2, "max": 20, "eta": 3}
    assert content["budget"] == {"time": "90s", "trials": 7}


@pytest.mark.slow
def test_ray_tune_draws_the_values_of_the_space_and_all_of_those_that_can_be_listed(read: Read) -> None:
    from ray.tune.search.variant_generator import generate_variants

    spec, _ = read(TUNER)
    names: dict[str, Any] = {}
    exec(compile(TUNER, "train.py", "exec"), names)
    drawn: dict[str, list[Any]] = {name: [] for name in spec.space.searched}
    for _ in range(300):
        for _, config in generate_variants(names["space"]):
            flat = config | {f"optimizer.{name}": each for name, each in config["optimizer"].items()}
            for name in drawn:
                drawn[name].append(flat[name])
    for name, parameter in spec.space.searched.items():
        accepted = {parameter.accept(getattr(value, "item", lambda v=value: v)()) for value in drawn[name]}
        if isinstance(parameter, Choice) or parameter.count is not None:
            assert accepted == set(parameter.values() or ())


def test_what_a_space_cannot_say_of_a_param_space_is_told(read: Read) -> None:
    space = """{
    "x": tune.uniform(0, 1),
    "normal": tune.randn(0, 1),
    "of": tune.sample_from(lambda spec: 1),
    "twice": tune.choice([1, 1, 2]),
    "maps": tune.choice([{"a": 1}, {"a": 2}]),
    "q": tune.qloguniform(1, 10, 1),
    "path": compute(),
}"""
    source = f"from ray import tune\ndef f(config): ...\ntune.Tuner(f, param_space={space})\n"
    spec, text = read(source)
    told = [line for line in text.splitlines() if line.startswith("# train.py, line")]
    for line, name in enumerate(("normal", "of", "twice", "maps", "q", "path"), start=5):
        assert any(f"line {line}: " in each and name in each for each in told), name
    assert spec.parameters.keys() == {"x", "normal", "twice", "q", "q_raw"}


CHANGED = """
import copy
from ray import tune
def train_fn(config): ...
def make_space(wide): return {}
def widen(space): space["wide"] = tune.uniform(1, 2)
def main(smoke):
    base = dict(depth=tune.randint(1, 9), **make_space(True))
    base |= {"depth": tune.randint(1, 5)}
    opt = {"lr": tune.uniform(0, 1)}
    space = {"opt": opt, **base, "gone": {"a": 1, "b": 2}, "batch": 8}
    space["extra"] = tune.uniform(1, 2)
    space.update({"batch": tune.choice([8, 16])}, act="relu")
    space["opt"]["beta"] = tune.uniform(0, 1)
    space["opt"].update(eps=1e-8)
    space |= copy.deepcopy({"wd": tune.loguniform(1e-4, 1)})
    space["gone"] = 3
    for name in ("a", "b"):
        space[f"in_{name}"] = tune.uniform(0, 1)
    if smoke:
        space.update(epochs=1)
    space.setdefault("x", 1)
    widen(space)
    space[named()] = 4
    space.update(more())
    _, space["y"] = space, 2
    tuner = tune.Tuner(train_fn, param_space=space)
    space["late"] = 1
"""


def test_what_a_script_adds_to_its_param_space_is_read_or_told(read: Read) -> None:
    _, text = read(CHANGED)
    assert yaml.safe_load(text)["parameters"] == {
        "opt.lr": {"min": 0.0, "max": 1.0},
        "opt.beta": {"min": 0.0, "max": 1.0},
        "opt.eps": 1e-8,
        "depth": {"min": 1, "max": 4},
        "gone": 3,
        "batch": [8, 16],
        "extra": {"min": 1.0, "max": 2.0},
        "act": "relu",
        "wd": {"min": 1e-4, "max": 1.0, "log": True},
    }
    told = [line for line in text.splitlines() if line.startswith("# train.py, line")]
    for line, what in (
        (8, "make_space(True) cannot be read"),
        (19, "space[f'in_{name}'] = tune.uniform(0, 1) runs only sometimes, in a loop"),
        (21, "space.update(epochs=1) runs only sometimes"),
        (22, "space.setdefault('x', 1) cannot be read"),
        (23, "widen(space) cannot be read"),
        (24, "the name named() cannot be read"),
        (25, "more() cannot be read"),
        (26, "_, space['y'] = (space, 2) cannot be read"),
    ):
        assert any(f"line {line}: {what}" in each for each in told), (line, told)
    assert "late" not in text


def test_a_function_of_the_other_values_is_an_expression(read: Read) -> None:
    space = """{
    "lr": tune.uniform(1, 2), "model": {"width": tune.randint(1, 9)},
    "a": tune.sample_from(lambda spec: spec.config.lr * FACTOR),
    "b": tune.sample_from(lambda spec: math.log(spec.config["model"]["width"]) if spec.config.lr > 1.5 else 0),
    "c": tune.sample_from(lambda spec: random.uniform(0, 1)),
    "d": tune.sample_from(lambda spec: spec.config.gone),
    "e": tune.sample_from(compute),
}"""
    head = "import math\nfrom ray import tune\nFACTOR = 2\ndef f(config): ...\n"
    spec, text = read(f"{head}tune.Tuner(f, param_space={space})\n")
    drawn = {"lr": 1.75, "model.width": 1}
    assert spec.space.resolve(lambda name, _: drawn[name]) == drawn | {"a": 3.5, "b": 0.0}
    for name in "cde":
        assert f"{name} is a function that a space cannot read" in text


def test_a_normal_distribution_in_a_script_is_one_of_another_tools_file(read: Read) -> None:
    space = '{"a": tune.randn(2, 0.5), "b": tune.qrandn(mean=10, sd=2, q=1), "c": tune.randn(0, S)}'
    spec, text = read(f"from ray import tune\ndef f(config): ...\ntune.Tuner(f, param_space={space})\n")
    a, b = spec.parameters["a"], spec.parameters["b"]
    assert isinstance(a, Range) and isinstance(b, Range) and a.prior is not None and b.prior is not None
    assert (a.min, a.max, a.prior.at) == (0.5, 3.5, 2.0)
    assert (b.min, b.max, b.step, b.prior.at) == (4.0, 16.0, 1.0, 10.0)
    assert "line 3: a: there the value is normally distributed with mean 2 and deviation 0.5" in text
    assert "line 3: c: tune.randn(0, S) cannot be read" in text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("f'{EPOCHS}-{KINDS[1]}'", "10-b"),
        ("'a%d' % (2 + 1)", "a3"),
        ("'{:>3}'.format('a')", "  a"),
        ("[f'x{i}' for i in range(2)]", ["x0", "x1"]),
        ("list({'a': open, 'b': 1}.keys())", ["a", "b"]),
        ("-EPOCHS ** 2", -100),
        ("(1, [2])", (1, [2])),
    ],
)
def test_values_that_the_source_shows(text: str, value: Any) -> None:
    scope = Scope(ast.parse("EPOCHS = 10\nKINDS = ['a', 'b']"))
    assert scope.value(ast.parse(text, mode="eval").body, {}) == value


@pytest.mark.parametrize(
    "text",
    ["open('x')", "10 ** 10 ** 10", "'a' * 9999999", "'{:9999999}'.format(1)", "'%99999d' % 1", "list(range(10**12))",
     "EPOCHS.__class__", "'{0.__class__}'.format(1)", "__import__('os')", "loop", "{'a': open}['a']"],
)  # fmt: skip
def test_values_that_the_source_hides_or_that_would_be_huge(text: str) -> None:
    scope = Scope(ast.parse("EPOCHS = 10\nloop = loop"))
    with pytest.raises(Unreadable):
        scope.value(ast.parse(text, mode="eval").body, {})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_float_or_int_range_is_the_one_that_optuna_means(read: Read, data: st.DataObject) -> None:
    whole = data.draw(st.booleans())
    numbers = st.integers(1, 1000) if whole else st.floats(0.001, 1000, allow_nan=False)
    low, high = sorted(round(data.draw(numbers), 3) for _ in range(2))
    kind, option = ("int" if whole else "float"), data.draw(st.sampled_from(["", "log", "step"]))
    step = data.draw(st.integers(1, 50) if whole else st.sampled_from([0.1, 0.25, 1.0]))
    more = {"": "", "log": ", log=True", "step": f", step={step!r}"}[option]
    call = f'trial.suggest_{kind}("x", {low!r}, {high!r}{more})'
    always = 'trial.suggest_float("always", 0, 1)'
    spec, _ = read(OBJECTIVE.format(f"{always}; {call}"))
    made: Any = optuna.distributions.IntDistribution if whole else optuna.distributions.FloatDistribution
    of: dict[str, dict[str, Any]] = {"log": {"log": True}, "step": {"step": step}, "": {}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a step that does not reach the end
        wanted = made(low, high, **of[option])
    if wanted.low == wanted.high:
        assert "x" not in spec.space.searched
    else:
        assert distributions(spec.space)["x"] == wanted


def _file(text: str) -> str:
    return str(yaml.safe_load(text)["objective"]).split(":")[1]


@pytest.mark.ray
@pytest.mark.parametrize(
    "drawn",
    [
        "quniform(-0.3, 0.3, 0.1)",
        "quniform(0, 0.3, 0.1)",
        "quniform(4, 12, 4)",
        "qrandint(10, 70, 16)",
        "qrandint(1, 9, 1)",
        "qrandint(-5, 5, 3)",
    ],
)
def test_a_range_in_steps_has_the_values_that_ray_tune_draws(read: Read, drawn: str) -> None:
    from ray import tune

    spec, _ = read(TUNER.replace("tune.qrandint(16, 64, 16)", f"tune.{drawn}"))
    domain = eval(f"tune.{drawn}", {"tune": tune})
    values = {round(value, 9) for value in domain.sample(size=2000, random_state=0)}
    searched = spec.space.parameters["units"]
    assert isinstance(searched, Range)
    ours = [searched.at(index) for index in range(searched.count or 0)]
    assert {round(value, 9) for value in ours} == values
    assert {type(value) for value in ours} == {type(domain.sample())}


@pytest.mark.ray
@pytest.mark.parametrize("drawn", ["qloguniform(4, 64, 4)", "qlograndint(3, 64, 4)", "qlograndint(1, 9, 1)"])
def test_a_log_range_in_steps_draws_as_ray_tune_does(read: Read, drawn: str) -> None:
    from ray import tune

    spec, text = read(TUNER.replace("tune.qrandint(16, 64, 16)", f"tune.{drawn}"))
    assert "units: a logarithmic range takes no step here" in text or drawn.endswith(" 1)")
    theirs = list(eval(f"tune.{drawn}", {"tune": tune}).sample(size=1500, random_state=0))
    rng = random.Random(1)
    ours = [spec.space.passed(spec.space.sample(rng))["units"] for _ in range(1500)]
    assert {type(value) for value in ours} == {float if "uniform" in drawn else int}
    values = sorted({*ours, *theirs})
    counts = [[sample.count(value) for value in values] for sample in (ours, theirs)]
    assert stats.chi2_contingency(counts).pvalue > 1e-4


@pytest.mark.ray
def test_bounds_off_the_multiples_move_inward_as_ray_tune_refuses_them(read: Read) -> None:
    from ray import tune

    with pytest.raises(ValueError, match="is not divisible"):
        tune.quniform(0.05, 0.52, 0.1)
    spec, text = read(TUNER.replace("quniform(0.0, 0.5, 0.1)", "quniform(0.05, 0.52, 0.1)"))
    assert yaml.safe_load(text)["parameters"]["dropout"] == {"min": 0.1, "max": 0.5, "step": 0.1}
    assert "units" in spec.space.searched
    assert "dropout: tune.quniform(0.05, 0.52, 0.1) has a bound that is no multiple of 0.1" in text


def test_a_range_without_a_multiple_is_left_to_the_user_alone(read: Read) -> None:
    spec, text = read(TUNER.replace("quniform(0.0, 0.5, 0.1)", "quniform(0.11, 0.19, 0.1)"))
    assert "dropout" not in spec.parameters and "units" in spec.parameters
    assert "dropout: tune.quniform(0.11, 0.19, 0.1) has no multiple of 0.1 within; write it yourself" in text


def test_a_metric_has_no_parameters_name(read: Read) -> None:
    source = "def objective(trial):\n    {0} = trial.suggest_float('{0}', 0.1, 1)\n    return {0}\n"
    assert read(source.format("lr"))[0].metric == "value"
    more = source.format("lr").replace("return", "trial.suggest_int('value', 1, 2)\n    return")
    assert read(more)[0].metric == "value_2"
    assert read(source.format("lr").replace("return lr", "loss = lr\n    return loss"))[0].metric == "loss"
