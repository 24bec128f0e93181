"""Files of other tools as spaces: what becomes of every line, and what is refused, where and why."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpsearch.objectives.user.macros import expand
from hpsearch.search import open_study
from hpsearch.search.cli import main
from hpsearch.search.errors import UsageError
from hpsearch.search.exchange.convert import conversion
from hpsearch.search.preflight.checks import check_objective
from hpsearch.spaces import Choice, Constant, Derived, Range, SpaceError, Spec, loads
from hpsearch.spaces.dialects import tools_of
from hpsearch.spaces.document import read

from ....support.sweeps import (
    AXOLOTL,
    DETERMINED,
    HYDRA,
    HYDRA_OLD,
    KATIB,
    NNI,
    RAY,
    RAY_TEXTS,
    WANDB,
)

FILES = {
    "wandb.yaml": WANDB,
    "nni.yaml": NNI,
    "space.json": '{"lr": {"_type": "uniform", "_value": [0, 1]}}',
    "katib.yaml": KATIB,
    "determined.yaml": DETERMINED,
    "axolotl.yaml": AXOLOTL,
    "ray.yaml": RAY,
    "ray_texts.yml": RAY_TEXTS,
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "config.yaml").write_text("base_model: x\nlora_r: 8\n")
    (tmp_path / "axolotl").write_text("")
    (tmp_path / "axolotl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


def text_of(text: str, name: str = "other.yaml") -> str:
    Path(name).write_text(text, encoding="utf-8")
    converted = conversion(Path(name))
    assert converted is not None
    return converted


def space_of(text: str, name: str = "other.yaml") -> Spec:
    return loads(text_of(text, name), "space.yaml")


def refused(text: str, name: str = "other.yaml") -> list[str]:
    Path(name).write_text(text, encoding="utf-8")
    with pytest.raises(SpaceError) as caught:
        conversion(Path(name))
    return str(caught.value).splitlines()


def words(spec: Spec) -> list[str]:
    assert isinstance(spec.objective_words, list)
    return spec.objective_words


def cli(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """The exit code of a command."""
    monkeypatch.setattr(sys, "argv", ["hpsearch", *words])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def section(spec: Spec, name: str) -> Any:
    return {key: value for key, value in spec.to_json()[name].items() if value is not None}


def test_every_file_makes_a_space_that_can_run(here: Path, subtests: pytest.Subtests) -> None:
    for name, text in FILES.items():
        with subtests.test(name):
            check_objective(space_of(text, name))


def test_a_wandb_sweep(here: Path) -> None:
    spec = space_of(WANDB)
    assert (spec.name, spec.metric, spec.goal) == ("my sweep", "val_loss", "minimize")
    options = ["--lr=${lr}", "--batch-size=${batch_size}", "--epochs=${epochs}"]
    options += ["--model.width=${model.width}", "--model.act=${model.act}"]
    assert words(spec) == ["${env}", "python3", "train.py", *options, "--fast"]
    assert list(spec.parameters) == ["lr", "batch_size", "epochs", "model.width", "model.act"]
    lr, batch, epochs, width, _ = spec.parameters.values()
    assert isinstance(lr, Range) and (lr.min, lr.max, lr.log) == (1e-5, 1e-2, True)
    assert isinstance(batch, Choice) and batch.choices == [8, 16, 32]
    assert isinstance(epochs, Constant) and epochs.value == 27
    assert isinstance(width, Range) and width.is_int
    assert section(spec, "search") == {"sampler": "gp", "seed": 0}
    assert section(spec, "budget") == {"trials": 20, "target": 0.1}
    stopping = section(spec, "early_stopping")
    assert [stopping[key] for key in ("method", "min", "max", "eta", "type")] == [
        "asha",
        3,
        27,
        2,
        "stopping",
    ]


def test_a_comment_says_where_a_line_comes_from_and_what_differs(here: Path) -> None:
    lines = text_of(WANDB).splitlines()
    assert "  lr: {min: 1.0e-05, max: 0.01, log: true}  # other.yaml:12 parameters.lr" in lines
    at = lines.index("  batch_size: [8, 16, 32]  # other.yaml:13 parameters.batch-size")
    assert lines[at - 1] == "  # its name there is batch-size"
    assert "# W&B's bayes is a Gaussian process; gp is Optuna's" in lines
    assert "# Left out, because only W&B's server knows it: project" in lines


def test_renamed_parameters_reach_the_program_under_their_names(here: Path) -> None:
    spec = space_of(
        "method: random\nprogram: train.py\nparameters: {a-b: {values: [1, 2]}, c: {values: [1, 2]}}"
    )
    assert words(spec)[3:] == ["--a-b=${a_b}", "--c=${c}"]
    both = "parameters: {a-b: {values: [1, 2]}, a_b: {values: [3, 4]}, a.b: {values: [5, 6]}}"
    spec = space_of(f"method: random\nprogram: train.py\n{both}")
    assert words(spec)[3:] == ["--a-b=${a_b}", "--a_b=${a_b_2}", "--a.b=${a.b}"]


def test_helpers_have_names_that_expressions_read(here: Path) -> None:
    rounded = "{distribution: q_log_uniform_values, min: 1, max: 9, q: 2}"
    spec = space_of(
        f"method: random\nprogram: train.py\nparameters: {{a: {{parameters: {{lambda: {{parameters: {{x: {rounded}}}}}, "
        f'"0": {rounded}}}}}, lambda: {{values: [a, b], probabilities: [0.7, 0.3]}}}}'
    )
    helpers = {"a_lambda_x_raw", "a_0_raw", "lambda_raw"}
    assert set(spec.parameters) == {"a.lambda.x", "a.0", "lambda"} | helpers
    assert set(spec.passed) == set(spec.parameters) - helpers
    assert spec.space.sample(random.Random(0)).keys() == spec.parameters.keys()


def test_macros_of_wandb(here: Path, subtests: pytest.Subtests) -> None:
    head = "method: random\nprogram: train.py\nmetric: {name: m}\nparameters: {a: {values: [1, 2]}}\n"
    for macro, expected in {
        "${args}": ["${args}"],
        "${args_no_hyphens}": ["${args_no_hyphens}"],
        "${args_json}": ["${args_json}"],
        "${args_no_equals}": ["--a", "${a}"],
        "${args_append_hydra}": ["+a=${a}"],
        "${args_override_hydra}": ["++a=${a}"],
    }.items():
        with subtests.test(macro):
            spec = space_of(f'{head}command: ["${{interpreter}}", "${{program}}", "{macro}"]')
            assert words(spec) == ["${interpreter}", "train.py", *expected]
            check_objective(spec)


def test_values_reach_the_program_as_wandb_passes_them(here: Path) -> None:
    spec = space_of(
        "method: grid\nprogram: train.py\nmetric: {name: m}\nparameters: {a: {values: [true, false, null]}, b: {value: 1}, "
        "c: {values: [[1, x], [2]]}, d: {values: [adam, null]}}"
    )
    params = {"a": None, "b": 1, "c": [1, "x"], "d": "adam"}
    theirs = [f"--{name}={value}" for name, value in params.items()]  # as wandb's agent writes them
    assert expand(words(spec), params)[-4:] == theirs
    assert "# W&B passes None, in Python's form\n  d: [adam, null]" in text_of(Path("other.yaml").read_text())


def test_an_nni_experiment(here: Path) -> None:
    spec = space_of(NNI)
    assert (spec.name, spec.metric, spec.goal) == ("mine", "default", "maximize")
    assert words(spec) == ["python3", "train.py", "--data", "a b", "${args}"]
    assert list(spec.parameters) == ["lr", "layer._name", "layer.size", "layer.act"]
    size, act = spec.parameters["layer.size"], spec.parameters["layer.act"]
    assert size.when == {"layer._name": ["conv"]} and act.when == {"layer._name": ["conv", "pool"]}
    assert section(spec, "budget") == {"trials": 40, "time": 1800}
    execution = section(spec, "execution")
    assert [execution[key] for key in ("workers", "gpus_per_trial", "trial_timeout")] == [2, 0, 3600]
    assert section(spec, "search") == {"sampler": "tpe", "seed": 3}
    stopping = {"method": "median", "n_startup_trials": 1, "n_warmup_steps": 3}
    assert section(spec, "early_stopping") == stopping


def test_an_nni_experiment_with_its_space_in_a_file(here: Path) -> None:
    Path("space.json").write_text('{"lr": {"_type": "uniform", "_value": [0, 1]}}')
    head = "searchSpaceFile: space.json\ntrialCommand: python train.py\ntuner: {name: Random}\n"
    text = text_of(head)
    assert "  # from space.json:1 lr\n  lr: {min: 0.0, max: 1.0}\n" in text
    Path("space.json").write_text('{"lr": {"_type": "uniform", "_value": [0, "a"]}}')
    (said,) = refused(head)
    assert said.startswith("space.json:1:") and "must be a number" in said
    (said,) = refused(head.replace("space.json", "other.json"))
    assert "other.yaml:1:18 searchSpaceFile: other.json cannot be read: No such file" in said


def test_the_folder_and_the_shell_of_an_nni_command(here: Path) -> None:
    folder = Path("my code")
    folder.mkdir()
    (folder / "t.py").write_text("import sys, os\nprint(os.getcwd(), sys.argv[1:])\n")
    head = "searchSpace: {x: {_type: choice, _value: [1, 2]}}\ntuner: {name: Random}\ntrialCodeDirectory: my code\n"
    for command in (f"{sys.executable} t.py 'a b'", f"A=1 {sys.executable} t.py 'a b'"):
        spec = space_of(f"{head}trialCommand: {command}")
        given = [word for word in words(spec) if word != "${args}"]
        done = subprocess.run([*given, "--x=1"], capture_output=True, text=True, check=True)
        assert done.stdout == f"{folder.resolve()} ['a b', '--x=1']\n"


def test_where_the_parameters_stand_in_a_shells_command(here: Path, subtests: pytest.Subtests) -> None:
    head = "searchSpace: {x: {_type: choice, _value: [1, 2]}}\ntuner: {name: Random}\ntrialCommand: "
    searcher = "searcher: {name: random, metric: m, max_trials: 2, max_length: {batches: 9}}"
    determined = f"hyperparameters: {{x: {{type: double, minval: 0, maxval: 1}}}}\n{searcher}\nentrypoint: "
    for command, passed in (
        ("python3 train.py 2>&1 | tee log.txt", 'python3 train.py "$@" 2>&1 | tee log.txt'),
        ("python3 train.py > log && echo done", 'python3 train.py "$@" > log && echo done'),
        ("cd x; A=1 ./train -v; sleep 1", 'cd x; A=1 ./train -v "$@"; sleep 1'),
        ("pip install -e . && torchrun t.py # here", 'pip install -e . && torchrun t.py "$@" # here'),
        ("nvidia-smi; python t.py $(cat more)", 'nvidia-smi; python t.py $(cat more) "$@"'),
        ('python a.py && python b.py "$@" | tee c', 'python a.py && python b.py "$@" | tee c'),
        ("bash -c 'python t.py | tee c'", 'python t.py "$@" | tee c'),
        ("""python t.py "it's $HOME, that's\"""", """python t.py "it's $HOME, that's" "$@\""""),
    ):
        with subtests.test(command):
            for text in (head, determined):
                given = words(space_of(text + json.dumps(command)))
                assert given == ["bash", "-c", passed, "bash", "${args}"]
    for command, told in (
        ("python a.py && python b.py", 'has several programs, "python a.py", "python b.py": write "$@"'),
        ("./a && ./b", "has several programs"),
        ("bash -c 'python t.py' > log", "is a shell within a shell"),
        ("python t.py <<E", "does not show which of its programs gets the parameters"),
        ("python 't.py", "is no command of a shell: No closing quotation"),
    ):
        with subtests.test(command):
            assert any(told in line for line in refused(head + json.dumps(command)))


