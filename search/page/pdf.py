"""A report as PDF, printed by a browser without a window."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

BROWSERS = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
    "microsoft-edge", "msedge",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)  # fmt: skip
LONGEST = 180.0  # seconds


class PrintError(Exception):
    """There is no browser that can print, or it did not."""


def print_pdf(html: str) -> bytes:
    """A document as PDF. Raises `PrintError` where no browser can print it."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise PrintError("a PDF is printed by Chromium, Chrome or Edge, and none of them is on the PATH")
    with tempfile.TemporaryDirectory() as folder:
        source, printed = Path(folder, "report.html"), Path(folder, "report.pdf")
        source.write_text(html, encoding="utf-8")
        words = [
            browser, "--headless", "--disable-gpu", "--no-pdf-header-footer", "--no-first-run",
            f"--user-data-dir={folder}/profile", "--virtual-time-budget=20000", f"--print-to-pdf={printed}",
            # Chromium refuses to sandbox for root; the document is ours, and may ask nobody for anything.
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            source.as_uri(),
        ]  # fmt: skip
        try:
            done = subprocess.run(words, capture_output=True, timeout=LONGEST, check=False)
        except subprocess.TimeoutExpired as error:
            raise PrintError(f"{browser} did not print within {LONGEST:.0f} s") from error
        except OSError as error:
            raise PrintError(f"{browser} cannot be started: {error.strerror}") from error
        if done.returncode != 0 or not printed.is_file():
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise PrintError(f"{browser} could not print: {said[-1] if said else 'it says nothing'}")
        return printed.read_bytes()
