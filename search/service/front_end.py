"""The front end of optuna-dashboard at a path: as it ships, it works at the root of a website alone.

It is one script, whose addresses all come from a few texts. These are replaced once. Where one is not there
as often as it should be, this is another version, and nothing of it is served.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from ..errors import SearchError
from ..page.files import hash_of

SCRIPT: dict[str, tuple[str, int]] = {  # what becomes what, and how often it is there
    'url_prefix:"/dashboard"': ('url_prefix:"{at}/dashboard"', 1),  # its screens
    "this.baseURL=": ('this.baseURL="{at}"+', 1),  # what it fetches
    "`/csv/": ("`{at}/csv/", 2),
    "`/artifacts/": ("`{at}/artifacts/", 2),  # the other links to them take what `base_url` says
}
DOCUMENT: dict[str, tuple[str, int]] = {
    '<script defer src="/static/bundle.js">': (
        '<link rel="icon" href="{at}/favicon.ico">\n    <script defer src="{at}{script}" integrity="{hash}">',
        1,
    ),
}
POLICY = (
    "default-src 'none'; script-src {hash} 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; media-src 'self'; font-src 'self' data:; connect-src 'self'; "
    "worker-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True)
class FrontEnd:
    """What a browser loads before it asks for any study."""

    at: str  # the path where it is
    document: bytes
    policy: str
    script_path: str  # below `at`; another script has another
    script: bytes
    zipped: bytes

    def before(self, app: WSGIApplication) -> WSGIApplication:
        """Answer with these, and let the dashboard answer with the rest."""

        def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
            path = environ["PATH_INFO"]
            if path in ("", "/"):
                start("302 Found", [("Location", f"{self.at}/dashboard"), ("Content-Length", "0")])
                return []
            headers = {}
            if path == "/dashboard" or path.startswith("/dashboard/"):
                body, headers["Content-Type"] = self.document, "text/html; charset=utf-8"
                headers["Content-Security-Policy"] = self.policy
            elif path == self.script_path:
                body, headers["Content-Type"] = self.script, "text/javascript; charset=utf-8"
                headers["Cache-Control"] = "private, max-age=31536000, immutable"
                headers["Vary"] = "Accept-Encoding"
                if "gzip" in environ["HTTP_ACCEPT_ENCODING"]:
                    body, headers["Content-Encoding"] = self.zipped, "gzip"
            else:
                return app(environ, start)
            start("200 OK", [*headers.items(), ("Content-Length", str(len(body)))])
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

        return answer


def under(at: str) -> FrontEnd:
    """The front end for a path such as /optuna. Raises `SearchError` where this version is another."""
    text = _replaced("public/bundle.js", SCRIPT, at=at)
    script, named = text.encode(), hash_of(text)
    path = f"/static/{hashlib.sha256(script).hexdigest()[:12]}.js"
    document = _replaced("index.html", DOCUMENT, at=at, script=path, hash=named.strip("'"))
    policy, zipped = POLICY.format(hash=named), gzip.compress(script, mtime=0)
    return FrontEnd(at, document.encode(), policy, path, script, zipped)


def _replaced(name: str, texts: dict[str, tuple[str, int]], **given: str) -> str:
    """A file of optuna-dashboard with other addresses."""
    content = (files("optuna_dashboard") / name).read_text(encoding="utf-8")
    for text, (other, times) in texts.items():
        if content.count(text) != times:
            raise SearchError(
                f"optuna-dashboard {version('optuna-dashboard')} is not the version that can be shown at "
                f"{given['at']}; hpsearch dashboard serves it at a port of its own",
                code="extra-missing",
            )
        for key, value in given.items():
            other = other.replace(f"{{{key}}}", value)
        content = content.replace(text, other)
    return content
