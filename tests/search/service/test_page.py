"""The page in a headless Chromium: one server and one browser for all that is shown here."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("fastapi")

import optuna
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from hpsearch.search.formatting import duration
from hpsearch.search.operations import control, report, run, show, submit, winner
from hpsearch.search.results.report import StudyReport
from hpsearch.search.results.study import space_of
from hpsearch.search.service.home import Home, Settings
from hpsearch.search.service.service import Service
from hpsearch.spaces import Spec
from hpsearch.storage.database import open_storage, open_tables
from hpsearch.storage.studies import PROVENANCE, SPEC, open_live, study_keys
from hpsearch.storage.told import Notice, Told, change_told
from hpsearch.storage.trial_attrs import TOOK
from hpsearch.storage.workspace import Workspace

from ...support.browsing import agree, complaints, open_link, see
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

TUNED = """\
def train(trial):
    value = (trial.params["x"] - 0.3) ** 2 + trial.seed % 7 / 1000
    for step in range(1, 10):
        trial.report(value + 1 / step, step)
    return value
"""


@dataclass
class Served:
    """A served workspace, in which the study `moving` is searched as far as a test lets it.

    The search of `tuned` is over, with a winner that is confirmed, and so is that of `guess`, without.
    """

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

    def open(self, chrome: webdriver.Chrome, place: str = "", token: str = "") -> None:
        """Open the page by a link with a token, the owner's if none is given, then a place in it."""
        open_link(chrome, self.url, token or self.token, place)


def over(folder: Path) -> Iterator[Spec]:
    """The spaces of the searches that are over."""
    (folder / "tuned.py").write_text(TUNED)
    about: dict[str, Any] = {
        "objective": f"{folder / 'tuned.py'}:train",
        "parameters": {"x": {"min": 0.0, "max": 1.0}, "size": 64},
    }
    stopping = {"method": "asha", "type": "promotion", "min": 1, "max": 9, "eta": 3}
    confirm, budget = {"top": 2, "seeds": 2}, {"trials": 6}
    yield small(
        name="tuned", baseline={"x": 0.9}, early_stopping=stopping, confirm=confirm, budget=budget, **about
    )
    yield small(name="guess", budget={"trials": 1}, confirm={}, **about)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("page")
    (folder / "gated.py").write_text(GATED)
    workspace = Workspace.at(str(folder / "studies.db"), folder / "runs")
    service = Service.at(workspace, Home.at(folder / "home"), Settings())
    service.queue.drain(True)  # what is asked to run again here waits
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
        for finished in over(folder):
            run.run(workspace=workspace, space=finished, watcher=Recorder())
        found = Served(url, service, folder, service.tokens.mint("owner", "admin"))
        search = Thread(
            target=run.run, kwargs={"workspace": workspace, "space": space, "watcher": Recorder()}
        )
        search.start()
        try:
            wait_for(lambda: "moving" in study_keys(open_tables(workspace.url)))
            yield found
        finally:
            found.go_on(8)
            while search.is_alive():
                search.join(0.5)
                if search.is_alive() and steering(found).paused:
                    control.resume(workspace=workspace, study="moving")


def drawn(chrome: webdriver.Chrome) -> list[str]:
    """The curves as they are painted now: those that stay, and those that grow."""
    canvases = "[...document.querySelectorAll('.plot canvas')].map((each) => each.toDataURL())"
    return list(chrome.execute_script(f"return {canvases}"))


def have_grown(chrome: webdriver.Chrome, before: list[str]) -> bool:
    """Whether the curves that grow are painted otherwise than before."""
    return drawn(chrome)[1:] != before


def click(chrome: webdriver.Chrome, words: str) -> None:
    """Click the button that says this, once it is there."""
    see(chrome, words)
    chrome.find_element("xpath", f"//button[normalize-space()='{words}']").click()


