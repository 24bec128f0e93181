"""Writes the report of a search of `lora`, in which fewer trials train: `python docs/report.py lora.html`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from hpsearch.search import run
from hpsearch.search.operations.report import report
from hpsearch.storage.workspace import Workspace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--trials", type=int, default=24, help="two minutes on two cores")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.at(str(Path(folder) / "studies.db"), Path(folder) / "runs")
        run("lora", storage=workspace.url, runs=workspace.runs, budget={"trials": options.trials})
        options.file.write_text(report(workspace=workspace, study=["lora"]).text, encoding="utf-8")


if __name__ == "__main__":
    main()