def test_a_katib_experiment(here: Path) -> None:
    spec = space_of(KATIB)
    assert (spec.name, spec.metric, spec.goal) == ("tuned", "accuracy", "maximize")
    options = ["--lr=${lr}", "--layers=${num_layers}", "--opt=${optimizer}"]
    assert words(spec) == ["${env}", "LOG=1", "python3", "train.py", *options]
    assert section(spec, "search") == {"sampler": "gp", "seed": 7}
    assert section(spec, "budget") == {"trials": 12, "target": 0.99}
    execution = section(spec, "execution")
    assert (execution["workers"], execution["gpus_per_trial"]) == (3, 1)
    stopping = {"method": "median", "n_startup_trials": 1, "n_warmup_steps": 4}
    assert section(spec, "early_stopping") == stopping
    assert "algorithmSettings.acq_func" in text_of(KATIB)


COLLECTOR = "  metricsCollectorSpec: {collector: {kind: KIND}, source: {SOURCE}}\n"


def collected(kind: str, source: str = "", text: str = KATIB) -> str:
    given = COLLECTOR.replace("KIND", kind).replace("SOURCE", source)
    return text.replace("  parallelTrialCount", f"{given}  parallelTrialCount")


def test_how_katib_collects_a_metric(here: Path) -> None:
    spec = space_of(KATIB)
    assert (spec.value, spec.report) == ("best", "auto")  # as name=value
    latest = "metricStrategies: [{name: accuracy, value: latest}], goal:"
    assert space_of(KATIB.replace("goal:", latest, 1)).value == "last"

    form = r"filter: {metricsFormat: ['{metricName: ([\w|-]+), metricValue: ((-?\d+)(\.\d+)?)}']}"
    source = space_of(collected("StdOut", form)).report_source
    pattern = re.compile(source["stdout"])
    found = pattern.search("{metricName: accuracy, metricValue: 0.75}")
    assert found is not None and found["value"] == "0.75"
    assert pattern.search("{metricName: val-accuracy, metricValue: 0.75}") is None
    assert pattern.search("{metricName: loss, metricValue: 0.75}") is None

    named = KATIB.replace('"--opt=$', '"--log=/logs/train", "--opt=$')
    events = space_of(collected("TensorFlowEvent", "fileSystemPath: {path: /logs/train}", named))
    assert events.report_source == {"tensorboard": "${run}/train", "value": "accuracy"}
    assert "--log=${run}/train" in words(events)
    lines = space_of(collected("File", "fileSystemPath: {path: /logs/train, format: JSON}", named))
    assert lines.report_source == {"file": "${run}/train", "value": "accuracy"}


