"""What a server says of its studies: the operations that read them, with their arguments and results."""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ...errors import SearchError
from ...values import State
from .calls import Calls
from .connection import part

if TYPE_CHECKING:
    from ....spaces import Spec
    from ...operations.export import Exported, Form
    from ...operations.forecast import StudyForecast
    from ...operations.report import Form as ReportForm
    from ...operations.report import WrittenReport
    from ...operations.show import BestTrial, DrawnFigure, TrialRows
    from ...operations.watch import Curves, Log, OpenFile, TrialFiles
    from ...operations.winner import Winner, WinnerFiles
    from ...results.ranges import NarrowRanges
    from ...results.report import StudyReport, TrialReport
    from ...results.trials import TrialRow
    from ...results.why import TrialHistory

STUDY = "/v1/studies/{study}"
TRIAL = f"{STUDY}/trials/{{trial}}"


class Results(Calls):
    """What studies say."""

    def show(self, *, study: str) -> StudyReport:
        """Explain a study: what was found, what it rests on, why trials ended, what to do next."""
        from ...results.report import StudyReport

        return self._as(StudyReport, self._get(STUDY, study=study))

    def show_trial(self, *, study: str, trial: int) -> TrialReport:
        """Show one trial: its configuration, its curve, its rank at the rungs, its files."""
        from ...results.report import TrialReport

        return self._as(TrialReport, self._get(TRIAL, study=study, trial=trial))

    def why(self, *, study: str, trial: int) -> TrialHistory:
        """Explain why a trial was suggested, paused, resumed or ended."""
        from ...results.why import TrialHistory

        return self._as(TrialHistory, self._get(f"{TRIAL}/story", study=study, trial=trial))

    def ranges(self, *, study: str) -> NarrowRanges:
        """Find the parameters whose best values press against an end of their range."""
        from ...results.ranges import NarrowRanges

        return self._as(NarrowRanges, self._get(f"{STUDY}/ranges", study=study))

    def trials(
        self,
        *,
        study: str,
        state: State | None = None,
        best_first: bool = False,
        newest_first: bool = False,
        after: int | None = None,
        limit: int | None = None,
    ) -> TrialRows:
        """List the trials of a study, of one state perhaps, by number, or the newest or the best first.

        They begin after the trial `after` in this order.
        """
        from ...operations.show import TrialRows

        order = "value" if best_first else "newest" if newest_first else None
        query = {"state": state, "sort": order, "after": after}
        listed = self._as(TrialRows, list(self._rows(f"{STUDY}/trials", query, limit, study=study)))
        return listed.of_space(self.space(study=study))

    def rows(self, *, study: str, after: int | None = None) -> Iterator[TrialRow]:
        """The trials of a study after a number, page by page."""
        from ...results.trials import TrialRow

        for row in self._rows(f"{STUDY}/trials", {"after": after}, study=study):
            yield self._as(TrialRow, row)

    def reported(self, *, study: str, trials: Sequence[int], points: int = 32) -> dict[int, dict[int, float]]:
        """What trials have reported by step, with fewer steps than they have where they have many."""
        found = self.curves(study=study, trials=trials, points=points)
        return {
            trial: {step: float(value) for step, value in zip(steps, values, strict=True)}
            for trial, steps, values in zip(found.trial, found.step, found.value, strict=True)
        }

    def curves(
        self,
        *,
        study: str,
        trials: Sequence[int] | None = None,
        since: int | None = None,
        points: int = 200,
        after: int | None = None,
        limit: int = 1000,
    ) -> Curves:
        """The curves of trials, of some or of a page of them, thinned to so many points each."""
        from ...operations.watch import Curves

        named = None if trials is None else ",".join(map(str, trials))
        query = {"trials": named, "since": since, "points": points, "after": after, "limit": limit}
        return self._as(Curves, self._get(f"{STUDY}/curves", query=query, study=study))

    def best(self, *, study: str) -> BestTrial:
        """The best trial: its value, its parameters, and how it compares."""
        from ...operations.show import BestTrial

        return self._as(BestTrial, self._get(f"{STUDY}/best", study=study))

    def export(
        self, *, study: str, trial: int | None = None, form: Form = "yaml", file: Path | None = None
    ) -> Exported:
        """The configuration of the best trial, or of another. Files that it names lie on the server."""
        from ...operations.export import Exported

        query = {"form": form, "trial": trial}
        return self._as(Exported, self._get(f"{STUDY}/export", query=query, study=study))

    def space(self, *, study: str) -> Spec:
        """The space of a study."""
        from ....spaces import SpaceError, Spec

        found = self._get(f"{STUDY}/space", query={"format": "json"}, study=study)
        try:
            return Spec.from_json(self._as(dict[str, Any], found))
        except SpaceError as error:
            raise self._not_understood(error) from error

    def winner(self, *, study: str) -> Winner:
        """The winner of a study, how sure that is, and what would make it surer."""
        from ...operations.winner import Winner

        return self._as(Winner, self._get(f"{STUDY}/winner", study=study))

    def winner_zip(self, *, study: str, output: IO[bytes], unconfirmed: bool = False) -> WinnerFiles:
        """Write the winner as a zip: its model or adapter, its configuration, what it depends on."""
        from ...operations.winner import Winner, WinnerFiles

        query = {"unconfirmed": "yes"} if unconfirmed else {}
        with tempfile.TemporaryFile() as received:
            self._receive(f"{STUDY}/winner.zip", received, query=query, study=study)
            with zipfile.ZipFile(received) as packed:
                told = self._as(Winner, json.loads(packed.read("winner.json")))
                files = tuple(packed.namelist())
            received.seek(0)
            shutil.copyfileobj(received, output)
        assert told.trial is not None  # else there were no zip
        return WinnerFiles(study, told.trial, told.status, files)

    def report(self, *, study: Sequence[str], form: ReportForm = "html") -> WrittenReport:
        """A report on a study, or on several to compare them: one HTML file, or Markdown."""
        from ...operations.report import WrittenReport

        names, received = tuple(dict.fromkeys(study)), io.BytesIO()
        self._receive("/v1/report", received, query={"study": names, "form": form})
        return WrittenReport(names, form, received.getvalue().decode())

    def figure(self, *, study: str, name: str) -> DrawnFigure:
        """One of Optuna's figures."""
        from ...operations.show import DrawnFigure

        found = self._get(f"{STUDY}/figures/{{name}}", study=study, name=name)
        return DrawnFigure(name, json.dumps(found))

    def forecast(
        self,
        *,
        study: str,
        time: str | None = None,
        trials: str | None = None,
        samples: str | None = None,
        slots: int | None = None,
    ) -> StudyForecast:
        """How a study goes on by its own pace, or would with another budget or other slots."""
        from ...operations.forecast import StudyForecast

        query = {"time": time, "trials": trials, "samples": samples, "slots": slots}
        return self._as(StudyForecast, self._get(f"{STUDY}/forecast", query=query, study=study))

    def files(self, *, study: str, trial: int) -> TrialFiles:
        """The files of a trial: its configuration, reports, output and checkpoint."""
        from ...operations.watch import TrialFiles

        return self._as(TrialFiles, self._get(f"{TRIAL}/files", study=study, trial=trial))

    def open_file(self, *, study: str, trial: int, path: str) -> OpenFile:
        """A file of a trial, which is received before it is opened; who asked for it closes it."""
        from ...operations.watch import OpenFile

        named = "/".join(part(each) for each in path.split("/"))
        with tempfile.TemporaryFile() as received:
            size = self._receive(f"{TRIAL}/files/{named}", received, study=study, trial=trial)
            received.seek(0)
            return OpenFile(path, size, os.dup(received.fileno()))

    def log(self, *, study: str, trial: int | None = None, begin: int | None = None) -> Log:
        """What a trial has printed, or what the driver says: from a byte on, or the end of it."""
        from ...operations.watch import MOST_TEXT, Log, whole_text

        place = f"{STUDY}/log" if trial is None else f"{TRIAL}/log"
        wanted = f"-{MOST_TEXT}" if begin is None else f"{begin}-{begin + MOST_TEXT - 1}"
        named = {"study": study} if trial is None else {"study": study, "trial": trial}
        try:
            with self._open(place, headers={"Range": f"bytes={wanted}"}, **named) as answer:
                content = whole_text(answer.read())
                part_of = answer.headers.get("content-range", "bytes 0-/0")  # of an empty one all is sent
                at, _, size = part_of.removeprefix("bytes ").partition("/")
        except SearchError as error:
            if error.code != "range":
                raise
            return Log(study, trial, begin or 0, begin or 0, begin or 0, "")  # it has no more
        first = int(at.partition("-")[0])
        text = content.decode(errors="replace")
        return Log(study, trial, first, first + len(content), int(size), text)
