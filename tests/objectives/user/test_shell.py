"""The words of commands, and of the strings that they hand to a shell."""

from __future__ import annotations

import pytest

from hpsearch.objectives.user.macros import absent
from hpsearch.objectives.user.shell import shell_string, shell_words, without_absent


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("./t --lr=${lr} --m=${m}", "./t --lr=${lr}"),
        ("./t --m ${m} --lr ${lr}", "./t --lr ${lr}"),
        ("./t -m ${m}", "./t"),
        ("./t --on=1 ${m} ${args}", "./t --on=1 ${args}"),  # no option of it: it has a value
        ("./t --${lr} ${m} x", "./t --${lr} x"),
        ("./t --name=${lr}-${m}", "./t"),
        ("./t --name a-${m} b", "./t b"),
        ("./t --on --m=${m}", "./t --on"),
        ("./t ${opt.m} m=${opt.m}", "./t"),
        ("./t ${config:t.yaml} ${n}", "./t ${config:t.yaml} ${n}"),
        ("bash t.sh -c ${m}", "bash t.sh"),
    ],
)
def test_words_with_absent_parameters_are_left_out(words: str, left: str) -> None:
    assert without_absent(words.split(), ["m", "opt.m"]) == left.split()


@pytest.mark.parametrize(
    ("string", "left"),
    [
        ("t --lr=${lr} --m=${m} --x=1", "t --lr=${lr} --x=1"),
        ("t --m ${m}; echo 'a  b'", "t; echo 'a  b'"),
        ("t '--m=${m}' --n=\"a ${m}\" > ${m}.log && u", "t > ${m}.log && u"),
        ("t ${config:a b.yaml seed=$seed} -m ${m}", "t ${config:a b.yaml seed=$seed}"),
        ("t \\\n  --m=${m} \\\n  --x", "t \\\n \\\n  --x"),
        ("t 'it --m=${m}", "t 'it --m=${m}"),  # nobody can read it, and so it fails
    ],
)
def test_it_falls_away_within_a_shells_string_too(string: str, left: str) -> None:
    assert without_absent(["bash", "-ec", string, "${m}"], ["m"]) == ["bash", "-ec", left]


def test_a_trial_lacks_what_neither_it_nor_a_part_of_it_has() -> None:
    assert absent(["a", "b", "c.d", "e"], {"a": None, "b.x": 1, "c.e": 2}) == ["c.d", "e"]


@pytest.mark.parametrize(
    ("command", "place"),
    [
        (["bash", "-c", "x"], 2),
        (["/bin/sh", "-o", "pipefail", "-ec", "x", "y"], 4),
        (["srun", "-n", "1", "zsh", "-lc", "x"], 5),
        (["python", "-c", "x"], None),
        (["bash", "run.sh", "--c", "x"], None),
        (["bash", "run.sh", "-c", "x"], None),
        (["env", "A=1", "bash", "+x", "-c", "x"], 5),
        (["bash", "-c"], None),
    ],
)
def test_the_string_of_a_shell(command: list[str], place: int | None) -> None:
    assert shell_string(command) == place


@pytest.mark.parametrize(
    ("string", "commands"),
    [
        ("a --x=1 'b c' \"d \\\"e\\\" f\" g\\ h", [["a", "--x=1", "b c", 'd "e" f', "g h"]]),
        ("a|b && c; d\ne &", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("a \\\n b # c d\ne#f", [["a", "b"], ["e#f"]]),
        ("a 2 > log 2>&1 b &> 'l m' <in", [["a", "2", "b"]]),
        ("a --c=${config:t.yaml seed=$seed}/x '${lr}'", [["a", "--c=${config:t.yaml seed=$seed}/x", "${lr}"]]),
        ("a --p=''", [["a", "--p="]]),
        ("a --n=$(b c;d)e `f g` h", [["a", "--n=$(b c;d)e", "`f g`", "h"]]),
        ("a $((1+2))", None),
        ("a 'b", None),
        ("a <<E\nb\nE", None),
        ("", []),
    ],
)  # fmt: skip
def test_words_are_those_that_the_programs_get(string: str, commands: list[list[str]] | None) -> None:
    found = shell_words(string)
    assert (None if found is None else [[word.text for word in words] for words in found]) == commands


def test_words_that_the_shell_substitutes() -> None:
    found = shell_words("""$A "$B" '$C' \\$D `e` ${lr} x""")
    assert found is not None
    (words,) = found
    assert [word.changes for word in words] == [True, True, False, False, True, False, False]
