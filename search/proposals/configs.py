"""The numbers of a YAML or JSON configuration file, by their dotted names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...spaces import SpaceError
from ...spaces.document import join, read, text_of
from ..errors import UsageError
from .fields import Setting, Settings

SCRIPT = "train.py"


def settings_of_config(path: Path) -> Settings:
    """The numbers of a configuration file.

    Raises `SpaceError` with the places of what is wrong in it, and `UsageError` where it is no mapping.
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
        raise UsageError(f"{path} is no configuration: it holds no names with values")
    beside = [path.with_suffix(".py"), path.with_name(SCRIPT)]
    script = next((str(each) for each in beside if each.is_file()), None)
    settings = list(_numbers(data, ""))
    return Settings(
        source=path,
        found=[setting for setting in settings if setting.unfit is None],
        command=["python", script or SCRIPT, "--config", f"${{config:{path}}}"],
        how=f"The script reads a copy of {path.name} with these values in it; the rest is as it is there.",
        left_out={setting.name: setting.unfit for setting in settings if setting.unfit is not None},
        to_fill=() if script else (SCRIPT,),
    )


def _has_numbers(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_numbers, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numbers(data: dict[str, Any], path: str, *, plain: bool = True) -> Iterator[Setting]:
    """Every number in a mapping; `plain` where a dotted name leads to it, by no key of other characters."""
    for key, value in data.items():
        name, is_plain = join(path, key), plain and key.isidentifier()
        if isinstance(value, dict):
            yield from _numbers(value, name, plain=is_plain)
        elif isinstance(value, list) and _has_numbers(value):
            yield Setting(name, name if is_plain else "", value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            parameter = name if is_plain else ""
            # Whole or not goes by its name: people write `dropout: 0` too.
            yield Setting(name, parameter, value, number=True)
