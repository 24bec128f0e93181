"""How fast the output of a command is read: MB per second of CPU, beside a reader that only passes it on.

    python benchmarks/output.py [--megabytes 1000] [--only log silent dots bar binary]

A program prints so much as a log with a report in every thousandth line, as the same log without any
(silent), as one line of dots without a line break, as progress bars that are written anew with values, as
tqdm does, 1,000 times in each of their epochs, or as random bytes, and a report at its end. `discard`
reads the same pipe and writes it to /dev/null, as `cat` does. The others are the sources of hpsearch, which
pass the output on to /dev/null too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hpsearch.objectives.user.command import CommandObjective

BAR = b"\rEpoch %d:  %02d%%|###      | %d/1000 [00:12<00:24, %.2fit/s, loss=0.%03d, val_loss=0.%05d]"
LOG = "2026-01-01 12:00:00,123 INFO step %d loss 0.52 lr 0.001 grad_norm 1.25 in 0.31 s\n"
WRITER = """
import os, sys
kind, size = sys.argv[1], int(sys.argv[2])
out = sys.stdout.buffer
number = 0
block = {**dict.fromkeys(("log", "silent"), lambda: "".join(LOG % n for n in range(999)).encode()),
         "dots": lambda: b"." * (1 << 16), "binary": lambda: os.urandom(1 << 16),
         "bar": lambda: b""}[kind]()
while size > 0:
    if kind == "bar":
        number += 1
        block = b"".join(BAR % (number, n // 10, n, n / 900, n, number) for n in range(1000))
    out.write(block)
    size -= len(block)
    if kind == "log":
        number += 1
        out.write(b"epoch %d val_loss 0.5\\n" % number)
number += 1
out.write(b"\\n%s %d%s\\n" % ((b"Epoch", number, b": | val_loss=0.5") if kind == "bar" else
                              (b"epoch", number, b" val_loss 0.5")))
"""
SOURCES: dict[str, dict[str, str]] = {
    "auto": {},
    "stdout": {"stdout": r"epoch (?P<step>\d+) val_loss (?P<value>\S+)"},
}
BAR_PATTERN = r"Epoch (?P<step>\d+):.* val_loss=(?P<value>[\d.]+)"


class BenchTrial:
    """Counts reports."""

    number = seed = trained = reported = 0
    resume_from = last_value = None
    params: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        self.checkpoint = folder / "checkpoint"
        self.checkpoint.mkdir(exist_ok=True)
        self.reports = 0

    def report(self, value: float, step: int, **metrics: float) -> None:
        self.reports += 1

    def set_attribute(self, name: str, value: Any) -> None:
        """Nobody reads it."""

    def remark(self, kind: str, text: str) -> None:
        """Nobody reads it."""


def discarded(words: list[str]) -> None:
    """Read what a program prints, and write it to /dev/null."""
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process, open(os.devnull, "wb") as null:
        assert process.stdout is not None
        while piece := os.read(process.stdout.fileno(), 1 << 16):
            null.write(piece)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--only", nargs="*", default=["log", "silent", "dots", "bar", "binary"])
    options = parser.parse_args()
    out = os.dup(1)
    null = os.open(os.devnull, os.O_WRONLY)
    with tempfile.TemporaryDirectory() as name:
        script = Path(name) / "writer.py"
        script.write_text(WRITER.replace("LOG", repr(LOG)).replace("BAR", repr(BAR)))
        os.write(out, b"output   reader    MB/s  reports\n")
        for kind in options.only:
            words = [sys.executable, str(script), kind, str(options.megabytes * 10**6)]
            for reader in ("discard", *SOURCES):
                trial, report = BenchTrial(Path(name)), SOURCES.get(reader, {})
                report = {"stdout": BAR_PATTERN} if report and kind == "bar" else report
                begun = time.process_time()
                if reader == "discard":
                    discarded(words)
                else:
                    os.dup2(null, 1)
                    CommandObjective(words, "val_loss", report=report)(trial)
                    os.dup2(out, 1)
                speed = options.megabytes / (time.process_time() - begun)
                os.write(out, f"{kind:<8} {reader:<8} {speed:5.0f}  {trial.reports:7}\n".encode())


if __name__ == "__main__":
    main()
