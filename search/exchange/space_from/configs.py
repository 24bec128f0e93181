"""The numbers in a YAML or JSON configuration file, by their dotted names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ....spaces import SpaceError
from ....spaces.document import join, read, text_of
from ....spaces.stopping import snake
from ...errors import UsageError
from .fields import Setting, Settings
from .metric import Metric, metric_of
from .per_trial import trial_value
from .scripts import settings_of_script, tree_of
from .syntax import constant, is_number, name_of, nodes_of

DEFAULT_SCRIPT = "train.py"
USUAL_OPTION = "--config"
OF_A_FILE = re.compile(r"(config|cfg|conf)(_?(file|path|filename|yaml|json))?")  # the name of such an option
WITH_THE_USUAL = {"LightningCLI", "TrlParser"}  # have that option of their own


def settings_of_config(path: Path) -> Settings:
    """The numbers in a configuration file.

    Raises `SpaceError` with the places of what is wrong in it, and `UsageError` where it is not a mapping.
    """
    data = mapping_of(path)
    beside = [path.with_suffix(".py"), path.with_name(DEFAULT_SCRIPT)]
    script = next((str(each) for each in beside if each.is_file()), None)
    settings = list(settings_in(data))
    values = {each.parameter: trial_value(each) for each in settings if each.parameter}
    per_trial = {name: value for name, value in values.items() if value and "}" not in value}
    numbers = [each for each in settings if each.parameter not in per_trial and has_numbers(each.value)]
    into_file = "".join(f" {name}={value}" for name, value in per_trial.items())
    metric, option, unsure = Metric(), [USUAL_OPTION], ""
    if script is not None:
        with suppress(UsageError):  # it may be written in another language
            metric = metric_of(tree_of(Path(script)))
        if (shown := _option_of(Path(script))) is None:
            unsure = f" {script} does not show how it takes the file: check {USUAL_OPTION}, a guess."
        else:
            option = shown
    return Settings(
        source=path,
        parameters=[setting for setting in numbers if setting.unfit is None],
        command=["python", script or DEFAULT_SCRIPT, *option, f"${{config:{path}{into_file}}}"],
        how=f"The script reads a copy of {path.name} with these values; the rest stays as it is.{unsure}",
        left_out={setting.name: setting.unfit for setting in numbers if setting.unfit is not None},
        to_fill=() if script else (DEFAULT_SCRIPT,),
        per_trial=per_trial,
        metric=metric,
    )


def _option_of(script: Path) -> list[str] | None:
    """The option by which a script takes its file, none for its first argument; None where that is unseen."""
    try:
        tree = tree_of(script)
    except UsageError:
        return None
    texts = [each.value for each in nodes_of(tree, ast.Constant) if isinstance(each.value, str)]
    names = [each for each in texts if each.startswith("--")]
    with suppress(UsageError):  # of fields and of the arguments of functions
        settings = settings_of_script(script)
        names += [*(each.name for each in settings.parameters), *settings.left_out]
    named = [each for each in names if OF_A_FILE.fullmatch(snake(each.lstrip("-").replace("-", "_")))]
    if named:
        return [named[0]] if named[0].startswith("-") else []
    if WITH_THE_USUAL & set(map(name_of, ast.walk(tree))):
        return [USUAL_OPTION]
    of_argv = (each for each in nodes_of(tree, ast.Subscript) if name_of(each.value) == "argv")
    return [] if any(constant(each.slice) == 1 for each in of_argv) else None


def mapping_of(path: Path) -> dict[str, Any]:
    """A configuration's names with their values. Raises as `settings_of_config`."""
    try:
        text = text_of(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: byte {error.start} cannot be read") from error
    data, _, faults = read(text, str(path))
    if faults:
        raise SpaceError(faults)
    if not isinstance(data, dict):
        raise UsageError(f"{path} is not a configuration: it has no names with values")
    return data


def has_numbers(value: Any) -> bool:
    """Whether it is a number, or holds one."""
    if isinstance(value, dict | list):
        return any(map(has_numbers, value.values() if isinstance(value, dict) else value))
    return is_number(value)


def settings_in(data: dict[str, Any], path: str = "", *, plain: bool = True) -> Iterator[Setting]:
    """Every number and text in a mapping; `plain`: whether its dotted name has no other characters."""
    for key, value in data.items():
        name, is_plain = join(path, key), plain and key.isidentifier()
        parameter = name if is_plain else ""
        if isinstance(value, dict):
            yield from settings_in(value, name, plain=is_plain)
        elif isinstance(value, str) or has_numbers(value):
            # Its name decides whether a number is whole: people write `dropout: 0` too.
            yield Setting(name, parameter, value, number=is_number(value))
