"""The Markdown note that explains a study in optuna-dashboard."""

from __future__ import annotations

import optuna

from ...objectives.info import ObjectiveInfo
from ...spaces import Spec, describe
from ..formatting import counted
from ..scheduling.rungs import plan_of
from ..scheduling.standings import stopping_in_words

VERSION, PART, LONGEST = "dashboard:note_ver", "dashboard:note_str:", 2045  # letters of a part


def write_note(study: optuna.Study, spec: Spec) -> None:
    """Explain a study, where it has no note yet: later ones belong to whoever wrote them.

    As `optuna_dashboard.save_note` writes it, which would load scikit-learn: a second or two of each start.
    """
    storage, key = study._storage, study._study_id
    if VERSION in storage.get_study_system_attrs(key):
        return
    text = study_note(spec)
    for number, begin in enumerate(range(0, len(text), LONGEST)):
        storage.set_study_system_attr(key, f"{PART}{number}", text[begin : begin + LONGEST])
    storage.set_study_system_attr(key, VERSION, 1)


def study_note(spec: Spec) -> str:
    """What is searched, for what, within which budget."""
    objective = ObjectiveInfo(spec.objective_words).name
    lines = [
        f"# {spec.name}",
        "",
        f"Searches `{objective}` for the configuration with the "
        f"{'lowest' if spec.goal == 'minimize' else 'highest'} **{spec.metric}**.",
        "",
        "| parameter | values |",
        "|---|---|",
        *(f"| `{name}` | {_cell(describe(parameter))} |" for name, parameter in spec.parameters.items()),
        "",
        *(f"- constraint: `{constraint}`" for constraint in spec.constraints),
        f"- sampler: {spec.search.sampler}, seed {spec.search.seed}",
        f"- early stopping: {stopping_in_words(spec)}",
    ]
    for number, bracket in enumerate(plan_of(spec).brackets):
        rungs = f"rungs at {counted(bracket.rungs, spec.resource)}"
        rungs = rungs if bracket.rungs else "no rungs, every trial runs to its end"
        lines.append(f"  - bracket {number}: {bracket.share:.0%} of trials, {rungs}")
    lines += [
        "",
        "Trial 0 is the baseline where the space has one; it is never pruned. A trial's user attribute "
        "`reason` says why it ended; its artifacts are its reports, its output and its configuration.",
        "",
        "A running trial with the attribute `paused` waits at that rung. One with `audited` would have "
        "stopped there, but ran to its end. One with `confirms` trains that trial's configuration again, "
        "with a new seed: its value is one of several, though the dashboard may call it the best.",
        "",
        f"`hpsearch show {spec.name}` explains the study, `hpsearch export {spec.name}` takes its winner.",
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
