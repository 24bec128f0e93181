"""A configuration to train says where the values of its command come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpsearch.search.trials.document import load_document
from hpsearch.search.trials.yaml_text import block_of
from hpsearch.spaces import SpaceError

COMMAND = "objective: {command: [python, a.py]}\nparameters: {x: 1, deep: {y: 2}}\n"


def test_the_source_is_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "best.yaml"
    path.write_text(COMMAND + "report: {file: '${run}/${deep.y}.csv', value: loss}\n")
    document = load_document(path)
    assert document.report == {"file": "${run}/${deep.y}.csv", "value": "loss"}
    path.write_text(block_of(document.content()))
    assert load_document(path).report == document.report
    path.write_text(COMMAND)
    assert load_document(path).report == {} and "report" not in load_document(path).content()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (COMMAND + "report: {flie: a}\n", "report.flie"),
        (COMMAND + "report: {file: a, wandb: b}\n", "report: needs one source"),
        (COMMAND + "report: {stdout: a}\n", "report.stdout: needs a group"),
        (COMMAND + "report: {file: '${x}/${z}'}\n", "report.file: has an unknown macro"),
        (COMMAND + "report: x\n", "report: must be auto or a source"),
        ("parameters: {x: 1}\nreport: {file: a}\n", "report: is for a command"),
    ],
)
def test_a_wrong_source_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "best.yaml").write_text(text)
    with pytest.raises(SpaceError) as caught:
        load_document(tmp_path / "best.yaml")
    assert said in str(caught.value)
