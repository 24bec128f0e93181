"""Failed trials. They count against the budget, and run again only when the user asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from optuna.trial import FrozenTrial, TrialState

from .stops import stop_of

MAX_NAMED_TRIALS = 8  # beyond these a message only counts trials


def failed_in_words(trials: Sequence[FrozenTrial]) -> str | None:
    """Which trials of a study failed, and why; None if none did."""
    failed = [trial for trial in trials if trial.state == TrialState.FAIL]
    if not failed:
        return None
    reasons = [
        str(trial.user_attrs.get("reason", "by another program")).partition("\n")[0] for trial in failed
    ]
    numbers = ", ".join(str(trial.number) for trial in failed[:MAX_NAMED_TRIALS])
    numbers += f" and {len(failed) - MAX_NAMED_TRIALS} more" if len(failed) > MAX_NAMED_TRIALS else ""
    why = reasons[-1] if len(set(reasons)) == 1 else f"the last one: {reasons[-1]}"
    return f"{len(failed)} trial{'s' * (len(failed) > 1)} failed ({numbers}): {why}"


def failed_alike(trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """The last finished trial if all finished ones failed with the same error; else None."""
    ended = [trial for trial in trials if trial.state.is_finished()]
    errors = [trial.user_attrs.get("error") for trial in ended]
    alike = ended and errors[0] is not None and all(error == errors[0] for error in errors)
    return ended[-1] if alike else None


def has_failed_with(error: str, trials: Iterable[FrozenTrial]) -> bool:
    """Whether an attempt at any of these trials has failed with this error."""
    return any(trial.user_attrs.get("error") == error for trial in trials)


def worth_retrying(trials: Sequence[FrozenTrial]) -> bool:
    """Whether any of these trials failed for a reason that may not recur."""
    return any(t.state == TrialState.FAIL and (stop := stop_of(t)) and stop.kind != "refused" for t in trials)
