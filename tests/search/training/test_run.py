"""One configuration trained outside a search: what it leaves, how it goes on, how it fails."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import pytest

from hpsearch.search.cli import main
from hpsearch.search.errors import SearchError, UsageError
from hpsearch.search.training.run import Summary, train
from hpsearch.search.trials.document import Document, load_document, override, parse_assignments, with_presets
from hpsearch.search.trials.reports import Report
from hpsearch.trainer.config.shape import Shape
from hpsearch.trainer.guides.presets import SCENARIOS, SIZES

from ...support.outputs import check_output

COUNTING = """\
import os
import pathlib

def train(trial):
    start = 0
    if trial.resume_from is not None:
        start = int((trial.resume_from / "step").read_text())
    for step in range(start + 1, 5):
        (trial.checkpoint / "step").write_text(str(step))
        trial.report(trial.params["x"] / step, step=step, twice=2 * step)
        if step == 2 and pathlib.Path("interrupt").exists():
            raise KeyboardInterrupt
    return trial.params["x"] / 4
"""
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder; what objectives put on the path goes away again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command: its exit code, its output, and its errors."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hpsearch", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


def configuration(source: str = COUNTING, *, file: str = "best.yaml", **fields: Any) -> Path:
    """Write a configuration whose objective is a function of this source."""
    Path("mine.py").write_text(source, encoding="utf-8")
    content = {"objective": "mine.py:train", "metric": "loss", "parameters": {"x": 8.0}, "seed": 5} | fields
    Path(file).write_text(json.dumps(content), encoding="utf-8")
    return Path(file)


def body(*lines: str) -> str:
    return "import math\ndef train(trial):\n" + "".join(f"    {line}\n" for line in lines)


def trained(path: Path, **options: Any) -> Summary:
    return train(load_document(path), **options)


def steps(folder: Path | str) -> list[int]:
    """The steps in the run's file of reports."""
    lines = Path(folder, "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["step"] for line in lines]


# What it leaves


def test_a_run_leaves_its_reports_its_configuration_and_a_summary() -> None:
    summary = trained(configuration())
    assert (summary.value, summary.at, summary.unit) == (2.0, 4, "steps")
    folder = Path("trained/best")
    assert summary.folder == folder
    assert sorted(summary.files) == ["config.yaml", "metrics.jsonl", "summary.json"]
    assert json.loads((folder / "metrics.jsonl").read_text().splitlines()[1]) == {
        "step": 2,
        "value": 4.0,
        "twice": 4,
    }
    written = json.loads((folder / "summary.json").read_text())
    assert written["value"] == 2.0
    assert (written["parameters"], written["seed"]) == ({"x": 8.0}, 5)
    assert written["versions"].keys() >= {"python", "torch", "hpsearch"}
    assert written["source"] == {"file": "best.yaml"}


def test_its_configuration_trains_again() -> None:
    first = trained(configuration(parameters={"x": 0.1, "inner.rate": 1e-5, "words": ["on", "1:30", None]}))
    again = trained(first.folder / "config.yaml", folder="again")
    assert again.value == first.value
    assert again.parameters == {"x": 0.1, "inner": {"rate": 1e-5}, "words": ["on", "1:30", None]}


def test_an_objective_sees_the_same_trial_as_in_a_search() -> None:
    source = body(
        "assert trial.number == 0 and trial.seed == 5 and trial.resume_from is None",
        "assert trial.params == {'x': 8.0, 'inner': {'y': 1}}",
        "assert trial.checkpoint.is_dir()",
        "return 1",
    )
    assert trained(configuration(source, parameters={"x": 8.0, "inner.y": 1})).value == 1.0


def test_a_command_is_trained() -> None:
    script = "import json, sys; print(json.dumps({'step': 1, 'loss': float(sys.argv[1].split('=')[1])}))"
    path = configuration(objective={"command": [sys.executable, "-c", script, "${args}"]})
    assert trained(path).value == 8.0


def test_no_report_ends_a_run() -> None:
    source = body("for step in range(1, 200):", "    trial.report(float(step), step=step)", "return 0.0")
    assert trained(configuration(source)).at == 199


def test_the_best_value_counts_also_after_a_resume(here: Path) -> None:
    source = COUNTING.replace('trial.params["x"] / step, step', "abs(step - 2.0), step")
    path = configuration(source, value="best", provenance={"value": 0.0, "study": "s", "trial": 3})
    (here / "interrupt").touch()
    with pytest.raises(KeyboardInterrupt):
        trained(path)
    (here / "interrupt").unlink()
    summary = trained(path)
    assert (summary.value, summary.at, summary.resumed_at, summary.reproduced) == (0.0, 4, 2, True)


def test_the_best_value_follows_the_goal() -> None:
    source = body("trial.report(3.0, step=1)", "return 1.0")
    assert trained(configuration(source, value="best", goal="maximize")).value == 3.0
    again = configuration(source, value="best", provenance={"goal": "maximize"}, file="again.yaml")
    assert trained(again).value == 3.0


def test_what_is_not_finite_is_left_out() -> None:
    source = body("trial.report(3.0, step=1)", "trial.report(math.nan, step=2)", "return math.inf")
    assert trained(configuration(source, nan="ignore")).value == 3.0
    never = configuration(body("trial.report(math.nan, step=1)", "return math.nan"), nan="ignore")
    with pytest.raises(SearchError, match="diverged: loss was never finite"):
        trained(never, folder="never")


@pytest.mark.parametrize(("key", "allowed"), [("value", "last or best"), ("nan", "diverged or ignore")])
def test_another_rule_for_its_value_is_refused(cli: Cli, key: str, allowed: str) -> None:
    code, _, errors = cli("train", str(configuration(**{key: "mean"})))
    assert (code, f'{key}: must be {allowed}, not "mean"' in errors) == (2, True)


# Failures


NOT_A_NUMBER = [
    body("trial.report(math.nan, step=3)", "return 0.0"),
    body("try:", "    trial.report(math.inf, step=3)", "except BaseException:", "    return 0.0"),
    body("return math.nan"),
]


@pytest.mark.parametrize("source", NOT_A_NUMBER)
def test_divergence_ends_the_run(cli: Cli, source: str) -> None:
    code, _, errors = cli("train", str(configuration(source)))
    assert code == 1
    assert errors.startswith("hpsearch: diverged: ")
    assert not Path("trained/best/summary.json").exists()


def test_divergence_ends_with_what_would_help(cli: Cli) -> None:
    path = configuration(NOT_A_NUMBER[0], parameters={"x": 1.0, "learning_rate": 0.5, "max_grad_norm": 0})
    assert cli("train", str(path))[2].splitlines() == [
        "hpsearch: diverged: loss was nan at step 3",
        "  lower learning_rate from 0.5 to 0.05",
        "  set max_grad_norm to 1 (it is 0, which is no limit)",
    ]


def test_too_little_memory_ends_with_what_would_help(cli: Cli) -> None:
    path = configuration(body("raise MemoryError('so big')"), parameters={"batch_size": 16})
    code, _, errors = cli("train", str(path))
    assert code == 1
    assert errors.splitlines() == [
        "hpsearch: out of memory: MemoryError: so big",
        "  halve batch_size from 16 to 8: half the activations",
    ]


@pytest.mark.parametrize("file", [None, "summary.json"], ids=["in the objective", "after it"])
def test_a_full_disk_is_reported_as_one(cli: Cli, monkeypatch: pytest.MonkeyPatch, file: str | None) -> None:
    there = Path.replace

    def replace(path: Path, target: Path) -> Path:
        if target.name == file:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return there(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    lines = (
        ["import os", "os.write(os.open('/dev/full', os.O_WRONLY), b' ')"] if file is None else ["return 1.0"]
    )
    code, _, errors = cli("train", str(configuration(body(*lines))))
    assert code == 1
    assert errors.startswith("hpsearch: the disk is full: ") and errors.count("\n") == 1
    assert "No space left on device" in errors and "free some space, and the same command continues" in errors


@pytest.mark.parametrize(
    ("objective", "name"),
    [("pretrain", "model"), pytest.param("hf_lora", "adapter_model", marks=pytest.mark.extras("peft"))],
)
def test_a_model_that_cannot_be_written_is_a_failure_of_the_run(
    cli: Cli, objective: str, name: str, one_thread: None
) -> None:
    size = {"width": 8, "depth": 1, "heads": 2} if objective == "pretrain" else {}
    params = {"max_steps": 1, "batch_size": 2, "max_length": 16, "eval_samples": 2, "device": "cpu"} | size
    file = str(configuration(objective=objective, metric="val_loss", parameters=params))
    in_its_place = Path(f"trained/best/{name}.safetensors")
    in_its_place.mkdir(parents=True)
    Path("trained/best/.lock").touch()
    code, _, errors = cli("train", file)
    assert code == 1 and "hpsearch: the run's files: " in errors and "Is a directory" in errors
    in_its_place.rmdir()
    assert cli("train", file)[0] == 0 and in_its_place.is_file()


def test_an_overfitted_run_ends_with_what_would_help(cli: Cli) -> None:
    source = body(
        "for step in range(1, 4):",
        "    trial.report(1.3 + step * (step - 2) / 10, step=100 * step, train_loss=1.0 / step)",
        "return 1.6",
    )
    path = configuration(source, parameters={"max_steps": 300, "dropout": 0.0})
    assert cli("train", str(path))[1].splitlines()[-6:-4] == [
        "advice: loss rose from 1.2 at 100 to 1.6 at 300 steps while train_loss fell from 1 to 0.3333: "
        "lower max_steps from 300 to 100",
        "advice: raise dropout from 0 to 0.05",
    ]
    assert len(json.loads(Path("trained/best/summary.json").read_text())["advice"]) == 2


def test_divergence_says_where() -> None:
    with pytest.raises(SearchError, match="diverged: loss was nan at step 3; try a lower learning rate"):
        trained(configuration(NOT_A_NUMBER[0]))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("raise KeyError('beta')", "KeyError: 'beta'"),
        ("raise SystemExit('gave up')", "SystemExit: gave up"),
        ("return 'good'", "TypeError: the objective returned 'good'; it must be a number"),
        ("trial.report(1.0, step=-1)", "ValueError: the step is -1; steps are whole numbers from 0 to"),
    ],
)
def test_an_exception_is_reported_with_its_place(cli: Cli, line: str, told: str) -> None:
    code, _, errors = cli("train", str(configuration(body(line))))
    assert code == 1
    assert errors.startswith(f"hpsearch: {told}")
    assert "Traceback" in errors


