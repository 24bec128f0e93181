"""A space proposed from a script or a configuration file: what it holds, that it loads, and that it runs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hpsearch.objectives.guides import first_range
from hpsearch.objectives.user.macros import expand
from hpsearch.search import open_study
from hpsearch.search.cli import main
from hpsearch.search.errors import UsageError
from hpsearch.search.exchange.space_from import proposal
from hpsearch.search.exchange.space_from.metric import goal_of
from hpsearch.search.preflight.checks import check_objective
from hpsearch.spaces import Choice, Constant, Range, SpaceError, Spec, loads
from hpsearch.spaces.checks import warnings

ARGPARSE = """
import argparse, sys
raise SystemExit("this must not run")
LR = 3e-4
parser = argparse.ArgumentParser()
parser.add_argument("data", help="\\d")
parser.add_argument("-l", "--learning-rate", type=float, default=LR)
parser.add_argument("--batch-size", type=int, default=2 ** 5)
parser.add_argument("--weight-decay", type=float, default=0)
parser.add_argument("--optimizer", choices=["adamw", "sgd"], default="sgd")
parser.add_argument("--dropout", type=float, required=True)
parser.add_argument("--warmup-ratio", type=float, default="0.1")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--note", default="tune.choice(no)")
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--layers", nargs="+", type=int, default=[1])
parser.add_argument("--out", default=None)
parser.add_argument("--é", type=int, default=1)
"""
DATACLASS = """
from dataclasses import dataclass, field
from typing import Literal, Optional
from transformers import HfArgumentParser, TrainingArguments

@dataclass
class Model:
    model_name: str
    lora_r: int = 16
    lora_alpha: "Optional[int]" = field(default=32, metadata={"help": "..."})
    lora_dropout: float | None = 0.05
    targets: list[str] = field(default_factory=list)
    kind: Literal["causal", "seq2seq"] = "causal"
    bf16: bool = True

model, = HfArgumentParser((Model,)).parse_args_into_dataclasses()
"""
CLICK = """
import click

@click.command()
@click.option("--lr", default=1e-3, show_default=True)
@click.option("--kind", type=click.Choice(["a", "b"]), default="a")
@click.option("--shout/--no-shout", default=False)
@click.option("--verbose", is_flag=True)
@click.argument("data")
def main(lr, kind, shout, verbose, data): ...
"""
TYPER = """
from typing import Annotated
import typer

def main(
    data: str, lr: float = 1e-3, batch_size: Annotated[int, typer.Option("--bs", help="x")] = 8,
    weight_decay: float = typer.Option(0.01), fast: bool = False, warmup_steps: int = 100,
) -> None: ...

typer.run(main)
"""
CONFIG = """\
# mine
model: {name: org/model, dropout: 0.1, hidden_size: 256}   # keep me
optimizer:
  lr: 1e-3      # the rate
  weight-decay: 0.1
  betas: [0.9, 0.999]
train: {label_smoothing: 0, batch_size: 24, warmup_steps: 100, amp: yes, seed: 42}
"""
SCRIPT = """
import argparse, yaml
from hpsearch.objectives import report

parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float, default=1e-2)
parser.add_argument("--epochs", type=int, default=3)
options = parser.parse_args()
for epoch in range(1, options.epochs + 1):
    report(abs(options.learning_rate - 3e-2) + 1 / epoch, step=epoch)
