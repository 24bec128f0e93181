"""`hpsearch validate` and `hpsearch schema`, as a user sees them."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search.cli import main
from hpsearch.spaces import load

SPACE = """\
version: 1
name: mine
objective: lora
metric: val_loss
parameters:
  learning_rate: {min: 1e-4, max: 1e-2, log: true, prior: {at: 1e-3}}
  lora_r: {min: 2, max: 32, factor: 2}
  alpha_over_r: [1, 2]
  lora_alpha: {expr: "alpha_over_r * lora_r"}
  batch_size: [4, 8]
  lr_scheduler: [constant, linear]
  warmup_ratio: {min: 0.0, max: 0.2, when: {lr_scheduler: linear}}
  max_samples: 900
  eval_every: 100
constraints: ["batch_size * lora_r <= 128"]
baseline: {lora_r: 8}
early_stopping: {method: hyperband, min: 100, max: 900, eta: 3}
budget: {trials: 60, time: 90m}
"""

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command in an empty folder: its exit code, its output, and its errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hpsearch", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


def space(old: str = "", new: str = "") -> str:
    """Write the space, with one text in it replaced by another; its file."""
    assert old in SPACE
    Path("mine.yaml").write_text(SPACE.replace(old, new, 1), encoding="utf-8")
    return "mine.yaml"


def test_the_version_is_that_of_the_package(cli: Cli) -> None:
    assert cli("--version") == (0, f"hpsearch {metadata.version('hpsearch')}\n", "")


def test_validate_shows_what_is_understood(cli: Cli) -> None:
    code, shown, errors = cli("validate", space())
    assert (code, errors) == (0, "")
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    for expected in (
        "mine: minimize val_loss of lora",
        "learning_rate float 0.0001 .. 0.01, log, prior 0.001 searched",
        "lora_r int 2 4 8 16 32 searched",
        "lora_alpha = alpha_over_r * lora_r derived",
        "warmup_ratio float 0 .. 0.2, when lr_scheduler is linear searched, conditional",
        "max_samples constant 900 fixed",
        "batch_size * lora_r <= 128",
        "baseline 0.001 8 1 8 4 constant -",
        "hyperband: 1 in 3 trials continues at each rung, to 900 at most",
        "bracket 0: 53% of trials, rungs at 100 300 samples",
        "bracket 2: 18% of trials, no rungs, every trial runs to its end",
        "so of 60 trials about 20 run to the end, saving about 52% of the samples; more do as the sampler learns",
        "60 trials or 1 h 30 min, whichever comes first",
    ):
        assert expected in lines
    assert "warnings" not in lines


def test_validate_shows_what_a_preset_gave(cli: Cli) -> None:
    code, shown, errors = cli("validate", space("metric: val_loss", "metric: val_loss\npreset: production"))
    assert (code, errors) == (0, "")
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "mine: minimize val_loss of lora, preset production" in lines
    assert "gradient_accumulation_steps constant 4 fixed by preset" in lines
    assert "early_stopping_patience constant 5 fixed by preset" in lines
    assert "max_samples constant 900 fixed" in lines, "the file's own word"
    content = json.loads(cli("validate", "mine.yaml", "--json")[1])
    assert content["preset"] == ["production"]
    assert content["from_preset"] == ["gradient_accumulation_steps", "early_stopping_patience"]
    assert content["samples"][0]["gradient_accumulation_steps"] == 4
    assert "preset" not in content["spec"], "which holds the plain values"


@pytest.mark.parametrize(
    ("preset", "told"),
    [
        ("quikc", 'there is no preset "quikc", did you mean "quick"?; there is quick, standard, '),
        ("[quick, time]", "quick and time: found both, needs at most one of quick, "),
        ("large", "large is a size to train from scratch (objective: pretrain); lora adapts a base"),
        ("3", "must be a preset's name or a list of them, not 3"),
        ("[]", "must be a preset's name or a list of them, not []"),
    ],
)
def test_a_preset_that_cannot_be_is_told_at_its_place(cli: Cli, preset: str, told: str) -> None:
    path = space("metric: val_loss", f"metric: val_loss\npreset: {preset}")
    for words in (("validate", path), ("run", path)):
        code, _, errors = cli(*words)
        assert code == 2
        assert f"mine.yaml:5:9 preset: {told}" in errors


def test_a_value_of_a_preset_that_does_not_go_is_told_at_the_preset(cli: Cli) -> None:
    path = space("  max_samples: 900\n  eval_every: 100\n", "")
    Path(path).write_text(Path(path).read_text().replace("metric:", "preset: quick\nmetric:", 1))
    errors = cli("validate", path)[2]
    assert (
        "mine.yaml:4:9 parameters.eval_every: reports come every 260, so none falls on the rung 100" in errors
    )


def test_validate_shows_five_samples_that_are_always_the_same(cli: Cli) -> None:
    _, first, _ = cli("validate", space(), "--json")
    _, second, _ = cli("validate", space(), "--json")
    content = json.loads(first)
    assert first == second
    assert len({json.dumps(sample) for sample in content["samples"]}) == 5
    for sample in content["samples"]:
        assert sample["batch_size"] * sample["lora_r"] <= 128
        assert sample["lora_alpha"] == sample["alpha_over_r"] * sample["lora_r"]
        assert ("warmup_ratio" in sample) == (sample["lr_scheduler"] == "linear")


def test_a_constraint_tells_its_share_of_the_box(cli: Cli) -> None:
    # Of 5 * 2 equally likely pairs only 8 * 32 is too much.
    content = json.loads(cli("validate", space(), "--json")[1])
    assert content["feasible_share"] == pytest.approx(0.9, abs=0.03)
    assert f"leave {content['feasible_share']:.0%} of all configurations" in cli("validate", space())[1]


@pytest.mark.parametrize(("width", "head"), [("120", "learning_rate"), ("80", "baseline")])
def test_samples_are_rows_where_they_fit_and_columns_elsewhere(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, width: str, head: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    lines = cli("validate", space())[1].splitlines()
    start = next(number for number, line in enumerate(lines) if "random configurations" in line)
    assert lines[start + 1].split()[0] == head
    assert all(len(line) <= int(width) for line in lines[start : lines.index("", start)])


def test_warnings_stand_at_their_place_and_are_no_error(cli: Cli) -> None:
    code, shown, _ = cli("validate", space(", log: true", ""))
    assert code == 0
    warned = "mine.yaml:6:18 parameters.learning_rate: max is 100 times min; add log: true"
    assert any(line.startswith(warned) for line in shown.splitlines())
    [warning] = json.loads(cli("validate", "mine.yaml", "--json")[1])["warnings"]
    assert (warning["line"], warning["path"]) == (6, "parameters.learning_rate")


WRONG = [
    ("lora_r: {min", "lora_rank: {min", "mine.yaml:9:22 parameters.lora_alpha.expr: "),
    ("batch_size: [4, 8]", "bach_size: [4, 8]", "mine.yaml:15:15 constraints[0]: "),
    ("max: 1e-2", "mux: 1e-2", "mine.yaml:6:30 parameters.learning_rate.mux: unknown key"),
    ("eval_every: 100", "eval_evry: 100", "mine.yaml:14:14 parameters.eval_evry: "),
    ("objective: lora", "objective: loar", 'mine.yaml:3:12 objective: there is no objective "loar"'),
    ("<= 128", "<= 1", "mine.yaml:"),
]


@pytest.mark.parametrize(("old", "new", "line"), WRONG)
def test_errors_are_lines_on_stderr(cli: Cli, old: str, new: str, line: str) -> None:
    code, shown, errors = cli("validate", space(old, new))
    assert (code, shown) == (2, "")
    assert any(error.startswith(line) for error in errors.splitlines()), errors
    assert all(error.startswith("mine.yaml:") for error in errors.splitlines())


def test_errors_as_json(cli: Cli) -> None:
    code, shown, errors = cli("validate", space("max: 1e-2", "mux: 1e-2"), "--json")
    content = json.loads(shown)
    assert (code, content["valid"], len(content["errors"])) == (2, False, len(errors.splitlines()))
    assert content["errors"][0]["path"] == "parameters.learning_rate.mux"


def test_every_issue_is_told_at_once(cli: Cli) -> None:
    text = SPACE.replace("max: 1e-2", "mux: 1e-2").replace("trials: 60", "trials: 0")
    Path("mine.yaml").write_text(text.replace("method: hyperband", "method: hiperband"), encoding="utf-8")
    assert len(cli("validate", "mine.yaml")[2].splitlines()) == 3


def test_the_objective_is_not_imported(cli: Cli) -> None:
    Path("mine.py").write_text("raise SystemExit('imported')\ndef train(trial): ...\n", encoding="utf-8")
    code, shown, _ = cli("validate", space("objective: lora", 'objective: "mine.py:train"'))
    assert code == 0
    assert "mine: minimize val_loss of mine.py:train" in shown


def test_validate_loads_neither_optuna_nor_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = f"""
import sys
from hpsearch.search.cli.app import app
app(["validate", {space()!r}], standalone_mode=False)
print("loaded", *sorted({{"optuna", "torch", "scipy", "pandas"}} & sys.modules.keys()))
"""
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "loaded"


def test_the_help_loads_no_heavy_package() -> None:
    code = """
