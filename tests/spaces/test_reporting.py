"""`report:` in a space: one source, beside a command only, and messages that say what to write."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator

from hpsearch.spaces import SpaceError, Spec, json_schema, loads
from hpsearch.spaces.document import read
from hpsearch.spaces.reporting import same_for_all

SPACE = """\
version: 1
name: t
objective: {command: [python, a.py]}
metric: val_loss
parameters:
  x: {min: 0.0, max: 1.0}
  y: {min: 0.0, max: 1.0, when: x > 0.5}
"""
VALIDATOR = Draft202012Validator(json_schema())


def in_schema(text: str) -> bool:
    data, _, _ = read(text, "f.yaml")
    return bool(VALIDATOR.is_valid(data))


@pytest.mark.parametrize(
    ("report", "source"),
    [
        ("auto", {}),
        ("{stdout: 'val (?P<value>.*)'}", {"stdout": "val (?P<value>.*)"}),
        ("{file: a.csv, value: l, step: s}", {"file": "a.csv", "value": "l", "step": "s"}),
        ("{file: '${run}/${x}/a'}", {"file": "${run}/${x}/a"}),
        ("{tensorboard: logs, value: eval/loss}", {"tensorboard": "logs", "value": "eval/loss"}),
        *((f"{{{name}: eval/loss}}", {name: "eval/loss"}) for name in ("wandb", "trackio", "mlflow")),
    ],
)
def test_a_source_is_kept_only_where_one_is_named(report: str, source: dict[str, str]) -> None:
    text = f"{SPACE}report: {report}\n"
    spec = loads(text)
    assert spec.report_source == source
    assert Spec.from_json(spec.to_json()) == spec
    assert ("report" in spec.to_json()) == bool(source)
    assert (spec.fingerprint() == loads(SPACE).fingerprint()) != bool(source)
    assert in_schema(text)


@pytest.mark.parametrize(
    ("report", "path", "said"),
    [
        ("json", "report", 'must be auto or a source such as {file: "out/log.jsonl"}, not "json"'),
        ("stdout", "report", "write report: {stdout: 'val_loss (?P<value>[0-9.eE+-]+)'}"),
        ("wandb", "report", '"wandb" says what to read but not where: write report: {wandb: val_loss}'),
        ("[a]", "report", "must be auto or a source"),
        ("{}", "report", 'needs one source, and has none; allowed: "stdout", "file"'),
        ("{file: null}", "report", "needs one source"),
        ("{file: a, wandb: b}", "report", 'needs one source, and has "file", "wandb"'),
        ("{flie: a}", "report.flie", 'did you mean "file"?'),
        ("{file: 3}", "report.file", "must be a text, not 3"),
        ("{stdout: a}", "report.stdout", "needs a group named value"),
        ("{tensorboard: a, step: b}", "report.step", 'is an option of "file", not of tensorboard'),
        ("{wandb: a, value: b}", "report.value", "not of wandb: write wandb: NAME"),
        ("{stdout: '(?P<value>.)', value: b}", "report.value", 'name a group of the pattern "value"'),
    ],
)
def test_what_is_wrong_is_said_at_its_place(report: str, path: str, said: str) -> None:
    text = f"{SPACE}report: {report}\n"
    with pytest.raises(SpaceError) as caught:
        loads(text)
    (issue,) = caught.value.issues
    assert issue.path == path and issue.line == 8 and said in issue.message
    assert not in_schema(text)


@pytest.mark.parametrize(
    ("report", "path", "said"),
    [
        ("{stdout: '(?P<value>('}", "report.stdout", "is not a regular expression"),
        ("{stdout: '(a+)+(?P<value>x)'}", "report.stdout", 'repeats a repetition, "(a+)+"'),
        ("{stdout: '((?P<value>\\d+)+)*'}", "report.stdout", "may search for ever"),
        ('{file: "a\\0b"}', "report.file", "without NUL"),
        ("{file: '${runn}/a'}", "report.file", 'did you mean "run"?'),
        ("{file: '${y}/a'}", "report.file", "a parameter that some trials do not have"),
        ("{tensorboard: 'a${'}", "report.tensorboard", "unknown macro"),
    ],
)
def test_patterns_and_paths_are_checked(report: str, path: str, said: str) -> None:
    with pytest.raises(SpaceError) as caught:
        loads(f"{SPACE}report: {report}\n")
    (issue,) = caught.value.issues
    assert issue.path == path and said in issue.message


@pytest.mark.parametrize(
    ("objective", "said"), [("lora", "reports by itself"), ('"a.py:f"', "trial.report(")]
)
@pytest.mark.parametrize("report", ["auto", "{file: a}"])
def test_only_a_command_has_sources(objective: str, said: str, report: str) -> None:
    with pytest.raises(SpaceError, match="is for a command") as caught:
        loads(f"{SPACE.replace('{command: [python, a.py]}', objective)}report: {report}\n")
    assert said in str(caught.value)


def test_a_path_that_all_trials_share_is_known() -> None:
    for path, own in (
        ("a", False),
        ("${run}/a", True),
        ("${checkpoint}/a", True),
        ("${x}", True),
        ("${y}", False),
    ):
        report = loads(f"{SPACE.replace(', when: x > 0.5', '')}report: {{file: '{path}'}}\n").report
        assert (same_for_all(report, {"x"}) is None) == own
    assert same_for_all("auto", {"x"}) is None