def test_a_metric_of_wandb_is_what_the_program_logs(here: Path) -> None:
    assert space_of(WANDB).report_source == {"wandb": space_of(WANDB).metric}


def test_hyperband_of_katib_sets_no_parameter(here: Path) -> None:
    given = "[{name: resource_name, value: num-layers}, {name: r_l, value: '27'}, {name: eta, value: '3'}]"
    text = KATIB.replace("bayesianoptimization", "hyperband").replace(
        '[{name: random_state, value: "7"}, {name: acq_func, value: gp_hedge}]', given
    )
    spec = space_of(text[: text.index("  earlyStopping")] + text[text.index("  parallelTrialCount") :])
    layers = spec.parameters["num_layers"]
    assert isinstance(layers, Constant) and layers.value == 27
    stopping = section(spec, "early_stopping")
    assert [stopping[key] for key in ("method", "min", "max", "eta")] == ["hyperband", 1, 27, 3]


def test_a_determined_experiment(here: Path) -> None:
    spec = space_of(DETERMINED)
    assert (spec.name, spec.metric, spec.goal) == ("mnist", "accuracy", "maximize")
    assert words(spec) == ["python3", "train.py", "--x", "1", "${args}"]
    names = ["global_batch_size", "lr", "hidden", "optimizer.name", "optimizer.momentum"]
    assert list(spec.parameters) == names
    lr = spec.parameters["lr"]
    assert isinstance(lr, Range) and (lr.min, lr.max, lr.log) == (1e-5, 1e-2, True)
    stopping = section(spec, "early_stopping")
    assert [stopping[key] for key in ("method", "min", "max", "eta")] == ["hyperband", 1, 64, 4]
    assert stopping["resource"] == "epochs"
    assert section(spec, "budget") == {"trials": 64}
    execution = section(spec, "execution")
    assert [execution[key] for key in ("workers", "retries", "gpus_per_trial")] == [4, 2, 1]


def test_a_grid_of_determined_has_its_values(here: Path) -> None:
    spec = space_of(
        "entrypoint: [python3, train.py]\nsearcher: {name: grid, metric: m, max_length: {batches: 9}}\n"
        "hyperparameters:\n  a: {type: int, minval: 1, maxval: 4, count: 3}\n"
        "  b: {type: double, minval: 0, maxval: 1, count: 5}\n  c: {type: log, base: 10, minval: -4, maxval: -2, count: 3}\n"
        "  d: {type: int, minval: 1, maxval: 2, count: 9}\n"
    )
    found = [parameter.choices for parameter in spec.parameters.values() if isinstance(parameter, Choice)]
    assert found == [[1, 3, 4], [0.0, 0.25, 0.5, 0.75, 1.0], [1e-4, 1e-3, 1e-2], [1, 2]]
    assert section(spec, "budget") == {"trials": 90} and section(spec, "search")["sampler"] == "grid"


def test_a_hydra_configuration(here: Path) -> None:
    pytest.importorskip("hydra")
    Path("app.py").write_text("import hydra\n@hydra.main()\ndef f(c): ...\n")
    text = text_of(HYDRA)
    spec = loads(text)
    assert (spec.name, spec.metric, spec.goal) == ("sphere", "FILL_IN", "maximize")
    names = {"x": "x", "model/kind": "model_kind", "lr": "lr", "units": "units", "w": "w"}
    options = [f"{given}=${{{name}:hydra}}" for given, name in names.items()]
    assert words(spec) == ["python", "app.py", *options]
    x, kind, lr, units, w = spec.parameters.values()
    assert isinstance(x, Range) and (x.min, x.max, x.step) == (-5.5, 5.5, 0.5)
    assert isinstance(kind, Choice) and kind.choices == ["small", "large"]
    assert isinstance(lr, Range) and (lr.min, lr.max, lr.log) == (1e-5, 1e-2, True)
    assert isinstance(units, Range) and units.is_int and isinstance(w, Constant)
    assert section(spec, "search") == {"sampler": "tpe", "seed": 123, "n_startup_trials": 5}
    assert section(spec, "budget") == {"trials": 30} and section(spec, "execution")["workers"] == 1
    with pytest.raises(SpaceError, match="metric: is still FILL_IN"):
        check_objective(spec)


def test_a_group_of_hydra_may_be_searched_with_what_is_in_it(here: Path) -> None:
    pytest.importorskip("hydra")
    params = "optim: 'choice(adam, sgd)', optim.lr: 'interval(0, 1)'"
    text = text_of(f"hydra: {{sweeper: {{n_trials: 3, params: {{{params}}}}}}}\n")
    spec = loads(text)
    assert spec.parameters.keys() == {"optim_group", "optim.lr"}
    assert words(spec)[2:] == ["optim=${optim_group:hydra}", "optim.lr=${optim.lr:hydra}"]
    assert "its name there is optim" in text


