"""Where the files of a command are: its program, script, module and configuration files.

A space file names them relative to its own folder. A file that is not there is looked up in the current
folder, in which the program runs.
"""

from __future__ import annotations

import difflib
import filecmp
import importlib.util
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path, PurePath

from .config_file import CONFIG_MACRO
from .shell import shell_string

# Programs that run the script which is their first word with such a suffix.
RUNNER = re.compile(
    r"python[\d.]*|pypy[\d.]*|\$\{interpreter\}|(ba|da|z|k|a)?sh|Rscript|julia|node|deno|bun|perl|ruby|php|lua"
    r"|octave|torchrun|accelerate|deepspeed|horovodrun|mpirun|mpiexec|composer|uv|poetry|pixi|pdm|hatch|ipython"
)
SCRIPT = re.compile(r".+\.(py|sh|bash|zsh|r|jl|js|mjs|ts|pl|rb|php|lua|m)", re.IGNORECASE)
# These run the rest of the command elsewhere, where other files are.
ELSEWHERE = {"docker", "podman", "apptainer", "singularity", "ssh", "kubectl", "srun", "nerdctl", "enroot"}
PYTHONS = ("python", "python3", "${interpreter}")  # run by the Python of the search
MOST_NEAR = 3  # names that a message proposes


def placed(name: str, folder: str | None) -> Path:
    """The path of a file: in `folder` if it is there, else as named, in the current folder.

    A path as named is also what both folders share.
    """
    path = Path(name).expanduser()
    if folder is None or path.is_absolute():
        return path
    beside = Path(folder, path)
    with suppress(OSError, ValueError):
        if beside.exists() and not (path.exists() and path.samefile(beside)):
            return beside
    return path


def program_words(command: Sequence[str], folder: str) -> dict[int, str]:
    """The program and script of a command that are in `folder`: their places, and their paths there."""
    found: dict[int, str] = {}
    for place in _files(command):
        path = placed(command[place], folder)
        if path != Path(command[place]).expanduser():
            found[place] = str(path)
    return found


def in_both(command: Sequence[str], folder: str | None) -> Iterator[tuple[int, str]]:
    """The words of files that are in both folders with other contents, each with a sentence."""
    for place, name in [(place, command[place]) for place in _files(command)] + list(_configs(command)):
        here, there = Path(name).expanduser(), placed(name, folder)
        with suppress(OSError):
            if here != there and here.is_file() and not filecmp.cmp(here, there, shallow=False):
                told = f"there are two files {name}: {there}, which is used, and another one in {Path.cwd()}"
                yield place, told


def missing(command: Sequence[str], folder: str | None) -> Iterator[tuple[int, str]]:
    """The words of a command that name a program, script or module that does not exist, and why not."""
    if not command or "${" in command[0].replace("${interpreter}", "").replace("${env}", ""):
        return
    for place in _files(command):
        if not _exists(placed(command[place], folder)):
            yield place, _no_file(command[place], folder)
    program = command[0]
    if program not in PYTHONS and "/" not in program and program != "${env}" and not shutil.which(program):
        near = near_file(program, folder, program=True)
        yield 0, f'there is no program "{program}" on the PATH{near}'
    if (at := _module(command)) is not None:
        name = command[at]
        if (problem := _missing_module(name)) is not None:
            there = folder is not None and Path(folder, *name.split(".")).with_suffix(".py").is_file()
            hint = f"; it is in {folder}: start the search there, or write {name.replace('.', '/')}.py"
            yield at, problem + hint * there


def missing_file(name: str, folder: str | None) -> str | None:
    """The message that a configuration file does not exist; None if it does."""
    return None if _exists(placed(name, folder)) else _no_file(name, folder)


def source_of(command: Sequence[str], folder: str | None) -> Path | None:
    """The source of the Python script that a command runs; None if it is not in reach."""
    string = shell_string(command)
    if string is not None:
        with suppress(ValueError):
            command = shlex.split(command[string])
    for place in _files(command):
        path = placed(command[place], folder)
        if path.suffix == ".py" and path.is_file():
            return path
    at = _module(command)
    spec = None if at is None else _module_spec(command[at])
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None


