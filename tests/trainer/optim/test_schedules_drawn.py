"""docs/schedules.md: its drawing is what the functions give, its table names what there is, its space is valid."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from hpsearch.search.preflight import checks
from hpsearch.spaces import loads
from hpsearch.trainer.config.models import LoraConfig
from hpsearch.trainer.config.rules import rules
from hpsearch.trainer.config.training import SCHEDULERS

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "schedules.md").read_text(encoding="utf-8")


def test_the_drawing_is_what_the_functions_give() -> None:
    """Where this fails, `python docs/schedules.py` draws it anew; look at it before it is committed."""
    drawn = runpy.run_path(str(DOCS / "schedules.py"))["drawing"]()
    assert (DOCS / "schedules.svg").read_text(encoding="utf-8") == drawn
    assert re.findall(r"<text[^>]*>(.*?)</text>", drawn) == list(SCHEDULERS)
    assert "(schedules.svg)" in PAGE


def test_the_table_names_every_scheduler_and_every_option_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*?) ?\|$", PAGE, re.MULTILINE)
    assert [name for name, _ in rows] == list(SCHEDULERS)
    told = {
        name: (scheduler, default)
        for scheduler, options in rows
        for name, default in re.findall(r"`(\w+)(?:: ([^`]+))?`", options)
    }
    config = LoraConfig(max_steps=1)
    assert told == {
        name: (rule.help.partition(":")[0], "" if rule.optional else str(getattr(config, name)))
        for name, rule in rules(LoraConfig).items()
        if name.startswith("lr_") and name != "lr_scheduler"
    }


def test_its_space_is_one_that_the_objective_takes() -> None:
    (lines,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    spec = loads(lines)
    checks.check_objective(spec)
    assert checks.warnings(spec) == []
