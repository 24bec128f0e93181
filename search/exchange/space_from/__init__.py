"""Proposes a space to start from, from a script's options or the numbers in its configuration file.

    text = proposal(Path("train.py"))

Ranges come from `objectives.guides.first_range`; parameters that it does not know stay constants.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from ....objectives.guides import first_range
from ....spaces import SpaceError, loads
from ....spaces.checks import BATCH_PARAMETERS
from ....spaces.fields import TO_FILL
from ....spaces.stopping import USUAL, Unit, is_length, snake
from ...errors import UsageError
from ...trials.yaml_text import one_line, text_of
from .configs import settings_of_config
from .fields import Setting, Settings
from .metric import Metric
from .of_searches import proposal_of_search
from .overrides import settings_of_overrides
from .per_trial import as_word
from .scripts import settings_of_script

__all__ = ["TO_FILL_IN", "proposal"]

PROPOSED_TRIALS = 30
EPOCHS, EPOCHS_OF_A_TRAINER = 9, 3  # where the script does not say
INTERVAL = re.compile(r"(eval|val|valid|validation|test)_(steps|every|interval|freq|frequency|every_n_steps)")
LOWEST_RUNG_DIVISOR = 9  # the lowest rung is at this part of a training: with two of ASHA's rungs by 3
CONFIG_SUFFIXES = (".yaml", ".yml", ".json")
TO_FILL_IN = "# To fill in: "  # starts the line of a proposal that lists what the user must fill in
FOREIGN_FORM = re.compile(r"[(\[~<$]")  # in texts that a space would take for another tool's range


def proposal(source: Path, *, alone: bool = False) -> str:
    """The text of a space file that loads. The script is read, but not run.

    `alone`: no file that a script names is read, as its configuration by Hydra would be.
    Raises `UsageError` or `SpaceError` where nothing can be proposed.
    """
    if source.suffix.lower() not in (*CONFIG_SUFFIXES, ".py"):
        raise UsageError(
            f"{source}: a space can be proposed from .py, {', '.join(CONFIG_SUFFIXES)}; for another "
            'program, write its command, as objective: {command: [PROGRAM, "--lr=${lr}"]}, and its ranges'
        )
    if str(source).startswith("-") or "${" in str(source):
        raise UsageError(f"{source}: a command cannot name this file: rename it, without ${{ or a leading -")
    if source.suffix.lower() == ".py" and (text := proposal_of_search(source)) is not None:
        return text
    if source.suffix.lower() == ".py":
        settings = (None if alone else settings_of_overrides(source)) or settings_of_script(source)
    else:
        settings = settings_of_config(source)
    entries = [_Entry(setting) for setting in settings.parameters]
    if not any(entry.searched for entry in entries):
        known = ", ".join(setting.parameter for setting in settings.parameters if setting.number)
        left_out = "".join(
            f"; {one_line(name)} is left out: {why}" for name, why in settings.left_out.items()
        )
        raise UsageError(
            f"{source}: found nothing to search; numbers: {known or 'none'}{left_out}. The guides know "
            "ranges for names such as learning_rate, batch_size, dropout, weight_decay, warmup_ratio, lora_r"
        )
    text = "\n".join(_lines(settings, entries)) + "\n"
    try:
        loads(text, str(source))
    except SpaceError as error:
        problems = "; ".join(f"{issue.path}: {issue.message}" for issue in error.issues[:5])
        raise UsageError(f"{source}: its names and values do not form a space: {problems}") from error
    return text


class _Entry:
    """A parameter of the proposed space."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.searched = True
        self.to_fill = False
        if setting.choices:
            choices = list(dict.fromkeys(setting.choices))
            of_flag = isinstance(setting.value, bool)
            self.text, self.why = text_of(choices), "" if of_flag else "the script's choices"
            self.searched = len(choices) > 1
            return
        now = setting.value if setting.number and isinstance(setting.value, int | float) else None
        known = first_range(setting.parameter, now) if setting.number else None
        if known is not None and setting.holds(known.range):
            self.text, self.why = text_of(known.range), known.why
            return
        self.searched, self.why = False, ""
        self.to_fill = setting.value is None
        value = TO_FILL if self.to_fill else setting.value
        odd = isinstance(value, list) or (isinstance(value, str) and FOREIGN_FORM.search(value))
        self.text = text_of({"value": value} if odd else value)

    @property
    def line(self) -> str:
        """The parameter's line in the space file."""
        remark = "to fill in: the script requires it" if self.to_fill else self.why
        return f"  {self.setting.parameter}: {self.text}" + (f"  # {remark}" if remark else "")

    @property
    def baseline(self) -> str | None:
        """The present value, where the parameter is searched and has one."""
        value = self.setting.value
        if not self.searched or value is None or (self.setting.choices and value not in self.setting.choices):
            return None
        return f"  {self.setting.parameter}: {text_of(value)}"


