"""How soon the page shows a large study, in how much memory, and how fluid it stays, beside optuna-dashboard.

    python benchmarks/page.py [--trials 200 2000 20000] [--rounds 3] [--only hpsearch]

A SQLite file has a study of so many complete trials, with three parameters and twenty reports each, and fifty
running ones. In each round, each side has a server of its own that has just started on a copy of the file,
and a headless Chromium of its own, which has loaded the page's files once. It needs Chromium and
chromedriver. Each cell is the median of the rounds, and their range; `-`: not there after `--patience`
seconds, in some round.

- `curves`: from the navigation to the study until all its curves are painted; optuna-dashboard paints its
  history, importances and timeline with them, hpsearch what it says of the study before or soon after.
- `again`: the same once more, from a server that knows the study.
- `table`: from the navigation to the table of trials until its first rows are painted. optuna-dashboard has a
  list of trials in its place, with what is known of one beside it.
- `heap`: what JavaScript holds while the curves are shown, after a collection of garbage.
- `process`: the memory of the process that shows them, without what it shares.
- `scrolling`: the longest time between two frames while the table is scrolled for `--scrolled` seconds.
- `50 reports/s`: the same while the curves are shown for `--watched` seconds, and each running trial reports
  a value a second. hpsearch draws what comes in at once, optuna-dashboard reads the study every ten seconds.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import psutil
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState, create_trial
from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.support.wait import WebDriverWait
from service import running, server_of_ours, until

from hpsearch.spaces import loads
from hpsearch.storage.database import open_storage
from hpsearch.storage.studies import PROVENANCE, SPEC, open_live

STUDY = "large"
REPORTS, RUNNING = 20, 50
SPACE = f"""
version: 1
name: {STUDY}
objective: remote
metric: loss
parameters:
  learning_rate: {{min: 1e-4, max: 1e-1, log: true}}
  dropout: {{min: 0.0, max: 0.5}}
  schedule: [constant, linear, cosine]
early_stopping: {{method: none, max: {REPORTS}}}
budget: {{trials: 1000000}}
"""
RANGES: dict[str, BaseDistribution] = {
    "learning_rate": FloatDistribution(1e-4, 1e-1, log=True),
    "dropout": FloatDistribution(0.0, 0.5),
    "schedule": CategoricalDistribution(("constant", "linear", "cosine")),
}
DRAWS: dict[str, Callable[[random.Random], Any]] = {
    "learning_rate": lambda drawn: 10 ** drawn.uniform(-4, -1),
    "dropout": lambda drawn: drawn.uniform(0.0, 0.5),
    "schedule": lambda drawn: drawn.choice(("constant", "linear", "cosine")),
}
COLUMNS = (
    "curves, s",
    "again, s",
    "table, s",
    "heap, MiB",
    "process, MiB",
    "scrolling, ms",
    "50 reports/s, ms",
)

# Notes when it is painted, in ms since the navigation; %s is whether it is there.
WAIT = """
const look = () =>
  requestAnimationFrame((%s) ? () => setTimeout(() => (window.painted = performance.now())) : look);
requestAnimationFrame(look);
"""
# The longest time between two frames within so many ms, while something may be scrolled.
FRAMES = """
const [lasting, selector, done] = arguments;
const boxes = selector ? [...document.querySelectorAll(selector)] : [];
const [box] = boxes.sort((one, other) => other.scrollHeight - one.scrollHeight);
const began = performance.now();
let [last, longest] = [began, 0];
const frame = (now) => {
  longest = Math.max(longest, now - last);
  last = now;
  if (box) box.scrollTop = (box.scrollTop + 170) % Math.max(1, box.scrollHeight - box.clientHeight);
  now - began < lasting ? requestAnimationFrame(frame) : done(longest);
};
requestAnimationFrame(frame);
"""


@contextmanager
def page_of_ours(folder: Path) -> Iterator[tuple[str, str]]:
    """`hpsearch serve`: its address, and the one to open first."""
    with server_of_ours(folder) as link:
        yield link["url"], f"{link['url']}/#token={link['token']}"


@contextmanager
def dashboard(folder: Path) -> Iterator[tuple[str, str]]:
    """optuna-dashboard, as its own command serves it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("optuna-dashboard")), f"sqlite:///{folder}/studies.db"]
    with running(
        [*command, "--port", str(port), "--quiet"], folder, "dashboard.log", is_read=False
    ) as server:
        until(lambda: _listens(port), server, folder)
        url = f"http://127.0.0.1:{port}"
        yield url, f"{url}/dashboard"


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@dataclass(frozen=True)
class Side:
    """What shows the study. What is shown is asked in JavaScript, with `%s` for the number of trials."""

    serve: Callable[[Path], AbstractContextManager[tuple[str, str]]]
    curves: str  # where the curves are, after the server's address
    curves_shown: str
    table: str
    table_shown: str
    scrolled: str  # the elements of which the longest scrolls the table