# Going on


def test_an_interrupted_run_resumes_from_its_checkpoint(cli: Cli) -> None:
    path = str(configuration())
    Path("interrupt").touch()
    code, shown, _ = cli("train", path)
    assert code == 130
    assert shown.splitlines()[-1] == "interrupted at step 2; continue with: hpsearch train best.yaml"
    Path("interrupt").unlink()
    code, shown, _ = cli("train", path)
    assert code == 0
    assert shown.startswith("continuing at step 2: mine.py:train in trained/best\n3  loss 2.6667  twice 6\n")
    assert steps("trained/best") == [1, 2, 3, 4]


def test_an_attempt_that_starts_again_repeats_no_report_in_the_file() -> None:
    source = COUNTING.replace("start = int(", "start = 0 * int(")
    Path("interrupt").touch()
    with pytest.raises(KeyboardInterrupt):
        trained(configuration(source))
    Path("interrupt").unlink()
    with Path("trained/best/metrics.jsonl").open("a") as stream:
        stream.write('{"step": 3, "val')  # killed while writing
    trained(configuration(source))
    assert steps("trained/best") == [1, 2, 3, 4]


def test_a_finished_run_is_kept_unless_forced(cli: Cli) -> None:
    path = str(configuration())
    cli("train", path)
    code, shown, errors = cli("train", path)
    assert (code, shown) == (2, "")
    assert "trained/best holds a finished run; start over, or choose another folder (--force" in errors
    assert cli("train", path, "--force")[0] == 0
    assert steps("trained/best") == [1, 2, 3, 4]