import sys
from hpsearch.search.cli.app import app
app(["--help"], standalone_mode=False)
print("loaded", *sorted({"optuna", "torch", "numpy", "sqlalchemy", "pydantic"} & sys.modules.keys()))
"""
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "loaded"


def test_schema_prints_and_writes_the_same(cli: Cli) -> None:
    code, shown, _ = cli("schema")
    schema: dict[str, Any] = json.loads(shown)
    assert code == 0
    assert {"parameters", "early_stopping", "budget"} <= schema["properties"].keys()
    code, told, _ = cli("schema", "-o", "space.schema.json")
    assert json.loads(Path("space.schema.json").read_text()) == schema
    assert "# yaml-language-server: $schema=space.schema.json" in told.splitlines()


def test_the_line_that_schema_tells_is_taken_by_a_space_file(cli: Cli) -> None:
    line = cli("schema", "-o", "space.schema.json")[1].splitlines()[-1]
    Path("mine.yaml").write_text(f"{line}\n{SPACE}", encoding="utf-8")
    assert load("mine.yaml").name == "mine"


@pytest.mark.parametrize("words", [["schema", "-o"], ["init", "lora", "-o"]])
def test_no_file_is_written_over_unasked_and_no_database_ever(cli: Cli, words: list[str]) -> None:
    Path("text.json").write_text("mine")
    with closing(sqlite3.connect("hpsearch.db")) as database:
        database.execute("CREATE TABLE studies (x)")
    for name, more, told in (
        ("text.json", [], "another file, or overwrite it (-o names another file, --force overwrites it)"),
        ("hpsearch.db", [], "is there already"),
        ("hpsearch.db", ["--force"], "holds no text, and is not written over"),
    ):
        before = Path(name).read_bytes()
        code, _, errors = cli(*words, name, *more)
        assert code == 2 and told in errors and Path(name).read_bytes() == before
    assert cli(*words, "text.json", "--force")[0] == 0 and Path("text.json").read_text() != "mine"


def test_schema_into_nowhere_is_told(cli: Cli) -> None:
    code, _, errors = cli("schema", "-o", "nowhere/schema.json")
    assert (code, errors) == (1, "hpsearch: cannot write nowhere/schema.json: No such file or directory\n")


@pytest.mark.parametrize("command", ["validate", "schema", "train", "dashboard"])
def test_every_command_has_an_example(cli: Cli, command: str) -> None:
    code, shown, _ = cli(command, "--help")
    assert code == 0
    assert f"Example: hpsearch {command}" in shown


# The user's own code

OWN = """\
from pathlib import Path
Path("imported").touch()
print("a module may print")
def train(trial):
    return trial.params["x"]
