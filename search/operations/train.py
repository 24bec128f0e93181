"""Train one configuration, and let the model write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...objectives.info import ObjectiveInfo
from ...storage.workspace import Workspace
from ..errors import UsageError
from ..training import run
from ..training.models import find_model
from ..training.run import Summary
from ..trials.document import (
    Document,
    idle_changes,
    in_processes,
    load_document,
    override,
    parse_assignments,
    with_presets,
    with_trackers,
)
from ..trials.reports import Report
from ..values import Value


@dataclass(frozen=True)
class Written(Value):
    """A text: the prompt, and what a model adds to it byte by byte, as it comes."""

    prompt: bytes
    added: Iterator[int]

    def to_json(self) -> dict[str, Any]:
        """Both as text, once the model has written all of it; bytes that are no UTF-8 become U+FFFD."""
        prompt, added = (bytes(part).decode(errors="replace") for part in (self.prompt, self.added))
        return {"prompt": prompt, "added": added}


def train(
    *,
    file: str | Path,
    output: Path | None = None,
    presets: Sequence[str] = (),
    assignments: Sequence[str] = (),
    changes: dict[str, Any] | None = None,
    processes: int | None = None,
    report_to: list[str] | str | None = None,
    merge: bool = False,
    force: bool = False,
    on_begin: Callable[[Document, Path, int | None], None] = lambda document, folder, resumed_at: None,
    on_report: Callable[[Report], None] = lambda report: None,
    say: Callable[[str], None] = lambda message: None,
) -> Summary:
    """Train one configuration to its end; the same again continues what was interrupted.

    `assignments` such as `learning_rate=1e-3`, and `changes` by name, go over the file's parameters. `merge`
    writes a whole model, not only an adapter; `force` trains again over an earlier run. `on_begin` is told
    the configuration, the folder of the run, and the step that an earlier attempt reached.
    """
    values = parse_assignments(list(assignments)) | (changes or {})
    document = load_document(file)
    if ObjectiveInfo(document.objective).kind == "remote":
        raise UsageError(
            "the objective is remote: its code is with the workers. Write what trains it here into the file, "
            'as in objective: "file.py:function"',
            code="remote-objective",
        )
    if presets:
        values = with_presets(document, list(presets), values)
    document = with_trackers(override(document, values), report_to)
    if processes is not None:
        document = in_processes(document, processes)
    folder = output or run.default_folder(document)
    for name, need in idle_changes(document).items():
        say(f"the change of {name} has no effect unless {need}")
    return run.train(
        document,
        folder,
        merge=merge,
        force=force,
        on_begin=lambda resumed_at: on_begin(document, folder, resumed_at),
        on_report=on_report,
        say=say,
    )


def generate(
    *,
    workspace: Workspace,
    run: str,
    prompt: bytes,
    trial: int | None = None,
    checkpoint: str | None = None,
    max_tokens: int = 200,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
) -> Written:
    """Let a model of a built-in objective continue a prompt; a token is a byte.

    `run` is a folder of a training, a study, whose best `trial` it is unless another is named, or a model's
    file; `checkpoint` one that was kept, by its samples, steps or epochs, or `best`.
    """
    if not prompt:
        raise UsageError("the prompt is empty; a model continues one character at least")
    if top_p == 0:
        raise UsageError(
            "top_p 0 leaves nothing to draw from; temperature 0 takes the likeliest", code="top-p"
        )
    model = find_model(workspace, run, trial=trial, checkpoints=checkpoint is not None)
    from ...objectives.generate import text_from

    added = text_from(
        model,
        prompt,
        count=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        device=device,
        checkpoint=checkpoint,
    )
    return Written(prompt, iter(added))
