"""What `validate` says of a command: forms that do not fit, files in two folders, no way to resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpsearch.search.preflight import checks
from hpsearch.search.preflight.commands import cannot_resume, read_by_a_shell, two_files
from hpsearch.spaces import SpaceError, Spec

MakeSpec = Callable[..., Spec]
PROMOTION = {"method": "asha", "min": 1, "max": 9, "type": "promotion"}
PARAMETERS: dict[str, Any] = {
    "x": {"min": 0.0, "max": 1.0},
    "amp": [True, False],
    "sched": [None, "cosine"],
    "layers": {"value": [1]},
}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["${amp:--amp|}", "--s", "${sched}", "${layers:words}"], None),
        (["${x:--x|}"], 'objective.command[1]: "${x:--x|}" needs true or false'),
        (["${sched:--x|}"], "needs true or false"),
        (["--x", "${x"], 'objective.command[2]: "${x" has no "}"; did you mean "${x}"?'),
        (["--x=${layers:words}"], "must be a word of its own"),
        (["${args:flag}"], 'did you mean "flags"'),
        (["${checkpoint:/x}"], "must be last, or a pattern"),
        (["${amp:--amp|}", "--amp"], '"--amp" overrides the value that "${amp:--amp|}" passes'),
        (["${config:none.toml}"], 'there is no file "none.toml"'),
    ],
)
def test_words_that_do_not_fit(make_spec: MakeSpec, words: list[str], told: str | None) -> None:
    spec = make_spec(objective={"command": ["true", *words]}, parameters=PARAMETERS)
    if told is None:
        checks.check_objective(spec)
        return
    with pytest.raises(SpaceError) as caught:
        checks.check_objective(spec)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("word", "where"),
    [("${sched}", "where the parameter is null"), ("${checkpoint:last}", "where there is no checkpoint")],
)
def test_what_cannot_be_left_out_of_a_shells_string(make_spec: MakeSpec, word: str, where: str) -> None:
    for string, fits in ((f"t --a {word}; u", True), (f"cat <<E\n{word}\nE", False)):
        spec = make_spec(objective={"command": ["bash", "-c", string]}, parameters=PARAMETERS)
        if fits:
            checks.check_objective(spec)
            continue
        with pytest.raises(SpaceError, match=where):
            checks.check_objective(spec)


def test_a_value_that_a_shell_would_read_as_its_own_is_told(make_spec: MakeSpec) -> None:
    for string, value, kept in (
        ("t --a ${a}", "cosine-1.5e-3", True),
        ("t --a ${a}", "b c", False),
        ('t --a "${a}"', "b c's [*]", True),
        ('t --a "${a}"', "b`id -u`c", False),
        ('t --a="$HOME/${a}"', "$HOME", False),
        ('t --a "${a}"', 'say "x"', False),
        ("t --a '${a}'", "$HOME `id`", True),
        ("t --a '${a}'", "it's", False),
        ('t "$(u ${a})"', "b c", False),
        ("t ${a:words}", "b `c`", True),
        ("t --a ${x}", "b `c`", True),
    ):
        parameters: dict[str, Any] = {"a": [value, "d"], "x": {"min": 0.0, "max": 1.0}}
        spec = make_spec(objective={"command": ["bash", "-c", string]}, parameters=parameters)
        told = [str(issue) for issue in read_by_a_shell(spec)]
        assert not told if kept else 'write "$1" in its place, and "_", "${a}" as words' in told[0], string
    words = ["bash", "-c", 't --a "$1" ${b}', "_", "${a}"]
    parameters = {"a": ["$x", "d"], "b": [["e f"], ["g"]]}
    spec = make_spec(objective={"command": words}, parameters=parameters)
    (remark,) = [str(issue) for issue in read_by_a_shell(spec)]
    assert "objective.command[2]: ${b} stands in what bash reads" in remark
    assert 'write "$2" in its place, and "${b}" as words behind this one' in remark


@pytest.mark.parametrize(
    ("words", "script", "resumes"),
    [
        (["--out=${checkpoint}"], "", True),
        (["--resume", "${checkpoint:last}"], "", True),
        (["--resume=${resume_from}"], "", True),
        (["--c=${config:c.json resume=$checkpoint:last}"], "", True),
        (["--c=${config:c.json seed=$seed}"], "", False),
        ([], "os.environ['HPSEARCH_RESUME_FROM']", True),
        ([], "os.environ['HPSEARCH_SEED']", False),
        (["--seed=${seed}"], "", False),
    ],
)
def test_a_command_that_cannot_resume_is_warned_of(
    make_spec: MakeSpec, tmp_path: Path, words: list[str], script: str, resumes: bool
) -> None:
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "c.json").write_text('{"resume": 1, "seed": 1}')
    objective = {"command": ["python", "train.py", "${args}", *words]}
    spec = make_spec(objective=objective, early_stopping=PROMOTION).in_folder(tmp_path)
    checks.check_objective(spec)
    found = list(cannot_resume(spec))
    assert len(found) == (not resumes)
    for issue in found:
        assert "train.py reads no HPSEARCH_CHECKPOINT" in issue.message
        assert "judged once, at its rung" in issue.message
    assert not list(cannot_resume(make_spec(objective=objective)))


def test_of_two_files_the_one_beside_the_space_counts(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for folder, text in ((tmp_path, "1"), (Path(), "2")):
        (folder / "train.py").write_text(text)
    spec = make_spec(objective={"command": ["python", "train.py", "${args}"]}).in_folder(tmp_path)
    [issue] = two_files(spec)
    assert f"{tmp_path}/train.py, which is used" in issue.message
    assert not list(two_files(spec.in_folder(None)))
    assert spec.in_folder(None) == spec and spec.in_folder(None).fingerprint() == spec.fingerprint()
    assert spec.override(name="other").folder == str(tmp_path)


def test_a_metric_named_like_a_parameter_is_warned_of(make_spec: MakeSpec) -> None:
    def told(**more: Any) -> list[str]:
        spec = make_spec(objective={"command": ["true", "${args}"]}, parameters=PARAMETERS, **more)
        return [str(issue) for issue in checks.warnings(spec) if "is a parameter, too" in str(issue)]

    (warning,) = told(metric="x")
    assert 'metric: "x" is a parameter' in warning
    assert not told(metric="x", report={"file": "${run}/log.jsonl"}) and not told(metric="loss")
