"""The root of the checkout is the package `hpsearch`: what that rule needs to stay true."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("search", "spaces", "objectives", "trainer", "storage")


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_is_listed() -> None:
    """A forgotten package works in an editable install and is missing from the wheel."""
    found = {"hpsearch"}
    for room in ROOMS:
        for init in (ROOT / room).rglob("__init__.py"):
            found.add(".".join(["hpsearch", *init.parent.relative_to(ROOT).parts]))
    assert set(project()["tool"]["setuptools"]["packages"]) == found


def test_every_folder_with_modules_is_a_package() -> None:
    for room in ROOMS:
        for module in (ROOT / room).rglob("*.py"):
            assert (module.parent / "__init__.py").exists(), module


def test_the_root_module_is_a_docstring_alone() -> None:
    """Tools import it a second time under the checkout's name; with imports everything would load twice."""
    body = ast.parse((ROOT / "__init__.py").read_text()).body
    assert len(body) == 1
    assert isinstance(body[0], ast.Expr)


def test_no_other_module_stands_at_the_root() -> None:
    """Every `*.py` at the root would ship in the wheel."""
    assert [path.name for path in ROOT.glob("*.py")] == ["__init__.py"]


def test_package_data_exists() -> None:
    for package, patterns in project()["tool"]["setuptools"]["package-data"].items():
        folder = ROOT.joinpath(*package.split(".")[1:])
        for pattern in patterns:
            assert list(folder.glob(pattern)), f"{package}: {pattern}"


def test_constraints_pin_every_dependency() -> None:
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    wanted = project()["project"]
    names = list(wanted["dependencies"])
    installed = re.search(r"--editable '\.\[(.+)\]'", (ROOT / ".ci/extras").read_text())
    assert installed is not None
    for extra in installed[1].split(","):
        names += wanted["optional-dependencies"][extra]
    for requirement in names:
        name = requirement.split(">")[0].split("=")[0].split("[")[0].lower()
        assert name in pinned, f"{name} is not in constraints.txt"


HEAVY = ("torch", "optuna", "ray", "pandas", "plotly", "sqlalchemy", "numpy", "hyperopt")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["schema"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; sys.argv = ['hpsearch', *sys.argv[1:]]\n"
        "from hpsearch.search.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        f"loaded = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
    result = subprocess.run([sys.executable, "-P", "-c", code, *arguments], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_a_worker_loads_nothing_heavy() -> None:
    """A space may ask for one per trial."""
    heavy = (*HEAVY, "pydantic", "hpsearch.spaces")
    code = f"import sys; import hpsearch.search.backends.worker.__main__; assert not {{*{heavy!r}}} & {{*sys.modules}}"
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", ["trainer", "storage", "search", "spaces", "objectives"])
def test_a_users_module_of_the_same_name_is_theirs(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("MINE = True\n")
    code = f"import {name}, hpsearch.{name}; assert {name}.MINE; assert hpsearch.{name} is not {name}"
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
