"""Programs that know nothing of hpsearch are searched, pruned, resumed and exported as their pages say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from . import recipe as recipes
from .recipe import BLOCK, HERE, PAGES, RECIPES, missing


def marked(name: str) -> pytest.ParameterSet:
    return pytest.param(
        name, marks=[pytest.mark.slow, *([pytest.mark.extras] if RECIPES[name].extras else [])]
    )


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    subprocess.run([sys.executable, recipes.HERE / "tiny.py", folder], check=True)
    return folder


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [marked(name) for name in RECIPES])
def test_a_program_is_searched_unchanged(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    recipe = RECIPES[name]
    if recipe.extras and (lacking := missing(recipe)):
        pytest.skip(f"needs {', '.join(lacking)}")
    outcome = recipes.run(name, tmp_path, request.getfixturevalue("tiny") if recipe.tiny else None)
    assert outcome.changed == 0
    assert outcome.reports >= 9
    assert outcome.pruned >= 1
    assert outcome.resumed >= 1
    assert outcome.started_over == 0
    assert outcome.off <= recipe.apart, outcome


def test_each_page_is_in_the_table_and_runs() -> None:
    pages = {page.stem for page in PAGES.glob("*.md")} - {"README"}
    table = (PAGES / "README.md").read_text(encoding="utf-8")
    assert pages == set(RECIPES)
    assert all(f"({name}.md)" in table for name in pages)


def test_the_names_on_the_page_of_axolotl_are_in_its_schema() -> None:
    """It is seldom installed, as it asks for older libraries."""
    published = json.loads((HERE.parent / "search/exchange/recipes/published/axolotl.json").read_text())
    [(page, _)] = BLOCK.findall((PAGES / "axolotl.md").read_text(encoding="utf-8"))
    space = YAML(typ="safe").load(page)
    assigned = re.findall(r"(\w+)=", space["objective"]["command"][2])
    assert assigned == ["seed", "output_dir", "resume_from_checkpoint"]
    assert {*assigned, *space["parameters"]} <= set(published["keys"])
