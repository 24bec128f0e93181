"""What a user can get wrong, and what they are told: one message, no traceback, no trial left running."""

from __future__ import annotations

import errno
import sqlite3
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search.cli import main

GOOD = """\
version: 1
name: s
objective: "obj.py:train"
metric: loss
parameters:
  x: {min: 0.0, max: 1.0}
budget: {trials: 3}
execution: {workers: 1, retries: 0}
"""
TRAIN = "def train(trial):\n    return trial.params['x']\n"


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def lora(parameters: str, rest: str = "") -> str:
    return f"version: 1\nname: s\nobjective: lora\nmetric: val_loss\nparameters:\n{parameters}\n{rest}"


@dataclass(frozen=True)
class Case:
    """A mistake: the files that make it, the command, the exit code and a part of the message."""

    name: str
    message: str
    space: str | None = GOOD
    objective: str = TRAIN
    code: int = 2
    command: tuple[str, ...] = ("run", "s.yaml", "--plain")
    files: dict[str, str] = field(default_factory=dict)


def body(text: str) -> str:
    return "def train(trial):\n" + "".join(f"    {line}\n" for line in text.splitlines())


FILES = [
    Case("no such file", "no such file", command=("run", "nowhere.yaml")),
    Case("no such shipped space", 'did you mean "lora"', command=("run", "loar")),
    Case("empty file", "s.yaml:1:1", space=""),
    Case("not yaml", "s.yaml:3:1: not YAML", space="version: 1\nname: [\n"),
    Case("a list", "mapping", space="- a\n- b\n"),
    Case("tab", "s.yaml:2", space="version: 1\n\tname: s\n"),
    Case(
        "unknown key",
        's.yaml:7:1 budgett: unknown key, did you mean "budget"?',
        changed("budget:", "budgett:"),
    ),
    Case("no metric", "metric", changed("metric: loss\n", "")),
    Case("no parameters", "parameters", changed("parameters:\n  x: {min: 0.0, max: 1.0}\n", "")),
    Case("misspelt min", 'did you mean "min"', changed("min: 0.0", "mim: 0.0")),
    Case("bounds swapped", "below max", changed("min: 0.0, max: 1.0", "min: 2.0, max: 1.0")),
    Case("log from zero", "log", changed("max: 1.0", "max: 1.0, log: true")),
    Case("bounds as text", "s.yaml:6", changed("min: 0.0", 'min: "zero"')),
    Case(
        "duplicate key",
        'duplicate key "metric", first at 4:1',
        changed("metric: loss\n", "metric: loss\nmetric: acc\n"),
    ),
    Case("version", "version", changed("version: 1", "version: 2")),
    Case("goal", "minimize", changed("metric: loss\n", "metric: loss\ngoal: lower\n")),
    Case(
        "wandb", "W&B", changed("x: {min: 0.0, max: 1.0}", "x: {distribution: uniform, min: 0.0, max: 1.0}")
    ),
    Case("nni", "NNI", changed("x: {min: 0.0, max: 1.0}", "x: {_type: uniform, _value: [0, 1]}")),
    Case("sampler", 'did you mean "tpe"', GOOD + "search: {sampler: tep}\n"),
    Case("sampler option", "n_startup_trials", GOOD + "search: {sampler: tpe, n_startup: 3}\n"),
    Case(
        "early stopping method",
        'did you mean "hyperband"',
        GOOD + "early_stopping: {method: hyberband, min: 1, max: 9}\n",
    ),
    Case("min above max", "early_stopping", GOOD + "early_stopping: {method: hyperband, min: 9, max: 3}\n"),
    Case("negative trials", "budget.trials", changed("trials: 3", "trials: -3")),
    Case("time without unit", "budget.time", changed("trials: 3", "time: soon")),
    Case("expression", "parameters.y.expr", changed("max: 1.0}\n", 'max: 1.0}\n  y: {expr: "x +"}\n')),
    Case(
        "expression calls",
        "parameters.y.expr",
        changed("max: 1.0}\n", "max: 1.0}\n  y: {expr: \"__import__('os')\"}\n"),
    ),
    Case(
        "expression names", 'did you mean "x"', changed("max: 1.0}\n", 'max: 1.0}\n  y: {expr: "xx * 2"}\n')
    ),
    Case("constraint never true", "constraints", GOOD + 'constraints: ["x > 2"]\n', code=1),
    Case("baseline outside", "baseline.x", GOOD + "baseline: {x: 7.0}\n"),
    Case("baseline unknown", "baseline.z", GOOD + "baseline: {z: 0.5}\n"),
    Case("confirm with one seed", "confirm.seeds", GOOD + "confirm: {top: 3, seeds: 1}\n"),
]
FLAGS = [
    Case("trials is no number", "--trials", command=("run", "s.yaml", "--trials", "many")),
    Case("trials is zero", "--trials: must be at least 1, not 0", command=("run", "s.yaml", "--trials", "0")),
    Case("time flag", "--time: must be a time such as", command=("run", "s.yaml", "--time", "5 parsecs")),
    Case("time of a plan", "--time: must be a time", command=("plan", "s.yaml", "--time", "9x")),
    Case("workers flag", '--workers: must be "auto" or a', command=("run", "s.yaml", "--workers", "lots")),
    Case("no number", '--workers: must be "auto" or a', command=("run", "s.yaml", "--workers=--1")),
    Case("audit without rungs", "--audit: needs rungs", command=("run", "s.yaml", "--audit")),
    Case(
        "two flags",
        "--time: must be above 0\n--zero-stage: must be at most 3, not 7",
        command=("run", "s.yaml", "--zero-stage", "7", "--time", "0s"),
    ),
    Case(
        "a flag and the file",
        "--time: must be above 0\ns.yaml:6:12 parameters.x.min: min 0.0 must be below max -1.0",
        changed("max: 1.0", "max: -1.0"),
        command=("run", "s.yaml", "--time", "0s"),
    ),
    Case(
        "a flag in place of a mistake in the file",
        "--audit: needs rungs",
        changed("trials: 3", "trials: 0"),
        command=("run", "s.yaml", "--trials", "2", "--audit"),
    ),
    Case(
        "a flag for a section that is none",
        "s.yaml:7:9 budget: must be a mapping such as {trials: 50}, not 5",
        changed("{trials: 3}", "5"),
        command=("run", "s.yaml", "--trials", "2"),
    ),
    Case(
        "a flag for another tool's space",
        "this looks like a search space for W&B",
        "x: {distribution: uniform, min: 0, max: 1}\n",
        command=("run", "s.yaml", "--trials", "2"),
    ),
    Case(
        "a flag that the objective cannot use",
        '--processes-per-trial: must be 1, not 2: the objective "sklearn" trains in one process',
        command=("run", "sklearn", "--processes-per-trial", "2"),
    ),
    Case(
        "tracker flag", '--report-to: there is no tracker "x"', command=("run", "s.yaml", "--report-to", "x")
    ),
    Case(
        "backend",
        'no backend "optun", did you mean "optuna"?',
        command=("run", "s.yaml", "--backend", "optun"),
    ),
    Case("unknown flag", "--trails", command=("run", "s.yaml", "--trails", "3")),
    Case("no space", "space", command=("run",)),
    Case("empty space", "SPACE: name a space file", command=("run", "")),
    Case("storage url", "not a database URL", command=("run", "s.yaml", "--storage", "no such://x")),
    Case("storage empty", "the storage is an empty text", command=("run", "s.yaml", "--storage", "")),
    Case("storage in memory", "in memory", command=("run", "s.yaml", "--storage", "sqlite://")),
    Case("storage folder", "no folder", code=1, command=("run", "s.yaml", "--storage", "nowhere/x.db")),
    Case("storage is a folder", "folder", code=1, command=("run", "s.yaml", "--storage", ".")),
    Case(
        "storage is no database",
        "not a SQLite database",
        code=1,
        command=("run", "s.yaml", "--storage", "obj.py"),
    ),
    Case(
        "storage kind",
        "u:***@h/d: studies cannot be stored in",
        command=("run", "s.yaml", "--storage", "oracle://u:pw@h/d"),
    ),
    Case("url for a study", "(mysql://u:***@h/d)", command=("list", "mysql://u:pw@h/d")),
    Case("show without database", "no database", code=1, command=("show", "s")),
    Case("train without file", "nowhere.yaml", command=("train", "nowhere.yaml")),
]
OBJECTIVES = [
    Case("no such built-in", 'did you mean "lora"', changed('"obj.py:train"', "lroa")),
    Case("no such file", "there is no file", changed("obj.py:", "nowhere.py:")),
    Case("no such module", "no module", changed("obj.py:train", "nowhere:train")),
    Case("no such function", 'did you mean "train"', changed(":train", ":tarin")),
    Case("not a function", "not a function", objective="train = 3\n", code=1),
    Case("syntax error", "SyntaxError", objective="def train(:\n", code=1),
    Case("import error", "No module named", objective="import no_such_module\n" + TRAIN, code=1),
    Case("raises", "ValueError: no data", objective=body("raise ValueError('no data')"), code=1),
    Case("raises at length", "ValueError: xxx", objective=body("raise ValueError('x' * 100_000)"), code=1),
    Case("exits", "SystemExit", objective=body("raise SystemExit(3)"), code=1),
    Case("returns None", "the objective returned None; it must be a number", objective=body("pass"), code=1),
    Case(
        "returns text",
        "the objective returned '0.5'; it must be a number",
        objective=body("return '0.5'"),
        code=1,
    ),
    Case(
        "changes the trial",
        "trial.number is read-only: it identifies the trial",
        objective=body("trial.number = 77\ntrial.report(1.0, step=1)\nreturn 1.0"),
        code=1,
    ),
    Case(
        "is Ray Tune's",
        "does not receive Ray Tune's tune.report()",
        objective=body("import ray.tune"),
        code=1,
    ),
    Case("returns a list", "it must be a number", objective=body("return [1, 2]"), code=1),
    Case("returns nan", "no trial", objective=body("return float('nan')"), code=1),
    Case("returns inf", "no trial", objective=body("return float('inf')"), code=1),
    Case("reports nan", "no trial", objective=body("trial.report(float('nan'), step=1)\nreturn 1.0"), code=1),
    Case(
        "reports text",
        "report() was given 'x'",
        objective=body("trial.report('x', step=1)\nreturn 1.0"),
        code=1,
    ),
    Case(
        "step is a float",
        "the step is 0.5",
        objective=body("trial.report(1.0, step=0.5)\nreturn 1.0"),
        code=1,
    ),
    Case(
        "unknown parameter of lora",
        'did you mean "learning_rate"',
        lora("  learning_rte: {min: 1e-4, max: 1e-2, log: true}"),
    ),
    Case(
        "lora ends elsewhere",
        "make them equal",
        lora(
            "  learning_rate: {min: 1e-4, max: 1e-3}\n  max_samples: 64\n  eval_every: 8",
            "early_stopping: {method: hyperband, min: 8, max: 96}\n",
        ),
    ),
    Case(
        "lora misses a rung",
        "none falls on the rung",
        lora(
            "  learning_rate: {min: 1e-4, max: 1e-3}\n  max_samples: 96\n  eval_every: 7",
            "early_stopping: {method: hyperband, min: 8, max: 96}\n",
        ),
    ),
    Case(
        "lora without a length",
        "max_samples, max_steps",
        lora(
            "  learning_rate: {min: 1e-4, max: 1e-3}",
            "budget: {trials: 3}\nexecution: {workers: 1, retries: 0}\n",
        ),
    ),
    Case(
        "lora without its text",
        's.yaml:8:15 parameters.train_file: there is no file "nowhere.txt"',
        lora(
            "  learning_rate: {min: 1e-4, max: 1e-3}\n  max_samples: 8\n  train_file: nowhere.txt",
            "budget: {trials: 3}\nexecution: {workers: 1, retries: 0}\n",
        ),
    ),
    Case(
        "lora without its base",
        's.yaml:8:9 parameters.base: there is no file "nowhere.safetensors"',
        lora(
            "  learning_rate: {min: 1e-4, max: 1e-3}\n  max_samples: 8\n  base: nowhere.safetensors",
            "budget: {trials: 3}\nexecution: {workers: 1, retries: 0}\n",
        ),
    ),
    Case(
        "lora on what is no base",
        "s.yaml: cannot be read: it is not a complete safetensors file",
        lora(
            "  learning_rate: {min: 1e-4, max: 1e-3}\n  max_samples: 8\n  base: s.yaml",
            "budget: {trials: 3}\nexecution: {workers: 1, retries: 0}\n",
        ),
    ),
    Case(
        "lora beyond its base",
        "s.yaml:8:15 parameters.max_length: found 4096, but the base was made for 128",
        lora(
            "  learning_rate: {min: 1e-4, max: 1e-3}\n  max_samples: 8\n  max_length: 4096",
            "budget: {trials: 3}\nexecution: {workers: 1, retries: 0}\n",
        ),
    ),
    Case(
        "no such program",
        's.yaml:3:23 objective.command[0]: there is no program "nowhere" on the PATH',
        changed('"obj.py:train"', "{command: [nowhere]}"),
    ),
    Case(
        "program fails",
        "exited with code 3",
        changed('"obj.py:train"', "{command: [sh, -c, 'exit 3']}"),
        code=1,
    ),
    Case("program is silent", "without reporting", changed('"obj.py:train"', "{command: ['true']}"), code=1),
    Case(
        "unknown macro",
        's.yaml:3:29 objective.command[1]: the command has an unknown macro in "${argz}"; allowed: ${PARAMETER}',
        changed('"obj.py:train"', '{command: [echo, "${argz}"]}'),
    ),
    Case(
        "misspelt macro",
        'unknown macro in "--out=${chekpoint}/m", did you mean "${checkpoint}"?',
        changed('"obj.py:train"', '{command: [echo, "--out=${chekpoint}/m"]}'),
        command=("validate", "s.yaml"),
    ),
    Case(
        "an option hides a searched one",
        'objective.command[2]: "--x=3" overrides the value that "${args}" passes: remove one of them',
        changed('"obj.py:train"', '{command: [echo, "${args}", "--x=3"]}'),
        command=("validate", "s.yaml"),
    ),
    Case(
        "no configuration file",
        'objective.command[1]: there is no file "c.yaml" in',
        changed('"obj.py:train"', '{command: [echo, "${config:c.yaml}"]}'),
    ),
    Case(
        "a conditional parameter in a place that cannot fall away",
        '"${y}" cannot be left out of "t > ${y}" where the parameter does not exist',
        changed('"obj.py:train"', '{command: [sh, -c, "t > ${y}"]}').replace(
            "budget", "  y: {min: 0, max: 1, when: x > 0.5}\nbudget"
        ),
        command=("validate", "s.yaml"),
    ),
    Case(
        "no place in the configuration file",
        'objective.command[1]: the configuration file c.yaml has no place for the parameter "a.x"',
        changed('"obj.py:train"', '{command: [echo, "${config:c.yaml}"]}').replace("  x:", "  a.x:"),
        files={"c.yaml": "a: 1\n"},
    ),
    Case(
        "macro of a configuration file",
        '${config:...} has "$sed" in "a=$sed"; allowed: $seed, $checkpoint, $resume_from, $run',
        changed('"obj.py:train"', '{command: [echo, "${config:c.yaml a=$sed}"]}'),
        command=("validate", "s.yaml"),
    ),
]


