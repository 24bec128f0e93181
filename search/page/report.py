"""The page in one document that needs no server: its modules, and the answers of the routes that it shows."""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Mapping
from datetime import datetime
from string import Template
from typing import Any

from .files import FOLDER, files, hash_of, modules


def report_html(answers: Mapping[str, Any], *, title: str, at: datetime, first: str) -> str:
    """The document: it opens from a disk, and asks nobody for anything.

    `answers` are by the paths of routes after `v1/`, as data or, of a route that answers with text, as text.
    `first` is the address, after `#/`, of the screen that it opens with.
    """
    known = files()
    imports = {name: _address(path) for name, path in modules().items()}
    frozen = {"answers": dict(answers), "at": at.isoformat(timespec="seconds"), "first": first}
    styles = [path for path in known if path.endswith(".css")]
    # The libraries' before our own, which change them.
    styles.sort(key=lambda path: (not path.startswith("vendor/"), path != "page.css", path))
    inline = {
        "styles": "\n".join(known[path].content.decode() for path in styles),
        "import_map": _inside_script({"imports": imports}),
        "start": 'import "hpsearch/app.js";',
    }
    return Template((FOLDER / "report.html").read_text("utf-8")).substitute(
        inline,
        **{f"{name}_hash": hash_of(text) for name, text in inline.items()},
        title=html.escape(title),
        icon=_address("icon.svg"),
        frozen=_packed(frozen),
    )


def _address(path: str) -> str:
    """A file as an address that holds it."""
    file = files()[path]
    kind = file.media_type.replace(" ", "")
    return f"data:{kind};base64,{base64.b64encode(file.content).decode()}"


def _packed(content: Any) -> str:
    """JSON as gzip in base64: a third of its size, in which no text of a study can end a script element."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _inside_script(content: Any) -> str:
    """JSON that ends no script element, whatever its texts are."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
