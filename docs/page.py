"""Draws the pictures of `page.md`, of a small search in a headless Chromium: `python docs/page.py [FOLDER]`.

A folder keeps the search, so that the next pictures need none.
"""

from __future__ import annotations

import base64
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

from hpsearch.search import run
from hpsearch.search.service.home import Home, Settings
from hpsearch.search.service.service import Service
from hpsearch.storage.workspace import Workspace
from hpsearch.tests.support.serving import listening

FOLDER = Path(__file__).with_suffix("")
LARGEST = 150_000  # bytes of a picture
WRONG = """\
version: 1
name: lora_small
objective: lora
metric: val_loss
parameters:
  learning_rate: {mim: 1.0e-4, max: 3.0e-2, log: true}   # the one that matters most
  lora_r: {min: 2, max: 32, factor: 2}
  lr_scheduler: [constant, linear, cosine]
search: {sampler: rung_gpp, seed: 0}
budget: {trials: 24}
"""
PICTURES = [  # name, place, what is there once it is drawn, width, height, whether dark
    ("now", "/", "24 of 24 trials", 1400, 560, False),
    ("study", "/studies/lora_quick", "What it says", 1400, 960, False),
    ("study-dark", "/studies/lora_quick?tab=parameters", "All of them together", 1400, 1000, True),
    ("study-narrow", "/studies/lora_quick", "What it says", 400, 900, False),
    ("trial", "/studies/lora_quick/trials/0", "baseline", 1400, 900, False),
    ("winner", "/studies/lora_quick/winner", "Recipe", 1400, 800, False),
    ("submit", "/submit", "No space yet", 1400, 640, False),
]


@contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """A headless browser."""
    browser, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    assert browser and driver, "needs chromium and chromedriver on the PATH"
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1400,1000"):
        options.add_argument(argument)
    with webdriver.Chrome(options, webdriver.ChromeService(driver)) as chrome:
        yield chrome


def see(browser: webdriver.Chrome, text: str) -> None:
    """Wait until the page shows a text."""
    script = "return document.body.innerText.includes(arguments[0])"
    WebDriverWait(browser, 60).until(lambda _: browser.execute_script(script, text), f"no {text!r}")


def draw(browser: webdriver.Chrome, name: str, width: int, height: int, dark: bool) -> None:
    """Write what the browser shows, in this size and these colours."""
    feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    time.sleep(1.0)  # curves are painted anew
    picture = base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"])
    assert len(picture) < LARGEST, f"{name} has {len(picture):,} bytes"
    (FOLDER / f"{name}.png").write_bytes(picture)


def main(given: str | None = None) -> None:
    """Search, serve, and look."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        folder = given or made
        os.makedirs(folder, exist_ok=True)
        os.chdir(folder)
        run("lora_quick", execution={"workers": 2}, confirm={"top": 2, "seeds": 2})
        workspace = Workspace.at("hpsearch.db")
        service = Service.at(workspace, Home.at(Path(folder) / "home"), Settings())
        with listening(service) as url, chromium() as browser:
            browser.get(f"{url}/#token={service.tokens.mint('owner', 'admin')}")
            see(browser, "live")
            for name, place, drawn, width, height, dark in PICTURES:
                browser.execute_script("location.hash = arguments[0]", place)
                see(browser, drawn)
                if name == "submit":
                    browser.execute_script("document.querySelector('.editor textarea').focus()")
                    browser.execute_script("document.execCommand('insertText', false, arguments[0])", WRONG)
                    see(browser, "2 issues")
                draw(browser, name, width, height, dark)
        os.chdir(FOLDER)


if __name__ == "__main__":
    main(*sys.argv[1:2])
