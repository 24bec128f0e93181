"""The options that help after an error, by its code: messages say what is wrong, and name no option."""

from __future__ import annotations

OPTIONS = {
    "file-exists": "-o names another file, --force overwrites it",
    "init-model": "--model",
    "init-source": "--from names the file",
    "lr-range": "--min, --max",
    "name-taken": "--name",
    "run-exists": "--force starts over, -o names another folder",
    "folder-taken": "-o names another folder",
    "runs-taken": "--to-runs",
    "tls": "--tls-cert, --tls-key",
    "open-address": "--tls-cert, --tls-key; --behind-proxy ADDRESS",
    "address-taken": "--port chooses another, 0 any free one",
    "server-database": "hpsearch copy STUDY --to FILE",
    "one-process": "--processes",
    "ray-address": "--ray-address",
    "ray-option": "--backend optuna",
    "unfinished-run": "--checkpoint PLACE",
    "top-p": "--top-p, --temperature",
    "not-mergeable": "--merge",
    "assignment": "--set NAME=VALUE",
    "preset": "--preset",
    "tracker": "--report-to",
}


def with_options(error: Exception) -> str:
    """An error's message, with the options that help in parentheses."""
    options = OPTIONS.get(getattr(error, "code", ""))
    return str(error) if options is None else f"{error} ({options})"
