"""Nothing that a study, a YAML or a checkpoint holds is run: the package has no means to."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpsearch.objectives.resolve import describe
from hpsearch.search.trials.document import load_document
from hpsearch.spaces import SpaceError, Spec, loads

ROOT = Path(__file__).parents[1]
ROOMS = ("search", "spaces", "objectives", "trainer", "storage")

BUILT_IN = {"eval", "exec", "compile", "__import__", "breakpoint"}
MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "joblib",
    "marshal",
    "shelve",
    "code",
    "codeop",
    "runpy",
    "yaml",
}
LOADING = {
    "load",
    "loads",
    "Unpickler",
    "full_load",
    "unsafe_load",
    "load_all",
}  # of a module that is not JSON
METHODS = {"system", "popen", "read_pickle", "to_pickle", "exec_module", "import_module", "load_module"}
ALLOWED = {
    ("objectives/resolve.py", "imports pickle"): "a function of this user's own process, for its own workers",
    ("objectives/resolve.py", "pickle.loads"): "the same",
    (
        "objectives/catalog.py",
        "import_module",
    ): "a built-in objective's module and packages, by their names in BUILT_IN",
    (
        "objectives/user/config_file.py",
        "yaml.load",
    ): "a script's own configuration: its tags stay tags, nothing is made",
    ("objectives/user/script_settings.py", ".load"): "a word of a command, by the safe kind",
    ("objectives/user/config_file.py", "YAML() of another type than safe"): "the same, with its comments",
    ("objectives/tables/sklearn.py", "import_module"): "a part of scikit-learn, by its name in ESTIMATORS",
    ("objectives/tables/columns.py", "skops.io.load"): "a model, of scikit-learn's and numpy's types alone",
    ("search/service/known.py", ".load"): "the tokens of a user's servers, by the safe kind",
    ("search/service/home.py", ".load"): "the settings of a server's owner, by the safe kind",
    ("search/service/server.py", "config.load"): "uvicorn reads the certificate",
    ("search/operations/__init__.py", "import_module"): "an operation's, by its name in a table",
    ("objectives/user/function.py", "import_module"): "what the space's `objective:` names",
    ("objectives/user/function.py", "exec_module"): "the same, where it names a file",
}
OWN_LOADERS = {"json.loads", "json.load", "tomllib.loads", "spaces.load", "spaces.loads"}


def dotted(node: ast.AST) -> str:
    """`torch.hub.load` for a call of it; `.load` where what stands before is no name."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=owner, attr=attribute):
            return f"{dotted(owner)}.{attribute}"
    return ""


def means(source: str) -> Iterator[str]:
    """What in a module's source could run what it reads."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (f"imports {a.name}" for a in node.names if a.name.split(".")[0] in MODULES)
        if (
            isinstance(node, ast.ImportFrom)
            and not node.level
            and (node.module or "").split(".")[0] in MODULES
        ):
            yield f"imports {node.module}"
        if isinstance(node, ast.ImportFrom) and node.module in (
            "torch",
            "numpy",
            "os",
            "builtins",
            "importlib",
        ):
            yield from (
                a.name
                for a in node.names
                if a.name in LOADING | METHODS | BUILT_IN and a.name != "import_module"
            )
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func)
        last = name.rpartition(".")[2]
        if name in BUILT_IN or name.startswith("builtins."):
            yield name
        if "." in name and last in LOADING and name not in OWN_LOADERS:
            yield name
        if last in METHODS:
            yield last
        for keyword in node.keywords:
            value = keyword.value
            constant = value.value if isinstance(value, ast.Constant) else ast.unparse(value)
            risky = {"shell": False, "allow_pickle": False, "weights_only": True, "trust_remote_code": False}
            if keyword.arg in risky and constant is not risky[keyword.arg]:
                yield f"{keyword.arg}={constant!r}"
            if last == "YAML" and keyword.arg == "typ" and constant != "safe":
                yield f"YAML(typ={constant!r})"
        if last == "YAML" and "typ" not in [keyword.arg for keyword in node.keywords]:
            yield "YAML() of another type than safe"


SOURCES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def test_no_module_can_run_what_it_reads() -> None:
    assert len(SOURCES) > 50
    found = {(str(path.relative_to(ROOT)), what) for path in SOURCES for what in means(path.read_text())}
    assert found - ALLOWED.keys() == set()
    assert ALLOWED.keys() - found == set(), "no longer needed"


UNSAFE: list[str] = [
    "eval(text)", "exec(text)", "compile(text, '', 'exec')", "import pickle", "from pickle import loads",
    "import marshal", "import shelve", "import torch\ntorch.load(file)", "torch.load(file, weights_only=False)",
    "import yaml", "from ruamel.yaml import YAML\nYAML()", "YAML(typ='unsafe')", "YAML(typ='rt')",
    "subprocess.run(text, shell=True)", "subprocess.run(text, shell=wanted)", "os.system(text)", "os.popen(text)",
    "np.load(file, allow_pickle=True)", "pandas.read_pickle(file)", "cloudpickle.loads(data)", "from os import system",
    "spec.loader.exec_module(module)", "importlib.import_module(name)", "builtins.eval(text)", "from torch import load",
    "cloudpickle.Unpickler(file)", "torch.hub.load(name)", "Model.from_pretrained(name, trust_remote_code=True)",
]  # fmt: skip


def test_each_of_these_would_be_found(subtests: pytest.Subtests) -> None:
    for source in UNSAFE:
        with subtests.test(source):
            assert list(means(source))


# The one pickle: a function of the user's own process. No file and no study gets there.

FUNCTION: dict[str, Any] = {"function": "gASVHQAAAAAAAACMAm9zlIwFbWtkaXKUk5SMA3B3bpSFlFKULg==", "path": []}


@pytest.mark.parametrize(
    "objective", [FUNCTION, {**FUNCTION, "command": ["true"]}, {**FUNCTION, "name": "lora"}]
)
def test_neither_a_space_nor_a_study_nor_a_document_names_a_pickle(tmp_path: Path, objective: Any) -> None:
    stored = {
        "version": 1,
        "name": "s",
        "objective": objective,
        "metric": "loss",
        "parameters": {"x": [1, 2]},
    }
    with pytest.raises(SpaceError):
        Spec.from_json(stored)
    with pytest.raises(SpaceError):
        loads(repr(stored))
    file = tmp_path / "best.yaml"
    file.write_text(repr({"objective": objective, "metric": "loss", "parameters": {"x": 1}}))
    try:
        document = load_document(file)
    except SpaceError:
        return
    assert describe(document.objective) == {"command": ["true"]}, "the rest is not looked at"


@pytest.mark.parametrize("words", ["function", "lora", ["function"], ["a", "b"]])
def test_what_a_worker_is_told_of_an_objective_is_a_name_or_a_command(words: str | list[str]) -> None:
    assert describe(words).keys() in ({"name"}, {"command"})
