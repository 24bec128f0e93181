"""Runs an unchanged function written for Ray Tune, `train_fn(config)`: `ray:train.py:train_fn`.

`tune.report`, `tune.get_checkpoint` and `tune.get_context` ask a session of this process, which is set here.
Nothing of Ray is started: it works on every backend, and `Tuner.fit` of the user's file is not run. With
`ray:train.py:__main__`, the file is run as a program up to its `Tuner`: the function is what that is given.

Sessions are private to Ray (`_internal` in the imports), so a test fails where a newer Ray has moved them.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from numbers import Number
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn
from unittest import mock

import ray
from ray import tune
from ray.train._internal import session as sessions
from ray.train.v2._internal.execution import train_fn_utils

from ..base import MAX_NAME_LETTERS, NothingReported, Objective, ObjectiveError, SpaceMismatch, Trial
from ..reports import RESERVED_NAMES
from .function import MAIN, SearchBegins, as_main, load_function, run_to_search
from .macros import flat
from .surroundings import told_in_variables

REPORT, UNFINISHED = "report-", "tmp-report-"  # begin the names of folders in a trial's checkpoint
DATA, ABOUT = "data", "report.json"  # in each: what was reported as a checkpoint, and with which values

OLD_REPORT = re.compile(  # metrics as arguments, which Ray's own functions refuse
    r"report\(\) (?:got an unexpected keyword argument '(\w+)'|missing .* argument: 'metrics')"
)


class _Done(BaseException):
    """A function has reported `done`, which ends its trial."""


def load_ray(name: str, search: Mapping[str, Any], metric: str, folder: str | None = None) -> Objective:
    """Import a trainable of Ray Tune; `search` is its study's name and the end of its trials, if known.

    Raises `ObjectiveError` if there is no such file, module or function.
    """
    with _without_searches():
        if name.endswith(f":{MAIN}"):
            searched, main = run_to_search(name, folder)
            return RayObjective(searched, search, metric, main)
        function: Any = load_function(name, folder)
    return RayObjective(function, search, metric)


class RayObjective:
    """A function, or a class, that Ray Tune could train, as an objective of hpsearch."""

    def __init__(
        self, function: Any, search: Mapping[str, Any], metric: str, main: ModuleType | None = None
    ) -> None:
        """`main` is the module of the program that made the function, if it was run for that."""
        self._function = function
        self._main = main
        self._search = search
        self._metric = metric

    def __call__(self, trial: Trial, /) -> float:
        session = TuneSession(trial, self._metric, str(self._search.get("study", "hpsearch")))
        with told_in_variables(trial), _set(session), as_main(self._main):
            try:
                self._run(session, deepcopy(trial.params))
            except _Done:
                pass
            except Exception as error:
                session.raise_mismatch()
                self._raise_old_report(error)
                raise
        session.raise_mismatch()
        if session.value is None:
            raise NothingReported(f'the function ended without tune.report({{"{self._metric}": ...}})')
        return session.value

    def _raise_old_report(self, error: Exception) -> None:
        """Raise what to write where metrics are given to Ray's `report` as arguments."""
        old = OLD_REPORT.match(str(error)) if isinstance(error, TypeError) else None
        own = getattr(self._function, "__globals__", {}).get("report")  # a function of the user's, maybe
        if old is None or not str(getattr(own, "__module__", "ray")).startswith("ray"):
            return
        key = old[1] or self._metric
        raise SpaceMismatch(
            f"{error}: tune.report({key}=...) is of Ray before 2.7, and Ray {ray.__version__} takes a "
            f'mapping; write tune.report({{"{key}": {key}}})'
        ) from error

    def _run(self, session: TuneSession, config: dict[str, Any]) -> None:
        function = self._function
        if isinstance(function, type):
            self._train(session, config)
        elif inspect.isgeneratorfunction(function):
            for output in function(config):
                session.report_output(output)
        else:
            session.report_output(function(config))

    def _train(self, session: TuneSession, config: dict[str, Any]) -> None:
        """Train a class: a report after each `step`, until it says `done` or the end that the space gives."""
        if not issubclass(self._function, tune.Trainable):
            raise ObjectiveError(
                f"{self._function.__name__} is a class, and none of tune.Trainable's; name a function of a "
                "config"
            )
        last = self._search.get("last")
        if last is None:
            told = "its class ends only when it reports done; early_stopping: {max: N} gives it an end"
            session.remark("no end", told)
        trainable: Any = _in_folder(self._function, session.trial_dir)(config=config)
        saves = self._function.save_checkpoint is not tune.Trainable.save_checkpoint
        try:
            if session.loaded_checkpoint is not None:
                trainable.restore(session.loaded_checkpoint.path)
            while last is None or session.iteration < last:
                result = trainable.train()
                if not saves:
                    session.report(result)
                    continue
                with tempfile.TemporaryDirectory(prefix="hpsearch-") as folder:
                    trainable.save(folder)
                    session.report(result, tune.Checkpoint.from_directory(folder))
        finally:
            trainable.stop()


