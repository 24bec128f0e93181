"""Options of libraries that read signatures, dataclasses and names: each reads what its trial has."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from hpsearch.objectives.user.macros import expand
from hpsearch.search.errors import UsageError
from hpsearch.search.exchange.space_from import proposal
from hpsearch.spaces import Choice, Constant, Spec, loads

DATACLASSES = """
import dataclasses, enum
from typing import Literal, Optional

class Schedule(enum.Enum):
    COSINE = 1
    LINEAR = 2

@dataclasses.dataclass
class Optim:
    learning_rate: float = 1e-3
    nesterov: bool = False

@dataclasses.dataclass
class Base:
    data: str

@dataclasses.dataclass
class Options(Base):
    batch_size: int = 32
    layers: tuple[int, ...] = (64, 32)
    schedule: Schedule = Schedule.COSINE
    kind: Literal["a", "b"] = "a"
    verbose: bool = True
    limit: Optional[int] = None
    optim: Optim = dataclasses.field(default_factory=lambda: Optim(learning_rate=2e-3))
"""
TYRO = f"import tyro\n{DATACLASSES}\nprint(tyro.cli(Options))\n"
SIMPLE = f"import simple_parsing\n{DATACLASSES}\nprint(simple_parsing.parse(Options))\n"
SIGNATURE = """
def main(lr: float = 0.1, nesterov=False, layers: list[int] = [1, 2], *, kind="a b", limit=None):
    print(sorted(locals().items()))
"""
FIRE = f"import fire\n{SIGNATURE}\nfire.Fire(main)\n"
JSONARGPARSE = f"""
from jsonargparse import auto_cli
{SIGNATURE.replace("lr: ", "data: str, lr: ").replace("=False", ": bool = False").replace('kind="', 'kind: str = "')}
auto_cli(main)
"""
TAP = """
from tap import Tap

class Options(Tap):
    lr: float = 0.1
    nesterov: bool = False
    verbose: bool = True
    layers: list[int] = [1, 2]

print(Options().parse_args())
"""
ABSL = """
import sys
from absl import flags

FLAGS = flags.FlagValues()
flags.DEFINE_float("lr", 0.1, "the rate", lower_bound=0.02, flag_values=FLAGS)
flags.DEFINE_bool("nesterov", False, "", flag_values=FLAGS)
flags.DEFINE_enum("kind", "a", ["a", "b"], "", flag_values=FLAGS)
flags.DEFINE_list("layers", ["1", "2"], "", flag_values=FLAGS)
flags.DEFINE_multi_integer("steps", 3, "", flag_values=FLAGS)
flags.DEFINE_string("name", None, "", required=True, flag_values=FLAGS)
flags.DEFINE_spaceseplist("tags", [], "", flag_values=FLAGS)
FLAGS(sys.argv)
print([FLAGS[name].value for name in ("lr", "nesterov", "kind", "layers", "steps", "name")])
"""
CONFIGURATOR = """
import sys
from ast import literal_eval
for key, text in (each.removeprefix("--").split("=") for each in sys.argv[1:]):
    assert type(literal_eval(text)) is type(globals()[key]), key
    globals()[key] = literal_eval(text)
"""
NANOGPT = """
learning_rate = 6e-4
bias = False
init = 'scratch'
dtype = 'bfloat16' if learning_rate else 'float16'
config_keys = [key for key in globals()]
exec(open('configurator.py').read())
config = {key: globals()[key] for key in config_keys}
print(learning_rate, bias, init)
"""
HYDRA = """
import hydra
@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(config): print(config)
main()
"""
STRUCTURED = """
from dataclasses import dataclass, field
import hydra
from hydra.core.config_store import ConfigStore

@dataclass
class Optim:
    lr: float = 0.01

@dataclass
class Config:
    optim: Optim = field(default_factory=Optim)
    layers: list[int] = field(default_factory=lambda: [1, 2])

ConfigStore.instance().store(name="base", node=Config)
@hydra.main(version_base=None, config_name="base")
def main(config): print(config)
main()
"""
OMEGACONF = """
from omegaconf import OmegaConf
base = OmegaConf.create({"optim": {"lr": 0.1}, "name": "a", "out_dir": "out"})
print(OmegaConf.merge(base, OmegaConf.from_cli()))
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def space_of(text: str) -> tuple[Spec, str]:
    Path("train.py").write_text(text)
    proposed = proposal(Path("train.py"))
    return loads(proposed), proposed