def test_an_older_hydra_configuration_needs_no_parser(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hydra.core.override_parser.overrides_parser", None)
    x, units, kind, rate = space_of(HYDRA_OLD).parameters.values()
    assert isinstance(x, Range) and x.step == 0.5
    assert isinstance(units, Range) and units.is_int and units.log
    assert isinstance(kind, Choice) and isinstance(rate, Range) and not rate.is_int and rate.log
    Path("other.yaml").write_text(HYDRA)
    with pytest.raises(UsageError, match=r"pip install 'hpsearch\[hydra\]'"):
        conversion(Path("other.yaml"))


def test_an_axolotl_sweep(here: Path) -> None:
    spec = space_of(AXOLOTL)
    assert words(spec) == ["axolotl", "train", "${config:config.yaml output_dir=$checkpoint}"]
    assert section(spec, "budget") == {"trials": 12} and section(spec, "search")["sampler"] == "grid"
    rows = [spec.space.passed(config) for config in spec.space.grid()]
    assert len(rows) == 12
    lora = {"adapter": "lora", "load_in_8bit": True}
    qlora = {"adapter": "qlora", "load_in_4bit": True}
    expected = [
        {"learning_rate": rate, "lora_r": rank} | group
        for rate in (0.0003, 0.0006)
        for rank in (8, 16, 32)
        for group in (lora, qlora)
    ]
    assert sorted(sorted(row.items()) for row in rows) == sorted(sorted(row.items()) for row in expected)


STUB = """\
#!{python}
import json, sys
from ruamel.yaml import YAML

config = YAML(typ="safe").load(open(sys.argv[2]))
assert config["base_model"] == "x" and (config["adapter"] == "lora") is config.get("load_in_8bit", False)
for step in (1, 2):
    print(json.dumps({{"step": step, "eval_loss": config["lora_r"] + config["learning_rate"] / step}}), flush=True)
"""


@pytest.mark.slow
def test_an_axolotl_sweep_runs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("axolotl").write_text(STUB.format(python=sys.executable))
    Path("sweep.yaml").write_text(AXOLOTL.replace("[8, 16, 32]", "[8, 16]"))
    assert cli(monkeypatch, "init", "--from", "sweep.yaml", "-o", "space.yaml") == 0
    assert cli(monkeypatch, "run", "space.yaml", "--workers", "2") == 0
    trials = open_study("sweep").trials
    assert len(trials) == 8 and trials["value_eval_loss"].min() == pytest.approx(8.00015)


def test_ray_experiments(here: Path) -> None:
    spec = space_of(RAY)
    assert (spec.name, spec.metric, spec.goal) == ("cartpole-ppo", "episode_reward_mean", "maximize")
    assert list(spec.parameters) == ["gamma", "lr", "model.vf_share_layers"]
    assert section(spec, "budget") == {"trials": 4} and section(spec, "search")["sampler"] == "grid"
    spec = space_of(RAY_TEXTS)
    lr, layers, kind, seed = spec.parameters.values()
    assert (
        isinstance(lr, Range) and lr.log and isinstance(layers, Range) and (layers.min, layers.max) == (1, 4)
    )
    assert isinstance(kind, Choice) and isinstance(seed, Constant)
    assert section(spec, "budget") == {"trials": 12, "time": 60}


HEAD = "method: random\nprogram: train.py\nparameters:\n"
REFUSED = {
    # W&B
    HEAD + "  x: {distribution: beta, a: 2}": "4:21 parameters.x.distribution: is a beta distribution",
    HEAD + "  x: {distribution: log_uniform_values, min: 0, max: 1}": "4:6 parameters.x: begins at 0; a log",
    HEAD + "  x: {distribution: log_uniform, min: 1, max: 1e6}": "4:6 parameters.x: 2.718",
    HEAD
    + "  x: {distribution: loguniform, min: 1, max: 2}": "4:21 parameters.x.distribution: is none of W&B's",
    HEAD + "  x: {min: 2, max: 1}": "4:6 parameters.x: is from 2 to 1: the bounds are swapped",
    HEAD + "  x: {min: 1, max: a}": '4:20 parameters.x.max: must be a number, not "a"',
    HEAD + "  x: {min: 1, max: true}": "4:20 parameters.x.max: must be a number, not true",
    HEAD
    + "  x: {min: 1}": "4:6 parameters.x: needs value, values, parameters, a distribution, or min and max",
    HEAD
    + "  x: {min: 1, max: 2, q: 1}": "parameters.x.q: is not a key of W&B's here; int_uniform takes min, max",
    HEAD
    + "  x: {values: [1, 1, 2]}": "4:15 parameters.x.values: 1 is listed twice, so it would be drawn twice",
    HEAD + "  x: {values: [0, false]}": "4:15 parameters.x.values: false equals 0 before it",
    HEAD + "  x: {values: [{a: 1}, {a: 2}]}": "parameters.x.values: holds a mapping",
    HEAD + "  x: {values: []}": "4:15 parameters.x.values: must be a list of at least one value, not []",
    HEAD + "  x: {values: 3}": "must be a list of at least one value, not 3",
    HEAD + "  x: {values: [a, b], probabilities: [0.5]}": "has 1 weights for 2 values",
    HEAD + "  x: {values: [a, b], probabilities: [0.5, 0.6]}": "probabilities: sum to 1.1, not 1",
    HEAD + "  x: {values: [a, b], probabilities: [1.5, -0.5]}": "must be weights of at least 0",
    HEAD + "  x: {distribution: normal, sigma: -1}": "4:36 parameters.x.sigma: must not be negative",
    HEAD + "  x: {distribution: q_uniform, min: 0, max: 1, q: 0}": "parameters.x.q: must be above 0, not 0",
    HEAD + "  x: 3": "parameters.x: must be a mapping, not 3",
    HEAD + "  x: {parameters: {}}": "parameters.x.parameters: is empty",
    HEAD + "  x: {values: [no, yes]}": '4:16 parameters.x.values[0]: "no" is read as something else by W&B',
    HEAD + "  x: {values: [010, 020]}": "is read as something else by W&B",
    HEAD + "  x: {values: [1:30, 2]}": '"1:30" is read as something else by W&B',
    HEAD.replace("random", "bayes")
    + "  x: {values: [1, 2]}": '"metric" is missing, which method: bayes needs',
    HEAD.replace("random", "grid") + "  x: {min: 0.0, max: 1}": "uniform is in no grid; W&B's has constant,",
    HEAD.replace("method: random\n", "")
    + "  x: {min: 0.0, max: 1}": ':1:1: "method" is missing; it is one of bayes, random, grid',
    HEAD.replace("random", "custom")
    + "  x: {min: 0.0, max: 1}": "1:9 method: must be one of bayes, random, grid",
    HEAD + "  x: {values: [1, 2]}\nrun_cap: 0": "5:10 run_cap: must be at least 1, not 0",
    HEAD + "  x: {values: [1, 2]}\nrun_cap: many": '5:10 run_cap: must be a number, not "many"',
    HEAD + "  x: {values: [1, 2]}\nmetrics: [{name: a}]": "metrics: names several objectives",
    HEAD
    + "  x: {values: [1, 2]}\nmetric: {name: a, goal: min}": "metric.goal: must be one of minimize, maximize",
    HEAD + "  x: {values: [1, 2]}\nearly_stop: 1": "5:1 early_stop: is not a key of W&B's here; there is",
    HEAD
    + "  x: {values: [1, 2]}\ncommand: [python, '${envvar:X}']": "write the value of the environment variable",
    HEAD
    + "  x: {values: [1, 2]}\ncommand: [python, '${args_json_file}']": "has no counterpart; use ${args_json}",
    HEAD + "  x: {values: [1, 2]}\ncommand: [python, '--a=${args}']": "is no macro that stands here",
    HEAD
    + "  x: {values: [1, 2]}\nmetric: {name: a}\nearly_terminate: {type: hyperband, min_iter: 1, eta: 1.5}": (
        "early_terminate.eta: must be a whole number of at least 2 here, not 1.5"
    ),
    HEAD
    + "  x: {values: [1, 2]}\nearly_terminate: {type: hyperband, min_iter: 1}": "which early_terminate needs",
    HEAD + "  a-b: {values: [true, false]}\ncommand: ['${program}', '${args_no_boolean_flags}']": (
        '"a-b" is no name in a space, and "${args_no_boolean_flags}" would pass a_b'
    ),
    HEAD
    + "  a-b: {values: [1, 2]}\ncommand: ['${program}', '${args_json}']": '"${args_json}" would pass a_b',
    HEAD.replace("parameters", "metric: {name: step}\nparameters") + "  x: {values: [1, 2]}": (
        '3:16 metric.name: here metric: must not be "step"'
    ),
    # NNI
    "x: {_type: uniform, _value: [0]}": "1:29 x._value: must have 2 numbers for uniform, not 1",
    "x: {_type: what, _value: [0]}": "1:12 x._type: must be one of choice, uniform",
    "x: {_type: choice, _value: [{_name: a}, {b: 1}]}": "x._value: holds a mapping",
    "x: {_type: choice, _value: [{_name: a}, {_name: a}]}": 'x._value: "a" is listed twice',
    "x: {_type: choice, _value: [{_name: 1}]}": 'x._value[0]: "_name" must be a text, not 1',
    "x: {_type: choice, _value: [{_name: a, u: {_type: randint, _value: [0, 3]}}, {_name: b, u: {_type: randint, _value: [0, 4]}}]}": (
        '"x.u" is also at other.yaml:1 x._value[0].u with other values'
    ),
    "x: {_type: loguniform, _value: [0, 1]}": "x._value: begins at 0; a logarithmic range begins above 0",
    NNI.replace("Medianstop", "Curvefitting"): 'assessor.name: "Curvefitting" has no counterpart',
    NNI.replace("name: TPE", "name: PBTTuner"): 'tuner.name: "PBTTuner" has no counterpart',
    NNI.replace("name: TPE", "className: mine.Tuner"): "tuner.className: is a tuner of your own",
    NNI + "useAnnotation: true": "useAnnotation: means that the space is in the program's comments",
    NNI + "authorName: me": "is of NNI's version 1",
    NNI.replace(
        "--data", "${DATA}"
    ): "has a ${...} that is no parameter; write its value, or $NAME for a shell",
    NNI.replace("30m", "half an hour"): 'maxExperimentDuration: must be a number, not "half an hour"',
    # Katib
    KATIB.replace(
        "medianstop", "curve"
    ): 'earlyStopping.algorithmName: must be one of medianstop, not "curve"',
    KATIB.replace(
        "type: maximize,", "type: maximize, metricStrategies: [{name: accuracy, value: min}],"
    ): 'metricStrategies: takes the "min" of accuracy, its worst value',
    collected("Custom"): 'kind: "Custom" has no counterpart; there is StdOut, File and TensorFlowEvent',
    collected(
        "TensorFlowEvent", "fileSystemPath: {path: /logs}"
    ): 'the path "/logs" is in no word of the command, so trials would share it',
    collected(
        "StdOut", "filter: {metricsFormat: ['loss (.*)']}"
    ): '"loss (.*)" is not two groups, a name and a number',
    KATIB.replace("bayesianoptimization", "enas"): 'algorithmName: "enas" has no counterpart',
    KATIB.replace(
        "name: layers,", "name: lay,"
    ): '"${trialParameters.layers}" is no parameter; trialParameters has',
    KATIB.replace(
        "reference: lr", 'reference: "${trialSpec.Name}"'
    ): "stands for ${trialSpec.Name} of the cluster",
    KATIB.replace(
        ', "--opt=${trialParameters.optimizer}"', ""
    ): 'trialSpec: does not give "optimizer" to the program',
    KATIB.replace('"0.03"', '"lots"'): 'feasibleSpace.max: must be a number, not "lots"',
    KATIB.replace(
        "  parameters:\n", "  nasConfig: {graphConfig: 1}\n  parameters:\n"
    ): "searches an architecture",
    KATIB.replace("maxTrialCount: 12", "maxTrialCount: 1.5"): "must be a whole number, not 1.5",
    # Determined
    DETERMINED.replace("name: adaptive_asha", "name: single"): "there is nothing to search",
    DETERMINED.replace("name: adaptive_asha", "name: custom"): '"custom" has no counterpart',
    DETERMINED.replace("base: 10, ", ""): 'hyperparameters.lr: "base" is missing',
    DETERMINED.replace(
        "type: log", "type: lgo"
    ): "hyperparameters.lr.type: must be one of const, int, double",
    DETERMINED.replace(
        "maxval: 64", "maxval: 6"
    ): "hyperparameters.hidden.minval: must be below maxval 6, not 8",
    DETERMINED.replace("minval: 8", "minval: 8.5"): "hidden.minval: must be a whole number, not 8.5",
    DETERMINED.replace(
        "adaptive_asha", "adaptive_asha\n  divisor: 2.5"
    ): "searcher.divisor: must be a whole number",
    DETERMINED.replace("adaptive_asha", "grid"): 'hyperparameters.lr: "count" is missing, which a grid needs',
    # Axolotl
    AXOLOTL + "micro_batch_size: 4": "6:19 micro_batch_size: must be a list of values, not 4",
    AXOLOTL + "optimizer: adam": 'optimizer: must be a list of values, not "adam"',
    AXOLOTL.replace(
        "{adapter: lora,", "{lora_r: 3,"
    ): '"lora_r" has a list of its own too, which "_" overrides',
    AXOLOTL.replace("load_in_8bit: true", "datasets: [1]"): "has a list or a mapping",
    # Ray
    RAY.replace("{grid_search: [0.0003, 0.0005]}", "{eval: 'random.random()'}"): "is Python that Ray runs",
    RAY_TEXTS.replace("tune.randint(1, 5)", "tune.sample_from(f)"): "is no call with plain values",
    RAY_TEXTS.replace("tune.randint(1, 5)", "randint(1, 5)"): "is a text; a range is tune.randint(...)",
    RAY_TEXTS.replace("tune.randint(1, 5)", "tune.lambda_(1)"): "tune.lambda_ has no counterpart",
    RAY_TEXTS.replace(
        "tune.randint(1, 5)", "tune.randint(1)"
    ): "tune.randint: missing a required argument: 'upper'",
    RAY_TEXTS.replace("tune.randint(1, 5)", "tune.randint(1, 5.5)"): "must have whole numbers",
    RAY_TEXTS.replace("loguniform(1e-4", "loguniform(0"): "param_space.lr: begins at 0",
    "config: {lr: 'tune.uniform(0, 1)'}\nparam_space: {wd: 'tune.uniform(0, 1)'}": "2:1 param_space: is beside config",
    RAY + "other: {run: DQN, config: {}}": "10:1 other: is another experiment; a space has one",
    # Hydra
    HYDRA_OLD.replace("type: int", "type: whole"): 'must be one of int, float, categorical, not "whole"',
    HYDRA_OLD + "    custom_search_space: a.b": "is a Python function that a space cannot read",
    HYDRA_OLD + "    direction: [minimize, maximize]": "direction: has several objectives",
    HYDRA_OLD + "    sampler: {_target_: mine.Sampler}": '_target_: "Sampler" has no counterpart',
    HYDRA_OLD.replace(
        "hydra:", "defaults: [{override hydra/sweeper: ax}]\nhydra:"
    ): "is of Hydra's ax sweeper",
}
IN_HYDRAS_GRAMMAR = {
    "x: tag(lgo, interval(1, 2))": 'has the tag "lgo", which Optuna\'s sweeper ignores: the range would be linear; write log, or no tag',
    "x: interval(1)": "is no value in Hydra's grammar",
    "x: interval(": "is no value in Hydra's grammar",
    "x: glob(*)": "names files of the configuration: list them",
    "~x: choice(1, 2)": "params.~x: deletes x from the configuration, and gives it no value: write ~x",
    "~x: null": "params.~x: deletes x from the configuration",
    "x: tag(log, choice(1, 2))": "has the tag log, which counts only for an interval",
    "x: tag(log, interval(0, 2))": "params.x: begins at 0.0; a logarithmic range begins above 0",
    "x: choice(1, 1)": "params.x: 1 is listed twice",
    "x: '${oc.env:HOME}'": "has the interpolation",
    "x: {a: 1}": "params.x: must be a text such as interval(0, 1)",
}


def test_what_a_space_cannot_say_is_refused_in_place(here: Path, subtests: pytest.Subtests) -> None:
    for text, message in REFUSED.items():
        with subtests.test(message):
            said = refused(text)
            assert any(message in line for line in said), said
            assert all(line.startswith("other.yaml:") for line in said)


def test_hydras_grammar_is_hydras(here: Path, subtests: pytest.Subtests) -> None:
    pytest.importorskip("hydra")
    for line, message in IN_HYDRAS_GRAMMAR.items():
        with subtests.test(line):
            (said,) = refused(
                f"hydra:\n  sweeper:\n    n_trials: 3\n    params:\n      {line}\n      y: range(3)\n"
            )
            assert message in said and said.startswith("other.yaml:5:")


def test_variables_of_determined_are_set_and_its_cluster_is_left_out(here: Path) -> None:
    text = DETERMINED.replace(
        "environment: {", "preemption_timeout: 9\nenvironment: {environment_variables: [A=1 2], "
    )
    made = text_of(text)
    assert words(loads(made))[:2] == ["${env}", "A=1 2"]
    assert "environment.image" in made and "preemption_timeout" in made
    (said,) = refused(text.replace("[A=1 2]", "{cpu: [A=1], cuda: []}"))
    assert "is of several kinds of machine" in said
    (said,) = refused(text.replace("[A=1 2]", "[A]"))
    assert 'environment_variables[0]: must be a text NAME=VALUE, not "A"' in said


def test_the_batch_of_nni_is_its_configurations(here: Path) -> None:
    batch = (
        "searchSpace: {combine_params: {_type: choice, _value: [{x: 0, kind: a}, {x: 1, kind: a}, {x: 1}]}}\n"
        "trialCommand: python train.py\nmaxTrialNumber: 3\ntuner: {name: Batch}\n"
        "trainingService: {platform: local}\n"
    )
    spec = space_of(batch)
    tried = [spec.space.passed(each) for each in spec.space.grid()]
    assert tried == [{"x": 0, "kind": "a"}, {"x": 1, "kind": "a"}, {"x": 1}]
    (said,) = refused(batch.replace("{x: 1}]", "3]"))
    assert "combine_params._value[2]: must be a mapping with keys, not 3" in said


def test_an_assessor_of_nni_that_ends_the_best_trials_is_refused(here: Path) -> None:
    experiment = (
        "searchSpace: {x: {_type: uniform, _value: [0, 1]}}\ntrialCommand: python train.py\n"
        "trainingService: {platform: local}\ntuner: {name: TPE}\nassessor: {name: Medianstop}\n"
    )
    (said,) = refused(experiment)
    assert "assessor.name: is to maximize without optimize_mode, but the tuner is to minimize" in said
    assert (
        space_of(experiment.replace("TPE}", "TPE, classArgs: {optimize_mode: maximize}}")).goal == "maximize"
    )


def test_what_only_katibs_cluster_has_is_said(here: Path) -> None:
    text = text_of(KATIB.replace("  trialTemplate:\n", "  trialTemplate:\n    retain: true\n"))
    assert "# Left out, because it describes the cluster: spec.trialTemplate.retain" in text
    (said,) = refused(
        re.sub(r"( +)image: .*\n", r"\g<0>\1envFrom: [{configMapRef: {name: x}}]\n", KATIB, count=1)
    )
    assert "envFrom: has variables that only the cluster knows" in said


def test_a_tag_of_a_choice_changes_nothing_in_hydra_either(here: Path) -> None:
    pytest.importorskip("hydra")
    text = text_of("hydra:\n  sweeper:\n    n_trials: 3\n    params:\n      x: tag(mine, choice(1, 2))\n")
    assert "  # sweepers there ignore its tag mine\n  x: [1, 2]" in text


def _text(text: str) -> str | None:
    Path("other.yaml").write_text(text, encoding="utf-8")
    return conversion(Path("other.yaml"))


NULLS = ["comment", "description", "metrics", "scheduler", "name", "run_cap", "early_terminate"]


def test_a_key_of_a_sweep_without_a_value_says_nothing(here: Path, subtests: pytest.Subtests) -> None:
    sweep = HEAD + "  x: {min: 0.0, max: 1.0, distribution: null, description: null}\n"
    without = _text(HEAD + "  x: {min: 0.0, max: 1.0}\n")
    for key in NULLS:
        with subtests.test(key):
            assert _text(f"{sweep}{key}: null\n") == without


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "program: train.py\nmethod: random\nparameters: [lr, wd]\n",
            'other.yaml:3:13 parameters: is a list, ["lr", "wd"]: give each name its values',
        ),
        (
            "hyperparameters: {lr: {type: double, minval: 0, maxval: 1}}\nsearcher: single\n",
            'other.yaml:2:11 searcher: "single" trains one configuration: there is nothing to search',
        ),
        (
            "hyperparameters: {lr: {type: double, minval: 0, maxval: 1}}\nsearcher: random\n",
            'other.yaml:2:11 searcher: "random" is the name alone; write it as a mapping: {name: random',
        ),
        ("x: '" + "x" * 200_000 + "'\n", "write long lists of values as ranges"),
    ],
)
def test_a_file_of_another_shape_is_told_what_to_write(here: Path, text: str, told: str) -> None:
    assert told in refused(text)[0]


