"""Imports point one way: search -> objectives, spaces, storage; objectives -> trainer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "search": {"objectives", "spaces", "storage"},
    "objectives": {"trainer"},
    "spaces": set(),
    "storage": set(),
    "trainer": set(),
}
KEPT_FROM = {
    "trainer": {"optuna", "ray", "sqlalchemy"},
    "spaces": {"optuna", "ray", "torch", "sqlalchemy"},
    "objectives": {"optuna", "ray", "sqlalchemy"},
    "storage": {"torch", "ray"},
    "search": {"torch"},
}


def imports(path: Path) -> Iterator[tuple[str, ...]]:
    """The absolute names a module imports, as parts from the root package on; relative ones resolved."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = tuple((node.module or "").split(".")) if node.module else ()
            for alias in node.names:
                yield (("hpsearch", *base) if node.level else ()) + module + (alias.name,)


MODULES = [path for room in MAY_IMPORT for path in sorted((ROOT / room).rglob("*.py"))]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    for name in imports(path):
        if name[0] == "hpsearch":
            assert len(name) == 1 or name[1] == room or name[1] in MAY_IMPORT[room], ".".join(name)
        assert name[0] not in KEPT_FROM[room], ".".join(name)
        assert name[0] != "ray" or path.parent == ROOT / "search" / "backends" / "ray", ".".join(name)
        # It takes seconds to load, and loads scikit-learn.
        assert name[0] != "optuna_dashboard" or path == ROOT / "search" / "dashboard.py", ".".join(name)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_package_imports_itself_relatively(path: Path) -> None:
    """An absolute import would load a second copy where the checkout itself is on the path."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names.append(node.module or "")
        assert not [name for name in names if name.split(".")[0] in {"hpsearch", *MAY_IMPORT}]
