"""One headless Chromium for all tests that look at what a user sees."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from selenium import webdriver

    from ...support.browsing import Page


@pytest.fixture(scope="session")
def chrome() -> Iterator[webdriver.Chrome]:
    """A browser that keeps what its pages log."""
    from selenium import webdriver

    browser = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        reason = "needs chromium and chromedriver on the PATH (Debian: chromium, chromium-driver)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1400,1200"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options, webdriver.ChromeService(driver)) as chrome:
        yield chrome


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page of a workspace whose one search, `curve`, is over."""
    from hpsearch.search.service.home import Home, Settings
    from hpsearch.search.service.service import Service

    from ...support.browsing import Page
    from ...support.serving import listening, searched

    folder = tmp_path_factory.mktemp("page")
    service = Service.at(searched(folder), Home.at(folder / "home"), Settings(price_per_hour=2.5))
    with listening(service) as url:
        yield Page(url, service, service.tokens.mint("owner", "admin"))