"""
OBJECTIVES = ["own:train", "own.py:train", "./deep/own.py:train", "pkg.sub:train", "pkg:train"]


def own_space(objective: str, text: str = OWN) -> str:
    """A space of the user's own objective, whose every module leaves a file when it is imported."""
    Path("own.yaml").write_text(
        f"version: 1\nname: own\nobjective: {objective}\nmetric: loss\n"
        "parameters:\n  x: {min: 0.0, max: 1.0}\nbudget: {trials: 1}\nexecution: {workers: 1}\n"
    )
    for path in ("own.py", "deep/own.py", "pkg/__init__.py", "pkg/sub.py"):
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text(text)
    return "own.yaml"


def validate_apart(*words: str) -> subprocess.CompletedProcess[str]:
    """`hpsearch validate` in a process of its own, which forgets what it imported."""
    script = "import sys; from hpsearch.search.cli import main; sys.argv[0] = 'hpsearch'; main()"
    return subprocess.run(
        [sys.executable, "-c", script, "validate", *words], capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_validate_never_imports_the_objective_unless_asked(cli: Cli, objective: str) -> None:
    file = own_space(objective)
    assert cli("validate", file)[0] == 0
    assert cli("validate", file, "--json")[0] == 0
    assert not Path("imported").exists()
    done = validate_apart(file, "--import")
    assert done.returncode == 0 and done.stdout.endswith(f'\nthe objective "{objective}" loads\n')
    assert done.stderr == "a module may print\n" * (2 if objective == "pkg.sub:train" else 1)
    assert Path("imported").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import nowhere_at_all as train\n",
            "cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all' (*own.py:1)",
        ),
        ("x = 1\ndef train(:\n", "cannot be imported: SyntaxError: *(*own.py:2)"),
        ("import sys as train\ntrain.exit(3)\n", "cannot be imported: SystemExit: 3 (*own.py:2)"),
        ("train = 1\ndel train\ndef trian(trial): ...\n", '*own.py has no "train", did you mean "trian"?'),
        ("train = 3\n", '*"train" is a int, not a function'),
    ],
)
def test_an_objective_that_does_not_load_is_said_at_its_line(cli: Cli, text: str, said: str) -> None:
    file = own_space("own:train", text)
    assert cli("validate", file)[0] == 0, "only an import can tell"
    done = validate_apart(file, "--import", "--json")
    assert done.returncode == 2
    assert fnmatch(done.stderr.replace("[", ""), f"own.yaml:3:12 objective: {said}\n"), done.stderr
    assert json.loads(done.stdout)["valid"] is False


def test_a_command_has_nothing_to_import(cli: Cli) -> None:
    code, shown, _ = cli("validate", own_space("{command: [touch, imported]}"), "--import")
    assert code == 0 and shown.endswith("\nthe objective is a command: there is nothing to import\n")
    assert not Path("imported").exists()