"""
Here = Callable[[str, str], Path]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.chdir(tmp_path)

    def write(name: str, text: str) -> Path:
        Path(name).write_text(text, encoding="utf-8")
        return Path(name)

    return write


def proposed(source: Path) -> tuple[Spec, str]:
    text = proposal(source)
    return loads(text, "proposed.yaml"), text


def first(spec: Spec) -> dict[str, Any]:
    """The parameters of the first trial."""
    found = spec.space.baseline()
    assert found is not None
    return found


def words_of(spec: Spec, **params: Any) -> list[str]:
    """The words that a trial of the baseline runs, without the program."""
    words = spec.objective_words
    assert isinstance(words, list)
    return expand(words, first(spec) | params)[1:]


def test_options_of_argparse(here: Here) -> None:
    spec, text = proposed(here("train.py", ARGPARSE))
    searched = {name: p for name, p in spec.parameters.items() if isinstance(p, Range | Choice)}
    assert list(searched) == [
        "learning_rate", "batch_size", "weight_decay", "optimizer", "dropout", "warmup_ratio",
    ]  # fmt: skip
    assert searched["learning_rate"] == Range(min=3e-5, max=3e-3, log=True)
    assert searched["batch_size"] == Range(min=8, max=128, factor=2)
    assert searched["optimizer"] == Choice(choices=["adamw", "sgd"])
    assert spec.baseline == {
        "learning_rate": 3e-4, "batch_size": 32, "weight_decay": 0.0, "optimizer": "sgd", "warmup_ratio": 0.1,
    }  # fmt: skip
    assert words_of(spec, data="my.csv")[:4] == [
        "train.py", "my.csv", "--learning-rate=0.0003", "--batch-size=32",
    ]  # fmt: skip
    assert "--note=tune.choice(no)" in words_of(spec)
    assert "# To fill in: data\n" in text and "data: FILL_IN  # to fill in" in text
    with pytest.raises(SpaceError, match=r"parameters\.data: is still FILL_IN"):
        check_objective(spec)
    assert spec.parameters["fp16"] == Constant(value=False) and "--fp16" not in words_of(spec)
    assert spec.parameters["layers"] == Constant(value=[1]) and words_of(spec)[-2:] == ["--layers", "1"]
    assert "it has no value by default: --out" in text
    assert "letters, digits and _: --é" in text
    assert "from hpsearch.objectives import report" in text and '{"step": 1, "val_loss": 0.5}' in text


def test_fields_of_dataclasses_options_of_click_and_typer(here: Here) -> None:
    spec, _ = proposed(here("hf.py", DATACLASS))
    assert set(spec.space.searched) == {"lora_r", "lora_alpha", "lora_dropout", "kind"}
    assert spec.parameters["bf16"] == Constant(value=True)
    assert spec.objective_words == ["python", "hf.py", "${args}"]
    spec, _ = proposed(here("c.py", CLICK))
    assert set(spec.space.searched) == {"lr", "kind"}
    assert words_of(spec, data="d") == ["c.py", "d", "--lr=0.001", "--kind=a", "--no-shout"]
    spec, _ = proposed(here("t.py", TYPER))
    assert set(spec.space.searched) == {"lr", "bs", "weight_decay", "warmup_steps"}
    assert words_of(spec, data="d")[:4] == ["t.py", "d", "--lr=0.001", "--bs=8"]
    assert "--weight-decay=0.01" in words_of(spec) and "--no-fast" in words_of(spec)


ODD = """
import argparse
LR: float = 1e-3
RATE = LR
parser = argparse.ArgumentParser()
parser.add_argument("-l", dest="lr", type=float, default=RATE)
parser.add_argument("--batch-size", type=int, choices=range(1, 5), default=2)
parser.add_argument("--weight-decay", "-wd", type=float, default=0.3)
parser.add_argument("--dropout", default=0.1)
parser.add_argument("--amp", type=lambda text: text == "True", default=True)
parser.add_argument("--milli", type=lambda text: float(text) / 1000, default=5)
parser.add_argument("--kind", choices=[None, "a", "b"], default="a")
parser.add_argument("--tag", action="append")
parser.add_argument("--local_rank", type=int, default=-1)
either = parser.add_mutually_exclusive_group()
either.add_argument("--warmup-steps", type=int, default=0)
either.add_argument("--warmup-ratio", type=float, default=0.0)
parser.set_defaults(lr=0.5)
print(parser.parse_args())
"""


def test_options_that_would_not_run_as_proposed_are_left_as_they_are(here: Here) -> None:
    source = here("odd.py", ODD)
    spec, text = proposed(source)
    assert set(spec.space.searched) == {"lr", "weight_decay", "kind"} and first(spec)["lr"] == 0.5
    assert spec.parameters["batch_size"] == Constant(value=2), "no range that its choices do not have"
    for name in ("dropout", "amp", "milli", "tag", "local_rank", "warmup-steps", "warmup-ratio"):
        assert f"--{name}" in "".join(line for line in text.splitlines() if line.startswith("# Left out"))
    ran = subprocess.run([sys.executable, *words_of(spec)], capture_output=True, text=True, check=True)
    asked = subprocess.run([sys.executable, source], capture_output=True, text=True, check=True)
    assert ran.stdout == asked.stdout, "the first trial is the script as it is"


def test_typer_and_click_take_what_is_proposed(here: Here) -> None:
    typer = """
import typer
app = typer.Typer()
@app.command()
def main(ctx: typer.Context, data: str = typer.Argument(...), lr: float = typer.Option(..., "--rate"),
         bs: int = typer.Option(default=8, min=4, max=16), wd: float = typer.Option(0.1, "-w", max=2)): ...
"""
    spec, _ = proposed(here("t.py", typer))
    assert set(spec.space.searched) == {"wd"} and spec.parameters["bs"] == Constant(value=8)
    assert words_of(spec, data="d", rate=1)[1:] == ["d", "--rate=1", "--bs=8", "-w0.1"]
    click = """
