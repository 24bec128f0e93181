"""The other tools' own packages: what they draw and accept, beside what a converted space does."""

from __future__ import annotations

import ast
import importlib.util
import math
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hpsearch.search.exchange.convert import conversion
from hpsearch.spaces import Choice, Range, Spec, loads

from ....support.sweeps import AXOLOTL, WANDB

DRAWS = 1500
SURE = 1e-4  # of p-values, with fixed seeds
NESTED = ".wbnest[599c28ca25da]."


def space_of(folder: Path, text: str) -> Spec:
    path = folder / "other.yaml"
    path.write_text(text, encoding="utf-8")
    converted = conversion(path)
    assert converted is not None
    return loads(converted, "space.yaml")


def drawn(spec: Spec) -> dict[str, list[Any]]:
    rng = random.Random(1)
    rows = [spec.space.passed(spec.space.sample(rng)) for _ in range(DRAWS)]
    return {name: [row[name] for row in rows if name in row] for name in spec.passed}


def same(ours: list[Any], theirs: list[Any]) -> None:
    ours, theirs = ([round(x, 9) if isinstance(x, float) else x for x in each] for each in (ours, theirs))
    values = sorted({*ours, *theirs}, key=str)
    if len(values) <= 100:
        counts = [[sample.count(value) for value in values] for sample in (ours, theirs)]
        assert stats.chi2_contingency(counts).pvalue > SURE
    else:
        assert stats.ks_2samp(ours, theirs).pvalue > SURE


def file_of(package: str, *parts: str) -> Path:
    """A file of an installed package, which need not be importable here."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return Path(next(iter(spec.submodule_search_locations)), *parts)


def module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def function_of(path: Path, name: str, **names: Any) -> Callable[..., Any]:
    """One function of a module whose imports need more than it does."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    future = ast.parse("from __future__ import annotations").body
    exec(compile(ast.Module([*future, *body], []), str(path), "exec"), names)
    return names[name]  # type: ignore[no-any-return]


SWEEP = """\
method: random
program: train.py
metric: {name: loss, goal: minimize}
parameters:
  a: {min: 0, max: 3}
  b: {min: 0.0, max: 3}
  c: {distribution: uniform, min: 0, max: 3}
  d: {distribution: log_uniform, min: -9, max: 0}
  e: {distribution: log_uniform_values, min: 0.001, max: 100}
  f: {distribution: inv_log_uniform_values, min: 0.001, max: 100}
  g: {distribution: inv_log_uniform, min: -1, max: 7}
  h: {distribution: q_log_uniform_values, min: 16, max: 256, q: 8}
  i: {distribution: q_log_uniform, min: 1, max: 3, q: 0.5}
  j: {values: [4, 8, 16]}
  k: {values: [adam, sgd, lion], probabilities: [0.5, 0.3, 0.2]}
  l: {value: 7}
  m: {parameters: {width: {values: [1, 2]}, rate: {min: 0.0, max: 1}}}
"""


@pytest.mark.extras
def test_wandbs_sweeps_draw_alike(tmp_path: Path) -> None:
    params = pytest.importorskip("sweeps.params")
    yaml = pytest.importorskip("yaml")
    given = params.HyperParameterSet.from_config(yaml.safe_load(SWEEP)["parameters"])
    theirs = {each.name.replace(NESTED, "."): each for each in given}
    random.seed(2)
    ours = drawn(space_of(tmp_path, SWEEP))
    assert ours.keys() == theirs.keys()
    for name, sample in ours.items():
        expected = [theirs[name].sample() for _ in range(DRAWS)]
        expected = [each.item() if isinstance(each, np.generic) else each for each in expected]
        expected = [each.item() if isinstance(each, np.ndarray) else each for each in expected]
        assert {type(each) for each in sample} == {type(each) for each in expected}, name
        same(sample, expected)


@pytest.mark.extras
def test_wandbs_schema_accepts_what_is_converted() -> None:
    config = pytest.importorskip("sweeps.config")
    yaml = pytest.importorskip("yaml")
    for text in (
        SWEEP,
        WANDB.replace("1e-5", "0.00001").replace("1e-2", "0.01").replace("run_cap: 20\n", ""),
    ):
        said = config.schema_violations_from_proposed_config(yaml.safe_load(text))
        assert all("where min/max specify base-e exponents" in line for line in said)


