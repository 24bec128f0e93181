"""What a look at the database finds of a study."""

from __future__ import annotations

import time
from pathlib import Path

import optuna

from hpsearch.search.operations.submit import submit
from hpsearch.search.queue.observe import observe, with_times
from hpsearch.storage.database import open_storage
from hpsearch.storage.trial_attrs import AT_RUNG
from hpsearch.storage.workspace import Workspace

from ...support.spaces import small


def test_which_trials_have_a_worker_and_when_they_began_and_ended(tmp_path: Path) -> None:
    workspace = Workspace.at(str(tmp_path / "studies.db"))
    submit(workspace=workspace, space=small(objective="remote"), backend="remote")
    database, before = open_storage(workspace.url), time.time()
    study = optuna.load_study(study_name="study", storage=workspace.url)
    at_rung, running = study.ask(), study.ask()
    at_rung.set_user_attr(AT_RUNG, 3)
    (seen,) = observe(workspace, database)
    assert seen.running == seen.progress.running == 1
    (begun,) = with_times(database, [seen])
    running.report(0.5, step=4)
    study.tell(running, 0.5)
    (counted,) = observe(workspace, database)
    assert (counted.progress.begun, counted.progress.trained, counted.progress.ended) == (1, 4, 1)
    (ended,) = with_times(database, [seen])
    assert begun.ended is None and begun.began is not None and ended.ended is not None
    assert before <= begun.began <= ended.ended <= time.time()
