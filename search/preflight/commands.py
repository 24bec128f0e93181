"""Checks the words of a command: its files and macros, and whether its trials can resume."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ...objectives.base import ObjectiveError
from ...objectives.info import ObjectiveInfo
from ...spaces import Choice, Constant, Derived, Issue, Parameter, Spec
from ...spaces.fields import show
from ...spaces.reporting import same_for_all
from ...spaces.stopping import Rungs

RESUMES = {"checkpoint", "resume_from", "run"}  # macros that name where a checkpoint is
READS_ENVIRONMENT = re.compile(r"HPSEARCH_(CHECKPOINT|RESUME_FROM|RUN)\b|\.resume_from\b")


def unusable_words(spec: Spec) -> Iterator[Issue]:
    """Words of a command that no value fills, that hide a parameter, or that name no file."""
    command = ObjectiveInfo(spec.objective_words).command
    if not command:
        return
    from ...objectives.user.config_file import CONFIG_MACRO, check_config
    from ...objectives.user.macros import TRIAL_MACROS, unknown_macro
    from ...objectives.user.places import missing, missing_file, placed
    from ...objectives.user.script_settings import overriding_words
    from ...objectives.user.shell import names_in, shell_string, without_absent

    for index, problem in missing(command, spec.folder):
        yield spec.issue(f"objective.command[{index}]", problem)
    string = shell_string(command)
    for index, word in enumerate(command):
        found = unknown_macro(word, [*TRIAL_MACROS, *spec.passed], in_shell=index == string)
        for macro in CONFIG_MACRO.finditer(word) if found is None else ():
            found = found or missing_file(macro["file"], spec.folder)
        try:
            if found is None:
                check_config([word], spec.passed, partial(placed, folder=spec.folder))
        except ObjectiveError as error:
            found = str(error)
        if found := found or _no_truth_value(spec, word):
            yield spec.issue(f"objective.command[{index}]", found)
    where = {name: "exist" for name, parameter in spec.passed.items() if parameter.when is not None}
    lacking = {name: "where the parameter does not exist" for name in where}
    lacking |= {name: "where the parameter is null" for name in spec.passed if _can_be_null(spec, name)}
    checkpoints = {name for word in command for name in names_in(word) if name.startswith("checkpoint:")}
    lacking |= dict.fromkeys(checkpoints, "where there is no checkpoint")
    for word in without_absent(command, lacking):
        if name := next((name for name in names_in(word) if name in lacking), None):
            problem = f'"${{{name}}}" cannot be left out of "{word}" {lacking[name]}'
            yield spec.issue("objective.command", f"{problem}: make it a word of its own")
    for index, word, passing in overriding_words(command, spec.passed):
        problem = f'"{word}" overrides the value that "{passing}" passes: remove one of them'
        yield spec.issue(f"objective.command[{index}]", problem)


def read_by_a_shell(spec: Spec) -> Iterator[Issue]:
    """Texts in the place of a macro inside a shell's string, which the shell would read as its own."""
    command = ObjectiveInfo(spec.objective_words).command
    if not command:
        return
    from ...objectives.user.macros import as_text
    from ...objectives.user.shell import MACRO, keeps, macro_name, shell_string

    if (place := shell_string(command)) is None:
        return
    string = command[place]
    for macro in dict.fromkeys(found[0] for found in MACRO.finditer(string)):
        name = macro_name(macro[2:-1])
        if macro != f"${{{name}}}":
            continue  # a switch, or words that are quoted
        values = _values(spec.passed.get(name)) or []
        texts = [as_text(value) for value in values if isinstance(value, str | list)]
        odd = next((each for each in texts if not keeps(string, macro, each)), None)
        if odd is not None:
            more = len(command) - place - 1  # words behind the string: $0, $1 and so on
            at = max(more, 1)
            words = '"_", ' * (more == 0) + f'"{macro}"'
            yield spec.issue(
                f"objective.command[{place}]",
                f"{macro} stands in what {command[0]} reads, which would split or run parts of {show(odd)}: "
                f'write "${at}" in its place, and {words} as words behind this one',
            )


def _no_truth_value(spec: Spec, word: str) -> str | None:
    """Why a parameter cannot decide between two words; None if it can."""
    from ...objectives.user.shell import SWITCH

    for switch in SWITCH.finditer(word):
        parameter = spec.passed.get(switch["name"])
        values = _values(parameter)
        if parameter is None or isinstance(parameter, Derived):
            continue
        if values is None or not all(isinstance(value, bool | None) for value in values):
            return f'"{switch[0]}" needs true or false, but parameters.{switch["name"]} has other values'
    return None


def _can_be_null(spec: Spec, name: str) -> bool:
    return None in (_values(spec.passed[name]) or [])


def _values(parameter: Parameter | None) -> list[object] | None:
    """The values of a choice or a constant; None for other parameters."""
    if isinstance(parameter, Choice):
        return parameter.choices
    return [parameter.value] if isinstance(parameter, Constant) else None


def two_files(spec: Spec) -> Iterator[Issue]:
    """Files of the command that are in the folder of the space and, different, in the current folder."""
    command = ObjectiveInfo(spec.objective_words).command
    if command and spec.folder is not None:
        from ...objectives.user.places import in_both

        for index, told in in_both(command, spec.folder):
            yield spec.issue(f"objective.command[{index}]", told)


def cannot_resume(spec: Spec) -> Iterator[Issue]:
    """A command whose paused trials could not be promoted, as far as it and its source show."""
    command, stopping = ObjectiveInfo(spec.objective_words).command, spec.early_stopping
    if not command or not isinstance(stopping, Rungs) or stopping.type != "promotion":
        return
    from ...objectives.user.config_file import CONFIG_MACRO, OWN_NAME
    from ...objectives.user.places import source_of
    from ...objectives.user.shell import names_in

    own = [macro["own"] for word in command for macro in CONFIG_MACRO.finditer(word)]
    names = [name for word in command for name in names_in(word)]
    names += [name for words in own for name in OWN_NAME.findall(words)]
    if any(name.partition(":")[0] in RESUMES for name in names) or "HPSEARCH_" in " ".join(command):
        return
    source = source_of(command, spec.folder)
    if source is not None and READS_ENVIRONMENT.search(_text(source)):
        return
    unseen = f"{source.name} reads no HPSEARCH_CHECKPOINT" if source is not None else "its source is unknown"
    yield spec.issue(
        "early_stopping.type",
        f"promotion resumes trials from checkpoints, but the command names none and {unseen}: without a "
        "checkpoint, a trial is judged once, at its rung. Pass the trial's folder, such as "
        "--output_dir=${checkpoint}, and --resume_from_checkpoint=${checkpoint:last}",
    )


def _text(source: Path) -> str:
    try:
        return source.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def metric_like_parameter(spec: Spec) -> Iterator[Issue]:
    """A metric that lines of output name, and a parameter of that name, which programs print too."""
    if ObjectiveInfo(spec.objective_words).command and spec.report == "auto" and spec.metric in spec.passed:
        yield spec.issue(
            "metric",
            f'"{spec.metric}" is a parameter, too: a line that prints the parameter counts as a report; '
            "name the metric otherwise, or say by report: where it comes from",
        )


def shared_log(spec: Spec) -> Iterator[Issue]:
    """A file of reports that several trials write at the same time."""
    shared = same_for_all(spec.report, spec.space.searched)
    if shared is not None and spec.execution.workers != 1:
        source, path = shared
        problem = f'"{path}" is the same for all trials, which may run at once; put ${{run}} into the path'
        yield spec.issue(f"report.{source}", f"{problem}, the trial's folder, and pass it to the program")