def test_the_tune_config_of_ray_is_read_as_its_keys_are(here: Path) -> None:
    space = "param_space: {lr: 'tune.uniform(0, 1)'}\n"
    keys = {"num_samples": "3", "metric": "acc", "mode": "max", "time_budget_s": "60"}
    inside = "tune_config:\n" + "".join(f"  {key}: {value}\n" for key, value in keys.items())
    beside = "".join(f"{key}: {value}\n" for key, value in keys.items())
    assert space_of(space + inside) == space_of(space + beside)
    assert "hpsearch has settings of its own for it: tune_config.reuse_actors" in text_of(
        space + inside + "  reuse_actors: true\n"
    )
    assert refused(space + inside + "num_samples: 4\n")[0].startswith("other.yaml:7:1 num_samples: is beside")
    assert 'did you mean "metric"' in refused(space + "tune_config: {metrc: acc}\n")[0]


def test_names_in_another_alphabet_stay_apart(here: Path) -> None:
    sweep = "program: train.py\nmethod: random\nparameters:\n  学习率: {min: 0.1, max: 1.0}\n  批次: {values: [1, 2]}\n"
    text = text_of(sweep + "  größe: {values: [1, 2]}\n")
    assert [*loads(text).parameters] == ["parameter", "parameter_2", "gro_e"]
    assert "# its name there is 学习率\n  parameter: {" in text
    assert '"--批次=${parameter_2}"' in text