SIDES = {
    "hpsearch": Side(
        serve=page_of_ours,
        curves=f"/#/studies/{STUDY}",
        curves_shown="document.querySelector('.plot')?.ariaLabel"
        ".includes(` of ${(%s).toLocaleString('en-US')} trials`)",
        table=f"/#/studies/{STUDY}?tab=trials",
        table_shown="document.querySelector('.table table')?.ariaRowCount > %s"
        " && document.querySelectorAll('.table tbody tr').length >= 10",
        scrolled=".table",
    ),
    "optuna-dashboard": Side(
        serve=dashboard,
        curves="/dashboard/studies/1",
        curves_shown="document.querySelector('#graph-intermediate-values .scatterlayer')"
        "?.childElementCount >= %s",
        table="/dashboard/studies/1/trials",
        table_shown="%s && document.querySelectorAll('main .MuiListItemButton-root').length >= 10",
        scrolled="main .MuiBox-root",
    ),
}


# Studies


def fill(database: Path, trials: int) -> None:
    """Make a study of complete trials, in one transaction, and running trials that have reported nothing."""
    spec, drawn = loads(SPACE), random.Random(0)
    attrs = {SPEC: spec.to_json(), PROVENANCE: {"backend": "remote"}}
    live = open_live(open_storage(f"sqlite:///{database}", create=True), STUDY, goal=spec.goal, attrs=attrs)
    study = optuna.load_study(study_name=STUDY, storage=live)
    for number in range(trials + RUNNING):
        params = {name: draw(drawn) for name, draw in DRAWS.items()}
        ends = 0.2 + 0.1 * abs(math.log10(params["learning_rate"]) + 2.5) + 0.2 * params["dropout"]
        reports = {step: ends + 2 / step + drawn.gauss(0, 0.01) for step in range(1, REPORTS + 1)}
        over: dict[str, Any] = {"value": reports[REPORTS], "intermediate_values": reports}
        runs = {"state": TrialState.RUNNING}
        study.add_trial(
            create_trial(params=params, distributions=RANGES, **(over if number < trials else runs))
        )
    live.flush()
    live.close()


@contextmanager
def reporting(database: Path) -> Iterator[None]:
    """The running trials report a value a second each, in turn, as their driver would write it."""
    spec, over = loads(SPACE), threading.Event()
    live = open_live(open_storage(f"sqlite:///{database}"), STUDY, goal=spec.goal, attrs={})
    open_trials = [trial for trial in live.trials if trial.state == TrialState.RUNNING]

    def report() -> None:
        began = time.monotonic()
        for count in itertools.count():
            trial, step = open_trials[count % RUNNING], 1 + count // RUNNING
            live.set_trial_intermediate_value(trial._trial_id, step, 0.5 + 2 / step)
            live.flush()
            if over.wait(max(0.0, began + (count + 1) / RUNNING - time.monotonic())):
                return

    thread = threading.Thread(target=report)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        live.close()


# Measuring


