"""The winner of a study, its figures, and how the search goes on."""

from __future__ import annotations

import os
import tempfile
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from ...operations import export, forecast, show
from ...operations import winner as winners
from ..access import Reader, Study, TheService, names
from ..freshness import FreshStudy
from ..sending import send_file

router = APIRouter(prefix="/v1/studies/{study}", tags=["winner"])


@router.get("/winner", **names("winner"), dependencies=[FreshStudy])
def winner(caller: Reader, study: Study, service: TheService) -> Annotated[Any, winners.Winner]:
    """The winner: how sure that is, what to expect of it, what it gains, and what would make it surer."""
    return winners.winner(workspace=service.workspace, study=study).to_json()


@router.get("/winner.zip", **names("winner --zip"), response_class=Response)
def winner_zip(
    caller: Reader,
    study: Study,
    service: TheService,
    request: Request,
    unconfirmed: Annotated[
        Literal["yes", "no"], Query(description="Whether one that is not confirmed will do.")
    ] = "no",
) -> Response:
    """The model or adapter of the winner, its configuration, and the versions it was trained with."""
    with tempfile.TemporaryFile(dir=service.home.folder) as output:
        found = winners.winner_zip(
            workspace=service.workspace, study=study, output=output, unconfirmed=unconfirmed == "yes"
        )
        output.flush()
        descriptor = os.dup(output.fileno())
    name = f"{study}-{found.trial}.zip"
    return send_file(request, descriptor, name, "application/zip", **{"X-Winner-Status": found.status})


@router.get("/winner/recipe", **names("winner recipe"))
def recipe(
    caller: Reader, study: Study, service: TheService, format: export.Form = "yaml"
) -> Annotated[Any, export.Exported]:
    """The winner's configuration as text, for hpsearch, the shell or another framework."""
    return export.export(workspace=service.workspace, study=study, form=format).to_json()


@router.get("/figures/{name}", **names("figure"), dependencies=[FreshStudy])
def figure(caller: Reader, study: Study, service: TheService, name: str) -> Response:
    """A figure as Plotly's JSON."""
    found = show.figure(workspace=service.workspace, study=study, name=name)
    return Response(found.text, media_type="application/json")


@router.get("/forecast", **names("forecast"), dependencies=[FreshStudy])
def forecast_study(
    caller: Reader,
    study: Study,
    service: TheService,
    time: Annotated[str | None, Query(description="What if the time were this: 2h, or +30m.")] = None,
    trials: Annotated[str | None, Query(description="What if the trials were these: 80, or +20.")] = None,
    samples: Annotated[str | None, Query(description="What if the samples were these.")] = None,
    slots: Annotated[
        int | None, Query(ge=1, le=10_000, description="What if so many trained at a time.")
    ] = None,
) -> Annotated[Any, forecast.StudyForecast]:
    """How the study goes on by its own pace, or would with another budget; nothing is run."""
    return forecast.forecast(
        workspace=service.workspace, study=study, time=time, trials=trials, samples=samples, slots=slots
    ).to_json()
