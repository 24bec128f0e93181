"""The note of a study, as optuna-dashboard reads it."""

from __future__ import annotations

import optuna
import pytest
from optuna_dashboard import get_note, save_note

from hpsearch.search.results.note import study_note, write_note
from hpsearch.spaces import Spec
from hpsearch.storage.trial_attrs import AT_RUNG, AUDITED, CONFIRMS


@pytest.mark.parametrize("count", [1, 200])
def test_the_dashboard_reads_the_note_whole_and_goes_on_from_it(count: int) -> None:
    spec = Spec.from_json(
        {
            "version": 1,
            "name": "noted",
            "objective": "mine:train",
            "metric": "loss",
            "parameters": {f"parameter_{n}": {"min": 0.0, "max": 1.0} for n in range(count)},
            "budget": {"trials": 1},
        }
    )
    study = optuna.create_study(study_name="noted")
    write_note(study, spec)
    assert get_note(study) == study_note(spec)
    for attribute in (AT_RUNG, AUDITED, CONFIRMS):
        assert f"`{attribute}`" in study_note(spec)
    assert (len(study_note(spec)) > 2045) == (count == 200)  # in one part, and in several
    save_note(study, "What was found.")
    write_note(study, spec)
    assert get_note(study) == "What was found."
