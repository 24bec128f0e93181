"""A user's own function as an objective: `module:function` or `path/to/file.py:function`."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import os
import re
import symtable
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from ..base import Objective, ObjectiveError
from .places import near_file, placed

Library = Literal["optuna", "ray"]
LIBRARIES: tuple[Library, ...] = ("optuna", "ray")  # whose functions run as they are
MAIN = "__main__"  # stands for what a program gives to its own search, in place of a function's name
MOST_NAMES = 10  # that a message lists
# What may give a module names that its text does not show.
_UNSEEN = {"*", "exec", "globals", "locals", "vars", "setattr", "modules", "__dict__", "__getattr__"}


class SearchBegins(BaseException):
    """Raised while a file is imported where it would begin a search of its own, of `objective`."""

    def __init__(self, objective: Any = None) -> None:
        super().__init__()
        self.objective = objective


def library_of(name: str) -> Library | None:
    """The library that a function is written for, by the name of the objective; None for hpsearch."""
    return next((library for library in LIBRARIES if name.startswith(f"{library}:")), None)


def load_function(name: str, folder: str | None = None) -> Objective:
    """Import a user's function. Its folder is put first on the path, so that it can import its own modules.

    A file is imported up to where it raises `SearchBegins`. Raises `ObjectiveError` if there is no such file,
    module or function. Errors of the user's code on import pass through.
    """
    module_name, function_name = _split(name)
    source = find_source(name, folder)
    is_file = module_name.endswith(".py")
    sys.path.insert(0, str(source.parent if is_file else Path.cwd()))
    try:
        module = _import_file(source) if is_file else importlib.import_module(module_name)
    except SearchBegins as error:
        raise ObjectiveError(
            f'objective "{name}": {source} begins a search of its own when it is imported; '
            'put that under `if __name__ == "__main__":`'
        ) from error
    function: Any = module
    for part in function_name.split("."):
        function = getattr(function, part, None)
    if function is None:
        from ...trainer.config.rules import did_you_mean

        hint = did_you_mean(function_name, [each for each in dir(module) if callable(getattr(module, each))])
        raise ObjectiveError(f'objective "{name}": {source} has no "{function_name}"{hint}')
    if not callable(function):
        raise ObjectiveError(
            f'objective "{name}": "{function_name}" is a {type(function).__name__}, not a function'
        )
    objective: Objective = function
    return objective


def run_to_search(name: str, folder: str | None = None) -> tuple[Any, ModuleType]:
    """What a program gives to the search that it begins, and its module, which is `__main__` to it alone.

    It is run as `python FILE.py` runs it, up to there. Raises `ObjectiveError` if there is no such file, or
    it ends before it begins a search. Errors of the user's code pass through.
    """
    module_name, _ = _split(name)
    source = find_source(name, folder)
    if not module_name.endswith(".py"):
        raise ObjectiveError(f'objective "{name}": {MAIN} is of a file: name that, with its .py')
    sys.path.insert(0, str(source.parent))
    spec, module = _module_of(MAIN, source)
    module.__spec__ = None  # as of any program: other processes that it starts find it by its file
    before, sys.argv = sys.argv, [str(source)]
    told = f'objective "{name}": {source} ended before it began a search'
    try:
        with as_main(module):
            spec.loader.exec_module(module)
    except SearchBegins as search:
        if not callable(search.objective):
            kind = type(search.objective).__name__
            raise ObjectiveError(f'objective "{name}": {source} searches a {kind}, not a function') from None
        return search.objective, module
    except SystemExit as error:
        code = f" with exit code {error.code}" if error.code else ""
        raise ObjectiveError(f"{told}{code}; it gets no arguments here: give them defaults") from error
    finally:
        sys.argv = before
    raise ObjectiveError(f"{told}: it gave nothing to study.optimize, or to a Tuner")


@contextmanager
def as_main(module: ModuleType | None) -> Iterator[None]:
    """Let a program's module be `__main__` meanwhile, so that what it has made can be pickled."""
    before = sys.modules[MAIN]
    sys.modules[MAIN] = module or before
    try:
        yield
    finally:
        sys.modules[MAIN] = before


def check_function(name: str, folder: str | None = None) -> None:
    """Raise `ObjectiveError` if there is no such file or module, or by its text no such function in it.

    Imports none of it.
    """
    source = find_source(name, folder)
    function, *_ = _split(name)[1].split(".")
    defined = _names_defined(source)
    if defined is None or function in (MAIN, *defined):
        return
    if source.name == "__init__.py" and any(source.parent.glob(f"{function}*")):
        return  # a module of a package is a name in it, once it is imported
    from ...trainer.config.rules import did_you_mean

    hint = did_you_mean(function, [*defined])
    listed = [each for each, is_function in defined.items() if is_function] or [*defined]
    if not hint:
        more = f" and {len(listed) - MOST_NAMES} more" if len(listed) > MOST_NAMES else ""
        hint = f"; it defines {', '.join(listed[:MOST_NAMES])}{more}" if listed else "; it defines nothing"
    raise ObjectiveError(f'objective "{name}": {source} has no "{function}"{hint}')


