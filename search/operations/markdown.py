"""A study as a page of Markdown, for a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...spaces import Spec
from ..formatting import counted, duration
from ..results.confirmation import Interval
from ..results.report import StudyReport, study_report
from ..results.study import StudySnapshot
from ..trials.yaml_text import block_of
from .export import export
from .winner import Winner, winner_of

FAILURES = 10  # reasons that are told


def study_in_markdown(result: StudySnapshot, provenance: dict[str, Any]) -> str:
    """Winner, gain, what matters, what early stopping lost, failures, how to reproduce it."""
    told, winner = study_report(result), winner_of(result)
    parts = [
        f"# {_text(told.name)}",
        "\n".join(_head(told, winner)),
        *_section("Winner", _winner(told, winner)),
        *_section("Confirmation", _list(told.confirmation)),
        *_section("Importance", _importance(told)),
        *_section("Early stopping", _list([told.early_stopping, *told.audit])),
        *_section("Trials that failed or were stopped", _endings(told)),
        *_section("How to reproduce it", _again(result, winner)),
        *_section(
            "Provenance", _table(("what", "is"), ((k, f"`{_cell(str(v))}`") for k, v in provenance.items()))
        ),
        _folded("The space", f"```yaml\n{space_text(result.spec).strip()}\n```"),
    ]
    return "\n\n".join(parts) + "\n"


def space_text(spec: Spec) -> str:
    """A space as a file that reads as the same; what is left open is left out."""
    return block_of(_given(spec.to_json()))


def _given(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _given(value) for name, value in content.items() if value is not None}
    return [_given(value) for value in content] if isinstance(content, list) else content


def _head(told: StudyReport, winner: Winner) -> Iterator[str]:
    yield f"**{winner.verdict}.** {winner.why}"
    yield ""
    used = counted(round(told.trials.used), "trial")
    ran = ", ".join(f"{count} {state}" for state, count in told.states.items())
    goal = "lowest" if told.goal == "minimize" else "highest"
    yield f"{used} ({ran}) in {duration(told.seconds.used)}, for the {goal} "
    yield f"`{told.metric}` of `{told.objective}` by {told.sampler}, on {told.backend}."


def _winner(told: StudyReport, winner: Winner) -> Iterator[str]:
    if winner.trial is None:
        yield "There is none."
        return
    rows = [("trial", str(winner.trial)), (f"{told.metric} in the search", _number(winner.searched))]
    if winner.value is not None:
        rows.append((f"{told.metric} to expect", _interval(winner.value)))
    if winner.gain is not None:
        rows.append(("gain over the baseline", _interval(winner.gain)))
    elif winner.comparison is not None:
        rows.append(("beside the baseline", _cell(winner.comparison)))
    if winner.ties:
        rows.append(("may be as good", ", ".join(f"trial {number}" for number in winner.ties)))
    yield from _table(("", ""), rows)
    yield ""
    searched = {each.name: each.values for each in told.parameters}
    yield from _table(
        ("parameter", "value", "searched in"),
        (
            (f"`{_cell(name)}`", f"`{_cell(_value(value))}`", _cell(searched.get(name, "")))
            for name, value in winner.params.items()
        ),
    )


def _importance(told: StudyReport) -> Iterator[str]:
    known = [(each.name, each.importance) for each in told.parameters if each.importance is not None]
    known.sort(key=lambda each: -each[1].share)
    yield from _table(
        ("parameter", "share", "90 % interval"),
        (
            (
                f"`{_cell(name)}`",
                f"{it.share:.0%}",
                "unknown" if it.low is None or it.high is None else f"{it.low:.0%} to {it.high:.0%}",
            )
            for name, it in known
        ),
    )
    if told.importance:
        yield ""
        yield _text(told.importance)


def _endings(told: StudyReport) -> Iterator[str]:
    shown = told.endings[:FAILURES]
    yield from _table(
        ("state", "trials", "why", "the last one"),
        (
            (end.state, str(len(end.trials)), _cell(end.why), f"trial {end.trials[-1]}: {_cell(end.example)}")
            for end in shown
        ),
    )
    if more := len(told.endings) - len(shown):
        yield ""
        yield f"{counted(more, 'further reason')}."


def _again(result: StudySnapshot, winner: Winner) -> Iterator[str]:
    yield "The search: write the space below into `space.yaml`, then"
    yield ""
    yield f"    hpsearch run space.yaml --backend {result.provenance.get('backend', 'optuna')}"
    if winner.trial is not None:
        taken = export(workspace=result.workspace, study=result.name)
        yield ""
        yield "The winner: write this into `best.yaml`, then `hpsearch train best.yaml`."
        yield ""
        yield _folded("best.yaml", f"```yaml\n{taken.text.strip()}\n```")


def _section(title: str, lines: Iterable[str]) -> list[str]:
    """A part under its title; nothing where there is nothing to say."""
    text = "\n".join(lines).strip()
    return [f"## {title}\n\n{text}"] if text else []


def _list(lines: Iterable[str]) -> list[str]:
    return [f"- {_text(line)}" for line in lines]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """A table; nothing where it has no rows."""
    drawn = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *drawn] if drawn else []


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def _interval(found: Interval) -> str:
    return f"{found.value:.6g} ({found.low:.6g} to {found.high:.6g}, 95 %)"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _text(text: str) -> str:
    """Words that Markdown takes as they are: an error may hold anything."""
    return " ".join(text.split()).replace("<", "&lt;").replace("`", "'")


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|")
