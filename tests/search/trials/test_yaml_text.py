"""Values as YAML that readers of YAML 1.1 and 1.2 read alike."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from ruamel.yaml import YAML

from hpsearch.search.trials.yaml_text import block_of, text_of
from hpsearch.spaces.document import written

AMBIGUOUS = [
    *("no", "NO", "on", "yes", "y", "True", "~", "null", "=", "<<", "12:30", "1:2:3.5", "0b1", "0o17", "010"),
    *("0x1F", "1_000", "1.", ".5", "+1", "-.inf", ".NaN", "1e5", "1e-05", "2024-01-01", "2024-1-1 12:00:00"),
]
OTHERS = [
    "plain",
    "a b",
    "it's",
    "no: #1",
    "- x",
    "@x",
    "!t",
    "&a",
    "*a",
    "{",
    "x\ny",
    " \u00e9",
    "12:90",
    "1.2.3",
]


def test_a_text_stays_a_text(subtests: pytest.Subtests) -> None:
    for text in ["", *AMBIGUOUS, *OTHERS]:
        with subtests.test(text):
            content = {"a": text, "l": [text, 1], text: {"b": text}}
            for form in (block_of(content), text_of(content)):
                assert yaml.safe_load(form) == YAML(typ="safe", pure=True).load(form) == content


def test_people_see_quotes_around_what_could_be_read_as_something_else(subtests: pytest.Subtests) -> None:
    for text in AMBIGUOUS:
        with subtests.test(text):
            assert written(text) == f'"{text}"'


@pytest.mark.parametrize("text", ["plain", "12:90", "1.2.3", "nobody", "v1", "2024-01", "cosine", "a=b"])
def test_other_texts_stand_as_they_are(text: str) -> None:
    assert written(text) == text
    assert block_of([text]) == f"- {text}\n"


@pytest.mark.parametrize("value", [1e-05, 1e22, 0.5, -3.0, 7, True, None, math.inf])
def test_a_number_stays_a_number(value: Any) -> None:
    for content in ({"a": value}, {"a": [value]}):
        assert (
            yaml.safe_load(block_of(content))
            == YAML(typ="safe", pure=True).load(block_of(content))
            == content
        )
