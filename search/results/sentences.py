"""What a study's results say, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from ..trials.records import TrialRecord
from .audit import Audited
from .confirmation import Confirmed, overlooked
from .next_steps import exhausted
from .study import StudyResult


def confirmation(result: StudyResult) -> list[str]:
    """What training the best again told, in lines."""
    best, confirmed, records = result.winner, result.confirmed, result.records
    out = []
    for tried, run in records.unconfirmable.items():
        ended = "ran out of memory" if run.trial.constraints.get("out_of_memory") else "diverged"
        out.append(f"trial {tried} {ended} when it was trained again")
    failed: dict[int, list[str]] = {}  # errors of the trainings that were to confirm a trial
    for run in records.confirmations:
        if run.confirms is not None and run.state == "fail":
            error = run.trial.user_attrs.get("error", "by another program")
            failed.setdefault(run.confirms, []).append(error)
    if best is None or confirmed is None:
        lines = [_failures([error for errors in failed.values() for error in errors])] if failed else []
        return [f"not confirmed, {line}" for line in lines + out]
    out += [f"trial {n} is not among those compared: {_failures(errors)}" for n, errors in failed.items()]
    value, off = confirmed.value, confirmed.optimism
    was = f"{abs(off):.3g} too {'good' if off > 0 else 'bad'}" if off else "no better and no worse"
    lines = [
        f"trained again with {confirmed.seeds} new seeds: expect {value.value:.6g} "
        f"({value.low:.6g} to {value.high:.6g}); its value in the search, {best.value:.6g}, was {was}"
    ]
    if confirmed.seedless:
        lines.append(
            "no seed changed a value: a training has no chance in it, or takes no seed from trial.seed "
            "(a script: HPSEARCH_SEED)"
        )
    if confirmed.ties:
        others = ", ".join(map(str, confirmed.ties))
        lines.append(f"a tie with trial{'s' if len(confirmed.ties) > 1 else ''} {others}")
    if (later := overlooked(records)) is not None:
        lines.append(f"trial {later.number} has {later.value:.6g}, which was not confirmed")
    return lines + out


def finished(result: StudyResult) -> str:
    """That a search had nothing left to do, and why."""
    own = result.records.search
    if result.stop_reason is None and exhausted(result):
        return f'the study "{result.name}" is finished: every configuration of its space has been tried'
    spent = result.stop_reason or f"all {len(own)} trials have run"
    waiting = sum(trial.state == "waiting" for trial in own)
    wait = f". {waiting} trial{'s wait' if waiting > 1 else ' waits'} to be resumed" if waiting else ""
    return f'the study "{result.name}" is finished: {spent}{wait}'


def _failures(errors: Sequence[str]) -> str:
    return f"{len(errors)} training{'s' * (len(errors) > 1)} failed: {errors[-1]}"


def audit_of(result: StudyResult) -> list[str]:
    """What the audit of a study told, in lines; where its space asks for one, also that it drew none."""
    if result.audited is not None:
        return audit(result.audited)
    if not result.spec.audit:
        return []
    unfinished = any(not trial.state.is_finished() for trial in result.all_trials)
    return ["it drew none of the trials that were to stop" + " so far" * unfinished]


def audit(found: Audited) -> list[str]:
    """What the audited trials told, in lines."""
    stopped = "1 trial that was to stop" if found.ended == 1 else f"{found.ended} trials that were to stop"
    lost = found.lost
    if lost is None:
        loss = f"{stopped} continued, beside {found.let_through} let through: too few to say what is lost"
    else:
        loss = (
            f"of {stopped}, {lost.count} ended as good as the best one in {found.one_in} of the "
            f"{found.let_through} let through: {lost.count / lost.of:.0%} lost, "
            f"{lost.low:.1%} to {lost.high:.1%}"
        )
    if found.ended and found.let_through:
        loss += f"; {found.better_than_all or 'none'} better than the best of those"
    known = [rung for rung in found.rungs if rung.correlation is not None]
    at = ", ".join(f"{rung.correlation:.2f} at {rung.step:,} ({rung.trials} trials)" for rung in known)
    return [loss, f"rank correlation of rungs with the end: {at or 'too few trials'}"]


def against(baseline: TrialRecord | None, best: TrialRecord, confirmed: Confirmed | None = None) -> str:
    """How the best trial compares with the baseline."""
    assert best.loss is not None
    if confirmed is not None and confirmed.gain is not None:
        gained = confirmed.gain
        verdict = "no better than the baseline:" if gained.low <= 0 else "better than the baseline"
        return f"{verdict} by {gained.value:.4g} ({gained.low:.4g} to {gained.high:.4g})"
    luck = ", and the best trial is not confirmed" if confirmed is None else ""
    if baseline is None:
        return f"the space has no baseline to compare with{luck}"
    if baseline.loss is None:
        state = baseline.trial.state.name.lower()
        return f"the baseline (trial {baseline.number}) is {state}, so nothing compares{luck}"
    if baseline.number == best.number:
        if confirmed is None:
            return "the baseline itself, which is not confirmed: nothing else that came to its end was better"
        return "the baseline itself: nothing was better when it was trained again"
    gain = baseline.loss - best.loss
    than = f"than the baseline ({baseline.value:.6g})"
    verdict = f"better {than} by {gain:.4g}" if gain > 0 else f"no better {than}"
    if confirmed is None:
        return f"{verdict}, by values that are not confirmed"
    return f"{verdict}, by what the search saw: the baseline was not confirmed"