def output(spec: Spec, capsys: pytest.CaptureFixture[str], **params: Any) -> str:
    """What the script prints with these values in place of those of the first trial."""
    baseline = spec.space.baseline()
    assert baseline is not None
    words = expand([*spec.objective_words], baseline | params)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", words[1:])
        runpy.run_path("train.py", run_name="__main__")
    return capsys.readouterr().out.strip()


def test_a_dataclass_given_to_tyro_is_options() -> None:
    spec, _ = space_of(TYRO)
    assert set(spec.space.searched) == {
        *("batch_size", "schedule", "kind", "optim.learning_rate", "optim.nesterov"),
    }
    assert spec.parameters["schedule"] == Choice(choices=["COSINE", "LINEAR"])
    assert spec.parameters["layers"] == Constant(value=[64, 32])
    assert (
        spec.baseline is not None and spec.baseline["optim.learning_rate"] == 0.002
    )  # as the default of the outer class has it
    assert spec.objective_words[2:7] == [
        *("--data=${data}", "--batch-size=${batch_size}", "--layers", "${layers:words}"),
        "--schedule=${schedule}",
    ]


@pytest.mark.extras("tyro")
def test_tyro_reads_the_values_of_the_trial(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"optim.learning_rate": 1e-05, "optim.nesterov": True, "verbose": False, "schedule": "LINEAR"}
    assert output(space_of(TYRO)[0], capsys, data="x", layers=[3], **given) == (
        "Options(data='x', batch_size=32, layers=(3,), schedule=<Schedule.LINEAR: 2>, kind='a', verbose=False, "
        "limit=None, optim=Optim(learning_rate=1e-05, nesterov=True))"
    )


@pytest.mark.extras("simple_parsing")
def test_simple_parsing_reads_the_values_of_the_trial(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"learning_rate": 1e-05, "nesterov": True, "verbose": False, "schedule": "LINEAR"}
    assert output(space_of(SIMPLE)[0], capsys, data="x", layers=[3], **given) == (
        "Options(data='x', batch_size=32, layers=(3,), schedule=<Schedule.LINEAR: 2>, kind='a', verbose=False, "
        "limit=None, optim=Optim(learning_rate=1e-05, nesterov=True))"
    )


def test_the_function_given_to_fire_is_passed_as_python_writes_it() -> None:
    spec, text = space_of(FIRE)
    assert spec.objective_words[2:] == ["${args:literal}"] and set(spec.space.searched) == {"lr", "nesterov"}
    assert "it has no value by default: --limit" in text


@pytest.mark.extras("fire")
def test_fire_reads_the_values_of_the_trial(capsys: pytest.CaptureFixture[str]) -> None:
    told = output(space_of(FIRE)[0], capsys, lr=1e-05, nesterov=True, layers=[3], kind="1")
    values = [("kind", "1"), ("layers", [3]), ("limit", None), ("lr", 1e-05), ("nesterov", True)]
    assert told == str(values)


@pytest.mark.extras("jsonargparse")
def test_jsonargparse_reads_the_values_of_the_trial(capsys: pytest.CaptureFixture[str]) -> None:
    spec, _ = space_of(JSONARGPARSE)
    assert spec.objective_words[2] == "${data}"
    told = output(spec, capsys, data="x", lr=1e-05, nesterov=True, layers=[3])
    values = [
        *[("data", "x"), ("kind", "a b"), ("layers", [3]), ("limit", None), ("lr", 1e-05), ("nesterov", True)]
    ]
    assert told == str(values)


def test_the_fields_of_tap_are_options_and_its_switches_turn_the_default() -> None:
    spec, _ = space_of(TAP)
    assert spec.objective_words[2:] == [
        "--lr=${lr}", "${nesterov:--nesterov|}", "${verbose:|--verbose}", "--layers", "${layers:words}",
    ]  # fmt: skip


@pytest.mark.extras("tap")
def test_tap_reads_the_values_of_the_trial(capsys: pytest.CaptureFixture[str]) -> None:
    told = output(space_of(TAP)[0], capsys, lr=1e-05, nesterov=True, verbose=False, layers=[3])
    assert told.split() == [
        "{'layers':",
        "[3],",
        "'lr':",
        "1e-05,",
        "'nesterov':",
        "True,",
        "'verbose':",
        "False}",
    ]


