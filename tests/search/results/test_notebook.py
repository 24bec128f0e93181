"""A study in a notebook, with IPython's own shell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from hpsearch.search import open_study
from hpsearch.search.errors import SearchError
from hpsearch.search.operations import run
from hpsearch.search.results.notebook import Study, study_html, watch
from hpsearch.search.results.report import study_report
from hpsearch.storage.studies import Phase
from hpsearch.storage.workspace import Workspace

from ...support.in_process import InProcessBackend
from ...support.spaces import small
from ...support.watchers import Recorder

OBJECTIVE = "def train(trial):\n    return (trial.params['x'] - 0.3) ** 2\n"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "train.py").write_text(OBJECTIVE)
    storage = str(folder / "studies.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(
            "hpsearch.search.operations.run.make_backend", lambda name, *of: InProcessBackend(*of[:2])
        )
        space = small(name="a<b", objective="train.py:train")
        run.run(workspace=Workspace.at(storage), space=space, watcher=Recorder())
    return open_study("a<b", storage=storage)


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell.instance()
    yield shell
    InteractiveShell.clear_instance()


def drawn(outputs: list[Any]) -> list[str]:
    return [output.data["text/html"] for output in outputs]


def test_a_study_shows_itself(study: Study, shell: InteractiveShell) -> None:
    formatter: Any = shell.display_formatter
    html = formatter.format(study)[0]["text/html"]
    assert "a&lt;b" in html and "a<b" not in html
    assert f"{study.best.value:.6g} (trial {study.best.number})" in html
    assert "not confirmed" in html and "4 of 4: 4 complete" in html


def test_watching_ends_with_the_search(study: Study, shell: InteractiveShell) -> None:
    last = study_report(study)
    reports = iter([replace(last, searching=7, phase=Phase.SEARCHING), last])
    with capture_output(display=True) as captured:
        watch(lambda: next(reports), every=0)
    assert drawn(captured.outputs) == [
        study_html(replace(last, searching=7, phase=Phase.SEARCHING)),
        study_html(last),
    ]
    with capture_output(display=True) as captured:
        study.watch()
    assert drawn(captured.outputs) == [study_html(last)]


def test_interrupting_the_cell_is_no_error(study: Study, shell: InteractiveShell) -> None:
    looks = 0

    def read() -> Any:
        nonlocal looks
        looks += 1
        if looks > 1:
            raise KeyboardInterrupt
        return replace(study_report(study), searching=7)

    with capture_output(display=True) as captured:
        watch(read, every=0)
    assert looks == 2 and len(captured.outputs) == 1


def test_outside_of_a_notebook_it_says_so(study: Study) -> None:
    with pytest.raises(SearchError, match="in a terminal, hpsearch top"):
        study.watch()
