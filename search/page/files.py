"""The files of the page, as a server sends them: plain modules that a browser reads as they are.

Modules import each other by the names of an import map, which stands in the document and is the only script
that is allowed there, by its hash. No address begins with a slash, so any prefix will do.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template

FOLDER = Path(__file__).parent
MEDIA = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
LIBRARIES = {  # what modules call them, and where they are
    "preact": "vendor/preact.js",
    "preact/hooks": "vendor/preact-hooks.js",
    "htm": "vendor/htm.js",
    "uplot": "vendor/uplot.js",
}


@dataclass(frozen=True)
class PageFile:
    """A file that the document loads."""

    content: bytes
    media_type: str


@dataclass(frozen=True)
class Document:
    """The document, and the hash of the script in it as a policy names it."""

    html: str
    script_hash: str


@cache
def files() -> dict[str, PageFile]:
    """The files by their paths."""
    return {
        path.relative_to(FOLDER).as_posix(): PageFile(path.read_bytes(), MEDIA[path.suffix])
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in MEDIA
    }


@cache
def version() -> str:
    """A name for the files as they are now: a path that has it may be kept for ever."""
    hashed = hashlib.sha256()
    for path, file in files().items():
        hashed.update(path.encode() + b"\0" + file.content)
    return hashed.hexdigest()[:12]


@cache
def modules() -> dict[str, str]:
    """The paths of the modules by the names under which they import each other."""
    own = {f"hpsearch/{path}": path for path in files() if path.endswith(".js") and "vendor/" not in path}
    return LIBRARIES | own


def hash_of(text: str) -> str:
    """What a policy calls a script or a style of this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def document() -> Document:
    """The document of the page."""
    static = f"./static/{version()}"
    imports = {name: f"{static}/{path}" for name, path in modules().items()}
    text = json.dumps({"imports": imports}, separators=(",", ":"))
    early = "\n".join(f'<link rel="modulepreload" href="{path}">' for path in imports.values())
    html = Template((FOLDER / "index.html").read_text()).substitute(
        static=static, import_map=text, preloads=early
    )
    return Document(html, hash_of(text))
