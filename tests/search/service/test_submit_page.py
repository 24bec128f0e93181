"""The page's screen Submit in a headless Chromium: a space is written, looked at, converted, submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fastapi")

from ...support.browsing import Page, findings, press, see, typed
from ...support.remote import wait_for

if TYPE_CHECKING:
    from selenium import webdriver

pytestmark = pytest.mark.browser

WRONG = """\
version: 1
name: typed
objective: lora
metric: val_loss
parameters:
  learning_rate: {mim: 1.0e-4, max: 1.0e-2, log: true}
  max_samples: 64
budget: {trials: 4}
"""
SWEEP = "program: train.py\nmethod: random\nmetric: {name: loss, goal: minimize}\nparameters:\n  lr: {min: 0.1, max: 1.0}\n"


def test_a_wrong_space_shows_its_issue_at_its_line_and_a_right_one_is_submitted(
    chrome: webdriver.Chrome, page: Page
) -> None:
    page.open(chrome, "/submit")
    see(chrome, "No space yet")
    typed(chrome, WRONG)
    see(chrome, "1 issue", 'did you mean "min"?')
    marked = chrome.find_elements("css selector", ".gutter li.wrong")
    lines = chrome.find_elements("css selector", ".gutter li")
    assert [lines.index(each) + 1 for each in marked] == [6]
    assert findings(chrome) == []
    press(chrome, "line 6")
    area = chrome.switch_to.active_element
    selected = "return arguments[0].value.slice(arguments[0].selectionStart, arguments[0].selectionEnd)"
    assert chrome.execute_script(selected, area) == "mim"
    chrome.execute_script("document.execCommand('insertText', false, 'min')")
    see(chrome, "Understood", "float 0.0001 .. 0.01, log", "5 random samples")
    assert findings(chrome) == []
    chrome.find_element("css selector", ".hold input").click()
    see(chrome, "not begun")
    press(chrome, "Submit")
    see(chrome, "typed", "Clone", "Resume")
    assert chrome.current_url == f"{page.url}/#/studies/typed"
    page.open(chrome, "/submit")
    typed(chrome, WRONG.replace("mim", "min").replace("64", "32"))
    see(chrome, "Understood")
    press(chrome, "Submit")
    see(chrome, "with another space", "max_samples", "64 -> 32")
    press(chrome, "Call it typed_2")
    assert chrome.find_element("css selector", ".submit form input").get_property("value") == "typed_2"


def test_another_tools_file_is_converted_and_a_study_cloned(chrome: webdriver.Chrome, page: Page) -> None:
    page.open(chrome, "/submit")
    typed(chrome, SWEEP)
    see(chrome, "A file of W&B")
    press(chrome, "Convert it")
    see(chrome, "Converted from W&B")
    area = chrome.find_element("css selector", ".editor textarea")
    assert "lr: {min: 0.1, max: 1.0}" in str(area.get_property("value"))
    chrome.execute_script("location.hash = '/submit?from=curve'")
    see(chrome, "The space of curve")
    wait_for(lambda: "name: curve_2" in str(area.get_property("value")))
    assert "early_stopping: {method: none, max: 2}" in str(area.get_property("value"))


def test_who_may_only_read_is_told_what_submitting_needs(chrome: webdriver.Chrome, page: Page) -> None:
    page.open(chrome, "/submit", page.service.tokens.create("reader", "read").token)
    typed(chrome, WRONG)
    see(chrome, "1 issue", "--scope write")
    assert not chrome.find_elements("css selector", ".submit form")