def test_the_table_is_long_enough() -> None:
    assert len(FILES) + len(FLAGS) + len(OBJECTIVES) >= 40


@pytest.mark.parametrize("case", [*FILES, *FLAGS, *OBJECTIVES], ids=lambda case: case.name)
def test_a_mistake_is_told(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    if case.space is not None:
        (tmp_path / "s.yaml").write_text(case.space)
    for name, text in {"obj.py": case.objective, **case.files}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "argv", ["hpsearch", *case.command])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capfd.readouterr()
    assert case.message in out + err
    assert ended.value.code == case.code
    assert "Traceback" not in out + err
    assert running_trials(tmp_path / "hpsearch.db") == 0


def test_ctrl_c_before_any_command_begins_is_a_word_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hpsearch.search.cli.app.app", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, *capfd.readouterr()) == (130, "", "interrupted\n")


def test_ctrl_c_in_a_command_that_does_not_catch_it_is_a_word(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(**options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["hpsearch", "validate", "lora"])
    monkeypatch.setattr("hpsearch.search.operations.spaces.validate", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, *capfd.readouterr()) == (130, "", "interrupted\n")


@pytest.mark.parametrize("words", ["run lora", "list", "validate lora", "doctor", "lr-find lora"])
def test_a_folder_that_is_gone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], words: str
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(sys, "argv", ["hpsearch", *words.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert (
        capfd.readouterr().err == "hpsearch: this folder has been deleted; go to another one, and try again\n"
    )


def test_what_the_system_says_no_to_is_told_with_what_helps(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise OSError(errno.EMFILE, "Too many open files", "/dev/null")

    monkeypatch.setattr("hpsearch.search.cli.app.app", fails)
    with pytest.raises(SystemExit) as ended:
        main()
    said = "/dev/null: Too many open files; raise the limit of this shell: ulimit -n 4096"
    assert (ended.value.code, capfd.readouterr().err) == (1, f"hpsearch: {said}\n")


def test_a_brace_in_the_path_is_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Optuna fills database URLs with `str.format`."""
    folder = tmp_path / "a {b} c"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "s.yaml").write_text(GOOD)
    (folder / "obj.py").write_text(TRAIN)
    monkeypatch.setattr(sys, "argv", ["hpsearch", "run", "s.yaml", "--plain"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0, capfd.readouterr()
    assert (folder / "hpsearch.db").exists()


def running_trials(database: Path) -> int:
    if not database.exists():
        return 0
    with sqlite3.connect(database) as connection:
        (count,) = connection.execute("SELECT COUNT(*) FROM trials WHERE state = 'RUNNING'").fetchone()
    connection.close()
    return int(count)