@contextmanager
def browser(patience: float) -> Iterator[webdriver.Chrome]:
    """A Chromium that nobody has used, whose questions may take so many seconds."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1400,1200"):
        options.add_argument(argument)
    options.page_load_strategy = "none"
    with webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver"))) as chrome:
        chrome.set_script_timeout(patience)
        yield chrome


def painted(chrome: webdriver.Chrome, address: str, shown: str, patience: float) -> float:
    """Open an address; the seconds until something is painted there. Raises `TimeoutException`."""
    chrome.get("about:blank")
    script = chrome.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WAIT % shown})
    chrome.get(address)
    found = WebDriverWait(chrome, patience, 0.2).until(
        lambda _: chrome.execute_script("return window.painted")
    )
    chrome.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    return float(found) / 1e3


def memory(chrome: webdriver.Chrome) -> tuple[float, float]:
    """The MiB of JavaScript, and of the process that shows the page."""
    chrome.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
    chrome.execute_cdp_cmd("Performance.enable", {})
    metrics = {
        each["name"]: each["value"]
        for each in chrome.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    }
    assert chrome.service.process is not None
    family = psutil.Process(chrome.service.process.pid).children(recursive=True)
    pages = [each.memory_full_info().uss for each in family if "--type=renderer" in each.cmdline()]
    return metrics["JSHeapUsedSize"] / 2**20, max(pages) / 2**20


def measured(side: Side, database: Path, trials: int, options: argparse.Namespace) -> dict[str, float]:
    """A round of a side: what was found before its patience ended."""
    found: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="page-", ignore_cleanup_errors=True) as where,
        ExitStack() as ending,
    ):
        copy = Path(where) / "studies.db"
        shutil.copy(database, copy)
        chrome = ending.enter_context(browser(options.patience))
        url, first = ending.enter_context(side.serve(Path(where)))
        with suppress(TimeoutException):
            painted(chrome, first, "document.querySelector('a')", options.patience)
            curves = (f"{url}{side.curves}", side.curves_shown % trials, options.patience)
            found["curves, s"] = painted(chrome, *curves)
            found["again, s"] = painted(chrome, *curves)
            found["heap, MiB"], found["process, MiB"] = memory(chrome)
            with reporting(copy):
                longest = chrome.execute_async_script(FRAMES, 1e3 * options.watched, None)
                came = f"return {side.curves_shown % (trials + RUNNING)}"
                WebDriverWait(chrome, options.patience, 0.2).until(lambda _: chrome.execute_script(came))
                found["50 reports/s, ms"] = longest
            found["table, s"] = painted(
                chrome, f"{url}{side.table}", side.table_shown % trials, options.patience
            )
            found["scrolling, ms"] = chrome.execute_async_script(
                FRAMES, 1e3 * options.scrolled, side.scrolled
            )
    return found


def cell(figures: list[float], rounds: int) -> str:
    """The median and the range, if it was there in each round."""
    if len(figures) < rounds:
        return "-"
    middle, least, most = (
        f"{each:.2f}" if each < 10 else f"{each:,.0f}"
        for each in (statistics.median(figures), min(figures), max(figures))
    )
    return f"{middle} ({least} to {most})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, nargs="+", default=[200, 2_000, 20_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--patience", type=float, default=100.0, help="seconds until something is given up")
    parser.add_argument("--scrolled", type=float, default=3.0, help="seconds that the table is scrolled")
    parser.add_argument("--watched", type=float, default=12.0, help="seconds that reports come in")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    print(f"{'':18}{'trials':>8}" + "".join(f"{title:>26}" for title in COLUMNS))
    with tempfile.TemporaryDirectory(prefix="page-") as where:
        for trials in options.trials:
            database = Path(where) / f"{trials}.db"
            fill(database, trials)
            found: dict[str, list[dict[str, float]]] = {name: [] for name in options.only}
            for _ in range(options.rounds):
                for name in options.only:
                    found[name].append(measured(SIDES[name], database, trials, options))
            for name, rounds in found.items():
                cells = (
                    cell([each[title] for each in rounds if title in each], len(rounds)) for title in COLUMNS
                )
                print(f"{name:18}{trials:8,}" + "".join(f"{each:>26}" for each in cells), flush=True)


if __name__ == "__main__":
    main()
