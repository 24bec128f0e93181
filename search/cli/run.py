"""`hpsearch run`: search a space."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import common

if TYPE_CHECKING:
    from rich.console import Console

    from ..results.study import StudyResult


def run(
    space: Annotated[
        str, typer.Argument(help="A space file, or the name of one that ships (lora, lora_quick, pretrain).")
    ],
    backend: Annotated[str, typer.Option(help="What runs the trials: optuna or ray.")] = "optuna",
    name: Annotated[str | None, typer.Option(help="The study's name, instead of the file's.")] = None,
    trials: Annotated[int | None, typer.Option(help="Trials in all, over all resumes.")] = None,
    time: Annotated[str | None, typer.Option(help="Time in all, over all resumes: 90s, 30m, 2h.")] = None,
    samples: Annotated[int | None, typer.Option(help="Resource in all, summed over the trials.")] = None,
    target: Annotated[float | None, typer.Option(help="Stop when a trial reaches this value.")] = None,
    workers: Annotated[str | None, typer.Option(help="Trials at a time: a number, or auto.")] = None,
    cpus_per_trial: Annotated[float | None, typer.Option(help="CPU cores of each trial: 0.5, 4.")] = None,
    gpus_per_trial: Annotated[float | None, typer.Option(help="GPUs of each trial: 0.25, 1.")] = None,
    processes_per_trial: common.Processes = None,
    strategy: common.Strategy = None,
    zero_stage: common.ZeroStage = None,
    max_memory: Annotated[str | None, typer.Option(help="Memory of each trial: 4GiB, 500MiB.")] = None,
    ray_address: Annotated[
        str | None, typer.Option(help="A Ray cluster to run on: auto on one of its nodes, or host:port.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of the search.")] = None,
    confirm: common.Confirm = None,
    audit: common.Audit = None,
    report_to: common.ReportTo = None,
    storage: common.Storage = None,
    runs: common.Runs = None,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of the live table.")] = False,
) -> None:
    """Search a space for the best configuration. The same command again continues.

    Example: hpsearch run spaces/lora.yaml --backend optuna --trials 40
    """
    from ..operations.run import run as search
    from ..preflight.objective import load_space
    from .progress import LineProgress, LiveProgress, SteadyConsole

    budget = common.given(trials=trials, time=common.seconds(time), samples=samples, target=target)
    execution = common.execution(
        workers,
        cpus_per_trial,
        gpus_per_trial,
        processes_per_trial=processes_per_trial,
        strategy=strategy,
        zero_stage=zero_stage,
        max_memory=max_memory,
    )
    spec = load_space(space)
    changes: dict[str, Any] = common.given(
        name=name,
        budget=budget or None,
        execution=execution or None,
        search={"seed": seed} if seed is not None else None,
        confirm=common.confirming(spec, confirm),
        audit=common.auditing(spec, audit),
        report_to=common.names(report_to),
    )
    console = SteadyConsole()
    live = console.redraws and not plain
    with LiveProgress(console) if live else LineProgress(console) as watcher:
        result = search(
            common.overridden(spec, changes),
            backend=backend,
            storage=storage,
            runs=runs,
            watcher=watcher,
            ray_address=ray_address,
            began=common.process_began(),
        )
    _conclude(console, result, common.finding(storage, runs))
    if result.interrupted:
        raise typer.Exit(130)
    if result.best_trial is None and not result.stopped:
        raise typer.Exit(1)


def _conclude(console: Console, result: StudyResult, options: Sequence[str]) -> None:
    """The winner, what it beat, and the next commands, which find the study by these options."""
    from rich.text import Text

    from ..results.sentences import against, audit_of, confirmation
    from ..trials.retries import failed_in_words, worth_retrying
    from .progress import STYLES

    if not result.ran and not result.stopped:
        console.print(_finished(result), soft_wrap=True)
    elif result.stop_reason is not None:
        console.print(f"stopped: {result.stop_reason}", soft_wrap=True)
    best = result.best_trial
    if best is None:
        console.print(f'no trial of "{result.name}" ran to its end, so there is no winner', soft_wrap=True)
    else:
        assert best.value is not None
        found = (f"{best.value:.6g}", "bold green")
        reached = Text.assemble(f"best {result.spec.metric} ", found, f" by trial {best.number}")
        console.print(reached, soft_wrap=True)
        for name, value in result.best.params.items():
            console.print(f"  {name}: {common.text(value)}", soft_wrap=True)
        confirming = confirmation(result)
        for line in confirming:
            console.print(line, soft_wrap=True)
        told = against(result.baseline, best, result.spec.goal, result.confirmed)
        console.print(told, soft_wrap=True)
        if not confirming and _may_confirm(result):
            console.print(_to_confirm(result), soft_wrap=True)
    for line in audit_of(result):
        console.print(f"audit: {line}", soft_wrap=True)
    trials = result.study.get_trials(deepcopy=False)
    failed = failed_in_words(trials)
    if failed is not None:
        console.print(Text(failed, style=STYLES["fail"]), soft_wrap=True)
    name = result.name
    retry = [("retry", name, "--failed", *options)] * worth_retrying(trials)
    if result.stopped:
        renamed = result.name != result.spec.name and "--name" not in sys.argv  # by somebody, meanwhile
        again = [*sys.argv[1:], *(["--name", result.name] if renamed else [])]
        console.print(f"continue with: {common.command(*again)}", soft_wrap=True)
        for words in retry:
            console.print(f"to try failed trials again: {common.command(*words)}", soft_wrap=True)
    else:
        winner = [("export", name, "-o", "best.yaml", *options), ("train", "best.yaml")]
        console.print("next:")
        for words in (
            *retry,
            ("show", name, *options),
            ("dashboard", *options),
            *(winner if best is not None else []),
        ):
            console.print(f"  {common.command(*words)}", soft_wrap=True)
    about = common.about_password(sys.argv[1:])
    if about is not None:
        console.print(about, soft_wrap=True)


def _may_confirm(result: StudyResult) -> bool:
    """Whether somebody could be confirmed in a search that is over, which was not asked or had no room."""
    from optuna.trial import TrialState

    from ..engine.confirmation_size import ConfirmationSize
    from ..results.next_steps import more_samples, more_time
    from ..trials.selection import searched

    own = searched(result.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))
    others = any("baseline" not in trial.user_attrs for trial in own)
    wished = ConfirmationSize.asked(result.spec).top > 0
    if result.stopped or not others or not wished:
        return False
    return result.spec.confirm.top is None or bool(more_time(result) or more_samples(result))


def _to_confirm(result: StudyResult) -> str:
    """The same command, so that a winner is confirmed where the budget left no room for it."""
    from ..results.next_steps import more_samples, more_time

    return f"to confirm it: {_again(*more_time(result), *more_samples(result), '--confirm')}"


def _again(*options: str) -> str:
    """The command as it was typed, with these options in place of what it said of them."""
    words: list[str] = []
    typed, names = iter(sys.argv[1:]), [word for word in options if word.startswith("--")]
    for word in typed:
        if word.split("=")[0] not in names:
            words.append(word)
        elif "=" not in word:
            next(typed, None)  # its value
    return common.command(*words, *options)


def _finished(result: StudyResult) -> str:
    """That there was nothing left to do, and how to go on all the same."""
    from optuna.trial import TrialState

    from ..results.next_steps import extension
    from ..sampling.tried import UntriedConfigs, tried
    from ..trials.selection import searched

    own = searched(result.study.get_trials(deepcopy=False))
    if result.stop_reason is None and UntriedConfigs(result.spec).exhausted(tried(own)):
        return f'the study "{result.name}" is finished: every configuration of its space has been tried'
    spent = result.stop_reason or f"all {len(own)} trials have run"
    waiting = sum(trial.state == TrialState.WAITING for trial in own)
    wait = f"{waiting} trial{'s wait' if waiting > 1 else ' waits'} to go on. " if waiting else ""
    extend = _again(*extension(result))
    return f'the study "{result.name}" is finished: {spent}. {wait}To extend it: {extend}'
