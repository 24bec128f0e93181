"""Take a configuration out of a study."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...storage.studies import trial_of
from ...storage.workspace import Workspace
from ..errors import SearchError
from ..exchange.recipes import for_framework
from ..results.study import load_result
from ..trials.command_line import command_line
from ..trials.export import beyond, document, render
from ..values import Value

Form = Literal["yaml", "json", "flags", "command", "trl", "peft", "axolotl", "llamafactory"]


@dataclass(frozen=True)
class Exported(Value):
    """A trial's configuration as text."""

    study: str
    trial: int
    state: str
    metric: str
    value: float | None
    text: str
    lost: dict[str, str]  # what the form cannot say, and why
    to_fill: tuple[str, ...]  # what its user fills in


def export(
    *,
    workspace: Workspace,
    study: str,
    trial: int | None = None,
    form: Form = "yaml",
    file: Path | None = None,
) -> Exported:
    """The configuration of the best trial, or of another, for `train`, the shell or another framework.

    `file` is where the text will be: other files beside it are named in it relative to that. Raises
    `SearchError` where the trial has no parameters yet, or there is no winner.
    """
    result = load_result(workspace, study)
    chosen = trial_of(result.study, result.best.number if trial is None else trial)
    state = chosen.state.name.lower()
    if not chosen.params and result.spec.space.searched:
        raise SearchError(f"trial {chosen.number} has no parameters yet: it is {state}", code="trial-state")
    folder = result.trial_folder(chosen.number)
    content = document(result.spec, chosen, result.provenance, result.best_trial, folder)
    to_fill: tuple[str, ...] = ()
    if form == "yaml" or form == "json" or form == "flags":
        text, lost = render(content, form), beyond(content, form, folder)
    elif form == "command":
        text, lost = command_line(content), {}
    else:
        written = for_framework(form, content, file, folder)
        text, lost, to_fill = written.text, written.lost, written.to_fill
    return Exported(study, chosen.number, state, result.spec.metric, chosen.value, text, lost, to_fill)
