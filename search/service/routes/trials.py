"""Trials: their rows and their curves."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Response
from pydantic import Field

from ...operations import control, show, watch
from ...results.ladder import RungLadder
from ...results.report import TrialReport
from ...results.trials import TrialRow
from ...values import State, merged
from ..access import Body, Reader, Study, TheService, Writer, names, next_page
from ..freshness import FreshStudy
from ..problems import problem

router = APIRouter(prefix="/v1/studies/{study}", tags=["trials"])
Number = Annotated[int, Path(ge=0, description="The number of a trial.")]
After = Annotated[int | None, Query(ge=-1, description="The last trial of the page before.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]
SOME = merged("SomeOfTrialRow", TrialRow, partial=True)  # `fields` may leave some out


@router.get("/trials", **names("trials"), dependencies=[FreshStudy])
def trials(
    caller: Reader,
    study: Study,
    service: TheService,
    response: Response,
    state: State | None = None,
    sort: Annotated[
        Literal["number", "newest", "value"],
        Query(description="By number, the newest first, or by value with the best complete trial first."),
    ] = "number",
    after: After = None,
    limit: Limit = 200,
    fields: Annotated[str, Query(description="Only these fields of a row, with commas between.")] = "",
) -> Annotated[Any, list[SOME]]:
    """The trials of a study, page by page; the header Link leads to the next one."""
    chosen = [name.strip() for name in fields.split(",") if name.strip()]
    found = show.trials(
        workspace=service.workspace,
        study=study,
        state=state,
        best_first=sort == "value",
        newest_first=sort == "newest",
        after=after,
        limit=limit,
        fields=chosen,
    )
    if found.more:
        asked = {"state": state, "sort": sort, "fields": ",".join(chosen)}
        same = {name: value for name, value in asked.items() if value}
        response.headers["Link"] = next_page(after=found.rows[-1].number, limit=limit, **same)
    return found.to_json()


class TryBody(Body):
    """A configuration to try: values of its own, over those of a trial."""

    params: dict[str, Any] = Field({}, description="Values of searched parameters.")
    trial: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = Field(
        None, alias="from", description="A trial whose values fill in; null: the sampler proposes them."
    )


@router.post("/trials", status_code=201, responses={200: {}}, **names("try"))
def try_config(
    caller: Writer,
    study: Study,
    service: TheService,
    body: TryBody,
    response: Response,
    idempotency_key: Annotated[
        str | None,
        Header(min_length=1, max_length=200, description="The same key again is the same trial."),
    ] = None,
) -> Annotated[Any, control.Tried]:
    """Enqueue a configuration: it trains before what the sampler proposes. 200 where the key made it."""
    done = control.try_config(
        workspace=service.workspace,
        study=study,
        params=body.params,
        trial=body.trial,
        request=idempotency_key,
        by=caller.name,
    )
    response.status_code = 201 if done.made else 200
    response.headers["Location"] = f"trials/{done.trial}"
    service.queue.poke()
    return done.to_json()


@router.get("/trials/{trial}", **names("show --trial"), dependencies=[FreshStudy])
def show_trial(
    caller: Reader, study: Study, service: TheService, trial: Number
) -> Annotated[Any, TrialReport]:
    """One trial: its configuration, its curve, its rank at the rungs, its files."""
    return show.show_trial(workspace=service.workspace, study=study, trial=trial).to_json()


@router.get("/ladder", **names("ladder"), dependencies=[FreshStudy])
def ladder(caller: Reader, study: Study, service: TheService) -> Annotated[Any, RungLadder]:
    """The rungs: which trials have reached which, who waits there, and who went on."""
    return show.ladder(workspace=service.workspace, study=study).to_json()


@router.get("/improvements", **names("improvements"), dependencies=[FreshStudy])
def improvements(caller: Reader, study: Study, service: TheService) -> Annotated[Any, watch.Improvements]:
    """The trials each of which was the best when it ended."""
    return watch.improvements(workspace=service.workspace, study=study).to_json()


@router.get("/curves", **names("curves"), dependencies=[FreshStudy])
def curves(
    caller: Reader,
    study: Study,
    service: TheService,
    trials: Annotated[str, Query(description="Only of these trials, with commas between.")] = "",
    since: Annotated[
        int | None, Query(ge=0, description="`last` of an earlier answer: only what came later.")
    ] = None,
    points: Annotated[int, Query(ge=5, le=10_000, description="Of each curve, at most.")] = watch.POINTS,
    after: After = None,
    limit: Limit = watch.MOST_CURVES,
) -> Annotated[Any, watch.Curves]:
    """The curves of trials in columns, thinned so that their ends and extremes stay."""
    numbers = [each.strip() for each in trials.split(",") if each.strip()]
    if not all(each.isascii() and each.isdecimal() and len(each) < 10 for each in numbers):
        raise problem("request-invalid", f"trials is {trials[:100]!r}; write numbers: 3,17,18")
    return watch.curves(
        workspace=service.workspace,
        study=study,
        trials=[int(each) for each in numbers] if numbers else None,
        since=since,
        points=points,
        after=after,
        limit=limit,
    ).to_json()