def test_force_deletes_what_the_run_left_and_nothing_else() -> None:
    summary = trained(configuration())
    (summary.folder / "notes.txt").write_text("mine")
    (summary.folder / "checkpoint" / "old").touch()
    (summary.folder / "merged").mkdir()
    for left in ("merged/model.safetensors", "../elsewhere"):
        (summary.folder / left).touch()
    told = json.loads((summary.folder / "summary.json").read_text())
    told["files"] += ["merged/model.safetensors", "../elsewhere"]
    (summary.folder / "summary.json").write_text(json.dumps(told))
    trained(configuration(parameters={"x": 4.0}), force=True)
    assert (summary.folder / "notes.txt").read_text() == "mine"
    assert not (summary.folder / "merged").exists() and (summary.folder / "../elsewhere").exists()
    assert not (summary.folder / "checkpoint" / "old").exists()


def test_an_unfinished_run_of_another_configuration_is_kept() -> None:
    Path("interrupt").touch()
    with pytest.raises(KeyboardInterrupt):
        trained(configuration())
    with pytest.raises(UsageError, match="holds a run of another configuration"):
        trained(configuration(parameters={"x": 7.0}))
    assert steps("trained/best") == [1, 2]


def test_how_many_checkpoints_are_kept_may_be_changed_under_way() -> None:
    """It says nothing of what the run is; the run goes on."""

    def interrupt(report: Report) -> None:
        if report.step == 4:
            raise KeyboardInterrupt

    document = lora(max_length=16, batch_size=2, eval_samples=2, max_steps=8, eval_every=2, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        train(document, on_report=interrupt)
    summary = train(override(document, {"save_total_limit": 3}))
    assert summary.resumed_at == 4
    kept = sorted(path.name for path in (summary.folder / "checkpoint").iterdir())
    names = ["checkpoint.4.safetensors", "checkpoint.previous.safetensors", "checkpoint.safetensors"]
    assert kept == names
    assert load_document(summary.folder / "config.yaml").parameters["save_total_limit"] == 3


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_of_other_files_is_left_alone(force: bool) -> None:
    Path("data").mkdir()
    Path("data/config.yaml").write_text("mine")
    with pytest.raises(UsageError, match="data holds other files"):
        trained(configuration(), folder="data", force=force)
    assert [path.name for path in Path("data").iterdir()] == ["config.yaml"]
    assert Path("data/config.yaml").read_text() == "mine"


def test_one_process_trains_in_a_folder() -> None:
    summary = trained(configuration())
    with (
        filelock.FileLock(summary.folder / ".lock"),
        pytest.raises(UsageError, match="another process trains in"),
    ):
        trained(configuration(), force=True)
    assert (summary.folder / "summary.json").exists()


def test_a_folder_that_cannot_be_made_is_reported() -> None:
    path = configuration()
    with pytest.raises(SearchError, match=r"cannot use the folder best\.yaml/x: Not a directory"):
        trained(path, folder=path / "x")


# The document


def test_a_file_by_hand_needs_parameters_alone() -> None:
    Path("hand.yaml").write_text("parameters: {learning_rate: 1e-3, max_samples: 64}\n")
    document = load_document("hand.yaml")
    assert (document.objective, document.metric, document.seed) == ("lora", "val_loss", 0)
    assert document.parameters == {"learning_rate": 0.001, "max_samples": 64}


DOCUMENTS = [
    ("parameters: {max_samples: 64}\nsede: 1\n", 'f.yaml:2:1 sede: unknown key, did you mean "seed"?'),
    ("parameters: {}\n", "f.yaml:1:13 parameters: must be a mapping"),
    ("preset: 3\nparameters: {max_samples: 64}\n", "f.yaml:1:9 preset: must be a preset's name or a list"),
    (
        "preset: quikc\nparameters: {lora_r: 4}\n",
        'f.yaml:1:9 preset: there is no preset "quikc", did you mean',
    ),
    ("preset: time\nparameters: {max_samples: 8}\n", "max_samples: found 8, but one step takes 32 samples"),
    ("parameters: {max_samples: 64}\nseed: -1\n", "f.yaml:2:7 seed: must be a whole number"),
    ("parameters: {max_samples: 64}\nobjective: [a]\n", "f.yaml:2:12 objective: must be a name"),
    ("parameters: {max_samples: 64}\nmetric: 3\n", "f.yaml:2:9 metric: must be a name"),
    ("version: 1\nparameters: {max_samples: 64}\n", "f.yaml:1:1: this is a space to search (hpsearch run)"),
    ("- 1\n", "f.yaml:1:1: must be a mapping"),
    ("parameters: {\n", "f.yaml:2:1: not YAML"),
    (
        "parameters:\n  max_samples: 64\n  lerning_rate: 1e-3\n",
        "f.yaml:3:17 parameters.lerning_rate: unknown to the objective 'lora', did you mean",
    ),
    (
        "parameters:\n  max_samples: 64\n  lora_r: four\n",
        "f.yaml:3:11 parameters.lora_r: found 'four' (str), needs a whole number in [1, 65536]",
    ),
    (
        "parameters: {max_samples: 16, base: /gone.safetensors}\n",
        'f.yaml:1:37 parameters.base: there is no file "/gone.safetensors"',
    ),
    (
        "parameters: {max_samples: 16, train_file: gone.txt}\n",
        'f.yaml:1:43 parameters.train_file: there is no file "gone.txt"',
    ),
    (
        "parameters: {max_samples: 16, max_length: 4096}\n",
        "f.yaml:1:43 parameters.max_length: found 4096, but the base was made for 128",
    ),
    (
        "parameters: {lora_r: 4}\n",
        "f.yaml:1:13 parameters.max_samples: max_samples, max_steps, num_train_epochs: found none",
    ),
    (
        "metric: accuracy\nparameters: {max_samples: 16}\n",
        "f.yaml:1:9 metric: is accuracy, but the value that lora reports is val_loss",
    ),
    ("objective: loar\nparameters: {x: 1}\n", 'f.yaml:1:12 objective: there is no objective "loar"'),
    ("objective: 'gone.py:f'\nparameters: {x: 1}\n", 'f.yaml:1:12 objective: objective "gone.py:f"'),
]


@pytest.mark.parametrize(("text", "told"), DOCUMENTS)
def test_a_wrong_file_is_reported_at_its_place(cli: Cli, text: str, told: str) -> None:
    Path("f.yaml").write_text(text)
    code, shown, errors = cli("train", "f.yaml")
    assert (code, shown) == (2, "")
    assert told in errors
    assert not Path("trained").exists()


def test_a_missing_file_says_what_writes_one(cli: Cli) -> None:
    assert cli("train", "no.yaml")[2] == ("no.yaml: no such file; hpsearch export STUDY -o FILE writes one\n")


def lora(**parameters: Any) -> Document:
    Path("lora.json").write_text(json.dumps({"parameters": parameters}))
    return load_document("lora.json")


def test_values_on_the_command_line_are_read_as_in_a_space() -> None:
    given = ["a=1e-3", "b=07", "c=[x, 2]", "d=", "e=true", "f.g=h=i", 'j="1"', "k=yes"]
    assert parse_assignments(given) == {
        "a": 0.001,
        "b": 7,
        "c": ["x", 2],
        "d": None,
        "e": True,
        "f.g": "h=i",
        "j": "1",
        "k": "yes",
    }


@pytest.mark.parametrize("word", ["alone", "=1", "a=[1", "a=.nan"])
def test_a_value_that_cannot_be_read_is_reported(cli: Cli, word: str) -> None:
    code, _, errors = cli("train", str(configuration()), "--set", word)
    assert (code, len(errors.splitlines())) == (2, 1)
    assert "--set" in errors


def test_a_preset_in_the_file_gives_what_it_leaves_out() -> None:
    Path("hand.yaml").write_text("preset: memory\nparameters: {learning_rate: 1e-3, batch_size: 1}\n")
    parameters = load_document("hand.yaml").parameters
    assert (parameters["learning_rate"], parameters["batch_size"]) == (1e-3, 1)
    assert (parameters["gradient_accumulation_steps"], parameters["max_samples"]) == (8, 7800)
    Path("hand.yaml").write_text("objective: pretrain\npreset: [time, large]\nparameters: {depth: 3}\n")
    parameters = load_document("hand.yaml").parameters
    assert [parameters[name] for name in ("width", "depth", "batch_size")] == [768, 3, 32]


def test_a_preset_on_the_command_line_overrides_the_file_but_not_the_searched_values() -> None:
    found = {"learning_rate": 4e-3, "lr_scheduler": "constant", "lora_r": 4}
    document = lora(batch_size=16, max_steps=10, eval_every=5, **found)
    changed = override(document, with_presets(document, ["production"], {"eval_every": 100}))
    assert changed.parameters == found | {
        "batch_size": 4,
        "gradient_accumulation_steps": 4,
        "max_samples": 13_000,
        "eval_every": 100,
        "early_stopping_patience": 5,
        "warmup_ratio": 0.1,
    }
    assert {"batch_size", "max_samples"} <= {*changed.overridden}


PRESETS = [
    ("quikc", 'hpsearch: there is no preset "quikc", did you mean "quick"?; there is quick, '),
    ("small", "hpsearch: small is a size to train from scratch"),
]


@pytest.mark.parametrize(("name", "told"), PRESETS)
def test_a_preset_that_there_is_not_is_reported(cli: Cli, name: str, told: str) -> None:
    lora(max_samples=64)
    code, shown, errors = cli("train", "lora.json", "--preset", name)
    assert (code, shown) == (2, "")
    assert errors.startswith(told)


def test_presets_are_for_the_built_in_objectives(cli: Cli) -> None:
    code, _, errors = cli("train", str(configuration()), "--preset", "quick")
    assert (code, errors) == (
        2,
        "hpsearch: presets are for the objectives lora and pretrain; write the parameters instead (--preset)\n",
    )


def test_an_epoch_is_shown_with_its_total(cli: Cli) -> None:
    lora(
        max_length=16, eval_samples=2, device="cpu", num_train_epochs=2, samples_per_epoch=8, max_samples=None
    )
    code, shown, errors = cli("train", "lora.json")
    assert code == 0, errors
    assert shown.startswith("training lora for 2 epochs in ") and "\n2/2  val_loss " in shown


def test_a_training_takes_the_preset_of_its_command_line(cli: Cli) -> None:
    lora(max_length=16, eval_samples=2, device="cpu")
    code, shown, _ = cli("train", "lora.json", "--preset", "time", "--max-samples", "64")
    assert code == 0
    assert " for 64 samples (with batch_size, " in shown
    trained = load_document("trained/lora/config.yaml").parameters
    assert (trained["batch_size"], trained["learning_rate"], trained["max_samples"]) == (32, 0.01, 64)


def test_a_change_without_an_effect_is_reported(cli: Cli) -> None:
    lora(max_length=16, eval_samples=2, max_samples=8, device="cpu")
    words = ("--set", "finetuning_type=linear", "--set", "lora_r=4")
    code, shown, _ = cli("train", "lora.json", *words)
    assert code == 0
    assert "lora_r has no effect unless finetuning_type is lora" in shown


def test_the_help_counts_the_weights_of_each_size(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100000")
    shown = cli("train", "--help")[1]
    shapes = [Shape(size["width"], size["depth"], size["heads"], 128) for size in SIZES.values()]
    small, medium, large = (shape.weights / 1e6 for shape in shapes)
    assert (
        f"small, {small:.1f} million weights; on a GPU medium, {medium:.0f} million, or large, {large:.0f} million"
        in shown
    )
    assert f"({', '.join(SCENARIOS)})" in shown


def test_dotted_names_reach_inside() -> None:
    document = override(
        load_document(configuration(parameters={"m": {"n": 1, "o": 2}})), {"m.n": 3, "seed": 9}
    )
    assert (document.parameters, document.seed) == ({"m": {"n": 3, "o": 2}}, 9)
    with pytest.raises(UsageError, match=r'^m\.n\.x: "n" is a value'):
        override(document, {"m.n.x": 3})


def test_a_parameter_that_a_function_was_not_given_is_refused(cli: Cli) -> None:
    code, _, errors = cli("train", str(configuration()), "--set", "xx=1")
    assert code == 2
    assert 'best.yaml --set xx: the file has no such parameter, did you mean "x"?' in errors


def test_a_wrong_value_on_the_command_line_is_reported_as_such(cli: Cli) -> None:
    lora(max_samples=64)
    assert "lora.json --set lora_r: found 'four'" in cli("train", "lora.json", "--set", "lora_r=four")[2]


def test_max_samples_takes_the_place_of_steps() -> None:
    document = override(lora(max_steps=10, eval_every=5, lora_r=2), {"max_samples": 64})
    assert document.parameters == {"max_samples": 64, "lora_r": 2}
    assert document.unit == "samples"


# The value of a trial

FROM = {"study": "s", "trial": 3, "value": 2.0, "versions": {"torch": "1.0"}}


def test_a_value_is_reproduced(cli: Cli) -> None:
    code, shown, _ = cli("train", str(configuration(provenance=FROM)))
    assert code == 0
    assert shown.startswith('training mine.py:train (trial 3 of "s") in trained/s-3\n')
    assert 'the same value as trial 3 of "s", bit for bit' in shown.splitlines()
    assert json.loads(Path("trained/s-3/summary.json").read_text())["reproduced"] is True


def test_a_different_value_is_reported_with_its_causes(cli: Cli) -> None:
    code, shown, _ = cli("train", str(configuration(provenance=FROM | {"value": 2.0000000000000004})))
    assert code == 0
    assert 'trial 3 of "s" had 2.0000000000000004, this is 2.0: other versions (torch 1.0 -> ' in shown


@pytest.mark.parametrize(("given", "promised"), [("x=8.0", 2.0), ("x=7.0", None), ("seed=6", None)])
def test_a_changed_configuration_promises_nothing(given: str, promised: float | None) -> None:
    document = override(load_document(configuration(provenance=FROM)), parse_assignments([given]))
    summary = train(document)
    assert summary.expected == promised
    again = load_document(summary.folder / "config.yaml")
    assert again.expected == promised  # nor does the file that it leaves


def test_the_trial_s_number_of_threads_is_used_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    source = "import os\ndef train(trial):\n    return float(os.environ['OMP_NUM_THREADS'])\n"
    assert trained(configuration(source, provenance={"threads": 3})).value == 3.0
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert trained(configuration(source), folder="free").value == 7.0


RANKED = """\
import os
import pathlib

def train(trial):
    rank, count = os.environ.get("RANK", "alone"), os.environ.get("WORLD_SIZE", "1")
    pathlib.Path(f"rank-{rank}-of-{count}").touch()
    if pathlib.Path("bad").exists() and rank == "1":
        raise ValueError("bad luck")
    trial.report(trial.params["x"], step=1)
    return trial.params["x"] / 4
"""


def test_a_trial_of_several_processes_is_trained_in_as_many(cli: Cli) -> None:
    file = str(configuration(RANKED, provenance=FROM | {"processes_per_trial": 2}))
    Path("bad").touch()
    code, _, errors = cli("train", file)
    assert code == 1 and "hpsearch: rank 1: ValueError: bad luck" in errors
    Path("bad").unlink()
    code, shown, _ = cli("train", file)
    assert code == 0 and 'the same value as trial 3 of "s", bit for bit' in shown
    assert sorted(path.name for path in Path.cwd().glob("rank-*")) == ["rank-0-of-2", "rank-1-of-2"]
    code, shown, _ = cli("train", file, "-o", "alone", "--processes", "1")
    assert code == 0 and "bit for bit" not in shown, "sums are taken in another order"
    assert Path("rank-alone-of-1").exists()
    code, _, errors = cli("train", str(configuration(objective="sklearn")), "--processes", "2")
    assert code == 2 and 'hpsearch: the objective "sklearn" trains in one process' in errors


def test_processes_that_cannot_share_a_training_are_refused_before_any_starts(cli: Cli) -> None:
    compiled = {"max_steps": 4, "torch_compile": True}
    file = configuration(objective="pretrain", parameters=compiled)
    code, _, errors = cli("train", str(file), "--processes", "2")
    assert (
        code == 2
        and "parameters.torch_compile: found true, but a run of several processes is not compiled" in errors
    )
    shared = FROM | {"processes_per_trial": 2, "strategy": "fsdp"}
    file = configuration(objective="pretrain", parameters={"max_steps": 4}, provenance=shared)
    code, _, errors = cli("train", str(file), "--set", "optimizer=muon")
    assert code == 2 and "--set optimizer: found 'muon', which steps whole matrices, but with fsdp" in errors
    assert not Path("trained").exists()


def test_json_is_alone_on_the_output(cli: Cli) -> None:
    code, shown, errors = cli("train", str(configuration()), "--json")
    assert (code, json.loads(shown)["value"]) == (0, 2.0)
    check_output("train", json.loads(shown))
    assert "4  loss 2.0000  twice 8" in errors.splitlines()


def test_merging_is_for_adapters(cli: Cli) -> None:
    code, _, errors = cli("train", str(configuration()), "--merge")
    assert (code, errors) == (
        2,
        "hpsearch: only the objectives lora and hf_lora leave adapters to merge (--merge)\n",
    )


# Real trainings

SPACE = """\
version: 1
name: small
objective: lora
metric: val_loss
parameters:
  learning_rate: {min: 1e-4, max: 1e-2, log: true}
  lora_r: [2, 4]
  lora_dropout: 0.1
  target_modules: [[qkv], all-linear]
  batch_size: 4
  max_length: 16
  max_samples: 32
  eval_every: 16
  eval_samples: 2
  device: cpu
baseline: {learning_rate: 1e-3}
budget: {trials: 2}
execution: {workers: 1}
"""
LONG = """\
parameters:
  {lora_r: 2, batch_size: 2, max_length: 16, max_samples: 200, eval_every: 2, eval_samples: 2, device: cpu}
provenance: {threads: 1}
"""


def command(*words: str) -> list[str]:
    return [sys.executable, "-P", "-c", "from hpsearch.search.cli import main; main()", *words]


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A command in its own process, with its output to read; killed where a test fails."""
    with subprocess.Popen(command(*words), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.slow
def test_a_trial_of_a_search_is_trained_again_to_the_same_value() -> None:
    from hpsearch.search import run
    from hpsearch.search.trials.export import document, render

    Path("small.yaml").write_text(SPACE)
    result = run("small.yaml", storage="s.db")
    assert result.best_trial is not None
    Path("best.yaml").write_text(render(document(result.spec, result.best_trial, result.provenance), "yaml"))
    done = subprocess.run(
        command("train", "best.yaml", "--merge"), capture_output=True, text=True, check=True
    )
    assert f'the same value as trial {result.best.number} of "small", bit for bit' in done.stdout.splitlines()
    folder = Path(f"trained/small-{result.best.number}")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["value"] == result.best.value
    for name in ("adapter.safetensors", "adapter_config.json", "model.safetensors"):
        assert name in summary["files"]
        assert (folder / name).stat().st_size


@pytest.mark.slow
def test_a_killed_training_resumes_and_gives_the_same_value(cli: Cli, one_thread: None) -> None:
    Path("long.yaml").write_text(LONG)
    with started("train", "long.yaml", "-o", "killed") as process:
        for _ in range(5):
            next_line(process)
        process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not Path("killed/summary.json").exists()
    code, shown, _ = cli("train", "long.yaml", "-o", "killed")
    assert code == 0 and shown.startswith("continuing at ")
    cli("train", "long.yaml", "-o", "whole")
    killed, whole = (json.loads(Path(name, "summary.json").read_text()) for name in ("killed", "whole"))
    assert killed["value"] == whole["value"]
    assert steps("killed") == steps("whole")
    assert Path("killed/adapter.safetensors").read_bytes() == Path("whole/adapter.safetensors").read_bytes()


@pytest.mark.slow
def test_a_training_that_cannot_be_compiled_says_what_is_missing(tmp_path: Path) -> None:
    Path("long.yaml").write_text(LONG)
    env = os.environ | {"CXX": "no-such-compiler", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    words = command("train", "long.yaml", "--set", "torch_compile=true")
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "hpsearch: torch_compile: torch needs a C++ compiler, but 'no-such-compiler' does not run; install one "
        "(Debian: apt-get install g++), set the environment variable CXX to yours, or set torch_compile to false\n"
    )


@pytest.mark.slow
def test_ctrl_c_ends_a_training_tidily_and_a_later_merge_trains_nothing(cli: Cli) -> None:
    Path("long.yaml").write_text(LONG)
    with started("train", "long.yaml") as process:
        for _ in range(3):
            next_line(process)
        process.send_signal(signal.SIGINT)
        while line := next_line(process):
            last = line.strip()
    assert process.wait() == 130
    assert last.startswith("interrupted at ")
    assert last.endswith("; continue with: hpsearch train long.yaml")
    assert cli("train", "long.yaml")[0] == 0
    before = Path("trained/long/metrics.jsonl").read_bytes()
    code, shown, _ = cli("train", "long.yaml", "--merge")
    assert code == 0 and shown.startswith("continuing at 200 samples")
    assert Path("trained/long/model.safetensors").exists()
    assert Path("trained/long/metrics.jsonl").read_bytes() == before


# The dashboard


def test_a_dashboard_without_a_database_says_what_makes_one(cli: Cli) -> None:
    code, _, errors = cli("dashboard", "--port", "0", "--storage", "none.db")
    assert code == 1
    assert errors.startswith("hpsearch: there is no database ")
    assert "hpsearch run" in errors


@pytest.mark.slow
def test_the_dashboard_serves_studies_and_the_files_of_their_trials() -> None:
    from hpsearch.search import run

    space = SPACE[: SPACE.index("parameters:")].replace("objective: lora", "objective: 'mine.py:train'")
    configuration()
    Path("small.yaml").write_text(f"{space}parameters: {{x: [1, 2]}}\nbudget: {{trials: 1}}\n")
    study = run("small.yaml", storage="s.db", runs="files").study
    attrs = study.trials[0].system_attrs
    artifacts = [json.loads(value) for key, value in attrs.items() if key.startswith("artifacts:")]
    artifact = next(entry["artifact_id"] for entry in artifacts if entry["filename"] == "metrics.jsonl")
    with started("dashboard", "--port", "0", "--storage", "s.db", "--runs", "files") as process:
        line = next_line(process)
        url = next(word for word in line.split() if word.startswith("http://127.0.0.1:"))
        with urllib.request.urlopen(f"{url}/api/studies") as answer:
            assert json.load(answer)["study_summaries"][0]["study_name"] == "small"
        with urllib.request.urlopen(f"{url}/artifacts/1/1/{artifact}") as answer:
            assert answer.read() == Path("files/small/0/metrics.jsonl").read_bytes()
            assert answer.headers["Content-Disposition"] == "attachment"
        process.send_signal(signal.SIGINT)
    assert process.wait() == 0
    assert "read-only; --write allows changes" in line
