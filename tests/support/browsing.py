"""What tests do with a browser."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

if TYPE_CHECKING:
    from hpsearch.search.service.service import Service

AXE = Path(__file__).parent / "vendor" / "axe.js"


class Page(NamedTuple):
    """The page of a served workspace with the study `curve`."""

    url: str
    service: Service
    token: str

    def open(self, chrome: webdriver.Chrome, place: str, token: str = "") -> None:
        """Open a place of the page, as if by a link with a token; the owner's if none is given."""
        open_link(chrome, self.url, token or self.token, place)


def open_link(chrome: webdriver.Chrome, url: str, token: str, place: str = "") -> None:
    """Open the page at this address by a link with a token, then a place in it."""
    chrome.get("about:blank")
    chrome.get(f"{url}/#token={token}")
    taken = f"return location.href.startsWith({url!r}) && !location.hash.includes('token')"
    WebDriverWait(chrome, 60).until(
        lambda _: chrome.execute_script(taken), "the page left the token in its address"
    )
    if place:
        chrome.execute_script("location.hash = arguments[0]", place)


def see(chrome: webdriver.Chrome, *texts: str) -> str:
    """Wait until the page shows these texts, and return all that it shows."""

    text = ""

    def shown(_: object) -> bool:
        nonlocal text  # by one script: what is drawn anew between two questions cannot go stale
        text = str(chrome.execute_script("return document.body.innerText"))
        return all(wanted in text for wanted in texts)

    with suppress(TimeoutException):
        WebDriverWait(chrome, 60).until(shown)
    missing = [wanted for wanted in texts if wanted not in text]
    assert not missing, f"the page never showed {missing}, but:\n{text}"
    return text


def typed(chrome: webdriver.Chrome, text: str) -> None:
    """Put a text into the editor of the screen Submit, as if it was pasted."""
    area = chrome.find_element(By.CSS_SELECTOR, ".editor textarea")
    chrome.execute_script("arguments[0].focus(); arguments[0].select()", area)
    chrome.execute_script("document.execCommand('insertText', false, arguments[0])", text)


def press(chrome: webdriver.Chrome, words: str) -> None:
    """Press the button that begins with these words, once it is there."""
    see(chrome, words)
    chrome.find_element(By.XPATH, f"//button[starts-with(normalize-space(), '{words}')]").click()


def agree(chrome: webdriver.Chrome, *told: str) -> None:
    """Do what the dialog on the page offers, once it has told this."""
    see(chrome, *told)
    chrome.find_element(By.CSS_SELECTOR, "dialog button[type=submit]").click()
    gone = "return document.querySelector('dialog') === null"
    WebDriverWait(chrome, 60).until(lambda _: chrome.execute_script(gone), "the dialog stays")


def complaints(chrome: webdriver.Chrome) -> list[str]:
    """The pop-ups on the page, and what it could not load or run since it was last asked."""
    popups = chrome.find_elements(By.CSS_SELECTOR, "[class*='notistack'][role=alert]")
    log: list[dict[str, Any]] = chrome.get_log("browser")  # type: ignore[no-untyped-call]  # has no types
    errors = [entry["message"] for entry in log if entry["level"] == "SEVERE"]
    return [popup.text for popup in popups] + errors


def findings(chrome: webdriver.Chrome) -> list[str]:
    """What axe finds wrong for people who use the page otherwise than by eye and mouse: each rule, and where."""
    if not chrome.execute_script("return Boolean(window.axe)"):
        chrome.execute_script(f"{AXE.read_text()}\nwindow.axe = axe")
    found = chrome.execute_async_script(
        "const done = arguments[0]; axe.run({resultTypes: ['violations']}).then(({violations}) => done("
        "violations.flatMap(({id, nodes}) => nodes.map((node) => `${id}: ${node.target} ${node.failureSummary}`))))"
    )
    return list(found)
