"""optuna-dashboard behind the page's prefix, in a headless Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi")

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from hpsearch.search.service.home import Home, Settings
from hpsearch.search.service.service import Service

from ...support.browsing import Page, complaints, see
from ...support.serving import listening, searched

pytestmark = pytest.mark.browser


@pytest.fixture
def prefixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page of a workspace whose one search, `curve`, is over, under /hp."""
    folder = tmp_path_factory.mktemp("prefixed")
    service = Service.at(searched(folder), Home.at(folder / "home"), Settings(base_path="/hp"))
    with listening(service) as url:
        yield Page(f"{url}/hp", service, service.tokens.create("owner", "read").token)


def test_the_page_opens_the_study_in_optuna_dashboard(chrome: webdriver.Chrome, prefixed: Page) -> None:
    complaints(chrome)  # those of an earlier test
    prefixed.open(chrome, "/studies/curve")
    page = chrome.current_window_handle
    WebDriverWait(chrome, 60).until(
        lambda _: chrome.find_elements(By.XPATH, "//button[text()='optuna-dashboard']")
    )[0].click()
    WebDriverWait(chrome, 60).until(lambda _: len(chrome.window_handles) == 2)
    (other,) = set(chrome.window_handles) - {page}
    chrome.switch_to.window(other)
    try:
        see(chrome, "curve (id=1)")
        WebDriverWait(chrome, 60).until(
            lambda _: chrome.find_elements(By.CSS_SELECTOR, "#plot-history svg.main-svg")
        )
        see(chrome, "Best Trial", "Hyperparameter Importance")
        assert chrome.current_url == f"{prefixed.url}/optuna/dashboard/studies/1"
        chrome.find_element(By.CSS_SELECTOR, "a[href='/hp/optuna/dashboard/studies/1/trials']").click()
        see(chrome, "Trial 0", "Artifacts", "config.json")
        assert complaints(chrome) == []
        loaded = chrome.execute_script(
            "return performance.getEntriesByType('resource').map(({name}) => name)"
        )
        assert all(each.startswith((f"{prefixed.url}/optuna/", "data:", "blob:")) for each in loaded), loaded
        kept = "return [document.cookie, JSON.stringify(sessionStorage), JSON.stringify(localStorage), window.opener]"
        assert chrome.execute_script(kept)[0] == "" and "hps_" not in str(chrome.execute_script(kept))
        assert chrome.execute_script(kept)[-1] is None
        ran = "const {body} = document; body.insertAdjacentHTML('beforeend', `<img src=x onerror='window.ran = 1'>`);"
        chrome.execute_script(ran)
        assert any("Content Security Policy" in each for each in complaints(chrome))
        prefixed.service.tokens.revoke("owner")
        chrome.refresh()
        assert "from the page" in see(chrome, "token-missing")
    finally:
        chrome.close()
        chrome.switch_to.window(page)
        complaints(chrome)
