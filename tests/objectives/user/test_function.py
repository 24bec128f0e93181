"""A user's function: found where it stands, imported as the user would, and missed with a hint."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpsearch.objectives.base import ObjectiveError
from hpsearch.objectives.resolve import check_name, describe, resolve
from hpsearch.objectives.user.function import find_source, load_function, parameters_read

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write files into the current folder; what they import is forgotten after the test."""
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)

    def make(**files: str) -> Path:
        for name, text in files.items():
            target = tmp_path / name.replace("__", "/")
            target = target.with_suffix(".py")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        return tmp_path

    yield make
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


TRAIN = "def train(trial):\n    return 0.25\n"


@pytest.mark.parametrize(
    "name", ["mine_a:train", "mine_a.py:train", "./mine_a.py:train", "pkg_a.inner:train", "pkg_a:Deep.train"]
)
def test_a_function_is_named_by_its_module_or_its_file(write: Write, name: str) -> None:
    write(
        mine_a=TRAIN,
        pkg_a__inner=TRAIN,
        pkg_a____init__="class Deep:\n    train = staticmethod(lambda trial: 0.25)\n",
    ).joinpath("pkg_a", "__init__.py").write_text("class Deep:\n    train = staticmethod(lambda t: 0.25)\n")
    check_name(name)
    assert load_function(name)(None) == 0.25  # type: ignore[arg-type]
    assert resolve(describe(name), metric="loss")(None) == 0.25  # type: ignore[arg-type]


def test_the_users_own_trainer_and_storage_are_the_ones_imported(write: Write) -> None:
    """In a process of its own, started as a worker is; hpsearch has modules of these names too."""
    folder = write(
        train="import trainer, storage, search, objectives, spaces\n"
        "def train(trial):\n    return [trainer.X, storage.X, search.X, objectives.X, spaces.X]\n",
        **{name: f"X = 'my {name}'\n" for name in ("trainer", "storage", "search", "objectives", "spaces")},
    )
    script = (
        "import sys, hpsearch.search.backends.worker, hpsearch.trainer, hpsearch.storage.files\n"
        "from hpsearch.objectives.user.function import load_function\n"
        "print(load_function(sys.argv[1])(None))"
    )
    for name in (f"{folder / 'train.py'}:train", "train:train"):
        done = subprocess.run(
            [sys.executable, "-P", "-c", script, name], capture_output=True, text=True, timeout=120
        )
        expected = [f"my {n}" for n in ("trainer", "storage", "search", "objectives", "spaces")]
        assert done.stdout.strip() == str(expected), done.stderr


def test_a_file_of_another_folder_finds_what_stands_beside_it(write: Write) -> None:
    write(far__helper_b="X = 0.5\n", far__train_b="from helper_b import X\ndef train(trial): return X\n")
    assert load_function("far/train_b.py:train")(None) == 0.5  # type: ignore[arg-type]


def test_a_module_of_an_editable_install_is_found() -> None:
    """As this project's own is here: its folder is not on the path."""
    assert find_source("hpsearch.objectives.gpt.lora:train").name == "lora.py"
    check_name("hpsearch.objectives.gpt.lora:train")


def test_finding_a_source_does_not_import_it(write: Write) -> None:
    write(never_c="raise SystemExit('imported')\n" + TRAIN, pkg_c__inner=TRAIN)
    check_name("never_c:train")
    check_name("pkg_c.inner:train")
    assert "never_c" not in sys.modules and "pkg_c" not in sys.modules


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere_d:train", r'there is no module "nowhere_d" in .* or installed'),
        ("nowhere/d.py:train", r"there is no file .*/nowhere/d\.py"),
        ("json.nowhere_d:train", r'there is no module "json.nowhere_d"'),
        (":train", 'write "module:function"'),
        ("mine_d:", 'write "module:function"'),
        ("mine_d:1x", 'write "module:function"'),
        ("mine_d:a b", 'write "module:function"'),
        ("optuna:mine_b.py:train", r"there is no file .*/mine_b\.py, did you mean mine_d\.py\?$"),
        ("optuan:mine_b.py:train", r'did you mean "optuna:mine_b\.py:train"\?$'),
        ("mine_d:trian", r'mine_d\.py has no "trian", did you mean "train"\?$'),
        ("ray:mine_d.py:zzz", r'mine_d\.py has no "zzz"; it defines Deep, train$'),
        ("optuna:./mine_d.py:zzz.train", r'has no "zzz"; it defines'),
        ("lara", 'no objective "lara"; did you mean "lora"'),
    ],
)
def test_a_name_that_names_nothing_is_refused_before_the_search(write: Write, name: str, said: str) -> None:
    write(mine_d="import os\nLIMIT = 1\nclass Deep:\n    pass\n" + TRAIN)
    with pytest.raises(ObjectiveError, match=said):
        check_name(name)


