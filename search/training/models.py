"""Finds the file of a trained model: of a training, of a study's trial, or the file itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...objectives.info import ObjectiveInfo, trainers
from ...storage import StorageError
from ...storage.files import CHECKPOINT
from ..errors import UsageError
from ..trials.document import load_document
from ..values import NextStep
from .run import CONFIG, SUMMARY

if TYPE_CHECKING:
    from ...storage.workspace import Workspace
    from ..results.study import StudyResult


def find_model(
    workspace: Workspace, run: str, *, trial: int | None = None, checkpoints: bool = False
) -> Path:
    """The file with the model of `run`; with `checkpoints` the folder of its checkpoints.

    `run` is a file, a folder of `hpsearch train`, or a study: its best trial, or that of a number. Raises
    `UsageError` where it has no model (yet), and `StorageError` where it is none of these.
    """
    path = Path(run)
    if trial is None and path.is_file():
        if checkpoints:
            message = f"{run}: a run's folder or a study has checkpoints; this is one model"
            raise UsageError(message, code="unfinished-run")
        return path
    if trial is None and path.is_dir() and (path / CONFIG).is_file():
        _check(str(path), load_document(path / CONFIG).objective)
        return path / CHECKPOINT if checkpoints else _of_training(path)  # it may still be running
    from ..results.study import load_result

    try:
        study = load_result(workspace, run)
    except StorageError as error:
        if trial is not None:
            raise
        what = "not a run of hpsearch train" if path.is_dir() else "no such file or folder"
        raise UsageError(f"{run}: {what}, and not a study: {error}") from error
    file = _of_trial(study, trial)
    return file.parent if checkpoints else file


def _of_training(folder: Path) -> Path:
    from ...objectives.generate import model_file

    if not (folder / SUMMARY).is_file():
        raise UsageError(
            f"{folder}: this training is not finished; continue it with {folder / CONFIG}, "
            "or use its model at a checkpoint",
            code="unfinished-run",
        )
    if (file := model_file(folder)) is None:
        raise UsageError(f"{folder}: the model of this training is no longer in its folder")
    return file


def _of_trial(study: StudyResult, number: int | None) -> Path:
    from ...objectives.generate import model_file
    from ...storage.studies import trial_of

    spec = study.spec
    name = f'the study "{study.name}"'
    _check(name, spec.objective_words)
    number = study.best.number if number is None else trial_of(study.study, number).number
    if (file := model_file(study.trial_folder(number) / CHECKPOINT)) is None:
        raise UsageError(
            f"{name}: trial {number} has no checkpoint here "
            f"(the best {spec.execution.keep} keep theirs); to get its model, export and train it",
            code="no-checkpoint",
            next_steps=[
                NextStep("export", {"study": study.name, "trial": number}, "export it"),
                NextStep("train", {"file": "best.yaml"}, "train it"),
            ],
        )
    return file


def _check(name: str, objective: str | list[str]) -> None:
    info = ObjectiveInfo(objective)
    if info.trainer is None:
        ours = ", ".join(each.name for each in trainers())
        raise UsageError(
            f"{name}: trained by {info.name}; only models of hpsearch's trainer ({ours}) generate text"
        )
