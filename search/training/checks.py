"""Checks whether a configuration can be trained here."""

from __future__ import annotations

from ...objectives.base import ObjectiveError
from ...objectives.info import ObjectiveInfo
from ...objectives.resolve import check_name
from ...spaces import SpaceError
from ..preflight.requirements import missing
from ..trials.document import Document


def check(document: Document) -> None:
    """Raise `SpaceError` where the objective does not exist or, built in, refuses parameters.

    Also where its processes cannot divide the training, a file that it names does not exist, or a tracker's
    package is missing.
    """
    if problems := [problem for name in document.report_to if (problem := missing(name))]:
        raise SpaceError(document.places.issue("report_to", problem) for problem in problems)
    if document.processes > 1 and (problem := missing(document.sharing.get("strategy"))):
        raise SpaceError([document.places.issue("provenance.strategy", problem)])
    if isinstance(document.objective, list):
        return
    try:
        check_name(document.objective, document.folder)
    except ObjectiveError as error:
        raise SpaceError([document.places.issue("objective", str(error))]) from error
    info = ObjectiveInfo(document.objective)
    if problem := info.metric_problem(document.metric):
        raise SpaceError([document.places.issue("metric", problem)])
    values = {"seed": document.seed} | document.parameters
    faults = info.parameter_problems(values)
    if document.processes > 1:
        how = document.sharing.get("strategy", "ddp")
        faults += info.sharing_problems(values, how)
    for name, value in document.parameters.items():
        if problem := info.missing_file(name, value):
            faults.append((name, problem))
    if faults:
        raise SpaceError(document.issue(name, message) for name, message in faults)