from click import command, option, FloatRange, IntRange
@command()
@option("-l", "lr", default=1e-3)
@option("--dropout", type=FloatRange(0, 0.2), default=0.1)
@option("--batch-size", type=IntRange(1), default=4)
def main(lr, dropout, batch_size): ...
"""
    spec, _ = proposed(here("c.py", click))
    assert set(spec.space.searched) == {"lr", "batch_size"}
    assert words_of(spec)[1:] == ["-l0.001", "--dropout=0.1", "--batch-size=4"]


OWN = {"seed": 7, "checkpoint": "/r/0/checkpoint", "resume_from": "", "run": "/r/0"}
WRITES = """
import argparse, json, os, torch
import numpy as np
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
{options}
args = parser.parse_args()
{lines}
"""


EACH_TRIALS_OWN: list[tuple[str, str, str]] = [
    ("'--seed', type=int, default=42", "", "--seed=7"),
    ("'--seed', type=int", "", "--seed=7"),
    ("'-s', '--random-seed', type=int, required=True", "", "--random-seed=7"),
    ("'-s', dest='seed', type=int, default=0", "", "-s7"),
    ("'--random_state', type=int, default=0", "", "--random_state=7"),
    (
        "'--split-seed', type=int, default=42",
        "",
        "--split-seed=42",
    ),  # the data, which is to stay the same
    ("'--seed', type=int, choices=[3], default=3", "", "--seed=3"),
    ("'--save', default='model.pt'", "", "--save=/r/0/checkpoint/model.pt"),
    ("'--save', default='out/my model.pt'", "", "--save=/r/0/checkpoint/my_model.pt"),
    ("'--save', default='best'", "", "--save=best"),  # of what is saved?
    ("'--save', default='best'", "torch.save(1, args.save)", "--save=/r/0/checkpoint/best"),
    ("'--output_dir', default='out'", "", "--output_dir=/r/0/checkpoint"),
    ("'--output_dir', required=True", "", "--output_dir=/r/0/checkpoint"),
    ("'--output-dir', type=Path, default=Path('a/b')", "", "--output-dir=/r/0/checkpoint"),
    ("'--save-path', default=os.path.join('a', 'b.pt')", "", "--save-path=/r/0/checkpoint/b.pt"),
    ("'output_dir'", "", "/r/0/checkpoint"),
    ("'--dest', default='d'", "os.makedirs(os.path.join(args.dest, 'x'))", "--dest=/r/0/checkpoint"),
    ("'--dest', default='d'", "open(f'{args.dest}/x', 'w')", "--dest=/r/0/checkpoint"),
    ("'--dest', default='d'", "(Path(args.dest) / 'x').write_text('')", "--dest=/r/0/checkpoint"),
    ("'--dest', default='d'", "open(args.dest, mode='a')", "--dest=/r/0/checkpoint/d"),
    ("'--dest', default='d'", "open(args.dest); torch.save({'d': args.dest}, 'x')", "--dest=d"),
    ("'--log-dir', default='runs'", "", "--log-dir=/r/0/runs"),
    ("'--log-file', default='output.log'", "", "--log-file=/r/0/script_output.log"),
    ("'--output', default='s3://bucket/x'", "", "--output=s3://bucket/x"),
    ("'--output-size', type=int, default=3", "", "--output-size=3"),
    ("'--save', default=''", "", "--save="),
    ("'--checkpoint', default='base.pt'", "torch.load(args.checkpoint)", "--checkpoint=base.pt"),
    # A local variable of an option's name is not the option, and what is saved is no place.
    ("'--model', default='lasso'", "model = 1; torch.save(model, 'm.pt')", "--model=lasso"),
    ("'--model', default='lasso'", "torch.save(args.model, 'm.pt')", "--model=lasso"),
    ("'--config', default='c.json'", "config = {}; json.dump(config, open('x', 'w'))", "--config=c.json"),
    ("'--config', default='c.json'", "json.dump(args.config, f)", "--config=c.json"),
    ("'--model', default='m'", "net.model.save('x'); open(net.model, 'w')", "--model=m"),
    ("'--dest', default='d'", "torch.save(obj=1, f=args.dest)", "--dest=/r/0/checkpoint/d"),
    ("'--dest', default='d'", "np.save(args.dest, x)", "--dest=/r/0/checkpoint/d"),
    ("'--dest', default='d'", "np.save('x', args.dest)", "--dest=d"),
    ("'--dest', default='d'", "net.save(args.dest)", "--dest=/r/0/checkpoint/d"),
    ("'--dest', default='d'", "torch.onnx.export(net, x, args.dest)", "--dest=/r/0/checkpoint/d"),
    ("'--dest', default='d'", "CSVLogger('logs', name=args.dest)", "--dest=d"),
    (
        "'--destination', dest='d', default='d'",
        "torch.save(1, args.d)",
        "--destination=/r/0/checkpoint/d",
    ),
    # Through variables, functions and what parse_args returned, whatever it is called.
    ("'--dest', default='d'", "o = vars(args); torch.save(1, o['dest'])", "--dest=/r/0/checkpoint/d"),
    ("'--dest', default='d'", "p = args.dest\ntorch.save(1, p)", "--dest=/r/0/checkpoint/d"),
    ("'--dest', default='d'", "p = args.dest\np = 'x'\ntorch.save(1, p)", "--dest=d"),
    ("'--dest', default='d'", "p = Path(args.dest)\np = p / 'x'\np.mkdir()", "--dest=/r/0/checkpoint"),
    ("'--dest', default='d'", "def f(o): torch.save(1, o.dest)\nf(args)", "--dest=/r/0/checkpoint/d"),
    ("'--dest', default='d'", "def f(p): torch.save(1, p)\nf(args.dest)", "--dest=/r/0/checkpoint/d"),
    (
        "'--dest', default='d'",
        "def f(dest): torch.save(1, dest)\nf(**vars(args))",
        "--dest=/r/0/checkpoint/d",
    ),
    ("'--dest', default='d'", "def f(dest): torch.save(1, dest)\nf('x')", "--dest=d"),
    (
        "'--dest', default='d'",
        "def f(p): return Path(p)\n(f(args.dest) / 'x').mkdir()",
        "--dest=/r/0/checkpoint",
    ),
    ("'--dest', default='d'", "(new(Path(args.dest) / args.n) / 'x').mkdir()", "--dest=/r/0/checkpoint"),
    (
        "'--dest', default='d'",
        "class T:\n def __init__(self, o): self.o = o\n def s(self): torch.save(1, self.o.dest)\nT(args)",
        "--dest=/r/0/checkpoint/d",
    ),
    # However a path is put together.
    ("'--dest', default='.'", "open('%s/m' % args.dest, 'w')", "--dest=/r/0/checkpoint"),
    ("'--dest', default='d'", "torch.save(1, '%s/m_%d' % (args.dest, 1))", "--dest=/r/0/checkpoint"),
    (
        "'--dest', default='d'",
        "torch.save(1, '{}/m_{}.pt'.format(args.dest, 1))",
        "--dest=/r/0/checkpoint",
    ),
    ("'--dest', default='d'", "torch.save(1, '{d}/m.pt'.format(d=args.dest))", "--dest=/r/0/checkpoint"),
    ("'--dest', default='d'", "torch.save(1, args.dest + '/m.pt')", "--dest=/r/0/checkpoint"),
    ("'--dest', default='d'", "torch.save(1, args.dest + '.pt')", "--dest=/r/0/checkpoint/d"),
    ("'--dest', default='d'", "torch.save(1, f'{args.dest}_1.pt')", "--dest=/r/0/checkpoint/d"),
    (
        "'--dest', default='o/d.pt'",
        "os.makedirs(os.path.dirname(args.dest))",
        "--dest=/r/0/checkpoint/d.pt",
    ),
    ("'--dest', default=''", "Path(args.dest or 'runs').mkdir()", "--dest=/r/0/checkpoint"),
    # What all trials read, or fetch.
    ("'--data-dir', default='d'", "os.makedirs(args.data_dir)", "--data-dir=d"),
    ("'--cache', default='d'", "Path(args.cache).mkdir()", "--cache=d"),
    ("'--dataroot', default='d'", "open(args.dataroot + '/x', 'w')", "--dataroot=d"),
    (
        "'--output-data-dir', default='d'",
        "open(args.output_data_dir + '/x', 'w')",
        "--output-data-dir=/r/0/checkpoint",
    ),
    ("'--dest', default='d'", "os.makedirs(args.dest); MNIST(args.dest, download=True)", "--dest=d"),
    ("'--dest', default='d'", "os.makedirs(args.dest); pd.read_csv(args.dest + '/x')", "--dest=d"),
    (
        "'--checkpoint-path', default='in/base.pt'",
        "torch.load(args.checkpoint_path)",
        "--checkpoint-path=in/base.pt",
    ),
    ("'--save-path', default='in/base.pt'", "torch.load(args.save_path)", "--save-path=in/base.pt"),
    (
        "'--ckpt', default='a.pt'",
        "torch.load(args.ckpt); torch.save(1, args.ckpt)",
        "--ckpt=/r/0/checkpoint/a.pt",
    ),
    (
        "'--checkpoint-dir', default='c'",
        "load_checkpoint(args.checkpoint_dir)\nsave_checkpoint(1, args.checkpoint_dir)",
        "--checkpoint-dir=/r/0/checkpoint",
    ),
    # Seeds.
    ("'--manualSeed', type=int, default=1", "", "--manualSeed=7"),
    ("'--mS', type=int, default=1", "torch.manual_seed(args.mS)", "--mS=7"),
    ("'--sd', type=int, default=1", "torch.manual_seed(args.sd or 0)", "--sd=7"),
    ("'--sd', type=int, default=1", "s = int(args.sd) + 1\ntorch.manual_seed(s)", "--sd=7"),
    ("'--rank', type=int, default=1", "torch.manual_seed(args.seed + args.rank)", "--rank=1"),
]


def test_a_seed_and_where_to_write_are_each_trials_own(subtests: pytest.Subtests, here: Here) -> None:
    for option, line, word in EACH_TRIALS_OWN:
        with subtests.test(option):
            script = WRITES.format(options=f"parser.add_argument({option})", lines=line)
            spec, text = proposed(here("train.py", script))
            words = spec.objective_words
            assert isinstance(words, list)
            assert word in expand(words, first(spec), OWN)
            assert ("# Each trial has its own: " in text) == ("7" in word or "/r/0" in word)
            assert "FILL_IN" not in text


RESUMED = [
    ("'--resume', default=None", "torch.load(args.resume)", "--resume=${checkpoint:last}"),
    ("'--resume', default=''", "if args.resume: torch.load(args.resume)", "--resume=${checkpoint:last}"),
    (
        "'--resume_from', default=None",
        "json.load(open(args.resume_from))",
        "--resume_from=${checkpoint:last}",
    ),
    ("'--resume_from', default=None", "open(f'{args.resume_from}/x')", "--resume_from=${resume_from}"),
    ("'--resume_from_checkpoint', default=None", "", "--resume_from_checkpoint=${checkpoint:last}"),
    ("'--resume', default='a.pt'", "torch.load(args.resume)", "  resume: a.pt"),
    ("'--resume', default=None", "", "# Left out, because it has no value by default: --resume"),
    ("'--resume', default=find()", "torch.load(args.resume)", "# Left out, because its default value cannot"),
    ("'--resume', action='store_true'", "", "  resume: false"),
]


def test_what_a_script_resumes_from_is_each_trials_own(subtests: pytest.Subtests, here: Here) -> None:
    for option, line, told in RESUMED:
        with subtests.test(f"{option} {line}"):
            script = WRITES.format(options=f"parser.add_argument({option})", lines=line)
            _, text = proposed(here("train.py", script))
            assert told in text
            assert ("${checkpoint:PATTERN}." in text) == ("checkpoint:last" in told)
    click = """import click, json