def test_all_faults_are_reported_at_once(here: Path) -> None:
    said = refused(HEAD + "  a: {min: 1}\n  b: {values: []}\n  c: {min: 2, max: 1}\nrun_cap: 0\n")
    assert [line.split()[1].rstrip(":") for line in said] == [
        "parameters.a",
        "parameters.b.values",
        "parameters.c",
        "run_cap",
    ]


TOOLS = {
    WANDB: ["W&B"],
    NNI: ["NNI"],
    KATIB: ["Katib"],
    DETERMINED: ["Determined"],
    HYDRA: ["Hydra"],
    AXOLOTL: ["Axolotl"],
    RAY: ["Ray Tune"],
    RAY_TEXTS: ["Ray Tune"],
    WANDB + "searchSpace: {}": ["W&B", "NNI"],
    "base_model: x\nlora_r: 8\nlearning_rate: 1e-4": [],  # a training of Axolotl's
    "lora_r: [8, 16]\nlearning_rate: 1e-4": [],
    "method: lora\nlr: 1e-4": [],
    "hydra: {run: {dir: x}}\nlr: 1": [],
    "hydra: {sweeper: {max_batch_size: 2}}\nlr: 1": [],
    "parameters: {lr: {min: 0.0, max: 1.0}}\nversion: 1\nobjective: lora\nmethod: bayes": [],
    "entrypoint: a\nhyperparameters: {lr: 0.1}": [],
    "[1]": [],
    "3": [],
}


