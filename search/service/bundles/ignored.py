"""Which files of a folder are no part of its code: patterns as in `.gitignore`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

RUBBISH = (  # of a folder that git does not know
    *("__pycache__/", "*.pyc", ".git/", ".hg/", ".svn/", ".venv/", "venv/", "node_modules/", "*.egg-info/"),
    *(".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".tox/", ".nox/", ".cache/", ".ipynb_checkpoints/"),
    *("runs/", "wandb/", "mlruns/", "lightning_logs/", "*.db", "*.db-wal", "*.db-shm", ".DS_Store"),
    *(".idea/", ".vscode/", "*.swp", "*~"),
)
SECRETS = (  # never sent, unless git tracks them
    *(".env", ".env.*", ".netrc", ".pypirc", ".ssh/", ".aws/", ".gnupg/", ".kube/", ".docker/"),
    *("serve.yaml", "serve-[0-9]*.json", "server-id", "access.log"),  # of a server's own folder
    *("*.pem", "*.key", "id_rsa*", "id_ed25519*", "credentials.json", "tokens.jsonl", "servers.yaml"),
)


class Ignored:
    """Patterns in their order: the last that fits decides, and `!` takes back."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._patterns = [found for line in lines if (found := _pattern(line)) is not None]

    def __contains__(self, path: str) -> bool:
        """Whether a file is left out: itself, or a folder that it lies in. Its path has `/` between names."""
        parts = path.split("/")
        folders = ("/".join(parts[:count]) for count in range(1, len(parts)))
        return any(self.leaves_out(folder, is_folder=True) for folder in folders) or self.leaves_out(path)

    def leaves_out(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether the patterns leave out this file or folder by its own path."""
        out = False
        for negated, folders_only, pattern in self._patterns:
            if (is_folder or not folders_only) and pattern.fullmatch(path):
                out = not negated
        return out


def _pattern(line: str) -> tuple[bool, bool, re.Pattern[str]] | None:
    """Whether a line takes back, whether it is about folders alone, and the paths it fits; None: nothing."""
    line = re.sub(r"(?<!\\) +$", "", line.rstrip("\r\n"))
    if not line or line.startswith("#"):
        return None
    negated = line.startswith("!")
    line = line[negated:].removeprefix("\\")
    folders_only, line = line.endswith("/"), line.rstrip("/")
    anchored = "/" in line
    line = line.removeprefix("/")
    return (negated, folders_only, _compiled(line, anchored)) if line else None


@lru_cache(maxsize=1024)
def _compiled(pattern: str, anchored: bool) -> re.Pattern[str]:
    written, position = "" if anchored else "(?:.*/)?", 0
    while position < len(pattern):
        rest = pattern[position:]
        if rest.startswith("**/"):
            written, position = written + "(?:.*/)?", position + 3
        elif rest.startswith("**"):
            written, position = written + ".*", position + 2
        elif rest[0] == "*":
            written, position = written + "[^/]*", position + 1
        elif rest[0] == "?":
            written, position = written + "[^/]", position + 1
        elif found := re.match(r"\[([!^]?)(\]?[^\]]*)\]", rest):
            inside = found[2].replace("\\", "\\\\").replace("[", r"\[").replace("]", r"\]")
            written += f"[{'^/' if found[1] else ''}{inside}]"
            position += len(found[0])
        else:
            letter = rest[1] if rest[0] == "\\" and len(rest) > 1 else rest[0]
            written, position = written + re.escape(letter), position + (1 + (rest[0] == "\\" != rest))
    try:
        return re.compile(written, re.DOTALL)
    except re.error:  # a range such as [z-a] fits nothing
        return re.compile(r"(?!)")
