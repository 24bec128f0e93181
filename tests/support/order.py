"""In which order tests run, and which of them one worker runs in a row (`--dist loadgroup`)."""

from __future__ import annotations

from collections import Counter

import pytest


def arrange(items: list[pytest.Item]) -> None:
    """Put tests in groups, and the longest first, or all but one worker would wait for it in the end."""
    groups = {item: _group(item) for item in items}
    sizes = Counter(groups.values())
    for item, group in groups.items():
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))

    def place(item: pytest.Item) -> tuple[int, int, str]:
        group = groups[item]
        if "test_the_pages_run_as_printed" in item.name:
            return 0, 0, ""
        if group == "ray":
            return 1, 0, ""
        if group is None:
            return 2, 0, ""
        return 3, -sizes[group], group

    items.sort(key=place)


def _group(item: pytest.Item) -> str | None:
    """What a test shares with others: the one Ray, the one PostgreSQL, or the fixtures of its file."""
    fixtures = item.fixturenames if isinstance(item, pytest.Function) else []
    # A command starts a Ray of its own, on whichever worker.
    if "shared_ray" in fixtures or (_params(item).get("backend_name") == "ray" and "command" not in fixtures):
        return "ray"
    if item.get_closest_marker("postgres"):
        return "postgres"
    return None if item.get_closest_marker("slow") else item.path.stem


def has_no_part(item: pytest.Item) -> bool:
    """Whether the Ray, the remote workers or the PostgreSQL that a test would run with make no difference."""
    params = _params(item)
    backend, server = params.get("backend_name"), params.get("storage_name") == "postgres"
    ray = backend == "ray"
    if backend == "remote":  # its workers are local ones, behind a desk; what only they do is shown once
        own = ("any_backend", "in_process", "own_workers")
        return (
            server
            or item.path.name not in ("test_contract.py", "test_remote.py")
            or any(map(item.get_closest_marker, own))
        )
    if ray and server:
        return item.get_closest_marker("pair") is None
    if ray:
        return any(item.get_closest_marker(marker) for marker in ("any_backend", "in_process"))
    return server and item.get_closest_marker("any_storage") is not None


def _params(item: pytest.Item) -> dict[str, object]:
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
