"""Shows a search while it runs: a live table on a terminal, plain lines anywhere else."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from optuna.trial import FrozenTrial, TrialState
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ...storage.studies import Phase
from ...storage.trial_attrs import audited_at, confirms, state_of
from ..formatting import position
from ..streams import silence
from .console import PlainConsole

if TYPE_CHECKING:
    from ..engine.watcher import SearchView

_BARS = "▁▂▃▄▅▆▇█"
STYLES = {  # of the states of trials, in the order in which they are told
    "complete": "green",
    "pruned": "yellow",
    "fail": "red",
    "running": "cyan",
    "paused": "blue",
    "waiting": "dim",
}
SAY_AGAIN_SECONDS = 10.0  # between two sayings of the same thing


class SteadyConsole(PlainConsole):
    """A console whose reader, or terminal, may go: the search continues, and says no more."""

    def print(self, *objects: Any, **options: Any) -> None:
        try:
            super().print(*objects, **options)
        except OSError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        self.quiet = True
        silence(sys.stdout.fileno())  # or Python fails to flush what is left, as it ends
        with suppress(OSError):  # it may have gone the same way
            print("hpsearch: nobody reads the output any more; the search continues", file=sys.stderr)


class LineProgress:
    """A line for each trial that ends."""

    def __init__(self, console: PlainConsole | None = None) -> None:
        self.console = console or SteadyConsole()
        self._said: dict[str, float] = {}

    def trial_ended(self, search: SearchView, trial: FrozenTrial) -> None:
        line = ending_line(search, trial)
        if self.console.redraws:
            self.console.print(line, no_wrap=True, overflow="ellipsis")
        else:
            self.console.say(line)  # a file gets whole lines

    def tick(self, search: SearchView) -> None:
        return None

    def say(self, message: str) -> None:
        """Print a message, but not the same one again and again."""
        now = time.monotonic()
        if now - self._said.get(message, float("-inf")) >= SAY_AGAIN_SECONDS:
            self._said[message] = now
            self.console.say(message, "yellow")


class LiveProgress(LineProgress):
    """A table that redraws itself: the search above, the running trials with their curves below."""

    def __init__(self, console: PlainConsole) -> None:
        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def tick(self, search: SearchView) -> None:
        self._live.update(picture(search), refresh=True)


def ending_line(search: SearchView, trial: FrozenTrial) -> Text:
    """`trial 12  complete  1.7431  best 1.7102 (trial 7)  [13/40]` and why it ended.

    `formatting.ENDING` knows such a line.
    """
    value = "-" if trial.value is None else _value(trial.value)
    line = Text.assemble(
        f"trial {trial.number:<3} ",
        (f"{trial.state.name.lower():<9}", STYLES[state_of(trial)]),
        f"{value:>9}",
    )
    best = search.best
    if best is not None and best.number == trial.number:
        line.append("  best so far", style="bold green")
    elif best is not None:
        line.append(f"  best {_value(best.value)} (trial {best.number})", style="dim")
    line.append(f"  [{search.finished}/{search.spec.budget.trials or '-'}]", style="dim")
    if (confirming := confirms(trial)) is not None:
        line.append(f"  trains trial {confirming} again", style="dim")
    if (step := audited_at(trial)) is not None:
        line.append(f"  was to stop at {position(step, search.spec.resource)}", style="dim")
    if trial.state != TrialState.COMPLETE:
        line.append(f"  {trial.user_attrs.get('reason', '')}", style="dim")
    return line


def picture(search: SearchView) -> Group:
    """The whole search at one glance."""
    counts = search.states
    states = Text("  ").join(
        Text(f"{counts[state]} {state}", style=STYLES[state]) for state in STYLES if counts[state]
    )
    done, total = search.finished, search.spec.budget.trials
    head = Table.grid(padding=(0, 2))
    head.add_row(Text(search.spec.name, style="bold"), states)
    head.add_row(
        ProgressBar(total=total or max(done, 1), completed=done, width=24), _pace(search, done, total)
    )
    head.add_row(search.spec.metric, _best_text(search))
    if search.phase in (Phase.AUDITING, Phase.CONFIRMING):
        head.add_row("now", Text(str(search.phase)))
    if search.stop_reason is not None:
        ending = "; running trials end at their next report; Ctrl-C ends them now" if search.hurries else ""
        head.add_row("stopping", Text(f"{search.stop_reason}{ending}", style="yellow"))
    running = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", expand=True)
    for title in ("trial", "at", "last", "curve"):
        running.add_column(title, no_wrap=True)
    running.add_column("parameters", no_wrap=True, overflow="ellipsis", ratio=1)  # what the others leave
    for number, now in sorted(search.running.items()):
        values = search.trials[number].intermediate_values
        curve = [values[step] for step in sorted(values)]
        last = search.spec.early_stopping.max
        searched = {n: now.config[n] for n in search.spec.space.searched if n in now.config}
        running.add_row(
            str(number),
            f"{now.reported:,}" + (f"/{last:,}" if last else ""),
            _value(curve[-1]) if curve else "",
            sparkline(curve[-24:]),
            " ".join(f"{name}={_short(value)}" for name, value in searched.items()),
        )
    return Group(head, running, "")  # an empty last line: the ^C of the terminal would wrap a full one


def sparkline(values: Sequence[float]) -> str:
    """Values as a row of bars, the lowest as `▁`, the highest as `█`; what is no number leaves a gap."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    bars = (_BARS[round((value - low) * scale)] if math.isfinite(value) else " " for value in values)
    return "".join(bars)


def _pace(search: SearchView, done: int, total: int | None) -> str:
    """Trials done, their rate, and the time left at that rate or by the clock, whichever ends first."""
    parts = [f"{done}/{total}" if total else f"{done} trials", f"{_clock(search.elapsed)} elapsed"]
    left = []
    if done and search.elapsed > 1:
        parts.append(f"{60 * done / search.elapsed:.1f} trials/min")
        if total is not None and done < total:  # then the best train again, which is no trial of the rate
            left.append(search.elapsed / done * (total - done))
    if search.spec.budget.time is not None:
        left.append(max(0.0, search.spec.budget.time - search.elapsed))
    if left:
        parts.append(f"about {_clock(min(left))} left")
    return "  ".join(parts)


def _best_text(search: SearchView) -> Text:
    best = search.best
    if best is None:
        return Text("no trial complete yet", style="dim")
    text = Text.assemble((_value(best.value), "bold green"), f" by trial {best.number}")
    baseline = search.baseline
    if baseline is not None and baseline.value is not None and baseline.number != best.number:
        text.append(f", the baseline has {_value(baseline.value)}", style="dim")
    return text


def _value(value: float | None) -> str:
    """A value of the metric in a column: `1.2284`, `1e+300`."""
    assert value is not None  # complete trials have one
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.4g}"


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
