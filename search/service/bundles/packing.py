"""Packs a folder of code into a zip: the same files make the same bytes."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import SearchError, UsageError, why
from . import MOST_BYTES, MOST_FILES, MOST_ZIPPED
from .ignored import RUBBISH, SECRETS, Ignored

IGNORE_FILE = ".hpsearchignore"
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can tell
NO_CODE = ("pyvenv.cfg", "server-id", "tokens.jsonl")  # files of a Python's folder, and of a server's own
MOST_NAMED = 5  # files in a message


@dataclass(frozen=True)
class Bundle:
    """A folder of code, packed."""

    sha256: str
    content: bytes
    files: tuple[str, ...]  # their names in it
    left_out: tuple[str, ...]  # files beside them that git does not track


def pack(folder: str | Path, needed: Sequence[str | Path] = ()) -> Bundle:
    """Pack what git tracks in a folder, else all of it but the usual rubbish, without what is ignored.

    `.hpsearchignore` names more to leave out, by the rules of `.gitignore`. `needed` are files that go along
    in any case. Raises `SearchError` where the folder is none of code: too large, or somebody's home.
    """
    root = Path(os.path.abspath(folder))
    _refuse_home(root)
    left_out: list[str] = []
    tracked = _tracked(root)
    ignored = Ignored(_lines(root / IGNORE_FILE))
    if tracked is None:
        names = list(_walked(root, Ignored((*RUBBISH, *SECRETS)), ignored))
    else:
        names, left_out = tracked
        names = [name for name in names if name not in ignored]
        left_out = [name for name in left_out if name not in ignored]
    always = {_inside(root, Path(path)) for path in needed}
    chosen = sorted(name for name in {*names, *always} if _is_sent(root, name))
    _check_size(root, chosen)
    content = _zipped(root, chosen)
    if len(content) > MOST_ZIPPED:
        raise _too_large(root, chosen, f"{len(content) / 2**20:.0f} MiB packed, at most {MOST_ZIPPED >> 20}")
    left = tuple(name for name in left_out if name not in always)
    return Bundle(hashlib.sha256(content).hexdigest(), content, tuple(chosen), left)


def _refuse_home(root: Path) -> None:
    if not root.is_dir():
        raise UsageError(f"{root} is no folder", code="bundle")
    homes = {Path.home().resolve(), Path("/"), Path("/tmp"), Path("/home"), Path("/root")}
    if root.resolve() in homes:
        raise UsageError(
            f"{root} is no folder of code alone, and all of it would be sent to the server; put the space "
            "and its code into a folder of their own",
            code="bundle",
        )


def _tracked(root: Path) -> tuple[list[str], list[str]] | None:
    """What git tracks below a folder, and what is new to it; None where git does not know the folder."""
    tracked = _git(root, "--cached", "--recurse-submodules")
    if not tracked:
        return None
    return tracked, _git(root, "--others", "--exclude-standard") or []


def _git(root: Path, *options: str) -> list[str] | None:
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(root), "ls-files", "-z", *options]
    try:
        listed = subprocess.run(command, capture_output=True, env=surroundings, check=False)
    except OSError:  # there is no git here
        return None
    return None if listed.returncode else [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        reason = why(error) if isinstance(error, OSError) else "it is no UTF-8"
        raise UsageError(f"cannot read {path}: {reason}", code="bundle") from None


def _walked(root: Path, rubbish: Ignored, ignored: Ignored) -> Iterator[str]:
    """The files of a folder that git does not know. One that is too large ends early, as it is refused."""
    found = 0
    for here, folders, files in os.walk(root):
        inside = Path(here).relative_to(root).as_posix()
        prefix = "" if inside == "." else f"{inside}/"
        folders[:] = sorted(
            name
            for name in folders
            if not any(each.leaves_out(prefix + name, is_folder=True) for each in (rubbish, ignored))
            and not any(Path(here, name, mark).exists() for mark in NO_CODE)
        )
        for name in sorted(files):
            if not (rubbish.leaves_out(prefix + name) or ignored.leaves_out(prefix + name)):
                found += 1
                yield prefix + name
        if found > 2 * MOST_FILES:
            return


def _inside(root: Path, path: Path) -> str:
    """The name in a bundle of a file that has to be in it."""
    try:
        return Path(os.path.abspath(root / path)).relative_to(root).as_posix()
    except ValueError:
        raise UsageError(
            f"{path} lies outside of {root}, which is what the server gets; put it beside the space",
            code="bundle",
        ) from None


def _is_sent(root: Path, name: str) -> bool:
    """Whether a name is a file; a link counts as what it leads to, where that lies in the folder too."""
    path = root / name
    if not path.is_file():
        return False
    return not path.is_symlink() or path.resolve().is_relative_to(root.resolve())


def _check_size(root: Path, names: Sequence[str]) -> None:
    if not names:
        raise UsageError(f"{root} holds no file to send", code="bundle")
    if len(names) > MOST_FILES:
        raise _too_large(root, names, f"{len(names):,} files, at most {MOST_FILES:,}")
    total = sum((root / name).stat().st_size for name in names)
    if total > MOST_BYTES:
        raise _too_large(root, names, f"{total / 2**20:,.0f} MiB, at most {MOST_BYTES >> 20}")


def _too_large(root: Path, names: Iterable[str], found: str) -> UsageError:
    sizes: Counter[str] = Counter()
    for name in names:
        sizes[name.split("/")[0]] += (root / name).stat().st_size
    most = ", ".join(f"{name} ({size / 2**20:.1f} MiB)" for name, size in sizes.most_common(MOST_NAMED))
    return UsageError(
        f"{root} is too large to be sent: {found}. Most of it: {most}. Name what is no code in {IGNORE_FILE}"
        ", or put data where the server's own folders are",
        code="bundle-too-large",
    )


def _zipped(root: Path, names: Sequence[str]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as packed:
        for name in names:
            path = root / name
            if not name.isprintable() or "\\" in name:
                raise UsageError(
                    f"{name!a} has a character in its name that no bundle may have; rename it, or name it "
                    f"in {IGNORE_FILE}",
                    code="bundle",
                )
            entry = zipfile.ZipInfo(name, LONG_AGO)
            entry.create_system, entry.compress_type = 3, zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if os.access(path, os.X_OK) else 0o100644) << 16
            try:
                packed.writestr(entry, path.read_bytes())
            except OSError as error:
                raise SearchError(f"cannot read {why(error)}", code="bundle") from error
    return stream.getvalue()