def _in_folder(trainable: type[Any], folder: str) -> type[Any]:
    """A class whose files go into this folder; Ray Tune would make one of its own in the user's home."""
    return type(
        trainable.__name__, (trainable,), {"_setup_logdir": lambda each: setattr(each, "_logdir", folder)}
    )


class TuneSession:
    """What Ray's functions ask in a trial: stands in for Ray's own session."""

    world_size = local_world_size = 1
    world_rank = local_rank = node_rank = 0
    metadata = None

    def __init__(self, trial: Trial, metric: str, study: str) -> None:
        self._trial = trial
        self._metric = metric
        self._mismatch: SpaceMismatch | None = None
        self.value: float | None = None  # the last one reported
        self.iteration = 0  # reports so far, also of the attempts before
        self.loaded_checkpoint: Any = None
        self.experiment_name = study
        self.trial_id = f"{trial.number:05d}"
        self.trial_name = f"{study}_{self.trial_id}"
        self.run_id = self.trial_id
        self.trial_dir = str(trial.checkpoint.parent.absolute())
        if trial.resume_from is not None:
            self._resume(trial.resume_from)

    @property
    def trial_resources(self) -> Any:
        """The processors of this trial, by the threads that it is given."""
        return tune.PlacementGroupFactory([{"CPU": float(os.environ.get("OMP_NUM_THREADS", 1))}])

    @property
    def storage(self) -> NoReturn:
        raise ObjectiveError("get_storage(): hpsearch stores checkpoints itself; use tune.get_checkpoint()")

    def get_dataset_shard(self, dataset_name: str | None = None) -> NoReturn:
        raise ObjectiveError("get_dataset_shard(): a trial of hpsearch has no dataset; load the data in it")

    def report(self, metrics: Any, checkpoint: Any = None) -> None:
        """Report to the search, after the checkpoint is in the trial's folder."""
        # Ray Tune joins names by slashes.
        found = flat(metrics, separator="/") if isinstance(metrics, Mapping) else {}
        if self._metric not in found:
            self._fail(found if isinstance(metrics, Mapping) else {}, metrics)
        value = found.pop(self._metric)
        numbers = {
            name: number
            for name, each in found.items()
            if name not in RESERVED_NAMES
            and 0 < len(name) <= MAX_NAME_LETTERS
            and (number := _number(each)) is not None
        }
        number = _number(value)
        if checkpoint is not None and number is not None and math.isfinite(number):
            self._keep(checkpoint, number)
        self.iteration += 1
        self._trial.report(value, self.iteration, **numbers)
        self.value = number
        if found.get("done") is True:
            raise _Done

    def report_output(self, output: Any) -> None:
        """Report what a function returned or yielded, as Ray Tune does: a mapping, or a number alone."""
        if isinstance(output, Mapping) and output:
            self.report(output)
        elif isinstance(output, Number) and not isinstance(output, bool):
            self.report({self._metric: output})
        elif output:
            raise TypeError(f"the function returned {output!r:.200}; Ray Tune takes a mapping or a number")

    def remark(self, kind: str, text: str) -> None:
        self._trial.remark(kind, text)

    def raise_mismatch(self) -> None:
        """Raise the `SpaceMismatch`, if any, even if the function has caught it."""
        if self._mismatch is not None:
            raise self._mismatch

    def _fail(self, found: Mapping[str, Any], metrics: Any) -> NoReturn:
        was = f"only {', '.join(found)}" if found else repr(metrics)[:200]
        alone = [name for name, each in found.items() if _number(each) is not None and name != "done"]
        hint = f"write metric: {alone[0]}" if len(alone) == 1 else "write one of them as metric:"
        self._mismatch = SpaceMismatch(
            f'tune.report() was given {was}, and the metric of the space is "{self._metric}"; '
            f"{hint if alone else 'report it'}"
        )
        raise self._mismatch

    def _keep(self, checkpoint: Any, value: float) -> None:
        """Copy a reported checkpoint into the trial's folder; the one before stays until it is whole."""
        folder, number = self._trial.checkpoint, f"{self.iteration + 1:06d}"
        unfinished, kept = folder / f"{UNFINISHED}{number}", folder / f"{REPORT}{number}"
        for old in (unfinished, kept):
            shutil.rmtree(old, ignore_errors=True)
        with checkpoint.as_directory() as source:
            shutil.copytree(source, unfinished / DATA, symlinks=True)
        about = {"iteration": self.iteration + 1, "value": value}
        (unfinished / ABOUT).write_text(json.dumps(about), encoding="utf-8")
        unfinished.rename(kept)
        for old in folder.glob(f"{REPORT}*"):
            if old != kept:
                shutil.rmtree(old, ignore_errors=True)
        self.loaded_checkpoint = tune.Checkpoint.from_directory(str((kept / DATA).absolute()))

    def _resume(self, folder: Path) -> None:
        """Go on after the newest checkpoint of an earlier attempt."""
        kept = max(folder.glob(f"{REPORT}*/{ABOUT}"), default=None)
        if kept is not None:
            about = json.loads(kept.read_text(encoding="utf-8"))
            self.iteration, self.value = int(about["iteration"]), float(about["value"])
            data = (kept.parent / DATA).absolute()
            self.loaded_checkpoint = tune.Checkpoint.from_directory(str(data))