def _files(command: Sequence[str]) -> list[int]:
    """The places of a command's program and script that are paths."""
    if not command or shell_string(command) is not None:
        return []  # the shell looks for them, maybe in a folder that it enters
    places, runs = [], False
    for place, word in enumerate(command):
        name = PurePath(word).name
        if name in ELSEWHERE or (runs and word in ("-c", "-e")) or word == "-m":
            break
        if place == 0 and "/" in word and "${" not in word:
            places.append(0)
        if runs and not word.startswith("-") and "${" not in word and SCRIPT.fullmatch(word):
            return [*places, place]
        runs = runs or RUNNER.fullmatch(name) is not None
    return places


def _configs(command: Sequence[str]) -> Iterator[tuple[int, str]]:
    for place, word in enumerate(command):
        yield from ((place, macro["file"]) for macro in CONFIG_MACRO.finditer(word))


def _module(command: Sequence[str]) -> int | None:
    """The place of the module that the search's own Python runs."""
    if not command or command[0] not in PYTHONS:
        return None
    for place, word in enumerate(command[1:-1], start=1):
        if word == "-m":
            return place + 1 if "${" not in command[place + 1] else None
        if word == "-c" or not word.startswith("-"):
            return None
    return None


def _module_spec(name: str) -> ModuleSpec | None:
    """The spec of a module, found without importing it or the packages around it."""
    top, *inner = name.split(".")
    spec = None
    with suppress(ImportError, ValueError):
        spec = PathFinder.find_spec(top, [os.getcwd()]) or importlib.util.find_spec(top)
    for index in range(len(inner)):
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(".".join([top, *inner[: index + 1]]), spec.submodule_search_locations)
    return spec


def _missing_module(name: str) -> str | None:
    spec = _module_spec(name)
    if spec is None:
        top, *inner = name.split(".")
        if (outer := _module_spec(top)) is not None and inner:
            where = ", ".join(outer.submodule_search_locations or [str(outer.origin)])
            return f'there is no module "{name}": {top} is in {where}'
        names = [path.stem for path in Path.cwd().iterdir() if path.suffix == ".py" or path.is_dir()]
        near = difflib.get_close_matches(top, names, 1)
        hint = f', did you mean "{near[0]}"?' if near else ""
        return f'there is no module "{name}" in {Path.cwd()} or installed{hint}'
    if spec.submodule_search_locations is not None and _module_spec(f"{name}.__main__") is None:
        return f'"{name}" is a package without a __main__.py, which python -m runs'
    return None


def _exists(path: Path) -> bool:
    try:
        return path.is_file() or path.is_fifo()
    except (OSError, ValueError):
        return False


def _no_file(name: str, folder: str | None) -> str:
    here = Path.cwd()
    folders = dict.fromkeys([str(here)] if folder is None else [folder, str(here)])
    path = placed(name, folder)
    with suppress(OSError, ValueError):
        if path.is_dir():
            return f'"{name}" is a folder, not a file'
    where = str(path.parent) if Path(name).expanduser().is_absolute() else " or ".join(folders)
    return f'there is no file "{name}" in {where}{near_file(name, folder)}'


def near_file(name: str, folder: str | None, *, program: bool = False) -> str:
    """What was probably meant: a file with such a name, there or in a folder below, or a program."""
    path = Path(name).expanduser()
    names: dict[str, str] = {}
    for start in dict.fromkeys([folder or "", ""]):
        inside = Path(start or ".", "" if program else path.parent)
        with suppress(OSError):
            entries = sorted(os.scandir(inside), key=lambda entry: entry.name)[:1000]
            for entry in entries:
                shown = str(Path(path.parent, entry.name))
                if entry.is_file() and (not program or os.access(entry.path, os.X_OK)):
                    names.setdefault(entry.name, f"./{entry.name}" if program else shown)
                elif not program and entry.name[:1] != "." and Path(entry.path, path.name).is_file():
                    return f", did you mean {Path(path.parent, entry.name, path.name)}?"
    if program:
        for place in os.get_exec_path():
            with suppress(OSError):
                names |= {each: each for each in os.listdir(place) if each not in names}
    near = difflib.get_close_matches(path.name, names, MOST_NEAR, 0.6)
    near = [path.name] if path.name in near else near
    return f", did you mean {' or '.join(names[each] for each in near)}?" if near else ""
