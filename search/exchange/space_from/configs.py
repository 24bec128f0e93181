"""The numbers in a YAML or JSON configuration file, by their dotted names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ....spaces import SpaceError
from ....spaces.document import join, read, text_of
from ...errors import UsageError
from .fields import Setting, Settings
from .own import value_of_its_own
from .scripts import tree_of
from .shown import Shown, shown_by

DEFAULT_SCRIPT = "train.py"


def settings_of_config(path: Path) -> Settings:
    """The numbers in a configuration file.

    Raises `SpaceError` with the places of what is wrong in it, and `UsageError` where it is not a mapping.
    """
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
    beside = [path.with_suffix(".py"), path.with_name(DEFAULT_SCRIPT)]
    script = next((str(each) for each in beside if each.is_file()), None)
    settings = list(_settings(data, ""))
    of_trials = {
        each.parameter: own
        for each in settings
        if each.parameter and (own := value_of_its_own(each)) is not None and "}" not in own
    }
    numbers = [each for each in settings if each.parameter not in of_trials and _has_numbers(each.value)]
    into_file = "".join(f" {name}={own}" for name, own in of_trials.items())
    return Settings(
        source=path,
        found=[setting for setting in numbers if setting.unfit is None],
        command=["python", script or DEFAULT_SCRIPT, "--config", f"${{config:{path}{into_file}}}"],
        how=f"The script reads a copy of {path.name} with these values; the rest stays as it is.",
        left_out={setting.name: setting.unfit for setting in numbers if setting.unfit is not None},
        to_fill=() if script else (DEFAULT_SCRIPT,),
        own=of_trials,
        shown=_shown(script),
    )


def _shown(script: str | None) -> Shown:
    """The metric of the script beside the file; the default where there is no readable script."""
    if script is None:
        return Shown()
    try:
        return shown_by(tree_of(Path(script)))
    except UsageError:
        return Shown()  # the script may be written in another language


def _has_numbers(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_numbers, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def _settings(data: dict[str, Any], path: str, *, plain: bool = True) -> Iterator[Setting]:
    """Every number and text in a mapping; `plain`: whether its dotted name has no other characters."""
    for key, value in data.items():
        name, is_plain = join(path, key), plain and key.isidentifier()
        parameter = name if is_plain else ""
        if isinstance(value, dict):
            yield from _settings(value, name, plain=is_plain)
        elif isinstance(value, str) or (isinstance(value, list) and _has_numbers(value)):
            yield Setting(name, parameter, value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            # Its name decides whether it is whole: people write `dropout: 0` too.
            yield Setting(name, parameter, value, number=True)