class _TrainUtils(train_fn_utils.LocalTrainFnUtils):
    """`ray.train.report` and others of Ray Train, by the session of Ray Tune."""

    def __init__(self, session: TuneSession) -> None:
        super().__init__(session.experiment_name)
        self._session = session

    def report(self, metrics: Any, checkpoint: Any = None, *others: Any, **named: Any) -> None:
        self._session.report(metrics, checkpoint)

    def get_checkpoint(self) -> Any:
        return self._session.loaded_checkpoint

    def get_context(self) -> Any:
        return tune.get_context()


@contextmanager
def _set(session: TuneSession) -> Iterator[None]:
    """Let Ray's functions ask this session meanwhile."""
    with mock.patch.object(sessions, "_session", session):
        train_fn_utils.set_train_fn_utils(_TrainUtils(session))
        try:
            yield
        finally:
            train_fn_utils.set_train_fn_utils(None)


@contextmanager
def _without_searches() -> Iterator[None]:
    """Let a search of the user's file end its import, and start no Ray there."""

    def tuner(self: Any, trainable: Any = None, **named: Any) -> NoReturn:
        raise SearchBegins(trainable)

    def run(run_or_experiment: Any, *given: Any, **named: Any) -> NoReturn:
        raise SearchBegins(run_or_experiment)

    def with_parameters(trainable: Any, **given: Any) -> Any:
        """Without Ray's store of objects, through which they would go to other machines."""
        if not isinstance(trainable, type):
            return functools.partial(trainable, **given)
        setup = functools.partialmethod(trainable.setup, **given)  # type: ignore[attr-defined]
        return type(trainable.__name__, (trainable,), {"setup": setup})

    with (
        mock.patch.object(tune.Tuner, "__init__", tuner),
        mock.patch.object(tune, "run", run),
        mock.patch.object(tune, "with_parameters", with_parameters),
        mock.patch.object(ray, "init"),
    ):
        yield


def _number(value: Any) -> float | None:
    """A number, also of numpy or torch; None for anything else."""
    if isinstance(value, str | bytes | bool) or not hasattr(value, "__float__"):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None