@pytest.mark.extras
def test_the_bands_of_wandbs_hyperband(tmp_path: Path) -> None:
    stopping = pytest.importorskip("sweeps.hyperband_stopping")
    run = pytest.importorskip("sweeps.run")
    yaml = pytest.importorskip("yaml")
    from hpsearch.search.scheduling.rungs import plan_of

    for line in (
        "max_iter: 27, s: 2",
        "max_iter: 81, s: 4, eta: 3",
        "max_iter: 16, s: 2, eta: 2",
        "min_iter: 3, eta: 2",
    ):
        text = f"{SWEEP}early_terminate: {{type: hyperband, {line}}}\n"
        runs = [run.SweepRun(name="a", state=run.RunState.running, history=[{"loss": 1.0}] * 3)]
        stopping.hyperband_stop_runs(runs, yaml.safe_load(text))
        bands = runs[0].early_terminate_info["bands"]
        spec = space_of(tmp_path, text)
        (bracket,) = plan_of(spec).brackets
        assert list(bracket.rungs) == [band for band in bands if band < (spec.early_stopping.max or 0)]


EXPRESSIONS: dict[str, list[Any]] = {
    "uniform": [0, 3],
    "loguniform": [0.001, 100],
    "quniform": [1, 10, 4],
    "qloguniform": [1, 64, 3],
    "randint": [2, 6],
}


@pytest.mark.extras
def test_nnis_expressions_draw_alike(tmp_path: Path) -> None:
    expressions = module_of(file_of("nni", "parameter_expressions.py"))
    state = np.random.RandomState(2)
    for kind, values in EXPRESSIONS.items():
        spec = space_of(tmp_path, f"x: {{_type: {kind}, _value: {values}}}\n")
        theirs = [float(getattr(expressions, kind)(*values, state)) for _ in range(DRAWS)]
        same(list(map(float, drawn(spec)["x"])), theirs)


@pytest.mark.extras
def test_determined_draws_alike(tmp_path: Path) -> None:
    path = file_of("determined", "_execution.py")
    draw = function_of(path, "_generate_random_hparam_values", random=random, math=math, Dict=dict)
    yaml = pytest.importorskip("yaml")
    hyperparameters = (
        "{a: {type: int, minval: 2, maxval: 5}, b: {type: double, minval: 0, maxval: 3}, c: 7, "
        "d: {type: log, base: 10, minval: -4, maxval: 0}, e: {f: {type: categorical, vals: [x, y]}}}"
    )
    searcher = "{name: random, metric: m, max_trials: 3}"
    spec = space_of(tmp_path, f"entrypoint: t.py\nhyperparameters: {hyperparameters}\nsearcher: {searcher}\n")
    random.seed(2)
    read = yaml.safe_load(hyperparameters)
    rows = [draw(read) for _ in range(DRAWS)]
    for name, sample in drawn(spec).items():
        first, _, second = name.partition(".")
        same(sample, [row[first][second] if second else row[first] for row in rows])


@pytest.mark.extras
def test_axolotl_trains_the_same_configurations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate = module_of(file_of("axolotl", "cli", "utils", "sweeps.py")).generate_sweep_configs
    yaml = pytest.importorskip("yaml")
    theirs = generate({}, yaml.safe_load(AXOLOTL))
    space = space_of(tmp_path, AXOLOTL).space
    ours = [space.passed(config) for config in space.grid()]
    assert sorted(sorted(row.items()) for row in ours) == sorted(sorted(row.items()) for row in theirs)


KATIB_FIELDS = (
    "spec.parameters",
    "spec.trialTemplate",
    "spec.objective",
    "spec.algorithm",
    "spec.earlyStopping",
)


@pytest.mark.extras
def test_katibs_fields_are_known() -> None:
    """Each key that Katib's own models have is one that the conversion reads or names."""
    from hpsearch.search.exchange.convert import katib

    models = file_of("kubeflow.katib", "models") if importlib.util.find_spec("kubeflow") else None
    if models is None:
        pytest.skip("kubeflow-katib is not installed")
    text = (models / "v1beta1_experiment_spec.py").read_text(encoding="utf-8")
    found = [
        line.split("'")[3] for line in text.splitlines() if line.strip().startswith("'") and "': '" in line
    ]
    own = [key for key in found if key[0].islower() and not key.startswith("V1")]
    assert set(katib.SPEC) <= set(own)


