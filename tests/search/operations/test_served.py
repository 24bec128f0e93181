"""Commands for a study that a service has, while nothing searches it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import optuna
import pytest

from hpsearch.search.operations import control
from hpsearch.search.operations.submit import submit
from hpsearch.storage.studies import PHASE, Phase
from hpsearch.storage.wanted import Wanted, change_wanted, read_wanted
from hpsearch.storage.workspace import Workspace

from ...support.spaces import small


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A workspace with a study whose only trial has failed, and its driver with it."""
    workspace = Workspace.at(str(tmp_path / "studies.db"))
    submit(workspace=workspace, space=small(objective="remote"), backend="remote")

    def failed(wanted: Wanted | None) -> Wanted | None:
        return wanted and replace(wanted, failure="all trials failed", killed=(1.0,))

    study = stored(workspace)
    study.tell(study.ask(), state=optuna.trial.TrialState.FAIL)
    change_wanted(study._storage._backend, "study", failed)  # type: ignore[attr-defined]
    return workspace


def stored(workspace: Workspace) -> optuna.Study:
    return optuna.load_study(study_name="study", storage=workspace.url)


def test_a_retry_lets_the_service_try_again(workspace: Workspace) -> None:
    database = optuna.storages.RDBStorage(workspace.url)
    assert control.retry(workspace=workspace, study="study").wanted == "run"
    wanted = read_wanted(database, "study")
    assert wanted is not None and (wanted.failure, wanted.killed) == (None, ())
    control.stop(workspace=workspace, study="study")
    study = stored(workspace)
    study.tell(study.ask(), state=optuna.trial.TrialState.FAIL)  # the one that waited
    assert control.retry(workspace=workspace, study="study").wanted == "stop"


def test_what_is_over_is_neither_paused_nor_resumed(workspace: Workspace) -> None:
    assert not control.pause(workspace=workspace, study="study").over
    stored(workspace).set_user_attr(PHASE, Phase.OVER)
    assert control.pause(workspace=workspace, study="study").over
    assert control.resume(workspace=workspace, study="study").over