def _names_defined(source: Path) -> dict[str, bool] | None:
    """The names that a module defines, with whether each is a function or a class.

    None if its text does not show them all, or is no Python, which its import tells best.
    """
    try:
        text = importlib.util.decode_source(source.read_bytes())
        tree, table = ast.parse(text), symtable.symtable(text, str(source), "exec")
    except (SyntaxError, ValueError, RecursionError, OSError):
        return None
    used = {
        getattr(node, field, None)
        for node in ast.walk(tree)
        for field in ("id", "attr", "name")  # of names, attributes, and definitions and imports
    }
    if used & _UNSEEN:
        return None
    names = {
        symbol.get_name(): symbol.is_namespace()
        for symbol in table.get_symbols()
        if symbol.is_assigned() or symbol.is_imported()
    }
    declared = (name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names)
    return names | {name: False for name in declared if name not in names}


def find_source(name: str, folder: str | None = None) -> Path:
    """The source file of a user's function, found without importing it; a file may be in `folder`.

    Raises `ObjectiveError` if there is none.
    """
    module_name, _ = _split(name)
    if module_name.endswith(".py"):
        path = placed(module_name, folder).absolute()
        if not path.is_file():
            beside = "" if folder in (None, str(path.parent)) else f", nor in {folder}"
            problem = f'objective "{name}": there is no file {path}{beside}'
            raise ObjectiveError(problem + (_library_meant(name) or near_file(module_name, folder)))
        return path
    for stem in _stems(module_name):
        for candidate in (stem.with_suffix(".py"), stem / "__init__.py"):
            if candidate.is_file():
                return candidate
    raise ObjectiveError(
        f'objective "{name}": there is no module "{module_name}" in {os.getcwd()} or installed'
        + _library_meant(name)
    )


def _library_meant(name: str) -> str:
    """A hint where the name begins with a misspelt library, as `optuan:train.py:objective`."""
    first, *others = name.split(":")
    near = []
    if len(others) > 1 and first not in LIBRARIES:
        near = difflib.get_close_matches(first.lower(), LIBRARIES, 1)
    return f'; did you mean "{":".join([*near, *others])}"?' if near else ""


def _stems(module_name: str) -> Iterator[Path]:
    """Where a module's file may be, without its suffix. Parent packages are not imported."""
    top, *inner = module_name.split(".")
    for folder in [os.getcwd(), *sys.path]:
        yield Path(folder or ".").joinpath(top, *inner)
    with suppress(ImportError, ValueError):  # ValueError: a loaded module without a spec
        spec = importlib.util.find_spec(top)  # also finds editable installs, which are not on the path
        for location in (spec and spec.submodule_search_locations) or ():
            yield Path(location).joinpath(*inner)


def parameters_read(name: str, folder: str | None = None) -> frozenset[str] | None:
    """The parameter names that a user's source file reads from `trial.params`.

    None if they are unknown: the source does not parse, or passes `params` on as a whole.
    """
    try:
        tree = ast.parse(find_source(name, folder).read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError, OSError):
        return None
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    keys = [
        _key_of(node, parents)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "params"
    ]
    return frozenset(key for key in keys if key is not None) if keys and None not in keys else None


def parameters_suggested(name: str, folder: str | None = None) -> frozenset[str] | None:
    """The parameter names that the source file of an Optuna objective suggests.

    None if they are unknown: the source does not parse, or some names are computed.
    """
    try:
        tree = ast.parse(find_source(name, folder).read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError, OSError):
        return None
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr.startswith("suggest_")
    ]
    names = [
        call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None for call in calls
    ]
    known = frozenset(place_of(each) for each in names if isinstance(each, str))
    return known if names and None not in names else None


def place_of(name: str) -> str:
    """The name of a parameter in a space: other characters than letters, digits, _ and dots become _."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", name)


def _key_of(params: ast.Attribute, parents: dict[ast.AST, ast.AST]) -> str | None:
    """The constant name in `….params["name"]` or `….params.get("name")`; None for any other use."""
    parent = parents[params]
    if isinstance(parent, ast.Subscript) and isinstance(parent.slice, ast.Constant):
        return str(parent.slice.value)
    if isinstance(parent, ast.Attribute) and parent.attr == "get":
        call = parents[parent]
        if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant):
            return str(call.args[0].value)
    return None


def _split(name: str) -> tuple[str, str]:
    library = library_of(name)
    before = f"{library}:" if library else ""
    module, _, function = name.removeprefix(before).rpartition(":")
    if not module or not all(part.isidentifier() for part in function.split(".")):
        forms = f'"{before}module:function" or "{before}path/to/file.py:function"'
        raise ObjectiveError(f'objective "{name}": write {forms}')
    return module, function


def _import_file(path: Path) -> Any:
    # Its own name lets its classes be pickled; but a user's random.py must not replace Python's.
    name = f"hpsearch_user_{path.stem}" if path.stem in sys.stdlib_module_names else path.stem
    spec, module = _module_of(name, path)
    sys.modules[name] = module
    with suppress(SearchBegins):
        spec.loader.exec_module(module)
    return module


def _module_of(name: str, path: Path) -> tuple[Any, ModuleType]:
    """The spec of a file and its module, under this name, not yet run."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ObjectiveError(f"{path} cannot be imported as Python")
    return spec, importlib.util.module_from_spec(spec)
