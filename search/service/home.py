"""The folder of a server: its tokens, its settings, and how programs of the same user find it."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

import psutil
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ...spaces.errors import hint
from ...spaces.settings import MOST_PRICE
from ...storage.locks import locked
from ..errors import SearchError, UsageError, why

SOCKET_PATH = 100  # bytes: the system allows 104 on macOS, 108 on Linux
PRIVATE = 0o600
ROOM = 1 << 20  # free bytes, below which a disk counts as full: a driver could not even begin


@dataclass(frozen=True)
class Home:
    """A folder that only its user reads; made where it is missing."""

    folder: Path

    @classmethod
    def at(cls, folder: str | Path | None = None) -> Self:
        """The home in a folder, else in $HPSEARCH_HOME, else in ~/.local/state/hpsearch.

        Raises `SearchError` where it cannot be made, or others may write in it.
        """
        named, path = folder or os.environ.get("HPSEARCH_HOME"), _place(folder)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = path.stat()
            if found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) != 0o700 and named is None:
                path.chmod(0o700)
                found = path.stat()
        except OSError as error:
            raise SearchError(f"cannot make the server's folder: {why(error)}", code="home") from error
        refuse_others(path, found)
        return cls(path)

    @classmethod
    def known(cls) -> Self | None:
        """The home that `at` finds without a folder; None where it was never made."""
        return cls.at() if _place().is_dir() else None

    @property
    def server(self) -> str:
        """What the server of this home is called in the studies that it has."""
        file = self.folder / "server-id"
        with suppress(FileExistsError, OSError), file.open("x", encoding="utf-8") as stream:
            stream.write(secrets.token_hex(8))
        try:
            return file.read_text(encoding="utf-8").strip() or "server"
        except OSError as error:
            raise SearchError(f"cannot read {file}: {why(error)}", code="home") from error

    @property
    def drained(self) -> Path:
        """A file that is there while the server is drained."""
        return self.folder / "drained"

    @property
    def is_drained(self) -> bool:
        """Whether the server starts nothing: it was drained since the machine has started."""
        try:
            return bool(self.drained.stat().st_mtime >= psutil.boot_time())
        except OSError:
            return False

    @property
    def tokens(self) -> Path:
        """The tokens that were created, as hashes."""
        return self.folder / "tokens.jsonl"

    @property
    def bundles(self) -> Path:
        """The folder of submitted code."""
        return self.folder / "bundles"

    @property
    def log(self) -> Path:
        """The access log of a server."""
        return self.folder / "access.log"

    @property
    def settings_file(self) -> Path:
        """Where its user writes the settings of the server."""
        return self.folder / "serve.yaml"

    def settings(self) -> Settings:
        """What serve.yaml says. Raises `UsageError` for what no setting can be."""
        return Settings.read(self.settings_file)

    def socket(self, name: str) -> Path:
        """The place of a Unix socket. Raises `SearchError` where the system allows no path as long."""
        path = self.folder / name
        if len(os.fsencode(path)) > SOCKET_PATH:
            raise SearchError(
                f"{path} is too long for a socket ({SOCKET_PATH} bytes): set HPSEARCH_HOME to a shorter one",
                code="home",
            )
        return path

    def write(self, path: Path, text: str) -> None:
        """Write a file of this folder at once, so that no reader sees half of it and no other user any."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with suppress(FileNotFoundError):
                temporary.unlink()
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
            with open(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(descriptor)
            temporary.replace(path)
        except OSError as error:
            raise SearchError(f"cannot write {path}: {why(error)}", code="home") from error

    @contextmanager
    def locked(self, name: str) -> Iterator[bool]:
        """Hold the lock of this name until the block ends; False where another process holds it."""
        try:
            descriptor = os.open(self.folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        except OSError as error:
            raise SearchError(f"cannot lock {self.folder}: {why(error)}", code="home") from error
        try:
            yield locked(descriptor)
        finally:
            os.close(descriptor)

    def link_file(self, port: int | str) -> Path:
        """The file by which programs of the same user find the server at a port."""
        return self.folder / f"serve-{port}.json"

    def links(self) -> list[dict[str, Any]]:
        """The servers that this folder knows, whose processes live, the newest first."""
        found = []
        for file in self.folder.glob("serve-*.json"):
            with suppress(OSError, ValueError, KeyError, TypeError):
                link = json.loads(file.read_text())
                os.kill(link["pid"], 0)
                found.append((file.stat().st_mtime, link))
        return [link for _, link in sorted(found, key=lambda each: -each[0])]


def full_disk(*folders: Path) -> Path | None:
    """The first of these folders whose disk has no room; None where all have some, as far as is known."""
    for folder in folders:
        with suppress(OSError):
            if shutil.disk_usage(folder).free < ROOM:
                return folder
    return None


def _place(folder: str | Path | None = None) -> Path:
    """Where the home is."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    named = folder or os.environ.get("HPSEARCH_HOME") or f"{state}/hpsearch"
    return Path(named).expanduser().absolute()


def refuse_others(path: Path, found: os.stat_result) -> None:
    """Raise `SearchError` where another user owns a file or folder, or may write to it."""
    if found.st_uid not in (os.getuid(), 0):
        raise SearchError(f"{path} belongs to another user (uid {found.st_uid})", code="home")
    if found.st_mode & 0o022:
        raise SearchError(
            f"other users may write to {path}: chmod go-w {path}, or name another place by HPSEARCH_HOME",
            code="home",
        )


@dataclass(frozen=True)
class Settings:
    """The settings of a server, which its owner writes in serve.yaml or gives as options."""

    roots: tuple[Path, ...] = ()  # folders whose files submitted spaces may name
    lanes: int = 1  # studies that share the machine evenly
    settle: float | None = None  # seconds that a study runs at least before it makes room for another
    price_per_hour: float | None = None  # of a GPU, or of the machine without: for studies that say none
    ray_studies: int | None = None  # studies on Ray clusters at the same time, beside those of the machine
    allow_hosts: tuple[str, ...] = ()  # names by which it is reached besides loopback
    allow_origins: tuple[str, ...] = ()  # other pages that may call it
    behind_proxy: str | None = None  # the address of the proxy that ends TLS
    base_path: str = ""  # where a proxy has it: /hpsearch
    notify: tuple[str, ...] = field(default=(), repr=False)  # URLs of those who are told: secrets, perhaps

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value that could never match, as a host with its port."""
        for host in self.allow_hosts:
            if not re.fullmatch(r"[A-Za-z0-9._-]+|\[?[0-9A-Fa-f:.]+\]?", host) or re.search(
                r"^[^:]+:\d+$", host
            ):
                raise _no_setting("allow_hosts", host, "names or addresses, without a scheme or a port")
        for origin in self.allow_origins:
            if not re.fullmatch(r"https?://[A-Za-z0-9.\[\]:_-]+", origin):
                raise _no_setting("allow_origins", origin, "websites as https://name, without a path")
        if self.base_path and not re.fullmatch(r"(/[\w.~-]+)+", self.base_path):
            raise _no_setting("base_path", self.base_path, "a path such as /hpsearch")
        if self.behind_proxy not in (None, "socket"):
            try:
                ip_address(str(self.behind_proxy))
            except ValueError:
                told = (
                    "the address from which the proxy comes, such as 127.0.0.1 (socket: over a Unix socket)"
                )
                raise _no_setting("behind_proxy", str(self.behind_proxy), told) from None

    @classmethod
    def read(cls, file: Path) -> Self:
        """The settings of a file; the defaults where there is none."""
        try:
            content = YAML(typ="safe").load(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls()
        except (OSError, UnicodeDecodeError, YAMLError) as error:
            raise UsageError(f"cannot read {file}: {error}", code="settings") from error
        if not isinstance(content, Mapping | None):
            raise UsageError(f"{file}: needs names and values, such as roots: [~/data]", code="settings")
        return cls(**{name: _setting(file, name, value) for name, value in (content or {}).items()})


def _no_setting(name: str, value: str, needs: str) -> UsageError:
    return UsageError(f"the setting {name} needs {needs}; not {value!r}", code="settings")


def _setting(file: Path, name: Any, value: Any) -> Any:
    """A setting as it is kept. Raises `UsageError` that says what is allowed."""
    kinds = {each.name: each.type for each in fields(Settings)}
    if name not in kinds:
        raise UsageError(f'{file}: unknown setting "{name}"; {hint(str(name), kinds)}', code="settings")
    if str(kinds[name]).startswith("tuple"):
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            found = "something else" if name == "notify" else repr(value)
            raise UsageError(f"{file}: {name} needs a list of texts, not {found}", code="settings")
        if name == "roots":
            return tuple((file.parent / Path(each).expanduser()).resolve() for each in values)
        return tuple(values)
    if name in ("lanes", "ray_studies"):
        least = 1 if name == "lanes" else 0
        if type(value) is not int or value < least:
            raise UsageError(f"{file}: {name} needs a number from {least}, not {value!r}", code="settings")
    elif name == "settle":
        if type(value) not in (int, float) or not 0 <= value < float("inf"):
            raise UsageError(f"{file}: settle needs a number of seconds, not {value!r}", code="settings")
    elif name == "price_per_hour":
        if type(value) not in (int, float) or not 0 < value <= MOST_PRICE:
            told = f"{name} needs an amount above 0, and at most {MOST_PRICE:,.0f}"
            raise UsageError(f"{file}: {told}, not {value!r:.60}", code="settings")
    elif not isinstance(value, str):
        raise UsageError(f"{file}: {name} needs a text, not {value!r}", code="settings")
    return value