def steering(served: Served) -> StudyReport:
    """What the study says now."""
    return show.show(workspace=served.service.workspace, study="moving")


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
    bound = served.service.tokens.create("bound", "write", studies=["guess"]).token
    served.open(chrome, token=bound)
    text = see(chrome, "guess", "given out", "others, which this token does not show")
    assert "Nothing runs" not in text and "moving" not in text
    served.open(chrome, token=served.service.tokens.create("worker", "work", studies=["guess"]).token)
    text = see(chrome, "A token opens this page", 'this needs the scope "read"', "no access")
    assert "as of" not in text


def test_curves_grow_and_the_table_follows_as_trials_train(chrome: webdriver.Chrome, served: Served) -> None:
    served.go_on(max(0, 2 - served.let))
    served.open(chrome, "/studies/moving")
    see(chrome, "Curves", "complete", "2 of 8")
    before = drawn(chrome)
    served.go_on(1)
    see(chrome, "3 of 8")
    WebDriverWait(chrome, 60).until(lambda _: drawn(chrome) != before, "the curves stay as they were")
    chrome.execute_script("location.hash = '/studies/moving?tab=trials'")
    see(chrome, "4 trials")  # the fourth waits to be let on
    served.go_on(1)
    see(chrome, "5 trials")
    for key in ("j", "/", "x<2 state:complete"):
        chrome.switch_to.active_element.send_keys(key)
    see(chrome, "4 of 5 trials")


def test_tabs_share_one_stream_and_one_that_is_opened_from_a_link_needs_no_token(
    chrome: webdriver.Chrome, served: Served
) -> None:
    served.open(chrome)
    see(chrome, "moving", "live")
    first = chrome.current_window_handle
    link = chrome.find_element("link text", "moving")
    ActionChains(chrome).key_down(Keys.CONTROL).click(link).key_up(Keys.CONTROL).perform()
    WebDriverWait(chrome, 60).until(lambda _: len(chrome.window_handles) == 2)
    (second,) = set(chrome.window_handles) - {first}
    chrome.switch_to.window(second)
    see(chrome, "Curves", "live")
    assert served.service.watch.watchers == 1
    chrome.close()
    chrome.switch_to.window(first)


def test_a_search_is_paused_and_resumed_from_the_page(chrome: webdriver.Chrome, served: Served) -> None:
    served.open(chrome, "/studies/moving")
    see(chrome, "Pause")
    click(chrome, "Pause")
    see(chrome, "put back with its checkpoint", "nothing is lost")
    chrome.find_element("css selector", "dialog button[type=submit]").click()
    WebDriverWait(chrome, 60).until(lambda _: not chrome.find_elements("css selector", "dialog"))
    served.go_on(1)  # the trial that runs now comes to its next report
    see(chrome, "paused; its running trials were put back")
    assert steering(served).paused
    click(chrome, "Resume")
    chrome.find_element("css selector", "dialog button[type=submit]").click()
    WebDriverWait(chrome, 60).until(lambda _: not steering(served).paused)
    see(chrome, "Stop")


def test_what_waits_in_the_queue_is_paused_resumed_and_stopped(
    chrome: webdriver.Chrome, served: Served
) -> None:
    workspace = served.service.workspace
    space = small(name="waits", objective=f"{served.folder / 'gated.py'}:train")
    submit.submit(workspace=workspace, space=space, cwd=served.folder)
    served.open(chrome, "/studies/waits")
    see(chrome, "queued", "the server is drained")
    click(chrome, "Pause")
    agree(chrome, "It keeps out of the queue until it is resumed")
    see(chrome, "paused by owner", "Stop")
    click(chrome, "Resume")
    agree(chrome, "queued again at its place")
    see(chrome, "the server is drained")
    click(chrome, "Stop")
    agree(chrome, "It leaves the queue.")
    assert "Pause" not in see(chrome, "stopped by owner", "Resume")


def test_a_form_is_offered_where_nothing_is_found_and_problems_say_what_to_do(
    chrome: webdriver.Chrome, served: Served
) -> None:
    served.open(chrome, "/studies/movin")
    see(chrome, 'there is no study "movin"', "moving")
    chrome.execute_script("location.hash = '/nowhere'")
    see(chrome, "There is nothing here")


