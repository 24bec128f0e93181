"""A search that is foreseen, cloned, steered and stopped from the page, by a driver and a worker of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fastapi")

from selenium.webdriver.common.keys import Keys

from hpsearch.search.errors import SearchError
from hpsearch.search.operations import control, show
from hpsearch.search.results.study import load_result
from hpsearch.storage import StorageError
from hpsearch.storage.database import open_tables
from hpsearch.storage.trial_attrs import FIXED_PARAMS
from hpsearch.storage.wanted import read_wanted

from ...support.browsing import Page, agree, complaints, press, see, typed
from ...support.remote import wait_for

if TYPE_CHECKING:
    from selenium import webdriver

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SLOW = """\
import time
from pathlib import Path

def train(trial):
    print(f"trial {trial.number} begins", flush=True)
    hung = Path(__file__).parent / "hung"
    if not hung.exists():
        hung.touch()
        time.sleep(600)
    for step in range(1, 100_000):
        trial.report(1 / step, step)
        time.sleep(0.05)
"""


@pytest.fixture
def code(page: Page) -> Iterator[None]:
    """Slow code beside that of `curve`; its search has ended in the end."""
    workspace = page.service.workspace
    (workspace.runs.parent / "slow.py").write_text(SLOW)
    yield
    with suppress(SearchError, StorageError):
        control.stop(workspace=workspace, study="slow")
    wait_for(lambda: not page.service.queue.view().machine.has, 60)


def filled(chrome: webdriver.Chrome, words: str) -> None:
    """Put these words into the first field of the dialog on the page."""
    chrome.find_element("css selector", "dialog input").send_keys(Keys.CONTROL, "a", Keys.NULL, words)


def test_a_search_is_foreseen_cloned_with_changes_and_steered(
    chrome: webdriver.Chrome, page: Page, code: None
) -> None:
    workspace = page.service.workspace

    def states() -> list[str]:
        return [row.state for row in show.trials(workspace=workspace, study="slow").rows]

    complaints(chrome)
    page.open(chrome, "/submit?from=curve")
    see(chrome, "Understood", "the code of curve")
    area = chrome.find_element("css selector", ".editor textarea")
    text = str(area.get_property("value"))
    press(chrome, "Measure")
    see(chrome, "Measuring curve_2", "End it")
    see(chrome, "Ends after", "of them to their end", "A training")

    text = text.replace("curve_2", "slow").replace("curve.py:curve", "slow.py:train")
    typed(chrome, text.replace("max: 2", "max: 100000"))
    see(chrome, "Understood", "slow.py:train, the code of curve", "Of the space before your last change.")
    press(chrome, "Submit")
    see(chrome, "slow", "running", "Clone")
    wait_for(lambda: states() == ["running"], 60)

    chrome.execute_script("location.hash = '/studies/slow/trials/0'")
    see(chrome, "trial 0 begins", "It has reported nothing yet.")
    press(chrome, "Kill")
    agree(chrome, "It ends at once, as failed")
    see(chrome, "killed by owner", "Retry")
    wait_for(lambda: states() == ["fail", "running"], 60)
    press(chrome, "Retry")
    agree(chrome, "the same number and parameters")
    see(chrome, "waiting")
    wait_for(lambda: states()[0] == "waiting")

    chrome.execute_script("location.hash = '/studies/slow'")
    see(chrome, "of 4", "Curves")
    press(chrome, "Budget")
    filled(chrome, "9")
    agree(chrome, "What that changes is not foreseen yet.")
    see(chrome, "of 9")
    press(chrome, "Try values")
    filled(chrome, "0.25")
    agree(chrome, "It trains before what the sampler proposes", "float 0 .. 1")
    wait_for(lambda: states() == ["waiting", "running", "waiting"])
    tried = load_result(workspace, "slow").all_trials[2]
    assert tried.system_attrs[FIXED_PARAMS] == {"x": 0.25}
    press(chrome, "Priority")
    chrome.find_element("css selector", "dialog input[type=radio]").click()
    agree(chrome, "a higher one may stop a lower one that runs")
    wanted = read_wanted(open_tables(workspace.url), "slow")
    assert wanted is not None and wanted.priority == "high"

    press(chrome, "Stop")
    agree(chrome, "it goes on when it is resumed")
    see(chrome, "stopped", "Resume", "at 2.5 an hour")
    assert complaints(chrome) == []
    chrome.execute_script("location.hash = '/studies/curve'")
    see(chrome, "4 of 4")
    press(chrome, "Budget")
    filled(chrome, "9")
    see(chrome, "By its pace so far it then starts")
    press(chrome, "Cancel")
