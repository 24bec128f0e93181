"""The page in a headless Chromium: one server and one browser for all that is shown here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fastapi")

from hpsearch.search.operations import report, run, show
from hpsearch.search.service.home import Home, Settings
from hpsearch.search.service.service import Service
from hpsearch.storage.workspace import Workspace

from ...support.browsing import complaints, see
from ...support.in_process import InProcessBackend
from ...support.remote import wait_for
from ...support.serving import listening
from ...support.spaces import small
from ...support.watchers import Recorder

if TYPE_CHECKING:
    from selenium import webdriver

pytestmark = pytest.mark.browser

GATED = """\
import time
from pathlib import Path

def train(trial):
    while trial.number >= len(list(Path(__file__).parent.glob("go*"))):
        time.sleep(0.02)
    for step in range(1, 10):
        trial.report((trial.params["x"] - 0.3) ** 2 + 1 / step, step)
    return (trial.params["x"] - 0.3) ** 2
"""


@dataclass
class Served:
    """A served workspace, in which the study `moving` is searched as far as a test lets it."""

    url: str
    service: Service
    folder: Path
    token: str = ""
    let: int = field(default=0)

    def go_on(self, trials: int) -> None:
        """Let so many more trials train."""
        for number in range(self.let, self.let + trials):
            (self.folder / f"go{number}").touch()
        self.let += trials

    def open(self, chrome: webdriver.Chrome, place: str = "") -> None:
        """Open the page by a link with the token, then a place in it."""
        chrome.get("about:blank")
        chrome.get(f"{self.url}/#token={self.token}")
        if place:
            chrome.execute_script("location.hash = arguments[0]", place)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("page")
    (folder / "gated.py").write_text(GATED)
    workspace = Workspace.at(str(folder / "studies.db"), folder / "runs")
    service = Service.at(workspace, Home.at(folder / "home"), Settings())
    space = small(
        name="moving",
        objective=f"{folder / 'gated.py'}:train",
        early_stopping={"method": "none", "max": 9},
        budget={"trials": 8},
    )
    with pytest.MonkeyPatch.context() as patch, listening(service) as url:
        patch.setattr(
            "hpsearch.search.operations.run.make_backend", lambda name, *of: InProcessBackend(*of[:2])
        )
        found = Served(url, service, folder, service.tokens.mint("owner", "admin"))
        search = Thread(
            target=run.run, kwargs={"workspace": workspace, "space": space, "watcher": Recorder()}
        )
        search.start()
        try:
            yield found
        finally:
            found.go_on(8)
            search.join()


def test_a_running_study_moves_and_the_token_is_nowhere(
    chrome: webdriver.Chrome, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    complaints(chrome)  # those of an earlier test
    caplog.set_level("INFO", "hpsearch.access")
    served.open(chrome)
    see(chrome, "moving", "0 of 8 trials", "live")
    served.go_on(2)
    see(chrome, "2 of 8 trials")
    assert chrome.current_url == f"{served.url}/#/"
    assert served.token not in chrome.page_source
    assert "/v1/studies" in caplog.text and served.token not in caplog.text
    assert complaints(chrome) == []


def test_a_wrong_token_is_asked_for_again(chrome: webdriver.Chrome, served: Served) -> None:
    chrome.get("about:blank")
    chrome.get(f"{served.url}/#token=hps_00000000_{'x' * 43}")
    see(chrome, "A token opens this page")
    field = chrome.find_element("css selector", "input")
    field.send_keys(f"{served.url}/#token={served.token}\n")
    see(chrome, "moving", "live")


def test_a_report_opens_without_a_server_and_replays_the_search(
    chrome: webdriver.Chrome, served: Served, tmp_path: Path
) -> None:
    served.go_on(3)
    wait_for(lambda: show.show(workspace=served.service.workspace, study="moving").best is not None)
    written = report.report(workspace=served.service.workspace, study=["moving"])
    (tmp_path / "report.html").write_text(written.text)
    chrome.get("about:blank")
    complaints(chrome)
    chrome.get((tmp_path / "report.html").as_uri())
    text = see(
        chrome, "The winner: trial", "How it was found", "Each parameter against loss", "How to do it again"
    )
    assert "not confirmed" in text and "Pause" not in text
    slider = chrome.find_element("css selector", "input[type=range]")
    chrome.execute_script("arguments[0].value = 0; arguments[0].dispatchEvent(new Event('input'))", slider)
    see(chrome, "0 s: ")
    chrome.execute_script("location.hash = '/studies/moving?tab=trials'")
    see(chrome, "why it ended", "report of")
    assert complaints(chrome) == []
