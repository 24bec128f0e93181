"""The order of the rooms: each imports only those below it, also lazily and for types alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

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
RUN_AS_THEY_ARE = {  # functions of these libraries, by the modules that may import them
    "optuna": Path("objectives/user/optuna_function.py"),
    "ray": Path("objectives/user/ray_function.py"),
}
ORDER = {  # from the ground up; those of a line do not import each other
    "trainer": (
        {"errors.py", "seeds.py", "notices.py", "anew.py"},
        {"config"},
        {"header.py", "memory.py", "ranks.py"},
        {"guides", "data", "optim"},
        {"checkpoint.py"},
        {"model"},
        {"packs"},
        {"runs"},
        {"output"},
        {"tools"},
    ),
    "objectives": (
        {"base.py"},
        {"reports.py"},
        {"errors.py", "processes.py"},
        {"runs.py", "callbacks"},
        {"user"},
        {"tables", "hf_lora", "gpt"},
        {"catalog.py"},
        {"info.py"},
        {"guides.py", "range_test.py", "generate.py"},
        {"resolve.py"},
    ),
    "search": (
        {"values.py", "garbage.py", "page"},
        {"errors.py", "formatting.py", "streams.py"},
        {"trials"},
        {"scheduling"},
        {"sampling"},
        {"engine"},
        {"backends", "results"},
        {"queue"},
        {"preflight", "exchange"},
        {"training"},
        {"operations"},
        {"service"},
        {"cli"},
    ),
}
LONGEST = 450  # lines of a module


@cache
def modules() -> dict[tuple[str, ...], Path]:
    """The files of the package by their names, as parts from the root package on."""
    found = {}
    for room in MAY_IMPORT:
        for path in sorted((ROOT / room).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[parts[:-1] if parts[-1] == "__init__" else parts] = path.relative_to(ROOT)
    return found


def imports(path: Path) -> Iterator[tuple[str, ...]]:
    """The absolute names a module imports, as parts from the root package on; relative ones resolved."""
    package = path.parent.parts
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = tuple((node.module or "").split(".")) if node.module else ()
            for alias in node.names:
                yield (("hpsearch", *base) if node.level else ()) + module + (alias.name,)


@cache
def imported() -> dict[Path, set[Path]]:
    """Which files of the package each of them imports."""
    names = modules()
    return {
        path: {
            names[part]
            for name in imports(path)
            if name[0] == "hpsearch"
            for part in [name[1:] if name[1:] in names else name[1:-1]]
            if part in names and names[part] != path
        }
        for path in names.values()
    }


def floor(path: Path) -> int:
    """On which floor of its room a file is; the face of a room stands above all of them."""
    room, inner = path.parts[0], path.parts[1]
    if inner == "__init__.py":
        return len(ORDER[room])
    return next(number for number, rooms in enumerate(ORDER[room]) if inner in rooms)


def test_rooms_import_one_way() -> None:
    wrong = [
        f"{path}: {'.'.join(name)}"
        for path in modules().values()
        for name in imports(path)
        if (
            name[0] == "hpsearch"
            and len(name) > 1
            and name[1] not in {path.parts[0], *MAY_IMPORT[path.parts[0]]}
        )
        or (name[0] in KEPT_FROM[path.parts[0]] and RUN_AS_THEY_ARE.get(name[0]) != path)
        or (
            name[0] == "ray"
            and path.parts[:3] != ("search", "backends", "ray")
            and path != RUN_AS_THEY_ARE["ray"]
        )
        # It takes seconds to load, and loads scikit-learn.
        or (name[0] == "optuna_dashboard" and path.parts[:3] != ("search", "service", "dashboard.py"))
    ]
    assert wrong == []


def test_every_module_is_in_a_room_that_the_order_names() -> None:
    known = {room: {"__init__.py"}.union(*ORDER[room]) for room in ORDER}
    assert [
        str(p) for p in modules().values() if p.parts[0] in ORDER and p.parts[1] not in known[p.parts[0]]
    ] == []


def test_inner_rooms_import_downwards() -> None:
    upwards = [
        f"{path} -> {other}"
        for path, others in imported().items()
        for other in sorted(others)
        if path.parts[0] in ORDER
        and path.parts[0] == other.parts[0]
        and path.parts[1] != other.parts[1]
        and floor(other) >= floor(path)
        and other.parts[1] != "__init__.py"
    ]
    assert upwards == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    try:
        TopologicalSorter(imported()).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(map(str, error.args[1]))) from error


def test_no_module_is_too_long_to_read_at_once() -> None:
    lines = {str(path): len((ROOT / path).read_text().splitlines()) for path in modules().values()}
    assert {path: count for path, count in lines.items() if count > LONGEST} == {}


def test_the_package_imports_itself_relatively() -> None:
    """An absolute import would load a second copy where the checkout itself is on the path."""
    absolute = []
    for path in modules().values():
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names.append(node.module or "")
            absolute += [f"{path}: {n}" for n in names if n.split(".")[0] in {"hpsearch", *MAY_IMPORT}]
    assert absolute == []


def test_what_documents_name_is_there() -> None:
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    named = {
        name
        for document in documents
        if document.name != "CHANGELOG.md"  # which tells of what was
        for name in re.findall(
            r"`((?:search|spaces|objectives|trainer|storage|tests|docs)/[\w/.-]+)`", document.read_text()
        )
    }
    assert len(named) > 50
    assert {name for name in named if not (ROOT / name).exists()} == set()
