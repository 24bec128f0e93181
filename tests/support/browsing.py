"""What tests do with a browser."""

from __future__ import annotations

from typing import Any

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait


def see(chrome: webdriver.Chrome, *texts: str) -> str:
    """Wait until the page shows these texts, and return all that it shows."""

    def shown(_: object) -> str | None:
        # One script: what is drawn anew between two questions cannot go stale.
        text = str(chrome.execute_script("return document.body.innerText"))
        return text if all(wanted in text for wanted in texts) else None

    found = WebDriverWait(chrome, 60).until(shown, f"the page never showed {texts}")
    assert found is not None
    return found


def complaints(chrome: webdriver.Chrome) -> list[str]:
    """The pop-ups on the page, and what it could not load or run since it was last asked."""
    popups = chrome.find_elements(By.CSS_SELECTOR, "[class*='notistack'][role=alert]")
    log: list[dict[str, Any]] = chrome.get_log("browser")  # type: ignore[no-untyped-call]  # has no types
    errors = [entry["message"] for entry in log if entry["level"] == "SEVERE"]
    return [popup.text for popup in popups] + errors
