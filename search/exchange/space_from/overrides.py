"""The settings of a script of Hydra or OmegaConf, which takes overrides: `optimizer.lr=0.1`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import UsageError
from .configs import has_numbers, mapping_of, settings_in
from .declared import Declared, Style
from .fields import Setting, Settings
from .metric import metric_of
from .per_trial import as_word, option_use, trial_value
from .scripts import tree_of
from .syntax import keywords, name_of, nodes_of, root_of

CONFIG = ".yaml"
OF_HYDRA = ("hydra", "defaults")  # keys of a configuration that are Hydra's own
GLOBAL = "# @package _global_"  # begins a file whose keys stand at the top


def settings_of_overrides(path: Path) -> Settings | None:
    """The settings of a script that takes overrides; None if it takes none.

    Raises `UsageError` where the script does not show what can be overridden.
    """
    tree = tree_of(path)
    declared = Declared(tree)
    main = next((each for each in nodes_of(tree, ast.FunctionDef) if _hydra_main(each)), None)
    if main is not None:
        found, where = _of_hydra(path, main, declared)
        per_run = {"hydra.run.dir": "$run/hydra"}  # by default a folder of this second
    elif any(name_of(each) == "from_cli" for each in nodes_of(tree, ast.Call)):
        found, where = _of_omegaconf(path, tree, declared)
        per_run = {}
    else:
        return None
    settings = list({each.parameter: each for each in found if each.parameter}.values())
    use = option_use(tree)
    per_trial = {each.name: value for each in settings if (value := trial_value(each, use))} | per_run
    numbers = [
        each for each in settings if each.name not in per_trial and (each.choices or has_numbers(each.value))
    ]
    return Settings(
        source=path,
        parameters=[each for each in numbers if each.unfit is None],
        command=[
            "python",
            str(path),
            "${args_hydra}",
            *(f"{name}={as_word(value)}" for name, value in per_trial.items()),
        ],
        how=f"Each trial runs {path.name} with these values in place of those in {where}; others stay.",
        left_out=declared.left_out | {each.name: why for each in numbers if (why := each.unfit) is not None},
        per_trial=per_trial,
        metric=metric_of(tree),
    )


def _hydra_main(node: ast.FunctionDef) -> ast.Call | None:
    """The `@hydra.main(...)` over a function."""
    calls = (each for each in node.decorator_list if isinstance(each, ast.Call))
    return next((each for each in calls if name_of(each) == "main" and root_of(each.func) == "hydra"), None)


def _of_hydra(path: Path, main: ast.FunctionDef, declared: Declared) -> tuple[list[Setting], str]:
    call = _hydra_main(main)
    given = keywords(call) if call is not None else {}
    folder, name = (declared.literal(given.get(key)) for key in ("config_path", "config_name"))
    stored = _stored(declared, name)
    if stored is not None:
        return _of_class(stored, declared), stored.name
    file = path.parent / str(folder or ".") / f"{str(name).removesuffix(CONFIG)}{CONFIG}"
    if not isinstance(name, str) or not file.is_file():
        shown = f"{file} is not there" if isinstance(name, str) else "its @hydra.main names none"
        raise UsageError(
            f"{path}: the configuration of a Hydra application is read with it, but {shown}; write a space "
            f'by hand with objective: {{command: [python, {path}, "${{args_hydra}}"]}}'
        )
    return list(_of_files(file)), str(file)


def _of_files(file: Path) -> Iterator[Setting]:
    """The settings of a configuration and of the files that its defaults choose."""
    data = mapping_of(file)
    defaults = data.get("defaults")
    for entry in defaults if isinstance(defaults, list) else []:
        for key, value in entry.items() if isinstance(entry, dict) else ():
            chosen = file.parent / str(key) / f"{value}{CONFIG}"
            if " " in str(key) or "@" in str(key) or "/" in str(key) or not chosen.is_file():
                continue  # overrides of Hydra's own groups, and packages of other names
            inner = mapping_of(chosen)
            at_top = chosen.read_text(encoding="utf-8").lstrip().startswith(GLOBAL)
            yield from settings_in(inner if at_top else {key: inner})
    yield from settings_in({key: value for key, value in data.items() if key not in OF_HYDRA})


def _stored(declared: Declared, name: Any) -> ast.ClassDef | None:
    """The dataclass that a ConfigStore holds under the name of the configuration."""
    for call in nodes_of(declared.tree, ast.Call):
        given = keywords(call)
        if name_of(call) == "store" and "node" in given and declared.literal(given.get("name")) == name:
            return declared.classes.get(str(name_of(given["node"])))
    return None


def _of_class(node: ast.ClassDef, declared: Declared) -> list[Setting]:
    """The fields of a dataclass by their dotted names, without the dashes of options."""
    fields = declared.settings(node, Style(lists="json"))
    return [replace(each, name=each.parameter, words=(), form="") for each in fields]


def _of_omegaconf(path: Path, tree: ast.Module, declared: Declared) -> tuple[list[Setting], str]:
    for call in nodes_of(tree, ast.Call):
        given = declared.resolved(call.args[0]) if call.args else None
        if root_of(call.func) not in ("OmegaConf", "omegaconf", "oc"):
            continue
        if name_of(call) == "structured" and (node := declared.classes.get(str(name_of(given)))) is not None:
            return _of_class(node, declared), node.name
        value = declared.literal(given)
        if name_of(call) == "create" and isinstance(value, dict):
            return list(settings_in(value)), "its own configuration"
        if name_of(call) == "load" and isinstance(value, str):
            file = path.parent / value if (path.parent / value).is_file() else Path(value)
            if file.is_file():
                return list(settings_in(mapping_of(file))), str(file)
    raise UsageError(
        f"{path}: it takes overrides by OmegaConf.from_cli, but its configuration is neither a file, nor a "
        "dataclass or mapping that is written in it; write a space by hand with "
        f'objective: {{command: [python, {path}, "${{args_hydra}}"]}}'
    )