OVERRIDES = {
    "range(1, 9)": (int, 1, 9, None, False),
    "range(0, 1, step=0.25)": (float, 0, 1, 0.25, False),
    "range(0, 1, step=0.3)": (float, 0, 0.9, 0.3, False),
    "interval(0, 1)": (float, 0, 1, None, False),
    "int(interval(1, 8))": (int, 1, 8, None, False),
    "tag(log, interval(1e-5, 1e-2))": (float, 1e-5, 1e-2, None, True),
    "tag(log, int(interval(1, 64)))": (int, 1, 64, None, True),
    "choice(4, 8, small)": [4, 8, "small"],
    "shuffle(range(1, 4))": [1, 2, 3],
    "1, 2, 3": [1, 2, 3],
}


def test_hydras_overrides_are_optunas_distributions(tmp_path: Path, subtests: pytest.Subtests) -> None:
    pytest.importorskip("hydra")
    for text, expected in OVERRIDES.items():
        with subtests.test(text):
            spec = space_of(tmp_path, f'hydra: {{sweeper: {{n_trials: 3, params: {{x: "{text}"}}}}}}\n')
            x = spec.parameters["x"]
            if isinstance(expected, list):
                assert isinstance(x, Choice) and sorted(map(str, x.choices)) == sorted(map(str, expected))
                continue
            kind, low, high, step, log = expected
            assert isinstance(x, Range) and x.is_int is (kind is int)
            assert (x.min, x.max, x.step, x.log) == (low, high, step, log)


OF_HYDRAS_OWN_SWEEPER = {  # which tries each value, and no end of a range
    "range(1, 9)": list(range(1, 9)),
    "range(9, 0, -4)": [9, 5, 1],
    "range(0, 1, 0.25)": [0.0, 0.25, 0.5, 0.75],
    "shuffle(range(1, 4))": [1, 2, 3],
    "sort(3, 1, 2)": [1, 2, 3],
    "choice(a, b)": ["a", "b"],
}


def test_hydras_own_sweeper_tries_the_same_values(tmp_path: Path, subtests: pytest.Subtests) -> None:
    parser = pytest.importorskip("hydra.core.override_parser.overrides_parser")
    for text, expected in OF_HYDRAS_OWN_SWEEPER.items():
        with subtests.test(text):
            spec = space_of(tmp_path, f'hydra: {{sweeper: {{params: {{x: "{text}"}}}}}}\n')
            x = spec.parameters["x"]
            assert isinstance(x, Choice) and x.choices == expected
            theirs = parser.OverridesParser.create().parse_override(f"x={text}").sweep_iterator()
            assert sorted(map(str, expected)) == sorted(map(str, theirs))


TUNE = {
    "tune.uniform(0, 3)": False,
    "tune.loguniform(0.001, 100)": False,
    "tune.qloguniform(2, 64, 2)": True,
    "ray.tune.search.sample.loguniform(0.001, 100)": False,
    "tune.randint(2, 6)": True,
    "tune.qrandint(2, 17, 3)": True,
    "tune.qrandint(2, 17)": True,
    "tune.lograndint(1, 64)": True,
    "tune.qlograndint(2, 64, 4)": True,
    "tune.choice([4, 8])": True,
    "tune.quniform(0, 1, 1)": True,
    "tune.quniform(lower=2, upper=4, q=2)": True,
}


@pytest.mark.slow
def test_ray_tune_draws_alike(tmp_path: Path, subtests: pytest.Subtests) -> None:
    import ray
    from ray import tune

    for text, is_discrete in TUNE.items():
        with subtests.test(text):
            spec = space_of(tmp_path, f'param_space: {{x: "{text}", y: "tune.uniform(0, 1)"}}\n')
            domain = eval(text, {"tune": tune, "ray": ray})
            sample = domain.sample(size=DRAWS, random_state=np.random.default_rng(2))
            theirs = [float(value) for value in sample]
            ours = list(map(float, drawn(spec)["x"]))
            if is_discrete:
                assert {round(value, 9) for value in ours} == {round(value, 9) for value in theirs}
            same(ours, theirs)