def test_absl_reads_the_values_of_the_trial(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("absl")
    spec, text = space_of(ABSL)
    assert "lr: 0.1" in text and set(spec.space.searched) == {
        "nesterov",
        "kind",
    }  # a tenth is below its bound
    assert "a space cannot tell its values from its declaration: --tags" in text
    told = output(spec, capsys, lr=0.5, nesterov=True, kind="b", layers=["3", "4"], steps=[5, 6], name="x")
    assert told == "[0.5, True, 'b', ['3', '4'], [5, 6], 'x']"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves its file open
def test_nanogpts_configurator_reads_the_values_of_the_trial(capsys: pytest.CaptureFixture[str]) -> None:
    Path("configurator.py").write_text(CONFIGURATOR)
    spec, text = space_of(NANOGPT)
    assert set(spec.space.searched) == {"learning_rate", "bias"} and "read: --dtype" in text
    assert output(spec, capsys, learning_rate=1e-05, bias=True, init="1") == "1e-05 True 1"


def test_hydras_configuration_and_its_chosen_files_are_read() -> None:
    Path("conf/model").mkdir(parents=True)
    Path("conf/config.yaml").write_text(
        "defaults: [{model: small}, _self_]\noptimizer: {lr: 0.01}\nseed: 3\nout: model.pt\ntrainer: {dir: out}\n"
    )
    Path("conf/model/small.yaml").write_text("dropout: 0.1\n")
    spec, _ = space_of(HYDRA + "import torch\ndef end(config): torch.save({}, config.out)\n")
    assert spec.space.searched.keys() == {"model.dropout", "optimizer.lr"}
    assert spec.objective_words[2:] == [
        "${args_hydra}", "seed=${seed}", "out=${checkpoint}/model.pt", "trainer.dir=${checkpoint}", "hydra.run.dir=${run}/hydra",
    ]  # fmt: skip


def test_hydras_dataclass_is_read_from_its_store() -> None:
    spec, text = space_of(STRUCTURED)
    assert spec.space.searched.keys() == {"optim.lr"}
    assert "# Left out, because it is not a single value: layers" in text


def test_omegaconf_reads_the_values_of_the_trial(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("omegaconf")
    spec, text = space_of(OMEGACONF)
    assert "out_dir=${checkpoint}" in text
    spec, _ = space_of(OMEGACONF.replace(', "out_dir": "out"', ""))
    assert "'lr': 1e-05" in output(spec, capsys, **{"optim.lr": 1e-05})


def test_a_class_that_may_be_absent_or_holds_itself_is_left_out() -> None:
    fields = "optim: Optional[Optim] = None\n    again: 'Options' = None\n    me: 'Options' = mine()\n"
    text = TYRO.replace("    optim: Optim = dataclasses", f"    {fields}    last: Optim = dataclasses")
    spec, proposed = space_of(text)
    assert "last.learning_rate" in spec.space.searched and "optim.learning_rate" not in proposed
    assert (
        "it may be absent with all that it holds: --optim, --again, --me.optim, --me.again, --me.me"
        in proposed
    )


REFUSED = {
    "import fire\nclass A: ...\nfire.Fire(A)": "its options belong to subcommands",
    "import fire\nfire.Fire()": "its options belong to subcommands",
    "import tyro\nfrom mine import Options\ntyro.cli(Options)": "Options is left out: it is imported",
    "import sys\nlr = float(sys.argv[1])\nbs = int(sys.argv[3])": '"${lr}", "${argument_2}", "${bs}"',
    "from lightning.pytorch.cli import LightningCLI\nLightningCLI(A)": "fit --print_config > config.yaml",
    "from omegaconf import OmegaConf\nOmegaConf.from_cli()": "its configuration is neither a file",
    "import hydra\n@hydra.main(config_name='x')\ndef f(c): ...": "x.yaml is not there",
    "import tyro\ntyro.cli(lambda lr: 1)": "its options belong to subcommands",
    "from absl import flags\nflags.DEFINE_float()\nflags.DEFINE_float('a')": "--a",
    "from absl import flags\nflags.DEFINE_enum('a', 'b', KINDS)": "found nothing to search",
    "import tyro\nclass A(B): ...\nclass B(A): ...\ntyro.cli(A)": "its options belong to subcommands",
    "lr = 0.1": "found no options of argparse, HfArgumentParser, click, Typer, tyro",
}


def test_what_the_source_does_not_show_is_told_with_what_to_write(subtests: pytest.Subtests) -> None:
    for text, message in REFUSED.items():
        with subtests.test(message), pytest.raises(UsageError) as caught:
            space_of(text)
        assert message in str(caught.value)