@click.command()
@click.option("--lr", default=0.1)
@click.option("--resume-from", default=None)
def main(lr, resume_from):
    json.load(open(resume_from))
"""
    assert "--resume-from=${checkpoint:last}" in proposed(here("train.py", click))[1]


COMMAND = """
import {library}, joblib
{options}
def main(model{kinds[0]}, out{kinds[1]}, lr: float = 0.1):
    model = build(model)
    joblib.dump(model, out)
"""


@pytest.mark.parametrize("library", ["click", "typer"])
def test_the_parameters_of_a_command_are_its_options(here: Here, library: str) -> None:
    options = "\n".join(
        f"@click.option('--{name}', default={value!r})"
        for name, value in (("model", "hinge"), ("target", "m.joblib"), ("lr", 0.1))
    ).replace("'--target'", "'--target', 'out'")
    kinds = ("", "")
    if library == "typer":
        options = "@app.command()"
        kinds = (": str = 'hinge'", ": str = typer.Option('m.joblib', '--target')")
    else:
        options = f"@click.command()\n{options}"
    spec, _ = proposed(here("c.py", COMMAND.format(library=library, options=options, kinds=kinds)))
    words = spec.objective_words
    assert isinstance(words, list)
    assert {"--model=hinge", "--target=/r/0/checkpoint/m.joblib"} <= set(expand(words, first(spec), OWN))


KIND = "class Kind(str, Enum):\n    A = 'a'\n    B = 'b'\n"
FROM_KIND = "parser.add_argument('--kind', {})\n"


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("@app.command()\ndef f(kind: Kind = Kind.A): ...", ["a", "b"]),
        ("@app.command()\ndef f(kind: Optional[Kind] = Kind.A): ...", ["a", "b"]),
        ("@app.command()\ndef f(kind: Kind = typer.Option(Kind.A)): ...", ["a", "b"]),
        ("@dataclass\nclass C:\n    kind: Kind = Kind.A\nHfArgumentParser(C)", ["a", "b"]),
        (FROM_KIND.format("type=Kind, default=Kind.A"), ["a", "b"]),
        (FROM_KIND.format("type=Kind, choices=list(Kind), default=Kind.A"), ["a", "b"]),
        (FROM_KIND.format("choices=[each.value for each in Kind], default=Kind.A.value"), ["a", "b"]),
        (FROM_KIND.format("type=Kind.of, default=Kind.A"), None),
    ],
)
def test_the_choices_of_an_enumeration_are_its_values(
    here: Here, text: str, choices: list[str] | None
) -> None:
    script = f"from transformers import HfArgumentParser\n{KIND}{text}\n"
    if "f(" in text:
        script = script.replace("from transformers import HfArgumentParser", "import typer")
        script = script.replace("def f(", "def f(lr: float = 0.1, ")
    else:
        script += "parser.add_argument('--lr', type=float, default=0.1)\n"
    spec, told = proposed(here("train.py", script))
    if choices is None:
        assert "which texts name the members of its enumeration: --kind" in told
        return
    assert spec.parameters["kind"] == Choice(choices=choices) and first(spec)["kind"] == "a"


def test_a_configuration_has_a_seed_and_places_of_each_trials_own(here: Here, tmp_path: Path) -> None:
    own = OWN | {"run": str(tmp_path)}
    content = {
        "seed": 3,
        "lr": 0.1,
        "data": {"path": "out/x.csv", "split_seed": 1, "cache_dir": "c"},
        "model": {"checkpoint_path": "pretrained/a.pt", "dir": "in"},
        "output": {"dir": "mine", "path": "x/m.pt"},
        "trainer": {"dir": "out"},
        "train": {"output_dir": "out", "save_path": "out/m.pt", "log_file": "a.log", "name": "x"},
    }
    spec, text = proposed(here("train.json", json.dumps(content)))
    words = spec.objective_words
    assert isinstance(words, list)
    content["seed"] = 7
    content["output"] = {"dir": "/r/0/checkpoint", "path": "/r/0/checkpoint/m.pt"}
    content["trainer"] = {"dir": "/r/0/checkpoint"}
    content["train"] = {
        "output_dir": "/r/0/checkpoint",
        "save_path": "/r/0/checkpoint/m.pt",
        "log_file": f"{tmp_path}/a.log",
        "name": "x",
    }
    assert json.loads(Path(expand(words, first(spec), own)[-1]).read_text()) == content
    own_each = "seed (${seed}), output.dir (${checkpoint}), output.path (${checkpoint}/m.pt), trainer.dir (${checkpoint}), "
    assert f"# Each trial has its own: {own_each}" in text


def test_the_arguments_of_a_trainer_have_a_seed_and_a_folder_of_each_trials_own(here: Here) -> None:
    text = DATACLASS.replace("(Model,)", "(Model, TrainingArguments)")
    spec, told = proposed(here("hf.py", text))
    words = spec.objective_words
    assert isinstance(words, list)
    assert words[2:] == ["${args}", "--seed=${seed}", "--output_dir=${checkpoint}"]
    assert (spec.metric, spec.goal) == ("eval_loss", "minimize")
    assert 'report(state.log_history[-1]["eval_loss"], step=round(state.epoch))' in told


@pytest.mark.parametrize(
    ("metric", "goal"),
    [
        *(
            (name, "minimize")
            for name in ("val_mape", "smape", "rmsle", "val/brier", "logloss", "fid", "unknown")
        ),
        *((name, "minimize") for name in ("score_loss", "neg_log_likelihood", "mAP_loss", "neg_accuracy")),
        *((name, "maximize") for name in ("mAP", "metrics/mAP50", "map_50", "mAP50-95", "val/map", "map@10")),
        *(
            (name, "maximize")
            for name in ("kappa", "val_cohen_kappa", "test_acc1", "acc@5", "roc_auc", "ndcg@10")
        ),
        *(
            (name, "maximize")
            for name in ("neg_mean_squared_error", "val_neg_rmse", "rougeL", "episodic_return")
        ),
    ],
)
def test_the_name_of_a_metric_shows_which_way_it_is_better(metric: str, goal: str) -> None:
    assert goal_of(metric) == goal


LOGS = "class M:\n    def step(self):\n        self.log({!r}, 1)\n"
TRAINER = "import transformers\nargs = transformers.TrainingArguments({})\n"


@pytest.mark.parametrize(
    ("text", "metric", "goal"),
    [
        ("", "val_loss", "minimize"),
        ("print(json.dumps({'epoch': 1, 'val_acc': 1}))", "val_acc", "maximize"),
        ("print(json.dumps({'step': 1, 'train_loss': 1, 'loss': 1}))", "loss", "minimize"),
        ("print(json.dumps({'val_f1': 1, 'val_loss': 1}))", "val_loss", "minimize"),
        ("wandb.log({'train/loss': 1, 'val/accuracy': 1})", "val/accuracy", "maximize"),
        (LOGS.format("valid_loss"), "valid_loss", "minimize"),
        (LOGS.format("val_loss") + "ModelCheckpoint(monitor='val_auc')\n", "val_auc", "maximize"),
        ("json.dumps({'name': 1, 'epochs': 2})\nx = {'loss_scale': 1}", "val_loss", "minimize"),
        (TRAINER.format(""), "eval_loss", "minimize"),
        (TRAINER.format("metric_for_best_model='accuracy'"), "eval_accuracy", "maximize"),
        (TRAINER.format("metric_for_best_model='eval_loss'"), "eval_loss", "minimize"),
        ("from trl import SFTTrainer\n", "eval_loss", "minimize"),
        (TRAINER.format("metric_for_best_model='brier', greater_is_better=False"), "eval_brier", "minimize"),
        (
            TRAINER.format("metric_for_best_model='eval_rtf'") + "args.greater_is_better = False\n",
            "eval_rtf",
            "minimize",
        ),
        (TRAINER.format("metric_for_best_model='nll', greater_is_better=True"), "eval_nll", "maximize"),
        ("ModelCheckpoint(monitor='val/odd', mode='max')", "val/odd", "maximize"),
        ("EarlyStopping('val/odd', mode='max')\nx = {'val/loss': 1}", "val/odd", "maximize"),
        ("ModelCheckpoint(monitor='val_loss', mode='max')", "val_loss", "maximize"),
        (
            "EarlyStopping(monitor='val_odd')\nModelCheckpoint(monitor='val_odd', mode='max')",
            "val_odd",
            "maximize",
        ),
        (
            "print(json.dumps({'val_odd_loss': 1}))\nEarlyStopping('val_odd_loss', mode='max')",
            "val_odd_loss",
            "maximize",
        ),
        ("stats = {'epoch': 1}\nstats['val_acc'] = 1\nprint(json.dumps(stats))", "val_acc", "maximize"),
        ("stats = {'val_acc': 1}\nprint(json.dumps({'step': 1, **stats}))", "val_acc", "maximize"),
        ("stats = dict(val_f1=1)\nprint(json.dumps(stats))", "val_f1", "maximize"),
        ("stats = {}\nstats.update(val_wer=1)\nprint(json.dumps(stats))", "val_wer", "minimize"),
        (
            "self.stats: dict = {}\nself.stats['test_mape'] = 1\nprint(json.dumps(self.stats))",
            "test_mape",
            "minimize",
        ),
        ("history['val_auc'] = []", "val_auc", "maximize"),
        ("from lightning import Trainer\n", "val_loss", "minimize"),
    ],
)
def test_the_metric_is_what_the_script_shows(here: Here, text: str, metric: str, goal: str) -> None:
    script = f"{text}\nparser.add_argument('--lr', type=float, default=0.1)\n"
    spec, told = proposed(here("train.py", script))
    assert (spec.metric, spec.goal) == (metric, goal)
    assert f"train.py must report its {metric};" in told
    spec, _ = proposed(here("train.json", '{"lr": 0.1}'))
    assert (spec.metric, spec.goal) == (metric, goal), "of the script beside the file"


@pytest.mark.parametrize(
    ("epochs", "last"),
    [("type=int, default=5", 5), ("type=float, default=3.0", 3), ("type=int, default=2", None)],
)
def test_the_early_stopping_that_is_proposed_counts_epochs(here: Here, epochs: str, last: int | None) -> None:
    options = "'--lr', type=float, default=.1", "'--batch_size', type=int, default=8", f"'--epochs', {epochs}"
    script = "".join(f"p.add_argument({option})\n" for option in options)
    _, text = proposed(here("train.py", script))
    line = "# early_stopping:"
    assert (line in text) == (last is not None)
    spec = loads(text.replace(line, line[2:]), "proposed.yaml")
    assert spec.early_stopping.max == last
    assert not [told for told in warnings(spec) if "batch_size" in told.message]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("'--max_steps', type=int, default=500|'--eval_steps', type=int, default=50", "min: 50, max: 500"),
        ("'--max-iters', type=int, default=90|'--epochs', type=int, default=3", "min: 10, max: 90"),
        ("'--max_steps', type=int, default=500|'--eval_interval', type=int, default=250", None),
    ],
)
@pytest.mark.parametrize("trainer", ["", "from transformers import Trainer\n"])
def test_a_training_that_ends_at_a_step_counts_steps(
    here: Here, options: str, line: str | None, trainer: str
) -> None:
    arguments = ["'--lr', type=float, default=.1", *options.split("|")]
    script = trainer + "".join(f"p.add_argument({option})\n" for option in arguments)
    _, text = proposed(here("train.py", script))
    proposed_line = f"# early_stopping: {{method: asha, {line}, eta: 3, resource: steps}}"
    assert (proposed_line in text) if line else ("early_stopping" not in text)
    assert ("step=state.global_step)" in text) == bool(trainer) and "round(state.epoch)" not in text
    if line:
        loads(text.replace(proposed_line, proposed_line[2:]), "proposed.yaml")


def test_steps_of_several_batch_sizes_are_proposed_for_no_early_stopping(here: Here) -> None:
    options = (
        "'--lr', type=float, default=.1",
        "'--max_steps', type=int, default=90",
        "'--batch_size', type=int, default=8",
    )
    spec, text = proposed(here("train.py", "".join(f"p.add_argument({option})\n" for option in options)))
    assert "batch_size" in spec.space.searched and "early_stopping:" not in text
    assert "# Steps of other batch sizes are not equal work" in text


def test_what_seeds_a_script_is_a_seed_whatever_its_name(here: Here) -> None:
    script = (
        "".join(
            f"p.add_argument('--{name}', type=int, default=1)\n" for name in ("rs", "sd", "split_seed", "n")
        )
        + "p.add_argument('--lr', type=float, default=.1)\np.add_argument('--resume_from', default='')\n"
    )
    script += "a = p.parse_args()\n"
    script += "torch.manual_seed(a.sd)\nrng = np.random.default_rng(seed=a.rs)\nset_seed(a.split_seed)\nprint(a.n)\n"
    spec, _ = proposed(here("train.py", script))
    command = spec.objective_words
    assert {"--rs=${seed}", "--sd=${seed}", "--resume_from=${resume_from}"} <= set(command)
    assert {"split_seed", "n"} <= spec.parameters.keys() and "resume_from" not in spec.parameters


def test_a_file_of_a_package_runs_as_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pkg").mkdir()
    option = "p.add_argument('--lr', type=float, default=0.1)\n"
    for file, text, words in (
        ("pkg/__main__.py", option, ["python", "-m", "pkg"]),
        ("pkg/fit.py", f"from . import data\n{option}", ["python", "-m", "pkg.fit"]),
        ("pkg/alone.py", option, ["python", "pkg/alone.py"]),
        ("__main__.py", option, ["python", "__main__.py"]),
    ):
        with subtests.test(file):
            Path(file).write_text(text)
            command = yaml.safe_load(proposal(Path(file)))["objective"]["command"]
            assert command == [*words, "${args}"]


def test_dataclasses_that_no_parser_is_given_are_no_options(here: Here) -> None:
    text = DATACLASS.replace("(Model,)", "(Model, TrainingArguments)") + (
        "\n@dataclass\nclass Collator:\n    tokenizer: object\n    dropout: float = 0.1\n"
    )
    spec, told = proposed(here("hf.py", text))
    assert not {"tokenizer", "dropout"} & set(spec.parameters) and "model_name" in spec.parameters
    assert "it is imported" in told and told.count("TrainingArguments") == 1
    unseen = text.replace("HfArgumentParser((Model, TrainingArguments))", "HfArgumentParser(kinds())")
    assert "dropout" in proposed(here("hf.py", unseen))[0].parameters


def test_numbers_of_a_configuration(here: Here, tmp_path: Path) -> None:
    here("train.py", "")
    spec, text = proposed(here("train.yaml", CONFIG))
    assert set(spec.space.searched) == {
        "model.dropout", "optimizer.lr", "train.label_smoothing", "train.batch_size", "train.warmup_steps",
    }  # fmt: skip
    assert spec.parameters["train.batch_size"] == Range(min=6, max=96, factor=2)
    assert spec.parameters["model.hidden_size"] == Constant(value=256)
    assert "letters, digits and _: optimizer.weight-decay" in text
    assert "not a single value: optimizer.betas" in text
    words = spec.objective_words
    assert words == ["python", "train.py", "--config", "${config:train.yaml train.seed=$seed}"]
    params = first(spec) | {"optimizer.lr": 1e-05}
    *_, written = expand(words, params, {"run": str(tmp_path), "seed": 7})
    assert Path(written) == tmp_path / "trial.yaml"
    content = Path(written).read_text(encoding="utf-8")
    assert yaml.safe_load(content)["optimizer"]["lr"] == 1e-05, "a number for PyYAML too"
    assert content.splitlines()[0] == "# mine" and "# keep me" in content and "amp: yes" in content
    was = yaml.safe_load(CONFIG)
    was["optimizer"]["lr"], was["train"]["seed"] = 1e-05, 7
    assert yaml.safe_load(content) == was


HOW_A_FILE_IS_TAKEN = [
    ("p.add_argument('--config')", ["--config"]),
    ("p.add_argument('-c', '--config-file')", ["--config-file"]),
    ("p.add_argument('config')", []),
    ("import sys\nopen(sys.argv[1])", []),
    ("import typer\ndef main(cfg: str = typer.Option()): ...\ntyper.run(main)", ["--cfg"]),
    ("open('train.yaml')", None),
    ("", None),
    ("def f(:", None),
]


def test_a_configuration_is_passed_as_its_script_takes_it(here: Here, subtests: pytest.Subtests) -> None:
    for script, option in HOW_A_FILE_IS_TAKEN:
        with subtests.test(script):
            here("train.py", script)
            spec, text = proposed(here("train.yaml", "lr: 0.1\n"))
            given = ["--config"] if option is None else option
            assert spec.objective_words == ["python", "train.py", *given, "${config:train.yaml}"]
            told = "train.py does not show how it takes the file: check --config, a guess."
            assert (told in text) == (option is None)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.py", "def f(:\n", r"a\.py:1: not Python"),
        ("a.ipynb", "{}", r"from \.py, .* write its command, as objective: \{command: \[PROGRAM"),
        ("a.py", "print(1)\n", r"found no options .* objective: \{command: \[python, .*a.py"),
        ("a.py", "p.add_subparsers()\np.add_argument('--lr', default=1.0)\n", "belong to subcommands"),
        ("a.py", "p.add_argument('--size', type=int, default=3)\n", "found nothing to search; numbers: size"),
        ("a.py", "p.add_argument('--lr', default=3)\n", "--lr is left out: it has no type="),
        (
            "a.py",
            "from transformers import HfArgumentParser, TrainingArguments\nHfArgumentParser(TrainingArguments)\n"
            "p.add_argument('--size', type=int, default=3)\n",
            "TrainingArguments is left out: it is imported",
        ),
        (
            "a.py",
            "s.add_parser('eval')\ns.add_parser('train').add_argument('--lr', default=1.0)\np.add_subparsers()\n",
            r'subcommands \(eval, train\); .* \[python, .*a.py, train, "\$\{args\}"\]',
        ),
        (
            "a.py",
            "from b import cli\n@cli.command('fit')\n@click.option('--lr', default=1.0)\ndef f(lr): ...\n",
            r"subcommands \(fit\); ",
        ),
        (
            "a.py",
            "a.add_typer(b, name='m')\n@b.command()\ndef train_it(lr: float = 0.1): ...\n",
            r"subcommands \(train-it\); ",
        ),
        (
            "a.py",
            "@click.group()\ndef cli(): ...\n@cli.command()\n@click.option('--lr', default=1.0)\ndef f(lr): ...\n",
            "belong to subcommands",
        ),
        (
            "a.py",
            "p.add_argument('--lr', type=float, default=1.0)\np.add_argument('--lr.x', type=int, default=1)\n",
            "do not form a space",
        ),
        ("a.yaml", "- 1\n", "is not a configuration"),
        ("a.yaml", "lr: 1\nlr: 2\n", 'a.yaml:2:1 lr: duplicate key "lr"'),
        ("a.yaml", "a: {b: }\n", "numbers: none"),
        ("a.json", "{", "a.json:1:2: not YAML"),
        ("a.py", "\0", "not Python"),
        ("a.toml", "lr = 1", r"from \.py, \.yaml"),
        ("${x}.json", '{"lr": 1}', "rename it"),
        ("-c.py", "p.add_argument('--lr', type=float, default=1.0)", "rename it"),
    ],
)
def test_an_impossible_proposal_is_reported(here: Here, name: str, text: str, told: str) -> None:
    with pytest.raises((UsageError, SpaceError), match=told):
        proposal(here(name, text))
    with pytest.raises(UsageError, match=r"nowhere\.(py|yaml) cannot be read: No such file"):
        proposal(Path("nowhere.py" if name.endswith(".py") else "nowhere.yaml"))


NAMES = st.sampled_from(
    [
        "lr",
        "batch_size",
        "dropout",
        "weight_decay",
        "warmup_steps",
        "lora_r",
        "size",
        "a-b",
        "a.b",
        "é",
        "true",
        "",
    ]
)
LEAVES = (
    st.none() | st.booleans() | st.text(max_size=5) | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0, 1, 8, 1e-3, 1e-5, 0.1, 2**63, 5e-324])
)  # fmt: skip
CONFIGS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=12,
)


@given(st.dictionaries(NAMES, CONFIGS, max_size=6))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_configuration_gives_a_space_that_loads_or_an_error(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    file = tmp_path / "any.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    try:
        spec, _ = proposed(file)
    except (UsageError, SpaceError) as error:
        assert str(file) in str(error)
        return
    words = spec.objective_words
    assert isinstance(words, list)
    written = Path(expand(words, first(spec), {"run": str(tmp_path)})[-1])
    assert json.loads(written.read_text()) == content, "the baseline is the file as it is"


@given(NAMES | st.text(), st.none() | st.integers() | st.floats())
@example("warmup_steps", math.inf)
@example("learning_rate", 10**400)
@example("batch_size", 10**400)
@example("weight_decay", math.nan)
@example("warmup_steps", 2251799813685249.0)
def test_a_first_range_is_one_and_holds_the_present_value(name: str, value: float | None) -> None:
    found = first_range(name, value)
    if found is not None and value is not None:
        assert Range(**found.range).min <= value <= Range(**found.range).max
        assert found.why


def test_a_real_number_that_is_whole_has_the_range_of_an_integer() -> None:
    found = first_range("lora_alpha", 16.0)
    assert found is not None and found.range == {"min": 4.0, "max": 64.0, "factor": 2}
    assert all(type(found.range[end]) is float for end in ("min", "max"))
    assert first_range("lora_alpha", 16.5) is None


@pytest.mark.slow
def test_from_a_script_to_a_finished_search(
    here: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here("train.py", SCRIPT)

    def call(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["hpsearch", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), "".join(capsys.readouterr())

    here("data.py", "p.add_argument('data')\np.add_argument('--lr', type=float, default=1.0)\n")
    assert "wrote data_space.yaml; to fill in: data; next:" in call("init", "--from", "data.py")[1]
    assert call("init", "--from", "train.py")[0] == 0
    code, told = call("init", "--from", "train.py")
    assert code == 2 and "train_space.yaml is there already" in told
    assert call("init", "--from", "train.py", "--force")[0] == 0
    code, told = call("init", "--from", "train.py", "-o", "./train.py", "--force")
    assert code == 2 and "proposed from" in told and Path("train.py").read_text() == SCRIPT
    assert call("init", "lora", "--from", "train.py")[0] == call("init")[0] == 2
    code, told = call("run", "train_space.yaml", "--trials", "3", "--workers", "1")
    assert code == 0 and "best val_loss" in told
    trials = open_study("train").trials
    assert len(trials) == 3 and trials["params_learning_rate"].iloc[0] == 1e-2


@pytest.mark.parametrize("order", [("click", "rich_click"), ("rich_click", "click")])
def test_a_name_may_come_from_click_or_another_package(tmp_path: Path, order: tuple[str, str]) -> None:
    first, second = order
    script = tmp_path / "train.py"
    script.write_text(
        f"try:\n    from {first} import command, option\n"
        f"except ImportError:\n    from {second} import command, option\n"
        '@command()\n@option("--lr", type=float, default=0.1)\ndef main(lr): ...\n'
    )
    assert isinstance(proposed(script)[0].parameters["lr"], Range)


def test_the_preferred_import_says_which_argument_is_the_file(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse\ntry:\n    from torch import save\nexcept ImportError:\n    from numpy import save\n"
        "p = argparse.ArgumentParser()\n"
        'p.add_argument("--lr", type=float, default=0.1)\np.add_argument("--weights", default="x.bin")\n'
        "args = p.parse_args()\nsave(0, args.weights)\n"
    )
    assert "--weights=${checkpoint}/x.bin" in proposed(script)[1]
