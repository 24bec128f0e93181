"""What a user sees: the served dashboard in a headless Chromium."""

import base64
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.artifacts import FileSystemArtifactStore, upload_artifact
from optuna.storages import RDBStorage
from optuna_dashboard import save_note
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

pytestmark = pytest.mark.browser

NOTE = """# Findings

The best **learning rate** lies near `0.01`.

| trial | val_loss |
|-------|----------|
| 3     | 1.71     |
"""
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SERVE = """
import sys
from pathlib import Path
from hpsearch.search.dashboard import serve
url, runs, *write = sys.argv[1:]
serve(url, runs=Path(runs), port=0, write=bool(write), announce=lambda line: print(line, flush=True))
"""


def make_study(file: Path, artifacts: Path) -> None:
    """Twelve trials of two parameters with curves, every third pruned, an image, and a note."""
    storage = RDBStorage(f"sqlite:///{file}")
    study = optuna.create_study(storage=storage, study_name="lora", sampler=optuna.samplers.RandomSampler(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names(["val_loss"])
    for number in range(12):
        trial = study.ask()
        if number == 0:
            image = artifacts / "curve.png"
            image.write_bytes(PIXEL)
            store = FileSystemArtifactStore(artifacts)
            upload_artifact(artifact_store=store, file_path=str(image), study_or_trial=trial)
        rate = trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True)
        rank = trial.suggest_int("lora_r", 2, 32)
        steps = 3 if number % 3 == 2 else 10
        for step in range(1, steps + 1):
            trial.report(value := 1.5 + 10 * abs(rate - 0.01) + 1 / step + rank / 100, step)
        if steps < 10:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            study.tell(trial, value)
    save_note(study, NOTE)
    storage.engine.dispose()


@pytest.fixture(scope="module")
def chrome() -> Iterator[webdriver.Chrome]:
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


@pytest.fixture
def page(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a served study; `indirect` parameters are further options of the server."""
    (tmp_path / "artifacts").mkdir()
    make_study(tmp_path / "studies.db", tmp_path / "artifacts")
    options: list[str] = getattr(request, "param", [])
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, f"sqlite:///{tmp_path / 'studies.db'}", str(tmp_path), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        pytest.fail(process.communicate()[1])
    yield line.split(" at ")[1].split(" ")[0]
    process.terminate()
    assert process.communicate(timeout=60) == ("", "")


def see(chrome: webdriver.Chrome, *texts: str) -> str:
    """Wait until the page shows these texts, and return all that it shows."""

    def shown(_: object) -> str | None:
        # One script: what React draws anew between two questions cannot go stale.
        text = str(chrome.execute_script("return document.body.innerText"))
        return text if all(wanted in text for wanted in texts) else None

    found = WebDriverWait(chrome, 60).until(shown, f"the page never showed {texts}")
    assert found is not None
    return found


def complaints(chrome: webdriver.Chrome) -> list[str]:
    """The pop-ups on the page, and what it could not load or run since it was last asked."""
    popups = chrome.find_elements(By.CSS_SELECTOR, "[class*='notistack'][role=alert]")
    log = chrome.get_log("browser")  # type: ignore[no-untyped-call]  # selenium has no types for it
    errors = [entry["message"] for entry in log if entry["level"] == "SEVERE"]
    return [popup.text for popup in popups] + errors


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
    see(chrome, "Complete", "Pruned", "Trial 0", "learning_rate", "Artifacts")
    loaded = "return [...document.querySelectorAll('img[src*=artifacts]')].map(i => i.naturalWidth)"
    WebDriverWait(chrome, 60).until(lambda _: chrome.execute_script(loaded) == [1], "no image artifact")
    chrome.save_screenshot(str(tmp_path / "3-trials.png"))
    assert complaints(chrome) == []

    chrome.get(f"{page}/dashboard/studies/1/note")
    text = see(chrome, "Findings", "learning rate", "1.71")
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
    see(chrome, "Findings")
    chrome.find_elements(By.TAG_NAME, "button")[-1].click()  # the pencil
    see(chrome, "SAVE")
    chrome.find_element(By.TAG_NAME, "textarea").send_keys("Written in the browser.")
    chrome.find_element(By.XPATH, "//button[text()='Save']").click()
    see(chrome, answer)
    chrome.save_screenshot(str(tmp_path / "5-saved.png"))
    # Not asked for complaints: optuna-dashboard 0.21 itself stumbles over its own success here.
    chrome.refresh()
    saved = answer == "Written in the browser."
    assert saved == ("Written in the browser." in see(chrome, "Findings"))