def test_a_file_is_recognised_by_the_keys_of_one_tool(here: Path, subtests: pytest.Subtests) -> None:
    for text, tools in TOOLS.items():
        with subtests.test(text):
            data, _, _ = read(text, "other.yaml")
            assert list(tools_of(data)) == tools


def test_a_file_of_two_tools_is_refused(here: Path) -> None:
    Path("other.yaml").write_text(WANDB + "searchSpace: {}")
    with pytest.raises(
        UsageError, match=r'may be a W&B sweep file by "method".*, or an NNI experiment file by "searchS'
    ):
        conversion(Path("other.yaml"))


def test_init_converts_and_the_file_itself_says_how(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("sweep.yaml").write_text(WANDB)
    for command in ("run", "validate", "plan"):
        assert cli(monkeypatch, command, "sweep.yaml") == 2
        said = capsys.readouterr().err
        advice = "to convert it: hpsearch init --from sweep.yaml -o space.yaml"
        assert (
            f"sweep.yaml:1:1: this looks like a W&B sweep file; hpsearch has its own language; {advice}"
            in said
        )
    assert cli(monkeypatch, "init", "--from", "sweep.yaml", "-o", "space.yaml") == 0
    assert cli(monkeypatch, "validate", "space.yaml") == 0
    capsys.readouterr()
    assert cli(monkeypatch, "init", "--from", "sweep.yaml", "-o", "space.yaml") == 2
    assert "space.yaml is there already" in capsys.readouterr().err


def test_what_the_file_lacks_is_to_fill_in(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("sweep.yaml").write_text("method: random\nparameters: {x: {values: [1, 2]}}\n")
    assert cli(monkeypatch, "init", "--from", "sweep.yaml", "-o", "space.yaml") == 0
    said = capsys.readouterr()
    assert "to fill in: train.py, metric" in said.out + said.err
    assert cli(monkeypatch, "validate", "space.yaml") == 2
    assert "metric: is still FILL_IN: name the value that the program reports" in capsys.readouterr().err


def test_a_plain_configuration_is_still_proposed_from(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("train.yaml").write_text("learning_rate: 1e-3\n")
    assert conversion(Path("train.yaml")) is None
    assert cli(monkeypatch, "init", "--from", "train.yaml") == 0
    assert "Proposed from train.yaml" in Path("train_space.yaml").read_text()


HOSTILE = {
    "nested deeper than 20 levels": HEAD + "  x: " + "{parameters: {x: " * 15 + "{value: 1}" + "}}" * 15,
    "the alias": HEAD + "  x: *x",
    "duplicate key": HEAD + "  x: {values: [1]}\n  x: {values: [2]}",
    "merge keys": HEAD + "  x: {<<: {values: [1, 2]}}",
    "YAML tags": HEAD + "  x: !!python/object:os.system {}",
    "a list of choices has at most 1,000": HEAD + f"  x: {{values: {list(range(1001))}}}",
    "more than 20,000 values": HEAD
    + "  x: {values: &a [1, 2, 3]}\n"
    + "  y: {values: ["
    + "*a, " * 9000
    + "1]}",
    "needs an expression": HEAD
    + f"  x: {{values: {list(range(100))}, probabilities: {[0.011] * 90 + [0.001] * 10}}}",
    "64 bits": HEAD + "  x: {min: 1, max: 99999999999999999999999}",
    "exceeds the floats": HEAD + "  x: {distribution: uniform, min: -1.7e308, max: 1.7e308}",
    "beyond 2^53": HEAD + "  x: {min: 1, max: 9007199254740993}",
    "must be a text": HEAD.replace("train.py", '"a\\0b"') + "  x: {values: [1, 2]}",
    "is not a finite number": HEAD + "  x: {distribution: normal, mu: .nan}",
}


def test_a_hostile_file_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for message, text in HOSTILE.items():
        with subtests.test(message):
            Path("other.yaml").write_text(text)
            try:
                conversion(Path("other.yaml"))
            except (SpaceError, UsageError) as error:
                assert message in str(error)
            else:
                assert (
                    cli(monkeypatch, "init", "--from", "other.yaml") == 2
                )  # what `conversion` cannot read at all


def test_odd_names_stay_inside_their_comments(here: Path) -> None:
    spec = space_of(
        'method: random\nprogram: "a b.py"\nname: "x\\ny: 1"\nparameters: {"a\\nb: 1": {values: ["\\u2028", "#"]}, "true": {values: [1, 2]}}'
    )
    assert list(spec.parameters) == ["a_b__1", "_true"]
    assert words(spec)[2:] == ["a b.py", "--a\nb: 1=${a_b__1}", "--true=${_true}"]


finite = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: float(f"{x:.6g}"))
number = finite | st.integers(-(10**6), 10**6)
positive = st.floats(1e-6, 1e6).map(lambda x: float(f"{x:.6g}"))
scalar = st.booleans() | st.integers(-9, 9) | st.text(st.characters(codec="utf-8"), max_size=8) | st.none()


@st.composite
def bounded(draw: st.DrawFn, /, values: st.SearchStrategy[Any], **more: Any) -> dict[str, Any]:
    low, high = sorted([draw(values), draw(values)])
    return {"min": low, "max": high} | {key: draw(value) for key, value in more.items()}


def kind(name: str) -> st.SearchStrategy[str]:
    return st.just(name)


PARAMETERS = st.one_of(
    bounded(number),
    bounded(st.integers(-99, 99), distribution=kind("int_uniform")),
    bounded(number, distribution=kind("uniform")),
    bounded(positive, distribution=kind("log_uniform_values")),
    bounded(st.floats(-20, 20), distribution=st.sampled_from(["log_uniform", "inv_log_uniform"])),
    bounded(positive, distribution=kind("q_log_uniform_values"), q=st.sampled_from([1, 8, 0.5, 0.1])),
    bounded(
        st.integers(-99, 99) | st.floats(-99, 99),
        distribution=kind("q_uniform"),
        q=st.sampled_from([1, 7, 0.5, 0.1]),
    ),
    st.fixed_dictionaries({"distribution": kind("normal"), "mu": finite, "sigma": st.floats(0, 1e3)}),
    st.fixed_dictionaries(
        {"distribution": kind("q_normal"), "mu": st.floats(-9, 9), "sigma": st.floats(0, 9)}
    ),
    st.fixed_dictionaries(
        {"distribution": kind("log_normal"), "mu": st.floats(-9, 9), "sigma": st.floats(0, 9)}
    ),
    st.fixed_dictionaries({"values": st.lists(scalar, min_size=1, max_size=5)}),
    st.fixed_dictionaries({"value": scalar | st.lists(scalar, max_size=3)}),
)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,9}", fullmatch=True)
NESTED = st.dictionaries(
    NAMES, st.recursive(PARAMETERS, lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(lambda d: {"parameters": d}), max_leaves=5),
    min_size=1, max_size=5,
)  # fmt: skip


@given(NESTED, st.sampled_from(["random", "bayes"]))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_wandb_sweep_is_converted_or_refused(here: Path, parameters: dict[str, Any], method: str) -> None:
    """Whatever it holds: a space that loads and whose command passes every parameter, or a message."""
    import json

    sweep = {"method": method, "program": "train.py", "metric": {"name": "m"}, "parameters": parameters}
    Path("sweep.json").write_text(json.dumps(sweep))
    try:
        text = conversion(Path("sweep.json"))
    except (SpaceError, UsageError) as error:
        assert "sweep.json" in str(error)
        return
    assert text is not None
    spec = loads(text, "space.yaml")
    check_objective(spec)
    assert all(isinstance(each, Range | Choice | Constant | Derived) for each in spec.parameters.values())
    assert spec.goal == "minimize"
