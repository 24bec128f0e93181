"""Messages about failed trials."""

from __future__ import annotations

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from hpsearch.search.cli.commands import command, finding
from hpsearch.search.trials.retries import failed_in_words, worth_retrying


def trials(*reasons: str | None) -> list[optuna.trial.FrozenTrial]:
    """Trials that failed for these reasons; complete ones for None."""
    made = []
    for number, reason in enumerate(reasons):
        state = TrialState.COMPLETE if reason is None else TrialState.FAIL
        trial = create_trial(
            state=state,
            value=1.0 if reason is None else None,
            user_attrs={"reason": reason} if reason else {},
        )
        trial.number = number
        made.append(trial)
    return made


@pytest.mark.parametrize(
    ("reasons", "told"),
    [
        ([], None),
        ([None, None], None),
        (["a\nb", None], "1 trial failed (0): a"),
        (["a", None, "a"], "2 trials failed (0, 2): a"),
        (["a", "b"], "2 trials failed (0, 1): the last one: b"),
        ([""], "1 trial failed (0): by another program"),
        (["a"] * 10, "10 trials failed (0, 1, 2, 3, 4, 5, 6, 7 and 2 more): a"),
    ],
)
def test_failed_trials_are_counted_and_named(reasons: list[str | None], told: str | None) -> None:
    assert failed_in_words(trials(*reasons)) == told


@pytest.mark.parametrize(
    ("reasons", "worth"),
    [
        ([], False),
        ([None], False),
        (["cannot begin: x: 7.5 is outside float 0 .. 1", None], False),
        (["cannot begin: x: 7.5 is outside float 0 .. 1", "ValueError: no"], True),
        ([""], True),
    ],
)
def test_refused_trials_are_not_worth_a_retry(reasons: list[str | None], worth: bool) -> None:
    assert worth_retrying(trials(*reasons)) is worth


def test_a_suggested_command_finds_the_same_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HPSEARCH_STORAGE", raising=False)
    assert finding(None, None) == []
    assert finding("a.db", "r s") == ["--storage", "a.db", "--runs", "r s"]
    assert command("retry", "my study", *finding("a.db", "r s")) == (
        "hpsearch retry 'my study' --storage a.db --runs 'r s'"
    )
    monkeypatch.setenv("HPSEARCH_STORAGE", "a.db")
    assert finding("a.db", None) == [], "the environment holds it for every command"