@pytest.mark.parametrize(
    "text",
    [
        "from os import getcwd as train",
        "train = None",
        "if len('a') > 2:\n    pass\nelse:\n    def train(t): ...",
        "with open('/dev/null') as train: pass",
        "def make():\n    global train\n    train = 1\nmake()",
        "print(train := print)",
        "from os.path import *",
        "exec('train = 1')",
        "globals()['train'] = 1",
        "import sys\nsys.modules[__name__].train = 1",
        "def __getattr__(name): ...",
        "def train(:",
        "\0",
    ],
)
def test_a_name_that_a_text_may_define_is_left_to_the_import(write: Write, text: str) -> None:
    write(mine_i=f"{text}\n")
    check_name("optuna:mine_i.py:train")


def test_a_program_that_is_run_to_its_search_needs_no_name(write: Write) -> None:
    write(mine_k="x = 1\n")
    check_name("optuna:mine_k.py:__main__")


def test_a_module_of_a_package_is_a_name_in_it(write: Write) -> None:
    folder = write(pkg_j__inner="x = 1\n" + TRAIN)
    (folder / "pkg_j" / "__init__.py").write_text("from .inner import x\n")
    check_name("pkg_j:inner.train")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("trian", r'has no "trian", did you mean "train"\?'),
        ("Deep.trian", r'has no "Deep.trian"'),
        ("zzz", r'has no "zzz"$'),
        ("LIMIT", r'"LIMIT" is a int, not a function'),
    ],
)
def test_a_function_that_is_not_there_is_missed_with_a_hint(write: Write, function: str, said: str) -> None:
    write(mine_e=TRAIN + "LIMIT = 3\nclass Deep:\n    pass\n")
    with pytest.raises(ObjectiveError, match=said):
        load_function(f"mine_e:{function}")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import nowhere_to_be_found\n", ModuleNotFoundError),
        ("def train(:\n", SyntaxError),
        ("raise RuntimeError('at import')\n", RuntimeError),
    ],
)
@pytest.mark.parametrize("name", ["broken_f:train", "broken_f.py:train"])
def test_errors_of_a_module_on_import_pass_through(
    write: Write, text: str, error: type[Exception], name: str
) -> None:
    write(broken_f=text)
    for _ in range(2):
        with pytest.raises(error):
            load_function(name)


def test_a_class_of_the_users_file_can_be_pickled(write: Write) -> None:
    import pickle

    write(mine_g="class Box:\n    pass\ndef train(trial):\n    return Box()\n")
    box: Any = load_function("mine_g.py:train")(None)  # type: ignore[arg-type]
    assert type(pickle.loads(pickle.dumps(box))) is type(box)


@pytest.mark.parametrize(
    ("body", "read"),
    [
        ('return trial.params["a"] + trial.params.get("b", 1)', {"a", "b"}),
        ('p = trial.params["a"]', {"a"}),
        ("p = trial.params", None),
        ("f(**trial.params)", None),
        ("trial.params[name]", None),
        ("return 1", None),
        ("return (", None),
    ],
)
def test_the_parameters_that_a_file_reads_are_found_in_its_source(
    write: Write, body: str, read: set[str] | None
) -> None:
    write(mine_h=f"def train(trial, name=None, f=None):\n    {body}\n")
    assert parameters_read("mine_h:train") == read
