"""Loads a space file, or a space that ships, into a checked spec."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from .dialects import bare
from .document import Places, file_in_words, read, text_of
from .errors import Issue, SpaceError, hint
from .fields import show
from .plain_data import plain_data
from .presets import Presets
from .spec import Spec


class Text(NamedTuple):
    """The text of a space that is in no file."""

    text: str
    file: str = "<space>"  # what it is called in messages
    folder: Path | None = None  # in which it names files


Source = str | Path | Text | Mapping[str, Any]
Options = Mapping[str, tuple[str, Any]]  # by path: an option, and its value or a function of the file's


def load(source: Source, presets: Presets | None = None, options: Options | None = None) -> Spec:
    """The spec of a file, or of a space that ships, by its name; raises `SpaceError` with every issue.

    The file `-` is standard input, and a mapping is what a file would hold. `presets` returns the values of a
    file's `preset:`. The values of `options` go over those of the file.
    """
    ships = shipped()
    if isinstance(source, Mapping):
        places = Places("<dict>")
        return _checked(plain_data(source, places), places, [], presets, options)
    if not isinstance(source, str | Path | Text):
        message = f"a space is a file, the name of one that ships ({', '.join(ships)}), a dict or a Spec"
        raise SpaceError([Issue("SPACE", 0, 0, "", f"{message}, not {show(source)}")])
    text, file, folder = source_text(source)
    return loads(text, file, presets, options).in_folder(folder)


def source_text(source: str | Path | Text) -> tuple[str, str, Path | None]:
    """The text of a space file or of one that ships, its name in messages and, of a file, its folder.

    Raises `SpaceError` where it cannot be read.
    """
    if isinstance(source, Text):
        return source
    path, ships = Path(source), shipped()
    if not str(source):
        message = f"name a space file, or one that ships: {', '.join(ships)}"
        raise SpaceError([Issue("SPACE", 0, 0, "", message)])
    if str(source) in ships and not path.is_file():  # a folder of that name belongs to a study
        return shipped_text(str(source)), f"{source}.yaml", None
    try:
        return text_of(path), file_in_words(source), path.parent
    except SpaceError:  # it has its message; it is a ValueError too
        raise
    except (OSError, ValueError) as error:
        why = _unreadable(source, error, ships)
        raise SpaceError([Issue(file_in_words(source), 0, 0, "", why)]) from None


def loads(
    text: str, filename: str = "<string>", presets: Presets | None = None, options: Options | None = None
) -> Spec:
    """The spec of a YAML text, as `load` makes it of a file; raises `SpaceError` with every issue."""
    data, places, faults = read(text, filename)
    if not isinstance(data, dict):
        message = f"a space file is a mapping (version: 1, name: ...), not {show(data)}"
        raise SpaceError([*faults, places.issue("", message)])
    return _checked(data, places, faults, presets, options)


def _checked(
    data: dict[str, Any],
    places: Places,
    faults: list[Issue],
    presets: Presets | None,
    options: Options | None,
) -> Spec:
    """The spec of data with faults found before; raises `SpaceError`."""
    if options and not bare(data, places):  # which is refused as it is
        _set(data, options, places)
    try:
        spec = Spec.check(data, places, presets)
    except SpaceError as error:
        reported = {(fault.line, fault.column) for fault in faults}  # no place is reported twice
        lacking = {parent for fault in faults if (parent := fault.path.rpartition(".")[0])}
        others = (
            issue
            for issue in error.issues
            if (issue.line, issue.column) not in reported and issue.path not in lacking
        )
        raise SpaceError([*faults, *others]) from None
    if faults:
        raise SpaceError(faults)
    return spec


def _set(data: dict[str, Any], options: Options, places: Places) -> None:
    """Put the values of options over those of a file."""
    for path, (option, value) in options.items():
        *sections, name = path.split(".")
        inside = data
        for section in sections:
            inside = data.setdefault(section, Spec.model_fields[section].default.model_dump(mode="json"))
        if isinstance(inside, dict):  # else the section's own mistake is reported
            new = value(inside.get(name)) if callable(value) else value
            if new is not inside.get(name):
                inside[name], places.options[path] = new, option


def shipped() -> list[str]:
    """The names of the spaces that ship."""
    names = (entry.name for entry in files(__package__).iterdir())
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def shipped_text(name: str) -> str:
    """The text of a space that ships."""
    return (files(__package__) / f"{name}.yaml").read_text(encoding="utf-8")


def _unreadable(source: str | Path, error: OSError | ValueError, ships: list[str]) -> str:
    """Why the file cannot be read."""
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: byte {error.start} cannot be read"
    if isinstance(error, FileNotFoundError):
        if "/" in str(source) or str(source).endswith((".yaml", ".yml")):
            return "no such file"
        return f"no such file, and no such space ships; {hint(str(source), ships)}"
    if isinstance(error, IsADirectoryError):
        return "a directory; name the file in it"
    return f"cannot be read: {getattr(error, 'strerror', None) or error}"
