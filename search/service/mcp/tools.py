"""The tools: each does operations at a place, and tells what came of it in few words.

A docstring is what an agent reads of a tool; its first line is the page's. Nothing here deletes, and nothing
gives a token.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
from pydantic import Field

from ....spaces import Spec, shipped, shipped_text
from ....spaces.document import STDIN
from ....spaces.loader import Text
from ....storage import StorageError
from ...errors import SearchError, UsageError
from ...operations import control, export, forecast, queue, show, spaces, steer, studies, submit
from ...operations import plan as plans
from ...operations import winner as winners
from ...preflight.objective import load_space
from ...queue.states import State
from ...results.trials import TrialRow
from ...values import State as TrialState
from ..place import Place
from . import waiting, words
from .kinds import kinds_of, tool
from .threads import in_thread

LONGEST_WAIT = 50  # seconds of a call: clients give up after a minute
LOOK_SECONDS = 1.0  # between two looks of one that waits
PLANNED = 100  # spaces whose plans are remembered
COLUMNS = ("number", "state", "value", "last_step", "why")

Study = Annotated[str, Field(description="Name of a study.")]
Number = Annotated[int, Field(ge=0, description="Number of a trial.")]
Space = Annotated[
    str,
    Field(
        min_length=1,
        description="The whole text of a space file (YAML), the name of one that ships, or a path, "
        "where the server runs on your machine.",
    ),
]
Trials = Annotated[int | None, Field(ge=1, description="Total number of trials, over that in the space.")]
Time = Annotated[str | None, Field(description="Total time of the search: 90s, 30m, 1h30m.")]
Samples = Annotated[
    int | None, Field(ge=1, description="Total samples (or steps, or epochs), summed over all trials.")
]
Rows = Annotated[int, Field(ge=1, le=words.MOST_ROWS, description="Rows at most.")]


@dataclass
class Planned:
    """When searches end by their plans, in words, by what was planned."""

    ends: OrderedDict[str, str] = field(default_factory=OrderedDict)

    def keep(self, spec: Spec, line: str) -> None:
        """Remember the plan of a space."""
        self.ends[self._key(spec)] = line
        while len(self.ends) > PLANNED:
            self.ends.popitem(last=False)

    def of(self, spec: Spec) -> str:
        """The plan of a space, or that there is none."""
        known = self.ends.get(self._key(spec))
        return f"by its plan: {known}" if known else "it was not planned: plan tells the end before a search"

    @staticmethod
    def _key(spec: Spec) -> str:
        return hashlib.sha256(json.dumps(spec.to_json(), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Tools:
    """What an agent can do at a place."""

    place: Place
    files: bool  # whether paths name files of the agent's own machine
    planned: Planned = field(default_factory=Planned)
    leaving: Callable[[], bool] = lambda: False  # whether waiting has to end

    @tool("read")
    def list_studies(
        self,
        state: Annotated[State | None, Field(description="Only those in this state of the queue.")] = None,
    ) -> str:
        """List the studies with their states and best values, the newest first."""
        try:
            states = {each.study: each.state.state for each in self.place(queue.queue).studies}
        except StorageError as error:
            if error.code != "database-missing":
                raise
            return f"no studies: {error}; next: propose_space"
        found = [
            each
            for each in self.place(studies.list_studies).studies
            if state is None or states.get(each.name) == state
        ]
        return _text(words.listed(found, states))

    @tool("read")
    def show_study(self, study: Study) -> str:
        """Show a study: how sure its winner is, its value, the budget, what matters, what failed."""
        report, winner = self.place(show.show, study=study), self.place(winners.winner, study=study)
        return _text(words.study(report, winner, self.place(queue.queue).of(study)))

    @tool("read")
    def list_trials(
        self,
        study: Study,
        state: Annotated[TrialState | None, Field(description="Only those in this state.")] = None,
        sort: Annotated[
            Literal["value", "newest", "number"], Field(description="The best complete ones first, say.")
        ] = "value",
        limit: Rows = 20,
        after: Annotated[
            int | None, Field(description="The last trial of the page before, in this order.")
        ] = None,
        columns: Annotated[
            list[str] | None,
            Field(description=f"By default {', '.join(COLUMNS)} and those searched."),
        ] = None,
    ) -> str:
        """List trials of a study as a table. The value of one training flatters the best: see winner."""
        found = self.place(
            show.trials,
            study=study,
            state=state,
            best_first=sort == "value",
            newest_first=sort == "newest",
            after=after,
            limit=limit,
        )
        known = [each.name for each in fields(TrialRow) if each.name not in ("params", "metrics")]
        chosen = [*COLUMNS, *found.searched] if columns is None else columns
        if unknown := [name for name in chosen if name not in (*known, *found.parameters)]:
            allowed = ", ".join((*known, *found.parameters))
            raise UsageError(f"a trial has no {', '.join(unknown)}; it has {allowed}")
        kept = [name for name in chosen if name in known]
        lines = [*words.rows(found.rows, [name for name in chosen if name not in kept], kept)]
        if found.more or len(found.rows) == limit:
            last = found.rows[-1].number if found.rows else None
            lines.append(f"next: {words.call('list_trials', study=study, sort=sort, after=last)}, if more")
        return _text([f"values are {found.metric} of one training each", *lines])

    @tool("read")
    def show_trial(self, study: Study, trial: Number) -> str:
        """Show a trial: its configuration, curve, ranks, why it was suggested, paused and ended, errors."""
        report = self.place(show.show_trial, study=study, trial=trial)
        return _text(words.trial(report, self.place(show.why, study=study, trial=trial)))

    @tool("read")
    def compare_trials(
        self, study: Study, trials: Annotated[list[int], Field(min_length=2, max_length=8)]
    ) -> str:
        """Compare two to eight trials: what differs between their configurations, their values and curves."""
        reports = [self.place(show.show_trial, study=study, trial=each) for each in trials]
        return _text(words.comparison(reports, self.place(winners.winner, study=study)))

    @tool("read")
    def validate_space(self, space: Space) -> str:
        """Check a space, and say how it is understood. Mistakes come with line and column; mend them all."""
        found = self.place(spaces.validate, space=self._source(space))
        return _text(words.valid(found, has_budget=_has_budget(found.spec)))

    @tool("read")
    def convert_space(
        self, file: Annotated[str, Field(description="The text of another tool's sweep, or its path.")]
    ) -> str:
        """Convert a sweep of W&B, NNI, Katib, Determined, Hydra, Axolotl or Ray Tune into a space."""
        text = file if _is_text(file) else self._read(file)
        found = self.place(spaces.convert, text=text)
        return _text([*_fill(found.to_fill), f"# of {found.tool}; next: validate_space", found.text])

    @tool("read")
    def propose_space(
        self,
        script: Annotated[
            str,
            Field(description="The text of a training script; of a server on your own machine, its path."),
        ],
        name: Annotated[
            str, Field(description="How commands call the script, where its text is given.")
        ] = "train.py",
    ) -> str:
        """Propose a space from a training script, by its options and their present values.

        The script is read, not run. Read what comes, change what you know better, then validate_space.
        """
        if _is_text(script):
            made = self.place(spaces.init, source=Path(name), text=script)
        else:
            self._refuse_path(script)
            made = self.place(spaces.init, source=Path(script))
        return _text([*_fill(made.to_fill), f"# for {made.file}; next: validate_space", made.text])

    @tool("write", reads=False, repeats=True)
    def plan(
        self,
        space: Annotated[str | None, Space] = None,
        study: Annotated[str | None, Field(description="Instead: a study that has begun.")] = None,
        seconds: Annotated[float, Field(ge=1, le=40, description="To measure a space, at most.")] = 20,
        trials: Trials = None,
        time: Time = None,
        samples: Samples = None,
    ) -> str:
        """Foresee a search before you submit it: its end, how far trials get, what is not sensible.

        Always plan before submit. A space is measured for some seconds, in which its code runs and nothing is
        kept. A study that has begun is foreseen from its own pace, and nothing runs; a budget here asks what
        another one would change.
        """
        if (space is None) == (study is None):
            raise UsageError("give either a space or a study")
        if study is not None:
            asked = None if trials is None else str(trials), None if samples is None else str(samples)
            found = self.place(forecast.forecast, study=study, time=time, trials=asked[0], samples=asked[1])
            return _text(words.forecast(found))
        spec = self._spec(str(space), trials=trials, time=time, samples=samples)
        predicted = self.place(plans.plan, space=spec, seconds=seconds)
        lines = list(words.plan(predicted))
        self.planned.keep(spec, lines[0])
        return _text(lines)

    @tool("write", repeats=True)
    def submit(
        self,
        space: Space,
        name: Annotated[
            str | None, Field(description="Name of the study, instead of that in the space.")
        ] = None,
        trials: Trials = None,
        time: Time = None,
        samples: Samples = None,
        priority: Literal["high", "normal", "low"] = "normal",
        backend: Literal["optuna", "ray", "remote"] = "optuna",
        hold: Annotated[bool, Field(description="Let it wait until steer(to=run).")] = False,
    ) -> str:
        """Submit a space: its search is queued, and runs in its turn. Plan it first.

        Refused without a budget (trials, time or samples), in the space or here. The same space again is the
        same study. Then call wait, not show_study again and again.
        """
        spec = self._spec(space, name=name, trials=trials, time=time, samples=samples)
        if not _has_budget(spec):
            raise UsageError(
                "the space has no budget, and nothing is submitted without: add a line such as "
                "budget: {trials: 30} or {time: 30m}, or give trials or time here; plan says what each takes"
            )
        done = self.place(submit.submit, space=spec, priority=priority, backend=backend, hold=hold)
        queued = self.place(queue.queue).of(done.study)
        what = "submitted" if done.made else "it was there already, with this space"
        return _text(
            [
                f'{what}: the study "{done.study}", wanted: {done.wanted}, priority {done.priority}',
                words.state_line(done.study, queued),
                f"budget: {words.budget(spec)}",
                self.planned.of(spec),
                f"next: {words.call('wait', study=done.study)}",
            ]
        )

    @tool("write", repeats=True)
    def steer(
        self,
        study: Study,
        to: Annotated[Literal["run", "pause", "stop"] | None, Field(description="What it is to do.")] = None,
        priority: Literal["high", "normal", "low"] | None = None,
        trials: Trials = None,
        time: Time = None,
        samples: Samples = None,
        target: Annotated[float | None, Field(description="Stop when a trial reaches this value.")] = None,
        confirm: Annotated[
            int | None, Field(ge=0, description="Train so many of the best again with new seeds; 0: none.")
        ] = None,
    ) -> str:
        """Pause, stop or resume a study, change its total budget or priority, or confirm its winner.

        Nothing is lost by it. A study that is over goes on with a larger budget, or confirms its best trials.
        """
        limits = {"trials": trials, "time": time, "samples": samples, "target": target}
        change = {limit: value for limit, value in limits.items() if value is not None}
        done = self.place(
            steer.steer,
            study=study,
            desired=to,
            priority=priority,
            budget=change or None,
            confirm=None if confirm is None else {"top": confirm},
        )
        limited = ", ".join(f"{limit} {value}" for limit, value in done.budget.items())
        limited += "".join(f"; confirm {what} {value}" for what, value in done.confirm.items())
        return _text(
            [
                f"{study}: wanted: {done.wanted or 'nothing, as no service has it'}; budget {limited}",
                words.state_line(study, self.place(queue.queue).of(study)),
                f"next: {words.call('wait', study=study)}",
            ]
        )

    @tool("write", repeats=True, destroys=True)
    def kill_trial(self, study: Study, trial: Number) -> str:
        """End one running trial as failed, for good unless it is retried; the search goes on."""
        self.place(control.kill, study=study, trial=trial)
        undo = words.call("retry_trial", study=study, trial=trial)
        return f"trial {trial} of {study} was killed; next: {undo} takes that back"

    @tool("write")
    def retry_trial(
        self,
        study: Study,
        trial: Annotated[int | None, Field(description="Without it, all that have failed.")] = None,
    ) -> str:
        """Try a failed trial again, or all: same number and configuration, from the last checkpoint."""
        done = self.place(control.retry, study=study, trial=trial)
        numbers = ", ".join(map(str, done.trials[: words.MOST_ROWS]))
        return f"tried again: {numbers}; next: {words.call('wait', study=study)}"

    @tool("write")
    def try_config(
        self,
        study: Study,
        params: Annotated[
            dict[str, Any],
            Field(description="Values of searched parameters; the sampler proposes the others."),
        ],
        trial: Annotated[int | None, Field(description="A trial whose values fill in instead.")] = None,
    ) -> str:
        """Try a configuration of your own: it trains before what the sampler proposes."""
        done = self.place(control.try_config, study=study, params=params, trial=trial)
        when = "trains next" if done.searching else "waits for the search to run"
        what = f"trial {done.trial} {when}: {words.config(done.params)}{done.on_budget}"
        return f"{what}; next: {words.call('wait', study=study)}"

    @tool("read")
    async def wait(
        self,
        study: Study,
        states: Annotated[
            list[State], Field(description="Return at once in these, besides where nothing goes on.")
        ] = [],  # noqa: B006  # shown to agents as it is
        best: Annotated[
            float | None, Field(description="The best value that you know; else the one now.")
        ] = None,
        seconds: Annotated[float, Field(ge=0, le=LONGEST_WAIT, description="At most.")] = LONGEST_WAIT,
    ) -> str:
        """Wait until a study is over, has a better best, or 50 s have passed; tells what has changed.

        Call it again while it says so, instead of show_study.
        """
        began = time.monotonic()
        first = now = await in_thread(waiting.Look.at, self.place, study)
        known = first.best if best is None else best
        while time.monotonic() - began < seconds and not waiting.is_enough(now, known, states):
            if self.leaving():
                raise SearchError("the server ends; the search goes on: call wait again", code="leaving")
            await anyio.sleep(LOOK_SECONDS)
            now = await in_thread(waiting.Look.at, self.place, study)
        took = time.monotonic() - began
        return await in_thread(lambda: _text(waiting.told(self.place, study, first, now, known, took)))

    @tool("read")
    def winner(self, study: Study) -> str:
        """Give the winner: how sure that is, its interval and ties, then its value and configuration."""
        return _text(words.winner(self.place(winners.winner, study=study)))

    @tool("read")
    def export(
        self,
        study: Study,
        form: Annotated[
            export.Form, Field(description="yaml is for hpsearch train; others are of frameworks.")
        ] = "yaml",
        trial: Annotated[int | None, Field(ge=0, description="Another trial than the winner.")] = None,
    ) -> str:
        """Export the winner's configuration as text, after a line that says how sure it is."""
        found = self.place(winners.winner, study=study)
        made = self.place(export.export, study=study, form=form, trial=trial)
        sure = f"{found.status}. {found.why}" if made.trial == found.trial else "not the winner"
        lines = [f"# trial {made.trial} of {study} ({made.state}); evidence: {sure}"]
        lines += [f"# lost in this form: {name}: {why}" for name, why in made.lost.items()]
        return _text([*lines, *_fill(made.to_fill), made.text])

    def _spec(self, space: str, **changes: Any) -> Spec:
        """A space with values over its own. Raises `SpaceError` with every issue, at its line."""
        paths = {"name": "name"} | {limit: f"budget.{limit}" for limit in ("trials", "time", "samples")}
        given = {paths[name]: (name, value) for name, value in changes.items() if value is not None}
        return load_space(self._source(space), given)

    def _source(self, space: str) -> Text | str:
        """A space as operations take it."""
        if _is_text(space):
            return Text(space, folder=Path.cwd() if self.files else None)
        if space in shipped() and not (self.files and Path(space).is_file()):
            return Text(shipped_text(space), f"{space}.yaml")
        self._refuse_path(space)
        return space

    def _read(self, path: str) -> str:
        """The text of a file of the agent's machine."""
        self._refuse_path(path)
        try:
            return Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"{path} is no text in UTF-8") from error

    def _refuse_path(self, path: str) -> None:
        if path == STDIN:
            raise UsageError("give the text itself; standard input is the protocol's")
        if not self.files:
            raise UsageError(
                f"{path[:200]!r} is neither a text nor a space that ships ({', '.join(shipped())}); this "
                "server does not see files of your machine: give the whole text"
            )


TOOLS = kinds_of(Tools)


def _is_text(given: str) -> bool:
    """Whether this is the content of a file rather than its name."""
    return "\n" in given or ": " in given


def _has_budget(spec: Spec) -> bool:
    """Whether a space says when its search ends, rather than leaves it to the default."""
    return "budget" in spec.model_fields_set


def _fill(names: tuple[str, ...]) -> list[str]:
    return [f"# to fill in first: {each}" for each in names]


def _text(lines: Any) -> str:
    return "\n".join(lines)
