"""A study of an earlier hpsearch opens, goes on and exports with the same bits.

`older/study.zip` holds the database and `runs/` of a search of `older/space.yaml` whose driver was killed at its
ninth trial, `older/trials.json` and `older/best.yaml` what that hpsearch made of it when it went on:

    KILL=1 hpsearch run space.yaml; hpsearch run space.yaml; hpsearch export older
"""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search import open_study

from ...support.bench import HPSEARCH

OLDER = Path(__file__).with_name("older")
TOLD = ("reason", "baseline", "hpsearch:events", "confirms", "confirms_seed")  # attributes without a time


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("objective.py", "space.yaml"):
        (tmp_path / name).write_bytes((OLDER / name).read_bytes())
    with zipfile.ZipFile(OLDER / "study.zip") as kept:
        kept.extractall(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def hpsearch(*words: str) -> str:
    done = subprocess.run([HPSEARCH, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def trials() -> list[dict[str, Any]]:
    return [
        {
            "number": trial.number,
            "state": trial.state.name,
            "value": trial.value,
            "params": trial.params,
            "values": {str(step): value for step, value in trial.intermediate_values.items()},
            "attrs": {name: value for name, value in trial.user_attrs.items() if name in TOLD},
        }
        for trial in open_study("older").study.get_trials()
    ]


def test_a_study_of_an_earlier_hpsearch_goes_on_as_it_would_have(folder: Path) -> None:
    assert [trial["state"] for trial in trials()] == ["COMPLETE", *["RUNNING"] * 7, "WAITING"]
    assert "older" in hpsearch("list") and "paused" in hpsearch("show", "older")
    hpsearch("run", "space.yaml")
    kept = (OLDER / "trials.json").read_text()
    there = re.sub(r"\bat (\d+) steps?\b", r"at step \1", kept)  # as reasons have it now
    assert trials() == json.loads(there) and there != kept
    exported = hpsearch("export", "older")  # it has one line more: where the files of its objective are
    assert re.sub(r"  space_folder: .*\n", "", exported) == (OLDER / "best.yaml").read_text()
