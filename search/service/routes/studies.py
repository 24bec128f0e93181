"""Studies: what there is, what they say, and how a search is steered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import optuna
from fastapi import APIRouter, Path, Query, Response
from optuna.trial import TrialState

from ....storage.database import open_tables
from ....storage.studies import study_keys, trial_of
from ...errors import SearchError
from ...operations import control, export, show, studies
from ...queue.states import State
from ...queue.view import QueuedStudy
from ...results.ranges import NarrowRanges, with_wider_ranges
from ...results.report import StudyReport
from ...results.study import load_result
from ...results.why import TrialHistory
from ...trials.space_text import space_text
from ...trials.stops import stop_of
from ...trials.yaml_text import block_of
from ..access import Admin, Reader, Study, TheService, Writer, names, next_page
from ..freshness import FreshQueued, FreshStudies, FreshStudy
from ..problems import problem
from .queue import seen

router = APIRouter(prefix="/v1/studies", tags=["studies"])
Limit = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]
Trial = Annotated[int, Path(ge=0, le=2**31 - 1, description="Number of a trial.")]
Format = Literal["yaml", "json"]


@dataclass(frozen=True)
class ServedStudy(StudyReport):
    """The report on a study, and where it is in the queue."""

    queue: QueuedStudy | None = None  # None where the queue does not have it


@router.get("", **names("list"), dependencies=[FreshStudies])
def list_studies(
    caller: Reader,
    service: TheService,
    response: Response,
    after: Annotated[str | None, Query(description="Name of the last study of the page before.")] = None,
    limit: Limit = 200,
    state: Annotated[State | None, Query(description="Only those in this state.")] = None,
) -> Annotated[Any, studies.Studies]:
    """The studies that the caller may see, in the order they were made."""
    order = list(study_keys(open_tables(service.workspace.url)))
    if after is not None and after not in order:
        raise problem("request-invalid", f'there is no study "{after}" any more; begin again')
    begin = 0 if after is None else order.index(after) + 1
    follows = {name for name in order[begin:] if caller.may_see(name)}
    found = studies.list_studies(workspace=service.workspace, state=state).studies
    page = [study for study in found if study.name in follows]
    if len(page) > limit:
        response.headers["Link"] = next_page(after=page[limit - 1].name, limit=limit, state=state)
    page = page[:limit]
    return [study.to_json() for study in page]


@router.get("/{study}", **names("show"), dependencies=[FreshQueued])
def show_study(caller: Reader, study: Study, service: TheService) -> Annotated[Any, ServedStudy]:
    """What a study has found, what it rests on, and what to do next; its state and place in the queue."""
    report = show.show(workspace=service.workspace, study=study)
    queued = seen(service.queue.view(), caller).of(study)
    return ServedStudy(**vars(report), queue=queued).to_json()


@router.delete("/{study}", **names("delete"))
def delete(
    caller: Admin,
    study: Study,
    service: TheService,
    files: Annotated[bool, Query(description="Delete its files too.")] = False,
    dry_run: Annotated[bool, Query(description="Only say what would go.")] = False,
) -> Annotated[Any, studies.Deletion]:
    """Delete a study with its trials; 409 while it is searched."""
    return studies.delete(
        workspace=service.workspace, study=study, keep_files=not files, dry_run=dry_run
    ).to_json()


@router.get(
    "/{study}/space",
    **names("space"),
    response_class=Response,
    responses={200: {"content": {"application/yaml": {}, "application/json": {}}}},
)
def space(
    caller: Reader,
    study: Study,
    service: TheService,
    format: Annotated[Format, Query(description="Of the answer.")] = "yaml",
    defaults: Annotated[bool, Query(description="Write out every default, in YAML.")] = True,
    wider: Annotated[bool, Query(description="With the wider ranges that its trials ask for.")] = False,
    name: Annotated[str | None, Query(description="Instead of its own, as for a copy.")] = None,
) -> Any:
    """The space of a study."""
    result = load_result(service.workspace, study)
    spec = with_wider_ranges(result) if wider else result.spec
    if name is not None:
        spec = spec.override(name=name)
    if format == "json":
        return Response(spec.model_dump_json(), media_type="application/json")
    text = block_of(spec.to_json()) if defaults else space_text(spec)
    return Response(text, media_type="application/yaml")


@router.get("/{study}/report", **names("show --all"), dependencies=[FreshStudy])
def report(caller: Reader, study: Study, service: TheService) -> Annotated[Any, StudyReport]:
    """The whole report on a study."""
    return show.show(workspace=service.workspace, study=study).to_json()


@router.get("/{study}/best", **names("best"), dependencies=[FreshStudy])
def best(caller: Reader, study: Study, service: TheService) -> Annotated[Any, show.BestTrial]:
    """The best trial, and what it rests on; 409 while no trial is complete."""
    return show.best(workspace=service.workspace, study=study).to_json()


@router.get("/{study}/export", **names("export"))
def export_trial(
    caller: Reader,
    study: Study,
    service: TheService,
    form: Annotated[export.Form, Query(description="Of the text.")] = "yaml",
    trial: Annotated[
        int | None, Query(ge=0, le=2**31 - 1, description="Another trial than the best.")
    ] = None,
) -> Annotated[Any, export.Exported]:
    """The configuration of a trial, for `hpsearch train`, the shell or another framework."""
    return export.export(workspace=service.workspace, study=study, trial=trial, form=form).to_json()


@router.get("/{study}/ranges", **names("show --ranges"))
def ranges(caller: Reader, study: Study, service: TheService) -> Annotated[Any, NarrowRanges]:
    """Parameters whose best values press against an end of their range, and wider ranges."""
    return show.ranges(workspace=service.workspace, study=study).to_json()


@router.get("/{study}/trials/{trial}/story", **names("show --why"), dependencies=[FreshStudy])
def story(caller: Reader, study: Study, trial: Trial, service: TheService) -> Annotated[Any, TrialHistory]:
    """Why a trial was suggested, paused, resumed or ended."""
    return show.why(workspace=service.workspace, study=study, trial=trial).to_json()


@router.post("/{study}/stop", **names("stop"))
def stop(caller: Writer, study: Study, service: TheService) -> Annotated[Any, control.Steered]:
    """End the search of a study tidily: its running trials are requeued."""
    return control.stop(workspace=service.workspace, study=study, by=caller.name).to_json()


@router.post("/{study}/pause", **names("pause"))
def pause(caller: Writer, study: Study, service: TheService) -> Annotated[Any, control.Steered]:
    """Let a search wait; 409 where none runs."""
    return control.pause(workspace=service.workspace, study=study, by=caller.name).to_json()


@router.post("/{study}/resume", **names("resume"))
def resume(caller: Writer, study: Study, service: TheService) -> Annotated[Any, control.Steered]:
    """Let a paused search continue; 409 where none runs."""
    return control.resume(workspace=service.workspace, study=study, by=caller.name).to_json()


@router.post("/{study}/retry", **names("retry all"))
def retry_all(caller: Writer, study: Study, service: TheService) -> Annotated[Any, control.Steered]:
    """Try all failed trials again; 409 where none has failed."""
    return control.retry(workspace=service.workspace, study=study, by=caller.name).to_json()


@router.post("/{study}/trials/{trial}/kill", **names("kill"))
def kill(caller: Writer, study: Study, trial: Trial, service: TheService) -> Annotated[Any, control.Steered]:
    """End one trial at once, as failed; killing a killed one changes nothing."""
    try:
        return control.kill(workspace=service.workspace, study=study, trial=trial, by=caller.name).to_json()
    except SearchError as error:
        if error.code != "trial-state" or not _is_killed(load_result(service.workspace, study).study, trial):
            raise
    return control.Steered(study, False, (trial,)).to_json()


def _is_killed(study: optuna.Study, number: int) -> bool:
    """Whether a trial was killed before: the same command again changes nothing."""
    trial = trial_of(study, number)
    stop = stop_of(trial) if trial.state == TrialState.FAIL else None
    return stop is not None and stop.kind == "killed"


@router.post("/{study}/trials/{trial}/retry", **names("retry"))
def retry(caller: Writer, study: Study, trial: Trial, service: TheService) -> Annotated[Any, control.Steered]:
    """Try a failed trial again; 409 where it has not failed."""
    return control.retry(workspace=service.workspace, study=study, trial=trial, by=caller.name).to_json()
