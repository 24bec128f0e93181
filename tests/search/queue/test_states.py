"""The state of a study, and why it is in it."""

from __future__ import annotations

import pytest

from hpsearch.search.queue.observe import Observed
from hpsearch.search.queue.states import state_of
from hpsearch.storage.wanted import Desired, Wanted

from ...support.spaces import SMALL


@pytest.mark.parametrize(("desired", "said"), [("run", "starting"), ("pause", "paused"), ("stop", "stopped")])
def test_a_process_that_ends_as_it_was_told_is_none_that_starts(desired: Desired, said: str) -> None:
    """It has no lock before it has the study, nor once it has left it."""
    study = Observed("study", 1, Wanted(since=0.0).to(desired, "anna", 1.0), SMALL)
    assert state_of(study, starting=True).state == said
