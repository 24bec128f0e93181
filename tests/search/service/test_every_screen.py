"""What holds for every screen of the page, in a headless Chromium."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fastapi")

from ...support.browsing import Page, complaints, findings, see
from ...support.remote import wait_for

if TYPE_CHECKING:
    from selenium import webdriver

pytestmark = pytest.mark.browser

SCREENS = {  # by their places: what is there once they are drawn
    "/": "curve",
    "/submit": "lora_quick",
    "/studies/curve": "What it says",
    "/studies/curve?tab=trials": "why it ended",
    "/studies/curve?tab=parameters": "All of them together",
    "/studies/curve?tab=time": "Why trials ended early",
    "/studies/curve/trials/2": "broken",
    "/studies/curve/winner": "Recipe",
    "/compare?of=curve:0,curve:1": "trial 1",
    "/nowhere": "There is nothing here",
}


def test_axe_finds_nothing_wrong_with_any_screen_in_light_or_dark(
    chrome: webdriver.Chrome, page: Page, subtests: pytest.Subtests
) -> None:
    page.open(chrome, "/")
    see(chrome, "live")
    for place, drawn in SCREENS.items():
        chrome.execute_script("location.hash = arguments[0]", place)
        see(chrome, drawn)
        for colours in ("light", "dark"):
            feature = {"name": "prefers-color-scheme", "value": colours}
            chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            with subtests.test(f"{place} in {colours}"):
                assert findings(chrome) == []


def test_no_screen_loads_anything_from_elsewhere(chrome: webdriver.Chrome, page: Page) -> None:
    complaints(chrome)  # those of an earlier test
    page.open(chrome, "/")
    for place, drawn in SCREENS.items():
        chrome.execute_script("location.hash = arguments[0]", place)
        see(chrome, drawn)
    script = "return performance.getEntriesByType('resource').map((entry) => entry.name)"
    loaded = [str(name) for name in chrome.execute_script(script)]
    assert len(loaded) > 50 and all(name.startswith((f"{page.url}/", "data:")) for name in loaded)
    assert complaints(chrome) == []


def test_eight_tabs_share_one_stream(chrome: webdriver.Chrome, page: Page) -> None:
    first = chrome.current_window_handle
    page.open(chrome, "/")
    see(chrome, "curve", "live")
    try:
        for _ in range(7):
            chrome.switch_to.new_window("tab")
            page.open(chrome, "/studies/curve")
            see(chrome, "What it says", "live")
        assert page.service.watch.watchers == 1
        chrome.switch_to.window(first)
        chrome.get("about:blank")
        wait_for(lambda: page.service.watch.watchers == 1)
        chrome.switch_to.window(chrome.window_handles[-1])
        see(chrome, "live")
    finally:
        for each in set(chrome.window_handles) - {first}:
            chrome.switch_to.window(each)
            chrome.close()
        chrome.switch_to.window(first)
