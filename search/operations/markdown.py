"""A study as a page of Markdown, for a pull request, or several side by side."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...spaces import Spec
from ..formatting import counted, duration
from ..results.confirmation import Interval
from ..results.report import StudyReport, study_report
from ..results.study import StudySnapshot
from ..streams import harmless
from ..trials.export import document, render
from ..trials.yaml_text import block_of
from .winner import Winner, winner_of

FAILURES = 10  # reasons that are told
MARKS = re.compile(r"[\\`*\[\]~]|(?<!\w)_|_(?!\w)")  # what means something to Markdown, within a line


def study_in_markdown(result: StudySnapshot, provenance: dict[str, Any]) -> str:
    """Winner, gain, what matters, what early stopping lost, failures, how to reproduce it."""
    told, winner = study_report(result), winner_of(result)
    parts = [
        f"# {_text(told.name)}",
        "\n".join(_head(told, winner)),
        *_section("Winner", _winner(told, winner)),
        *_section("Confirmation", _list(told.confirmation)),
        *_section("Cost", _list(_cost(told))),
        *_section("Importance", _importance(told)),
        *_section("Early stopping", _list([told.early_stopping, *told.audit])),
        *_section("Trials that failed or were stopped", _endings(told)),
        *_section("How to reproduce it", _again(result, winner)),
        *_section(
            "Provenance",
            _table(("what", "is"), ((_cell(k), _code_cell(str(v))) for k, v in provenance.items())),
        ),
        _folded("The space", _fenced(space_text(result.spec))),
    ]
    return "\n\n".join(parts) + "\n"


def comparison_in_markdown(results: Sequence[StudySnapshot]) -> str:
    """What several studies found, their best configurations and their spaces: what differs first."""
    every = [(study_report(result), winner_of(result)) for result in results]
    names = tuple(_cell(told.name) for told, _ in every)
    metrics = {told.metric for told, _ in every}
    differ = [] if len(metrics) == 1 else ["Their metrics differ, so that their values do not compare.", ""]
    found = [_found(told, winner) for told, winner in every]
    searched = [_searched(told) for told, _ in every]
    best = [{_code_cell(k): _code_cell(_value(v)) for k, v in each.params.items()} for _, each in every]
    whole = [f"- {_code(f'hpsearch report {shlex.quote(told.name)} --format md')}" for told, _ in every]
    parts = [
        f"# {' and '.join(_text(told.name) for told, _ in every)}",
        *_section("What they found", [*differ, *_beside("", names, found, in_order=True)]),
        *_section("Their best configurations", _beside("parameter", names, best)),
        *_section("What they search", _beside("", names, searched)),
        *_section("The whole of each", whole),
    ]
    return "\n\n".join(parts) + "\n"


def space_text(spec: Spec) -> str:
    """A space as a file that reads as the same; what is left open is left out."""
    return block_of(_given(spec.to_json()))


def winner_text(result: StudySnapshot, number: int) -> str:
    """What `hpsearch train` trains a trial with, without the folders of the machine that searched."""
    trial = result.records.by_number[number].trial
    content = document(result.spec, trial, result.provenance, result.best_trial)
    content["provenance"].pop("space_folder", None)
    return render(content, "yaml")


def _given(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _given(value) for name, value in content.items() if value is not None}
    return [_given(value) for value in content] if isinstance(content, list) else content


def _head(told: StudyReport, winner: Winner) -> Iterator[str]:
    yield f"**{winner.verdict}.** {_text(winner.why)}"
    yield ""
    goal = "lowest" if told.goal == "minimize" else "highest"
    trials = counted(sum(told.states.values()), "trials")
    yield f"{trials} ({_states(told)}) in {duration(told.seconds.used)},"
    yield f"for the {goal} {_code(told.metric)} of {_code(told.objective)}"
    yield f"by {told.sampler}, on {told.backend}."


def _states(told: StudyReport) -> str:
    """How many trials are in which state."""
    ran = ", ".join(f"{count} {state}" for state, count in told.states.items())
    return ran + (f"; {told.confirming} of these confirm the best" if told.confirming else "")


def _winner(told: StudyReport, winner: Winner) -> Iterator[str]:
    if winner.trial is None:
        yield "There is none."
        return
    metric = _cell(told.metric)
    rows = [("trial", str(winner.trial)), (f"{metric} in the search", _number(winner.searched))]
    if winner.value is not None:
        rows.append((f"{metric} to expect", _interval(winner.value)))
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
            (_code_cell(name), _code_cell(_value(value)), _cell(searched.get(name, "")))
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
                _code_cell(name),
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
        yield f"{counted(more, 'further reasons')}."


def _again(result: StudySnapshot, winner: Winner) -> Iterator[str]:
    yield "The search: write the space below into `space.yaml`, then"
    yield ""
    yield f"    hpsearch run space.yaml --backend {result.provenance.get('backend', 'optuna')}"
    if winner.trial is not None:
        yield ""
        yield "The winner: write this into `best.yaml`, then `hpsearch train best.yaml`."
        yield ""
        yield _folded("best.yaml", _fenced(winner_text(result, winner.trial)))


def _cost(told: StudyReport) -> list[str]:
    return [] if told.cost is None else told.cost.in_words


def _found(told: StudyReport, winner: Winner) -> dict[str, str]:
    """What a study found, in the cells of a table."""
    trials = f"{told.trials.used:,.0f}" + (f" of {told.trials.total:,.0f}" if told.trials.total else "")
    return {
        "winner": winner.verdict.lower() + ("" if winner.trial is None else f", trial {winner.trial}"),
        "metric": f"{told.goal} {_code_cell(told.metric)}",
        "value to expect": _interval(winner.value) if winner.value is not None else "",
        "what the search saw of it": _number(winner.searched),
        "gain over its baseline": _interval(winner.gain) if winner.gain else _cell(winner.comparison or ""),
        "trials": trials,
        "states": _states(told),
        "time": duration(told.seconds.used),
        "trained": counted(round(told.consumed.used), told.resource),
        "cost": _lines(_cost(told)),
        "early stopping may have lost": _lines(winner.audit),
    }


def _searched(told: StudyReport) -> dict[str, str]:
    """What a study searches, in the cells of a table."""
    about = {"objective": told.objective, "sampler": told.sampler, "early stopping": told.early_stopping}
    parameters = {_code_cell(each.name): _cell(each.values) for each in told.parameters}
    return {name: _cell(value) for name, value in about.items()} | parameters


def _beside(
    what: str, heads: tuple[str, ...], columns: Sequence[dict[str, str]], *, in_order: bool = False
) -> list[str]:
    """Columns of named cells side by side: the rows that differ first, unless they are `in_order`."""
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = {name: [column.get(name, "") for column in columns] for name in names}
    if in_order:
        names = [name for name in names if any(rows[name])]
    else:
        names.sort(key=lambda name: len(set(rows[name])) == 1)
    return _table((what, *heads), ((name, *(cell or "-" for cell in rows[name])) for name in names))


def _lines(lines: Iterable[str]) -> str:
    """Lines in one cell of a table."""
    return "<br>".join(map(_cell, lines))


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


def _line(text: str) -> str:
    """One line that moves no terminal: an error may hold anything."""
    return harmless(" ".join(text.split()))


def _text(text: str) -> str:
    """Words that Markdown shows as they are."""
    words = MARKS.sub(r"\\\g<0>", _line(text))
    return words.replace("&", "&amp;").replace("<", "&lt;")


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|")


def _code(text: str) -> str:
    """A name or a value: between more backticks than it has in a row."""
    line = _line(text)
    if not line:
        return ""
    fence = "`" * (_backticks(line) + 1)
    space = " " * (len(fence) > 1)  # which is not shown
    return f"{fence}{space}{line}{space}{fence}"


def _code_cell(text: str) -> str:
    return _code(text).replace("|", "\\|")


def _fenced(text: str) -> str:
    fence = "`" * max(3, _backticks(text) + 1)
    return f"{fence}yaml\n{text.strip()}\n{fence}"


def _backticks(text: str) -> int:
    """The most in a row."""
    return max(map(len, re.findall("`+", text)), default=0)
