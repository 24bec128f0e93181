"""The numbers in a YAML or JSON configuration file, by their dotted names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ....spaces import SpaceError
from ....spaces.document import join, read, text_of
from ...errors import UsageError
from .fields import Setting, Settings
from .metric import Metric, metric_of
from .per_trial import trial_value
from .scripts import tree_of
from .syntax import is_number

DEFAULT_SCRIPT = "train.py"


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
    metric = Metric()
    if script is not None:
        with suppress(UsageError):  # it may be written in another language
            metric = metric_of(tree_of(Path(script)))
    return Settings(
        source=path,
        parameters=[setting for setting in numbers if setting.unfit is None],
        command=["python", script or DEFAULT_SCRIPT, "--config", f"${{config:{path}{into_file}}}"],
        how=f"The script reads a copy of {path.name} with these values; the rest stays as it is.",
        left_out={setting.name: setting.unfit for setting in numbers if setting.unfit is not None},
        to_fill=() if script else (DEFAULT_SCRIPT,),
        per_trial=per_trial,
        metric=metric,
    )


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
