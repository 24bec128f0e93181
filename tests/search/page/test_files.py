"""The page's files: what is vendored is what its list says, and modules name only what there is."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tomllib
from pathlib import Path

import pytest

from hpsearch.search.page import files as drawn

VENDORED = (drawn.FOLDER / "vendor", Path(__file__).parents[2] / "support" / "vendor")
LONGEST = 450  # lines of a module of ours


@pytest.mark.parametrize("folder", VENDORED, ids=["page", "tests"])
def test_vendored_files_are_those_of_the_list(folder: Path) -> None:
    packages = json.loads((folder / "versions.json").read_text())
    listed = {
        file: entry["sha256"] for package in packages.values() for file, entry in package["files"].items()
    }
    there = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != "versions.json"
    }
    assert there == listed, "make vendor fetches them anew"
    for name in packages:
        assert f"{name}-LICENSE" in there


def test_modules_import_each_other_by_names_of_the_import_map() -> None:
    imports = json.loads(re.findall(r'importmap">(.*?)</script>', drawn.document().html)[0])["imports"]
    for path, file in drawn.files().items():
        if path.endswith(".js"):
            named = re.findall(r'(?:^|[};])import[^"\']*["\']([^"\']+)["\']', file.content.decode(), re.M)
            assert set(named) <= set(imports), path
    served = {address.removeprefix(f"./static/{drawn.version()}/") for address in imports.values()}
    assert served == {path for path in drawn.files() if path.endswith(".js")}


def test_the_document_loads_nothing_from_elsewhere_and_its_only_script_has_a_hash() -> None:
    document = drawn.document()
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", document.html, re.DOTALL)
    (inline,) = filter(None, scripts)
    assert (
        document.script_hash
        == f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"
    )
    addresses = re.findall(r'(?:src|href)="([^"]*)"', document.html)
    assert len(addresses) > 5 and all(address.startswith("./static/") for address in addresses)


def test_every_file_is_in_the_wheel() -> None:
    settings = tomllib.loads((drawn.FOLDER.parents[1] / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["hpsearch.search.page"]
    shipped = {path for pattern in patterns for path in drawn.FOLDER.glob(pattern)}
    there = {
        path for path in drawn.FOLDER.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert shipped == there


def test_no_module_of_the_page_is_too_long_to_read_at_once() -> None:
    lines = {
        path: len(file.content.splitlines())
        for path, file in drawn.files().items()
        if not path.startswith("vendor/")
    }
    assert {path: count for path, count in lines.items() if count > LONGEST} == {}