def test_numbers_and_times_are_those_of_the_command_line(chrome: webdriver.Chrome, served: Served) -> None:
    numbers = [0.0, 1.0, -2.5, 0.1, 1 / 3, 123456.7, 1234567.8, 0.0001, 0.00001234, 1e-300, 6.02e23, 999999.5]
    seconds = [0.25, 9.87, 45.0, 59.9, 61.0, 1800.0, 5400.0, 86400.0]
    served.open(chrome)
    found = chrome.execute_async_script(
        "const [numbers, seconds, done] = arguments;"
        "import('hpsearch/format.js').then(({ number, duration }) =>"
        " done([numbers.map((each) => number(each)), seconds.map((each) => duration(each))]));",
        numbers,
        seconds,
    )
    assert found == [[f"{each:.6g}" for each in numbers], [duration(each) for each in seconds]]


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


@pytest.mark.extras
def test_the_example_of_a_report_opens_from_a_disk(chrome: webdriver.Chrome, tmp_path: Path) -> None:
    folder = Path(os.environ.get("HPSEARCH_REPORT_DIR", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    example = Path(__file__).parents[3] / "docs" / "report.py"
    subprocess.run([sys.executable, example, folder / "lora.html"], check=True, cwd=tmp_path)
    chrome.get("about:blank")
    complaints(chrome)
    chrome.get((folder / "lora.html").as_uri())
    see(chrome, "The winner: trial", "How it was found", "learning_rate", "Each parameter against val_loss")
    assert complaints(chrome) == []


def press(chrome: webdriver.Chrome, selector: str) -> None:
    """Press what a selector names, wherever it is on the page."""
    chrome.execute_script("document.querySelector(arguments[0]).click()", selector)


def test_a_trial_tells_its_story_and_is_tried_with_changes(chrome: webdriver.Chrome, served: Served) -> None:
    log = served.folder / "runs" / "tuned" / "1" / "output.log"
    log.write_bytes("\x1b[32mepoch 1\x1b[0m of 2\n 10 %\r 50 %\r100 %\nepoch 2 of 2: größer\n".encode())
    complaints(chrome)
    bar = "".join(f"\r{done / 1000:.1f} % of größe" for done in range(1, 100_001))
    served.open(chrome, "/studies/tuned/trials/0")
    see(chrome, "Trial 0", "baseline", "The baseline of the space", "It has printed nothing", "rank among")
    long = served.folder / "runs" / "tuned" / "2" / "output.log"
    long.write_text("it begins\n" + bar + "\n")  # of which the page reads a part without a line's end
    chrome.execute_script("location.hash = '/studies/tuned/trials/2'")
    text = see(chrome, "Trial 2", "100.0 % of größe", "1 line", "before this")
    assert "it begins" not in text and "99.9 %" not in text
    chrome.execute_script("location.hash = '/studies/tuned/trials/0'")
    see(chrome, "Trial 0")
    chrome.find_element("tag name", "body").send_keys("j")
    see(chrome, "Trial 1", "drawn at random".capitalize(), "epoch 1 of 2\n100 %\nepoch 2 of 2: größer")
    see(chrome, "winner", "the same in all", "64")
    chrome.find_element("css selector", "input[type=search]").send_keys("EPOCH")
    see(chrome, "1 of 2")
    chrome.find_element("css selector", "input[type=search]").send_keys("\n")
    see(chrome, "2 of 2")
    assert complaints(chrome) == [], "though trial 0 has printed nothing"
    last = len(show.trials(workspace=served.service.workspace, study="tuned").rows)
    chrome.find_element("xpath", "//button[text()='Try with changes']").click()
    see(chrome, "0 to 1")
    field = chrome.find_element("css selector", "dialog input")
    field.clear()
    field.send_keys("7")
    press(chrome, "dialog button[type=submit]")
    see(chrome, "x: ", "7")
    field.clear()
    field.send_keys("0.25")
    see(chrome, "It differs in x")
    press(chrome, "dialog button[type=submit]")
    see(chrome, f"Trial {last}", "waiting", "Enqueued", "printed nothing yet")
    log = served.folder / "runs" / "tuned" / str(last) / "output.log"
    log.parent.mkdir()
    for words in ("it begins", "it goes on"):
        with log.open("a") as stream:
            stream.write(f"{words}\n")
        see(chrome, words, "more may come")


def test_picked_trials_and_named_studies_are_compared(chrome: webdriver.Chrome, served: Served) -> None:
    served.open(chrome, "/studies/tuned/trials/0")
    for number in (0, 2):
        see(chrome, f"Trial {number}")
        press(chrome, ".pick input")
        see(chrome, f"Compare {1 if number == 0 else 2}")
        chrome.execute_script("location.hash = arguments[0]", "/studies/tuned/trials/2")
    press(chrome, ".picked-bar a")
    text = see(chrome, "Parameters", "trial 0", "trial 2", "0.9", "the same in all")
    assert text.index("x\t0.9") < text.index("the same in all") < text.index("size")
    assert chrome.current_url.endswith("#/compare?of=tuned:0,tuned:2")
    press(chrome, ".segments button:nth-child(2)")
    WebDriverWait(chrome, 60).until(
        lambda _: chrome.find_elements("css selector", ".plot[aria-label*='seconds, at the mean pace']")
    )
    field = chrome.find_element("css selector", "form.entry input")
    field.clear()
    field.send_keys("tuned, tuned:1, 3, nothing\n")
    see(
        chrome,
        "What they found",
        "winner",
        "states",
        "cost",
        'there is no study "nothing"',
        "trial 1",
        "trial 3",
    )
    press(chrome, ".bad-card button")
    WebDriverWait(chrome, 60).until(lambda _: "nothing" not in chrome.current_url)
    assert chrome.current_url.endswith("#/compare?of=tuned,tuned:1,tuned:3")


def test_a_winner_says_how_sure_it_is_and_is_downloaded(
    chrome: webdriver.Chrome, served: Served, tmp_path: Path
) -> None:
    chrome.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    found = winner.winner(workspace=served.service.workspace, study="tuned")
    served.open(chrome, "/studies/tuned/winner")
    text = see(
        chrome,
        "How it was confirmed",
        "2 new seeds",
        f"trial {found.trial} winner",
        "hpsearch train tuned.yaml",
    )
    assert found.value is not None and f"{found.value.value:.5g}" in text
    assert "provenance" in see(chrome, "Recipe", "x: ")
    chrome.find_element("xpath", "//button[text()='Download']").click()
    path = tmp_path / f"tuned-{found.trial}.zip"
    wait_for(lambda: zipfile.is_zipfile(path))  # a browser makes an empty file first
    with zipfile.ZipFile(path) as archive:
        assert "winner.json" in archive.namelist()
    chrome.execute_script("location.hash = '/studies/guess/winner'")
    see(chrome, "Not confirmed", "which flatters it", "Nothing was trained again")
    button = chrome.find_element("xpath", "//button[text()='Download']")
    assert not button.is_enabled(), "it has to be asked for"
    press(chrome, "[aria-labelledby=take] input")
    chrome.find_element("xpath", "//button[text()='Download']").click()
    wait_for(lambda: zipfile.is_zipfile(tmp_path / "guess-0.zip"))
    served.open(chrome, "/studies/guess/report")
    see(chrome, "The winner: trial", "How to do it again")
    chrome.find_element("xpath", "//button[text()='Markdown']").click()
    told = tmp_path / "guess.md"
    wait_for(lambda: told.exists() and told.read_text().startswith("# guess\n"))
    chrome.execute_script("location.hash = '/studies/guess/winner'")
    see(chrome, "It can still be confirmed", "Confirm it")  # once the page knows what its token may
    click(chrome, "Confirm it")
    see(chrome, "The best 3 train again with new seeds.")
    click(chrome, "Confirm")
    WebDriverWait(chrome, 60).until(lambda _: not chrome.find_elements("css selector", "dialog[open]"))
    assert space_of(served.service.workspace, "guess").confirm.top == 3


def test_a_report_shows_a_trial_a_winner_and_a_comparison(
    chrome: webdriver.Chrome, served: Served, tmp_path: Path
) -> None:
    waiting = Told(pending=(Notice("1", {"type": "end_moved", "data": {}}),))
    change_told(open_tables(served.service.workspace.url), "tuned", "slack", lambda _: waiting)
    written = report.report(workspace=served.service.workspace, study=["tuned"])
    (tmp_path / "report.html").write_text(written.text)
    chrome.get("about:blank")
    complaints(chrome)
    chrome.get((tmp_path / "report.html").as_uri())
    see(chrome, "The winner: trial")  # it goes to its own screen first
    for place, wanted in (
        ("/studies/tuned/trials/0", ("Trial 0", "baseline", "The baseline of the space", "Curve")),
        ("/studies/tuned", ("What it says", "Not notified yet: slack (end moved).")),
        ("/studies/tuned/winner", ("How it was confirmed", "2 new seeds", "hpsearch export tuned", "Recipe")),
        ("/compare?of=tuned:0,tuned:1", ("trial 0", "trial 1", "the same in all")),
    ):
        chrome.execute_script("location.hash = arguments[0]", place)
        text = see(chrome, *wanted)
        assert "does not hold" not in text and "Download" not in text and "Try with changes" not in text
    assert complaints(chrome) == []


def test_a_report_has_one_best_counts_every_trial_and_fits_a_phone(
    chrome: webdriver.Chrome, served: Served, tmp_path: Path
) -> None:
    name = "a_study_with_a_name_as_long_as_this_one_that_has_no_spaces"
    spec = small(name=name, early_stopping={"method": "none", "max": 3})
    attrs = {SPEC: spec.to_json(), PROVENANCE: {}}
    live = open_live(open_storage(served.service.workspace.url), name, goal=spec.goal, attrs=attrs)
    study = optuna.load_study(study_name=name, storage=live)
    about: dict[str, Any] = {"distributions": {"x": FloatDistribution(0.0, 1.0)}, "params": {"x": 0.5}}
    study.add_trial(create_trial(value=0.5, system_attrs={TOOK: 3.0}, **about))
    for state in (TrialState.PRUNED, TrialState.PRUNED, TrialState.FAIL):  # as soon as they had begun
        study.add_trial(create_trial(state=state, intermediate_values={1: 0.25}, **about))
    live.flush()
    live.close()
    written = report.report(workspace=served.service.workspace, study=[name, "tuned"])
    (tmp_path / "report.html").write_text(written.text)
    narrow = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
    try:
        chrome.get("about:blank")
        chrome.get((tmp_path / "report.html").as_uri())
        see(chrome, "The best so far", "What they found")
        beyond = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert chrome.execute_script(beyond) == 0
        chrome.execute_script("location.hash = arguments[0]", f"/studies/{name}/report")
        see(
            chrome,
            "best loss 0.5 (trial 0)",
            "1 trial ran to its end",
            "2 trials stopped early",
            "1 trial failed",
        )
    finally:
        chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_of_a_study_of_several_pages_only_what_grows_is_painted_again(
    chrome: webdriver.Chrome, served: Served
) -> None:
    spec = small(name="large", early_stopping={"method": "none", "max": 3})
    attrs = {SPEC: spec.to_json(), PROVENANCE: {}}
    live = open_live(open_storage(served.service.workspace.url), "large", goal=spec.goal, attrs=attrs)
    study = optuna.load_study(study_name="large", storage=live)
    about: dict[str, Any] = {"distributions": {"x": FloatDistribution(0.0, 1.0)}}
    for x in (number / 1100 for number in range(1100)):
        study.add_trial(create_trial(params={"x": x}, value=x, intermediate_values={1: x, 3: x}, **about))
    began: dict[str, Any] = {"state": TrialState.RUNNING, "intermediate_values": {1: 0.5}}
    study.add_trial(create_trial(params={"x": 0.5}, **began, **about))
    live.flush()
    try:
        served.open(chrome, "/studies/large")
        see(chrome, "live", "What it says")
        label = "return document.querySelector('.plot')?.ariaLabel"
        WebDriverWait(chrome, 60).until(
            lambda _: "of 1,101 trials" in (chrome.execute_script(label) or ""), "not all are drawn"
        )
        for step in (2, 3):  # the first may come before all that stays is painted
            stays, *grows = drawn(chrome)
            live.set_trial_intermediate_value(live.trials[-1]._trial_id, step, 0.5)
            live.flush()
            wait_for(partial(have_grown, chrome, grows))
        assert drawn(chrome)[0] == stays
        chrome.execute_script("location.hash = '/studies/large?tab=trials'")
        see(chrome, "1,101 trials")
    finally:
        live.close()


def test_odd_names_values_and_errors_are_shown_and_cloned_as_they_are(
    chrome: webdriver.Chrome, served: Served
) -> None:
    lr = {"lr": FloatDistribution(1e-4, 1e-1, log=True)}
    spec = small(
        name="exp #1",
        parameters={"lr": {"min": 1e-4, "max": 1e-1, "log": True}},
        early_stopping={"method": "none", "max": 3},
    )
    attrs = {SPEC: spec.to_json(), PROVENANCE: {}}
    live = open_live(open_storage(served.service.workspace.url), spec.name, goal=spec.goal, attrs=attrs)
    study = optuna.load_study(study_name=spec.name, storage=live)
    for value in (1e308, 0.5, -1e308):
        about: dict[str, Any] = {"params": {"lr": 0.01}, "distributions": lr}
        study.add_trial(create_trial(value=value, intermediate_values={1: value, 3: value}, **about))
    turned = {"reason": "it is \u202eturned"}
    study.add_trial(create_trial(state=TrialState.FAIL, user_attrs=turned, **about))
    live.flush()
    live.close()
    complaints(chrome)
    served.open(chrome, "/studies/exp%20%231")
    see(chrome, "1 trial failed", "turned trial 3", "best")
    ends = (
        "const [error, link] = arguments[0].map((each) => document.querySelector(`.failures ${each}`));"
        "return link.getBoundingClientRect().left - error.getBoundingClientRect().right;"
    )
    assert chrome.execute_script(ends, ["bdi", "a"]) >= 0, "the link is turned with the error"
    chrome.execute_script(
        "window.labels = []; const of = CanvasRenderingContext2D.prototype, paint = of.fillText;"
        "of.fillText = function (text, x, y) { labels.push([text, x, y]); paint.call(this, text, x, y); };"
        "location.hash = '/studies/exp%20%231?tab=parameters'"
    )
    see(chrome, "Each parameter against loss")
    chrome.find_element("css selector", ".slice canvas")
    painted = {tuple(each) for each in chrome.execute_script("return labels")}
    places = sorted(x for text, x, _ in painted if text.startswith("0.0"))
    assert len(places) > 2 and all(b - a > 40 for a, b in pairwise(places)), painted
    assert len({text for text, *_ in painted if "e+307" in text}) > 2, painted
    of = "exp%20%231"
    for place, wanted in (
        ("/", "exp #1"),
        (f"/studies/{of}/trials/0", "winner, trial 2"),
        (f"/studies/{of}/winner", "Not confirmed"),
        (f"/studies/{of}/report", "How it was found"),
        (f"/compare?of={of}:0,{of}:2", "Parameters"),
    ):
        chrome.execute_script("location.hash = arguments[0]", place)
        see(chrome, wanted)
    assert complaints(chrome) == []
    chrome.execute_script("location.hash = '/submit?from=exp%20%231'")
    see(chrome, "name: 'exp #1_2'")
