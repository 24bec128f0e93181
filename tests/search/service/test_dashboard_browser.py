"""What a user sees: the served dashboard in a headless Chromium."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from hpsearch.search import run

from ...support.browsing import complaints, see

pytestmark = pytest.mark.browser

SPACE = """\
version: 1
name: lora
objective: "objective.py:train"
metric: val_loss
parameters:
  learning_rate: {min: 1e-4, max: 1e-1, log: true}
  lora_r: {min: 2, max: 32, factor: 2}
baseline: {learning_rate: 1e-3, lora_r: 8}
early_stopping: {method: hyperband, min: 1, max: 9, eta: 3}
budget: {trials: 12}
execution: {workers: 1}
"""
OBJECTIVE = """\
def train(trial):
    for step in range(1, 10):
        value = 1.5 + 10 * abs(trial.params["learning_rate"] - 0.01) + 1 / step
        trial.report(value, step=step)
    return value
"""
DASHBOARD = "import sys; from hpsearch.search.cli import main; sys.argv[0] = 'hpsearch'; main()"


def search(folder: Path) -> None:
    """A real search: a dozen trials, some pruned, with the note and the files that it leaves."""
    (folder / "space.yaml").write_text(SPACE)
    (folder / "objective.py").write_text(OBJECTIVE)
    result = run(folder / "space.yaml", storage=str(folder / "studies.db"))
    states = set(result.trials["state"])
    assert states == {"COMPLETE", "PRUNED"}


@pytest.fixture
def page(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a served study; `indirect` parameters are further options of the command."""
    monkeypatch.chdir(tmp_path)
    search(tmp_path)
    words = ["dashboard", "--port", "0", "--storage", "studies.db", *getattr(request, "param", [])]
    process = subprocess.Popen(
        [sys.executable, "-c", DASHBOARD, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        pytest.fail(process.communicate()[1])
    yield line.split(" at ")[1].split(" ")[0]
    process.terminate()
    assert process.communicate(timeout=60) == ("", "")


def test_a_user_finds_the_study_its_trials_and_its_note(
    chrome: webdriver.Chrome, page: str, tmp_path: Path
) -> None:
    complaints(chrome)  # those of an earlier test
    chrome.get(page)
    see(chrome, "lora")
    chrome.save_screenshot(str(tmp_path / "1-studies.png"))
    assert complaints(chrome) == []

    WebDriverWait(chrome, 60).until(
        lambda _: chrome.find_element(By.CSS_SELECTOR, "a[href='/dashboard/studies/1']")
    ).click()
    see(chrome, "val_loss", "Best Trial", "learning_rate")
    chrome.save_screenshot(str(tmp_path / "2-study.png"))
    assert complaints(chrome) == []

    chrome.get(f"{page}/dashboard/studies/1/trials")
    see(chrome, "Complete", "Pruned", "Trial 0", "learning_rate", "Artifacts", "config.json", "metrics.jsonl")
    chrome.save_screenshot(str(tmp_path / "3-trials.png"))
    assert complaints(chrome) == []

    chrome.get(f"{page}/dashboard/studies/1/note")
    text = see(chrome, "Searches", "learning_rate", "int 2 4 8 16 32", "bracket 0")
    assert "**" not in text, "the note is shown as Markdown source"
    chrome.save_screenshot(str(tmp_path / "4-note.png"))
    assert complaints(chrome) == []


@pytest.mark.parametrize(
    ("page", "answer"),
    [([], "this dashboard is read-only; start it with --write"), (["--write"], "Written in the browser.")],
    indirect=["page"],
)
def test_an_edited_note_is_saved_or_refused_with_the_reason(
    chrome: webdriver.Chrome, page: str, answer: str, tmp_path: Path
) -> None:
    chrome.get(f"{page}/dashboard/studies/1/note")
    see(chrome, "Searches")
    chrome.find_elements(By.TAG_NAME, "button")[-1].click()  # the pencil
    see(chrome, "SAVE")
    chrome.find_element(By.TAG_NAME, "textarea").send_keys("Written in the browser.")
    chrome.find_element(By.XPATH, "//button[text()='Save']").click()
    see(chrome, answer)
    chrome.save_screenshot(str(tmp_path / "5-saved.png"))
    # Not asked for complaints: optuna-dashboard 0.21 itself stumbles over its own success here.
    chrome.refresh()
    saved = answer == "Written in the browser."
    assert saved == ("Written in the browser." in see(chrome, "Searches"))