def _lines(settings: Settings, entries: list[_Entry]) -> Iterator[str]:
    name, metric = settings.source.name, settings.metric
    script = next(word for word in settings.command[1:] if word != "-m")
    unit, first, last = _length(settings)
    yield f"# Proposed from {one_line(name)}: read it, change what you know better, then hpsearch run it."
    yield f"# {one_line(settings.how)}"
    yield from _how_to_report(metric, one_line(script), unit)
    if settings.per_trial:
        each = (f"{one_line(name)} ({as_word(value)})" for name, value in settings.per_trial.items())
        yield f"# Each trial has its own: {', '.join(each)}"
    if "$checkpoint:last" in settings.per_trial.values():
        yield "# ${checkpoint:last} is the newest checkpoint there, if it has a usual name; a first attempt"
        yield "# has none, and goes without the option. For files of other names: ${checkpoint:PATTERN}."
    to_fill = [*settings.to_fill, *(entry.setting.parameter for entry in entries if entry.to_fill)]
    if to_fill:
        yield f"{TO_FILL_IN}{one_line(', '.join(to_fill))}"
    for reason in dict.fromkeys(settings.left_out.values()):
        names = [each for each, why in settings.left_out.items() if why == reason]
        yield f"# Left out, because {reason}: {one_line(', '.join(names))}"
    yield "version: 1"
    yield f"name: {text_of(_study(_name_of(settings.source)))}"
    yield f"objective: {text_of({'command': list(settings.command)})}"
    yield f"metric: {text_of(metric.name)}"
    yield f"goal: {metric.goal}"
    yield ""
    yield "parameters:"
    yield from (entry.line for entry in entries if entry.searched)
    if constants := [entry for entry in entries if not entry.searched]:
        flags = any(isinstance(each.setting.value, bool) for each in constants)
        a_list = "a list, a flag [true, false]" if flags else "a list"
        yield f"  # Not searched; to search one, give it {{min: ..., max: ...}} or {a_list}."
        yield from (entry.line for entry in constants)
    if baseline := [entry.baseline for entry in entries if entry.baseline]:
        yield ""
        yield f"# The present values in {one_line(name)}: the first trial."
        yield "baseline:"
        yield from baseline
    yield ""
    yield "search: {sampler: tpe, seed: 0}"
    yield f"budget: {{trials: {PROPOSED_TRIALS}}}"
    searched = {entry.setting.parameter.rpartition(".")[2] for entry in entries if entry.searched}
    if unit == "steps" and not searched.isdisjoint(BATCH_PARAMETERS):
        yield "# Steps of other batch sizes are not equal work: for early stopping, report samples."
    elif last > 2 * first:
        every = "epoch" if unit == "epochs" else f"{first} steps"
        yield f"# If it reports after every {every}, bad trials can stop early (max: its last step):"
        yield f"# early_stopping: {{method: asha, min: {first}, max: {last}, eta: 3, resource: {unit}}}"


def _length(settings: Settings) -> tuple[Unit, int, int]:
    """What a trial counts, its first report and its last; a limit in steps takes precedence over epochs."""
    first, steps, epochs = (
        next((int(each.value) for each in settings.parameters if _is_length(each, names)), None)
        for names in (INTERVAL, USUAL["steps"], USUAL["epochs"])
    )
    if steps is not None:
        return "steps", first or max(1, steps // LOWEST_RUNG_DIVISOR), steps
    return "epochs", 1, epochs or (EPOCHS_OF_A_TRAINER if settings.metric.by_trainer else EPOCHS)


def _how_to_report(metric: Metric, script: str, unit: Unit) -> Iterator[str]:
    """How the script must report, for its author to paste. It saves first: the trial may end at a report."""
    name = metric.name if metric.name.isidentifier() else "value"
    shown = one_line(metric.name)
    yield f"# {script} must report its {shown}; its last report is the trial's value."
    yield f"# Printed lines such as `epoch 3 {shown} 0.41` are found; report: is for log files and trackers."
    yield "# To report from Python:"
    yield "#     from hpsearch.objectives import report"
    if metric.by_trainer:
        yield "#     class Report(TrainerCallback):  # Trainer(callbacks=[Report()]), and in its arguments"
        by_epoch = unit == "epochs"
        strategy, step = ("epoch", "round(state.epoch)") if by_epoch else ("steps", "state.global_step")
        yield f"#         # eval_strategy and save_strategy: {strategy}; it saves after it has evaluated."
        yield "#         def on_save(self, args, state, control, **_):"
        yield f"#             report(state.log_history[-1][{json.dumps(metric.name)}], step={step})"
    else:
        yield f"#     report({name}, step=step)"
    yield f"# or print a line {json.dumps({'step': 1, metric.name: 0.5})}, from any language."
    yield "# Save, then report: at a report a trial may pause or end. It resumes from what it saved in its"
    yield "# folder, ${checkpoint} or $HPSEARCH_CHECKPOINT; then ${resume_from} or $HPSEARCH_RESUME_FROM is"
    yield "# that folder, otherwise they are empty."


def _is_length(setting: Setting, names: re.Pattern[str]) -> bool:
    return names.fullmatch(snake(setting.parameter)) is not None and is_length(setting.value)


def _name_of(source: Path) -> str:
    return source.parent.name if source.stem == "__main__" and source.parent.name else source.stem


def _study(stem: str) -> str:
    return re.sub(r"[^\w.-]", "_", stem, flags=re.ASCII).lstrip("-.")[:100] or "mine"
